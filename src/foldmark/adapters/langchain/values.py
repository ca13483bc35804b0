"""Converts values of LangChain's messages to JSON and back; bytes and tuples are marked.

It does not know messages. Objects without a value, such as an open file, become their `str()`.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from foldmark.model.values import Json

_BYTES, _TUPLE, _DICT = "$bytes", "$tuple", "$dict"  # the last: a dict that looks like a marker
_HOLE = "$hole"  # a value that is stored elsewhere
_MARKS = frozenset({_BYTES, _TUPLE, _DICT, _HOLE})
_MAX_DEPTH = 64


def to_json(value: object, depth: int = 0, *, hole: object = None) -> Any:
    """JSON from which `from_json` restores the value; values equal to `hole` are left out."""
    if hole is not None and value == hole:
        return {_HOLE: True}
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # LangChain has a subclass of str
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if depth > _MAX_DEPTH:
        return repr(value)[:200]
    return _container_to_json(value, depth + 1, hole)


def _container_to_json(value: object, depth: int, hole: object) -> Any:
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        entries = {str(name): to_json(item, depth, hole=hole) for name, item in fields.items()}
        return {_DICT: entries} if _is_mark({str(name): None for name in fields}) else entries
    if isinstance(value, list | tuple):
        items = [to_json(item, depth, hole=hole) for item in cast("list[object]", value)]
        return items if isinstance(value, list) else {_TUPLE: items}
    dump = getattr(value, "model_dump", None)
    return to_json(dump(), depth, hole=hole) if callable(dump) else str(value)


def from_json(value: object, hole: object = None) -> Any:
    """The value of JSON that `to_json` returned, with `hole` filled in."""
    if isinstance(value, list):
        return [from_json(item, hole) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Json", value)
    if not _is_mark(fields):
        return {name: from_json(item, hole) for name, item in fields.items()}
    ((mark, item),) = fields.items()
    return hole if mark == _HOLE else _decode_marked(mark, item, hole)


def _decode_marked(mark: str, content: object, hole: object) -> Any:
    if mark == _BYTES and isinstance(content, str):
        with suppress(ValueError):
            return b64decode(content)
    if mark == _TUPLE and isinstance(content, list):
        return tuple(from_json(item, hole) for item in cast("list[object]", content))
    if mark == _DICT and isinstance(content, dict):
        return {name: from_json(item, hole) for name, item in cast("Json", content).items()}
    return {mark: content}


def _is_mark(fields: Json) -> bool:
    return len(fields) == 1 and next(iter(fields)) in _MARKS
