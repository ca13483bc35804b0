"""The lines of a transcript of Codex, and what is remembered over several of them."""

import re
from collections import deque
from typing import Any, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, TextPart, Tokens, is_opaque
from foldmark.model.values import Frozen, Json
from foldmark.transcripts.format import decoder
from foldmark.wire.model import Read
from foldmark.wire.openai_responses import usage_tokens

# What the program says in the user's place begins so.
_BY_PROGRAM = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|turn_aborted"
    r"|user_shell_command|subagent_notification|subagents|skill|plugins|hook_prompt|goal_context"
    r"|codex_internal_context|model_switch|personality_spec)\b)",
    re.IGNORECASE,
)
_SEALED = "[A summary that only its provider can read.]"
_MOST_REMEMBERED = 80_000  # characters of prompts; as much as old versions keep when they compact


class _Line(Struct, gc=False, kw_only=True, tag_field="type"):
    timestamp: Any = UNSET


class Meta(_Line, kw_only=True, tag="session_meta"):
    """The session."""

    payload: Json


class Item(_Line, kw_only=True, tag="response_item"):
    """What the model was told, or said."""

    payload: Json


class Compacted(_Line, kw_only=True, tag="compacted"):
    """A compaction."""

    payload: Json


class Turn(_Line, kw_only=True, tag="turn_context"):
    """What holds from now on."""

    payload: Json


class Told(Struct, gc=False):
    """What matters of an event; its copies for the screen do not."""

    type: Any = UNSET
    info: Any = UNSET
    num_turns: Any = UNSET
    thread_name: Any = UNSET


class Event(_Line, kw_only=True, tag="event_msg"):
    """An event."""

    payload: Told


class Other(Struct, gc=False):
    """A line of another kind, which the model is not told of."""

    type: str


Line = Meta | Item | Compacted | Turn | Event | Other
KINDS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
_known = decoder(cast("type[Line]", Meta | Item | Compacted | Turn | Event))
_other = decoder(Other)


def decode_line(data: bytes) -> Line:
    """A line; BadInput where one of a kind that we know is not as it must be."""
    try:
        return _known(data)
    except BadInput:
        line = _other(data)
        if line.type in KINDS:
            raise
        return line


# --- what is said --------------------------------------------------------------------------


def text_of(value: object) -> str:
    """A text; nothing where it is none."""
    return value if isinstance(value, str) else ""


def told_apart(read: Read) -> tuple[AnyPart, ...]:
    """The parts of a message, those that the program wrote marked as such."""
    return tuple(
        _by_program(part) if _is_by_program(part, read.role) else part for part in read.parts
    )


def all_by_program(parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    """The same parts where the program repeats them: they ask for nothing new."""
    return tuple(_by_program(part) for part in parts)


def words_of(parts: tuple[AnyPart, ...]) -> str:
    """What the user says."""
    texts = (part for part in parts if isinstance(part, TextPart))
    return "\n\n".join(part.text for part in texts if not part.synthetic)


def summary_parts(text: str, sealed: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    """What a compaction leaves: a text, or what only the provider can read."""
    if text.strip() or not sealed:
        return (TextPart(text=text), *sealed)
    first = sealed[0]
    if isinstance(first, TextPart):
        first = replace(first, text=_SEALED, synthetic=True)
    return (first, *sealed[1:])


def _is_by_program(part: AnyPart, role: str) -> bool:
    if role != "user" or is_opaque(part):
        return True
    return isinstance(part, TextPart) and _BY_PROGRAM.match(part.text) is not None


def _by_program(part: AnyPart) -> AnyPart:
    return replace(part, synthetic=True) if isinstance(part, TextPart) else part


# --- what is remembered --------------------------------------------------------------------


class Prompt(Frozen):
    """What the user asked for, and the message before it."""

    before: str | None
    text: str


class Prompts:
    """The newest prompts."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: deque[Prompt] = deque()
        self._size = 0

    def add(self, prompt: Prompt) -> None:
        """One more."""
        self._held.append(prompt)
        self._size += len(prompt.text)
        while self._size > _MOST_REMEMBERED and len(self._held) > 1:
            self._size -= len(self._held.popleft().text)

    def taken_back(self, turns: int) -> Prompt | None:
        """The first of so many that are no longer there."""
        found: Prompt | None = None
        for _ in range(min(turns, len(self._held))):
            found = self._held.pop()
            self._size -= len(found.text)
        return found

    def cleared(self) -> tuple[Prompt, ...]:
        """All, which are forgotten."""
        held = tuple(self._held)
        self._held.clear()
        self._size = 0
        return held


class Usage:
    """What steps took: told after the items of a step, or before them in old versions."""

    def __init__(self) -> None:
        """Nothing is told yet."""
        self._total: object = None
        self._next: Tokens | None = None
        self._waits = False  # whether there is an answer of which nothing is told

    def begun(self) -> Tokens | None:
        """What was told of the answer that begins."""
        found, self._next = self._next, None
        self._waits = found is None
        return found

    def forget(self) -> None:
        """Something else comes: what is told belongs to nothing before it."""
        self._next = None
        self._waits = False

    def ended(self, info: object) -> Tokens | None:
        """What the newest answer took."""
        told = cast("Json", info) if isinstance(info, dict) else {}
        total, usage = told.get("total_token_usage"), told.get("last_token_usage")
        if total == self._total or not isinstance(usage, dict):
            return None  # the same is told again
        self._total = total
        tokens = _tokens(cast("Json", usage))
        if self._waits:
            self._waits = False
            return tokens
        self._next = tokens
        return None


def _tokens(usage: Json) -> Tokens | None:
    details = {"cached_tokens": usage.get("cached_input_tokens")}
    made = {"reasoning_tokens": usage.get("reasoning_output_tokens")}
    return usage_tokens({**usage, "input_tokens_details": details, "output_tokens_details": made})
