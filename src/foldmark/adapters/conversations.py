"""Conversations of a framework, each mirrored in a session, and the pool of open ones.

Several objects or processes may write to one session, each during its own turn. A turn holds the
session's lease and starts by loading what others have written; no lease is held while a model
answers. This module does not know how a framework names conversations or what it does in a turn.
"""

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from foldmark.errors import BadInput, FoldmarkError
from foldmark.model.messages import ToolPart
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.providers.background import run_uninterrupted
from foldmark.providers.models import provider_and_model
from foldmark.session.history_mirror import HistoryMirror, MessageDialect
from foldmark.session.hooks import check_hooks
from foldmark.session.loop_support import LoopSupport
from foldmark.session.opening import resolve_settings
from foldmark.session.session import Session
from foldmark.session.settings import DIGEST
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.counters import Counter, counter
from foldmark.tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size
from foldmark.wire.codec import ReadMessage

M = TypeVar("M")
_OPENING = 16  # locks: at most this many sessions open at the same time
_log = logging.getLogger("foldmark")

# Arguments of `foldmark.open` that are not settings.
_OTHER_ARGUMENTS = frozenset({"fixed_tokens", "hooks", "policy", "summarizer", "system", "tools"})


def check_settings(where: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Raise the errors of `foldmark.open` early, as far as they can be known before the call."""
    if "store" in settings:
        raise BadInput("store= is not accepted here: pass the store as the first argument")
    check_hooks(settings.get("hooks", ()))
    plain = {name: value for name, value in settings.items() if name not in _OTHER_ARGUMENTS}
    summarizer = settings.get("summarizer")
    effective, _ = resolve_settings(where, settings.get("policy"), summarizer, plain)
    effective.limit()
    is_name = summarizer is None or isinstance(summarizer, str)  # else it is an object
    if is_name and effective.summarizer not in {None, DIGEST}:
        provider_and_model(str(effective.summarizer))


class SharedSession:
    """A session with several writers, and the version of it that was loaded last."""

    def __init__(
        self, session: Session, reload: Callable[[], object], version: int | None = None
    ) -> None:
        """Use this session; `reload` reads it again, `version` is the one already read."""
        self.session = session
        self.lock = threading.RLock()  # between the threads of this process
        self._reload = reload
        self._version = version

    def refresh(self) -> None:
        """Reload the session if others have written to it."""
        version = self.session.info.version
        if version != self._version:
            self._reload()
            self._version = version

    @contextmanager
    def turn(self) -> Generator[None]:
        """Hold the lease so that nobody else writes; a failed turn makes the next one reload."""
        with self.lock:
            try:
                # Acquiring with the first write would be too late: others may write before it.
                LoopSupport(self.session).acquire()
                self.refresh()
                self._version = None
                yield
                self._version = self.session.info.version
            finally:
                try:
                    self.session.release()
                except FoldmarkError as error:  # the lease expires by itself
                    _log.warning("session %s was not released: %s", self.session.id, error)


class Conversation(SharedSession, Generic[M]):
    """A session that mirrors the history of one conversation."""

    def __init__(self, name: str, session: Session, dialect: MessageDialect[M]) -> None:
        """Mirror into this session; `name` is its key in the pool."""
        version = session.info.version  # before the mirror reads it
        super().__init__(session, self._reload_mirror, version)
        self.name = name
        self._dialect = dialect
        self.mirror = HistoryMirror(session, dialect)
        self.users = 0  # callers that use it right now
        self.is_exclusive = False  # whether one of them has it exclusively
        self.closes_when_idle = False  # whether to close it once it has no users
        self._fixed_inputs: tuple[str, Sequence[ToolDeclaration], Summarizer | None] | None = None
        self._fixed_tokens = 0  # tokens of the system prompt and the tools
        self._window: tuple[int, int | None] | None = None

    def _reload_mirror(self) -> None:
        self.mirror = HistoryMirror(self.session, self._dialect)

    def count_fixed(
        self,
        system: str,
        tools: Sequence[ToolDeclaration],
        *,
        transient: Iterable[ReadMessage] = (),
        summarizer: Summarizer | None = None,
    ) -> None:
        """Count the system prompt, the tools, and messages that only this request contains."""
        fixed_inputs = (system, tools, summarizer)
        if fixed_inputs != self._fixed_inputs:
            self.session.configure(system=system, tools=tools, summarizer=summarizer)
            self._fixed_inputs, self._fixed_tokens = fixed_inputs, self.session.fixed_tokens
        count = counter(self.session.policy.estimate)
        self.session.fixed_tokens = self._fixed_tokens + sum(
            _tokens(one, count) for one in transient
        )

    def set_window(self, window: int | None, output: int | None = None) -> None:
        """Use this context window from now on, if it is known and differs from the current one."""
        if window is not None and (window, output) != self._window:
            self.session.switch_model(window=window, output=output)
            self._window = (window, output)

    def take(self, history: Sequence[M], *, whole: bool) -> None:
        """Bring the session up to date with the history; call it inside a turn."""
        self.mirror.take(history, whole=whole)

    def record(self, history: Sequence[M], *, whole: bool) -> None:
        """Store a reply at once: other readers of the store do not see the framework's history."""
        try:
            with self.turn():
                self.take(history, whole=whole)
        except FoldmarkError as error:  # the next request stores it
            _log.warning("session %s lacks the newest messages: %s", self.session.id, error)

    def shorter_view(self, error: Exception, history: Sequence[M], *, whole: bool) -> list[M]:
        """Return a shorter view after a refusal for length; raises `error` if there is none."""
        try:
            with self.turn():
                self.take(history, whole=whole)  # others may have written meanwhile
                return self.mirror.shorter_view(error)
        except FoldmarkError as failure:
            raise error from failure


C = TypeVar("C", bound=Conversation[Any])


class Conversations(Generic[C]):
    """Pool of open conversations; beyond its limit, the least recently used ones are closed."""

    def __init__(self, create: Callable[[str], C], limit: int) -> None:
        """Open conversations with `create`, by name; keep at most `limit` idle ones open."""
        self._create = create
        self._limit = limit
        self._lock = threading.Lock()  # never held during store access, or others would wait
        self._open: dict[str, C] = {}  # ordered by last use
        self._opening = [threading.Lock() for _ in range(_OPENING)]

    def all(self) -> list[C]:
        """All open conversations."""
        with self._lock:
            return list(self._open.values())

    def find(self, name: str) -> C | None:
        """The conversation with this name if it is open."""
        return self._open.get(name)

    @contextmanager
    def shared(self, name: str, create: Callable[[str], C] | None = None) -> Generator[C]:
        """Use the conversation with this name; others may use it at the same time."""
        conversation = self._use(name, create)
        try:
            yield conversation
        finally:
            self._leave(conversation)

    # --- exclusive use ---

    def acquire_exclusive(self, names: Iterable[str]) -> C | None:
        """The first of these conversations that no other caller has exclusively, if any."""
        for name in names:
            conversation = self._use(name)
            with self._lock:
                if not conversation.is_exclusive:
                    conversation.is_exclusive = True
                    return conversation
            self._leave(conversation)
        return None

    def release_exclusive(self, conversation: C) -> None:
        """End the exclusive use of a conversation."""
        conversation.is_exclusive = False
        self._leave(conversation)

    @contextmanager
    def exclusive(self, names: Iterable[str]) -> Generator[C]:
        """Exclusive use during one call; one of the names must always be free."""
        conversation = self.acquire_exclusive(names)
        if conversation is None:
            raise RuntimeError("all of these conversations are in exclusive use")
        try:
            yield conversation
        finally:
            self.release_exclusive(conversation)

    @asynccontextmanager
    async def aexclusive(self, names: Iterable[str]) -> AsyncGenerator[C]:
        """Async form of `exclusive`."""
        loan, result = self.exclusive(names), list[C]()
        try:
            await run_uninterrupted(lambda: result.append(loan.__enter__()))
            yield result[0]
        finally:
            if result:  # also if the wait for it was cancelled
                await run_uninterrupted(loan.__exit__, None, None, None)

    # --- opening and closing ---

    def _use(self, name: str, create: Callable[[str], C] | None = None) -> C:
        """The conversation with this name, kept open until `_leave`."""
        with self._opening[hash(name) % _OPENING]:  # not one lock: opening may be slow
            with self._lock:
                conversation = self._open.pop(name, None)
                if conversation is not None:
                    conversation.users += 1
                    self._open[name] = conversation
                    return conversation
            conversation = (create or self._create)(name)
            conversation.users = 1
            with self._lock:
                self._open[name] = conversation
            return conversation

    def _leave(self, conversation: C) -> None:
        with self._lock:
            conversation.users -= 1
            idle = [one for one in self._open.values() if not one.users]
            spare = max(len(self._open) - self._limit, 0)
            surplus = [one for n, one in enumerate(idle) if one.closes_when_idle or n < spare]
            for one in surplus:
                del self._open[one.name]
        for one in surplus:
            one.session.close()

    def close(self) -> None:
        """Close all sessions, busy ones once they are idle; they can be opened again."""
        with self._lock:
            idle = [one for one in self._open.values() if not one.users]
            for conversation in self._open.values():
                conversation.closes_when_idle = True
            for conversation in idle:
                del self._open[conversation.name]
        for conversation in idle:
            conversation.session.close()


# --- transient messages: present in one request only ---
# Plugins insert them into the history: the time, open files. They are sent at their position and
# counted, but not stored, as the next request has others. Each is paired with the number of
# history messages before it.


def split_transient(
    messages: Iterable[M], is_followed: Callable[[M], bool]
) -> tuple[list[M], list[tuple[M, int]]]:
    """Split a request into its history and its transient messages."""
    history, transient = list[M](), list[tuple[M, int]]()
    for message in messages:
        if is_followed(message):
            history.append(message)
        else:
            transient.append((message, len(history)))
    return history, transient


def insert_transient(
    view: Sequence[M],
    indexes: Sequence[int | None],
    transient: Sequence[tuple[M, int]],
    is_result: Callable[[M], bool],
) -> list[M]:
    """A view with the transient messages in position, but never between a call and its result.

    `indexes` has the index in the view of each history message, or None if it is hidden.
    """
    result = list(view)
    for message, before in reversed(transient):
        later = (index for index in indexes[before:] if index is not None)
        leads = not before and indexes[:1] == [None]
        index = 0 if leads else next(later, len(view))
        while index < len(view) and is_result(view[index]):
            index += 1
        result.insert(index, message)
    return result


def _tokens(message: ReadMessage, count: Counter) -> int:
    """The tokens of a transient message."""
    # A pending call is counted with space for its result, which is a message of its own here.
    spare = sum(CALL_OVERHEAD for part in message.parts if isinstance(part, ToolPart))
    parts = sum(part_size(part, count).total for part in message.parts) - spare
    for answer in message.results:
        parts += count(answer.output) + sum(part_size(file, count).total for file in answer.files)
    return MESSAGE_OVERHEAD + parts
