"""A conversation as requests to Anthropic's Messages API repeat it, each time a little longer.

Of what was said already only digests are kept. A request that leaves out the end took it back;
results that say something else than before were pruned; the answer comes with the response, and
the next request repeats it.
"""

from collections.abc import Iterator, Sequence
from operator import eq

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, SessionInfo, TextPart
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    Pruned,
    Reverted,
    Step,
    Tally,
    assistant_message,
    folded,
    user_message,
    with_info,
)
from foldmark.transcripts.woven import Woven
from foldmark.wire.anthropic import Anthropic
from foldmark.wire.codec import JOINED, Read, Reply, without

from .claude_trace_request import (
    Exchange,
    asks_for_summary,
    blocks_of,
    continues,
    result_digest,
    results_of,
    text_of,
)

NAME = "anthropic-api"
# What Claude Code writes.
_REMINDER = "<system-reminder>"
_BY_HAND = ("<command-name>/compact<", "<command-name>compact<")
WIRE = Anthropic()


class Talk:
    """One conversation."""

    def __init__(self, info: SessionInfo, kind: int, tally: Tally) -> None:
        """Take its session, of which kind its requests are, and where to count."""
        self.info = info
        self.kind = kind
        self.is_folding = False  # whether a summary of it was asked for
        self._asked: Reply | None = None
        self._tally = tally
        self._woven = Woven(WIRE.key, tally)
        self._digests: list[int] = []
        self._ids: list[str | None] = []  # the newest message at each of these
        self._results: dict[str, int] = {}
        self._names: set[str] = set()
        self._count = 0
        self._newest: str | None = None
        self._is_answered = False  # whether the last of them came with a response

    def likeness(self, digests: Sequence[int]) -> int:
        """How many messages of a request are where they were."""
        return sum(map(eq, self._digests, digests))

    # --- requests ---

    def take(self, exchange: Exchange) -> Iterator[Step]:
        """A request that goes on with this conversation, and its response."""
        is_fold = len(exchange.digests) > 1 and asks_for_summary(exchange)
        end = len(exchange.digests) - is_fold
        # What a summary is asked of may be cut down for that: it takes nothing back.
        known = min(len(self._digests), end) if is_fold else self._known(exchange, end)
        if not is_fold:
            yield from self._pruned(exchange, known)
            yield from self._taken_back(known)
        for place in range(known, end):
            read = WIRE.read(exchange.message(place))
            yield from self._said(read, exchange.digests[place], exchange.at)
        if is_fold:
            self.is_folding, self._asked = True, exchange.reply
            self._tally.messages += 1
        elif exchange.reply is not None:
            yield from self._answer(exchange.reply, exchange.replied)
            self._keep(exchange.reply_digest, self._newest, is_answer=True)

    def end(self) -> Iterator[Step]:
        """What is held."""
        yield from self._woven.flush()

    def _known(self, exchange: Exchange, end: int) -> int:
        """How many of a request's messages were said before; some may say it in other words."""
        places = min(len(self._digests), end)
        while places and self._digests[places - 1] != exchange.digests[places - 1]:
            places -= 1
        is_last = places == len(self._digests) - 1 and self._is_answered
        if is_last and places < end and exchange.message(places).get("role") == "assistant":
            return places + 1
        return places

    def _pruned(self, exchange: Exchange, known: int) -> Iterator[Step]:
        calls: list[str] = []
        for place, digest in enumerate(exchange.digests[:known]):
            if digest != self._digests[place]:
                self._digests[place] = digest
                calls += self._changed(exchange.message(place))
        if calls:
            yield from self._woven.flush()
            yield Pruned(calls=tuple(calls), at=exchange.at)

    def _changed(self, message: Json) -> Iterator[str]:
        for call, digest in results_of(message):
            if self._results.get(call, digest) != digest:
                yield call
            self._results[call] = digest

    def _taken_back(self, known: int) -> Iterator[Step]:
        if known == len(self._digests):
            return
        yield from self._woven.flush()
        yield Reverted(message=self._ids[known - 1] if known else None)
        del self._digests[known:], self._ids[known:]
        self._newest = self._ids[-1] if self._ids else None

    # --- messages ---

    def _said(self, read: Read, digest: int, at: int | None) -> Iterator[Step]:
        self._tally.messages += 1
        for answer in read.answers:
            self._results[answer.call_id] = result_digest(answer.raw)
            yield from self._woven.answer(answer, at)
        if read.parts:
            name = self._newest = self._name("")
            wire: Json = {WIRE.key: read.rest} if read.rest else {}
            wire |= {JOINED: True} if read.answers else {}
            parts = tuple(_by_program(part) for part in read.parts)
            message = user_message(name, parts, at, wire=wire)
            if read.role == "assistant":
                message = with_info(assistant_message(name, parts, at), wire=message.info.wire)
            yield from self._woven.add(message)
        self._keep(digest, self._newest, is_answer=False)

    def _answer(self, reply: Reply, at: int | None) -> Iterator[Step]:
        self._tally.messages += 1
        message = assistant_message(
            self._name(reply.rest.get("id")),
            reply.read.parts,
            at,
            model=(WIRE.provider, reply.model),
            tokens=reply.tokens,
            finish=reply.finish,
        )
        self._newest = message.id
        yield from self._woven.add(message)

    def _keep(self, digest: int, name: str | None, *, is_answer: bool) -> None:
        self._digests.append(digest)
        self._ids.append(name)
        self._is_answered = is_answer

    def _name(self, given: object) -> str:
        self._count += 1
        name = given if isinstance(given, str) and given else f"{self.info.id}-{self._count}"
        if name in self._names:
            name = f"{name}-{self._count}"
        self._names.add(name)
        return name

    # --- compactions ---

    def fold(self, exchange: Exchange) -> Iterator[Step]:
        """A request that begins anew, with a summary of this conversation."""
        first = exchange.message(0)
        blocks = blocks_of(first)
        place = next(place for place, block in enumerate(blocks) if continues(block))
        rest = [*blocks[:place], *blocks[place + 1 :]]
        exchange.messages[0] = {**first, "content": rest}
        asked = self._asked
        marker, summary = folded(
            self._name(""),
            (TextPart(text=blocks[place]["text"]),),
            exchange.at,
            auto=not any(word in text_of(block) for block in rest for word in _BY_HAND),
            wire={NAME: without(asked.rest, "role", "type")} if asked else None,
        )
        if asked is not None:
            told = {"provider_id": WIRE.provider, "model_id": asked.model or UNSET}
            summary = with_info(summary, tokens=asked.tokens or UNSET, **told)
        yield from self._woven.flush()
        yield marker
        yield summary
        self._digests, self._ids, self._newest = [], [], summary.id
        self._asked, self.is_folding, self._is_answered = None, False, False
        yield from self.take(exchange)


def _by_program(part: AnyPart) -> AnyPart:
    if isinstance(part, TextPart) and part.text.startswith(_REMINDER):
        return replace(part, synthetic=True)
    return part
