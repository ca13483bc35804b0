"""Convert dicts and objects of the providers' SDKs to plain JSON values."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast

from foldmark.errors import BadInput
from foldmark.model.values import Json

_MAX_DEPTH = 200


def plain(value: object) -> Any:
    """The plain JSON of a value. Raises BadInput if it has none."""
    return _plain(value, 0)


def plain_object(value: object) -> Json:
    """The plain JSON of a value that must be an object."""
    result = plain(value)
    if not isinstance(result, dict):
        raise BadInput(f"an object is expected, not {type(value).__name__}")
    return cast("Json", result)


def plain_objects(values: object) -> list[Json]:
    """The plain JSON of a list of objects."""
    is_one = isinstance(values, str | bytes | Mapping) or is_sdk_object(values)
    if is_one or not isinstance(values, Iterable):
        kind = type(cast("object", values)).__name__
        raise BadInput(f"a list of messages is expected, not {kind}")
    return [plain_object(value) for value in cast("Iterable[object]", values)]


def is_sdk_object(value: object) -> bool:
    """Whether a value is an object of an official SDK, that is a pydantic model."""
    return hasattr(value, "model_dump")


def _plain(value: object, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise BadInput("nested too deeply")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # enumerations of SDKs are subclasses of str
    if isinstance(value, bytes):
        # Signatures in dicts of Gemini's SDK; its objects dump them in the same alphabet.
        return urlsafe_b64encode(value).decode()
    if isinstance(value, dict):
        return _plain_dict(cast("dict[object, object]", value), depth)
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in cast("list[object]", value)]
    return _plain_sdk_object(value, depth)


def _plain_dict(value: dict[object, object], depth: int) -> Json:
    fields: Json = {}
    for name, item in value.items():
        if not isinstance(name, str):
            raise BadInput(f"the name of a field must be a string, not {type(name).__name__}")
        fields[name] = _plain(item, depth + 1)
    return fields


def _plain_sdk_object(value: object, depth: int) -> Any:
    """The plain JSON of an SDK object, a pydantic model; fields that are unset stay absent."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise BadInput(f"{type(value).__name__} is neither JSON nor an SDK object")
    try:
        # An API may reply in shapes that its SDK does not know yet: no reason to warn.
        fields = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{type(value).__name__} cannot be written as JSON: {error}") from None
    # A role that is a class default counts as unset, but is needed.
    role = getattr(value, "role", None)
    result: object = _plain(fields, depth + 1)
    if isinstance(role, str) and isinstance(result, dict):
        return {"role": str.__str__(role), **cast("Json", result)}
    return result
