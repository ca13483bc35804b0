"""Recorded traffic with Anthropic's Messages API: claude-trace, one request and response a line.

Facts of this format: each request repeats its whole conversation, so of what was said only
fingerprints are kept. A request that leaves out the end took it back; results that say something
else than before were pruned; the answer comes with the response, and the next request repeats it.
Requests with tools are the loop of an agent, each conversation a session. Left out is what has no
tools and never grows beyond one request, if there is anything else: the program's questions about
quotas, topics and titles. A compaction is a request for a summary, and then a conversation that
begins with it.
"""

import json
import re
from collections import OrderedDict, deque
from contextlib import suppress
from operator import eq, itemgetter
from typing import Any, cast

from msgspec import UNSET, Struct

from foldmark.errors import BadInput
from foldmark.model.messages import Origin, SessionInfo, TextPart
from foldmark.model.values import HALF_PAIR, Json, encode, parse_json
from foldmark.session.fingerprints import fingerprint_of
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    UniqueIds,
    as_list,
    as_object,
    marked_synthetic,
    milliseconds,
    session_time,
    text_or_empty,
)
from foldmark.transcripts.formats.api_lists import with_prompt
from foldmark.transcripts.source import Head, Record
from foldmark.wire.anthropic import Anthropic
from foldmark.wire.codec import (
    JOINED,
    ReadMessage,
    ReadReply,
    object_at,
    objects,
    subobject,
    without,
)
from foldmark.wire.joiners import AnthropicJoiner

_NAME = "anthropic-api"
_PATH = "/v1/messages"
_DATA = re.compile(r"^data:(.*)", re.MULTILINE)  # lines of server-sent events
_MOST_TALKS, _MOST_WAITING = 64, 8
# What Claude Code writes.
_SUMMARIZE = "Your task is to create a detailed summary of"
_CONTINUED = "This session is being continued from a previous conversation"
_REMINDER = "<system-reminder>"
_BY_HAND = ("<command-name>/compact<", "<command-name>compact<")
_wire = Anthropic()


class _Exchange(Struct, gc=False):
    """A request for an answer, and the answer."""

    body: Json
    messages: list[Json]
    fingerprints: list[str]
    kind: int  # stands for its system prompt, and for whether it has tools
    reply: ReadReply | None
    at: int | None
    replied: int | None

    def read(self, place: int) -> ReadMessage:
        """One of its messages."""
        return _wire.read(self.messages[place])

    def asks_for_summary(self) -> bool:
        """Whether a request ends with the program's own demand for a summary."""
        return len(self.fingerprints) > 1 and any(
            _SUMMARIZE in text for text in _texts(self.read(-1))
        )

    def begins_with_summary(self) -> bool:
        """Whether a request goes on with a conversation of which only a summary is left."""
        return any(text.startswith(_CONTINUED) for text in _texts(self.read(0)))


class ClaudeTrace(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "claude-trace, traffic with Anthropic's API"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        return any(_is_exchange(line) for line in head.lines)

    def __init__(self, name: str) -> None:
        """Take the file's name, which names the sessions."""
        super().__init__(name)
        self._has_told = False
        self._open: OrderedDict[str, _TracedConversation] = OrderedDict()  # the newest last
        # Without tools, and not yet gone on with.
        self._waiting: deque[_Exchange] = deque(maxlen=_MOST_WAITING)
        self._fingerprints: dict[int, str] = {}  # of messages, by the hash of their bytes

    def decode(self, record: Record) -> Any:
        """One request and its response."""
        if HALF_PAIR.search(record.data):  # half of a character, which the API refuses as well
            data = json.dumps(record.value(), ensure_ascii=False).encode(errors="replace")
            record = Record(line=record.line, data=data)
        return super().decode(record)

    def read(self, record: Json) -> None:
        """Tell what a request and its response add; other endpoints have other bodies."""
        request = object_at(record, "request")
        body, url = request.get("body"), request.get("url")
        is_elsewhere = isinstance(url, str) and not url.partition("?")[0].endswith(_PATH)
        if is_elsewhere or not isinstance(body, dict):
            return
        body = cast("Json", body)
        if messages := objects(body.get("messages"), "'messages'"):
            exchange = self._exchange(body, messages, record)
            conversation = self._matching(exchange) or self._begun(exchange)
            if conversation is not None:
                self._tell(conversation, exchange)

    def finish(self) -> None:
        """What waits is told if it is all there is."""
        if not self._has_told:
            for exchange in self._waiting:
                self._tell(self._new(exchange), exchange)

    def _exchange(self, body: Json, messages: list[Json], record: Json) -> _Exchange:
        response = subobject(record, "response")
        stream = response.get("body_raw")
        answer = subobject(response, "body")
        if not answer and isinstance(stream, str):
            answer = joined_stream(stream) or {}
        logged = milliseconds(record.get("logged_at"))
        return _Exchange(
            body=body,
            messages=list(messages),
            fingerprints=[self._fingerprint(message) for message in messages],
            kind=hash((encode(body.get("system")), bool(body.get("tools")))),
            reply=_wire.read_reply(answer) if answer and _wire.recognizes_reply(answer) else None,
            at=milliseconds(record["request"].get("timestamp")) or logged,
            replied=milliseconds(response.get("timestamp")) or logged,
        )

    def _fingerprint(self, message: Json) -> str:
        """The fingerprint of a message, of which each way to write it is read only once.

        What cannot be read is refused here, before anything of its request was told.
        """
        key = hash(encode(message))
        if key not in self._fingerprints:
            self._fingerprints[key] = fingerprint_of(_wire.read(message)).said
        return self._fingerprints[key]

    # --- which conversation ---

    def _matching(self, exchange: _Exchange) -> "_TracedConversation | None":
        """The conversation that a request goes on with."""
        match, most = None, 0
        for conversation in self._open.values():
            likeness = sum(map(eq, conversation.fingerprints, exchange.fingerprints))
            # One message alone may be the same in two: a title is asked for with the prompt, too.
            if likeness >= max(most, 1) and (likeness > 1 or conversation.kind == exchange.kind):
                match, most = conversation, likeness
        return match

    def _begun(self, exchange: _Exchange) -> "_TracedConversation | None":
        """A new conversation, or one that is folded; None while it is not known to be one."""
        if exchange.body.get("tools"):
            conversation = self._folding(exchange) if exchange.begins_with_summary() else None
            if conversation is not None:
                conversation.fold_into(exchange)
            return conversation or self._new(exchange)
        for waiting in self._waiting:
            more = exchange.fingerprints[len(waiting.fingerprints) :]
            if more and [*waiting.fingerprints, *more] == exchange.fingerprints:
                self._waiting.remove(waiting)
                conversation = self._new(waiting)
                self._tell(conversation, waiting)
                return conversation
        self._waiting.append(exchange)
        return None

    def _folding(self, exchange: _Exchange) -> "_TracedConversation | None":
        """The conversation that goes on with a summary: one that was asked for it, if any."""
        newest = [
            (conversation.is_folding, conversation)
            for conversation in reversed(self._open.values())
        ]
        alike = [held for held in newest if held[0] or held[1].kind == exchange.kind]
        return max(alike, key=itemgetter(0), default=(False, None))[1]

    def _new(self, exchange: _Exchange) -> "_TracedConversation":
        name = self.session_ids.claim(self.stem)
        self._has_told = True
        tools, system = exchange.body.get("tools"), exchange.body.get("system")
        origin = with_prompt(Origin(tools=tools or UNSET), _wire.name, system)
        info = SessionInfo(id=name, time=session_time(exchange.at), origin=origin)
        conversation = self.conversations[name] = _TracedConversation(self, info)
        conversation.kind = exchange.kind
        return conversation

    def _tell(self, conversation: "_TracedConversation", exchange: _Exchange) -> None:
        self._open[conversation.info.id] = conversation
        self._open.move_to_end(conversation.info.id)
        if len(self._open) > _MOST_TALKS:
            oldest = self._open.popitem(last=False)[1]
            oldest.flush()
            del self.conversations[oldest.info.id]
        conversation.open()
        conversation.read(exchange)


class _TracedConversation(ConversationBuilder):
    """One conversation as requests repeat it, each time a little longer."""

    def __init__(self, reader: FormatReader, info: SessionInfo) -> None:
        super().__init__(reader, info)
        self.kind = 0
        self.is_folding = False  # whether a summary of it was asked for
        self.fingerprints: list[str] = []
        self._summary: ReadReply | None = None
        self._last_ids: list[str | None] = []  # the newest message at each print
        self._outputs: dict[str, int] = {}  # of calls, as hashes
        self._names = UniqueIds()
        self._count = 0
        self._is_answered = False  # whether the last of them came with a response

    def read(self, exchange: _Exchange) -> None:
        """Tell what a request adds to the conversation, and its response."""
        is_fold = exchange.asks_for_summary()
        end = len(exchange.fingerprints) - is_fold
        # What a summary is asked of may be cut down for that: it takes nothing back.
        known = min(len(self.fingerprints), end) if is_fold else self._known(exchange, end)
        if not is_fold:
            self._note_pruned(exchange, known)
            if known < len(self.fingerprints):
                self.revert(self._last_ids[known - 1] if known else None)
                del self.fingerprints[known:], self._last_ids[known:]
        for place in range(known, end):
            self._say(exchange.read(place), exchange.at)
            self._keep(exchange.fingerprints[place], is_answer=False)
        if is_fold:
            self.is_folding, self._summary = True, exchange.reply
            self.reader.tally.messages += 1
        elif exchange.reply is not None:
            self._reply(exchange.reply, exchange.replied)
            self._keep(fingerprint_of(exchange.reply.message).said, is_answer=True)

    def _known(self, exchange: _Exchange, end: int) -> int:
        """How many of a request's messages were said before; some may say it in other words."""
        known = min(len(self.fingerprints), end)
        while known and self.fingerprints[known - 1] != exchange.fingerprints[known - 1]:
            known -= 1
        is_last = known == len(self.fingerprints) - 1 and self._is_answered
        if is_last and known < end and exchange.read(known).role == "assistant":
            return known + 1
        return known

    def _note_pruned(self, exchange: _Exchange, known: int) -> None:
        calls: list[str] = []
        for place, fingerprint in enumerate(exchange.fingerprints[:known]):
            if fingerprint != self.fingerprints[place]:
                self.fingerprints[place] = fingerprint
                for answer in exchange.read(place).results:
                    output = hash(answer.output)
                    if self._outputs.get(answer.call_id, output) != output:
                        calls.append(answer.call_id)
                    self._outputs[answer.call_id] = output
        if calls:
            self.prune(calls, exchange.at)

    def _keep(self, fingerprint: str, *, is_answer: bool) -> None:
        self.fingerprints.append(fingerprint)
        self._last_ids.append(self.last_id)
        self._is_answered = is_answer

    # --- messages ---

    def _say(self, read: ReadMessage, at: int | None) -> None:
        self.reader.tally.messages += 1
        for answer in read.results:
            self._outputs[answer.call_id] = hash(answer.output)
            self.add_result(answer, at)
        if read.parts:
            wire: Json = {_wire.key: read.rest} if read.rest else {}
            wire |= {JOINED: True} if read.results else {}
            parts = marked_synthetic(read.parts, lambda part: part.text.startswith(_REMINDER))
            if read.role == "assistant":
                self.add_assistant(self._name(""), parts, at, wire=wire or UNSET)
            else:
                self.add_user(self._name(""), parts, at, wire)

    def _reply(self, reply: ReadReply, at: int | None) -> None:
        self.reader.tally.messages += 1
        self.add_assistant(
            self._name(text_or_empty(reply.rest.get("id"))),
            reply.message.parts,
            at,
            model=(_wire.provider, reply.model),
            tokens=reply.tokens,
            finish=reply.finish,
        )

    def _name(self, own: str) -> str:
        self._count += 1
        return self._names.claim(own or f"{self.info.id}-{self._count}")

    # --- compactions ---

    def fold_into(self, exchange: _Exchange) -> None:
        """Fold the conversation into the summary with which a request begins anew."""
        first, reply = exchange.messages[0], self._summary
        blocks = as_list(first["content"]) or [{"type": "text", "text": first["content"]}]
        texts = [text_or_empty(block.get("text")) for block in blocks]
        place = next(n for n, text in enumerate(texts) if text.startswith(_CONTINUED))
        summary = texts.pop(place)
        exchange.messages[0] = {**first, "content": [*blocks[:place], *blocks[place + 1 :]]}
        about: Json = {}
        if reply is not None:
            about = {"provider_id": _wire.provider, "model_id": reply.model or UNSET}
            about |= {"tokens": reply.tokens or UNSET}
        self.add_compaction(
            self._name(""),
            (TextPart(text=summary),),
            exchange.at,
            auto=not any(word in text for text in texts for word in _BY_HAND),
            wire={_NAME: without(reply.rest, "role", "type")} if reply else None,
            **about,
        )
        self.fingerprints, self._last_ids, self._summary = [], [], None
        self.is_folding = self._is_answered = False


def joined_stream(text: str) -> Json | None:
    """The response that recorded server-sent events tell; as far as it came, if it broke off."""
    data = [line.encode(errors="surrogatepass") for line in _DATA.findall(text)]
    joiner = AnthropicJoiner()
    try:
        events = as_list(parse_json(b"[" + b",".join(data) + b"]"))
    except BadInput:  # cut off within a line, perhaps
        events = [_event(line) for line in data]
    for event in events:
        with suppress(BadInput):
            joiner.add(as_object(event))
    return joiner.partial_response()


def _event(line: bytes) -> object:
    with suppress(BadInput):
        return parse_json(line)
    return None


def _texts(read: ReadMessage) -> list[str]:
    return [part.text for part in read.parts if isinstance(part, TextPart)]


def _is_exchange(line: Json) -> bool:
    request = subobject(line, "request")
    body = subobject(request, "body")
    is_asked = isinstance(body.get("messages"), list) and "model" in body
    return is_asked and "response" in line and _PATH in str(request.get("url"))
