"""Sessions in stores for tests: opened, filled, and exported as comparable values."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

import foldmark
from foldmark.log.log import Log, LogCheckpoint
from foldmark.log.marks import marked_messages
from foldmark.log.view import View
from foldmark.model.messages import (
    Message,
    Pending,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
)
from foldmark.model.values import Extra, encode
from foldmark.store.importing import SessionImport
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store
from foldmark.tokens.counters import counter


def opened(where: str, session: str | None = None, **more: Any) -> foldmark.Session:
    """A session with a window so small that there is something to prune."""
    options: dict[str, Any] = {"window": 8_000, "output": 1_000, "durable": False, **more}
    return foldmark.open(where, session=session, **options)


def store_log(
    store: Store,
    info: SessionInfo,
    log: Log,
    *,
    estimate: str,
    extra: Extra | UnsetType = UNSET,
) -> SessionRow:
    """Write a whole log into a new session: messages, marks and pivots."""
    with store.engine.writing():
        row = store.insert_session(info, estimate, extra)
        session_import = SessionImport(store.engine, row, log.count)
        for message in marked_messages(log):
            session_import.add(message)
        return session_import.finish()


def fill(
    where: str, messages: Iterable[Message], session: str = "s", estimate: str = "classes"
) -> SessionRow:
    """Write a whole session into a store."""
    with Store.open(where, durable=False) as store:
        log = Log(counter(estimate), messages)
        row = store_log(store, SessionInfo(id=session), log, estimate=estimate)
        store.index(row.key)
        return store.row(row.key)


def exported(where: str, session: str = "s") -> Any:
    """The JSON value of a stored session."""
    with opened(where, session) as stored:
        return plain(stored.export())


def plain(transcript: Transcript) -> Any:
    return json.loads(encode(transcript))


def without_pivots(log: Log, undone: int = 1) -> Log:
    """The log as a store loads it after its latest pivots were undone."""
    markers = {pivot.marker for pivot in log.pivots[-undone:]} if undone else set[int]()
    past = LogCheckpoint(undone=frozenset(log.undone | markers), marks=dict(log.marks))
    loaded = Log(log.count, [entry.message for entry in log.entries.values()], past)
    if markers:
        loaded.forget_measured(len(loaded))
    return loaded


def bytes_of(view: View) -> bytes:
    return encode(view.messages)


def call(name: str, file: str = "a.py", tool: str = "read") -> ToolPart:
    return ToolPart(tool=tool, call_id=name, state=Pending(input={"filePath": file}))


def step(session: foldmark.Session, name: str, output: str, file: str = "a.py") -> None:
    """One step of work: a text, a call and its result."""
    session.record([TextPart(text="I look"), call(name, file)])
    session.result(name, output)


def work(session: foldmark.Session, steps: int = 30, words: Sequence[str] = ("parser",)) -> None:
    """Fill a session with enough content to be pruned and compacted."""
    session.user("Fix the failing test; never touch the main branch")
    for number in range(steps):
        word = words[number % len(words)]
        step(session, f"c{number}", f"line {number} of a {word}\n" * 150, f"a{number}.py")
    session.record("All is well.")
