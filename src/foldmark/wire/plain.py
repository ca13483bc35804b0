"""Plain JSON of what a program has at hand: dicts, or the objects of the providers' SDKs."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast

from foldmark.errors import BadInput
from foldmark.model.values import Json

_DEEPEST = 200


def plain(value: object) -> Any:
    """Plain JSON of a value; BadInput where it is none."""
    return _plain(value, 0)


def plain_object(value: object) -> Json:
    """The same of what must be an object."""
    found = plain(value)
    if not isinstance(found, dict):
        raise BadInput(f"an object is expected, not {type(value).__name__}")
    return cast("Json", found)


def plain_objects(values: object) -> list[Json]:
    """The same of a list of them."""
    is_one = isinstance(values, str | bytes | Mapping) or is_sdk_object(values)
    if is_one or not isinstance(values, Iterable):
        kind = type(cast("object", values)).__name__
        raise BadInput(f"a list of messages is expected, not {kind}")
    return [plain_object(value) for value in cast("Iterable[object]", values)]


def is_sdk_object(value: object) -> bool:
    """Whether this is an object of one of the official SDKs, which are pydantic models."""
    return hasattr(value, "model_dump")


def _plain(value: object, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BadInput("nested too deeply")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an SDK's enumerations are texts, and more
    if isinstance(value, bytes):
        # Dicts of Gemini's SDK hold signatures so; its objects write them in these digits.
        return urlsafe_b64encode(value).decode()
    if isinstance(value, dict):
        return _plain_dict(cast("dict[object, object]", value), depth)
    if isinstance(value, list | tuple):
        return [_plain(held, depth + 1) for held in cast("list[object]", value)]
    return _of_object(value, depth)


def _plain_dict(value: dict[object, object], depth: int) -> Json:
    found: Json = {}
    for name, held in value.items():
        if not isinstance(name, str):
            raise BadInput(f"the name of a field is a text, not {type(name).__name__}")
        found[name] = _plain(held, depth + 1)
    return found


def _of_object(value: object, depth: int) -> Any:
    """The official SDKs' objects are pydantic models; fields that were not given stay absent."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise BadInput(f"{type(value).__name__} is neither JSON nor an SDK's object")
    try:
        # An API may answer in shapes that its SDK does not know yet: no reason to warn.
        found = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{type(value).__name__} cannot be written as JSON: {error}") from None
    # A role that follows from the kind of object is not among the fields that were given.
    role = getattr(value, "role", None)
    read: object = _plain(found, depth + 1)
    if isinstance(role, str) and isinstance(read, dict):
        return {"role": str.__str__(role), **cast("Json", read)}
    return read
