"""How rows hold JSON, texts and marks, and the keys of messages.

JSON is one zstd frame, with a dictionary of what messages have in common.
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

# Below this, what compression saves is not worth its time.
_WORTH_IT = 128
_PLAIN, _PACKED = b"\0", b"\1"
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
_threads = threading.local()


def packed(data: bytes) -> bytes:
    """The bytes as they are kept: compressed, where that is worth it."""
    if len(data) < _WORTH_IT:
        return _PLAIN + data
    smaller = _compressed(data)
    return _PACKED + smaller if len(smaller) < len(data) else _PLAIN + data


def _compressed(data: bytes) -> bytes:
    """To make a compressor takes longer than to use it, so each thread keeps its own."""
    held = getattr(_threads, "compressor", None)
    if held is None:
        held = zstd.ZstdCompressor(options=_OPTIONS, zstd_dict=_shapes())
        _threads.compressor = held
    return held.compress(data, held.FLUSH_FRAME)


def unpacked(data: object) -> bytes:
    """The bytes as they were; ValueError where they are not ours."""
    held = blob(data)
    kind, rest = held[:1], held[1:]
    try:
        if kind == _PLAIN:
            return rest
        if kind == _PACKED:
            return zstd.decompress(rest, zstd_dict=_shapes())
    except zstd.ZstdError as error:
        raise ValueError(f"damaged: {error}") from None
    raise ValueError("damaged: an unknown kind of compression")


def blob(data: object) -> bytes:
    """Bytes as a row holds them; ValueError where a damaged row holds anything else."""
    if not isinstance(data, bytes):
        raise ValueError("damaged: a row without content")  # noqa: TRY004 - no mistake of a caller
    return data


@cache
def _shapes() -> Any:
    """What messages have in common. What was kept with it needs it: it must never change."""
    data = files("foldmark.store").joinpath("shapes-1.json").read_bytes()
    return zstd.ZstdDict(data, is_raw=True)


# The key of a message is told by its session and place, so that no second index is needed.
_PLACES = 2**32


def key_at(session: int, place: int) -> int:
    """The key of the message at a place of a session; also where that place would be."""
    return session * _PLACES + place


# --- texts in columns ----------------------------------------------------------------------


def column(text: str | None) -> str | None:
    """A text as every engine can hold it in a column, to be read again by `from_column`."""
    if text is None or (text == clean(text) and not text.startswith('"')):
        return text
    return json.dumps(text)


def from_column(text: str | None) -> str | None:
    """The text that was put into a column."""
    return json.loads(text) if text is not None and text.startswith('"') else text


def clean(text: str) -> str:
    """A text as every engine can hold it in a column: without what UTF-8 or SQL does not know."""
    if text.isprintable():
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


# --- the marks of one prune, as one value: to set thousands costs what one costs -----------


class Marks(Frozen):
    """Ordinals in their order, each told by its distance from the one before."""

    steps: list[int]
    at: list[Number] | Number  # when: for each, or the same for all


_decode = msgspec.json.Decoder(Marks).decode


def packed_marks(ordinals: Iterable[int], at: list[Number] | Number) -> tuple[bytes, int]:
    """Marks as they are kept, and the highest ordinal among them.

    Where each has a time of its own, ordinals and times are in order.
    """
    ordered = sorted(ordinals)
    steps = [ordered[0], *map(sub, ordered[1:], ordered)]
    return packed(msgspec.json.encode(Marks(steps=steps, at=at))), ordered[-1]


def unpacked_marks(data: object) -> dict[int, Number]:
    """The marks that were kept."""
    held = _decode(unpacked(data))
    marks: dict[int, Number] = {}
    ordinal = 0
    for place, step in enumerate(held.steps):
        ordinal += step
        marks[ordinal] = held.at[place] if isinstance(held.at, list) else held.at
    return marks
