"""Wires: the providers' own forms of messages, read and written without loss.

`decode` and `encode` are for whole lists as they are; `request` is for what a view shows, so that
a provider takes it; `decode_reply` and `encode_reply` are for responses.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, Message, Origin
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Json

from .lists import Decoded, as_shown, read_list, write_list
from .model import Wire, options
from .plain import plain_object, plain_objects

__all__ = [
    "WIRES",
    "Decoded",
    "candidates",
    "decode",
    "decode_reply",
    "encode",
    "encode_reply",
    "recognised",
    "reply_candidates",
    "request",
    "wire_named",
]

_HOMES = {
    "openai-chat": ("openai_chat", "OpenAIChat"),
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "gemini": ("gemini", "Gemini"),
}
WIRES = tuple(_HOMES)
_ALIASES = {
    "openai": "openai-chat",
    "chat": "openai-chat",
    "responses": "openai-responses",
    "anthropic-messages": "anthropic",
    "google": "gemini",
}
_REPLY = "reply"


@cache
def _codec(name: str) -> Wire:
    module, kind = _HOMES[name]
    return cast("Wire", getattr(import_module(f".{module}", __name__), kind)())


def wire_named(name: str) -> Wire:
    """The codec of this name; BadInput names those that there are."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"a wire is named by a text, not {type(name).__name__}")
    found = name.strip().lower().replace("_", "-")
    found = _ALIASES.get(found, found)
    if found not in _HOMES:
        raise BadInput(f"there is no wire {name!r}; there are: {', '.join(WIRES)}")
    return _codec(found)


def candidates(messages: Sequence[Json]) -> list[Wire]:
    """The wires that a list can be of; prompts and what is of none leave it to the others."""
    codecs = [_codec(name) for name in WIRES]
    found = [codec for codec in codecs if codec.recognises(messages)]
    if found or not messages:
        return found
    telling = [
        held
        for held in messages
        if held.get("role") != "system" and any(codec.recognises([held]) for codec in codecs)
    ]
    return [codec for codec in codecs if telling and codec.recognises(telling)]


def decode(messages: Iterable[object], wire: str | None = None) -> Decoded:
    """Our messages for a list of a wire's, dicts or an SDK's objects; nothing of them is lost."""
    given = plain_objects(messages)
    return read_list(wire_named(wire) if wire else recognised(given), given)


def encode(messages: Iterable[Message], wire: str, origin: Origin | None = None) -> list[Json]:
    """The list that `decode` was given; messages of other wires as they are, nothing mended."""
    return write_list(wire_named(wire), messages, origin)


def request(shown: Iterable[PromptMessage], wire: str, system: str = "") -> list[Json]:
    """The messages of a request, for what a view shows, as this wire's provider takes them."""
    codec = wire_named(wire)
    shown = tuple(shown)
    if not all(isinstance(message, PromptMessage) for message in shown):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(
            "a request is made of what a view shows: Viewer(log, policy).view().messages; "
            "messages as they are, for which there is encode, are no view"
        )
    return [*(codec.system(system) if system else []), *codec.write(tuple(shown), as_is=False)]


def decode_reply(response: object, wire: str | None = None) -> Message:
    """The answer that a response holds, with what was measured; nothing of it is lost."""
    given = plain_object(response)
    codec = wire_named(wire) if wire else _recognised_reply(given)
    reply = codec.read_reply(given)
    kept = {codec.key: {**reply.read.rest, _REPLY: reply.rest}}
    info = AssistantInfo(
        id=reply.read.id or "msg_reply",
        provider_id=codec.provider,
        model_id=reply.model or UNSET,
        tokens=reply.tokens or UNSET,
        finish=reply.finish,
        wire=kept,
    )
    message = Message(info=info, parts=reply.read.parts)
    if _written(codec, message, reply.rest) == given:
        return message
    # What is odd is kept whole beside it.
    kept = {codec.key: {**reply.read.rest, _REPLY: given, "whole": True}}
    return Message(info=replace(info, wire=kept), parts=reply.read.parts)


def encode_reply(message: Message, wire: str) -> Json:
    """The response that `decode_reply` was given, if the answer still is what it was."""
    codec = wire_named(wire)
    own = options(message.info.wire, codec.key)
    rest = options(own, _REPLY)
    if _REPLY not in own:
        raise BadInput(f"message {message.id!r} did not come from a response of {codec.name}")
    return rest if own.get("whole") else _written(codec, message, rest)


def _written(codec: Wire, message: Message, rest: Json) -> Json:
    return codec.write_reply(as_shown(message, codec.key)[:1], rest)


def recognised(messages: Sequence[Json]) -> Wire:
    """The one wire that a list can be of; BadInput where there is none, or more than one."""
    found = candidates(messages)
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadInput(f"this list is of no wire that is known ({', '.join(WIRES)}); give wire=…")
    raise BadInput(f"this list can be of {_names(found)}; say which: wire=…")


def reply_candidates(response: Json) -> list[Wire]:
    """The wires that a response can be of."""
    codecs = [_codec(name) for name in WIRES]
    return [
        codec
        for codec in codecs
        # Anthropic's is a message as well; items of the Responses API only look like one.
        if codec.recognises_reply(response)
        and ("role" not in response or codec.recognises([response]))
    ]


def _recognised_reply(response: Json) -> Wire:
    found = reply_candidates(response)
    if len(found) == 1:
        return found[0]
    if not found:
        cause = f"this is no response of a wire that is known ({', '.join(WIRES)}); give wire=…"
        raise BadInput(cause)
    raise BadInput(f"this response can be of {_names(found)}; say which: wire=…")


def _names(wires: Sequence[Wire]) -> str:
    return " or ".join(wire.name for wire in wires)
