"""Frozen JSON values that preserve unknown fields.

A field that a `Value` does not declare, or a null where another type is declared, goes to `extra`
and is written back, so that encoding returns the same JSON value. msgspec decodes known JSON in
one pass; only documents with unknown fields need the second, slower one.
This module knows nothing about messages.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any, TypeVar, cast, dataclass_transform

import msgspec
from msgspec import UNSET, Struct, StructMeta, UnsetType
from msgspec import inspect as shapes
from msgspec.structs import replace

from foldmark.errors import BadInput

Json = dict[str, Any]
T = TypeVar("T")
S = TypeVar("S", bound=Struct)

# Our own key and tag start with a private-use character, so that encoded JSON can be searched.
_OURS = "\ue000"
EXTRA = f"{_OURS}extra"
OTHER = f"{_OURS}other"
_OURS_ENCODED = _OURS.encode()
_RARE = _OURS_ENCODED[0]  # searching for one byte is many times faster than for three
NEWLINE = b"\n"
# JavaScript writes half a surrogate pair if it truncates a text there; msgspec refuses that.
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")

WIRE_NAMES = {
    "extra": EXTRA,
    "call_id": "callID",
    "message_id": "messageID",
    "model_id": "modelID",
    "parent_id": "parentID",
    "part_id": "partID",
    "project_id": "projectID",
    "provider_id": "providerID",
    "session_id": "sessionID",
}


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _Frozen(StructMeta):
    """Metaclass that makes every subclass frozen and keyword-only by default."""

    def __new__(cls, *space: Any, **config: Any) -> Any:
        return super().__new__(cls, *space, **{"kw_only": True, **config})


class Frozen(Struct, metaclass=_Frozen, frozen=True):
    """Base class of our own values, which are never read from other programs' data."""


class Extra(dict[str, Any]):
    """JSON that is kept unchanged.

    msgspec does not know this type, so its fast path refuses a document that contains our own
    key; the slower path then treats that key as ordinary data.
    """


class Value(Frozen, omit_defaults=True, forbid_unknown_fields=True, gc=False, rename=WIRE_NAMES):
    """Base class of values from JSON: absent fields are UNSET, unknown ones are in `extra`."""

    extra: Extra | UnsetType = UNSET


class Other(Value, tag_field="type", tag=OTHER):
    """A tagged value of an unknown kind, kept unchanged."""

    data: Extra


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A function that decodes JSON of this type without losing unknown fields."""
    strict = msgspec.json.Decoder(kind)

    def decode(data: bytes) -> T:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return strict.decode(data)
        return from_plain(parse_json(data), kind)

    return decode


def from_plain(data: object, kind: type[T]) -> T:
    """Convert plain JSON data to this type; raises BadInput if it does not match."""
    try:
        return msgspec.convert(_absorb(data, _shape(kind)), kind)
    except msgspec.ValidationError as error:
        cause, _, path = str(error).partition(" - at ")
        raise BadInput(cause, location=path.strip("`") or None) from None
    except UnicodeEncodeError:  # msgspec cannot quote half a character in its own error
        raise BadInput("half of a character where none is expected") from None


def encode(value: object) -> bytes:
    """The compact JSON of a value, including unknown fields."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain = to_plain(value)
        return json.dumps(plain, separators=(",", ":"), default=msgspec.to_builtins).encode()
    if _RARE in data and _OURS_ENCODED in data:
        return msgspec.json.encode(to_plain(value))
    return data


def to_plain(value: object) -> Any:
    """Plain JSON data of a value, including unknown fields."""
    match value:
        case Other():
            return value.data
        case Value():
            plain: Json = dict(_fields(value))
            if value.extra:
                plain.update(value.extra)
            return plain
        case tuple() | list():
            return [to_plain(item) for item in cast("tuple[object, ...]", value)]
        case Mapping():  # JSON from elsewhere contains none of our values
            return cast("Json", value)
        case _:
            return value


def _fields(value: Value) -> Iterator[tuple[str, Any]]:
    config = value.__struct_config__
    if config.tag_field is not None:
        yield config.tag_field, config.tag
    for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        field = getattr(value, name)
        if field is not UNSET and name != "extra":
            yield wire, to_plain(field)


def sum_fields(structs: Sequence[S]) -> S:
    """Add structs field by field, ignoring values that are None or UNSET."""
    names = structs[0].__struct_fields__
    return replace(
        structs[0], **{name: _sum([getattr(one, name) for one in structs]) for name in names}
    )


def _sum(values: list[Any]) -> Any:
    """The sum of numbers, joined tuples, or tallied tables; the first of any other values."""
    present = [value for value in values if value is not None and value is not UNSET]
    match present:
        case [Struct(), *_]:
            return sum_fields(present)
        case [int() | float(), *_]:
            return sum(present)
        case [tuple(), *_]:
            return tuple(chain.from_iterable(present))
        case [dict(), *_]:
            tally: Counter[str] = Counter()
            for table in present:
                tally.update(table)
            return dict(tally.most_common())
        case _:
            return present[0] if present else values[0]


def parse_json(data: bytes) -> object:
    """Parse plain JSON data; raises BadInput with the line of the error."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        if HALF_PAIR.search(data):
            with suppress(ValueError, RecursionError):
                return json.loads(data, parse_constant=_refuse)
        cause = str(error).partition(" - at ")[0]
        raise BadInput(cause, location=_line(data, cause)) from None
    except UnicodeDecodeError as error:
        raise BadInput("not UTF-8 text", location=f"byte {error.start}") from None
    except RecursionError:
        raise BadInput("nested too deeply") from None


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _line(data: bytes, problem: str) -> str:
    """The line of a parser's error, which names a byte or says that the input ended too early."""
    _, separator, position = problem.rpartition("(byte ")
    end = int(position.rstrip(")")) if separator else len(data.rstrip())
    return f"line {data.count(NEWLINE, 0, end) + 1}"


@cache
def _shape(kind: Any) -> shapes.Type:
    return shapes.type_info(kind)


@cache
def _field_shapes(kind: type[Struct]) -> dict[str, shapes.Type]:
    shape = cast("shapes.StructType", shapes.type_info(kind))
    return {field.encode_name: field.type for field in shape.fields if field.name != "extra"}


def _absorb(data: object, shape: shapes.Type) -> object:
    """The same data, with fields that the shape does not declare moved under EXTRA."""
    match shape:
        case shapes.StructType():
            return _absorb_struct(data, shape)
        case shapes.UnionType(types=types):
            return _absorb_union(data, types)
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            if isinstance(data, list):
                return [_absorb(entry, item) for entry in cast("list[object]", data)]
            return data
        case _:
            return data


def _absorb_struct(data: object, shape: shapes.StructType) -> object:
    if not isinstance(data, dict):
        return data
    declared = _field_shapes(shape.cls)
    fields: Json = {}
    extra = Extra()
    for key, value in cast("Json", data).items():
        if key in declared and value is not None:
            fields[key] = _absorb(value, declared[key])
        elif key == shape.tag_field:
            fields[key] = value
        else:
            extra[key] = value
    if extra:
        fields[EXTRA] = extra
    return fields


def _absorb_union(data: object, types: tuple[shapes.Type, ...]) -> object:
    for kind in types:
        if isinstance(kind, shapes.VarTupleType):
            return _absorb(data, kind)
        if isinstance(kind, shapes.StructType) and _has_tag_of(data, kind):
            return _absorb_struct(data, kind)
    if any(getattr(kind, "cls", None) is Other for kind in types) and isinstance(data, dict):
        fields = Extra(cast("Json", data))
        return {"type": OTHER, "data": fields} if isinstance(fields.get("type"), str) else fields
    return data


def _has_tag_of(data: object, shape: shapes.StructType) -> bool:
    if shape.tag_field is None:
        return True
    return isinstance(data, dict) and cast("Json", data).get(shape.tag_field) == shape.tag
