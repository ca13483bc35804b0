"""The messages of a session and their parts, in OpenCode's own JSON shape.

Plain values: this module does not know how they are made, stored or shown to a model. Times are
milliseconds since 1970. An absent field is UNSET, which is falsy.
"""

from collections.abc import Iterable
from typing import Any, TypeGuard

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput

from .values import Json, Other, Value, decoder, encode

Number = int | float
# Key in a text part's metadata, under the name of its wire format: the unchanged original block.
BLOCK = "block"
# Key in an output's metadata: the most tokens of it that the view shows.
SHOWN_TOKENS = "shown"


class Cache(Value):
    """Tokens that were read from and written to the provider's cache."""

    read: Number | UnsetType = UNSET
    write: Number | UnsetType = UNSET


class Tokens(Value):
    """Token usage of one step, as measured by the provider."""

    input: Number | UnsetType = UNSET
    output: Number | UnsetType = UNSET
    reasoning: Number | UnsetType = UNSET
    total: Number | UnsetType = UNSET
    cache: Cache | UnsetType = UNSET


class Time(Value):
    """Start and end times; `compacted` is the time when a tool's output was pruned."""

    created: Number | UnsetType = UNSET
    completed: Number | UnsetType = UNSET
    updated: Number | UnsetType = UNSET
    start: Number | UnsetType = UNSET
    end: Number | UnsetType = UNSET
    compacted: Number | UnsetType = UNSET


class Path(Value):
    """The folders in which an assistant worked."""

    cwd: str | UnsetType = UNSET
    root: str | UnsetType = UNSET


class ModelRef(Value):
    """A model, identified by its provider and its own name."""

    provider_id: str
    model_id: str


# --- parts ---------------------------------------------------------------------------------


class Part(Value, tag_field="type"):
    """A piece of a message."""

    id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET


class TextPart(Part, tag="text"):
    """Text of the user or the model; `synthetic` text was written by the program."""

    text: str
    synthetic: bool | UnsetType = UNSET
    ignored: bool | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET


class ReasoningPart(Part, tag="reasoning"):
    """The model's reasoning; the provider's opaque form of it is in `metadata`."""

    text: str
    time: Time | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET


class FilePart(Part, tag="file"):
    """An attached file, inline as a data URL or as a remote URL."""

    mime: str
    url: str
    filename: str | UnsetType = UNSET
    source: Json | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET


class State(Value, tag_field="status"):
    """The state of a tool call."""

    input: Json | UnsetType = UNSET
    title: str | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET
    time: Time | UnsetType = UNSET


class Pending(State, tag="pending"):
    """Requested but not started; `raw` is the part of the input that was streamed so far."""

    raw: str | UnsetType = UNSET


class Running(State, tag="running"):
    """Started but not finished."""


class Completed(State, tag="completed"):
    """Finished with an output."""

    output: str
    attachments: tuple[FilePart, ...] | UnsetType = UNSET


class Failed(State, tag="error"):
    """Finished with an error."""

    error: str


class ToolPart(Part, tag="tool"):
    """A tool call, with its result once it has one."""

    tool: str
    call_id: str | UnsetType = UNSET
    state: Pending | Running | Completed | Failed
    metadata: Json | UnsetType = UNSET


class StepStartPart(Part, tag="step-start"):
    """The start of a request to the model."""

    snapshot: str | UnsetType = UNSET


class StepFinishPart(Part, tag="step-finish"):
    """The end of a request to the model, with its usage and cost."""

    reason: str | UnsetType = UNSET
    snapshot: str | UnsetType = UNSET
    cost: Number | UnsetType = UNSET
    tokens: Tokens | UnsetType = UNSET


class CompactionPart(Part, tag="compaction"):
    """Makes its user message a marker, which queues a compaction."""

    auto: bool | UnsetType = UNSET
    overflow: bool | UnsetType = UNSET
    tail_start_id: str | UnsetType = UNSET
    words: int | UnsetType = UNSET  # tokens for the user's text, if a view size was requested
    undone: Number | UnsetType = UNSET  # when its pivot was undone


class PatchPart(Part, tag="patch"):
    """The files that a step changed."""

    hash: str | UnsetType = UNSET
    files: tuple[str, ...] | UnsetType = UNSET


class SubtaskPart(Part, tag="subtask"):
    """A task that the user delegates to another agent."""

    prompt: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    model: ModelRef | UnsetType = UNSET
    command: str | UnsetType = UNSET


class RetryPart(Part, tag="retry"):
    """A request that failed and was sent again."""

    attempt: Number | UnsetType = UNSET
    error: Any = UNSET
    time: Time | UnsetType = UNSET


AnyPart = (
    TextPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | CompactionPart
    | PatchPart
    | SubtaskPart
    | RetryPart
    | Other
)


def is_opaque(part: AnyPart) -> TypeGuard[TextPart]:
    """Whether a part carries a block that only its own provider can read."""
    if not isinstance(part, TextPart) or not part.metadata:
        return False
    return any(isinstance(value, dict) and BLOCK in value for value in part.metadata.values())


def is_error_output(state: Completed) -> bool:
    """Whether the API reported this output as an error."""
    return bool(state.metadata) and state.metadata.get("is_error") is True


def output_tokens(state: Completed, tokens: int, longest: int = 0) -> int:
    """The tokens of an output that are shown: all, or the limit of its tool or of the window."""
    requested = state.metadata.get(SHOWN_TOKENS) if state.metadata else None
    limit = requested if isinstance(requested, int) and requested > 0 else tokens
    return min(tokens, limit, longest if longest > 0 else tokens)


def finish_of(parts: Iterable[AnyPart]) -> str:
    """The finish reason of a step whose source does not state one."""
    return "tool-calls" if any(isinstance(part, ToolPart) for part in parts) else "stop"


def has_result(part: AnyPart) -> bool:
    """Whether a part is a finished tool call."""
    return isinstance(part, ToolPart) and isinstance(part.state, Completed | Failed)


def kind_of(part: AnyPart) -> str:
    """The JSON type of a part, or `other` if it is unknown."""
    return "other" if isinstance(part, Other) else str(part.__struct_config__.tag)


# --- messages ------------------------------------------------------------------------------


class Info(Value, tag_field="role"):
    """The fields of a message beside its parts; `wire` has API fields that we do not model."""

    id: str
    session_id: str | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    variant: str | UnsetType = UNSET
    wire: Json | UnsetType = UNSET


class UserInfo(Info, tag="user"):
    """A message of the user, or one that the program wrote on the user's behalf."""

    model: ModelRef | UnsetType = UNSET
    system: str | UnsetType = UNSET
    tools: Json | UnsetType = UNSET
    summary: Any = UNSET
    format: Any = UNSET


class AssistantInfo(Info, tag="assistant"):
    """A reply of the model; with `summary`, it replaces the messages that a pivot folded."""

    parent_id: str | UnsetType = UNSET
    provider_id: str | UnsetType = UNSET
    model_id: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    path: Path | UnsetType = UNSET
    cost: Number | UnsetType = UNSET
    tokens: Tokens | UnsetType = UNSET
    finish: str | UnsetType = UNSET
    error: Any = UNSET
    summary: bool | UnsetType = UNSET


class Message(Value):
    """One entry of the log: its info, and its parts in order."""

    info: UserInfo | AssistantInfo
    parts: tuple[AnyPart, ...]

    @property
    def id(self) -> str:
        """The message's id."""
        return self.info.id

    @property
    def is_user(self) -> bool:
        """Whether this is a user message."""
        return isinstance(self.info, UserInfo)


class Origin(Value):
    """The source of an imported session, with the system prompt and tools of its requests."""

    format: str | UnsetType = UNSET
    system: str | UnsetType = UNSET
    tools: Any = UNSET
    wire: Json | UnsetType = UNSET  # the system prompt in its API format


class Revert(Value):
    """The user went back: this and later messages are hidden until a new message is written."""

    message_id: str
    part_id: str | UnsetType = UNSET
    snapshot: str | UnsetType = UNSET
    diff: str | UnsetType = UNSET


class SessionInfo(Value):
    """The fields of a session beside its messages."""

    id: str
    slug: str | UnsetType = UNSET
    project_id: str | UnsetType = UNSET
    parent_id: str | UnsetType = UNSET
    directory: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    summary: Json | UnsetType = UNSET
    permission: Any = UNSET
    time: Time | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET
    revert: Revert | UnsetType = UNSET
    # Earlier reverts: the index of the first message that each hides, and of the next visible one.
    reverted: tuple[tuple[int, int], ...] | UnsetType = UNSET


class Transcript(Value):
    """A whole session, in the format of `opencode export`."""

    info: SessionInfo
    messages: tuple[Message, ...]


# Decode an `opencode export`, and a single message; both raise BadInput for invalid JSON.
decode_transcript = decoder(Transcript)
decode_message = decoder(Message)


def checked_json(message: Message) -> bytes:
    """The JSON of a message; raises BadInput if it could not be read again from a store."""
    try:
        data = encode(message)
        decode_message(data)
    except BadInput as error:
        at = f" at {error.location.lstrip('$.')}" if error.location else ""
        raise BadInput(f"this is not a valid message{at}: {error.cause}") from None
    except TypeError as error:
        raise BadInput(f"this is not a valid message: {error}") from None
    return data


def file_placeholder(part: FilePart) -> str:
    """The text that stands for a file whose content is not shown."""
    return f"[Attached {part.mime}: {part.filename or 'file'}]"


def with_part(message: Message, offset: int, part: AnyPart) -> Message:
    """The message with the part at this offset replaced."""
    return replace(message, parts=(*message.parts[:offset], part, *message.parts[offset + 1 :]))
