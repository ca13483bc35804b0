"""Scans API messages for their role, their tokens, and their calls and results.

That is enough to choose which messages stay in a request. Messages of the most common shape are
read directly; all others go through the codec of their API format, which is slower. Messages are
never changed; shortened outputs are in copies.
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
from foldmark.wire.codec import JOINED, Codec, ReadResult
from foldmark.wire.exactness import prompt_result
from foldmark.wire.lists import to_prompt
from foldmark.wire.plain import plain, plain_object

_CHAT = "openai-chat"
_USERS = ("user", None)
_PROMPTS = ("system", "developer")
_TEXT_ROLES = ("user", "assistant", "system")
_OTHERS = ("assistant", "tool", "model")
_FILE = "[a file that is left out]"
# The keys of file blocks: OpenAI's, Anthropic's, Gemini's.
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
    """The role, tokens, calls and results of a message."""

    role: str  # system, user, assistant, tool or other
    tokens: int  # without outputs
    output: int = 0  # tokens of the outputs in it
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # by call id
    joins: bool = False  # continues the reply before it


class MessageScanner:
    """Scans the messages of a list, each once."""

    def __init__(
        self, messages: Sequence[object], wire: Codec, count: Counter, rough: Counter | None = None
    ) -> None:
        """Scan messages of an API format; `rough` may count large outputs roughly."""
        self._messages = cast("Sequence[Json]", messages)  # or an SDK's objects
        self._wire = wire
        self._count = count
        self._rough = rough or count
        self._is_chat = wire.name == _CHAT
        self._scans: dict[int, MessageScan] = {}
        self._estimates: dict[int, MessageScan] = {}

    def at(self, index: int) -> MessageScan:
        """The scan of the message at an index."""
        scan = self._scans.get(index)
        if scan is None:
            scan = self._scan_common(index, self._count) or self._scan(index)
            self._scans[index] = scan
        return scan

    def estimate(self, index: int) -> MessageScan:
        """The scan of the message at an index, whose outputs may be counted roughly."""
        scan = self._scans.get(index) or self._estimates.get(index)
        if scan is None and (scan := self._scan_common(index, self._rough)):
            self._estimates[index] = scan
        return scan or self.at(index)

    def _scan(self, index: int) -> MessageScan:
        try:
            return self._scan_decoded(self._plain(index))
        except BadInput:  # unknown to the codec: count its JSON
            return MessageScan("other", any_tokens(self._messages[index], self._count))

    def _plain(self, index: int) -> Json:
        return plain_object(self._messages[index])

    def _scan_common(self, index: int, outputs: Counter) -> MessageScan | None:
        """Scan a chat message of a common shape (the fast path); None for any other."""
        message = self._messages[index]
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
        if fields == 2 and content and role in _TEXT_ROLES:
            return MessageScan(role, MESSAGE_OVERHEAD + self._count(content))
        calls = message.get("tool_calls")
        is_calling = calls and fields == 3 and role == "assistant" and "content" in message
        return self._chat_calls(calls, content or "") if is_calling else None

    def _chat_calls(self, calls: object, content: str) -> MessageScan | None:
        if not isinstance(calls, list):
            return None
        tokens = MESSAGE_OVERHEAD + (self._count(content) if content else 0)
        call_ids: list[str] = []
        for call in cast("list[Any]", calls):
            if type(call) is not dict or type(call_id := cast("Json", call).get("id")) is not str:
                return None
            call_ids.append(call_id)
            tokens += CALL_OVERHEAD + self._count(_chat_input(cast("Json", call)))
        return MessageScan("assistant", tokens, 0, tuple(call_ids))

    def _scan_decoded(self, message: Json) -> MessageScan:
        decoded = self._wire.read(message)
        tokens = MESSAGE_OVERHEAD + sum(self._size(part) for part in decoded.parts)
        files = (file for result in decoded.results for file in result.files)
        file_tokens = sum(part_size(file, self._count).total for file in files)
        return MessageScan(
            role="tool" if decoded.results and not decoded.parts else decoded.role,
            tokens=tokens,
            output=sum(self._count(result.output) for result in decoded.results) + file_tokens,
            calls=tuple(part.call_id or "" for part in decoded.parts if isinstance(part, ToolPart)),
            results=tuple(result.call_id for result in decoded.results),
            joins=decoded.joins,
        )

    def _size(self, part: AnyPart) -> int:
        size = part_size(part, self._count).total
        # `part_size` includes the overhead of a result, which is a message of its own here.
        return size - CALL_OVERHEAD if isinstance(part, ToolPart) else size

    # --- the content of omitted messages ---

    def user_texts(self, start: int, end: int) -> tuple[list[str], list[str]]:
        """The texts of the user in these messages, and those of system prompts between them."""
        # This reads every omitted message, so it must be fast.
        messages = self._messages[start:end]
        texts = [m for m in messages if type(m) is not dict or m.get("role") not in _OTHERS]
        requests: list[str] = []
        prompts: list[str] = []
        for message in texts:
            role, text = _role_and_text(message)
            if text and role in _USERS:
                requests.append(text)
            elif text and role in _PROMPTS:
                prompts.append(text)
        return requests, prompts

    def calls(self, start: int, end: int) -> list[tuple[str, Target]]:
        """The tools called in these messages, with their targets."""
        calls: list[tuple[str, Target]] = []
        calls_of = self._chat_calls_in if self._is_chat else self._calls_in
        for message in self._messages[start:end]:
            calls += calls_of(message)
        return calls

    def _chat_calls_in(self, message: Json) -> list[tuple[str, Target]]:
        if type(message) is dict and not message.get("tool_calls"):
            return []
        try:
            return [_chat_target(call["function"]) for call in message["tool_calls"]]
        except (TypeError, KeyError, AttributeError, ValueError):
            return self._calls_in(message)

    def _calls_in(self, message: object) -> list[tuple[str, Target]]:
        fields = cast("Json", message)
        if type(fields) is dict and fields.get("role") == "user":
            return []  # no calls, and results would be slow to read
        try:
            parts = self._wire.read(plain_object(fields)).parts
        except BadInput:
            return []
        calls = [part for part in parts if isinstance(part, ToolPart)]
        return [(part.tool, target(part.tool, part.state.input or {})) for part in calls]

    # --- new messages ---

    def user_message(self, text: str) -> list[Json]:
        """A user message with this text."""
        return self._wire.write((UserMessage(content=(Text(text=text),)),), as_is=False)

    def with_lead(self, text: str, index: int) -> list[Json]:
        """A copy of a user message with a text before its content."""
        message = self._plain(index)
        if isinstance(content := message.get("content"), str):
            return [{**message, "content": f"{text}\n\n{content}"}]
        decoded = self._wire.read(message)
        messages = to_prompt(Message(info=UserInfo(id="msg"), parts=decoded.parts))
        content = [block for message in messages for block in message.content]
        merged = UserMessage(content=(Text(text=text), *cast("list[Text]", content)))
        return self._wire.write((merged,), as_is=False)

    def with_outputs(self, index: int, shorten: Callable[[str], str]) -> list[Json]:
        """A copy of a message with shortened outputs, and notes in place of their files."""
        message = self._messages[index]
        if not _has_only_texts(message):
            message = self._plain(index)
        if self._is_chat and isinstance(content := message.get("content"), str):
            return [{**message, "content": shorten(content)}]
        decoded, key = self._wire.read(message), self._wire.key
        short = (replace(each, output=_output(each, shorten), files=()) for each in decoded.results)
        results = tuple(prompt_result(each, key, {}) for each in short)
        messages = to_prompt(Message(info=UserInfo(id="msg"), parts=decoded.parts))
        if decoded.parts:
            messages = [UserMessage(content=cast("Any", messages[0].content), wire={JOINED: True})]
        return self._wire.write(
            (ToolMessage(content=results), *(messages if decoded.parts else ())), as_is=False
        )


def any_tokens(message: object, count: Counter) -> int:
    """The tokens of a message of unknown format."""
    try:
        text = encode(plain(message)).decode()
    except (BadInput, ValueError):
        text = repr(message)
    return MESSAGE_OVERHEAD + count(text)


def _chat_target(function: Json) -> tuple[str, Target]:
    """The tool and target of a call in the chat format."""
    name = function["name"]
    return name, target(name, msgspec.json.decode(function["arguments"]))


def _has_only_texts(message: object) -> bool:
    """Whether it is a dict of strings, and therefore plain JSON."""
    return type(message) is dict and set(map(type, cast("Json", message).values())) == {str}


def _role_and_text(message: object) -> tuple[object, str]:
    """The role and text of a message in any API format."""
    fields = cast("Json", message) if type(message) is dict else plain_object(message)
    if fields.get("type", "message") != "message":
        return None, ""
    content = fields.get("content", fields.get("parts"))
    if isinstance(content, list):
        content = "\n\n".join(filter(None, map(_text, cast("list[object]", content))))
    return fields.get("role"), content if isinstance(content, str) else ""


def _text(block: object) -> str:
    """The text of a block, or a note for a file."""
    fields = cast("Json", block) if type(block) is dict else _object(block)
    text = fields.get("text")
    if isinstance(text, str):
        return text
    return _FILE if any(name in fields for name in _FILES) else ""


def _object(block: object) -> Json:
    try:
        return plain_object(block)
    except BadInput:
        return {}


def _output(result: ReadResult, shorten: Callable[[str], str]) -> str:
    """A shortened output, with a note for each of its files."""
    text = shorten(result.output) if result.output else ""
    return "\n".join(filter(None, (text, *(_FILE for _ in result.files))))


def _chat_input(call: Json) -> str:
    """The arguments of a call, or the whole call if it is of another kind."""
    function = call.get("function")
    if type(function) is dict:
        arguments = cast("Json", function).get("arguments")
    else:
        arguments = getattr(function, "arguments", None)
    if type(arguments) is str:
        return arguments
    with suppress(TypeError, ValueError, RecursionError):  # it is not JSON
        return encode(call).decode()
    return ""
