"""The items of OpenAI's Responses API, read: what each says, and what is kept beside it.

Kept under `openai` in a part's metadata: `item`, the fields of the item that begins with the part;
`rest`, those of a block inside a message; `kind`, what it was where that is not the usual; `block`,
a whole item that only this wire can write, or with `inside` a whole block of a message.
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
    Answer,
    Read,
    arguments_input,
    compact,
    kept,
    kind_words,
    objects,
    opaque,
    options,
    read_output,
    text_at,
    unknown_role,
    url_parts,
    without,
)
from .exactness import exact, raw_unless

KEY = "openai"
ITEM, REST, KIND, INSIDE, ROLE = "item", "rest", "kind", "inside", "role"
FIELD = "field"  # which field of an item holds the input of a call

CUSTOM = "custom_tool_call"
ABOVE = ("system", "developer")  # roles above the user's
ROLES = ("user", "assistant", *ABOVE)
TEXT_BLOCKS = frozenset(
    {"input_text", "output_text", "refusal", "text", "summary_text", "reasoning_text"}
)
_FILE_BLOCKS = frozenset({"input_image", "input_file", "computer_screenshot"})
# Items that the program sends, not the model.
_FROM_PROGRAM = frozenset(
    {"additional_tools", "mcp_approval_response", "compaction_trigger", "configuration_update"}
)
# Where a call that is neither a function's nor a custom tool's has its input.
_INPUTS = ("arguments", "action", "operation", "input")


def read_item(item: Json) -> Read:
    """One item; BadInput where it is none."""
    kind = kind_of(item)
    if kind == "message":
        return _message(item)
    if kind in _FROM_PROGRAM:
        return Read(role="user", parts=(opaque(KEY, item),))
    if is_answer(item):
        return Read(role="user", answers=(read_answer(item),))
    part: AnyPart
    if kind == "reasoning":
        part = _reasoning(item)
    elif kind in ("function_call", CUSTOM):
        part = _call(item, kind)
    elif kind.endswith("_call") and isinstance(item.get("call_id"), str):
        part = _other_call(item, kind)
    else:
        part = whole(item)
    return Read(role="assistant", parts=(part,), joins=True)


def whole(item: Json) -> TextPart:
    """An item of the model's side that only this wire can write, with what others may read."""
    output = item.get("output")
    return opaque(KEY, item, output if isinstance(output, str) else "")


def kind_of(item: Json) -> str:
    """The type of an item, told or not."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    if kind is not None:
        raise BadInput(f"'type' is {kind_words(kind)}, not a text")
    if "role" in item:
        return "message"
    if set(item) <= {"id", "type"} and isinstance(item.get("id"), str):
        return "item_reference"
    raise BadInput("an item has neither a type nor a role")


def is_answer(item: Json) -> bool:
    """Whether an item is the result of a call that it names."""
    kind = item.get("type")
    is_output = isinstance(kind, str) and (
        kind.endswith("_call_output") or kind == "tool_search_output"
    )
    return is_output and isinstance(item.get("call_id"), str)


# --- messages ------------------------------------------------------------------------------


def _message(item: Json) -> Read:
    role, content = text_at(item, "role"), item.get("content")
    if role not in ROLES:
        return unknown_role(KEY, item)
    by_model = role == "assistant"
    usual = "output_text" if by_model else "input_text"
    if isinstance(content, str):
        blocks: list[Json] = [{"type": usual, "text": content}]
    else:
        blocks = objects(content, "'content'")
    parts = tuple(_block(block, usual) for block in blocks)
    fields = without(item, "type", "role", "content")
    written = {"type": "message", "role": role, "content": blocks, **fields}
    own: Json = {ITEM: fields, **raw_unless(written, item)}
    if by_model and not parts:
        return Read(role="assistant", parts=(whole(item),), joins=True)
    if by_model:
        return Read(role="assistant", parts=(_marked(parts[0], own), *parts[1:]), joins=True)
    if not own[ITEM]:
        del own[ITEM]
    if role == "user":
        return Read(role="user", parts=parts, rest=own)
    # The role stands on each part too: a view may put several messages into one.
    marked = tuple(_marked(part, {ROLE: role}) for part in parts)
    return Read(role="system", parts=marked, rest={ROLE: role, **own})


def _block(block: Json, usual: str) -> TextPart | FilePart:
    """One block of a message; `usual` is the kind of text that its role speaks in."""
    kind = block.get("type")
    if isinstance(kind, str) and kind in TEXT_BLOCKS:
        name = "refusal" if kind == "refusal" else "text"
        own = _noted(without(block, "type", name), kind if kind != usual else "")
        return TextPart(text=text_at(block, name), metadata=kept(KEY, own))
    file = read_file(block)
    return file or TextPart(text="", metadata={KEY: {BLOCK: block, INSIDE: True}})


def read_file(block: Json) -> FilePart | None:
    """A file that is inline or has an address; None where the provider keeps it."""
    match block:
        case {"type": "input_image" | "computer_screenshot" as kind, "image_url": str(url)} if (
            block.get("file_id") is None
        ):
            own = _noted(without(block, "type", "image_url"))
            mime = url_parts(url)[0] or "image/*"
        case {"type": "input_file" as kind, "file_data": str(url)} if url_parts(url)[
            1
        ] is not None and not {"file_url", "file_id"} & set(block):
            own = _noted(without(block, "type", "file_data", "filename"))
            mime = url_parts(url)[0] or "application/octet-stream"
        case {"type": "input_file" as kind, "file_url": str(url)} if url_parts(url)[
            1
        ] is None and not {"file_data", "file_id"} & set(block):
            own = _noted(without(block, "type", "file_url", "filename"))
            mime = "application/pdf"
        case _:
            return None
    if kind != _usual_file(mime):
        own[KIND] = kind
    name = block.get("filename") if kind == "input_file" else None
    if name is not None and not isinstance(name, str):
        return None
    return FilePart(mime=mime, url=url, filename=name or UNSET, metadata=kept(KEY, own))


def written_file(file: Media) -> Json:
    """A file as a block."""
    own = options(file.provider_options, KEY)
    mime, data = url_parts(file.data)
    kind = own.get(KIND) or _usual_file(mime or file.media_type)
    if kind != "input_file":
        return {"type": kind, "image_url": file.data, **options(own, REST)}
    place = "file_url" if data is None else "file_data"
    named = {"filename": file.filename} if file.filename else {}
    return {"type": kind, place: file.data, **named, **options(own, REST)}


def _usual_file(mime: str) -> str:
    """The kind of block that holds a file."""
    return "input_image" if mime.startswith("image/") else "input_file"


def _noted(rest: Json, kind: str = "") -> Json:
    return {**({REST: rest} if rest else {}), **({KIND: kind} if kind else {})}


def _marked(part: TextPart | FilePart, more: Json) -> TextPart | FilePart:
    metadata = part.metadata or {}
    return replace(part, metadata={**metadata, KEY: {**metadata.get(KEY, {}), **more}})


# --- reasoning -----------------------------------------------------------------------------


def _reasoning(item: Json) -> ReasoningPart:
    summary = objects(item.get("summary") or [], "'summary'")
    own: Json = {ITEM: without(item, "type", "summary")}
    texts = _texts(summary)
    is_plain = all(set(block) == {"type", "text"} for block in summary)
    content = item.get("content")
    thoughts = _texts(cast("list[object]", content)) if isinstance(content, list) else []
    is_told = len(texts) == len(summary) < 2 and "" not in texts and is_plain
    if not is_told or (thoughts and not texts):
        # The text does not tell the summary: it is kept.
        own[ITEM]["summary"] = summary
    return ReasoningPart(text="\n\n".join(texts or thoughts), metadata={KEY: own})


def _texts(blocks: Sequence[object]) -> list[str]:
    """The texts of a summary or of the thinking itself, where a model shows it."""
    found: list[str] = []
    for block in blocks:
        match block:
            case {"type": "summary_text" | "reasoning_text", "text": str(text)}:
                found.append(text)
            case _:
                pass
    return found


# --- calls and results ---------------------------------------------------------------------


def _call(item: Json, kind: str) -> ToolPart:
    """A call of a function or of a custom tool, whose input is a text."""
    field = "input" if kind == CUSTOM else "arguments"
    raw = text_at(item, field)
    own = _fields(item, "name", field)
    if kind == CUSTOM:
        own[KIND] = kind
        given: Json = {"input": raw}
    else:
        given = arguments_input(raw)
        if compact(given) != raw:
            own[ARGUMENTS] = raw
    return ToolPart(
        tool=text_at(item, "name"),
        call_id=text_at(item, "call_id"),
        state=Pending(input=given),
        metadata=kept(KEY, own),
    )


def _other_call(item: Json, kind: str) -> ToolPart:
    """A call of a tool of OpenAI's own that the program runs: a shell, a patch, a search."""
    field = next((name for name in _INPUTS if isinstance(item.get(name), dict)), "")
    name = item.get("name")
    own = {**_fields(item, field), KIND: kind, FIELD: field}
    return ToolPart(
        tool=name if isinstance(name, str) else kind.removesuffix("_call"),
        call_id=item["call_id"],
        state=Pending(input=item[field] if field else {}),
        metadata={KEY: own},
    )


def _fields(item: Json, *taken: str) -> Json:
    fields = without(item, "type", "call_id", *taken)
    return {ITEM: fields} if fields else {}


def read_answer(item: Json) -> Answer:
    """The result of a call."""
    carried = item.get("output", item.get("tools"))
    blocks = answer_blocks(carried)
    if blocks is None and not isinstance(carried, str) and {"output", "tools"} & set(item):
        carried = compact(carried)
    text, files = read_output(carried if blocks is None else blocks, TEXT_BLOCKS, read_file)
    answer = Answer(call_id=item["call_id"], output=text, files=files, raw=item)
    is_custom = item["type"] == "custom_tool_call_output"
    return exact(answer, usual_result, KEY, {KIND: CUSTOM} if is_custom else {}, "call_id")


def usual_result(result: Result) -> Json:
    """A result with what it carries: a text, or blocks where there are files."""
    is_custom = options(result.provider_options, KEY).get(KIND) == CUSTOM
    text = result.output.value
    output: Any = text
    if result.attachments:
        output = [written_file(file) for file in result.attachments]
        output = [{"type": "input_text", "text": text}, *output] if text.strip() else output
    return {
        "type": "custom_tool_call_output" if is_custom else "function_call_output",
        "call_id": result.tool_call_id,
        "output": output,
    }


def answer_blocks(carried: object) -> list[Json] | None:
    """The blocks that an output is made of, or the one that it is; None where it is other JSON."""
    if isinstance(carried, dict) and read_file(cast("Json", carried)) is not None:
        return [cast("Json", carried)]
    if not isinstance(carried, list):
        return None
    found = cast("list[Any]", carried)
    kinds = [cast("Json", held).get("type") if isinstance(held, dict) else None for held in found]
    are_blocks = all(isinstance(kind, str) for kind in kinds)
    return found if are_blocks and (TEXT_BLOCKS | _FILE_BLOCKS) & set(kinds) else None
