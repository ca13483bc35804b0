"""A scan at a message of a wire: whose it is, what it costs, which calls it makes and answers.

That is all that is needed to choose what stays in a request. Messages of the most common shape are
looked at as they are; of all others the wire's codec tells, which takes longer. Nothing is changed
here but outputs, and they in copies.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.log.tool_targets import Target, target
from foldmark.model.messages import AnyPart, Message, ToolPart, UserInfo
from foldmark.model.prompt_messages import Text, ToolMessage, UserMessage
from foldmark.model.values import Frozen, Json, encode
from foldmark.tokens.counters import Counter
from foldmark.tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size
from foldmark.wire.codec import JOINED, Answer, Wire
from foldmark.wire.exactness import as_result
from foldmark.wire.lists import as_shown
from foldmark.wire.plain import plain, plain_object

_CHAT = "openai-chat"
_USERS = ("user", None)
_PROMPTS = ("system", "developer")
_TALKERS = ("user", "assistant", "system")
_OTHERS = ("assistant", "tool", "model")
_FILE = "[a file that is left out]"
# By which a block tells that it is a file: OpenAI's, Anthropic's, Gemini's.
_FILES = (
    "image_url",
    "file",
    "input_audio",
    "source",
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
)


class MessageScan(Frozen, kw_only=False, gc=False):
    """What is seen of a message."""

    role: str  # system, user, assistant, tool or other
    tokens: int  # of all but outputs
    output: int = 0  # tokens of the outputs in it
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    joins: bool = False  # it goes on with the answer before it


class MessageScanner:
    """Looks at the messages of a list, each once."""

    def __init__(
        self, messages: Sequence[object], wire: Wire, count: Counter, rough: Counter | None = None
    ) -> None:
        """Take the list, what wire it is of, who counts, and who does so roughly, if anybody."""
        self._messages = cast("Sequence[Json]", messages)  # or an SDK's objects
        self._wire = wire
        self._count = count
        self._rough = rough or count
        self._is_chat = wire.name == _CHAT
        self._seen: dict[int, MessageScan] = {}
        self._estimates: dict[int, MessageScan] = {}

    def at(self, place: int) -> MessageScan:
        """What is seen of the message there."""
        found = self._seen.get(place)
        if found is None:
            found = self._usual(place, self._count) or self._looked(place)
            self._seen[place] = found
        return found

    def estimate(self, place: int) -> MessageScan:
        """The same, with outputs that may be counted roughly."""
        found = self._seen.get(place) or self._estimates.get(place)
        if found is None and (found := self._usual(place, self._rough)):
            self._estimates[place] = found
        return found or self.at(place)

    def _looked(self, place: int) -> MessageScan:
        try:
            return self._read(self._plain(place))
        except BadInput:  # no codec knows it; it costs what its JSON does
            return MessageScan("other", any_tokens(self._messages[place], self._count))

    def _plain(self, place: int) -> Json:
        return plain_object(self._messages[place])

    def _usual(self, place: int, outputs: Counter) -> MessageScan | None:
        """The usual messages of the chat wire; None for all others."""
        message = self._messages[place]
        if not self._is_chat or type(message) is not dict:
            return None
        role, content, fields = message.get("role"), message.get("content"), len(message)
        if role == "tool":
            call = message.get("tool_call_id")
            if fields != 3 or type(content) is not str or type(call) is not str:
                return None
            return MessageScan("tool", MESSAGE_OVERHEAD, outputs(content), (), (call,))
        if content is not None and type(content) is not str:
            return None
        if fields == 2 and content and role in _TALKERS:
            return MessageScan(role, MESSAGE_OVERHEAD + self._count(content))
        made = message.get("tool_calls")
        is_calling = made and fields == 3 and role == "assistant" and "content" in message
        return self._chat_calls(made, content or "") if is_calling else None

    def _chat_calls(self, made: object, content: str) -> MessageScan | None:
        if not isinstance(made, list):
            return None
        tokens = MESSAGE_OVERHEAD + (self._count(content) if content else 0)
        calls: list[str] = []
        for call in cast("list[Any]", made):
            if type(call) is not dict or type(name := cast("Json", call).get("id")) is not str:
                return None
            calls.append(name)
            tokens += CALL_OVERHEAD + self._count(_chat_input(cast("Json", call)))
        return MessageScan("assistant", tokens, 0, tuple(calls))

    def _read(self, message: Json) -> MessageScan:
        read = self._wire.read(message)
        tokens = MESSAGE_OVERHEAD + sum(self._size(part) for part in read.parts)
        files = sum(
            part_size(file, self._count).total for held in read.answers for file in held.files
        )
        return MessageScan(
            role="tool" if read.answers and not read.parts else read.role,
            tokens=tokens,
            output=sum(self._count(answer.output) for answer in read.answers) + files,
            calls=tuple(part.call_id or "" for part in read.parts if isinstance(part, ToolPart)),
            answers=tuple(answer.call_id for answer in read.answers),
            joins=read.joins,
        )

    def _size(self, part: AnyPart) -> int:
        size = part_size(part, self._count).total
        # Of a call that has no result yet one is counted; here it has a message of its own.
        return size - CALL_OVERHEAD if isinstance(part, ToolPart) else size

    # --- what was said and done in messages that are left out ---

    def words(self, start: int, end: int) -> tuple[list[str], list[str]]:
        """What the user said in these messages, and what the program did, as prompts in between."""
        # This looks at every message that is left out: it is the one thing that must be quick.
        held = self._messages[start:end]
        said = [m for m in held if type(m) is not dict or m.get("role") not in _OTHERS]
        requests: list[str] = []
        prompts: list[str] = []
        for message in said:
            role, text = _said(message)
            if text and role in _USERS:
                requests.append(text)
            elif text and role in _PROMPTS:
                prompts.append(text)
        return requests, prompts

    def calls(self, start: int, end: int) -> list[tuple[str, Target]]:
        """The calls in these messages, with what they were about."""
        found: list[tuple[str, Target]] = []
        called = self._chat_called if self._is_chat else self._called
        for message in self._messages[start:end]:
            found += called(message)
        return found

    def _chat_called(self, message: Json) -> list[tuple[str, Target]]:
        if type(message) is dict and not message.get("tool_calls"):
            return []
        try:
            return [_about(call["function"]) for call in message["tool_calls"]]
        except (TypeError, KeyError, AttributeError, ValueError):
            return self._called(message)

    def _called(self, message: object) -> list[tuple[str, Target]]:
        given = cast("Json", message)
        if type(given) is dict and given.get("role") == "user":
            return []  # a user calls nothing; with results inside, it would take long to read
        try:
            parts = self._wire.read(plain_object(given)).parts
        except BadInput:
            return []
        calls = [part for part in parts if isinstance(part, ToolPart)]
        return [(part.tool, target(part.tool, part.state.input or {})) for part in calls]

    # --- messages that are made ---

    def told(self, text: str) -> list[Json]:
        """A message in which this is said on the user's side."""
        return self._wire.write((UserMessage(content=(Text(text=text),)),), as_is=False)

    def led(self, text: str, place: int) -> list[Json]:
        """A message of the user with a text in front of it."""
        message = self._plain(place)
        if isinstance(content := message.get("content"), str):
            return [{**message, "content": f"{text}\n\n{content}"}]
        read = self._wire.read(message)
        held = as_shown(Message(info=UserInfo(id="msg"), parts=read.parts))
        content = [block for message in held for block in message.content]
        joined = UserMessage(content=(Text(text=text), *cast("list[Text]", content)))
        return self._wire.write((joined,), as_is=False)

    def with_outputs(self, place: int, shown: Callable[[str], str]) -> list[Json]:
        """A message whose outputs are shown otherwise; files that came with them are left out."""
        message = self._messages[place]
        if not _is_of_texts(message):
            message = self._plain(place)
        if self._is_chat and isinstance(content := message.get("content"), str):
            return [{**message, "content": shown(content)}]
        read, key = self._wire.read(message), self._wire.key
        told = (replace(held, output=_told(held, shown), files=()) for held in read.answers)
        results = tuple(as_result(answer, key, {}) for answer in told)
        held = as_shown(Message(info=UserInfo(id="msg"), parts=read.parts))
        if read.parts:
            held = [UserMessage(content=cast("Any", held[0].content), wire={JOINED: True})]
        return self._wire.write(
            (ToolMessage(content=results), *(held if read.parts else ())), as_is=False
        )


def any_tokens(message: object, count: Counter) -> int:
    """The tokens of a message that no codec knows."""
    try:
        text = encode(plain(message)).decode()
    except (BadInput, ValueError):
        text = repr(message)
    return MESSAGE_OVERHEAD + count(text)


def _about(function: Json) -> tuple[str, Target]:
    """A call as the chat wire has it: its tool, and what it was about."""
    name = function["name"]
    return name, target(name, msgspec.json.decode(function["arguments"]))


def _is_of_texts(message: object) -> bool:
    """Whether it is plain JSON as it is, without a look at what lies deeper."""
    return type(message) is dict and set(map(type, cast("Json", message).values())) == {str}


def _said(message: object) -> tuple[object, str]:
    """Whose message this is, on any wire, and its words."""
    held = cast("Json", message) if type(message) is dict else plain_object(message)
    if held.get("type", "message") != "message":
        return None, ""
    content = held.get("content", held.get("parts"))
    if isinstance(content, list):
        content = "\n\n".join(filter(None, map(_text, cast("list[object]", content))))
    return held.get("role"), content if isinstance(content, str) else ""


def _text(block: object) -> str:
    """The words of a block; of a picture, that there was one."""
    held = cast("Json", block) if type(block) is dict else _object(block)
    text = held.get("text")
    if isinstance(text, str):
        return text
    return _FILE if any(name in held for name in _FILES) else ""


def _object(block: object) -> Json:
    try:
        return plain_object(block)
    except BadInput:
        return {}


def _told(answer: Answer, shown: Callable[[str], str]) -> str:
    """An output as it is shown, and that files came with it, which are left out."""
    text = shown(answer.output) if answer.output else ""
    return "\n".join(filter(None, (text, *(_FILE for _ in answer.files))))


def _chat_input(call: Json) -> str:
    """What a call gives its tool; of a call of another kind, all of it."""
    function = call.get("function")
    if type(function) is dict:
        given = cast("Json", function).get("arguments")
    else:
        given = getattr(function, "arguments", None)
    if type(given) is str:
        return given
    with suppress(TypeError, ValueError, RecursionError):  # it holds what is no JSON
        return encode(call).decode()
    return ""
