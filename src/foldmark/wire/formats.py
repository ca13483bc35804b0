"""Messages of the providers' APIs, read and written without loss, whatever their format.

`decode` and `encode` are for whole lists as they are; `request` is for what a view shows, so that
a provider takes it; `decode_reply` and `encode_reply` are for responses.
"""

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, Message, Origin
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Json

from .codec import Wire, options, wire_named
from .detect import recognised, recognised_reply
from .exactness import as_it_came, raw_unless
from .lists import Decoded, as_shown, read_list, write_list
from .plain import plain_object, plain_objects

_REPLY = "reply"


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
    codec = wire_named(wire) if wire else recognised_reply(given)
    reply = codec.read_reply(given)
    own = {**reply.read.rest, _REPLY: reply.rest}
    info = AssistantInfo(
        id=reply.read.id or "msg_reply",
        provider_id=codec.provider,
        model_id=reply.model or UNSET,
        tokens=reply.tokens or UNSET,
        finish=reply.finish,
        wire={codec.key: own},
    )
    message = Message(info=info, parts=reply.read.parts)
    note = raw_unless(_written(codec, message, reply.rest), given)
    return replace(message, info=replace(info, wire={codec.key: own | note})) if note else message


def encode_reply(message: Message, wire: str) -> Json:
    """The response that `decode_reply` was given, if the answer still is what it was."""
    codec = wire_named(wire)
    own = options(message.info.wire, codec.key)
    rest = options(own, _REPLY)
    if _REPLY not in own:
        raise BadInput(f"message {message.id!r} did not come from a response of {codec.name}")
    return as_it_came(_written(codec, message, rest), own)


def _written(codec: Wire, message: Message, rest: Json) -> Json:
    return codec.write_reply(as_shown(message)[:1], rest)
