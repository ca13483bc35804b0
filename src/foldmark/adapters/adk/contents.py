"""Contents of Google's ADK, as a session reads and writes them.

ADK makes the contents of each request anew and takes its own ids off the calls in them: so each
content is held with what it says, in which every call has an id again. What is a copy of a content
that was read before is not read again. Which conversation it is, this module does not know.
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
from foldmark.wire.codec import BLOCK, Answer, Read, options, wire_named
from foldmark.wire.gemini import KINDS, UNNAMED, usage_tokens
from foldmark.wire.plain import plain, plain_object


class MeasuredContent(NamedTuple):
    """A content of the model as its event has it, and what was measured for it."""

    content: types.Content
    usage: object


@dataclass(slots=True, eq=False)
class ContentRead:
    """A content of the request that is being made, and what it says."""

    content: types.Content
    read: Read


class AdkDialect:
    """Writes contents; what one says is known when it comes."""

    unique = False

    def __init__(self) -> None:
        """Use Gemini's wire: it is ADK's own, whichever model is asked."""
        self._codec = wire_named("gemini")
        self.key = self._codec.key

    def read(self, turn: ContentRead, /) -> Read:
        """What a content says."""
        return turn.read

    def write(
        self, shown: Sequence[PromptMessage], original: ContentRead | None, /
    ) -> list[ContentRead]:
        """Contents that say this."""
        del original
        # Half a call is refused by every provider: it is told in words.
        as_is = not any(_is_half(message, self.key) for message in shown)
        return [
            ContentRead(_content(wrote), self._codec.read(wrote))
            for wrote in self._codec.write(tuple(shown), as_is=as_is)
        ]

    def prompt(self, turn: ContentRead, /) -> ContentRead | None:
        """None: the system prompt stands beside the contents."""
        del turn


def _content(wrote: Json) -> types.Content:
    return types.Content.model_validate_json(json.dumps(wrote))


def _is_half(message: PromptMessage, key: str) -> bool:
    if isinstance(message, ToolMessage):
        return False
    blocks = (options(block.provider_options, key).get(BLOCK) for block in message.content)
    return any(
        KINDS.get(name) in ("call", "result")
        for block in blocks
        if isinstance(block, dict)
        for name in cast("Json", block)
    )


def with_joined_results(contents: Sequence[types.Content]) -> list[types.Content]:
    """Contents in which all results of a model's calls stand in one: Gemini takes no others."""
    joined: list[types.Content] = []
    for content in contents:
        if joined and has_results(joined[-1]) and has_results(content):
            parts = [*(joined[-1].parts or ()), *(content.parts or ())]
            joined[-1] = types.Content(role="user", parts=parts)
        else:
            joined.append(content)
    return joined


def has_results(content: types.Content) -> bool:
    """Whether it answers a call."""
    return any(part.function_response for part in content.parts or ())


class ContentReader:
    """The contents of one conversation, from request to request."""

    def __init__(self) -> None:
        """Begin with none."""
        self._codec = wire_named("gemini")
        self._held: list[ContentRead] = []

    def read(
        self, contents: Sequence[types.Content], measured: Sequence[MeasuredContent]
    ) -> list[ContentRead]:
        """The contents with what they say; `measured` are the model's own, the oldest first."""
        held = self._kept(contents)
        new = contents[len(held) :]
        tokens = _tokens(new, measured)
        # Ids are made of the content that leads the history: it tells conversations apart.
        lead = blake2b(encode(plain_object(contents[0])), digest_size=5).hexdigest()
        naming = _Naming(held, lead)
        for content, told in zip(new, tokens, strict=True):
            read = naming.named(self.read_alone(content), len(held))
            held.append(ContentRead(content, replace(read, tokens=told) if told else read))
        self._held = held
        return list(held)

    def read_alone(self, content: types.Content) -> Read:
        """What a content says that is in no history."""
        return self._codec.read(plain_object(content))

    def _kept(self, contents: Sequence[types.Content]) -> list[ContentRead]:
        """What was read before of these; each is told to be the one of this request."""
        kept: list[ContentRead] = []
        for turn, content in zip(self._held, contents, strict=False):
            if turn.content != content:
                break
            turn.content = content
            kept.append(turn)
        return kept


class _Naming:
    """Gives ids to calls without one, and to their results: the first result is of the first."""

    def __init__(self, held: Sequence[ContentRead], prefix: str) -> None:
        self._prefix = prefix
        self._waiting: list[tuple[str, str]] = []  # tools and ids of the latest calls
        latest = next((n for n in reversed(range(len(held))) if _calls(held[n].read)), len(held))
        for turn in held[latest:]:
            self._follow(turn.read)

    def named(self, read: Read, place: int) -> Read:
        parts = tuple(self._call(part, f"{place}-{n}") for n, part in enumerate(read.parts))
        read = replace(read, parts=parts)
        answers: list[Answer] = []
        for number, answer in enumerate(read.answers):
            answers.append(self._answer(answer, f"{place}-{number}"))
            self._answered(answers[-1])
        self._follow(replace(read, answers=()))
        return replace(read, answers=tuple(answers))

    def _call(self, part: AnyPart, place: str) -> AnyPart:
        if isinstance(part, ToolPart) and options(part.metadata, "google").get(UNNAMED):
            return replace(part, call_id=f"{self._prefix}-{place}")
        return part

    def _answer(self, answer: Answer, place: str) -> Answer:
        inner = answer.raw.get("functionResponse") or answer.raw.get("function_response")
        if isinstance(inner, dict) and cast("Json", inner).get("id"):
            return answer
        found = next((name for tool, name in self._waiting if tool == answer.tool), None)
        return replace(answer, call_id=found or f"{self._prefix}-lost-{place}")

    def _follow(self, read: Read) -> None:
        for answer in read.answers:
            self._answered(answer)
        if calls := _calls(read):
            self._waiting = [(call.tool, call.call_id or "") for call in calls]

    def _answered(self, answer: Answer) -> None:
        self._waiting = [held for held in self._waiting if held[1] != answer.call_id]


def _calls(read: Read) -> list[ToolPart]:
    return [part for part in read.parts if isinstance(part, ToolPart)]


# --- what was measured -------------------------------------------------------------------------


def _tokens(
    contents: Sequence[types.Content], measured: Sequence[MeasuredContent]
) -> list[Tokens | None]:
    """The tokens of each content, found from the newest back."""
    found: list[Tokens | None] = []
    end = len(measured)
    for content in reversed(contents):
        told = None
        if content.role == "model":
            place = next(
                (n for n in reversed(range(end)) if _is_same(measured[n].content, content)), None
            )
            if place is not None:
                end, told = place, usage_tokens(plain(measured[place].usage))
        found.append(told)
    return found[::-1]


def _is_same(kept: types.Content, sent: types.Content) -> bool:
    """Whether one is a copy of the other, ids of calls aside."""
    ours, theirs = kept.parts or [], sent.parts or []
    return len(ours) == len(theirs) and all(map(_is_same_part, ours, theirs))


def _is_same_part(kept: types.Part, sent: types.Part) -> bool:
    call, other = kept.function_call, sent.function_call
    if call is None or other is None:
        return kept == sent
    return call.name == other.name and call.args == other.args
