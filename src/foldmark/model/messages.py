"""What a session is made of: messages and their parts, in OpenCode's own JSON shape.

Values only: who made them, where they are kept and what a model is shown of them is told
elsewhere. Times are milliseconds since 1970. A field that was absent is UNSET, which is falsy.
"""

from collections.abc import Iterable
from typing import Any, TypeGuard

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput

from .values import Json, Other, Value, decoder, encode

Number = int | float
# Under the name of its wire in a text's metadata: a block that we keep as it came.
BLOCK = "block"
# In the metadata of an output: the tokens of it that are shown at most.
SHOWN_TOKENS = "shown"


class Cache(Value):
    """Tokens read from and written to the provider's cache."""

    read: Number | UnsetType = UNSET
    write: Number | UnsetType = UNSET


class Tokens(Value):
    """What a provider measured for one step."""

    input: Number | UnsetType = UNSET
    output: Number | UnsetType = UNSET
    reasoning: Number | UnsetType = UNSET
    total: Number | UnsetType = UNSET
    cache: Cache | UnsetType = UNSET


class Time(Value):
    """When a thing began and ended; `compacted` is when a tool's output was pruned."""

    created: Number | UnsetType = UNSET
    completed: Number | UnsetType = UNSET
    updated: Number | UnsetType = UNSET
    start: Number | UnsetType = UNSET
    end: Number | UnsetType = UNSET
    compacted: Number | UnsetType = UNSET


class Path(Value):
    """Where an assistant worked."""

    cwd: str | UnsetType = UNSET
    root: str | UnsetType = UNSET


class ModelRef(Value):
    """A model by the name of its provider and its own."""

    provider_id: str
    model_id: str


# --- parts ---------------------------------------------------------------------------------


class Part(Value, tag_field="type"):
    """A piece of a message."""

    id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET


class TextPart(Part, tag="text"):
    """Words of the user or the model; `synthetic` ones were written by the program."""

    text: str
    synthetic: bool | UnsetType = UNSET
    ignored: bool | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET


class ReasoningPart(Part, tag="reasoning"):
    """The model's thinking; its opaque form for the provider is in `metadata`."""

    text: str
    time: Time | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET


class FilePart(Part, tag="file"):
    """An attached file, inline as a data URL or by its address."""

    mime: str
    url: str
    filename: str | UnsetType = UNSET
    source: Json | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET


class State(Value, tag_field="status"):
    """How far a tool call has come."""

    input: Json | UnsetType = UNSET
    title: str | UnsetType = UNSET
    metadata: Json | UnsetType = UNSET
    time: Time | UnsetType = UNSET


class Pending(State, tag="pending"):
    """Called, not yet begun; `raw` is the input as far as it has been streamed."""

    raw: str | UnsetType = UNSET


class Running(State, tag="running"):
    """Begun, not yet ended."""


class Completed(State, tag="completed"):
    """Ended with an output."""

    output: str
    attachments: tuple[FilePart, ...] | UnsetType = UNSET


class Failed(State, tag="error"):
    """Ended with an error."""

    error: str


class ToolPart(Part, tag="tool"):
    """A call of a tool, with its result once there is one."""

    tool: str
    call_id: str | UnsetType = UNSET
    state: Pending | Running | Completed | Failed
    metadata: Json | UnsetType = UNSET


class StepStartPart(Part, tag="step-start"):
    """A request to the model begins."""

    snapshot: str | UnsetType = UNSET


class StepFinishPart(Part, tag="step-finish"):
    """A request to the model has ended, with what it cost."""

    reason: str | UnsetType = UNSET
    snapshot: str | UnsetType = UNSET
    cost: Number | UnsetType = UNSET
    tokens: Tokens | UnsetType = UNSET


class CompactionPart(Part, tag="compaction"):
    """Makes its user message a marker: a queued compaction."""

    auto: bool | UnsetType = UNSET
    overflow: bool | UnsetType = UNSET
    tail_start_id: str | UnsetType = UNSET
    words: int | UnsetType = UNSET  # tokens that the user's words have in a view that was asked for
    undone: Number | UnsetType = UNSET  # when its pivot was taken back


class PatchPart(Part, tag="patch"):
    """Files that a step changed."""

    hash: str | UnsetType = UNSET
    files: tuple[str, ...] | UnsetType = UNSET


class SubtaskPart(Part, tag="subtask"):
    """A task that the user hands to another agent."""

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
    """Whether a part holds what only its own provider can read, as its wire wrote it."""
    if not isinstance(part, TextPart) or not part.metadata:
        return False
    return any(isinstance(held, dict) and BLOCK in held for held in part.metadata.values())


def is_error_output(state: Completed) -> bool:
    """Whether an output was told as an error by its wire."""
    return bool(state.metadata) and state.metadata.get("is_error") is True


def output_tokens(state: Completed, tokens: int, longest: int = 0) -> int:
    """How many tokens of an output are shown: all, what the window allows, what its tool wished."""
    wished = state.metadata.get(SHOWN_TOKENS) if state.metadata else None
    limit = wished if isinstance(wished, int) and wished > 0 else tokens
    return min(tokens, limit, longest if longest > 0 else tokens)


def finish_of(parts: Iterable[AnyPart]) -> str:
    """How a step ended, where nobody tells: its calls do."""
    return "tool-calls" if any(isinstance(part, ToolPart) for part in parts) else "stop"


def has_result(part: AnyPart) -> bool:
    """Whether a part is a call of a tool that has come to its end."""
    return isinstance(part, ToolPart) and isinstance(part.state, Completed | Failed)


def kind_of(part: AnyPart) -> str:
    """The kind of a part by its name in JSON; `other` where we do not know it."""
    return "other" if isinstance(part, Other) else str(part.__struct_config__.tag)


# --- messages ------------------------------------------------------------------------------


class Info(Value, tag_field="role"):
    """What is said of a message beside its parts; `wire`: what its wire said that we do not."""

    id: str
    session_id: str | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    variant: str | UnsetType = UNSET
    wire: Json | UnsetType = UNSET


class UserInfo(Info, tag="user"):
    """A message of the user, or one that the program wrote in their place."""

    model: ModelRef | UnsetType = UNSET
    system: str | UnsetType = UNSET
    tools: Json | UnsetType = UNSET
    summary: Any = UNSET
    format: Any = UNSET


class AssistantInfo(Info, tag="assistant"):
    """An answer of the model; `summary` marks the one that stands for what a pivot folded."""

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
    """One entry of the log: what is said of it, and its parts in order."""

    info: UserInfo | AssistantInfo
    parts: tuple[AnyPart, ...]

    @property
    def id(self) -> str:
        """The message's id."""
        return self.info.id

    @property
    def is_user(self) -> bool:
        """Whether it stands on the user's side."""
        return isinstance(self.info, UserInfo)


class Origin(Value):
    """Where an imported session comes from, and what stood before its messages in each request."""

    format: str | UnsetType = UNSET
    system: str | UnsetType = UNSET
    tools: Any = UNSET
    wire: Json | UnsetType = UNSET  # the system prompt as its wire wrote it


class Revert(Value):
    """The user went back: this message and all after it are hidden, until more is said."""

    message_id: str
    part_id: str | UnsetType = UNSET
    snapshot: str | UnsetType = UNSET
    diff: str | UnsetType = UNSET


class SessionInfo(Value):
    """What is said of a session beside its messages."""

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
    # Earlier reverts, after which more was said: the first message that each hides, and the next.
    reverted: tuple[tuple[int, int], ...] | UnsetType = UNSET


class Transcript(Value):
    """A whole session, as `opencode export` writes it."""

    info: SessionInfo
    messages: tuple[Message, ...]


# These raise BadInput where the JSON is none: the session of an `opencode export`, one message.
decode_transcript = decoder(Transcript)
decode_message = decoder(Message)


def checked_json(message: Message) -> bytes:
    """The JSON of a message, if it can be read again: what is stored must be."""
    try:
        data = encode(message)
        decode_message(data)
    except BadInput as error:
        at = f" at {error.location.lstrip('$.')}" if error.location else ""
        raise BadInput(f"this is no message{at}: {error.cause}") from None
    except TypeError as error:
        raise BadInput(f"this is no message: {error}") from None
    return data


def file_placeholder(part: FilePart) -> str:
    """What stands for a file that is named and not shown."""
    return f"[Attached {part.mime}: {part.filename or 'file'}]"


def with_part(message: Message, offset: int, part: AnyPart) -> Message:
    """A message with another part in the place of one."""
    return replace(message, parts=(*message.parts[:offset], part, *message.parts[offset + 1 :]))
