"""What was acknowledged is there after a SIGKILL at any moment, whole; what was not, at most once.

Real processes (`victim`) work on one session of a real store and are killed. What they told of
before they died is held against what the store then holds. FOLDMARK_KILLS says how many die.
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
from tests.support.effort import kills
from tests.support.killed_session import digest, opened, store_of
from tests.support.store_checks import all_events, check_pivots, check_sums
from tests.support.store_engines import new_database

ROOT = Path(__file__).parents[2]
KILLS = kills(20, 200)
MOST_TOLD = 120  # lines after which a process is killed: two for each thing that it does
ALL_EACH = 20  # kills after which everything is looked at, not only what is new
# How many messages a call that was not acknowledged may have left, and which acts it may touch.
LEAVES = {"user": {0, 1}, "record": {0, 1}, "queue": {0, 1}, "complete": {0, 1}, "fold": {0, 2}}
ACTS = {"prune", "queue", "complete", "fold", "undo", "redo"}
TELLS = {
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
    """When to kill a process: after so many lines, and so many seconds more."""

    told: int
    seconds: float


class Victim:
    """A process that waits for the word to begin, and can be killed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.support.killed_session", *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what `line` has not read, `killed` finds
        )

    def line(self) -> Line:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def strike(self) -> None:
        """Kill it, and take no note of its death."""
        os.kill(self._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def killed(self) -> list[Line]:
        """End it; all that it told of and nobody has read yet."""
        self._process.kill()
        rest, _ = self._process.communicate(timeout=60)
        return [json.loads(line) for line in rest.splitlines()]

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
    """What a session must hold, as far as it was acknowledged, or was found there once."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._messages: list[tuple[str, str] | None] = []  # id and digest; None: not yet seen
        self._acts: dict[int, str] = {}  # number → state
        self._told: list[tuple[str, object]] = []  # events since the last look
        self._events = 0  # that were there at the last look
        self._open: str | None = None  # the call that was begun and not acknowledged
        self._checked = 0  # messages from here on are new

    def take(self, lines: list[Line]) -> None:
        """Believe what a process told."""
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
            ids = [held and held[0] for held in self._messages]
            self._messages[len(ids) - 1 - ids[::-1].index(line["id"])] = line["id"], line["digest"]
        elif "act" in line:
            self._acts[line["act"]] = line["state"]
            self._messages += [None] * max(LEAVES.get(kind, {0}))
        else:
            return  # a prune that found nothing to prune
        self._told += [(name, line.get("id", line.get("act"))) for name in TELLS.get(kind, [])]

    def look(self, session: foldmark.Session, *, everything: bool) -> None:
        """Hold what is told against what is there."""
        first = 0 if everything else self._checked
        store, row = store_of(session), session.info
        found = read_messages(store.engine, row.key, first, row.places, sized=False)
        assert [held.index for held in found] == list(range(first, row.places))
        acts = session.acts()
        self._look_at_acts(acts)
        pivots = [act for act in acts if act.kind == "pivot" and (act.summary or first) >= first]
        check_pivots(found, pivots)
        self._look_at_messages(found, {act.marker for act in pivots})
        self._look_at_events(session, row.events)

    def _look_at_acts(self, acts: list[Operation]) -> None:
        states = {act.number: act.state for act in acts}
        assert sorted(states) == list(range(1, len(states) + 1))
        assert self._acts.keys() <= states.keys()
        changed = [number for number in states if states[number] != self._acts.get(number)]
        assert len(changed) <= (1 if self._open in ACTS else 0), (changed, self._open)
        self._acts.update(states)

    def _look_at_messages(self, found: list[Entry], markers: set[int | None]) -> None:
        more = found[-1].index + 1 - len(self._messages) if found else 0
        assert more in LEAVES.get(self._open or "", {0}), (more, self._open)
        self._messages += [None] * more
        changed: list[int] = []
        for held in found:
            known = self._messages[held.index]
            seen = held.message.id, digest(held.message)
            self._messages[held.index] = seen
            if known is None or known == seen:
                continue
            assert known[0] == seen[0]
            if held.index not in markers:  # a marker is told where its tail begins
                changed.append(held.index)
        # A result that was not acknowledged may be there: in the newest messages only.
        assert len(changed) <= (1 if self._open == "result" else 0), (changed, self._open)
        assert all(place >= len(self._messages) - 2 for place in changed)

    def _look_at_events(self, session: foldmark.Session, number: int) -> None:
        found = all_events(session, self._events)
        assert [event.number for event in found] == list(range(self._events + 1, number + 1))
        told = [
            (
                event.kind,
                event.data.get("message" if event.kind == events.MESSAGE_WRITTEN else "act"),
            )
            for event in found
            if event.kind not in {events.PART_WRITTEN, events.STARTED}
        ]
        assert told[: len(self._told)] == self._told
        more = [kind for kind, _ in told[len(self._told) :]]
        assert more in ([], TELLS.get(self._open or "", [])), (more, self._open)
        self._told, self._events = [], number

    def go_on(self, session: foldmark.Session) -> None:
        """Work on it oneself, without waiting for the dead one's lease to end."""
        said = session.user("And on it goes.")
        lines: list[Line] = [
            {"doing": "user"},
            {"did": "user", "id": said.id, "digest": digest(said)},
        ]
        self.take(lines)


def check_file(where: str) -> None:
    with closing(sqlite3.connect(where)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def one_kill(
    ledger: Ledger, where: str, doomed: Victim, moment: Moment, *, everything: bool
) -> None:
    """Let a process work up to a moment, kill it, and look."""
    assert "ready" in doomed.line()
    doomed.go()
    lines = [doomed.line() for _ in range(moment.told)]
    time.sleep(moment.seconds)
    lines += doomed.killed()
    assert doomed.code == -9
    ledger.take(lines)
    # Less than a lease: who has died is not waited for.
    with opened(where, wait_seconds=10) as session:
        ledger.look(session, everything=everything)
        assert session.plan().tokens >= 0
        assert session.view().messages or not session.info.places
        ledger.go_on(session)


def test_what_was_acknowledged_survives_a_kill_at_any_moment(
    tmp_path: Path, postgres: str, seed: int
) -> None:
    stores = [str(tmp_path / "store.db"), new_database(postgres)]
    with ThreadPoolExecutor() as pool:  # both engines at once: most of the time is spent waiting
        for finished in [pool.submit(kill_again_and_again, where, seed) for where in stores]:
            finished.result()


def kill_again_and_again(where: str, seed: int) -> None:
    """One session, worked on by one process after the other, of which none ends well."""
    chance = Random(seed)  # noqa: S311 - no secrets here
    ledger = Ledger(where)
    doomed = Victim("work", where, str(seed))
    try:
        for number in range(1, KILLS + 1):
            following = Victim("work", where, str(seed + number))  # Python starts meanwhile
            # While it opens the session, or at its work: told by what it has said, so that a slow
            # machine kills at the same places as a quick one, and only the last moment is chance.
            told = 0 if number % 4 == 0 else chance.randint(1, MOST_TOLD)
            moment = Moment(told, chance.uniform(0, 0.01 if told else 0.04))
            try:
                one_kill(ledger, where, doomed, moment, everything=number % ALL_EACH == 0)
            finally:
                doomed.killed()
                doomed = following
    finally:
        doomed.killed()
    with opened(where) as session:
        ledger.look(session, everything=True)
        assert [event.number for event in all_events(session)] == list(
            range(1, session.info.events + 1)
        )
        check_sums(session)
        assert session.info.places > 2 * KILLS or KILLS < 20
        assert {act.kind for act in session.acts()} == {"prune", "pivot"} or KILLS < 20
        collect(store_of(session))  # of what is needed, nothing may seem to be unneeded
        ledger.look(session, everything=True)
    if "://" not in where:
        check_file(where)


def said_some(session: foldmark.Session, way: str) -> SessionRow:
    """Give the next pivot something to fold; and a marker, if it is only to be completed."""
    session.user("Fix the mill; the pond must not run dry. " * 60)
    session.record("I look at its wheel. " * 600)
    if way == "complete":
        session.queue()
    return session.info


@pytest.mark.parametrize("way", ["complete", "fold"])
def test_a_death_at_any_statement_leaves_all_of_a_pivot_or_nothing(where: str, way: str) -> None:
    outcomes: list[int] = []
    with victim("die", where, way) as doomed:
        with opened(where) as session:
            before = said_some(session, way)
        status = -1
        while status != 0:
            doomed.go()
            status = doomed.line()["status"]
            with opened(where, wait_seconds=10) as session:
                outcomes.append(look_at_outcome(session, before, way))
                if outcomes[-1]:  # otherwise all is as it was, and the next one does the same
                    before = said_some(session, way)
    assert outcomes[0] == 0
    assert outcomes[-1] == max(LEAVES[way])
    assert len(outcomes) > 10


def look_at_outcome(session: foldmark.Session, before: SessionRow, way: str) -> int:
    """How many messages there are now; all else that belongs to them is there as well."""
    now = session.info
    more = now.places - before.places
    assert more in LEAVES[way]
    told = [event.kind for event in session.events(before.events)]
    assert [kind for kind in told if kind != events.STARTED] == (TELLS[way] if more else [])
    assert now.acts - before.acts == (1 if more and way != "complete" else 0)
    assert (session.pending() is None) == (way == "fold" or (way == "complete") == bool(more))
    found = read_messages(store_of(session).engine, now.key, 0, now.places, sized=False)
    check_pivots(found, [act for act in session.acts() if act.kind == "pivot"])
    check_sums(session)
    return more


def test_a_dead_holder_whom_nobody_has_buried_is_not_waited_for(where: str) -> None:
    with victim("hold", where) as doomed:
        assert [doomed.line(), doomed.line()][1]["did"] == "user"
        doomed.strike()
        assert doomed.code is None  # its parent, which we are, has not asked for it yet
        with opened(where, wait_seconds=10) as session:
            session.user("And mine.")
            assert session.info.places == 2
