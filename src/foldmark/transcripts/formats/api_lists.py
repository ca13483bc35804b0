"""Messages of a provider's API in files: of OpenAI's two APIs, and of Anthropic's.

Facts of these formats: many programs write them. A file is one list, or one object that holds it
(the body of a request, perhaps with the response beside it), or lines of these, a session each; or
lines of messages, all of one session. What one list says is written back the same by its codec.
Anthropic's system prompt stands beside the messages as `system`, that of the Responses API as
`instructions`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import Message, Origin, SessionInfo, finish_of
from foldmark.model.values import Extra, Json
from foldmark.transcripts.build import (
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
from foldmark.transcripts.source import Head, Record
from foldmark.wire.anthropic import Anthropic
from foldmark.wire.codec import Codec, codec_named, objects, subobject
from foldmark.wire.detect import reply_candidates
from foldmark.wire.formats import decode_reply
from foldmark.wire.lists import DecodedList, read_list
from foldmark.wire.openai_chat import OpenAIChat
from foldmark.wire.openai_responses import OpenAIResponses

MESSAGES, ITEMS = "messages", "input"
_FEW, _MANY = 5, 200  # messages of each list that are looked at
_CHAT, _ANTHROPIC, _RESPONSES = "openai-chat", "anthropic", "openai-responses"
# Objects that hold messages and are of another format: these fields tell.
_ELSEWHERE = frozenset({"info", "trajectory_format", "trajectory", "simulations", "sessionId"})
# What a request says only on its own API.
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
_SEEN = ("model", "tools", "response")
_TITLES = ("title", "instance_id", "task_id", "id")


class ApiLists(FormatReader):
    """Reads one file; each API says how its requests are made."""

    wire: Codec
    field: str  # that holds the messages
    prompt = ""  # that holds the system prompt, where it is no message

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file can be of this format."""
        return _can_be(head, cls.wire.name)

    def __init__(self, name: str) -> None:
        """Take the file's name, which names the sessions."""
        self.key = self.wire.key
        super().__init__(name)
        self._lines: list[Json] = []  # messages on lines of their own, all of one session

    def decode(self, record: Record) -> object:
        """A list, a request, or a message."""
        return record.value()

    def read(self, record: Any) -> None:
        """Tell what it says."""
        if isinstance(record, list):
            self._list(objects(cast("object", record), "the list"), {})
            return
        if not isinstance(record, dict):
            raise BadInput("neither a list of messages, nor a request, nor a message")
        body = cast("Json", record)
        messages = body.get(self.field)
        if isinstance(messages, str) and self.prompt:
            messages = [{"role": "user", "content": messages}]  # a request may be a mere text
        if messages is not None and "role" not in body:
            self._list(objects(messages, f"'{self.field}'"), body)
        else:
            self.wire.read(body)  # what is none is refused by its line
            self._lines.append(body)

    def finish(self) -> None:
        """Tell the messages of lines."""
        lines, self._lines = self._lines, []
        if lines:
            self._list(lines, {})

    def _list(self, messages: list[Json], body: Json) -> None:
        self.finish()  # messages on lines before it
        decoded = decode_list(self.wire, messages, self.tally)
        answer = self._answer(body, len(messages))
        origin = with_prompt(decoded.origin, self.wire.name, body.get(self.prompt))
        read = {self.field, "tools"}
        read |= {"response"} if answer else set()
        read |= {self.prompt} if origin is not decoded.origin else set()
        rest = {name: held for name, held in body.items() if name not in read}
        titles = (body.get(name) for name in _TITLES)
        tools = body.get("tools") or subobject(body, "kwargs").get("tools")
        info = SessionInfo(
            id=self.session_ids.claim(self.stem),
            title=next((title for title in titles if isinstance(title, str) and title), UNSET),
            time=session_time(milliseconds(body.get("timestamp") or body.get("created"))),
            origin=replace(origin, tools=tools or UNSET),
        )
        conversation = ConversationBuilder(
            self, info, Extra({self.wire.name: rest}) if rest else UNSET
        )
        conversation.open()
        named, model = provider_and_model(body.get("model"))
        by_model = {"provider_id": named or self.wire.provider, "model_id": model}
        told = [
            with_info(message, **by_model) if model and not message.is_user else message
            for message in decoded.messages
        ]
        self.emit(conversation, *told, *answer)

    def _answer(self, body: Json, place: int) -> list[Message]:
        """The answer, where the response is recorded beside its request."""
        response = subobject(body, "response")
        if not response or not self.wire.recognizes_reply(response):
            return []
        reply = decode_reply(response, self.wire.name)
        cost = body.get("cost")
        is_price = isinstance(cost, int | float) and not isinstance(cost, bool)
        about: Json = {"id": f"msg_{place + 1:06d}", "cost": cost if is_price else UNSET}
        provider, model = provider_and_model(response.get("model"))
        if provider:
            about |= {"provider_id": provider, "model_id": model}
        self.tally.messages += 1
        self.tally.count_calls(reply.parts)
        return [with_info(reply, **about)]


# --- of which API a file is ----------------------------------------------------------------
# What does not tell is not guessed. Bare texts of a user and an assistant are alike for OpenAI's
# chat and for Anthropic: then a list can be of both, unless the request around it points to one.


def _can_be(head: Head, wire: str) -> bool:
    """Whether a file can hold lists of this API."""
    if wire == _RESPONSES:
        return _can_be_items(*_sample(head, ITEMS, _FEW))
    requests: list[Json] = []
    for most in (_FEW, _MANY):
        messages, requests = _sample(head, MESSAGES, most)
        if not messages or codec_named(_RESPONSES).recognizes(messages):
            return False
        possible = [name for name in _FIELDS if codec_named(name).recognizes(messages)]
        if len(possible) < 2:
            return wire in possible
    pointed = {name for request in requests for name in _pointed(request)}
    return wire in pointed or len(pointed) != 1


def _can_be_items(messages: list[Json], requests: list[Json]) -> bool:
    # Within a request the field itself tells, where messages alone would not.
    typed = [{"type": "message", **held} if "role" in held else held for held in messages]
    return codec_named(_RESPONSES).recognizes(typed if requests else messages)


def _sample(head: Head, field: str, most: int) -> tuple[list[Json], list[Json]]:
    """Messages at the beginning of a file, and the requests that they stand in."""
    messages: Sequence[Any] = head.first_items("", most)
    requests: list[Json] = []
    if head.lines:
        requests = [line for line in head.lines if isinstance(line.get(field), list)]
        messages = [item for request in requests for item in request[field][:most]]
        if not requests:
            messages = head.lines[:most]
        elif len(requests) < len(head.lines):
            return [], []
    elif field in head.fields:
        messages = head.first_items(field, most)
        requests = [{name: head.field(name) if name in _SEEN else None for name in head.fields}]
    if any(_ELSEWHERE & set(request) for request in requests):
        return [], []
    return list(messages) if all(isinstance(held, dict) for held in messages) else [], requests


def _pointed(request: Json) -> Iterator[str]:
    """The APIs to which a request points by what it says beside its messages."""
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
    """A list as our messages, counted; answers are told to have ended."""
    decoded = read_list(wire, messages)
    tally.messages += len(messages)
    ended: list[Message] = []
    for message in decoded.messages:
        tally.count_calls(message.parts)
        finish = {} if message.is_user else {"finish": finish_of(message.parts)}
        ended.append(with_info(message, **finish))
    return replace(decoded, messages=tuple(ended))


def with_prompt(origin: Origin, wire: str, prompt: Any) -> Origin:
    """What is said of a session's origin, with a system prompt that stood beside its messages."""
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
