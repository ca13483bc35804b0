"""Reads and writes the contents of Google's ADK for a session.

ADK builds the contents anew for each request and removes its own call ids. Each content is
therefore paired with what was read from it, where every call has an id. Copies of earlier contents
are not read again. This module does not know conversations.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, cast

from google.genai import types
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, Tokens, ToolPart
from foldmark.model.prompt_messages import PromptMessage, ToolMessage
from foldmark.model.values import Json, encode
from foldmark.wire.codec import BLOCK, ReadMessage, ReadResult, codec_named, subobject
from foldmark.wire.gemini import KINDS, UNNAMED, usage_tokens
from foldmark.wire.plain import plain, plain_object


class MeasuredContent(NamedTuple):
    """A content of the model from its event, and its measured usage."""

    content: types.Content
    usage: object


@dataclass(slots=True, eq=False)
class ReadContent:
    """A content of the current request, and what was read from it."""

    content: types.Content
    read: ReadMessage


class AdkDialect:
    """Writes contents; `ContentReader` has read them already."""

    unique = False

    def __init__(self) -> None:
        """Use the Gemini format: ADK uses it for every model."""
        self._codec = codec_named("gemini")
        self.key = self._codec.key

    def read(self, content: ReadContent, /) -> ReadMessage:
        """What was read from a content."""
        return content.read

    def write(
        self, messages: Sequence[PromptMessage], original: ReadContent | None, /
    ) -> list[ReadContent]:
        """Contents with these messages."""
        del original
        # Every provider refuses a call without its result: such pairs become text.
        as_is = not any(_is_unpaired(message, self.key) for message in messages)
        return [
            ReadContent(_content(data), self._codec.read(data))
            for data in self._codec.write(tuple(messages), as_is=as_is)
        ]

    def prompt(self, content: ReadContent, /) -> ReadContent | None:
        """Return None: the system prompt is not among the contents."""
        del content


def _content(data: Json) -> types.Content:
    return types.Content.model_validate_json(json.dumps(data))


def _is_unpaired(message: PromptMessage, key: str) -> bool:
    if isinstance(message, ToolMessage):
        return False
    blocks = (subobject(block.provider_options, key).get(BLOCK) for block in message.content)
    return any(
        KINDS.get(name) in ("call", "result")
        for block in blocks
        if isinstance(block, dict)
        for name in cast("Json", block)
    )


def join_results(contents: Sequence[types.Content]) -> list[types.Content]:
    """Contents with all results of a model's calls in one content, as Gemini requires."""
    result: list[types.Content] = []
    for content in contents:
        if result and has_results(result[-1]) and has_results(content):
            parts = [*(result[-1].parts or ()), *(content.parts or ())]
            result[-1] = types.Content(role="user", parts=parts)
        else:
            result.append(content)
    return result


def has_results(content: types.Content) -> bool:
    """Whether a content has a function response."""
    return any(part.function_response for part in content.parts or ())


class ContentReader:
    """Reads the contents of one conversation, request by request."""

    def __init__(self) -> None:
        """Start with no contents."""
        self._codec = codec_named("gemini")
        self._contents: list[ReadContent] = []

    def read(
        self, contents: Sequence[types.Content], measured: Sequence[MeasuredContent]
    ) -> list[ReadContent]:
        """Read all contents; `measured` has the usage of the model's own, the oldest first."""
        history = self._known_contents(contents)
        new = contents[len(history) :]
        tokens = _tokens(new, measured)
        # The first content distinguishes conversations, so ids are derived from it.
        lead = blake2b(encode(plain_object(contents[0])), digest_size=5).hexdigest()
        call_ids = _CallIds(history, lead)
        for content, usage in zip(new, tokens, strict=True):
            message = call_ids.assign(self.read_alone(content), len(history))
            message = replace(message, tokens=usage) if usage else message
            history.append(ReadContent(content, message))
        self._contents = history
        return list(history)

    def read_alone(self, content: types.Content) -> ReadMessage:
        """Read a content that is not part of the history."""
        return self._codec.read(plain_object(content))

    def _known_contents(self, contents: Sequence[types.Content]) -> list[ReadContent]:
        """The contents that were read before, each now with the object of this request."""
        prefix: list[ReadContent] = []
        for entry, content in zip(self._contents, contents, strict=False):
            if entry.content != content:
                break
            entry.content = content
            prefix.append(entry)
        return prefix


class _CallIds:
    """Assigns ids to calls without one and to their results, in order."""

    def __init__(self, history: Sequence[ReadContent], prefix: str) -> None:
        self._prefix = prefix
        self._waiting: list[tuple[str, str]] = []  # tools and ids of calls without result
        end = len(history)
        latest = next((n for n in reversed(range(end)) if _calls(history[n].read)), end)
        for entry in history[latest:]:
            self._follow(entry.read)

    def assign(self, message: ReadMessage, index: int) -> ReadMessage:
        parts = tuple(self._call(part, f"{index}-{n}") for n, part in enumerate(message.parts))
        message = replace(message, parts=parts)
        answers: list[ReadResult] = []
        for number, answer in enumerate(message.results):
            answers.append(self._answer(answer, f"{index}-{number}"))
            self._close_call(answers[-1])
        self._follow(replace(message, results=()))
        return replace(message, results=tuple(answers))

    def _call(self, part: AnyPart, suffix: str) -> AnyPart:
        if isinstance(part, ToolPart) and subobject(part.metadata, "google").get(UNNAMED):
            return replace(part, call_id=f"{self._prefix}-{suffix}")
        return part

    def _answer(self, answer: ReadResult, suffix: str) -> ReadResult:
        inner = answer.raw.get("functionResponse") or answer.raw.get("function_response")
        if isinstance(inner, dict) and cast("Json", inner).get("id"):
            return answer
        call_id = next((name for tool, name in self._waiting if tool == answer.tool), None)
        return replace(answer, call_id=call_id or f"{self._prefix}-lost-{suffix}")

    def _follow(self, message: ReadMessage) -> None:
        for answer in message.results:
            self._close_call(answer)
        if calls := _calls(message):
            self._waiting = [(call.tool, call.call_id or "") for call in calls]

    def _close_call(self, answer: ReadResult) -> None:
        self._waiting = [call for call in self._waiting if call[1] != answer.call_id]


def _calls(message: ReadMessage) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


# --- measured usage ----------------------------------------------------------------------------


def _tokens(
    contents: Sequence[types.Content], measured: Sequence[MeasuredContent]
) -> list[Tokens | None]:
    """The tokens of each content, matched from the newest to the oldest."""
    result: list[Tokens | None] = []
    end = len(measured)
    for content in reversed(contents):
        tokens = None
        if content.role == "model":
            same = (n for n in reversed(range(end)) if _is_same(measured[n].content, content))
            if (index := next(same, None)) is not None:
                end, tokens = index, usage_tokens(plain(measured[index].usage))
        result.append(tokens)
    return result[::-1]


def _is_same(original: types.Content, copy: types.Content) -> bool:
    """Whether one is a copy of the other, except for call ids."""
    ours, theirs = original.parts or [], copy.parts or []
    return len(ours) == len(theirs) and all(map(_is_same_part, ours, theirs))


def _is_same_part(original: types.Part, copy: types.Part) -> bool:
    call, other = original.function_call, copy.function_call
    if call is None or other is None:
        return original == copy
    return call.name == other.name and call.args == other.args
