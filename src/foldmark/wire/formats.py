"""Convert messages of any API format to ours and back without loss.

`decode` and `encode` convert whole lists unchanged; `request` writes the messages of a view as a
provider accepts them; `decode_reply` and `encode_reply` convert responses.
"""

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, Message, Origin
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Json

from .codec import Codec, codec_named, subobject
from .detect import recognize, recognize_reply
from .exactness import difference_note, restore
from .lists import DecodedList, read_list, to_prompt, write_list
from .plain import plain_object, plain_objects

_REPLY = "reply"


def decode(messages: Iterable[object], wire: str | None = None) -> DecodedList:
    """Convert a list of API messages (dicts or SDK objects) to ours without loss."""
    received = plain_objects(messages)
    return read_list(codec_named(wire) if wire else recognize(received), received)


def encode(messages: Iterable[Message], wire: str, origin: Origin | None = None) -> list[Json]:
    """The list that `decode` received; messages of other formats are converted, not repaired."""
    return write_list(codec_named(wire), messages, origin)


def request(messages: Iterable[PromptMessage], wire: str, system: str = "") -> list[Json]:
    """The messages of a request for a view, as the provider of this format accepts them."""
    codec = codec_named(wire)
    messages = tuple(messages)
    if not all(isinstance(message, PromptMessage) for message in messages):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(
            "request() takes the messages of a view: Viewer(log, policy).view().messages; "
            "use encode() to write stored messages unchanged"
        )
    return [*(codec.system(system) if system else []), *codec.write(messages, as_is=False)]


def decode_reply(response: object, wire: str | None = None) -> Message:
    """The assistant message of a response, with its token usage, without loss."""
    received = plain_object(response)
    codec = codec_named(wire) if wire else recognize_reply(received)
    reply = codec.read_reply(received)
    notes = {**reply.message.rest, _REPLY: reply.rest}
    info = AssistantInfo(
        id=reply.message.id or "msg_reply",
        provider_id=codec.provider,
        model_id=reply.model or UNSET,
        tokens=reply.tokens or UNSET,
        finish=reply.finish,
        wire={codec.key: notes},
    )
    message = Message(info=info, parts=reply.message.parts)
    difference = difference_note(_write_reply(codec, message, reply.rest), received)
    wire_notes = {codec.key: notes | difference}
    return replace(message, info=replace(info, wire=wire_notes)) if difference else message


def encode_reply(message: Message, wire: str) -> Json:
    """The response that `decode_reply` received, unless its message has changed."""
    codec = codec_named(wire)
    notes = subobject(message.info.wire, codec.key)
    rest = subobject(notes, _REPLY)
    if _REPLY not in notes:
        raise BadInput(f"message {message.id!r} was not read from a {codec.name} response")
    return restore(_write_reply(codec, message, rest), notes)


def _write_reply(codec: Codec, message: Message, rest: Json) -> Json:
    return codec.write_reply(to_prompt(message)[:1], rest)
