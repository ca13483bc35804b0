"""A provider's response, as a session records it."""

from collections.abc import Mapping, Sequence
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, AssistantInfo, Message
from foldmark.model.values import Json
from foldmark.wire.codec import WIRES, wire_named
from foldmark.wire.detect import candidates, reply_candidates
from foldmark.wire.formats import decode, decode_reply
from foldmark.wire.plain import is_sdk_object, plain_object


def is_from_wire(reply: object) -> bool:
    """Whether this is neither a text, nor parts, nor a message of ours."""
    if isinstance(reply, Sequence) and not isinstance(reply, str):
        items = cast("Sequence[object]", reply)
        return bool(items) and all(
            isinstance(item, Mapping) or is_sdk_object(item) for item in items
        )
    return not isinstance(reply, str | Message)


def answer_of(reply: object, wire: str | None, *, named: bool) -> tuple[tuple[AnyPart, ...], Json]:
    """The parts of a response, and what it tells beside them; the model, if it is to be named."""
    message = _answer(reply, wire)
    info = message.info
    if not isinstance(info, AssistantInfo):
        raise BadInput("a model's answer is expected, not another message")
    told: Json = {"wire": info.wire, "tokens": info.tokens}
    if info.finish:
        told["finish"] = info.finish
    if named:
        told |= {"provider_id": info.provider_id, "model_id": info.model_id}
    return message.parts, told


def _answer(reply: object, wire: str | None) -> Message:
    """The answer: a whole response, or its message alone, which may be several items."""
    if isinstance(reply, Sequence):
        return _message([plain_object(item) for item in cast("Sequence[object]", reply)], wire)
    given = plain_object(reply)
    if wire is not None:
        is_whole = wire_named(wire).recognises_reply(given)
    else:
        is_whole = bool(reply_candidates(given))
        if not is_whole and not candidates([given]):
            known = ", ".join(WIRES)
            raise BadInput(f"this is no answer of a wire that is known ({known}); give wire=…")
    return decode_reply(given, wire) if is_whole else _message([given], wire)


def _message(given: list[Json], wire: str | None) -> Message:
    found = decode(given, wire).messages
    if len(found) != 1:
        raise BadInput(f"one answer of a model is expected, not {len(found)} messages")
    return found[0]
