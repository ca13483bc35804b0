"""claude-trace: recorded traffic with Anthropic's Messages API, one request and response per line.

Facts of this format: each request repeats its whole conversation, so only fingerprints of earlier
messages are kept. A request without the last messages took them back; a result that has changed was
pruned. A reply is in the response and again in the next request. Conversations with tools are
agent loops, each a session. A single request without tools is left out if the file has anything
else: the program asks for quotas, topics and titles that way. A compaction is a request for a
summary, followed by a conversation that starts with it.
"""

import json
import re
from collections import OrderedDict, deque
from contextlib import suppress
from operator import attrgetter, eq
from typing import Any, cast

from msgspec import UNSET, Struct

from foldmark.errors import BadInput
from foldmark.model.messages import Origin, SessionInfo, TextPart
from foldmark.model.values import HALF_PAIR, Json, encode, parse_json
from foldmark.session.fingerprints import fingerprint_of
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

from ..build import (
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
from ..source import Head, Record
from .api_lists import with_prompt

_NAME = "anthropic-api"
_PATH = "/v1/messages"
_DATA = re.compile(r"^data:(.*)", re.MULTILINE)  # lines of server-sent events
_MAX_OPEN, _MAX_WAITING = 64, 8
# Texts that Claude Code writes.
_SUMMARIZE = "Your task is to create a detailed summary of"
_CONTINUED = "This session is being continued from a previous conversation"
_REMINDER = "<system-reminder>"
_COMPACT_COMMANDS = ("<command-name>/compact<", "<command-name>compact<")
_wire = Anthropic()


class _Exchange(Struct, gc=False):
    """A request and its reply."""

    body: Json
    messages: list[Json]
    fingerprints: list[str]
    kind: int  # hash of its system prompt and of whether it has tools
    reply: ReadReply | None
    at: int | None
    reply_at: int | None

    def read(self, index: int) -> ReadMessage:
        """The message at an index."""
        return _wire.read(self.messages[index])

    def asks_for_summary(self) -> bool:
        """Whether the request ends with the program's prompt for a summary."""
        return len(self.fingerprints) > 1 and any(
            _SUMMARIZE in text for text in _texts(self.read(-1))
        )

    def begins_with_summary(self) -> bool:
        """Whether the request continues a conversation from its summary."""
        return any(text.startswith(_CONTINUED) for text in _texts(self.read(0)))


class ClaudeTrace(FormatReader):
    """Reads a file of claude-trace."""

    name = _NAME
    about = "claude-trace, traffic with Anthropic's API"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        return any(_is_exchange(line) for line in head.lines)

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of its sessions."""
        super().__init__(name)
        self._has_sessions = False
        self._open: OrderedDict[str, _TracedConversation] = OrderedDict()  # the newest last
        # First requests without tools, which a later request may continue.
        self._waiting: deque[_Exchange] = deque(maxlen=_MAX_WAITING)
        self._fingerprints: dict[int, str] = {}  # of messages, by the hash of their bytes

    def decode(self, record: Record) -> Any:
        """Return a request and its response, with lone surrogates replaced."""
        if HALF_PAIR.search(record.data):  # the API refuses these as well
            data = json.dumps(record.value(), ensure_ascii=False).encode(errors="replace")
            record = Record(line=record.line, data=data)
        return super().decode(record)

    def read(self, record: Json) -> None:
        """Add the new messages of a request, and its reply; ignores other endpoints."""
        request = object_at(record, "request")
        body, url = request.get("body"), request.get("url")
        is_other = isinstance(url, str) and not url.partition("?")[0].endswith(_PATH)
        if is_other or not isinstance(body, dict):
            return
        body = cast("Json", body)
        if messages := objects(body.get("messages"), "'messages'"):
            exchange = self._exchange(body, messages, record)
            conversation = self._matching(exchange) or self._start(exchange)
            if conversation is not None:
                self._add(conversation, exchange)

    def finish(self) -> None:
        """Add the waiting requests if the file has nothing else."""
        if not self._has_sessions:
            for exchange in self._waiting:
                self._add(self._new(exchange), exchange)

    def _exchange(self, body: Json, messages: list[Json], record: Json) -> _Exchange:
        response = subobject(record, "response")
        stream = response.get("body_raw")
        reply = subobject(response, "body")
        if not reply and isinstance(stream, str):
            reply = joined_stream(stream) or {}
        logged_at = milliseconds(record.get("logged_at"))
        return _Exchange(
            body=body,
            messages=list(messages),
            fingerprints=[self._fingerprint(message) for message in messages],
            kind=hash((encode(body.get("system")), bool(body.get("tools")))),
            reply=_wire.read_reply(reply) if reply and _wire.recognizes_reply(reply) else None,
            at=milliseconds(record["request"].get("timestamp")) or logged_at,
            reply_at=milliseconds(response.get("timestamp")) or logged_at,
        )

    def _fingerprint(self, message: Json) -> str:
        """The fingerprint of a message; each JSON form of it is decoded only once.

        Raises BadInput if it is unreadable, before anything of its request is emitted.
        """
        key = hash(encode(message))
        if key not in self._fingerprints:
            self._fingerprints[key] = fingerprint_of(_wire.read(message)).content
        return self._fingerprints[key]

    # --- the conversation of a request ---

    def _matching(self, exchange: _Exchange) -> "_TracedConversation | None":
        """The open conversation that a request continues."""
        match, best = None, 0
        for conversation in self._open.values():
            same = sum(map(eq, conversation.fingerprints, exchange.fingerprints))
            # Two conversations may share one message: a request for a title repeats the prompt.
            if same >= max(best, 1) and (same > 1 or conversation.kind == exchange.kind):
                match, best = conversation, same
        return match

    def _start(self, exchange: _Exchange) -> "_TracedConversation | None":
        """A new or a compacted conversation, or None if the request has to wait."""
        if exchange.body.get("tools"):
            conversation = self._compacting(exchange) if exchange.begins_with_summary() else None
            if conversation is not None:
                conversation.compact_into(exchange)
            return conversation or self._new(exchange)
        for waiting in self._waiting:
            more = exchange.fingerprints[len(waiting.fingerprints) :]
            if more and [*waiting.fingerprints, *more] == exchange.fingerprints:
                self._waiting.remove(waiting)
                conversation = self._new(waiting)
                self._add(conversation, waiting)
                return conversation
        self._waiting.append(exchange)
        return None

    def _compacting(self, exchange: _Exchange) -> "_TracedConversation | None":
        """The newest conversation with a requested summary, else the newest of this kind."""
        newest = list(reversed(self._open.values()))
        similar = [one for one in newest if one.is_compacting or one.kind == exchange.kind]
        return max(similar, key=attrgetter("is_compacting"), default=None)

    def _new(self, exchange: _Exchange) -> "_TracedConversation":
        id = self.session_ids.claim(self.stem)
        self._has_sessions = True
        tools, system = exchange.body.get("tools"), exchange.body.get("system")
        origin = with_prompt(Origin(tools=tools or UNSET), _wire.name, system)
        info = SessionInfo(id=id, time=session_time(exchange.at), origin=origin)
        conversation = self.conversations[id] = _TracedConversation(self, info)
        conversation.kind = exchange.kind
        return conversation

    def _add(self, conversation: "_TracedConversation", exchange: _Exchange) -> None:
        self._open[conversation.info.id] = conversation
        self._open.move_to_end(conversation.info.id)
        if len(self._open) > _MAX_OPEN:
            oldest = self._open.popitem(last=False)[1]
            oldest.flush()
            del self.conversations[oldest.info.id]
        conversation.open()
        conversation.read(exchange)


class _TracedConversation(ConversationBuilder):
    """Builds one conversation from requests that repeat it, each a little longer."""

    def __init__(self, reader: FormatReader, info: SessionInfo) -> None:
        super().__init__(reader, info)
        self.kind = 0
        self.is_compacting = False  # whether a summary of it was requested
        self.fingerprints: list[str] = []
        self._summary: ReadReply | None = None
        self._last_ids: list[str | None] = []  # the newest message's id at each fingerprint
        self._outputs: dict[str, int] = {}  # hashes of outputs by call id
        self._ids = UniqueIds()
        self._count = 0
        self._ends_with_reply = False  # whether the last fingerprint is that of a response

    def read(self, exchange: _Exchange) -> None:
        """Add the new messages of a request, and its reply."""
        is_compaction = exchange.asks_for_summary()
        end = len(exchange.fingerprints) - is_compaction
        # A request for a summary may leave messages out, which are not taken back by that.
        old = min(len(self.fingerprints), end) if is_compaction else self._old(exchange, end)
        if not is_compaction:
            self._add_prunes(exchange, old)
            if old < len(self.fingerprints):
                self.revert(self._last_ids[old - 1] if old else None)
                del self.fingerprints[old:], self._last_ids[old:]
        for index in range(old, end):
            self._add_message(exchange.read(index), exchange.at)
            self._remember(exchange.fingerprints[index], is_reply=False)
        if is_compaction:
            self.is_compacting, self._summary = True, exchange.reply
            self.reader.tally.messages += 1
        elif exchange.reply is not None:
            self._add_reply(exchange.reply, exchange.reply_at)
            self._remember(fingerprint_of(exchange.reply.message).content, is_reply=True)

    def _old(self, exchange: _Exchange, end: int) -> int:
        """The number of a request's messages that are not new, though some may have changed."""
        old = min(len(self.fingerprints), end)
        while old and self.fingerprints[old - 1] != exchange.fingerprints[old - 1]:
            old -= 1
        is_last = old == len(self.fingerprints) - 1 and self._ends_with_reply
        if is_last and old < end and exchange.read(old).role == "assistant":
            return old + 1
        return old

    def _add_prunes(self, exchange: _Exchange, old: int) -> None:
        calls: list[str] = []
        for index, fingerprint in enumerate(exchange.fingerprints[:old]):
            if fingerprint != self.fingerprints[index]:
                self.fingerprints[index] = fingerprint
                for result in exchange.read(index).results:
                    output = hash(result.output)
                    if self._outputs.get(result.call_id, output) != output:
                        calls.append(result.call_id)
                    self._outputs[result.call_id] = output
        if calls:
            self.prune(calls, exchange.at)

    def _remember(self, fingerprint: str, *, is_reply: bool) -> None:
        self.fingerprints.append(fingerprint)
        self._last_ids.append(self.last_id)
        self._ends_with_reply = is_reply

    # --- messages ---

    def _add_message(self, message: ReadMessage, at: int | None) -> None:
        self.reader.tally.messages += 1
        for result in message.results:
            self._outputs[result.call_id] = hash(result.output)
            self.add_result(result, at)
        if message.parts:
            wire: Json = {_wire.key: message.rest} if message.rest else {}
            wire |= {JOINED: True} if message.results else {}
            parts = marked_synthetic(message.parts, lambda part: part.text.startswith(_REMINDER))
            if message.role == "assistant":
                self.add_assistant(self._id(""), parts, at, wire=wire or UNSET)
            else:
                self.add_user(self._id(""), parts, at, wire)

    def _add_reply(self, reply: ReadReply, at: int | None) -> None:
        self.reader.tally.messages += 1
        self.add_assistant(
            self._id(text_or_empty(reply.rest.get("id"))),
            reply.message.parts,
            at,
            model=(_wire.provider, reply.model),
            tokens=reply.tokens,
            finish=reply.finish,
        )

    def _id(self, reply_id: str) -> str:
        self._count += 1
        return self._ids.claim(reply_id or f"{self.info.id}-{self._count}")

    # --- compactions ---

    def compact_into(self, exchange: _Exchange) -> None:
        """Add a compaction with the summary that a request starts with, and remove it there."""
        first, reply = exchange.messages[0], self._summary
        blocks = as_list(first["content"]) or [{"type": "text", "text": first["content"]}]
        texts = [text_or_empty(block.get("text")) for block in blocks]
        index = next(n for n, text in enumerate(texts) if text.startswith(_CONTINUED))
        summary = texts.pop(index)
        exchange.messages[0] = {**first, "content": [*blocks[:index], *blocks[index + 1 :]]}
        about: Json = {}
        if reply is not None:
            about = {"provider_id": _wire.provider, "model_id": reply.model or UNSET}
            about |= {"tokens": reply.tokens or UNSET}
        self.add_compaction(
            self._id(""),
            (TextPart(text=summary),),
            exchange.at,
            auto=not any(command in text for text in texts for command in _COMPACT_COMMANDS),
            wire={_NAME: without(reply.rest, "role", "type")} if reply else None,
            **about,
        )
        self.fingerprints, self._last_ids, self._summary = [], [], None
        self.is_compacting = self._ends_with_reply = False


def joined_stream(text: str) -> Json | None:
    """The response of recorded server-sent events, as far as they go; None if there is none."""
    data = [line.encode(errors="surrogatepass") for line in _DATA.findall(text)]
    joiner = AnthropicJoiner()
    try:
        events = as_list(parse_json(b"[" + b",".join(data) + b"]"))
    except BadInput:  # the recording may end within a line
        events = [_event(line) for line in data]
    for event in events:
        with suppress(BadInput):
            joiner.add(as_object(event))
    return joiner.partial_response()


def _event(line: bytes) -> object:
    with suppress(BadInput):
        return parse_json(line)
    return None


def _texts(message: ReadMessage) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart)]


def _is_exchange(line: Json) -> bool:
    request = subobject(line, "request")
    body = subobject(request, "body")
    is_request = isinstance(body.get("messages"), list) and "model" in body
    return is_request and "response" in line and _PATH in str(request.get("url"))
