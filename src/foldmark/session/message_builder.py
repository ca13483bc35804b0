"""Builds messages from a text, a list of parts, or a `Message`."""

import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal

from msgspec.structs import replace

from foldmark.compaction.pivot import MessageIds
from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Message,
    ModelRef,
    Part,
    SessionInfo,
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


class MessageBuilder:
    """Builds messages with ids and times.

    Each id is greater than all before it, even if the clock goes back. The format is OpenCode's
    (prefix, time, random letters) with two more hexadecimal digits, so that the time does not wrap.
    """

    def __init__(
        self,
        session: str = "",
        now: Callable[[], int] = milliseconds,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Build messages of a session, with a clock and a source of random bytes."""
        self.now = now
        self._session = session
        self._entropy = entropy
        self._last = 0
        self._lock = Lock()

    def make_id(self, prefix: Prefix) -> str:
        """A new id."""
        with self._lock:
            # Twelve bits are enough for 4,096 ids per millisecond; more borrow from the next one.
            self._last = max(self._last + 1, self.now() << 12)
            stamp = self._last
        letters = (_LETTERS[byte % len(_LETTERS)] for byte in self._entropy(_RANDOM_LETTERS))
        return f"{prefix}_{stamp:014x}{''.join(letters)}"

    def session_info(self, name: str = "", **fields: Any) -> SessionInfo:
        """The info of a new session with this id, or with a new one."""
        now = self.now()
        time = Time(created=now, updated=now)
        return SessionInfo(id=name or self.make_id("ses"), time=time, **fields)

    def new_stamp(self) -> MessageIds:
        """Ids and the time for a message that Foldmark writes."""
        message, part = self.make_id("msg"), self.make_id("prt")
        return MessageIds(session=self._session, message=message, part=part, at=self.now())

    def user(self, content: Content, info: Mapping[str, object]) -> Message:
        """A user message."""
        if isinstance(content, Message):
            return _check_role(content, UserInfo)
        return self._message(UserInfo, content, {"time": Time(created=self.now()), **info})

    def assistant(self, content: Content, info: Mapping[str, object], model: str) -> Message:
        """A model's reply; its finish reason follows from its calls unless `info` has one."""
        if isinstance(content, Message):
            message = _check_role(content, AssistantInfo)
            return replace(message, info=replace(message.info, **info)) if info else message
        now, ref = self.now(), self.model_ref(model)
        fields: Json = {"time": Time(created=now, completed=now)}
        if ref is not None:
            fields |= {"provider_id": ref.provider_id, "model_id": ref.model_id}
        return self._message(AssistantInfo, content, {**fields, **info})

    def model_ref(self, model: str) -> ModelRef | None:
        """The provider and name of a model, or None for ""."""
        provider, _, name = model.rpartition(":")
        return ModelRef(provider_id=provider, model_id=name) if model else None

    def _message(
        self,
        kind: type[UserInfo] | type[AssistantInfo],
        content: str | Sequence[AnyPart],
        info: Json,
    ) -> Message:
        message = self.make_id("msg")
        content = (TextPart(text=content),) if isinstance(content, str) else content
        if not isinstance(content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(f"expected a str, parts or a Message, not {type(content).__name__}")
        parts = tuple([self._with_ids(part, message) for part in content])
        if kind is AssistantInfo:
            info.setdefault("finish", finish_of(parts))
        try:
            return Message(info=kind(id=message, session_id=self._session, **info), parts=parts)
        except TypeError as error:
            raise BadInput(f"unknown message field: {error}") from None

    def _with_ids(self, part: AnyPart, message: str) -> AnyPart:
        if isinstance(part, Other):
            return part
        if not isinstance(part, Part):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(f"expected a part such as TextPart, not {type(part).__name__}")
        fields = {
            "id": part.id or self.make_id("prt"),
            "session_id": part.session_id or self._session,
            "message_id": part.message_id or message,
        }
        return replace(part, **fields)


def _check_role(message: Message, kind: type[UserInfo] | type[AssistantInfo]) -> Message:
    if not isinstance(message.info, kind):
        role = "a user" if kind is UserInfo else "an assistant"
        raise BadInput(f"message {message.id!r} is not {role} message")
    return message
