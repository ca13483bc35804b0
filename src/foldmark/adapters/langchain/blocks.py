"""Reads LangChain's content blocks into parts and writes them back.

LangChain passes on the blocks of each provider besides standard ones of its own. Unless a plain
block would be equal, the block is stored as a form: a copy with a hole where our part has the text
or the file. `dialect` knows the messages around the blocks.
"""

from collections.abc import Sequence
from typing import Any, cast

from foldmark.model.messages import BLOCK, FilePart, ReasoningPart, TextPart
from foldmark.model.prompt_messages import Media, Reasoning, Text
from foldmark.model.values import Json
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import data_url, opaque_part, subobject, url_parts

from .values import from_json, to_json

KEY = "langchain"
FORM = "form"  # in metadata: a block with a hole in it
_IS_URL = "url"  # next to the form of a file: whether its hole is a URL
# Paths to a block's file, and whether each is a URL or base64.
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
# Paths to a block's media type.
_MIMES = tuple((*way, name) for name in ("mime_type", "media_type") for way in ((), ("source",)))
# Paths to the text of thinking; blocks of these kinds without text are opaque.
_THOUGHTS: dict[str, tuple[str, ...]] = {
    "thinking": ("thinking",),
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content", "text"),
    "redacted_thinking": ("thinking",),
}

ContentPart = TextPart | ReasoningPart | FilePart


# --- reading -------------------------------------------------------------------------------


def read_block(block: object) -> ContentPart:
    """The part for a content block."""
    if isinstance(block, str):
        return TextPart(text=str.__str__(block), metadata=_form(block, block))
    if not isinstance(block, dict):
        return TextPart(text=str(block))
    fields = cast("Json", block)
    kind, text = fields.get("type"), fields.get("text")
    if kind == "text" and isinstance(text, str):
        if is_plain(fields):
            return TextPart(text=text)
        return TextPart(text=text, metadata=_form(fields, text))
    if kind in _THOUGHTS:
        value = _value_at(fields, _THOUGHTS[kind])
        text = value if isinstance(value, str) else _summary(fields)
        return ReasoningPart(text=text, metadata=_form(fields, text))
    return read_file(fields) or opaque_part(KEY, to_json(fields), _readable(fields))


def _form(block: object, text: str) -> Json:
    return {KEY: {FORM: to_json(block, hole=text)}}


def _summary(block: Json) -> str:
    """OpenAI's summary of reasoning that it does not disclose."""
    lines = block.get("summary")
    if not isinstance(lines, list):
        return ""
    texts = [_value_at(cast("Json", line), ("text",)) for line in cast("list[object]", lines)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def read_file(block: Json) -> FilePart | None:
    """The file in a block, inline or by URL; None if there is none, or only its id."""
    default = _FILE_KINDS.get(str(block.get("type")))
    if default is None:
        return None
    for path, is_url in _FILES:
        data = _value_at(block, path)
        if not isinstance(data, str) or not data:
            continue
        mime = _mime(block, data if is_url else "") or default
        if mime in EXPANDED:
            return None  # a view omits such files: it has their text elsewhere
        own: Json = {FORM: to_json(block, hole=data), _IS_URL: is_url}
        url = data if is_url else data_url(mime, data)
        return FilePart(mime=mime, url=url, metadata={KEY: own})
    return None


def _mime(block: Json, url: str) -> str:
    """The media type that the URL or the block states, or ""."""
    if mime := url_parts(url)[0]:
        return mime
    for path in _MIMES:
        if isinstance(value := _value_at(block, path), str) and value:
            return value
    audio = _value_at(block, ("input_audio", "format"))
    return f"audio/{audio}" if isinstance(audio, str) else ""


def _readable(block: Json) -> str:
    """The readable text of an unknown block, or ""."""
    texts = (block.get(name) for name in ("text", "content", "refusal"))
    return next((text for text in texts if isinstance(text, str)), "")


def _value_at(block: object, path: Sequence[str]) -> object:
    """The value at a path in a block, or None."""
    for name in path:
        block = cast("Json", block).get(name) if isinstance(block, dict) else None
    return block


# --- writing -------------------------------------------------------------------------------


def write_block(block: Text | Reasoning | Media) -> Any:
    """The block for this content; None for reasoning that no provider would accept."""
    own = subobject(block.provider_options, KEY)
    if isinstance(block, Media):
        return _write_file(block, own)
    if FORM in own:
        return from_json(own[FORM], block.text)
    if isinstance(block, Reasoning):
        return None
    return from_json(subobject(own, BLOCK)) or {"type": "text", "text": block.text}


def _write_file(block: Media, own: Json) -> Json:
    mime, data = url_parts(block.data)
    if FORM in own:
        return from_json(own[FORM], block.data if own.get(_IS_URL) or data is None else data)
    kind = (mime or block.media_type).partition("/")[0]
    kind = kind if kind in {"image", "audio", "video"} else "file"
    if data is None:
        return {"type": kind, "url": block.data}
    return {"type": kind, "base64": data, "mime_type": mime}


def is_plain(block: object) -> bool:
    """Whether a block is text and nothing else."""
    return isinstance(block, str) or (
        isinstance(block, dict) and set(cast("Json", block)) == {"type", "text"}
    )


def plain_text(blocks: Sequence[object]) -> str:
    """The text of plain blocks."""
    return "\n\n".join(
        block if isinstance(block, str) else str(cast("Json", block)["text"]) for block in blocks
    )
