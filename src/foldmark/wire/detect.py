"""Of which wire a list or a response is.

Most lists tell it by what a tool gave back. A list of texts alone can be of several wires, and is
the same on all of them. A long list is looked at only in part: its newest and first messages, or
the few of all that tell.
"""

from collections.abc import Sequence
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.values import Json

from .codec import WIRES, Wire, codec_of, wire_named
from .plain import plain_object

_SAMPLE = 24


def candidates(messages: Sequence[Json]) -> list[Wire]:
    """The wires that a list can be of; prompts and what is of none leave it to the others."""
    codecs = [codec_of(name) for name in WIRES]
    found = [codec for codec in codecs if codec.recognises(messages)]
    if found or not messages:
        return found
    telling = [
        held
        for held in messages
        if held.get("role") != "system" and any(codec.recognises([held]) for codec in codecs)
    ]
    return [codec for codec in codecs if telling and codec.recognises(telling)]


def recognised(messages: Sequence[Json]) -> Wire:
    """The one wire that a list can be of; BadInput where there is none, or more than one."""
    return _only(candidates(messages), "list", "this list is of no wire")


def reply_candidates(response: Json) -> list[Wire]:
    """The wires that a response can be of."""
    codecs = [codec_of(name) for name in WIRES]
    return [
        codec
        for codec in codecs
        # Anthropic's is a message as well; items of the Responses API only look like one.
        if codec.recognises_reply(response)
        and ("role" not in response or codec.recognises([response]))
    ]


def recognised_reply(response: Json) -> Wire:
    """The one wire that a response can be of; BadInput where there is none, or more than one."""
    return _only(reply_candidates(response), "response", "this is no response of a wire")


def _only(found: Sequence[Wire], what: str, of_none: str) -> Wire:
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadInput(f"{of_none} that is known ({', '.join(WIRES)}); give wire=…")
    names = " or ".join(wire.name for wire in found)
    raise BadInput(f"this {what} can be of {names}; say which: wire=…")


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
