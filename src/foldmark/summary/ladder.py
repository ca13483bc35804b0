"""The ladder: ways to get a summary from a model, from the best to the most modest.

`summarize` is a generator that yields requests and is sent their outcomes. Each rung asks once,
and once more where the answer can be mended; what went wrong decides which rung is next. All is
bounded: the calls, the time, the cost. Where no rung holds, the digest stands alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from foldmark.compaction.fold import LEAST_SUMMARY
from foldmark.compaction.situation import Situation
from foldmark.compaction.tail import Fold
from foldmark.model.messages import Tokens
from foldmark.model.prompt_messages import Call, Declared, PromptMessage
from foldmark.model.values import Frozen, encode, summed
from foldmark.policy import CompactRules, Rung
from foldmark.tokens.counters import Counter
from foldmark.tokens.limits import Limit

from .prompting import (
    SECTIONS,
    fenced,
    filled,
    final_request,
    in_words,
    prompt,
    repair,
    system_prompt,
    with_request,
)
from .protocol import (
    AT_ONCE,
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    retry_pause,
)
from .redaction import masked
from .transcript import Cutting, chunks, record

# A window of which nothing is known is taken to be of this size.
USUAL_WINDOW = 128_000
# Of a window, what a request leaves free: estimates are not exact.
_MARGIN = 0.1
# An answer that is hardly too long is taken: asking again would cost more than it saves.
SLACK = 1.1
_LEAST_DIGEST = 200  # tokens without which a digest is not worth adding to a model's summary
_LEAST_ROOM = 300  # a request with less room for the record is not worth sending
_LONGEST_PAUSE = 30.0  # seconds; what a provider wants to wait longer is not tried again
_AGAIN = frozenset({"throttled", "failed"})


How = Rung | Literal["digest"]


class SummarizerLimits(Frozen):
    """Who is asked, and within which bounds."""

    rules: CompactRules
    limit: Limit  # of the model that summarises
    digest: Callable[[Situation, int], str]  # of what is folded, in so many tokens
    own: bool  # whether it is the session's own model, whose cache holds the session's prefix
    clock: Callable[[], float] = lambda: 0.0
    name: str = ""  # of the model


class ModelUsage(Frozen):
    """What was used up, and what went wrong on the way."""

    calls: int = 0
    tokens: Tokens | None = None
    cost: float = 0.0
    flaws: tuple[str, ...] = ()


class Summary(Frozen):
    """A summary, and how it came about."""

    text: str
    fold: Fold
    how: How | Literal[""] = ""  # "": the caller wrote it
    spent: ModelUsage = ModelUsage()
    words: int | None = None  # tokens of the user's words, where a target says so
    model: str = ""  # that wrote it


def summarize(situation: Situation, limits: SummarizerLimits) -> ModelDialogue[Summary]:
    """A summary of what is folded: a model's if one can be had, and the digest's in any case."""
    most, rules = situation.max_summary_tokens, limits.rules
    share = most // 2 if rules.digest else int(most / SLACK)
    ladder = Ladder(situation, limits, share)
    is_enough = share >= LEAST_SUMMARY // 2  # for what a model would write
    written = yield from ladder.climb(rules.rungs if is_enough else ())
    if written is None:
        text, how = limits.digest(situation, most), "digest"
    else:
        text, how = masked(written[0]) if rules.mask else written[0], written[1]
        text = _with_digest(text, situation, limits) if rules.digest else text
    return Summary(
        text=text,
        fold=situation.fold,
        how=how,
        spent=ladder.spent,
        words=situation.words,
        model="" if written is None else limits.name,
    )


def _with_digest(text: str, situation: Situation, limits: SummarizerLimits) -> str:
    """A model's summary and the digest after it; counts of parts are not the count of the whole."""
    count, most = situation.log.count, situation.max_summary_tokens
    left = most - count(text) - 2
    while left >= _LEAST_DIGEST:
        whole = f"{text}\n\n{limits.digest(situation, left)}"
        over = count(whole) - most
        if over <= 0:
            return whole
        left -= max(over, left // 10)
    return text


class Ladder:
    """Climbs down, rung by rung, until a summary is accepted."""

    def __init__(self, situation: Situation, limits: SummarizerLimits, most: int) -> None:
        """Take what is to be summarized, who may be asked, and the tokens of a summary."""
        self._situation = situation
        self._limits = limits
        self._rules = limits.rules
        self._most = most
        self._count: Counter = situation.log.count
        wish = situation.request
        self._request = final_request(limits.rules, wish, most)
        # Where another prompt stands for ours, no headings are asked for.
        ours = limits.rules.prompts == "foldmark" and wish.prompt is None
        self._sections = SECTIONS if ours else ()
        self._window = limits.limit.input or limits.limit.context or USUAL_WINDOW
        self._deadline = limits.clock() + limits.rules.seconds
        self._gone = False  # no further ask makes sense
        self.spent = ModelUsage()

    def climb(self, rungs: Sequence[Rung]) -> ModelDialogue[tuple[str, Rung] | None]:
        """The first summary that is accepted; None where none is."""
        ways = {
            "prefix": self._prefix,
            "serial": self._serial,
            "chunks": self._chunks,
            "tight": self._tight,
        }
        for rung in rungs:
            text = yield from ways[rung]()
            if text is not None:
                return text.strip(), rung
            if self._gone:
                return None
        return None

    # --- rungs ---

    def _prefix(self) -> ModelDialogue[str | None]:
        """The session's own request with one message more, so that the cache is read."""
        asked, view = self._situation.request, self._situation.view
        blocks = (block for message in view.messages for block in message.content)
        bare = not asked.tools and any(isinstance(block, Call) for block in blocks)
        # Some providers refuse calls in a request that declares no tools.
        # What a provider has just refused for its length is not sent once more.
        if not self._limits.own or asked.overflow or bare or not view.messages:
            return None
        tokens = self._situation.view_tokens + asked.fixed + self._count(self._request)
        if tokens + self._answer_room() > self._window:
            return None
        ask = self._ask(with_request(view.messages, self._request), system=asked.system)
        return (yield from self._answer(replace(ask, tools=asked.tools)))

    def _serial(self) -> ModelDialogue[str | None]:
        """The record as text, its outputs cut."""
        blocks = self._record(self._cutting())
        if not blocks or self._tokens(blocks) > self._room():
            return None
        return (yield from self._answer(self._about(blocks, self._request)))

    def _chunks(self) -> ModelDialogue[str | None]:
        """Notes on each part of the record, then notes on these notes."""
        groups = self._groups()
        if len(groups) < 2:
            return None
        notes = yield from self._notes(groups)
        while notes and self._tokens(notes) > self._room():
            groups = chunks(notes, self._room(), self._count)
            if len(groups) >= len(notes) or not self._may_ask(len(groups) + 1):
                return None
            notes = yield from self._notes(groups)
        if not notes:
            return None
        return (yield from self._answer(self._about(notes, prompt("merge"), self._request)))

    def _tight(self) -> ModelDialogue[str | None]:
        """The digest in place of the record: what is left out was chosen with care."""
        room = min(self._room(), max(4 * self._most, _LEAST_ROOM)) // 2
        if room < _LEAST_ROOM // 2:
            return None
        digest = self._limits.digest(self._situation, room)
        return (yield from self._answer(self._about([digest], self._request)))

    # --- what they are made of ---

    def _cutting(self) -> Cutting:
        return Cutting(output=self._rules.cut, both_ends=self._rules.both_ends)

    def _record(self, cutting: Cutting) -> list[str]:
        blocks = record(self._situation.log, self._situation.places, cutting)
        if self._rules.mask:
            blocks = [masked(block) for block in blocks]
        previous = self._situation.previous
        return [f"{prompt('previous')}\n\n{previous}", *blocks] if previous else blocks

    def _groups(self) -> list[list[str]]:
        """The record in parts, cut until there are few enough of them."""
        most = self._calls_left() - 2  # one puts them together, one may mend that
        room, cutting = self._room(), self._cutting()
        if most < 2 or room < _LEAST_ROOM:
            return []
        while cutting is not None:
            groups = chunks(self._record(cutting), room, self._count)
            if len(groups) <= most:
                return groups
            cutting = cutting.tighter()
        return []

    def _notes(self, groups: Sequence[Sequence[str]]) -> ModelDialogue[list[str]]:
        """Notes on each group, asked for at the same time; nothing where one is missing."""
        most = max(min(self._room() // (2 * len(groups)), 2 * self._most), 100)
        fields = {"total": len(groups), "words": in_words(most)}
        asks = tuple(
            replace(self._about(group, filled("chunk", number=number, **fields)), purpose="chunk")
            for number, group in enumerate(groups, 1)
        )
        if not self._may_ask(len(asks)):
            return []
        outcomes = yield from self._send(*asks)
        notes: list[str] = []
        for ask, outcome in zip(asks, outcomes, strict=True):
            again = yield from self._again(ask, outcome)
            if isinstance(again, ModelFailure):
                self._learn(again)
                return []
            text = again.text.strip()
            # Notes that were cut are notes still: what stands in them was read.
            if not text or self._count(text) > 4 * most:
                self._flawed(f"notes on a part: {flaw(again, self._count, most=most)}")
                return []
            notes.append(text)
        return notes

    def _about(self, blocks: Sequence[str], *requests: str) -> ModelRequest:
        text = "\n\n".join(filter(None, (fenced(blocks), *requests)))
        return self._ask(with_request((), text), system=system_prompt(self._rules))

    def _ask(self, messages: tuple[PromptMessage, ...], system: str) -> ModelRequest:
        seconds = self._rules.request_seconds
        return ModelRequest(
            messages=messages, system=system, most=self._answer_room(), seconds=seconds
        )

    def _answer_room(self) -> int:
        """Tokens for an answer: several times what is asked for, as some models think first."""
        most = max(1_000, 4 * self._most)
        return max(64, min(most, self._limits.limit.output or most, self._window // 4))

    def _room(self) -> int:
        """Tokens of the record that a request can hold."""
        overhead = self._count(self._request) + self._count(system_prompt(self._rules)) + 200
        return int(self._window * (1 - _MARGIN)) - self._answer_room() - overhead

    def _tokens(self, blocks: Sequence[str]) -> int:
        return sum(self._count(block) + 1 for block in blocks)

    # --- asking ---

    def _answer(self, ask: ModelRequest) -> ModelDialogue[str | None]:
        """An answer that is accepted, at once or after one repair."""
        for last in (False, True):
            if not self._may_ask():
                self._flawed("no calls, seconds or dollars were left to go on")
                return None
            (outcome,) = yield from self._send(ask)
            outcome = yield from self._again(ask, outcome)
            if isinstance(outcome, ModelFailure):
                self._learn(outcome)
                return None
            wrong = flaw(outcome, self._count, most=self._most, sections=self._sections)
            if wrong is None:
                return outcome.text
            self._flawed(wrong)
            if not last:
                # What is far too long is not sent back: it would not fit.
                said = outcome.text[: 4 * max(self._most, 100)]
                ask = replace(ask, messages=repair(ask.messages, said, wrong), purpose="repair")
        return None

    def _again(self, ask: ModelRequest, outcome: Outcome) -> ModelDialogue[Outcome]:
        """The outcome, after further tries where these may help."""
        for attempt in range(1, self._rules.retries + 1):
            if isinstance(outcome, ModelReply) or outcome.cause not in _AGAIN:
                break
            wait = retry_pause(attempt, outcome.retry_after)
            if not self._may_ask() or wait > min(_LONGEST_PAUSE, self._seconds_left()):
                break
            self._flawed(outcome.message)
            (outcome,) = yield from self._send(replace(ask, after=wait))
        return outcome

    def _learn(self, refused: ModelFailure) -> None:
        """What a refusal says about the rungs below."""
        self._flawed(f"{refused.cause}: {refused.message}")
        if refused.cause == "overflow":
            # The window is smaller than it was taken to be.
            self._window //= 2
        elif refused.cause != "timeout":
            self._gone = True

    def _send(self, *asks: ModelRequest) -> ModelDialogue[tuple[Outcome, ...]]:
        """Send requests at the same time; all are paid for, whichever of them is of use."""
        self._use(calls=len(asks))
        # Those that wait for others, or before they are sent, have what is left then.
        left = self._seconds_left() / -(-len(asks) // AT_ONCE)
        outcomes = yield tuple(
            replace(ask, seconds=max(0.1, min(ask.seconds, left - 1.25 * ask.after)))
            for ask in asks
        )
        for outcome in outcomes:
            if isinstance(outcome, ModelReply):
                self._use(tokens=outcome.tokens, cost=outcome.cost or 0.0)
        return outcomes

    def _flawed(self, what: str) -> None:
        line = masked(" ".join(what.split()))[:200]  # a provider may repeat what it was sent
        self._use(flaws=(line,))

    def _use(self, **used: Any) -> None:
        self.spent = summed((self.spent, ModelUsage(**used)))

    def _may_ask(self, times: int = 1) -> bool:
        cost = self._rules.cost
        return (
            self._calls_left() >= times
            and self._seconds_left() > 0
            and (cost is None or self.spent.cost < cost)
        )

    def _calls_left(self) -> int:
        return self._rules.calls - self.spent.calls

    def _seconds_left(self) -> float:
        return self._deadline - self._limits.clock()


def declared_tokens(system: str, tools: Sequence[Declared], count: Counter) -> int:
    """What a system prompt and tools cost in each request."""
    said = count(system) if system else 0
    return said + sum(count(encode(tool).decode()) for tool in tools)


def flaw(
    answer: ModelReply, count: Counter, *, most: int, sections: Sequence[str] = ()
) -> str | None:
    """What is wrong with an answer; None where it is good."""
    text = answer.text.strip()
    if answer.calls or answer.finish == "tool-calls":
        return "it calls tools, and there are none."
    if not text:
        return "it is empty."
    if answer.finish == "length":
        return "it was cut off before its end; write less."
    if (wrong := _shape_flaw(text, sections)) is not None:
        return wrong
    tokens = count(text)
    if tokens > most * SLACK:
        return f"it has {tokens} tokens, and {most} is the most; write less."
    return None


def _shape_flaw(text: str, sections: Sequence[str]) -> str | None:
    lines = [line.strip(" \t#*:").lower() for line in text.splitlines() if line.strip()]
    missing = [name for name in sections if name.lower() not in lines]
    if missing:
        return f"it lacks the headings {', '.join(missing)}."
    # "none" under every heading is an empty answer with headings.
    nothing = {"", "none", *(name.lower() for name in sections)}
    if sections and all(line.strip("-. ") in nothing for line in lines):
        return "it has headings and nothing under them."
    return None
