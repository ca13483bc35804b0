"""Read and write files in chat messages: images, audio and documents, inline or by URL."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import FilePart
from foldmark.model.prompt_messages import Media
from foldmark.model.values import Json

from .codec import codec_metadata, data_url, subobject, url_parts
from .exactness import difference_note, restore

KEY = "openai-chat"
# Fields that a part of a request may have beside its content.
MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_AUDIO = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def read_file(block: Json) -> FilePart | None:
    """Read a file that is inline or has a URL; None if it is neither."""
    kind = str(block.get("type"))
    body = subobject(block, kind)
    name: Any = UNSET
    match kind, body:
        case "image_url", {"url": str(url)}:
            mime = url_parts(url)[0] or "image/*"
        case "input_audio", {"data": str(data), "format": str(form)}:
            mime = _AUDIO.get(form, f"audio/{form}")
            url = data_url(mime, data)
        case "file", {"file_data": str(url)} if url_parts(url)[1] is not None:
            mime = url_parts(url)[0]
            filename = body.get("filename")
            name = filename if isinstance(filename, str) and filename else UNSET
        case _:
            return None
    file = FilePart(mime=mime, url=url, filename=name)
    canonical = _canonical_file(url, mime, name or None)
    return replace(file, metadata=codec_metadata(KEY, difference_note(canonical, block)))


def can_be_sent(kind: str, url: str) -> bool:
    """Whether servers accept a file of this type in a request."""
    mime, data = url_parts(url)
    match kind:
        case "image_url" if data is None:
            return url.startswith(("https://", "http://"))
        case "image_url":
            return not mime.startswith("image/svg")
        case "input_audio":
            return data is not None and mime in _FORMATS
        case _:
            return data is not None


def file_note(media: Media) -> Json:
    """A text in place of a file that cannot be sent."""
    is_inline = media.data.startswith("data:")
    name = media.filename or (media.media_type if is_inline else media.data)
    return {"type": "text", "text": f"[A file that cannot be shown here: {name}]"}


def file_block(media: Media, *, as_is: bool) -> Json:
    """The part of a content for a file."""
    canonical = _canonical_file(media.data, media.media_type, media.filename)
    file: Json = restore(canonical, subobject(media.provider_options, KEY))
    if as_is:
        return file
    kind = str(file["type"])
    body: Json = file[kind] if kind != "file" else {"filename": "file", **file[kind]}
    return {"type": kind, kind: body, **select_fields(file, MARKS)}


def _canonical_file(url: str, mime: str, name: str | None) -> Json:
    data = url_parts(url)[1]
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if mime.startswith("audio/") and data is not None:
        form = _FORMATS.get(mime, mime.removeprefix("audio/"))
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    name_field = {"filename": name} if name else {}
    return {"type": "file", "file": {"file_data": url, **name_field}}


def select_fields(fields: Json, names: frozenset[str]) -> Json:
    """The fields with these names, except null ones."""
    return {name: value for name, value in fields.items() if name in names and value is not None}
