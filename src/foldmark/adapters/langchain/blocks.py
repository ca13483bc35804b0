"""Blocks of content as LangChain has them, read into parts and written back.

LangChain passes on what each provider calls its blocks, beside standard ones of its own. A block
is kept as a form: itself, with a hole where our part has the text, the file or the input. So it is
written back as it came. Which message a block stands in is told in `dialect`.
"""

from collections.abc import Sequence
from typing import cast

from foldmark.model.messages import BLOCK, FilePart, ReasoningPart, TextPart
from foldmark.model.prompt_messages import Media, Reasoning, Text
from foldmark.model.values import Json
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import data_url, kept, opaque, options, url_parts, without

from .values import restored, stored

KEY = "langchain"
FORM, HOLE = "form", "hole"  # in metadata: the block with its hole, and the way to that
_BARE = "bare"  # a text without a block around it
# Where a block's file is: the way to it, and whether it is an address or base64 text.
_FILES: tuple[tuple[tuple[str, ...], bool], ...] = (
    (("image_url", "url"), True),
    (("image_url",), True),
    (("source", "data"), False),
    (("source", "url"), True),
    (("base64",), False),
    (("data",), False),
    (("input_audio", "data"), False),
    (("file", "file_data"), True),
    (("file_data",), True),
    (("url",), True),
)
_FILE_KINDS = {
    "image": "image/*",
    "image_url": "image/*",
    "input_image": "image/*",
    "audio": "audio/*",
    "input_audio": "audio/*",
    "video": "video/*",
    "document": "application/pdf",
    "file": "application/octet-stream",
    "input_file": "application/octet-stream",
    "media": "application/octet-stream",
}
_MIMES = ("mime_type", "media_type")
# Where thinking has its text; a block of these kinds without one is opaque to all but its maker.
_THOUGHTS: dict[str, tuple[str, ...]] = {
    "thinking": ("thinking",),
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content", "text"),
    "redacted_thinking": (),
}

Block = TextPart | ReasoningPart | FilePart


# --- reading -------------------------------------------------------------------------------


def read_block(block: object) -> Block:
    """The part that a block of content is."""
    if isinstance(block, str):
        return TextPart(text=str.__str__(block), metadata={KEY: {_BARE: True}})
    if not isinstance(block, dict):
        return TextPart(text=str(block))
    fields = cast("Json", stored(cast("object", block)))
    kind, text = fields.get("type"), fields.get("text")
    if kind == "text" and isinstance(text, str):
        return TextPart(text=text, metadata=kept(KEY, without(fields, "type", "text")))
    if kind in _THOUGHTS:
        return _thought(fields, _THOUGHTS[kind])
    return read_file(fields) or opaque(KEY, fields, _readable(fields))


def _thought(block: Json, way: tuple[str, ...]) -> ReasoningPart:
    text = _at(block, way) if way else None
    if isinstance(text, str):
        form: Json = {FORM: _with(block, way, None), HOLE: list(way)}
        return ReasoningPart(text=text, metadata={KEY: form})
    return ReasoningPart(text=_summary(block), metadata={KEY: {FORM: block}})


def _summary(block: Json) -> str:
    """What OpenAI tells of thoughts that it keeps to itself."""
    lines = block.get("summary")
    if not isinstance(lines, list):
        return ""
    held = (cast("Json", line) for line in cast("list[object]", lines) if isinstance(line, dict))
    return "\n\n".join(text for line in held if isinstance(text := line.get("text"), str))


def read_file(block: Json) -> FilePart | None:
    """The file that a block holds or points at; None where it is no file, or only named."""
    usual = _FILE_KINDS.get(str(block.get("type")))
    if usual is None:
        return None
    for way, is_url in _FILES:
        data = _at(block, way)
        if not isinstance(data, str) or not data:
            continue
        mime = _mime(block, data if is_url else "") or usual
        if mime in EXPANDED:
            return None  # a view does not show such files: they are texts elsewhere
        url = data if is_url else data_url(mime, data)
        form: Json = {FORM: _with(block, way, None), HOLE: list(way)}
        return FilePart(mime=mime, url=url, metadata={KEY: form})
    return None


def _mime(block: Json, url: str) -> str:
    """What kind of file it is, as the block or its address tells; nothing where neither does."""
    if told := url_parts(url)[0]:
        return told
    source = block.get("source")
    for held in (block, cast("Json", source) if isinstance(source, dict) else {}):
        for name in _MIMES:
            if isinstance(found := held.get(name), str) and found:
                return found
    audio = _at(block, ("input_audio", "format"))
    return f"audio/{audio}" if isinstance(audio, str) else ""


def _readable(block: Json) -> str:
    """What of a block that we do not know others may read."""
    for name in ("text", "content", "refusal"):
        if isinstance(held := block.get(name), str):
            return held
    return ""


# --- writing -------------------------------------------------------------------------------


def write_block(block: Text | Reasoning | Media) -> str | Json | None:
    """The block that says this; None for thoughts that no provider would take back."""
    own = options(block.provider_options, KEY)
    match block:
        case Text() if isinstance(own.get(BLOCK), dict):
            return cast("Json", restored(own[BLOCK]))
        case Text() if own.get(_BARE):
            return block.text
        case Text():
            return {"type": "text", "text": block.text, **cast("Json", restored(own))}
        case Reasoning():
            return filled(own, block.text)
        case Media():
            return _written_file(block, own)


def filled(own: Json, held: object) -> Json | None:
    """A form with its hole filled; None where there is no form."""
    form, way = own.get(FORM), own.get(HOLE)
    if not isinstance(form, dict):
        return None
    whole = cast("Json", form)
    if isinstance(way, list) and way:
        whole = _with(whole, tuple(map(str, cast("list[object]", way))), held)
    return cast("Json", restored(whole))


def _written_file(block: Media, own: Json) -> Json:
    mime, data = url_parts(block.data)
    way = own.get(HOLE)
    is_url = not isinstance(way, list) or (tuple(cast("list[str]", way)), True) in _FILES
    found = filled(own, block.data if is_url or data is None else data)
    if found is not None:
        return found
    kind = (mime or block.media_type).partition("/")[0]
    kind = kind if kind in {"image", "audio", "video"} else "file"
    if data is None:
        return {"type": kind, "url": block.data}
    return {"type": kind, "base64": data, "mime_type": mime}


def is_plain(block: object) -> bool:
    """Whether a block is words and nothing else."""
    return isinstance(block, str) or (
        isinstance(block, dict) and set(cast("Json", block)) == {"type", "text"}
    )


def plain_text(blocks: Sequence[object]) -> str:
    """The words of plain blocks."""
    return "\n\n".join(
        block if isinstance(block, str) else str(cast("Json", block)["text"]) for block in blocks
    )


# --- holes ---------------------------------------------------------------------------------


def _at(block: Json, way: Sequence[str]) -> object:
    name, *rest = way
    held: object = block.get(name)
    if not rest:
        return held
    return _at(cast("Json", held), rest) if isinstance(held, dict) else None


def _with(block: Json, way: Sequence[str], held: object) -> Json:
    """A copy of a block with this at the end of a way."""
    name, *rest = way
    if not rest:
        return {**block, name: held}
    inner = block.get(name)
    fields = cast("Json", inner) if isinstance(inner, dict) else {}
    return {**block, name: _with(fields, rest, held)}
