"""How JSON is kept: long texts apart, by their content; the rest compressed.

A long text becomes a short reference in the JSON and a body of its own, which equal texts
share, whoever said them. A reference begins with a private-use character; a text that begins with
it by chance becomes a body too, so that none is taken for the other.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, cast

import msgspec

from foldmark.values import Frozen, Json, encode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LONG = 2_048  # characters; shorter texts stay where they are
_REFERENCE = "\ue001"
# A key of an object is never a reference.
_FOUND = re.compile('"\ue001([0-9a-f]+)"(?!:)'.encode())
_SIGN = _REFERENCE.encode()
# Below this, what compression saves is not worth its time.
_WORTH_IT = 128
_PLAIN, _PACKED, _SHAPED = b"\0", b"\1", b"\2"


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


def hollowed(data: bytes) -> tuple[bytes, dict[bytes, Body]]:
    """JSON with references in place of its long texts, by digest for now; and these texts."""
    if len(data) <= LONG and _SIGN not in data:
        return data, {}
    bodies: dict[bytes, Body] = {}
    plain = _hollow(_loads(data), bodies)
    return (encode(plain), bodies) if bodies else (data, {})


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # half of a surrogate pair
        import json  # noqa: PLC0415 - hardly ever needed

        return json.loads(data)


def _hollow(value: Any, bodies: dict[bytes, Body]) -> Any:
    match value:
        case str():
            if len(value) <= LONG and not value.startswith(_REFERENCE):
                return value
            data = as_bytes(value)
            digest = blake2b(data, digest_size=16).digest()
            bodies[digest] = Body(digest=digest, data=data)
            return _REFERENCE + digest.hex()
        case dict():
            held = cast("Json", value)
            return {key: _hollow(item, bodies) for key, item in held.items()}
        case list():
            return [_hollow(item, bodies) for item in cast("list[Any]", value)]
        case _:
            return value


def with_keys(data: bytes, keys: Mapping[bytes, int]) -> bytes:
    """Hollowed JSON with the keys that a store gave to its bodies in place of their digests."""
    return _FOUND.sub(lambda found: _quoted(keys[bytes.fromhex(found[1].decode())]), data)


def _quoted(key: int) -> bytes:
    return f'"{_REFERENCE}{key:x}"'.encode()


def referred(data: bytes) -> Iterator[int]:
    """The keys of the bodies that stored JSON refers to."""
    if _SIGN in data:
        yield from (int(found, 16) for found in _FOUND.findall(data))


def filled(data: bytes, body: Callable[[int], bytes]) -> bytes:
    """Stored JSON with its long texts back in their places."""
    if _SIGN not in data:
        return data
    return _FOUND.sub(lambda found: encode(as_text(body(int(found[1], 16)))), data)


# --- compression ---------------------------------------------------------------------------


def packed(data: bytes) -> bytes:
    """The bytes as they are kept: compressed, where that is worth it."""
    if len(data) < _WORTH_IT:
        return _PLAIN + data
    smaller = zstd.compress(data, options=_options(), zstd_dict=_shapes())
    return _SHAPED + smaller if len(smaller) < len(data) else _PLAIN + data


def packed_body(data: bytes) -> bytes:
    """The same for a long text, which needs no dictionary."""
    smaller = zstd.compress(data, options=_options())
    return _PACKED + smaller if len(smaller) < len(data) else _PLAIN + data


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


@cache
def _options() -> Mapping[int, int]:
    level = zstd.CompressionParameter.compression_level
    return {level: 3, zstd.CompressionParameter.checksum_flag: 1}


@cache
def _shapes() -> Any:
    """What messages have in common. What was kept with it needs it: it must never change."""
    data = files("foldmark.io").joinpath("shapes-1.json").read_bytes()
    return zstd.ZstdDict(data, is_raw=True)
