"""Recognize the API format of a list of messages or of a response.

Most lists are distinguished by their tool results. A list of plain texts fits several formats and
is the same in all of them. Of a long list only the first and newest messages are examined, or the
few distinctive ones.
"""

from collections.abc import Sequence
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.values import Json

from .codec import WIRES, Codec, codec_named, load_codec
from .plain import plain_object

_SAMPLE = 24


def candidates(messages: Sequence[Json]) -> list[Codec]:
    """The codecs that a list fits; system prompts and messages that fit none are ignored."""
    codecs = [load_codec(name) for name in WIRES]
    matches = [codec for codec in codecs if codec.recognizes(messages)]
    if matches or not messages:
        return matches
    distinctive = [
        message
        for message in messages
        if message.get("role") != "system" and any(codec.recognizes([message]) for codec in codecs)
    ]
    return [codec for codec in codecs if distinctive and codec.recognizes(distinctive)]


def recognize(messages: Sequence[Json]) -> Codec:
    """The only codec that a list fits. Raises BadInput if there is none or more than one."""
    return _only(candidates(messages), "list")


def reply_candidates(response: Json) -> list[Codec]:
    """The codecs that a response fits."""
    codecs = [load_codec(name) for name in WIRES]
    return [
        codec
        for codec in codecs
        # Anthropic's response is also a message; items of the Responses API only look like one.
        if codec.recognizes_reply(response)
        and ("role" not in response or codec.recognizes([response]))
    ]


def recognize_reply(response: Json) -> Codec:
    """The only codec that a response fits. Raises BadInput if there is none or more than one."""
    return _only(reply_candidates(response), "response")


def _only(matches: Sequence[Codec], what: str) -> Codec:
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise BadInput(f"this {what} has no known API format ({', '.join(WIRES)}); pass api=…")
    names = " or ".join(codec.name for codec in matches)
    raise BadInput(f"this {what} can be {names}; pass api=… to choose")


def likely_codec(messages: Sequence[object]) -> Codec:
    """The first codec that a list fits. Raises BadInput if there is none."""
    return likely_codecs(messages)[0]


def likely_codecs(messages: Sequence[object]) -> list[Codec]:
    """The codecs that a list fits. Raises BadInput if there is none."""
    sample = [*messages[:4], *messages[max(4, len(messages) - _SAMPLE) :]]
    distinctive = [message for message in sample if not _is_plain_text(message)]
    roles = (cast("Json", item).get("role") for item in distinctive if type(item) is dict)
    if "tool" in roles:
        return [codec_named("openai-chat")]  # no other format has this role
    if not distinctive:
        distinctive = [message for message in messages if not _is_plain_text(message)][:_SAMPLE]
    matches = candidates([_plain(message) for message in distinctive or sample])
    return matches or [recognize([plain_object(message) for message in messages])]


def _is_plain_text(message: object) -> bool:
    """Whether a message has nothing but a role and a text."""
    if type(message) is not dict:
        return False
    fields = cast("Json", message)
    return len(fields) == 2 and type(fields.get("content")) is str


def _plain(message: object) -> Json:
    return cast("Json", message) if _is_plain_text(message) else plain_object(message)
