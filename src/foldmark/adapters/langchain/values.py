"""Values of LangChain's messages as JSON and back: what has no JSON of its own is marked.

Knows nothing of messages. What is no value at all, such as an open file, is kept as its words.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from foldmark.model.values import Json

_BYTES, _TUPLE, _MEANT = "$bytes", "$tuple", "$dict"  # the last: a dict that looks like a mark
_HOLE = "$hole"  # a value that is kept elsewhere
_MARKS = frozenset({_BYTES, _TUPLE, _MEANT, _HOLE})
_DEEPEST = 64


def stored(value: object, depth: int = 0, *, hole: object = None) -> Any:
    """JSON of a value, from which `restored` makes an equal one; without `hole`, wherever it is."""
    if hole is not None and value == hole:
        return {_HOLE: True}
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # LangChain's own kind of text is one, and more
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if depth > _DEEPEST:
        return repr(value)[:200]
    return _stored_many(value, depth + 1, hole)


def _stored_many(value: object, depth: int, hole: object) -> Any:
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        kept = {str(name): stored(held, depth, hole=hole) for name, held in fields.items()}
        return {_MEANT: kept} if _is_mark({str(name): None for name in fields}) else kept
    if isinstance(value, list | tuple):
        items = [stored(held, depth, hole=hole) for held in cast("list[object]", value)]
        return items if isinstance(value, list) else {_TUPLE: items}
    dump = getattr(value, "model_dump", None)
    return stored(dump(), depth, hole=hole) if callable(dump) else str(value)


def restored(value: object, hole: object = None) -> Any:
    """The value that `stored` made this JSON of."""
    if isinstance(value, list):
        return [restored(held, hole) for held in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Json", value)
    if not _is_mark(fields):
        return {name: restored(held, hole) for name, held in fields.items()}
    ((mark, held),) = fields.items()
    return hole if mark == _HOLE else _unmarked(mark, held, hole)


def _unmarked(mark: str, held: object, hole: object) -> Any:
    if mark == _BYTES and isinstance(held, str):
        with suppress(ValueError):
            return b64decode(held)
    if mark == _TUPLE and isinstance(held, list):
        return tuple(restored(one, hole) for one in cast("list[object]", held))
    if mark == _MEANT and isinstance(held, dict):
        return {name: restored(one, hole) for name, one in cast("Json", held).items()}
    return {mark: held}


def _is_mark(fields: Json) -> bool:
    return len(fields) == 1 and next(iter(fields)) in _MARKS
