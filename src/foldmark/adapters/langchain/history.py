"""A history of chat messages that is a session of a store.

The store is opened for each call and closed again: histories are made by the dozen, in every
process of a server, and nobody closes them.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, RemoveMessage
from msgspec.structs import replace

import foldmark
from foldmark.adapters.checking import check_settings
from foldmark.errors import BadInput
from foldmark.messages import AssistantInfo, ToolPart
from foldmark.session.opening import open_store
from foldmark.session.session import Session
from foldmark.session.settings import load_settings
from foldmark.tokens import counter
from foldmark.wire.lists import as_shown, orphan
from foldmark.wire.model import Read, options

from .dialect import LangChainDialect
from .names import quoted, since_cleared
from .requests import led

_AS_IS = LangChainDialect(as_is=True)
_FOR_MODELS = LangChainDialect()
_count = counter("classes")


class FoldmarkHistory(BaseChatMessageHistory):
    """The messages of a session: all of them or, with `fit`, a view that fits the window.

        RunnableWithMessageHistory(chain, lambda name: FoldmarkHistory("chat.db", name))

    `where` and the options are those of `foldmark.open`.
    """

    def __init__(
        self, where: str | Path | None, session: str, *, fit: bool = False, **options: Any
    ) -> None:
        """Take where the session is, and the id of the chat, which may be any."""
        super().__init__()
        self.session = session
        self._name = quoted(session)
        self.fit = fit
        self._where = where
        self._options: dict[str, Any] = {"summarizer": "digest", **options}
        check_settings(where, self._options)

    @property
    def messages(self) -> list[BaseMessage]:  # pyright: ignore[reportIncompatibleVariableOverride] - as LangChain's own have it
        """The messages as they came; with `fit`, what a model is to be shown of them."""
        with self._opened() as session:
            whole = _whole(session)
            return _fitted(session, whole) if self.fit else whole

    async def aget_messages(self) -> list[BaseMessage]:
        """`messages`, async."""
        return await asyncio.to_thread(lambda: self.messages)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages: all of them, or none."""
        if any(isinstance(message, RemoveMessage) for message in messages):
            raise BadInput("a RemoveMessage is no message; `clear` begins anew")
        with self._opened() as session:
            session.take_read(messages, _Reader(session))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """`add_messages`, async."""
        await asyncio.to_thread(self.add_messages, messages)

    def clear(self) -> None:
        """Begin anew; what was said stays in the store, as a session of another id."""
        with self._opened() as session:
            if session.newest() is None:
                return
            number = 1 if session.id == self._name else int(session.id.rpartition("~")[2])
            name = since_cleared(self._name, number + 1)
        foldmark.open(self._where, session=name, **self._options).close()

    async def aclear(self) -> None:
        """`clear`, async."""
        await asyncio.to_thread(self.clear)

    def _opened(self) -> Session:
        return foldmark.open(self._where, session=self._newest(), **self._options)

    def _newest(self) -> str:
        """The id of the session since it was last cleared."""
        settings = load_settings(store=None if self._where is None else str(self._where))
        store = open_store(settings)
        try:
            number = 1
            while store.find(since_cleared(self._name, number + 1)) is not None:
                number += 1
        finally:
            store.close()
        return since_cleared(self._name, number)


class _Reader:
    """Reads messages that are added; a result whose call is not there is words like any other."""

    name = key = _AS_IS.key

    def __init__(self, session: Session) -> None:
        self._open = {call.call_id for call in session.open_calls()}

    def read(self, message: BaseMessage, /) -> Read:
        read = _AS_IS.read(message)
        lost = [answer for answer in read.answers if answer.call_id not in self._open]
        self._open -= {answer.call_id for answer in read.answers}
        self._open |= {part.call_id or "" for part in read.parts if isinstance(part, ToolPart)}
        if not lost:
            return read
        return replace(read, answers=(), parts=tuple(orphan(answer, self.key) for answer in lost))


def _whole(session: Session) -> list[BaseMessage]:
    """All messages that came from LangChain, in the order in which models take them."""
    written: list[BaseMessage] = []
    for message in session.export().messages:
        info = message.info
        if isinstance(info, AssistantInfo) and info.summary:
            continue
        if options(info.wire, _AS_IS.key):
            written += _AS_IS.write(as_shown(message, _AS_IS.key), None)
    return written


def _fitted(session: Session, whole: Sequence[BaseMessage]) -> list[BaseMessage]:
    """A view that fits, behind the system prompts that lead the history."""
    prompts = list(whole[: led(whole)])
    if prompts:
        session.fixed += _count("\n\n".join(str(message.text) for message in prompts))
    shown = _FOR_MODELS.write(session.messages(), None)
    return [*prompts, *(message for message in shown if message not in prompts)]
