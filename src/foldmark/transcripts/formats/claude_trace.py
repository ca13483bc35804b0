"""Recorded traffic with Anthropic's Messages API: claude-trace, one request and response a line.

Facts of this format: each request repeats its whole conversation. Those with tools are the loop
of an agent, each conversation a session. Left out is what has no tools and never grows beyond one
request, if there is anything else: the program's questions about quotas, topics and titles. A
compaction is a request for a summary, and then a conversation that begins with it.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET, Raw

from foldmark.model.messages import Origin, SessionInfo, Time
from foldmark.model.values import Json
from foldmark.transcripts.build import Opened, Step, Tally, moment
from foldmark.transcripts.format import Format
from foldmark.transcripts.formats.api_lists import with_prompt
from foldmark.transcripts.source import Head
from foldmark.wire.codec import options

from .claude_trace_request import (
    PATH,
    Body,
    Exchange,
    Line,
    as_message,
    begins_with_summary,
    body_of,
    bytes_of,
    decoded,
    decoded_line,
    has_tools,
    message_digest,
    response_of,
)
from .claude_trace_talk import NAME, WIRE, Talk

_MOST_TALKS, _MOST_WAITING = 64, 8


class AnthropicApi:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, which names the sessions."""
        self.tally = Tally()
        self._stem = Path(name).stem
        self._sessions = 0
        self._talks: OrderedDict[str, Talk] = OrderedDict()  # the newest last
        self._now: Talk | None = None
        # Without tools, and not yet gone on with.
        self._waiting: deque[tuple[Exchange, Body]] = deque(maxlen=_MOST_WAITING)
        self._digests: dict[int, int] = {}  # of messages, by that of their bytes

    def decode(self, data: bytes) -> Line:
        """One exchange, undecoded but for its outline."""
        return decoded_line(data)

    def take(self, record: Line, line: int) -> Iterator[Step]:
        """What an exchange adds."""
        del line
        body = body_of(record)
        if body is not None and body.messages:
            yield from self._exchanged(self._exchange(body, record), body)

    def end(self) -> Iterator[Step]:
        """What is held; what waits is told if it is all there is."""
        if not self._sessions:
            for exchange, body in self._waiting:
                yield from self._told(self._new(exchange, body), exchange)
        if self._now is not None:
            yield from self._now.end()

    # --- exchanges ---

    def _exchange(self, body: Body, record: Line) -> Exchange:
        response = response_of(record)
        is_answer = response is not None and WIRE.recognises_reply(response)
        return Exchange(
            messages=list[Raw | Json](body.messages),
            digests=[self._digest(raw) for raw in body.messages],
            kind=hash((bytes_of(body.system), has_tools(body))),
            reply=WIRE.read_reply(response) if response and is_answer else None,
            reply_digest=message_digest(response) if response and is_answer else 0,
            at=moment(record.request.timestamp) or moment(record.logged_at),
            replied=moment(record.response.timestamp if record.response else None)
            or moment(record.logged_at),
        )

    def _digest(self, raw: Raw) -> int:
        """Each way in which a message is written is decoded only once.

        What cannot be read is refused here, before anything of its request was told.
        """
        key = hash(bytes(raw))
        if key not in self._digests:
            message = as_message(raw)
            WIRE.read(message)
            self._digests[key] = message_digest(message)
        return self._digests[key]

    def _exchanged(self, exchange: Exchange, body: Body) -> Iterator[Step]:
        talk = self._matching(exchange)
        if talk is not None:
            yield from self._told(talk, exchange)
        elif not has_tools(body):
            yield from self._without_tools(exchange, body)
        elif begins_with_summary(exchange) and (talk := self._folding(exchange)):
            yield from self._switched(talk)
            yield from talk.fold(exchange)
        else:
            yield from self._told(self._new(exchange, body), exchange)

    def _matching(self, exchange: Exchange) -> Talk | None:
        """The conversation that a request goes on with."""
        found, most = None, 0
        for talk in self._talks.values():
            likeness = talk.likeness(exchange.digests)
            # One message alone may be the same in two: a title is asked for with the prompt, too.
            if likeness >= max(most, 1) and (likeness > 1 or talk.kind == exchange.kind):
                found, most = talk, likeness
        return found

    def _folding(self, exchange: Exchange) -> Talk | None:
        """The conversation of which this is the summary: one that was asked for it, if any."""
        newest = list(reversed(self._talks.values()))
        asked = [talk for talk in newest if talk.is_folding]
        alike = [talk for talk in newest if talk.kind == exchange.kind]
        return next(iter([*asked, *alike]), None)

    def _without_tools(self, exchange: Exchange, body: Body) -> Iterator[Step]:
        for held in self._waiting:
            size = len(held[0].digests)
            if size < len(exchange.digests) and held[0].digests == exchange.digests[:size]:
                self._waiting.remove(held)
                talk = self._new(*held)
                yield from self._told(talk, held[0])
                yield from self._told(talk, exchange)
                return
        self._waiting.append((exchange, body))

    def _told(self, talk: Talk, exchange: Exchange) -> Iterator[Step]:
        yield from self._switched(talk)
        yield from talk.take(exchange)

    def _switched(self, talk: Talk) -> Iterator[Step]:
        self._talks.setdefault(talk.info.id, talk)
        self._talks.move_to_end(talk.info.id)
        if talk is not self._now:
            if self._now is not None:
                yield from self._now.end()
            self._now = talk
            yield Opened(info=talk.info)
        if len(self._talks) > _MOST_TALKS:
            self._talks.popitem(last=False)

    def _new(self, exchange: Exchange, body: Body) -> Talk:
        self._sessions += 1
        session = self._stem if self._sessions == 1 else f"{self._stem}-{self._sessions}"
        at = exchange.at
        info = SessionInfo(
            id=session,
            time=UNSET if at is None else Time(created=at, updated=at),
            origin=with_prompt(
                Origin(tools=decoded(body.tools) or UNSET), WIRE.name, decoded(body.system)
            ),
        )
        return Talk(info, exchange.kind, self.tally)


def _recognises(head: Head) -> bool:
    return any(_is_exchange(line) for line in head.lines)


def _is_exchange(line: Json) -> bool:
    request = options(line, "request")
    body = options(request, "body")
    is_asked = isinstance(body.get("messages"), list) and "model" in body
    return is_asked and "response" in line and PATH in str(request.get("url"))


FORMAT = Format(
    name=NAME,
    about="claude-trace, traffic with Anthropic's API",
    recognises=_recognises,
    importer=AnthropicApi,
)
