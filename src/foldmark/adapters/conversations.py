"""A framework's conversations: each mirrored in a session, and the pool of those that are open.

Several objects or processes may write to one session: each has it only for a turn. Nobody else
writes between the first look and the last write of a turn, and what others wrote before it is
learnt first; no lease is held while a model is asked. How a framework names its conversations, and
what it does in a turn, this module does not know.
"""

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from foldmark.errors import BadInput, FoldmarkError
from foldmark.model.messages import ToolPart
from foldmark.model.prompt_messages import Declared
from foldmark.providers.background import uncut
from foldmark.providers.models import provider_and_model
from foldmark.session.history_mirror import HistoryMirror, MessageDialect
from foldmark.session.hooks import useful_hooks
from foldmark.session.loop_support import LoopSupport
from foldmark.session.opening import chosen_settings
from foldmark.session.session import Session
from foldmark.session.settings import DIGEST
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.counters import Counter, counter
from foldmark.tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size
from foldmark.wire.codec import Read

M = TypeVar("M")
_OPENING = 16  # sessions that may be opened at the same time
_log = logging.getLogger("foldmark")

# What `foldmark.open` takes beside the settings.
_BESIDE = frozenset({"fixed", "hooks", "policy", "summarizer", "system", "tools"})


def check_settings(where: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Refuse what `foldmark.open` would refuse, as far as it can be told before it is called."""
    if "store" in settings:
        raise BadInput("the store is the first argument, and is not given as store=")
    useful_hooks(settings.get("hooks", ()))
    given = {name: held for name, held in settings.items() if name not in _BESIDE}
    summarizer = settings.get("summarizer")
    chosen, _ = chosen_settings(where, settings.get("policy"), summarizer, given)
    chosen.limit()
    is_named = summarizer is None or isinstance(summarizer, str)  # else an object answers
    if is_named and chosen.summarizer not in {None, DIGEST}:
        provider_and_model(str(chosen.summarizer))


class SharedSession:
    """A session that others write to as well, and the version of it that is known."""

    def __init__(
        self, session: Session, learn: Callable[[], object], version: int | None = None
    ) -> None:
        """Take the session, what reads it anew, and the version that was read already."""
        self.session = session
        self.lock = threading.RLock()  # between the threads of this process
        self._learn = learn
        self._version = version

    def look(self) -> None:
        """Learn what others have written, if they have."""
        version = self.session.info.version
        if version != self._version:
            self._learn()
            self._version = version

    @contextmanager
    def turn(self) -> Generator[None]:
        """Time in which nobody else writes; after a turn that failed, all is learnt anew."""
        with self.lock:
            try:
                # One that is taken with the first write comes too late.
                LoopSupport(self.session).acquire()
                self.look()
                self._version = None
                yield
                self._version = self.session.info.version
            finally:
                try:
                    self.session.release()
                except FoldmarkError as error:  # it ends by itself
                    _log.warning("session %s was not given back: %s", self.session.id, error)


class Conversation(SharedSession, Generic[M]):
    """A session that mirrors the history of one conversation."""

    def __init__(self, name: str, session: Session, dialect: MessageDialect[M]) -> None:
        """Take the session, under the name by which it is asked for."""
        version = session.info.version  # before it is read
        super().__init__(session, self._mirror_anew, version)
        self.name = name
        self._dialect = dialect
        self.mirror = HistoryMirror(session, dialect)
        self.users = 0  # who have it right now
        self.is_lent = False  # to one of them alone
        self.ends = False  # whether it is closed when nobody has it
        self._beside: tuple[str, Sequence[Declared], Summarizer | None] | None = None
        self._fixed = 0  # tokens of what is beside the history
        self._window: tuple[int, int | None] | None = None

    def _mirror_anew(self) -> None:
        self.mirror = HistoryMirror(self.session, self._dialect)

    def count_beside(
        self,
        system: str,
        tools: Sequence[Declared],
        *,
        passing: Iterable[Read] = (),
        summarizer: Summarizer | None = None,
    ) -> None:
        """Count what a request holds beside the history, and messages of this request alone."""
        beside = (system, tools, summarizer)
        if beside != self._beside:
            self.session.configure(system=system, tools=tools, summarizer=summarizer)
            self._beside, self._fixed = beside, self.session.fixed
        count = counter(self.session.policy.estimate)
        self.session.fixed = self._fixed + sum(_tokens(read, count) for read in passing)

    def set_window(self, window: int | None, output: int | None = None) -> None:
        """Go on with the window of the model that is asked, if that is known and another."""
        if window is not None and (window, output) != self._window:
            self.session.switch(window=window, output=output)
            self._window = (window, output)

    def take(self, history: Sequence[M], *, whole: bool) -> None:
        """Bring the session up to date with the history, in a turn."""
        self.mirror.take(history, whole=whole)

    def record(self, history: Sequence[M], *, whole: bool) -> None:
        """Take an answer at once: who goes on from the store alone has no other way to it."""
        try:
            with self.turn():
                self.take(history, whole=whole)
        except FoldmarkError as error:  # the answer is there, and is taken with the next request
            _log.warning("what came last is not in session %s yet: %s", self.session.id, error)

    def shrunk(self, error: Exception, history: Sequence[M], *, whole: bool) -> list[M]:
        """A view that is shorter than the one that was refused with this error."""
        try:
            with self.turn():
                self.take(history, whole=whole)  # another may have written meanwhile
                return self.mirror.shrunk(error)
        except FoldmarkError as stopped:
            raise error from stopped


C = TypeVar("C", bound=Conversation[Any])


class Conversations(Generic[C]):
    """The conversations that are open; too many are closed, the one used longest ago first."""

    def __init__(self, make: Callable[[str], C], most: int) -> None:
        """Take what opens a conversation by its name, and how many may be open at a time."""
        self._make = make
        self._most = most
        self._lock = threading.Lock()  # held for no work of a store: others would wait for it
        self._open: dict[str, C] = {}  # the one that was used last is the last
        self._opening = [threading.Lock() for _ in range(_OPENING)]

    def all(self) -> list[C]:
        """All that are open."""
        with self._lock:
            return list(self._open.values())

    def find(self, name: str) -> C | None:
        """The one of this name, if it is open."""
        return self._open.get(name)

    @contextmanager
    def used(self, name: str, make: Callable[[str], C] | None = None) -> Generator[C]:
        """The conversation of this name, whoever else uses it."""
        held = self._use(name, make)
        try:
            yield held
        finally:
            self._leave(held)

    # --- for one caller alone ---

    def lend(self, names: Iterable[str]) -> C | None:
        """The first of these conversations that is lent to nobody; it must be given back."""
        for name in names:
            held = self._use(name)
            with self._lock:
                if not held.is_lent:
                    held.is_lent = True
                    return held
            self._leave(held)
        return None

    def give_back(self, held: C) -> None:
        """End the loan of a conversation."""
        held.is_lent = False
        self._leave(held)

    @contextmanager
    def lent(self, names: Iterable[str]) -> Generator[C]:
        """A loan for one call, of names of which one is always free."""
        held = self.lend(names)
        if held is None:
            raise RuntimeError("all of these conversations are lent")
        try:
            yield held
        finally:
            self.give_back(held)

    @asynccontextmanager
    async def alent(self, names: Iterable[str]) -> AsyncGenerator[C]:
        """`lent`, async."""
        loan, held = self.lent(names), list[C]()
        try:
            await uncut(lambda: held.append(loan.__enter__()))
            yield held[0]
        finally:
            if held:  # also of a call whose end nobody has heard
                await uncut(loan.__exit__, None, None, None)

    # --- opening and closing ---

    def _use(self, name: str, make: Callable[[str], C] | None = None) -> C:
        """The conversation of this name, which is not closed before it is left."""
        with self._opening[hash(name) % _OPENING]:  # others go on: a session may be long
            with self._lock:
                held = self._open.pop(name, None)
                if held is not None:
                    held.users += 1
                    self._open[name] = held
                    return held
            held = (make or self._make)(name)
            held.users = 1
            with self._lock:
                self._open[name] = held
            return held

    def _leave(self, held: C) -> None:
        with self._lock:
            held.users -= 1
            idle = [one for one in self._open.values() if not one.users]
            spare = max(len(self._open) - self._most, 0)
            ended = [one for number, one in enumerate(idle) if one.ends or number < spare]
            for one in ended:
                del self._open[one.name]
        for one in ended:
            one.session.close()

    def close(self) -> None:
        """Close all sessions, those that are in use when they are left; they can open again."""
        with self._lock:
            idle = [held for held in self._open.values() if not held.users]
            for held in self._open.values():
                held.ends = True
            for held in idle:
                del self._open[held.name]
        for held in idle:
            held.session.close()


# --- messages of one request alone ---
# Plugins put them among its history: the time, files at hand. They are shown where they stood and
# counted; no session follows them, as the next request has others. Each is told with how many
# messages of the history stand before it.


def split_passing(
    messages: Iterable[M], is_followed: Callable[[M], bool]
) -> tuple[list[M], list[tuple[M, int]]]:
    """The history in a request, and the messages of that request alone."""
    history, passing = list[M](), list[tuple[M, int]]()
    for message in messages:
        if is_followed(message):
            history.append(message)
        else:
            passing.append((message, len(history)))
    return history, passing


def with_passing(
    view: Sequence[M],
    places: Sequence[int | None],
    passing: Sequence[tuple[M, int]],
    is_result: Callable[[M], bool],
) -> list[M]:
    """A view with the passing messages where they stood, but not between a call and its result.

    `places` tells where in the view each message of the history is, if it is shown.
    """
    made = list(view)
    for message, before in reversed(passing):
        later = (place for place in places[before:] if place is not None)
        leads = not before and places[:1] == [None]
        place = 0 if leads else next(later, len(view))
        while place < len(view) and is_result(view[place]):
            place += 1
        made.insert(place, message)
    return made


def _tokens(read: Read, count: Counter) -> int:
    """The tokens of a message that passes."""
    # A call that waits is counted with room for its result, which is a message by itself here.
    spare = sum(CALL_OVERHEAD for part in read.parts if isinstance(part, ToolPart))
    parts = sum(part_size(part, count).total for part in read.parts) - spare
    for answer in read.answers:
        parts += count(answer.output) + sum(part_size(file, count).total for file in answer.files)
    return MESSAGE_OVERHEAD + parts
