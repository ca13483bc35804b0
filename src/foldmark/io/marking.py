"""The marks of one prune, kept with it as one value: to set thousands costs what one costs."""

from operator import sub

import msgspec

from foldmark.messages import Number
from foldmark.values import Frozen

from .packing import packed, unpacked


class Marks(Frozen):
    """Ordinals in their order, each told by its distance from the one before."""

    steps: list[int]
    at: list[Number] | Number  # when: for each, or the same for all


_decode = msgspec.json.Decoder(Marks).decode


def packed_marks(marks: dict[int, Number]) -> tuple[bytes, int]:
    """Marks as they are kept, and the highest ordinal among them."""
    ordinals = sorted(marks)
    steps = [ordinals[0], *map(sub, ordinals[1:], ordinals)]
    times = list(map(marks.__getitem__, ordinals))
    at = times[0] if times.count(times[0]) == len(times) else times
    return packed(msgspec.json.encode(Marks(steps=steps, at=at))), ordinals[-1]


def unpacked_marks(data: bytes) -> dict[int, Number]:
    """The marks that were kept."""
    held = _decode(unpacked(data))
    marks: dict[int, Number] = {}
    ordinal = 0
    for place, step in enumerate(held.steps):
        ordinal += step
        marks[ordinal] = held.at[place] if isinstance(held.at, list) else held.at
    return marks
