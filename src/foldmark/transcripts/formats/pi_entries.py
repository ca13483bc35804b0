"""What an entry of a transcript of pi says: a message, a result, the summary of a compaction."""

from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    Cache,
    FilePart,
    Message,
    Pending,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Frozen, Json
from foldmark.transcripts.build import assistant_message, moment, note, user_message, with_info
from foldmark.wire.files import data_url
from foldmark.wire.model import Answer, as_number, object_at, objects, opaque, text_at

NAME = "pi"
_FINISH = {"stop": "stop", "toolUse": "tool-calls", "length": "length"}
_ERRORS = {"aborted": "MessageAbortedError", "error": "APIError"}


class Usage(Struct, gc=False, rename="camel"):
    """What was measured."""

    input: Any = 0
    output: Any = 0
    cache_read: Any = 0
    cache_write: Any = 0
    cost: Any = UNSET


class Said(Struct, gc=False, rename="camel"):
    """A message; what a tool tells the screen beside its result is passed over."""

    role: str
    content: Any = UNSET
    timestamp: Any = UNSET
    api: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: Usage | UnsetType | None = UNSET
    stop_reason: str | UnsetType | None = UNSET
    error_message: str | UnsetType | None = UNSET
    tool_call_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    command: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    exit_code: Any = UNSET
    cancelled: bool | UnsetType = UNSET
    full_output_path: str | UnsetType | None = UNSET
    exclude_from_context: bool | UnsetType = UNSET


class Line(Struct, gc=False, rename="camel"):
    """An entry, or what is told of the session; extensions may write entries of their own."""

    type: str
    id: str | UnsetType = UNSET
    parent_id: str | UnsetType | None = UNSET
    timestamp: Any = UNSET
    message: Said | UnsetType = UNSET
    content: Any = UNSET
    summary: Any = UNSET
    first_kept_entry_index: Any = UNSET
    first_kept_entry_id: Any = UNSET
    tokens_before: Any = UNSET
    details: Any = UNSET
    from_hook: Any = UNSET
    cwd: Any = UNSET
    name: Any = UNSET
    provider: Any = UNSET
    model_id: Any = UNSET
    thinking_level: Any = UNSET


class Chosen(Frozen):
    """The model that the user chose, and how much it shall think."""

    model: tuple[str, str] = ("", "")
    level: str = ""


class Summary(Frozen):
    """A compaction."""

    text: str
    first_kept: str  # an entry, by its name or its place in the file
    told: Json


def chosen_after(chosen: Chosen, record: Line) -> Chosen:
    """What is chosen once an entry is told."""
    if isinstance(record.provider, str) and isinstance(record.model_id, str):
        chosen = replace(chosen, model=(record.provider, record.model_id))
    if isinstance(record.thinking_level, str):
        chosen = replace(chosen, level=record.thinking_level)
    return chosen


def read_entry(record: Line, name: str, chosen: Chosen) -> Message | Answer | Summary | None:
    """What an entry says; None where the model sees nothing of it."""
    match record.type:
        case "message":
            if record.message is UNSET:
                raise BadInput("the field 'message' is missing")
            return _said(record, record.message, name, chosen)
        case "custom_message":
            return user_message(name, _by_program(record.content), time_of(record))
        case "compaction":
            return _compaction(record)
        case "branch_summary":
            left = f"What was done on a branch that was left:\n\n{_summary(record)}"
            return user_message(name, (note(left),), time_of(record))
        case _:
            return None


def time_of(record: Line) -> int | None:
    """When an entry was made."""
    told = record.message.timestamp if record.message else UNSET
    return moment(told) or moment(record.timestamp)


def _compaction(record: Line) -> Summary:
    first = record.first_kept_entry_id
    told: Json = {
        "tokensBefore": record.tokens_before,
        "fromHook": record.from_hook,
        "details": record.details,
    }
    return Summary(
        text=_summary(record),
        first_kept=str(record.first_kept_entry_index if first is UNSET else first),
        told={name: held for name, held in told.items() if held is not UNSET},
    )


def _summary(record: Line) -> str:
    if not isinstance(record.summary, str):
        raise BadInput("'summary' is missing, or no text")
    return record.summary


# --- messages ------------------------------------------------------------------------------


def _said(record: Line, said: Said, name: str, chosen: Chosen) -> Message | Answer | None:
    match said.role:
        case "user":
            return user_message(name, _parts(said.content, said), time_of(record))
        case "assistant":
            return _answered(record, said, name, chosen)
        case "toolResult":
            return _result(said)
        case "bashExecution":
            return user_message(name, (_ran(said),), time_of(record))
        case "custom" | "hookMessage":
            return user_message(name, _by_program(said.content), time_of(record))
        case _:
            return None  # an extension's, for the screen: the model never sees it


def _answered(record: Line, said: Said, name: str, chosen: Chosen) -> Message:
    stop = said.stop_reason or ""
    usage = said.usage or Usage()
    message = assistant_message(
        name,
        _parts(said.content, said),
        time_of(record),
        model=(said.provider or chosen.model[0], said.model or chosen.model[1]),
        tokens=_tokens(usage),
        finish=_FINISH.get(stop, "other") if stop else "",
    )
    more: Json = {"cost": _cost(usage), "variant": chosen.level or UNSET}
    if stop in _ERRORS:
        data = {"message": said.error_message or ""}
        more |= {"finish": UNSET, "error": {"name": _ERRORS[stop], "data": data}}
    return with_info(message, **more)


def _result(said: Said) -> Answer:
    if said.tool_call_id is UNSET:
        raise BadInput("the field 'toolCallId' is missing")
    parts = _parts(said.content, said)
    return Answer(
        call_id=said.tool_call_id,
        tool=said.tool_name or "",
        output="\n".join(part.text for part in parts if isinstance(part, TextPart)),
        files=tuple(part for part in parts if isinstance(part, FilePart)),
        is_error=said.is_error is True,
        raw={"toolCallId": said.tool_call_id, "toolName": said.tool_name or ""},
    )


def _ran(said: Said) -> TextPart:
    """What the user ran, and what came of it."""
    text = f"Ran `{said.command or ''}`\n"
    text += f"```\n{said.output}\n```" if said.output else "(no output)"
    if said.cancelled:
        text += "\n(cancelled)"
    elif said.exit_code:
        text += f"\n(exit code {said.exit_code})"
    if said.full_output_path:
        text += f"\n(cut short; all of it is in {said.full_output_path})"
    return replace(note(text), ignored=True if said.exclude_from_context else UNSET)


def _tokens(usage: Usage) -> Tokens | None:
    given, made = as_number(usage.input), as_number(usage.output)
    read, write = as_number(usage.cache_read), as_number(usage.cache_write)
    total = given + made + read + write
    if not total:
        return None  # it was broken off before anything was measured
    cache = Cache(read=read, write=write)
    return Tokens(input=given, output=made, reasoning=0, total=total, cache=cache)


def _cost(usage: Usage) -> float | UnsetType:
    told = cast("Json", usage.cost).get("total") if isinstance(usage.cost, dict) else None
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    return cast("float", told) if is_number else UNSET


# --- content -------------------------------------------------------------------------------


def _parts(content: object, said: Said) -> tuple[AnyPart, ...]:
    if isinstance(content, str):
        return (TextPart(text=content),)
    return tuple(_block(block, said) for block in objects(content, "'content'"))


def _by_program(content: object) -> tuple[AnyPart, ...]:
    parts = _parts(content, Said(role="custom"))
    return tuple(
        replace(part, synthetic=True) if isinstance(part, TextPart) else part for part in parts
    )


def _block(block: Json, said: Said) -> AnyPart:
    match block.get("type"):
        case "text":
            metadata = _signed(said, block, "textSignature")
            return TextPart(text=text_at(block, "text"), metadata=metadata)
        case "thinking":
            field = "redactedData" if block.get("redacted") is True else "signature"
            metadata = _signed(said, block, "thinkingSignature", field)
            return ReasoningPart(text=text_at(block, "thinking"), metadata=metadata)
        case "image":
            mime = text_at(block, "mimeType")
            return FilePart(mime=mime, url=data_url(mime, text_at(block, "data")))
        case "toolCall" if said.role == "assistant":
            partial = block.get("partialJson")
            raw = partial if isinstance(partial, str) else UNSET
            return ToolPart(
                tool=text_at(block, "name"),
                call_id=text_at(block, "id"),
                state=Pending(input=object_at(block, "arguments"), raw=raw),
                metadata=_signed(said, block, "thoughtSignature"),
            )
        case str():
            return opaque(NAME, block)
        case _:
            raise BadInput("a block of content has no type")


def _signed(said: Said, block: Json, name: str, field: str = "signature") -> Json | UnsetType:
    """What goes back to its provider only, named as that provider's codec names it."""
    signature = block.get(name)
    if not signature or not isinstance(signature, str):
        return UNSET
    api = said.api or ""
    if api == "anthropic-messages" or said.provider == "anthropic":
        return {"anthropic": {field: signature}}
    if api.startswith("google"):
        return {"google": {"thoughtSignature": signature}}
    return {said.provider or NAME: {"signature": signature}}
