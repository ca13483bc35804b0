"""Frozen JSON values that keep what they do not know.

A field that a `Value` does not declare, or a null where it declares something else, is kept in
`extra` and written back with the rest: the same JSON value comes out. Known JSON is decoded in one
pass by msgspec; only a document with something unknown in it takes the second, slower way.
This module knows nothing of messages.
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

# Our own key and tag begin with a private-use character, by which they are found in encoded JSON.
_OURS = "\ue000"
EXTRA = f"{_OURS}extra"
OTHER = f"{_OURS}other"
_OURS_ENCODED = _OURS.encode()
_RARE = _OURS_ENCODED[0]  # one byte is looked for many times as fast as three
NEWLINE = b"\n"
# JavaScript writes half of a surrogate pair where it cut a text there; msgspec refuses that.
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
    """Makes every subclass frozen with keyword arguments, without each having to say so."""

    def __new__(cls, *space: Any, **config: Any) -> Any:
        return super().__new__(cls, *space, **{"kw_only": True, **config})


class Frozen(Struct, metaclass=_Frozen, frozen=True):
    """The base of values that are ours alone and never read from elsewhere."""


class Extra(dict[str, Any]):
    """JSON that is kept as it came.

    A type that msgspec does not know, so that it refuses our own key where a document holds it
    by chance or malice: such a document takes the slower way, on which it is mere data.
    """


class Value(Frozen, omit_defaults=True, forbid_unknown_fields=True, gc=False, rename=WIRE_NAMES):
    """The base of values from JSON: absent fields are UNSET (falsy), unknown ones in `extra`."""

    extra: Extra | UnsetType = UNSET


class Other(Value, tag_field="type", tag=OTHER):
    """A tagged value of a kind that we do not know, kept as it came."""

    data: Extra


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A function that decodes JSON of this kind and loses nothing of it."""
    strict = msgspec.json.Decoder(kind)

    def decode(data: bytes) -> T:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return strict.decode(data)
        return from_plain(parse_json(data), kind)

    return decode


def from_plain(data: object, kind: type[T]) -> T:
    """The value of this kind that plain JSON data stands for."""
    try:
        return msgspec.convert(_absorbed(data, _shape(kind)), kind)
    except msgspec.ValidationError as error:
        cause, _, path = str(error).partition(" - at ")
        raise BadInput(cause, location=path.strip("`") or None) from None
    except UnicodeEncodeError:  # msgspec cannot quote half a character where it refuses it
        raise BadInput("half of a character where none is expected") from None


def encode(value: object) -> bytes:
    """The compact JSON of a value, unknown fields included."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain = to_plain(value)
        return json.dumps(plain, separators=(",", ":"), default=msgspec.to_builtins).encode()
    if _RARE in data and _OURS_ENCODED in data:
        return msgspec.json.encode(to_plain(value))
    return data


def to_plain(value: object) -> Any:
    """Plain JSON data of a value, unknown fields included."""
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
        case Mapping():  # JSON that we were given: nothing in it is ours
            return cast("Json", value)
        case _:
            return value


def _fields(value: Value) -> Iterator[tuple[str, Any]]:
    config = value.__struct_config__
    if config.tag_field is not None:
        yield config.tag_field, config.tag
    for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        held = getattr(value, name)
        if held is not UNSET and name != "extra":
            yield wire, to_plain(held)


def sum_fields(structs: Sequence[S]) -> S:
    """Structs added field by field; what some of them lack is the sum of the others."""
    names = structs[0].__struct_fields__
    return replace(
        structs[0], **{name: _sum([getattr(one, name) for one in structs]) for name in names}
    )


def _sum(values: list[Any]) -> Any:
    """Figures are summed, tuples joined, tables tallied; of other values it is the first."""
    known = [value for value in values if value is not None and value is not UNSET]
    match known:
        case [Struct(), *_]:
            return sum_fields(known)
        case [int() | float(), *_]:
            return sum(known)
        case [tuple(), *_]:
            return tuple(chain.from_iterable(known))
        case [dict(), *_]:
            tally: Counter[str] = Counter()
            for table in known:
                tally.update(table)
            return dict(tally.most_common())
        case _:
            return known[0] if known else values[0]


def parse_json(data: bytes) -> object:
    """Plain JSON data; BadInput says where it is none."""
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
    raise ValueError(f"{constant} is no JSON")


def _line(data: bytes, problem: str) -> str:
    """Where a parser's problem lies: it tells the byte, or that the input ended too early."""
    _, found, rest = problem.rpartition("(byte ")
    end = int(rest.rstrip(")")) if found else len(data.rstrip())
    return f"line {data.count(NEWLINE, 0, end) + 1}"


@cache
def _shape(kind: Any) -> shapes.Type:
    return shapes.type_info(kind)


@cache
def _field_shapes(kind: type[Struct]) -> dict[str, shapes.Type]:
    shape = cast("shapes.StructType", shapes.type_info(kind))
    return {field.encode_name: field.type for field in shape.fields if field.name != "extra"}


def _absorbed(data: object, shape: shapes.Type) -> object:
    """The same data with what a shape does not declare moved under EXTRA."""
    match shape:
        case shapes.StructType():
            return _absorbed_struct(data, shape)
        case shapes.UnionType(types=types):
            return _absorbed_union(data, types)
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            if isinstance(data, list):
                return [_absorbed(entry, item) for entry in cast("list[object]", data)]
            return data
        case _:
            return data


def _absorbed_struct(data: object, shape: shapes.StructType) -> object:
    if not isinstance(data, dict):
        return data
    known = _field_shapes(shape.cls)
    kept: Json = {}
    extra = Extra()
    for key, held in cast("Json", data).items():
        if key in known and held is not None:
            kept[key] = _absorbed(held, known[key])
        elif key == shape.tag_field:
            kept[key] = held
        else:
            extra[key] = held
    if extra:
        kept[EXTRA] = extra
    return kept


def _absorbed_union(data: object, types: tuple[shapes.Type, ...]) -> object:
    for kind in types:
        if isinstance(kind, shapes.VarTupleType):
            return _absorbed(data, kind)
        if isinstance(kind, shapes.StructType) and _tag_agrees(data, kind):
            return _absorbed_struct(data, kind)
    if any(getattr(kind, "cls", None) is Other for kind in types) and isinstance(data, dict):
        fields = Extra(cast("Json", data))
        return {"type": OTHER, "data": fields} if isinstance(fields.get("type"), str) else fields
    return data


def _tag_agrees(data: object, shape: shapes.StructType) -> bool:
    if shape.tag_field is None:
        return True
    return isinstance(data, dict) and cast("Json", data).get(shape.tag_field) == shape.tag
