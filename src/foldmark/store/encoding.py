"""Encode JSON, text and prune marks for rows, and compute the keys of messages.

JSON is one zstd frame, with a dictionary of the text that messages share.
"""

import json
import sys
import threading
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from operator import sub
from typing import Any

import msgspec

from foldmark.model.messages import Number
from foldmark.model.values import Frozen

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Compressing fewer bytes saves too little.
_MIN_COMPRESSED_BYTES = 128
_PLAIN, _COMPRESSED = b"\0", b"\1"
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
_threads = threading.local()


def pack(data: bytes) -> bytes:
    """The bytes to store: compressed if that makes them smaller."""
    if len(data) < _MIN_COMPRESSED_BYTES:
        return _PLAIN + data
    compressed = _compress(data)
    return _COMPRESSED + compressed if len(compressed) < len(data) else _PLAIN + data


def _compress(data: bytes) -> bytes:
    """Compress with this thread's compressor: creating one takes longer than using it."""
    compressor = getattr(_threads, "compressor", None)
    if compressor is None:
        compressor = zstd.ZstdCompressor(options=_OPTIONS, zstd_dict=_dictionary())
        _threads.compressor = compressor
    return compressor.compress(data, compressor.FLUSH_FRAME)


def unpack(data: object) -> bytes:
    """The original bytes. Raises ValueError if the data is damaged."""
    stored = blob(data)
    kind, body = stored[:1], stored[1:]
    try:
        if kind == _PLAIN:
            return body
        if kind == _COMPRESSED:
            return zstd.decompress(body, zstd_dict=_dictionary())
    except zstd.ZstdError as error:
        raise ValueError(f"damaged: {error}") from None
    raise ValueError("damaged: unknown compression")


def blob(data: object) -> bytes:
    """The bytes of a column. Raises ValueError if a damaged row has another type."""
    if not isinstance(data, bytes):
        raise ValueError("damaged: a row has no content")  # noqa: TRY004 - bad data, not a bad argument
    return data


@cache
def _dictionary() -> Any:
    """The dictionary of shared text. Stored rows depend on it, so it must never change."""
    data = files("foldmark.store").joinpath("shapes-1.json").read_bytes()
    return zstd.ZstdDict(data, is_raw=True)


# The key is computed from session and index, so that no second database index is needed.
_MESSAGES_PER_SESSION = 2**32


def key_at(session: int, index: int) -> int:
    """The key of the message at an index of a session, whether or not it exists."""
    return session * _MESSAGES_PER_SESSION + index


# --- texts in columns ----------------------------------------------------------------------


def column(text: str | None) -> str | None:
    """Text that every engine can store in a column; `from_column` restores it."""
    if text is None or (text == clean(text) and not text.startswith('"')):
        return text
    return json.dumps(text)


def from_column(text: str | None) -> str | None:
    """The original text of a column."""
    return json.loads(text) if text is not None and text.startswith('"') else text


def clean(text: str) -> str:
    """Text without the characters that UTF-8 or SQL cannot store."""
    if text.isprintable():
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


# --- the marks of one prune, stored as one value so that thousands cost no more than one ---


class Marks(Frozen):
    """Marked ordinals in ascending order, each as the distance from the one before."""

    steps: list[int]
    at: list[Number] | Number  # times: one for each, or one for all


_decode = msgspec.json.Decoder(Marks).decode


def pack_marks(ordinals: Iterable[int], at: list[Number] | Number) -> tuple[bytes, int]:
    """The marks as stored bytes, and the highest ordinal among them.

    If each mark has its own time, ordinals and times must be sorted alike.
    """
    ordered = sorted(ordinals)
    steps = [ordered[0], *map(sub, ordered[1:], ordered)]
    return pack(msgspec.json.encode(Marks(steps=steps, at=at))), ordered[-1]


def unpack_marks(data: object) -> dict[int, Number]:
    """The time of each marked ordinal."""
    stored = _decode(unpack(data))
    marks: dict[int, Number] = {}
    ordinal = 0
    for index, step in enumerate(stored.steps):
        ordinal += step
        marks[ordinal] = stored.at[index] if isinstance(stored.at, list) else stored.at
    return marks
