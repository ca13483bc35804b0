"""Files in chat messages, read and written: images, sounds and documents, inline or by address."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import FilePart
from foldmark.model.prompt_messages import Media
from foldmark.model.values import Json

from .codec import data_url, kept, options, url_parts
from .exactness import as_it_came, raw_unless

KEY = "openai-chat"
# What may stand in a part of a request beside the part itself.
MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_AUDIO = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def read_file(block: Json) -> FilePart | None:
    """A file that is inline or has an address; None where it is neither."""
    kind = str(block.get("type"))
    body = options(block, kind)
    name: Any = UNSET
    match kind, body:
        case "image_url", {"url": str(url)}:
            mime = url_parts(url)[0] or "image/*"
        case "input_audio", {"data": str(data), "format": str(form)}:
            mime = _AUDIO.get(form, f"audio/{form}")
            url = data_url(mime, data)
        case "file", {"file_data": str(url)} if url_parts(url)[1] is not None:
            mime = url_parts(url)[0]
            named = body.get("filename")
            name = named if isinstance(named, str) and named else UNSET
        case _:
            return None
    file = FilePart(mime=mime, url=url, filename=name)
    usual = _usual_file(url, mime, name or None)
    return replace(file, metadata=kept(KEY, raw_unless(usual, block)))


def can_be_sent(kind: str, url: str) -> bool:
    """Whether a file of this kind may stand in a request."""
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
    """A text in place of a file that may not."""
    is_inline = media.data.startswith("data:")
    name = media.filename or (media.media_type if is_inline else media.data)
    return {"type": "text", "text": f"[A file that cannot be shown here: {name}]"}


def written_file(media: Media, *, as_is: bool) -> Json:
    """A file as a part of the content."""
    usual = _usual_file(media.data, media.media_type, media.filename)
    file: Json = as_it_came(usual, options(media.provider_options, KEY))
    if as_is:
        return file
    kind = str(file["type"])
    body: Json = file[kind] if kind != "file" else {"filename": "file", **file[kind]}
    return {"type": kind, kind: body, **known_fields(file, MARKS)}


def _usual_file(url: str, mime: str, name: str | None) -> Json:
    data = url_parts(url)[1]
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if mime.startswith("audio/") and data is not None:
        form = _FORMATS.get(mime, mime.removeprefix("audio/"))
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    named = {"filename": name} if name else {}
    return {"type": "file", "file": {"file_data": url, **named}}


def known_fields(fields: Json, known: frozenset[str]) -> Json:
    """The fields of these names that hold something."""
    return {name: held for name, held in fields.items() if name in known and held is not None}
