"""How JSON is kept: long texts apart, by their content; the rest compressed.

A long text becomes a short reference in the JSON and a body of its own, which equal texts
share, whoever said them. A reference begins with a private-use character; a text that begins with
it by chance becomes a body too, so that none is taken for the other.
"""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, cast

import msgspec

from foldmark.model.values import Frozen, encode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LONG = 2_048  # bytes of JSON; shorter texts stay where they are
_REFERENCE = "\ue001"
_SIGN = _REFERENCE.encode()
_RARE = _SIGN[0]  # the byte that private-use characters alone begin with: quickly looked for
# A key of an object is never a reference, nor is what follows a quote within a text. It begins
# with what is rare: to look for every quote would take many times as long.
_FOUND = re.compile(rb'%b(?<="%b)(?<!\\"%b)([0-9a-f]+)"(?!:)' % (_SIGN, _SIGN, _SIGN))
# In JSON whose escaped quotes are hidden: what is long between two quotes, or looks like ours.
_LONG = re.compile(rb'"[^"]{%d,}(?=")' % (LONG + 1))
_LONG_OR_OURS = re.compile(rb'"(?:%b[^"]*|[^"]{%d,})(?=")' % (_SIGN, LONG + 1))
# Below this, what compression saves is not worth its time.
_WORTH_IT = 128
_PLAIN, _PACKED, _SHAPED = b"\0", b"\1", b"\2"
_threads = threading.local()


class Body(Frozen, gc=False):
    """A long text by its content."""

    digest: bytes
    data: bytes  # UTF-8, not compressed

    @property
    def text(self) -> str:
        """The text."""
        return as_text(self.data)


def as_bytes(text: str) -> bytes:
    """The bytes of a text; half a surrogate pair, which UTF-8 does not know, is kept."""
    return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    """The text of such bytes."""
    return data.decode("utf-8", "surrogatepass")


def hollowed(data: bytes) -> tuple[list[bytes], list[Body]]:
    """The JSON before, between and after its long texts; and these texts, in their order.

    It is not parsed: in JSON that we wrote, a quote that is not escaped begins or ends a text.
    """
    odd = _RARE in data and _SIGN in data
    if len(data) <= 2 * LONG and not odd:
        return [data], []
    pieces: list[bytes] = []
    bodies: list[Body] = []
    done = 0
    for start, end in _texts(_masked(data), _LONG_OR_OURS if odd else _LONG):
        if not data.startswith(b":", end):  # the key of an object
            pieces.append(data[done:start])
            bodies.append(_body(data[start:end]))
            done = end
    pieces.append(data[done:])
    return pieces, bodies


def _masked(data: bytes) -> bytes:
    """JSON of the same length in which every quote begins or ends a text."""
    if b'\\\\"' in data:  # where a backslash is none of the quote's
        data = data.replace(b"\\\\", b"\0\0")
    return data.replace(b'\\"', b"\0\0")


def _texts(masked: bytes, wanted: "re.Pattern[bytes]") -> Iterator[tuple[int, int]]:
    """Where texts that are wanted begin and end, their quotes included."""
    quotes = done = 0
    for found in wanted.finditer(masked):
        start = found.start()
        quotes += masked.count(b'"', done, start)
        done = start
        if quotes % 2 == 0:  # else it lies between two texts: a long row of numbers
            yield start, found.end() + 1


def _body(quoted: bytes) -> Body:
    if b"\\" not in quoted:
        data = quoted[1:-1]
    else:
        try:
            data = as_bytes(msgspec.json.decode(quoted, type=str))
        except msgspec.DecodeError:  # half of a surrogate pair
            data = as_bytes(cast("str", json.loads(quoted)))
    return Body(digest=blake2b(data, digest_size=16).digest(), data=data)


def with_keys(pieces: Sequence[bytes], keys: Iterable[int]) -> bytes:
    """The same JSON in one, with references to its long texts by the keys that a store gave."""
    whole = [pieces[0]]
    for key, piece in zip(keys, pieces[1:], strict=True):
        whole += (f'"{_REFERENCE}{key:x}"'.encode(), piece)
    return b"".join(whole)


def referred(data: bytes) -> Iterator[int]:
    """The keys of the bodies that stored JSON refers to."""
    if _SIGN in data:
        yield from (int(found, 16) for found in _FOUND.findall(data))


def filled(data: bytes, body: Callable[[int], bytes]) -> bytes:
    """Stored JSON with its long texts back in their places."""
    if _SIGN not in data:
        return data
    return _FOUND.sub(lambda found: encode(as_text(body(int(found[1], 16))))[1:], data)


# --- compression ---------------------------------------------------------------------------


def packed(data: bytes) -> bytes:
    """The bytes as they are kept: compressed, where that is worth it."""
    if len(data) < _WORTH_IT:
        return _PLAIN + data
    smaller = _compressed(data, shaped=True)
    return _SHAPED + smaller if len(smaller) < len(data) else _PLAIN + data


def packed_body(data: bytes) -> bytes:
    """The same for a long text, which needs no dictionary."""
    smaller = _compressed(data, shaped=False)
    return _PACKED + smaller if len(smaller) < len(data) else _PLAIN + data


def _compressed(data: bytes, *, shaped: bool) -> bytes:
    """To make a compressor takes longer than to use it, so each thread keeps its own."""
    name = "shaped" if shaped else "plain"
    held = getattr(_threads, name, None)
    if held is None:
        level = 1 if shaped else 3  # what is small hardly shrinks more, and is written often
        given = _shapes() if shaped else None
        held = zstd.ZstdCompressor(options=_options(level), zstd_dict=given)
        setattr(_threads, name, held)
    return held.compress(data, held.FLUSH_FRAME)


def unpacked(data: bytes) -> bytes:
    """The bytes as they were; ValueError where they are not ours."""
    kind, rest = data[:1], data[1:]
    try:
        if kind == _PLAIN:
            return rest
        if kind == _PACKED:
            return zstd.decompress(rest)
        if kind == _SHAPED:
            return zstd.decompress(rest, zstd_dict=_shapes())
    except zstd.ZstdError as error:
        raise ValueError(f"damaged: {error}") from None
    raise ValueError("damaged: an unknown kind of compression")


def _options(level: int) -> Mapping[int, int]:
    names = zstd.CompressionParameter
    return {names.compression_level: level, names.checksum_flag: 1}


@cache
def _shapes() -> Any:
    """What messages have in common. What was kept with it needs it: it must never change."""
    data = files("foldmark.store").joinpath("shapes-1.json").read_bytes()
    return zstd.ZstdDict(data, is_raw=True)
