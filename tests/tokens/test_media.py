"""The tokens of files; images are built by hand, and each price is worked out in its test."""

import struct
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.tokens.media import (
    AUDIO_SECOND_TOKENS,
    DEFAULT_SECONDS,
    DEFAULT_TOKENS,
    IMAGE_MAX_TOKENS,
    JPEG_HEAD_BYTES,
    MAX_SECONDS,
    MAX_TOKENS,
    PDF_DEFAULT_PAGES,
    PDF_MAX_PAGES,
    PDF_PAGE_TOKENS,
    PDF_WINDOW_BYTES,
    VIDEO_SECOND_TOKENS,
    media_text,
    media_tokens,
)


def data_url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{b64encode(content).decode()}"


def chunk(name: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + check


def png(width: int, height: int, filler: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"\0" * filler) + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def bmp(width: int, height: int) -> bytes:
    return b"BM" + b"\0" * 12 + struct.pack("<Iii", 40, width, -height) + b"\0" * 28


def os2_bmp(width: int, height: int) -> bytes:
    return b"BM" + b"\0" * 12 + struct.pack("<IHH", 12, width, height) + b"\0" * 8


def jpeg(width: int, height: int, before: int = 0) -> bytes:
    """A JPEG with this many bytes of other segments before its frame header, after a fill byte."""
    segments = b""
    for start in range(0, before, 60_000):
        size = min(before - start, 60_000)
        segments += b"\xff\xe1" + struct.pack(">H", 2 + size) + b"\xff" * size
    tables = b"\xff\xc4" + struct.pack(">H", 6) + b"\0" * 4
    frame = b"\xff\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + b"\0" * 10
    return b"\xff\xd8" + segments + tables + frame + b"\xff\xda\0\x02"


def webp(name: bytes, content: bytes) -> bytes:
    body = b"WEBP" + name + struct.pack("<I", len(content)) + content
    return b"RIFF" + struct.pack("<I", len(body)) + body


def lossy_webp(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height))


def lossless_webp(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14))


def extended_webp(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\0\0\0\0" + sides)


FORMATS: list[Callable[[int, int], bytes]] = [
    png, gif, bmp, os2_bmp, jpeg, lossy_webp, lossless_webp, extended_webp,
]  # fmt: skip
PROVIDERS = ["openai", "anthropic", "google", ""]


def image_tokens(content: bytes, provider: str) -> int:
    return media_tokens(data_url("image/any", content), "image/any", provider=provider)


@pytest.mark.parametrize("build", FORMATS)
def test_the_size_is_read_from_the_header_of_every_format(
    build: Callable[[int, int], bytes],
) -> None:
    # 1024 x 1024 becomes 768 x 768: 2 x 2 tiles. 2000 x 500 fits as it is: 4 x 1 tiles.
    assert image_tokens(build(1024, 1024), "openai") == 85 + 4 * 170 == 765
    assert image_tokens(build(2000, 500), "openai") == 85 + 4 * 170
    # 500 x 300 / 750. And one tile of 768, then two.
    assert image_tokens(build(500, 300), "anthropic") == 200
    assert image_tokens(build(300, 768), "google") == 258
    assert image_tokens(build(300, 769), "google") == 2 * 258


@pytest.mark.parametrize(
    ("width", "height", "provider", "tokens"),
    [
        (512, 512, "openai", 85 + 170),
        (2048, 4096, "openai", 85 + 6 * 170),  # to 1024 x 2048, to 768 x 1536
        (4096, 8192, "azure", 85 + 6 * 170),
        (1, 1, "openai", 85 + 170),
        (1, 65_535, "openai", 85 + 4 * 170),
        (200, 200, "anthropic", 54),  # 53.3, rounded up
        (1092, 1092, "anthropic", 1_590),
        (3136, 784, "anthropic", 820),  # to 1568 x 392
        (8000, 8000, "anthropic", 1_600),
        (384, 384, "google", 258),
        (385, 10, "google", 258),
        (1536, 1536, "gemini", 4 * 258),
        (1000, 1000, "google-vertex", 4 * 258),
        (1000, 1000, "google-vertex-anthropic", 1_334),
        (1024, 1024, "", 1_399),  # Anthropic's is the highest; 258 x 4 and 765 are less
        (4032, 3024, "openrouter", 24 * 258),  # Gemini's is the highest
        (65_535, 65_535, "google", IMAGE_MAX_TOKENS),
    ],
)
def test_an_image_has_the_tokens_that_its_provider_publishes(
    width: int, height: int, provider: str, tokens: int
) -> None:
    assert image_tokens(png(width, height), provider) == tokens


@pytest.mark.parametrize("provider", PROVIDERS)
def test_five_megabytes_of_base64_have_the_tokens_of_the_tiles(provider: str) -> None:
    heavy = png(1024, 1024, filler=5_000_000)
    assert image_tokens(heavy, provider) == image_tokens(png(1024, 1024), provider)


def test_the_size_of_a_jpeg_is_found_after_previews_and_profiles() -> None:
    for before in (0, 60_000, 120_000, JPEG_HEAD_BYTES - 1_000):
        assert image_tokens(jpeg(1024, 1024, before), "openai") == 765
    assert image_tokens(jpeg(1024, 1024, JPEG_HEAD_BYTES), "openai") == DEFAULT_TOKENS
    assert image_tokens(b"\xff\xd8\xff\xda" + b"\xff\xc0" * 99, "openai") == DEFAULT_TOKENS


def test_line_breaks_percent_signs_and_url_safe_digits_are_decoded() -> None:
    content = gif(1024, 1024)
    lines = b64encode(content).decode().replace("A", "A\r\n")
    quoted = b64encode(content).decode().replace("+", "%2B").replace("=", "%3D").replace("/", "%2F")
    safe = urlsafe_b64encode(content).decode().rstrip("=")
    plain = "".join(f"%{byte:02X}" for byte in content)
    for url in (f"data:image/gif;base64,{body}" for body in (lines, quoted, safe)):
        assert media_tokens(url, "", provider="openai") == 765
    assert media_tokens(f"data:image/gif,{plain}", "", provider="openai") == 765


@pytest.mark.parametrize(
    ("width", "height"), [(0, 10), (10, 0), (0, 0), (4_294_967_295, 4_294_967_295), (70_000, 1)]
)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_implausible_sides_have_the_default(width: int, height: int, provider: str) -> None:
    assert image_tokens(png(width, height), provider) == DEFAULT_TOKENS


@pytest.mark.parametrize("build", FORMATS)
def test_an_incomplete_header_has_the_default_or_its_own_tokens(
    build: Callable[[int, int], bytes],
) -> None:
    whole = build(1024, 1024)
    for length in range(len(whole)):
        assert image_tokens(whole[:length], "openai") in {DEFAULT_TOKENS, 765}


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/cat.png",
        "file:///tmp/cat.png",
        "",
        "data:",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png;base64,A",
        "data:image/png;base64,ÄÖÜ\ud800",
    ],
)
def test_an_unreadable_image_has_the_default(url: str) -> None:
    assert media_tokens(url, "image/png") == DEFAULT_TOKENS
    assert media_tokens(url, "image/png", provider="openai") == DEFAULT_TOKENS


def pdf(pages: int, between: int = 0) -> bytes:
    page = b"<< /Type /Page /Parent 2 0 R >> endobj\n" * pages
    tree = b"2 0 obj << /Kids [3 0 R] /Type /Pages /Count %d >> endobj\n" % pages
    outline = b"9 0 obj << /Type /Outlines /Count 777 >> endobj\n"
    return b"%PDF-1.7\n" + page + outline + b"\0" * between + b" endobj " + tree + b"%%EOF"


def pdf_tokens(content: bytes) -> int:
    return media_tokens(data_url("application/pdf", content), "application/pdf")


@pytest.mark.parametrize("between", [0, 300_000, 3 * PDF_WINDOW_BYTES])
def test_a_pdf_has_the_tokens_of_its_pages_even_if_only_its_ends_are_read(between: int) -> None:
    for shift in range(4):
        assert pdf_tokens(pdf(12, between + shift)) == 12 * PDF_PAGE_TOKENS


def test_the_pages_of_a_compressed_pdf_are_stated_or_a_default_and_capped() -> None:
    head = b"%PDF-1.5\n1 0 obj << /Linearized 1 /L 9999 /O 3 /E 500 /N 40 /T 9000 >> endobj"
    assert pdf_tokens(head + b"\x8b" * 4_000) == 40 * PDF_PAGE_TOKENS

    assert pdf_tokens(b"%PDF-1.5\n" + b"\x8b" * 4_000) == PDF_DEFAULT_PAGES * PDF_PAGE_TOKENS
    remote = media_tokens("https://example.org/paper.pdf", "application/pdf")
    assert remote == PDF_DEFAULT_PAGES * PDF_PAGE_TOKENS

    claim = b"2 0 obj << /Type /Pages /Kids [] /Count 999999 >> endobj"
    assert pdf_tokens(claim) == PDF_MAX_PAGES * PDF_PAGE_TOKENS == MAX_TOKENS


def test_audio_and_video_have_the_tokens_of_their_seconds_within_limits() -> None:
    minute = data_url("audio/mpeg", b"\0" * 16_000 * 60)
    assert media_tokens(minute, "audio/mpeg") == 60 * AUDIO_SECOND_TOKENS
    short = data_url("video/mp4", b"\0" * 250_000 * 4)
    assert media_tokens(short, "video/mp4") == 4 * VIDEO_SECOND_TOKENS
    remote = media_tokens("https://example.org/talk.mp3", "audio/mpeg")
    assert remote == DEFAULT_SECONDS * AUDIO_SECOND_TOKENS
    endless = "data:audio/wav;base64," + "A" * 80_000_000
    assert media_tokens(endless, "audio/wav") == MAX_SECONDS * AUDIO_SECOND_TOKENS


@pytest.mark.parametrize(
    "mime",
    ["text/plain", "text/x-python; charset=utf-8", "application/json", "application/ld+json",
     "image/svg+xml", "application/octet-stream", ""],
)  # fmt: skip
def test_inline_text_is_returned_for_the_caller_to_count(mime: str) -> None:
    code = "def grüße(): return '☃'"
    assert media_text(data_url("text/plain", code.encode()), mime) == code
    assert media_text("data:text/plain,caf%C3%A9 au lait", mime) == "café au lait"


def test_other_files_have_no_text_and_a_rough_number_of_tokens() -> None:
    assert media_text("https://example.org/a.txt", "text/plain") is None
    assert media_text(data_url("image/png", png(1, 1)), "image/png") is None
    assert media_text(data_url("application/zip", b"PK"), "application/zip") is None

    assert media_tokens(data_url("text/plain", b"abcd" * 300), "text/plain") == 300
    assert media_tokens("https://example.org/a.txt", "text/plain") == DEFAULT_TOKENS
    archive = data_url("application/zip", b"PK" * 9_999)
    assert media_tokens(archive, "application/zip") == DEFAULT_TOKENS


HEADERS = [build(9, 9)[:30] for build in FORMATS] + [b"%PDF-1.7 /Type /Page ", b""]
MIMES = ["image/png", "application/pdf", "audio/wav", "video/mp4", "text/plain", "a/b", ""]


@given(
    st.sampled_from(HEADERS),
    st.binary(max_size=400),
    st.sampled_from(MIMES) | st.text(max_size=20),
    st.sampled_from(PROVIDERS) | st.text(max_size=20),
)
def test_no_content_raises_or_exceeds_the_cap(
    header: bytes, content: bytes, mime: str, provider: str
) -> None:
    url = data_url("image/png", header + content)
    assert 0 <= media_tokens(url, mime, provider=provider) <= MAX_TOKENS
    media_text(url, mime)


@given(
    st.sampled_from(["", "data:", "data:image/png;base64,", "data:text/plain;base64,", "data:,"]),
    st.text(st.characters(exclude_categories=())),
    st.sampled_from(MIMES),
)
def test_no_url_raises_or_exceeds_the_cap(start: str, rest: str, mime: str) -> None:
    assert 0 <= media_tokens(start + rest, mime) <= MAX_TOKENS
    media_text(start + rest, mime)
