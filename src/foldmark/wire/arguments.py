"""Arguments of calls: JSON inside a text, as models write it."""

import json
from typing import cast

import msgspec

from foldmark.errors import BadInput
from foldmark.model.values import Json

from .plain import plain_object

ARGUMENTS = "arguments"  # as they came, where compact JSON would not give the same
_MOST_BRACKETS = 100  # a text with fewer cannot be nested too deeply


def compact(value: object) -> str:
    """JSON as models write arguments."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise BadInput("nested too deeply, or a number too long") from None


def arguments_object(arguments: str) -> Json | None:
    """The object that arguments hold; None where a model wrote no such JSON."""
    try:
        found: object = msgspec.json.decode(arguments)
        if not isinstance(found, dict):
            return None
        if arguments.count("{") + arguments.count("[") < _MOST_BRACKETS:
            return cast("Json", found)
        return plain_object(cast("object", found))
    except (ValueError, RecursionError, BadInput):
        return None


def arguments_input(arguments: str) -> Json:
    """The input that arguments say."""
    found = arguments_object(arguments)
    if found is not None:
        return found
    # Where there are no arguments some write nothing; models write JSON that is broken.
    return {ARGUMENTS: arguments} if arguments.strip() else {}
