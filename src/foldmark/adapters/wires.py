"""The dialect of plain lists: messages of a provider's own wire, as dicts or an SDK's objects."""

from collections.abc import Sequence
from typing import Any

from foldmark.model.prompt_messages import PromptMessage
from foldmark.wire.codec import Read, wire_named
from foldmark.wire.plain import plain_object


class WireDialect:
    """Reads and writes messages of one wire."""

    unique = False

    def __init__(self, wire: str) -> None:
        """Take the wire's name."""
        self._codec = wire_named(wire)
        self.key = self._codec.key

    def read(self, message: object, /) -> Read:
        """What a message says."""
        return self._codec.read(plain_object(message))

    def write(self, shown: Sequence[PromptMessage], _original: object, /) -> list[Any]:
        """Messages that say this."""
        return list[Any](self._codec.write(tuple(shown), as_is=False))

    def prompt(self, message: object, /) -> object | None:
        """The message, where it is a system prompt."""
        return message if self.read(message).role == "system" else None
