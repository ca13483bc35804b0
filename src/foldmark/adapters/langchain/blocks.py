"""Blocks of content as LangChain has them, read into parts and written back.

LangChain passes on what each provider calls its blocks, beside standard ones of its own. What a
plain block would not give again is kept as a form: the block, with a hole where our part has the
text or the file. Which message a block stands in is told in `dialect`.
"""

from collections.abc import Sequence
from typing import Any, cast

from foldmark.model.messages import BLOCK, FilePart, ReasoningPart, TextPart
from foldmark.model.prompt_messages import Media, Reasoning, Text
from foldmark.model.values import Json
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import data_url, opaque, options, url_parts

from .values import restored, stored

KEY = "langchain"
FORM = "form"  # in metadata: a block with a hole
_IS_URL = "url"  # beside the form of a file: its hole is an address
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
# Where a block says what kind of file it is.
_MIMES = tuple((*way, name) for name in ("mime_type", "media_type") for way in ((), ("source",)))
# Where thinking has its text; a block of these kinds without one is opaque to all but its maker.
_THOUGHTS: dict[str, tuple[str, ...]] = {
    "thinking": ("thinking",),
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content", "text"),
    "redacted_thinking": ("thinking",),
}

ContentPart = TextPart | ReasoningPart | FilePart


# --- reading -------------------------------------------------------------------------------


def read_block(block: object) -> ContentPart:
    """The part that a block of content is."""
    if isinstance(block, str):
        return TextPart(text=str.__str__(block), metadata=_kept(block, block))
    if not isinstance(block, dict):
        return TextPart(text=str(block))
    fields = cast("Json", block)
    kind, text = fields.get("type"), fields.get("text")
    if kind == "text" and isinstance(text, str):
        if is_plain(fields):
            return TextPart(text=text)
        return TextPart(text=text, metadata=_kept(fields, text))
    if kind in _THOUGHTS:
        words = _at(fields, _THOUGHTS[kind])
        text = words if isinstance(words, str) else _summary(fields)
        return ReasoningPart(text=text, metadata=_kept(fields, text))
    return read_file(fields) or opaque(KEY, stored(fields), _readable(fields))


def _kept(block: object, text: str) -> Json:
    return {KEY: {FORM: stored(block, hole=text)}}


def _summary(block: Json) -> str:
    """What OpenAI tells of thoughts that it keeps to itself."""
    lines = block.get("summary")
    if not isinstance(lines, list):
        return ""
    texts = [_at(cast("Json", held), ("text",)) for held in cast("list[object]", lines)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


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
        own: Json = {FORM: stored(block, hole=data), _IS_URL: is_url}
        url = data if is_url else data_url(mime, data)
        return FilePart(mime=mime, url=url, metadata={KEY: own})
    return None


def _mime(block: Json, url: str) -> str:
    """What kind of file it is, as the block or its address tells; nothing where neither does."""
    if told := url_parts(url)[0]:
        return told
    for way in _MIMES:
        if isinstance(found := _at(block, way), str) and found:
            return found
    audio = _at(block, ("input_audio", "format"))
    return f"audio/{audio}" if isinstance(audio, str) else ""


def _readable(block: Json) -> str:
    """What of a block that we do not know others may read."""
    texts = (block.get(name) for name in ("text", "content", "refusal"))
    return next((text for text in texts if isinstance(text, str)), "")


def _at(block: object, way: Sequence[str]) -> object:
    """What stands at the end of a way into a block."""
    for name in way:
        block = cast("Json", block).get(name) if isinstance(block, dict) else None
    return block


# --- writing -------------------------------------------------------------------------------


def write_block(block: Text | Reasoning | Media) -> Any:
    """The block that says this; None for thoughts that no provider would take back."""
    own = options(block.provider_options, KEY)
    if isinstance(block, Media):
        return _written_file(block, own)
    if FORM in own:
        return restored(own[FORM], block.text)
    if isinstance(block, Reasoning):
        return None
    return restored(options(own, BLOCK)) or {"type": "text", "text": block.text}


def _written_file(block: Media, own: Json) -> Json:
    mime, data = url_parts(block.data)
    if FORM in own:
        return restored(own[FORM], block.data if own.get(_IS_URL) or data is None else data)
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
