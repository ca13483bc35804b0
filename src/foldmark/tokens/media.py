"""The tokens of attached files, by tiles, pages or seconds, never by base64 length.

Only the part of a data URL that states an image's size or the number of pages is decoded. This
module does not download remote files, does not count text (`media_text` returns it), knows
providers but not their models, and never raises: an unreadable file has a default price.
"""

import re
import struct
from binascii import a2b_base64
from typing import Literal, assert_never
from urllib.parse import unquote_to_bytes

import msgspec

# For unreadable files: the most for an Anthropic image, and above OpenAI's most (1,445).
DEFAULT_TOKENS = 1_600

# OpenAI: scaled into 2048 x 2048, then to a shortest side of 768; 85, and 170 per 512 px tile.
OPENAI_LONGEST, OPENAI_SHORTEST, OPENAI_TILE = 2_048, 768, 512
OPENAI_BASE_TOKENS, OPENAI_TILE_TOKENS = 85, 170

# Anthropic: scaled to a longest edge of 1568 and about 1,600 tokens; width x height / 750.
ANTHROPIC_LONGEST, ANTHROPIC_PIXELS, ANTHROPIC_MAX_TOKENS = 1_568, 750, 1_600

# Gemini: 258 if both sides are at most 384 px, else 258 per 768 px tile.
GEMINI_SMALL, GEMINI_TILE, GEMINI_TILE_TOKENS = 384, 768, 258

# Anthropic renders PDF pages as images; a scan has about 1,600 tokens, dense text has more.
PDF_PAGE_TOKENS = 1_600
PDF_DEFAULT_PAGES = 5
PDF_MAX_PAGES = 1_000  # the most that Gemini accepts in one document

# Gemini: 32 tokens per second of audio, 263 of video; assumed at 128 kbit/s and 2 Mbit/s.
AUDIO_SECOND_TOKENS, AUDIO_SECOND_BYTES = 32, 16_000
VIDEO_SECOND_TOKENS, VIDEO_SECOND_BYTES = 263, 250_000
DEFAULT_SECONDS = 60
MAX_SECONDS = 3_600

TEXT_TOKEN_BYTES = 4  # rough, for callers that do not count the text themselves

# Our own caps: one wrong figure must not fill the window.
IMAGE_MAX_TOKENS = 16_000
MAX_TOKENS = PDF_MAX_PAGES * PDF_PAGE_TOKENS

MAX_SIDE = 65_535  # the largest that JPEG can state; larger values are damaged or hostile
URL_HEADER_CHARS = 1_000
HEAD_BYTES = 512  # enough for every header except JPEG's
JPEG_HEAD_BYTES = 256 * 1024  # an EXIF preview and a color profile may precede the size
PDF_WINDOW_BYTES = 256 * 1024  # at the start and the end: the page tree is in either

Kind = Literal["image", "pdf", "audio", "video", "text", "other"]
Size = tuple[int, int]

# The application/… types that are text, beside any +json or +xml.
TEXT_NAMES = frozenset(
    {"javascript", "json", "sql", "toml", "x-ndjson", "x-sh", "x-yaml", "xml", "yaml"}
)

_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_FOREIGN = bytes(set(range(256)).difference(_DIGITS))
_STANDARD = bytes.maketrans(b"-_", b"+/")  # URL-safe base64 digits to standard ones


class Inline(msgspec.Struct, frozen=True):
    """A parsed data URL; its content is not copied."""

    url: str
    start: int
    mime: str
    base64: bool

    @property
    def size(self) -> int:
        """The approximate number of bytes of its content."""
        chars = len(self.url) - self.start
        return chars * 3 // 4 if self.base64 else chars


def media_tokens(url: str, mime: str, *, provider: str = "") -> int:
    """The tokens of a file; for an unknown provider, the most among the known ones."""
    inline = _inline(url)
    kind = _kind(mime, inline)
    match kind:
        case "image":
            tokens = _image_tokens(inline, provider)
        case "pdf":
            tokens = _pdf_pages(inline) * PDF_PAGE_TOKENS
        case "audio":
            tokens = _seconds(inline, AUDIO_SECOND_BYTES) * AUDIO_SECOND_TOKENS
        case "video":
            tokens = _seconds(inline, VIDEO_SECOND_BYTES) * VIDEO_SECOND_TOKENS
        case "text":
            tokens = inline.size // TEXT_TOKEN_BYTES if inline else DEFAULT_TOKENS
        case "other":
            tokens = DEFAULT_TOKENS
        case _:
            assert_never(kind)
    return min(tokens, MAX_TOKENS)


def media_text(url: str, mime: str) -> str | None:
    """The text of an inline text file, or None for any other file."""
    inline = _inline(url)
    if inline is None or _kind(mime, inline) != "text":
        return None
    return _decoded(inline, inline.start, len(url)).decode("utf-8", errors="replace")


def _inline(url: str) -> Inline | None:
    if url[:5].lower() != "data:":
        return None
    comma = url.find(",", 5, URL_HEADER_CHARS)
    if comma < 0:
        return None
    mime, *parameters = (part.strip().lower() for part in url[5:comma].split(";"))
    return Inline(url=url, start=comma + 1, mime=mime, base64="base64" in parameters)


def _kind(mime: str, inline: Inline | None) -> Kind:
    """The kind of file by the caller's MIME type, or by the URL's if that is unspecific."""
    base = mime.partition(";")[0].strip().lower()
    if inline and base in {"", "application/octet-stream"}:
        base = inline.mime
    family, _, name = base.partition("/")
    # SVG ends in +xml: no provider accepts it as an image, but it can be read as text.
    if family == "text" or name.endswith(("+json", "+xml")):
        return "text"
    if family == "application":
        return "pdf" if name == "pdf" else "text" if name in TEXT_NAMES else "other"
    return family if family in ("image", "audio", "video") else "other"


def _decoded(inline: Inline, first: int, last: int) -> bytes:
    """Decode these characters of the URL; invalid characters are skipped."""
    raw = inline.url[first:last].encode("utf-8", errors="replace")
    if not inline.base64 or b"%" in raw:
        raw = unquote_to_bytes(raw)
    if not inline.base64:
        return raw
    digits = raw.translate(_STANDARD, delete=_FOREIGN)
    end = len(digits) - (len(digits) % 4 == 1)  # a single extra digit is not a byte
    return a2b_base64(digits[:end] + b"===")


def _head(inline: Inline, count: int) -> bytes:
    chars = count * (2 if inline.base64 else 3)  # allows for line breaks; a byte may be %FF
    return _decoded(inline, inline.start, inline.start + chars)[:count]


def _image_tokens(inline: Inline | None, provider: str) -> int:
    size = _image_size(inline) if inline else None
    if size is None:
        return DEFAULT_TOKENS
    name = provider.lower()
    # Anthropic first: google-vertex-anthropic has the prices of the model's maker.
    if "anthropic" in name or "claude" in name:
        tokens = _anthropic_tokens(size)
    elif "openai" in name or "azure" in name:
        tokens = _openai_tokens(size)
    elif "google" in name or "gemini" in name or "vertex" in name:
        tokens = _gemini_tokens(size)
    else:
        tokens = max(_anthropic_tokens(size), _openai_tokens(size), _gemini_tokens(size))
    return min(tokens, IMAGE_MAX_TOKENS)


def _openai_tokens(size: Size) -> int:
    size = _scaled(size, max(size), OPENAI_LONGEST)
    size = _scaled(size, min(size), OPENAI_SHORTEST)
    return OPENAI_BASE_TOKENS + OPENAI_TILE_TOKENS * _tiles(size, OPENAI_TILE)


def _anthropic_tokens(size: Size) -> int:
    width, height = _scaled(size, max(size), ANTHROPIC_LONGEST)
    return min(-(-width * height // ANTHROPIC_PIXELS), ANTHROPIC_MAX_TOKENS)


def _gemini_tokens(size: Size) -> int:
    tiles = 1 if max(size) <= GEMINI_SMALL else _tiles(size, GEMINI_TILE)
    return tiles * GEMINI_TILE_TOKENS


def _scaled(size: Size, side: int, limit: int) -> Size:
    """The size scaled down so that this side is no longer than `limit`."""
    if side <= limit:
        return size
    width, height = size
    return max(1, width * limit // side), max(1, height * limit // side)


def _tiles(size: Size, tile: int) -> int:
    width, height = size
    return -(-width // tile) * -(-height // tile)


def _image_size(inline: Inline) -> Size | None:
    """Width and height from the image's header, or None if they are not plausible."""
    head = _head(inline, HEAD_BYTES)
    try:
        if head.startswith(b"\xff\xd8"):
            size = _jpeg_size(head) or _jpeg_size(_head(inline, JPEG_HEAD_BYTES))
        else:
            size = _header_size(head)
    except struct.error:  # the header is incomplete
        return None
    return size if size and all(1 <= side <= MAX_SIDE for side in size) else None


def _header_size(head: bytes) -> Size | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return _unpacked(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _unpacked("<HH", head, 6)
    if head.startswith(b"BM"):
        core = _unpacked("<HH", head, 14)[0] == 12  # OS/2 headers have 16-bit sides
        width, height = _unpacked("<HH" if core else "<ii", head, 18)
        return width, abs(height)  # a negative height means rows stored from the top
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    return None


def _webp_size(head: bytes) -> Size | None:
    match head[12:16]:
        case b"VP8 ":  # lossy: 14 bits each, after the frame tag and a start code
            width, height = _unpacked("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":  # lossless: 14 bits each, minus one, after a signature byte
            low, high = _unpacked("<HH", head, 21)
            bits = low | high << 16
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":  # extended: 24 bits each, minus one
            if len(head) < 30:
                return None
            sides = head[24:27], head[27:30]
            return int.from_bytes(sides[0], "little") + 1, int.from_bytes(sides[1], "little") + 1
        case _:
            return None


def _jpeg_size(data: bytes) -> Size | None:
    """The size in the first frame header, found by following the segments."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _unpacked(">HH", data, at + 5)
            return width, height
        elif marker == 0xDA:  # the image data starts, and no size was stated
            return None
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _unpacked(form: str, data: bytes, at: int) -> Size:
    first, second = struct.unpack_from(form, data, at)
    return first, second


def _pdf_pages(inline: Inline | None) -> int:
    """The pages stated at the document's start and end, or a default if they are compressed."""
    if inline is None:
        return PDF_DEFAULT_PAGES
    data = _pdf_windows(inline)
    # A node of the page tree has /Kids and /Count; an outline has /Count only.
    nodes = (part for part in data.split(b"endobj") if b"/Kids" in part)
    counts = [
        int(count) for node in nodes for count in re.findall(rb"/Count\s{1,9}(\d{1,6})", node)
    ]
    # A linearized file states its pages at the start, even if the rest is compressed.
    counts += map(int, re.findall(rb"/Linearized[^>]{1,200}/N\s{1,9}(\d{1,6})", data[:1024]))
    pages = len(re.findall(rb"/Type\s{0,9}/Page(?![A-Za-z])", data))
    return min(max(pages, *counts, 0), PDF_MAX_PAGES) or PDF_DEFAULT_PAGES


def _pdf_windows(inline: Inline) -> bytes:
    window = PDF_WINDOW_BYTES // 3 * 4
    end = len(inline.url)
    if end - inline.start <= 2 * window:
        return _decoded(inline, inline.start, end)
    back = end - window
    back -= (back - inline.start) % 4  # base64 is decoded in groups of four
    front = _decoded(inline, inline.start, inline.start + window)
    return front + _decoded(inline, back, end)


def _seconds(inline: Inline | None, second_bytes: int) -> int:
    if inline is None:
        return DEFAULT_SECONDS
    return min(max(1, inline.size // second_bytes), MAX_SECONDS)
