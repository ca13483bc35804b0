"""Read the items of OpenAI's Responses API.

Stored under `openai` in a part's metadata: `item`, the fields of the item that starts with the
part; `rest`, those of a block inside a message; `kind`, an unusual type; `block`, a whole item that
only this codec can write, or with `inside` a whole block of a message.
"""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    BLOCK,
    AnyPart,
    FilePart,
    Pending,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.model.prompt_messages import Media, Result
from foldmark.model.values import Json

from .codec import (
    ARGUMENTS,
    ReadMessage,
    ReadResult,
    arguments_input,
    codec_metadata,
    compact_json,
    json_type,
    objects,
    opaque_part,
    read_output,
    read_unknown_role,
    subobject,
    text_at,
    url_parts,
    without,
)
from .exactness import difference_note, with_difference

KEY = "openai"
ITEM, REST, KIND, INSIDE, ROLE = "item", "rest", "kind", "inside", "role"
FIELD = "field"  # the field of an item that contains the input of a call

CUSTOM = "custom_tool_call"
PROMPT_ROLES = ("system", "developer")
ROLES = ("user", "assistant", *PROMPT_ROLES)
TEXT_BLOCKS = frozenset(
    {"input_text", "output_text", "refusal", "text", "summary_text", "reasoning_text"}
)
_FILE_BLOCKS = frozenset({"input_image", "input_file", "computer_screenshot"})
# Items that come from the program, not from the model.
_FROM_PROGRAM = frozenset(
    {"additional_tools", "mcp_approval_response", "compaction_trigger", "configuration_update"}
)
# Input fields of calls that are neither a function's nor a custom tool's.
_INPUTS = ("arguments", "action", "operation", "input")


def read_item(item: Json) -> ReadMessage:
    """Read one item. Raises BadInput if it is malformed."""
    kind = item_type(item)
    if kind == "message":
        return _read_message(item)
    if kind in _FROM_PROGRAM:
        return ReadMessage(role="user", parts=(opaque_part(KEY, item),))
    if is_result(item):
        return ReadMessage(role="user", results=(read_result(item),))
    part: AnyPart
    if kind == "reasoning":
        part = _read_reasoning(item)
    elif kind in ("function_call", CUSTOM):
        part = _read_call(item, kind)
    elif kind.endswith("_call") and isinstance(item.get("call_id"), str):
        part = _read_other_call(item, kind)
    else:
        part = opaque_item(item)
    return ReadMessage(role="assistant", parts=(part,), joins=True)


def opaque_item(item: Json) -> TextPart:
    """A text part for an assistant item that only this codec can write."""
    output = item.get("output")
    return opaque_part(KEY, item, output if isinstance(output, str) else "")


def item_type(item: Json) -> str:
    """The type of an item, stated or implied. Raises BadInput if there is none."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    if kind is not None:
        raise BadInput(f"'type' is {json_type(kind)}, not a string")
    if "role" in item:
        return "message"
    if set(item) <= {"id", "type"} and isinstance(item.get("id"), str):
        return "item_reference"
    raise BadInput("an item has neither a type nor a role")


def is_result(item: Json) -> bool:
    """Whether an item is a tool result with the id of its call."""
    kind = item.get("type")
    if not isinstance(kind, str) or not isinstance(item.get("call_id"), str):
        return False
    return kind.endswith("_call_output") or kind == "tool_search_output"


# --- messages ------------------------------------------------------------------------------


def _read_message(item: Json) -> ReadMessage:
    role, content = text_at(item, "role"), item.get("content")
    if role not in ROLES:
        return read_unknown_role(KEY, item)
    is_assistant = role == "assistant"
    text_type = "output_text" if is_assistant else "input_text"
    if isinstance(content, str):
        blocks: list[Json] = [{"type": text_type, "text": content}]
    else:
        blocks = objects(content, "'content'")
    parts = tuple(_read_block(block, text_type) for block in blocks)
    fields = without(item, "type", "role", "content")
    canonical = {"type": "message", "role": role, "content": blocks, **fields}
    notes: Json = {ITEM: fields, **difference_note(canonical, item)}
    if is_assistant:
        first = _with_notes(parts[0], notes) if parts else opaque_item(item)
        return ReadMessage(role="assistant", parts=(first, *parts[1:]), joins=True)
    if not notes[ITEM]:
        del notes[ITEM]
    if role == "user":
        return ReadMessage(role="user", parts=parts, rest=notes)
    # Each part has the role too, since a view may merge several messages.
    system_parts = tuple(_with_notes(part, {ROLE: role}) for part in parts)
    return ReadMessage(role="system", parts=system_parts, rest={ROLE: role, **notes})


def _read_block(block: Json, text_type: str) -> TextPart | FilePart:
    """Read one block of a message; `text_type` is the usual type of text for its role."""
    kind = block.get("type")
    if isinstance(kind, str) and kind in TEXT_BLOCKS:
        name = "refusal" if kind == "refusal" else "text"
        notes = _block_notes(without(block, "type", name), kind if kind != text_type else "")
        return TextPart(text=text_at(block, name), metadata=codec_metadata(KEY, notes))
    file = read_file(block)
    return file or TextPart(text="", metadata={KEY: {BLOCK: block, INSIDE: True}})


def read_file(block: Json) -> FilePart | None:
    """Read a file that is inline or has a URL; None if the provider stores it."""
    match block:
        case {"type": "input_image" | "computer_screenshot" as kind, "image_url": str(url)} if (
            block.get("file_id") is None
        ):
            notes = _block_notes(without(block, "type", "image_url"))
            mime = url_parts(url)[0] or "image/*"
        case {"type": "input_file" as kind, "file_data": str(url)} if url_parts(url)[
            1
        ] is not None and not {"file_url", "file_id"} & set(block):
            notes = _block_notes(without(block, "type", "file_data", "filename"))
            mime = url_parts(url)[0] or "application/octet-stream"
        case {"type": "input_file" as kind, "file_url": str(url)} if url_parts(url)[
            1
        ] is None and not {"file_data", "file_id"} & set(block):
            notes = _block_notes(without(block, "type", "file_url", "filename"))
            mime = "application/pdf"
        case _:
            return None
    if kind != _file_block_type(mime):
        notes[KIND] = kind
    name = block.get("filename") if kind == "input_file" else None
    if name is not None and not isinstance(name, str):
        return None
    return FilePart(mime=mime, url=url, filename=name or UNSET, metadata=codec_metadata(KEY, notes))


def file_block(file: Media) -> Json:
    """The block for a file."""
    notes = subobject(file.provider_options, KEY)
    mime, data = url_parts(file.data)
    kind = notes.get(KIND) or _file_block_type(mime or file.media_type)
    if kind != "input_file":
        return {"type": kind, "image_url": file.data, **subobject(notes, REST)}
    field = "file_url" if data is None else "file_data"
    name_field = {"filename": file.filename} if file.filename else {}
    return {"type": kind, field: file.data, **name_field, **subobject(notes, REST)}


def _file_block_type(mime: str) -> str:
    """The type of block for a file."""
    return "input_image" if mime.startswith("image/") else "input_file"


def _block_notes(rest: Json, kind: str = "") -> Json:
    return {**({REST: rest} if rest else {}), **({KIND: kind} if kind else {})}


def _with_notes(part: TextPart | FilePart, more: Json) -> TextPart | FilePart:
    metadata = part.metadata or {}
    return replace(part, metadata={**metadata, KEY: {**metadata.get(KEY, {}), **more}})


# --- reasoning -----------------------------------------------------------------------------


def _read_reasoning(item: Json) -> ReasoningPart:
    summary = objects(item.get("summary") or [], "'summary'")
    notes: Json = {ITEM: without(item, "type", "summary")}
    texts = _texts(summary)
    is_plain = all(set(block) == {"type", "text"} for block in summary)
    content = item.get("content")
    thoughts = _texts(cast("list[object]", content)) if isinstance(content, list) else []
    is_derivable = len(texts) == len(summary) < 2 and "" not in texts and is_plain
    if not is_derivable or (thoughts and not texts):
        # The summary cannot be derived from the text.
        notes[ITEM]["summary"] = summary
    return ReasoningPart(text="\n\n".join(texts or thoughts), metadata={KEY: notes})


def _texts(blocks: Sequence[object]) -> list[str]:
    """The texts of a summary, or of the reasoning itself if the model shows it."""
    texts: list[str] = []
    for block in blocks:
        match block:
            case {"type": "summary_text" | "reasoning_text", "text": str(text)}:
                texts.append(text)
            case _:
                pass
    return texts


# --- calls and results ---------------------------------------------------------------------


def _read_call(item: Json, kind: str) -> ToolPart:
    """Read a function call or a custom tool call; a custom tool's input is plain text."""
    field = "input" if kind == CUSTOM else "arguments"
    raw = text_at(item, field)
    notes = _item_notes(item, "name", field)
    if kind == CUSTOM:
        notes[KIND] = kind
        arguments: Json = {"input": raw}
    else:
        arguments = arguments_input(raw)
        if compact_json(arguments) != raw:
            notes[ARGUMENTS] = raw
    return ToolPart(
        tool=text_at(item, "name"),
        call_id=text_at(item, "call_id"),
        state=Pending(input=arguments),
        metadata=codec_metadata(KEY, notes),
    )


def _read_other_call(item: Json, kind: str) -> ToolPart:
    """Read a call of an OpenAI tool that the program runs: a shell, a patch, a search."""
    field = next((name for name in _INPUTS if isinstance(item.get(name), dict)), "")
    name = item.get("name")
    notes = {**_item_notes(item, field), KIND: kind, FIELD: field}
    return ToolPart(
        tool=name if isinstance(name, str) else kind.removesuffix("_call"),
        call_id=item["call_id"],
        state=Pending(input=item[field] if field else {}),
        metadata={KEY: notes},
    )


def _item_notes(item: Json, *excluded: str) -> Json:
    fields = without(item, "type", "call_id", *excluded)
    return {ITEM: fields} if fields else {}


def read_result(item: Json) -> ReadResult:
    """Read the result of a call."""
    output = item.get("output", item.get("tools"))
    blocks = output_blocks(output)
    if blocks is None and not isinstance(output, str) and {"output", "tools"} & set(item):
        output = compact_json(output)
    text, files = read_output(output if blocks is None else blocks, TEXT_BLOCKS, read_file)
    result = ReadResult(call_id=item["call_id"], output=text, files=files, raw=item)
    call_notes: Json = {KIND: CUSTOM} if item["type"] == "custom_tool_call_output" else {}
    return with_difference(result, canonical_result, KEY, call_notes, "call_id")


def canonical_result(result: Result) -> Json:
    """The item for a result; its output is a text, or blocks if there are files."""
    is_custom = subobject(result.provider_options, KEY).get(KIND) == CUSTOM
    text = result.output.value
    output: Any = text
    if result.attachments:
        output = [file_block(file) for file in result.attachments]
        output = [{"type": "input_text", "text": text}, *output] if text.strip() else output
    return {
        "type": "custom_tool_call_output" if is_custom else "function_call_output",
        "call_id": result.tool_call_id,
        "output": output,
    }


def output_blocks(output: object) -> list[Json] | None:
    """The blocks of an output that is a list of blocks or a file; None for other JSON."""
    if isinstance(output, dict) and read_file(cast("Json", output)) is not None:
        return [cast("Json", output)]
    if not isinstance(output, list):
        return None
    items = cast("list[Any]", output)
    kinds = [cast("Json", item).get("type") if isinstance(item, dict) else None for item in items]
    are_blocks = all(isinstance(kind, str) for kind in kinds)
    return items if are_blocks and (TEXT_BLOCKS | _FILE_BLOCKS) & set(kinds) else None
