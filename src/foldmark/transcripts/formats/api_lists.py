"""Files with messages of a provider's API: of OpenAI's two APIs, and of Anthropic's.

Facts of these formats: many programs write them. A file is a list of messages, or an object with
such a list (a request body, perhaps with its response), or lines of either, each a session; or
lines of messages that are one session. The codec of the API writes a list back unchanged. The
system prompt is in `system` for Anthropic, and in `instructions` for the Responses API.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import Message, Origin, SessionInfo, finish_of
from foldmark.model.values import Extra, Json
from foldmark.wire.anthropic import Anthropic
from foldmark.wire.codec import Codec, codec_named, objects, subobject
from foldmark.wire.detect import reply_candidates
from foldmark.wire.formats import decode_reply
from foldmark.wire.lists import DecodedList, read_list
from foldmark.wire.openai_chat import OpenAIChat
from foldmark.wire.openai_responses import OpenAIResponses

from ..build import (
    ConversationBuilder,
    FormatReader,
    Tally,
    as_list,
    as_object,
    milliseconds,
    provider_and_model,
    session_time,
    with_info,
)
from ..source import Head, Record

MESSAGES, ITEMS = "messages", "input"
_FEW, _MANY = 5, 200  # messages of each list to examine, at first and if that was not enough
_CHAT, _ANTHROPIC, _RESPONSES = "openai-chat", "anthropic", "openai-responses"
# Fields of objects with messages that are of another format.
_OTHER_FORMATS = frozenset({"info", "trajectory_format", "trajectory", "simulations", "sessionId"})
# Fields that only requests to one API have.
_FIELDS = {
    _CHAT: frozenset(
        {
            *("functions", "parallel_tool_calls", "response_format", "max_completion_tokens", "n"),
            *("frequency_penalty", "presence_penalty", "logprobs", "seed", "stream_options"),
        }
    ),
    _ANTHROPIC: frozenset({"system", "anthropic_version", "stop_sequences", "thinking"}),
}
_MODELS = {_CHAT: "gpt-", _ANTHROPIC: "claude"}
_TOOLS = {_CHAT: "function", _ANTHROPIC: "input_schema"}
_DECODED = ("model", "tools", "response")  # fields whose values point to an API
_TITLES = ("title", "instance_id", "task_id", "id")


class ApiLists(FormatReader):
    """Reads lists of messages; a subclass for each API has its codec and field names."""

    wire: Codec
    field: str  # of the messages
    prompt = ""  # field of the system prompt, if it is not a message

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning can be of this format."""
        return _can_be(head, cls.wire.name)

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of its sessions."""
        self.key = self.wire.key
        super().__init__(name)
        self._lines: list[Json] = []  # messages on lines of their own, all of one session

    def decode(self, record: Record) -> object:
        """Return a list, a request, or a message."""
        return record.value()

    def read(self, record: Any) -> None:
        """Add a list or request as a session, or a message to the session of the lines."""
        if isinstance(record, list):
            self._add_list(objects(cast("object", record), "the list"), {})
            return
        if not isinstance(record, dict):
            raise BadInput("neither a list of messages, nor a request, nor a message")
        body = cast("Json", record)
        messages = body.get(self.field)
        if isinstance(messages, str) and self.prompt:
            messages = [{"role": "user", "content": messages}]  # the input may be a plain text
        if messages is not None and "role" not in body:
            self._add_list(objects(messages, f"'{self.field}'"), body)
        else:
            self.wire.read(body)  # so that an error names this line
            self._lines.append(body)

    def finish(self) -> None:
        """Add the messages that were on lines of their own."""
        lines, self._lines = self._lines, []
        if lines:
            self._add_list(lines, {})

    def _add_list(self, messages: list[Json], body: Json) -> None:
        self.finish()  # messages on lines before it
        decoded = decode_list(self.wire, messages, self.tally)
        reply = self._reply(body, len(messages))
        origin = with_prompt(decoded.origin, self.wire.name, body.get(self.prompt))
        used = {self.field, "tools"}
        used |= {"response"} if reply else set()
        used |= {self.prompt} if origin is not decoded.origin else set()
        rest = {name: value for name, value in body.items() if name not in used}
        titles = (body.get(name) for name in _TITLES)
        tools = body.get("tools") or subobject(body, "kwargs").get("tools")
        info = SessionInfo(
            id=self.session_ids.claim(self.stem),
            title=next((title for title in titles if isinstance(title, str) and title), UNSET),
            time=session_time(milliseconds(body.get("timestamp") or body.get("created"))),
            origin=replace(origin, tools=tools or UNSET),
        )
        extra = Extra({self.wire.name: rest}) if rest else UNSET
        conversation = ConversationBuilder(self, info, extra)
        conversation.open()
        provider, model = provider_and_model(body.get("model"))
        fields = {"provider_id": provider or self.wire.provider, "model_id": model}
        complete = [
            with_info(message, **fields) if model and not message.is_user else message
            for message in decoded.messages
        ]
        self.emit(conversation, *complete, *reply)

    def _reply(self, body: Json, index: int) -> list[Message]:
        """The reply as the message at this index, if the response is recorded with its request."""
        response = subobject(body, "response")
        if not response or not self.wire.recognizes_reply(response):
            return []
        reply = decode_reply(response, self.wire.name)
        cost = body.get("cost")
        is_price = isinstance(cost, int | float) and not isinstance(cost, bool)
        about: Json = {"id": f"msg_{index + 1:06d}", "cost": cost if is_price else UNSET}
        provider, model = provider_and_model(response.get("model"))
        if provider:
            about |= {"provider_id": provider, "model_id": model}
        self.tally.messages += 1
        self.tally.count_calls(reply.parts)
        return [with_info(reply, **about)]


# --- the API of a file ---------------------------------------------------------------------
# Nothing is guessed: texts of a user and an assistant look the same for OpenAI's Chat API and for
# Anthropic's, so such a list can be of both, unless the request around it points to one.


def _can_be(head: Head, wire: str) -> bool:
    """Whether a file with this head can have lists of this API."""
    if wire == _RESPONSES:
        return _can_be_items(*_sample(head, ITEMS, _FEW))
    requests: list[Json] = []
    for count in (_FEW, _MANY):
        messages, requests = _sample(head, MESSAGES, count)
        if not messages or codec_named(_RESPONSES).recognizes(messages):
            return False
        possible = [name for name in _FIELDS if codec_named(name).recognizes(messages)]
        if len(possible) < 2:
            return wire in possible
    names = {name for request in requests for name in _likely_apis(request)}
    return wire in names or len(names) != 1


def _can_be_items(messages: list[Json], requests: list[Json]) -> bool:
    # In a request, the field `input` identifies the API; bare messages need a type for that.
    typed = [{"type": "message", **item} if "role" in item else item for item in messages]
    return codec_named(_RESPONSES).recognizes(typed if requests else messages)


def _sample(head: Head, field: str, count: int) -> tuple[list[Json], list[Json]]:
    """The first messages of a file, and the requests that contain them."""
    messages: Sequence[Any] = head.first_items("", count)
    requests: list[Json] = []
    if head.lines:
        requests = [line for line in head.lines if isinstance(line.get(field), list)]
        messages = [item for request in requests for item in request[field][:count]]
        if not requests:
            messages = head.lines[:count]
        elif len(requests) < len(head.lines):
            return [], []
    elif field in head.fields:
        messages = head.first_items(field, count)
        requests = [{name: head.field(name) if name in _DECODED else None for name in head.fields}]
    if any(_OTHER_FORMATS & set(request) for request in requests):
        return [], []
    return list(messages) if all(isinstance(item, dict) for item in messages) else [], requests


def _likely_apis(request: Json) -> Iterator[str]:
    """The APIs that a request points to by its fields beside the messages."""
    model, response = request.get("model"), subobject(request, "response")
    replies = [codec.name for codec in reply_candidates(response)] if response else []
    tools = [as_object(tool) for tool in as_list(request.get("tools"))]
    for name, fields in _FIELDS.items():
        is_named = isinstance(model, str) and model.startswith(_MODELS[name])
        has_tools = any(_TOOLS[name] in tool for tool in tools)
        if fields & set(request) or is_named or name in replies or has_tools:
            yield name


# --- whole lists ---------------------------------------------------------------------------


def decode_list(wire: Codec, messages: Sequence[Json], tally: Tally) -> DecodedList:
    """Decode a list and add it to the tally; its replies get a finish reason."""
    decoded = read_list(wire, messages)
    tally.messages += len(messages)
    finished: list[Message] = []
    for message in decoded.messages:
        tally.count_calls(message.parts)
        finish = {} if message.is_user else {"finish": finish_of(message.parts)}
        finished.append(with_info(message, **finish))
    return replace(decoded, messages=tuple(finished))


def with_prompt(origin: Origin, wire: str, prompt: Any) -> Origin:
    """The origin with a system prompt, given as a text or as blocks of this API."""
    if isinstance(prompt, str) and prompt:
        return replace(origin, system=prompt)
    blocks = as_list(prompt)
    if not blocks:
        return origin
    texts = [as_object(block).get("text") for block in blocks]
    text = "\n\n".join(text for text in texts if isinstance(text, str))
    return replace(origin, system=text, wire={**(origin.wire or {}), wire: {"system": blocks}})


class AnthropicLists(ApiLists):
    """Anthropic's Messages API."""

    name, about = "anthropic", "messages of Anthropic's Messages API"
    wire, field, prompt = Anthropic(), MESSAGES, "system"


class ResponsesLists(ApiLists):
    """OpenAI's Responses API."""

    name, about = "openai-responses", "items of OpenAI's Responses API"
    wire, field, prompt = OpenAIResponses(), ITEMS, "instructions"


class ChatLists(ApiLists):
    """OpenAI's Chat Completions API."""

    name, about = "openai-chat", "messages of OpenAI's Chat Completions API"
    wire, field = OpenAIChat(), MESSAGES
