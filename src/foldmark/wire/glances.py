"""A glance at a message of a wire: whose it is, what it costs, which calls it makes and answers.

That is all that is needed to choose what stays in a request. Messages of the most common shape are
looked at as they are; of all others the wire's codec tells, which takes longer. Nothing is changed
here but outputs, and they in copies.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec

from foldmark.errors import BadInput
from foldmark.messages import AnyPart, Message, ToolPart, UserInfo
from foldmark.shown import FromTools, FromUser, Output, Result, Text
from foldmark.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size
from foldmark.targets import Target, target
from foldmark.tokens import Counter
from foldmark.values import Json

from .lists import as_shown
from .model import JOINED, RESULT, Answer, Wire
from .plain import plain_object

_CHAT = "openai-chat"
_CHAT_TEXT = frozenset({"role", "content"})
_CHAT_CALLS = frozenset({"role", "content", "tool_calls"})
_PROMPTS = ("system", "developer")
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
_CHAT_RESULT = frozenset({"role", "content", "tool_call_id"})


class Glance(NamedTuple):
    """What is seen of a message."""

    role: str  # system, user, assistant or tool
    tokens: int  # of all but outputs
    output: int = 0  # tokens of the outputs in it
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    joins: bool = False  # it goes on with the answer before it


class Glancer:
    """Looks at the messages of a list, each once."""

    def __init__(self, messages: Sequence[object], wire: Wire, count: Counter) -> None:
        """Take the list, what wire it is of, and who counts."""
        self._messages = messages
        self._wire = wire
        self._count = count
        self._is_chat = wire.name == _CHAT
        self._seen: dict[int, Glance] = {}

    def at(self, place: int) -> Glance:
        """What is seen of the message there; BadInput names one that is none."""
        found = self._seen.get(place)
        if found is None:
            found = self._seen[place] = self._looked(place)
        return found

    def _plain(self, place: int) -> Json:
        return plain_object(self._messages[place])

    def _looked(self, place: int) -> Glance:
        message = self._messages[place]
        glance = None
        if self._is_chat and type(message) is dict:
            glance = self._chat(cast("Json", message))
        if glance is not None:
            return glance
        try:
            return self._read(self._plain(place))
        except BadInput as error:
            raise BadInput(error.cause, place=f"message {place + 1}") from None

    def _chat(self, message: Json) -> Glance | None:
        """The usual messages of the chat wire; None for all others."""
        content, role, fields = message.get("content"), message.get("role"), message.keys()
        if type(content) is not str:
            if content is not None or role != "assistant":
                return None
            content = ""
        if role == "tool" and fields == _CHAT_RESULT:
            call = message["tool_call_id"]
            if type(call) is not str:
                return None
            return Glance("tool", MESSAGE_OVERHEAD, self._count(content), (), (call,))
        tokens = MESSAGE_OVERHEAD + (self._count(content) if content else 0)
        if fields == _CHAT_TEXT and role in ("user", "assistant", "system") and content:
            return Glance(role, tokens)
        if role != "assistant" or fields != _CHAT_CALLS:
            return None
        return self._chat_calls(message["tool_calls"], tokens)

    def _chat_calls(self, made: object, tokens: int) -> Glance | None:
        calls: list[str] = []
        with suppress(TypeError, KeyError, AttributeError):
            for call in cast("list[Any]", made):
                calls.append(call["id"])
                tokens += CALL_OVERHEAD + self._count(call["function"]["arguments"])
        is_usual = bool(calls) and isinstance(made, list) and set(map(type, calls)) == {str}
        if not is_usual or len(calls) != len(cast("list[Any]", made)):
            return None
        return Glance("assistant", tokens, 0, tuple(calls))

    def _read(self, message: Json) -> Glance:
        read = self._wire.read(message)
        tokens = MESSAGE_OVERHEAD + sum(self._size(part) for part in read.parts)
        files = sum(
            part_size(file, self._count).total for held in read.answers for file in held.files
        )
        return Glance(
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
        held = cast("Sequence[Json]", self._messages[start:end])
        said = [m for m in held if type(m) is not dict or m.get("role") not in _OTHERS]
        requests = [text for message in said if (text := _said(message, ("user", None)))]
        return requests, [text for message in said if (text := _said(message, _PROMPTS))]

    def calls(self, start: int, end: int) -> list[tuple[str, Target]]:
        """The calls in these messages, with what they were about."""
        found: list[tuple[str, Target]] = []
        for message in cast("Sequence[Json]", self._messages[start:end]):
            if not self._is_chat or type(message) is not dict or message.get("tool_calls"):
                with suppress(BadInput):
                    found += self._called(message)
        return found

    def _called(self, message: Json) -> list[tuple[str, Target]]:
        if self._is_chat:
            with suppress(TypeError, KeyError, AttributeError, ValueError):
                made = [call["function"] for call in message["tool_calls"]]
                given = [(call["name"], msgspec.json.decode(call["arguments"])) for call in made]
                return [(name, target(name, held)) for name, held in given]
        parts = self._wire.read(plain_object(message)).parts
        calls = [part for part in parts if isinstance(part, ToolPart)]
        return [(part.tool, target(part.tool, part.state.input or {})) for part in calls]

    # --- messages that are made ---

    def told(self, text: str) -> list[Json]:
        """A message in which this is said on the user's side."""
        return self._wire.write((FromUser(content=(Text(text=text),)),), as_is=False)

    def led(self, text: str, place: int) -> list[Json]:
        """A message of the user with a text in front of it."""
        message = self._plain(place)
        if isinstance(content := message.get("content"), str):
            return [{**message, "content": f"{text}\n\n{content}"}]
        read = self._wire.read(message)
        held = as_shown(Message(info=UserInfo(id="msg"), parts=read.parts), self._wire.key)
        content = [block for message in held for block in message.content]
        joined = FromUser(content=(Text(text=text), *cast("list[Text]", content)))
        return self._wire.write((joined,), as_is=False)

    def with_outputs(self, place: int, shown: Callable[[str], str]) -> list[Json]:
        """A message whose outputs are shown otherwise; files that came with them are left out."""
        message = self._plain(place)
        if self._is_chat and isinstance(content := message.get("content"), str):
            return [{**message, "content": shown(content)}]
        read, key = self._wire.read(message), self._wire.key
        results = tuple(_result(answer, _told(answer, shown), key) for answer in read.answers)
        held = as_shown(Message(info=UserInfo(id="msg"), parts=read.parts), key)
        if read.parts:
            held = [FromUser(content=cast("Any", held[0].content), wire={JOINED: True})]
        return self._wire.write(
            (FromTools(content=results), *(held if read.parts else ())), as_is=False
        )


def _said(message: object, roles: Sequence[str | None]) -> str:
    """The words of a message on any wire, if it is of one of these roles."""
    held = cast("Json", message) if type(message) is dict else plain_object(message)
    if held.get("role") not in roles or held.get("type", "message") != "message":
        return ""
    content = held.get("content", held.get("parts"))
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n\n".join(filter(None, map(_text, cast("list[object]", content))))


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


def _result(answer: Answer, output: str, key: str) -> Result:
    return Result(
        tool_call_id=answer.call_id,
        tool_name=answer.tool,
        output=Output(type="error-text" if answer.is_error else "text", value=output),
        provider_options={key: {RESULT: answer.rest}} if answer.rest else None,
    )
