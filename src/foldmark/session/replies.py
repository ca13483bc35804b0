"""A provider's response, as a session records it."""

from collections.abc import Sequence

from foldmark.errors import BadInput
from foldmark.messages import AnyPart, AssistantInfo, Message
from foldmark.values import Json
from foldmark.wire import decode, decode_reply
from foldmark.wire.plain import plain_object


def is_from_wire(reply: object) -> bool:
    """Whether this is neither a text, nor parts, nor a message of ours."""
    return not isinstance(reply, str | Message | Sequence)


def answer_of(reply: object, wire: str | None, *, named: bool) -> tuple[tuple[AnyPart, ...], Json]:
    """The parts of a response, and what it tells beside them; the model, if it is to be named."""
    given = plain_object(reply)
    if "role" in given and ("content" in given or "tool_calls" in given) and "type" not in given:
        found = decode([given], wire).messages  # one message without its response
        if len(found) != 1 or not isinstance(found[0].info, AssistantInfo):
            raise BadInput("a model's answer is expected, not another message")
        message = found[0]
    else:
        message = decode_reply(given, wire)
    info = message.info
    assert isinstance(info, AssistantInfo)  # noqa: S101 - an answer's
    told: Json = {"wire": info.wire, "tokens": info.tokens}
    if info.finish:
        told["finish"] = info.finish
    if named:
        told |= {"provider_id": info.provider_id, "model_id": info.model_id}
    return message.parts, told
