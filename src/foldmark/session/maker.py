"""Makes messages out of what a program has at hand: a text, some parts, or a message."""

import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.compaction.pivot import Made
from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Message,
    ModelRef,
    Part,
    TextPart,
    Time,
    UserInfo,
    finish_of,
)
from foldmark.model.values import Json, Other
from foldmark.store.transaction import milliseconds

Prefix = Literal["ses", "msg", "prt"]

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LETTERS = 12

Content = str | Sequence[AnyPart] | Message


class Ids:
    """A source of ids, each greater than all before it, even when the clock goes back.

    The shape is OpenCode's (prefix, time, random letters), with two hexadecimal digits more, so
    that the time does not wrap around.
    """

    def __init__(self, clock: Callable[[], int], entropy: Callable[[int], bytes]) -> None:
        """Take the clock in milliseconds, and a function that gives n random bytes."""
        self._clock = clock
        self._entropy = entropy
        self._last = 0
        self._lock = Lock()

    def make(self, prefix: Prefix) -> str:
        """A new id."""
        with self._lock:
            # Twelve bits leave room for 4096 ids a millisecond; more borrow from the next one.
            self._last = max(self._last + 1, self._clock() << 12)
            stamp = self._last
        letters = (_LETTERS[byte % len(_LETTERS)] for byte in self._entropy(_RANDOM_LETTERS))
        return f"{prefix}_{stamp:014x}{''.join(letters)}"


class Maker:
    """Gives messages and parts their ids and times."""

    now = staticmethod(milliseconds)

    def __init__(self, session: str) -> None:
        """Take the session's id."""
        self._session = session
        self._ids = Ids(milliseconds, os.urandom)

    def session_id(self) -> str:
        """A new id for a session."""
        return self._ids.make("ses")

    def made(self, session: str) -> Made:
        """Ids and the time for a message of ours."""
        ids = self._ids
        return Made(session=session, message=ids.make("msg"), part=ids.make("prt"), at=self.now())

    def user(self, content: Content, info: Mapping[str, object]) -> Message:
        """A message of the user."""
        if isinstance(content, Message):
            return _of_role(content, UserInfo)
        return self._message(UserInfo, content, {"time": Time(created=self.now()), **info})

    def assistant(self, content: Content, info: Mapping[str, object], model: str) -> Message:
        """An answer of a model; how it ended is told by its calls, if not by the program."""
        if isinstance(content, Message):
            given = _of_role(content, AssistantInfo)
            return replace(given, info=replace(given.info, **info)) if info else given
        now = self.now()
        parts = self._parts(content)
        provider, _, name = model.rpartition(":")
        known: Json = {
            "time": Time(created=now, completed=now),
            "finish": finish_of(parts),
        }
        if model:
            known |= {"provider_id": provider, "model_id": name}
        return self._message(AssistantInfo, parts, {**known, **info})

    def model_ref(self, model: str) -> ModelRef | None:
        """A model by its two names."""
        provider, _, name = model.rpartition(":")
        return ModelRef(provider_id=provider, model_id=name) if model else None

    def _message(
        self, kind: type[UserInfo] | type[AssistantInfo], content: Content, info: Json
    ) -> Message:
        message = self._ids.make("msg")
        try:
            made = kind(id=message, session_id=self._session, **info)
        except TypeError as error:
            raise BadInput(f"a message has no such field: {error}") from None
        return Message(info=made, parts=self._parts(content, message))

    def _parts(self, content: Content, message: str | None = None) -> tuple[AnyPart, ...]:
        if isinstance(content, Message):
            return content.parts
        if isinstance(content, str):
            content = (TextPart(text=content),)
        if not isinstance(content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(f"a text, parts or a message is expected, not {type(content).__name__}")
        return tuple([self._named(part, message) for part in content])

    def _named(self, part: AnyPart, message: str | None) -> AnyPart:
        if isinstance(part, Other):
            return part
        if not isinstance(part, Part):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(f"a part is expected (TextPart, ToolPart, …), not {type(part).__name__}")
        fields = {
            "id": part.id or self._ids.make("prt"),
            "session_id": part.session_id or self._session,
            "message_id": part.message_id or message or UNSET,
        }
        return replace(part, **fields)


def _of_role(message: Message, kind: type[UserInfo] | type[AssistantInfo]) -> Message:
    if not isinstance(message.info, kind):
        wanted = "user" if kind is UserInfo else "assistant"
        raise BadInput(f"message {message.id!r} is not of the {wanted}")
    return message
