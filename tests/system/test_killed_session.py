"""After a SIGKILL at any moment, acknowledged writes are complete, others are there at most once.

Real processes work on one session of a real store and are killed. What they reported before is
compared with the store. FOLDMARK_KILLS sets the number of kills.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import foldmark
from foldmark.log.log import Entry
from foldmark.model import events
from foldmark.model.operations import Operation
from foldmark.store.maintenance import collect
from foldmark.store.rows import SessionRow, read_messages
from tests.support.compacted_sessions import pivots
from tests.support.effort import kills
from tests.support.killed_session import digest, opened, store_of
from tests.support.store_checks import all_events, check_pivots, check_sums
from tests.support.store_engines import new_database

ROOT = Path(__file__).parents[2]
KILLS = kills(20, 200)
MAX_LINES = 120  # lines after which a process is killed: two for each call
ALL_EACH = 20  # kills after which everything is checked, not only what is new
# The number of messages that an unacknowledged call may have left.
LEAVES = {"user": {0, 1}, "record": {0, 1}, "queue": {0, 1}, "complete": {0, 1}, "fold": {0, 2}}
OPERATIONS = {"prune", "queue", "complete", "fold", "undo", "redo"}
EVENTS = {
    "user": [events.MESSAGE_WRITTEN],
    "record": [events.MESSAGE_WRITTEN],
    "prune": [events.PRUNED],
    "queue": [events.QUEUED],
    "complete": [events.COMPACTED],
    "fold": [events.QUEUED, events.COMPACTED],
    "undo": [events.UNDONE],
    "redo": [events.REDONE],
}
Line = dict[str, Any]


class Moment(NamedTuple):
    """When to kill a process: after a number of lines, and some seconds more."""

    lines: int
    seconds: float


class Victim:
    """A process that waits for a start signal, and can be killed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.support.killed_session", *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # so that `killed` gets what `line` has not read
        )

    def line(self) -> Line:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def strike(self) -> None:
        """Kill it without reaping it."""
        os.kill(self._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def killed(self) -> list[Line]:
        """Kill it; returns the lines that have not been read yet."""
        self._process.kill()
        output, _ = self._process.communicate(timeout=60)
        return [json.loads(line) for line in output.splitlines()]

    @property
    def code(self) -> int | None:
        return self._process.returncode


@contextmanager
def victim(*arguments: str) -> Generator[Victim]:
    started = Victim(*arguments)
    try:
        yield started
    finally:
        started.killed()


class Ledger:
    """The expected content of a session: acknowledged, or found in it before."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._messages: list[tuple[str, str] | None] = []  # id and digest; None: not checked yet
        self._states: dict[int, str] = {}  # of operations
        self._expected: list[tuple[str, object]] = []  # events since the last check
        self._events = 0  # their number at the last check
        self._open: str | None = None  # the call that was started and not acknowledged
        self._checked = 0  # messages from here on are new

    def add(self, lines: list[Line]) -> None:
        """Add what a process reported."""
        self._open = None
        self._checked = max(0, len(self._messages) - 4)
        for line in lines:
            if "doing" in line:
                self._open = line["doing"]
            elif "did" in line:
                self._open = None
                self._note(line["did"], line)

    def _note(self, kind: str, line: Line) -> None:
        if kind in {"user", "record"}:
            self._messages.append((line["id"], line["digest"]))
        elif kind == "result":
            ids = [known and known[0] for known in self._messages]
            self._messages[len(ids) - 1 - ids[::-1].index(line["id"])] = line["id"], line["digest"]
        elif "act" in line:
            self._states[line["act"]] = line["state"]
            self._messages += [None] * max(LEAVES.get(kind, {0}))
        else:
            return  # a prune that found nothing to prune
        named = line.get("id", line.get("act"))
        self._expected += [(name, named) for name in EVENTS.get(kind, [])]

    def check(self, session: foldmark.Session, *, everything: bool) -> None:
        """Compare the store with what is expected."""
        first = 0 if everything else self._checked
        store, row = store_of(session), session.info
        entries = read_messages(store.engine, row.key, first, row.places, sized=False)
        assert [entry.index for entry in entries] == list(range(first, row.places))
        self._check_operations(session.operations())
        new_pivots = [pivot for pivot in pivots(session) if (pivot.summary or first) >= first]
        check_pivots(entries, new_pivots)
        self._check_messages(entries, {pivot.marker for pivot in new_pivots})
        self._check_events(session, row.events)

    def _check_operations(self, operations: list[Operation]) -> None:
        states = {operation.number: operation.state for operation in operations}
        assert sorted(states) == list(range(1, len(states) + 1))
        assert self._states.keys() <= states.keys()
        changed = [number for number in states if states[number] != self._states.get(number)]
        assert len(changed) <= (1 if self._open in OPERATIONS else 0), (changed, self._open)
        self._states.update(states)

    def _check_messages(self, entries: list[Entry], markers: set[int | None]) -> None:
        more = entries[-1].index + 1 - len(self._messages) if entries else 0
        assert more in LEAVES.get(self._open or "", {0}), (more, self._open)
        self._messages += [None] * more
        changed: list[int] = []
        for entry in entries:
            expected = self._messages[entry.index]
            actual = entry.message.id, digest(entry.message)
            self._messages[entry.index] = actual
            if expected is None or expected == actual:
                continue
            assert expected[0] == actual[0]
            if entry.index not in markers:  # a compaction writes its tail into the marker
                changed.append(entry.index)
        # An unacknowledged result may be there, but only in the newest messages.
        assert len(changed) <= (1 if self._open == "result" else 0), (changed, self._open)
        assert all(index >= len(self._messages) - 2 for index in changed)

    def _check_events(self, session: foldmark.Session, number: int) -> None:
        new = all_events(session, self._events)
        assert [event.number for event in new] == list(range(self._events + 1, number + 1))
        key = {events.MESSAGE_WRITTEN: "message"}
        actual = [
            (event.kind, event.data.get(key.get(event.kind, "act")))
            for event in new
            if event.kind not in {events.PART_WRITTEN, events.STARTED}
        ]
        assert actual[: len(self._expected)] == self._expected
        more = [kind for kind, _ in actual[len(self._expected) :]]
        assert more in ([], EVENTS.get(self._open or "", [])), (more, self._open)
        self._expected, self._events = [], number

    def write(self, session: foldmark.Session) -> None:
        """Write a message without waiting for the lease of the killed process."""
        message = session.user("And on it goes.")
        done = {"did": "user", "id": message.id, "digest": digest(message)}
        self.add([{"doing": "user"}, done])


def check_file(where: str) -> None:
    with closing(sqlite3.connect(where)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def one_kill(
    ledger: Ledger, where: str, doomed: Victim, moment: Moment, *, everything: bool
) -> None:
    """Let a process work up to a moment, kill it, and check the store."""
    assert "ready" in doomed.line()
    doomed.go()
    lines = [doomed.line() for _ in range(moment.lines)]
    time.sleep(moment.seconds)
    lines += doomed.killed()
    assert doomed.code == -9
    ledger.add(lines)
    # Less than a lease: a killed process is not waited for.
    with opened(where, wait_seconds=10) as session:
        ledger.check(session, everything=everything)
        assert session.plan().tokens >= 0
        assert session.view().messages or not session.info.places
        ledger.write(session)


def test_acknowledged_writes_survive_a_kill_at_any_moment(
    tmp_path: Path, postgres: str, seed: int
) -> None:
    stores = [str(tmp_path / "store.db"), new_database(postgres)]
    with ThreadPoolExecutor() as pool:  # both engines at once: most of the time is spent waiting
        for future in [pool.submit(kill_repeatedly, where, seed) for where in stores]:
            future.result()


def kill_repeatedly(where: str, seed: int) -> None:
    """Let one process after the other work on a session, and kill each."""
    chance = Random(seed)  # noqa: S311 - no secrets here
    ledger = Ledger(where)
    doomed = Victim("work", where, str(seed))
    try:
        for number in range(1, KILLS + 1):
            following = Victim("work", where, str(seed + number))  # Python starts meanwhile
            # Kill it while it opens the session, or after a number of lines, so that slow and fast
            # machines kill at the same points, except for the last moment.
            lines = 0 if number % 4 == 0 else chance.randint(1, MAX_LINES)
            moment = Moment(lines, chance.uniform(0, 0.01 if lines else 0.04))
            try:
                one_kill(ledger, where, doomed, moment, everything=number % ALL_EACH == 0)
            finally:
                doomed.killed()
                doomed = following
    finally:
        doomed.killed()
    with opened(where) as session:
        ledger.check(session, everything=True)
        numbers = [event.number for event in all_events(session)]
        assert numbers == list(range(1, session.info.events + 1))
        check_sums(session)
        assert session.info.places > 2 * KILLS or KILLS < 20
        kinds = {operation.kind for operation in session.operations()}
        assert kinds == {"prune", "pivot"} or KILLS < 20
        collect(store_of(session))  # must not remove anything that is needed
        ledger.check(session, everything=True)
    if "://" not in where:
        check_file(where)


def write_some(session: foldmark.Session, way: str) -> SessionRow:
    """Write messages for the next pivot, and a marker if the pivot is only to be completed."""
    session.user("Fix the login; the tests must still pass. " * 60)
    session.record("I look at its tests. " * 600)
    if way == "complete":
        session.queue()
    return session.info


@pytest.mark.parametrize("way", ["complete", "fold"])
def test_a_kill_at_any_statement_leaves_all_of_a_pivot_or_nothing(where: str, way: str) -> None:
    outcomes: list[int] = []
    with victim("die", where, way) as doomed:
        with opened(where) as session:
            before = write_some(session, way)
        status = -1
        while status != 0:
            doomed.go()
            status = doomed.line()["status"]
            with opened(where, wait_seconds=10) as session:
                outcomes.append(check_outcome(session, before, way))
                if outcomes[-1]:  # otherwise nothing changed, and the next one does the same
                    before = write_some(session, way)
    assert outcomes[0] == 0
    assert outcomes[-1] == max(LEAVES[way])
    assert len(outcomes) > 10


def check_outcome(session: foldmark.Session, before: SessionRow, way: str) -> int:
    """Return the number of new messages, after checking everything that belongs to them."""
    now = session.info
    more = now.places - before.places
    assert more in LEAVES[way]
    kinds = [event.kind for event in session.events(before.events)]
    assert [kind for kind in kinds if kind != events.STARTED] == (EVENTS[way] if more else [])
    assert now.acts - before.acts == (1 if more and way != "complete" else 0)
    assert (session.pending() is None) == (way == "fold" or (way == "complete") == bool(more))
    entries = read_messages(store_of(session).engine, now.key, 0, now.places, sized=False)
    check_pivots(entries, pivots(session))
    check_sums(session)
    return more


def test_a_killed_holder_is_not_waited_for_even_as_a_zombie(where: str) -> None:
    with victim("hold", where) as doomed:
        assert [doomed.line(), doomed.line()][1]["did"] == "user"
        doomed.strike()
        assert doomed.code is None  # not reaped by this process yet
        with opened(where, wait_seconds=10) as session:
            session.user("And mine.")
            assert session.info.places == 2
