"""Of which wire a list is: by its newest and first messages, or by the few of all that tell.

Most lists tell it by what a tool gave back. A list of texts alone can be of several wires, and is
the same on all of them.
"""

from collections.abc import Sequence
from typing import cast

from foldmark.model.values import Json

from . import candidates, recognised, wire_named
from .model import Wire
from .plain import plain_object

_SAMPLE = 24


def wire_of(messages: Sequence[object]) -> Wire:
    """The wire of a list, or one of those of which it can be; BadInput where there is none."""
    return wires_of(messages)[0]


def wires_of(messages: Sequence[object]) -> list[Wire]:
    """The wires of which a list can be; BadInput where there is none."""
    sample = [*messages[:4], *messages[max(4, len(messages) - _SAMPLE) :]]
    telling = [message for message in sample if not _is_bare(message)]
    roles = (cast("Json", held).get("role") for held in telling if type(held) is dict)
    if "tool" in roles:
        return [wire_named("openai-chat")]  # no other wire has it
    if not telling:
        telling = [message for message in messages if not _is_bare(message)][:_SAMPLE]
    found = candidates([_plain(message) for message in telling or sample])
    return found or [recognised([plain_object(message) for message in messages])]


def _is_bare(message: object) -> bool:
    """Whether it has nothing but a role and a text."""
    if type(message) is not dict:
        return False
    held = cast("Json", message)
    return len(held) == 2 and type(held.get("content")) is str


def _plain(message: object) -> Json:
    return cast("Json", message) if _is_bare(message) else plain_object(message)
