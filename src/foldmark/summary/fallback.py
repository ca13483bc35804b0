"""The fallback chain: ways to get a summary from a model, from the best to the most modest.

`summarize` is a generator that yields model requests and receives their outcomes. Each step asks
once, and once more if the reply can be repaired; the kind of failure decides which step is next.
Calls, time and cost are limited. If every step fails, the digest is the summary.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from foldmark.compaction.fold import MIN_SUMMARY_TOKENS
from foldmark.compaction.situation import Situation
from foldmark.compaction.tail import Fold
from foldmark.model.messages import Tokens
from foldmark.model.prompt_messages import Call, PromptMessage, ToolDeclaration
from foldmark.model.values import Frozen, encode, sum_fields
from foldmark.policy import CompactRules, Fallback
from foldmark.tokens.counters import Counter
from foldmark.tokens.limits import Limit

from .prompting import (
    SECTIONS,
    append_request,
    fence_record,
    fill_prompt,
    final_request,
    prompt,
    repair,
    system_prompt,
    word_limit,
)
from .protocol import (
    MAX_PARALLEL_REQUESTS,
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    retry_pause,
)
from .redaction import mask_secrets
from .transcript import TextLimits, chunks, transcript_blocks

DEFAULT_WINDOW = 128_000  # assumed if the window of the model is unknown
_MARGIN = 0.1  # share of the window that stays free, because token counts are estimates
# A reply that exceeds its limit by less is accepted: asking again costs more than it saves.
LENGTH_TOLERANCE = 1.1
_MIN_DIGEST = 200  # tokens below which a digest is not worth adding to a model's summary
_MIN_RECORD = 300  # tokens of the record below which a request is not worth sending
_MAX_PAUSE = 30.0  # seconds; a request is not retried if the provider asks for a longer pause
_RETRYABLE = frozenset({"throttled", "failed"})

SummaryMethod = Fallback | Literal["digest"]


class SummarizerLimits(Frozen):
    """The model that summarizes, and the limits within which it may be asked."""

    rules: CompactRules
    limit: Limit  # of the summarizing model
    digest: Callable[[Situation, int], str]  # within a number of tokens
    is_own_model: bool  # the session's own model: its cache holds the session's prefix
    clock: Callable[[], float] = lambda: 0.0
    name: str = ""  # the model's name


class ModelUsage(Frozen):
    """Calls, tokens and cost of a summary, and the flaws of rejected replies."""

    calls: int = 0
    tokens: Tokens | None = None
    cost: float = 0.0
    flaws: tuple[str, ...] = ()


class Summary(Frozen):
    """A summary, and how it was made."""

    text: str
    fold: Fold
    how: SummaryMethod | Literal[""] = ""  # "" if the caller wrote it
    usage: ModelUsage = ModelUsage()
    user_text: int | None = None  # tokens for the user's own text, if a target limits them
    model: str = ""  # the model that wrote it


def summarize(situation: Situation, limits: SummarizerLimits) -> ModelDialogue[Summary]:
    """Return a summary of the folded messages: a model's if possible, otherwise the digest."""
    limit, rules = situation.max_summary_tokens, limits.rules
    share = limit // 2 if rules.digest else int(limit / LENGTH_TOLERANCE)
    chain = FallbackChain(situation, limits, share)
    is_enough = share >= MIN_SUMMARY_TOKENS // 2  # for a model's summary
    reply = yield from chain.run(rules.fallbacks if is_enough else ())
    if reply is None:
        text, how = limits.digest(situation, limit), "digest"
    else:
        text, how = mask_secrets(reply[0]) if rules.mask else reply[0], reply[1]
        text = _with_digest(text, situation, limits) if rules.digest else text
    return Summary(
        text=text,
        fold=situation.fold,
        how=how,
        usage=chain.usage,
        user_text=situation.user_text,
        model="" if reply is None else limits.name,
    )


def _with_digest(text: str, situation: Situation, limits: SummarizerLimits) -> str:
    """Return a model's summary followed by the digest, or without it if there is no budget."""
    count, limit = situation.log.count, situation.max_summary_tokens
    budget = limit - count(text) - 2
    while budget >= _MIN_DIGEST:  # the count of the whole differs from the sum of its parts
        combined = f"{text}\n\n{limits.digest(situation, budget)}"
        excess = count(combined) - limit
        if excess <= 0:
            return combined
        budget -= max(excess, budget // 10)
    return text


class FallbackChain:
    """Runs fallback steps until one gives an acceptable summary."""

    def __init__(self, situation: Situation, limits: SummarizerLimits, max_tokens: int) -> None:
        """Summarize a situation within these limits, in at most `max_tokens` tokens."""
        self._situation = situation
        self._limits = limits
        self._rules = limits.rules
        self._max_tokens = max_tokens
        self._count: Counter = situation.log.count
        request = situation.request
        self._instruction = final_request(limits.rules, request, max_tokens)
        # Headings are required only under our own prompt.
        ours = limits.rules.prompts == "foldmark" and request.prompt is None
        self._sections = SECTIONS if ours else ()
        self._window = limits.limit.input or limits.limit.context or DEFAULT_WINDOW
        self._deadline = limits.clock() + limits.rules.seconds
        self._should_stop = False  # set if no further request can succeed
        self.usage = ModelUsage()

    def run(self, steps: Sequence[Fallback]) -> ModelDialogue[tuple[str, Fallback] | None]:
        """Return the first accepted summary and its step, or None if every step fails."""
        methods = {
            "prefix": self._ask_by_prefix,
            "serial": self._ask_by_record,
            "chunks": self._ask_by_chunks,
            "tight": self._ask_by_digest,
        }
        for step in steps:
            text = yield from methods[step]()
            if text is not None:
                return text.strip(), step
            if self._should_stop:
                return None
        return None

    # --- fallback steps ---

    def _ask_by_prefix(self) -> ModelDialogue[str | None]:
        """Extend the session's own request by the instruction, to use the provider's cache."""
        compaction, view = self._situation.request, self._situation.view
        blocks = (block for message in view.messages for block in message.content)
        lacks_tools = not compaction.tools and any(isinstance(block, Call) for block in blocks)
        # Some providers refuse tool calls in a request that declares no tools.
        # A request that was just refused for its length is not sent again.
        if not self._limits.is_own_model or compaction.overflow or lacks_tools or not view.messages:
            return None
        tokens = self._situation.view_tokens + compaction.fixed + self._count(self._instruction)
        if tokens + self._reply_limit() > self._window:
            return None
        messages = append_request(view.messages, self._instruction)
        request = self._request(messages, system=compaction.system)
        return (yield from self._ask(replace(request, tools=compaction.tools)))

    def _ask_by_record(self) -> ModelDialogue[str | None]:
        """Send the record as text with truncated outputs."""
        blocks = self._record(self._text_limits())
        if not blocks or self._tokens(blocks) > self._record_budget():
            return None
        return (yield from self._ask(self._request_on(blocks, self._instruction)))

    def _ask_by_chunks(self) -> ModelDialogue[str | None]:
        """Take notes on each chunk of the record, then summarize the notes."""
        groups = self._groups()
        if len(groups) < 2:
            return None
        notes = yield from self._take_notes(groups)
        while notes and self._tokens(notes) > self._record_budget():
            groups = chunks(notes, self._record_budget(), self._count)
            if len(groups) >= len(notes) or not self._may_ask(len(groups) + 1):
                return None
            notes = yield from self._take_notes(groups)
        if not notes:
            return None
        return (yield from self._ask(self._request_on(notes, prompt("merge"), self._instruction)))

    def _ask_by_digest(self) -> ModelDialogue[str | None]:
        """Send the digest instead of the record."""
        budget = min(self._record_budget(), max(4 * self._max_tokens, _MIN_RECORD)) // 2
        if budget < _MIN_RECORD // 2:
            return None
        digest = self._limits.digest(self._situation, budget)
        return (yield from self._ask(self._request_on([digest], self._instruction)))

    # --- requests ---

    def _text_limits(self) -> TextLimits:
        return TextLimits(output=self._rules.output_chars, both_ends=self._rules.both_ends)

    def _record(self, limits: TextLimits) -> list[str]:
        blocks = transcript_blocks(self._situation.log, self._situation.indexes, limits)
        if self._rules.mask:
            blocks = [mask_secrets(block) for block in blocks]
        previous = self._situation.previous
        return [f"{prompt('previous')}\n\n{previous}", *blocks] if previous else blocks

    def _groups(self) -> list[list[str]]:
        """The record in chunks, truncated further until the calls left suffice for them."""
        limit = self._calls_left() - 2  # one call merges the notes, one may repair the result
        budget, limits = self._record_budget(), self._text_limits()
        if limit < 2 or budget < _MIN_RECORD:
            return []
        while limits is not None:
            groups = chunks(self._record(limits), budget, self._count)
            if len(groups) <= limit:
                return groups
            limits = limits.tighter()
        return []

    def _take_notes(self, groups: Sequence[Sequence[str]]) -> ModelDialogue[list[str]]:
        """Return notes on each group, requested in parallel, or [] if any of them fails."""
        limit = max(min(self._record_budget() // (2 * len(groups)), 2 * self._max_tokens), 100)
        fields = {"total": len(groups), "words": word_limit(limit)}
        prompts = [fill_prompt("chunk", number=n, **fields) for n in range(1, len(groups) + 1)]
        requests = tuple(
            replace(self._request_on(group, text), purpose="chunk")
            for group, text in zip(groups, prompts, strict=True)
        )
        if not self._may_ask(len(requests)):
            return []
        outcomes = yield from self._send(*requests)
        notes: list[str] = []
        for request, outcome in zip(requests, outcomes, strict=True):
            reply = yield from self._retry(request, outcome)
            if isinstance(reply, ModelFailure):
                self._adapt_to(reply)
                return []
            text = reply.text.strip()
            # Notes that were cut off are still usable.
            if not text or self._count(text) > 4 * limit:
                self._add_flaw(f"notes on a part: {flaw(reply, self._count, limit=limit)}")
                return []
            notes.append(text)
        return notes

    def _request_on(self, blocks: Sequence[str], *instructions: str) -> ModelRequest:
        text = "\n\n".join(filter(None, (fence_record(blocks), *instructions)))
        return self._request(append_request((), text), system=system_prompt(self._rules))

    def _request(self, messages: tuple[PromptMessage, ...], system: str) -> ModelRequest:
        seconds, limit = self._rules.request_seconds, self._reply_limit()
        return ModelRequest(messages=messages, system=system, max_tokens=limit, seconds=seconds)

    def _reply_limit(self) -> int:
        """Tokens reserved for a reply: more than its limit, because some models reason first."""
        limit = max(1_000, 4 * self._max_tokens)
        return max(64, min(limit, self._limits.limit.output or limit, self._window // 4))

    def _record_budget(self) -> int:
        """Tokens of the record that fit into one request."""
        overhead = self._count(self._instruction) + self._count(system_prompt(self._rules)) + 200
        return int(self._window * (1 - _MARGIN)) - self._reply_limit() - overhead

    def _tokens(self, blocks: Sequence[str]) -> int:
        return sum(self._count(block) + 1 for block in blocks)

    # --- asking the model ---

    def _ask(self, request: ModelRequest) -> ModelDialogue[str | None]:
        """Return a reply that is accepted at once or after one repair, or None."""
        for is_repair in (False, True):
            if not self._may_ask():
                self._add_flaw("no calls, seconds or dollars were left to go on")
                return None
            (outcome,) = yield from self._send(request)
            outcome = yield from self._retry(request, outcome)
            if isinstance(outcome, ModelFailure):
                self._adapt_to(outcome)
                return None
            problem = flaw(outcome, self._count, limit=self._max_tokens, sections=self._sections)
            if problem is None:
                return outcome.text
            self._add_flaw(problem)
            if not is_repair:
                # Only the start of a reply that is far too long is sent back: more would not fit.
                text = outcome.text[: 4 * max(self._max_tokens, 100)]
                messages = repair(request.messages, text, problem)
                request = replace(request, messages=messages, purpose="repair")
        return None

    def _retry(self, request: ModelRequest, outcome: Outcome) -> ModelDialogue[Outcome]:
        """Return the outcome of a request, retried while a retry may help."""
        for attempt in range(1, self._rules.retries + 1):
            if isinstance(outcome, ModelReply) or outcome.cause not in _RETRYABLE:
                break
            pause = retry_pause(attempt, outcome.retry_after)
            if not self._may_ask() or pause > min(_MAX_PAUSE, self._seconds_left()):
                break
            self._add_flaw(outcome.message)
            (outcome,) = yield from self._send(replace(request, delay=pause))
        return outcome

    def _adapt_to(self, failure: ModelFailure) -> None:
        """Adapt the next steps to a failure."""
        self._add_flaw(f"{failure.cause}: {failure.message}")
        if failure.cause == "overflow":
            self._window //= 2  # it is smaller than assumed
        elif failure.cause != "timeout":
            self._should_stop = True

    def _send(self, *requests: ModelRequest) -> ModelDialogue[tuple[Outcome, ...]]:
        """Send requests in parallel and count the usage of all of them."""
        self._add_usage(calls=len(requests))
        # Requests that wait for others, or for their delay, share the time that is left.
        seconds = self._seconds_left() / -(-len(requests) // MAX_PARALLEL_REQUESTS)
        outcomes = yield tuple(
            replace(request, seconds=max(0.1, min(request.seconds, seconds - 1.25 * request.delay)))
            for request in requests
        )
        for outcome in outcomes:
            if isinstance(outcome, ModelReply):
                self._add_usage(tokens=outcome.tokens, cost=outcome.cost or 0.0)
        return outcomes

    def _add_flaw(self, message: str) -> None:
        line = mask_secrets(" ".join(message.split()))[:200]  # errors may quote the request
        self._add_usage(flaws=(line,))

    def _add_usage(self, **amounts: Any) -> None:
        self.usage = sum_fields((self.usage, ModelUsage(**amounts)))

    def _may_ask(self, times: int = 1) -> bool:
        cost = self._rules.cost
        return (
            self._calls_left() >= times
            and self._seconds_left() > 0
            and (cost is None or self.usage.cost < cost)
        )

    def _calls_left(self) -> int:
        return self._rules.calls - self.usage.calls

    def _seconds_left(self) -> float:
        return self._deadline - self._limits.clock()


def declared_tokens(system: str, tools: Sequence[ToolDeclaration], count: Counter) -> int:
    """The tokens of a system prompt and tool definitions in each request."""
    prompt_tokens = count(system) if system else 0
    return prompt_tokens + sum(count(encode(tool).decode()) for tool in tools)


def flaw(
    reply: ModelReply, count: Counter, *, limit: int, sections: Sequence[str] = ()
) -> str | None:
    """Return what is wrong with a reply, in words for the model, or None if it is acceptable."""
    text = reply.text.strip()
    if reply.calls or reply.finish == "tool-calls":
        return "it calls tools, and there are none."
    if not text:
        return "it is empty."
    if reply.finish == "length":
        return "it was cut off before its end; write less."
    if (problem := _shape_flaw(text, sections)) is not None:
        return problem
    tokens = count(text)
    if tokens > limit * LENGTH_TOLERANCE:
        return f"it has {tokens} tokens, and {limit} is the most; write less."
    return None


def _shape_flaw(text: str, sections: Sequence[str]) -> str | None:
    lines = [line.strip(" \t#*:").lower() for line in text.splitlines() if line.strip()]
    missing = [name for name in sections if name.lower() not in lines]
    if missing:
        return f"it lacks the headings {', '.join(missing)}."
    # A reply with "none" under every heading is empty.
    empty = {"", "none", *(name.lower() for name in sections)}
    if sections and all(line.strip("-. ") in empty for line in lines):
        return "it has headings and nothing under them."
    return None
