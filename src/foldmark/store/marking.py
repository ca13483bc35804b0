"""The marks of one prune, kept with it as one value: to set thousands costs what one costs."""

from collections.abc import Iterable
from operator import sub

import msgspec

from foldmark.model.messages import Number
from foldmark.model.values import Frozen

from .encoding import packed, unpacked


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


def unpacked_marks(data: bytes) -> dict[int, Number]:
    """The marks that were kept."""
    held = _decode(unpacked(data))
    marks: dict[int, Number] = {}
    ordinal = 0
    for place, step in enumerate(held.steps):
        ordinal += step
        marks[ordinal] = held.at[place] if isinstance(held.at, list) else held.at
    return marks
