"""Many processes, one store: nothing is lost, nothing is done twice, and nothing deadlocks."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import foldmark
from foldmark.log.log import Entry, part_text
from foldmark.model.messages import Message, TextPart
from foldmark.session import writer
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import state_of
from foldmark.store.maintenance import collect
from foldmark.store.rows import read_messages
from foldmark.store.store import Store
from tests.support.compacted_sessions import pivots
from tests.support.killed_session import store_of
from tests.support.processes import LIMIT, TEAM, Member, members, together
from tests.support.store_checks import all_events, check_pivots, check_sums

SESSIONS, VISITS, ROUNDS = 50, 12, 8
# Long enough to be stored separately; few, so that one is released while another process uses it.
LONG = tuple(f"The build {number} runs.\n" * 300 for number in range(4))


def opened(where: str, name: str, **more: Any) -> foldmark.Session:
    settings: dict[str, Any] = {"window": 8_000, "output": 1_000, "wait_seconds": 60, **more}
    return foldmark.open(where, session=name, **settings)


def messages_of(session: foldmark.Session) -> list[Entry]:
    row = session.info
    return read_messages(store_of(session).engine, row.key, 0, row.places, sized=False)


def check_session(session: foldmark.Session, texts: Sequence[Sequence[str]]) -> None:
    """Check that each process's messages are there, once, in order; and that all is consistent."""
    entries = messages_of(session)
    indexes = {entry.message.id: entry.index for entry in entries}
    assert len(indexes) == len(entries) == session.info.places
    for ids in texts:
        assert [indexes[message] for message in ids] == sorted(indexes[message] for message in ids)
    check_pivots(entries, pivots(session))
    own = {index for pivot in pivots(session) for index in (pivot.marker, pivot.summary)}
    others = {name for name, index in indexes.items() if index not in own}
    assert others == {message for ids in texts for message in ids}
    numbers = [event.number for event in all_events(session)]
    assert numbers == list(range(1, session.info.events + 1))
    check_sums(session)
    assert session.plan().tokens >= 0


# --- one session -------------------------------------------------------------------------------


def take_turns(line: Connection, start: Barrier, number: int, where: str) -> list[str]:
    """Open one session repeatedly; returns the ids of the written messages."""
    chance = Random(number)  # noqa: S311 - no secrets here
    ids: list[str] = []
    start.wait(LIMIT)
    for turn in range(6):
        with opened(where, "shared") as session:
            # Immediately, while others may do the same.
            with suppress(foldmark.BadInput):
                if chance.random() < 0.67:
                    session.queue()
                else:
                    session.compact("In a hurry.")
            texts = [f"{number}.{turn} {chance.choice(LONG)}" for _ in range(chance.randint(1, 4))]
            ids += [session.user(text).id for text in texts]
            if chance.random() < 0.4:
                session.prune()
            if chance.random() < 0.5 and session.pending():
                session.compact(f"So far, says {number}.")
            if chance.random() < 0.2:
                session.compact(f"All in one, says {number}.")
    return ids


def test_processes_that_share_a_session_lose_no_message(where: str) -> None:
    texts = together(take_turns, where)
    with opened(where, "shared") as session:
        check_session(session, texts)
        assert sum(pivot.state in {"queued", "claimed"} for pivot in pivots(session)) <= 1
        assert any(pivot.summary for pivot in pivots(session))


# --- many sessions ------------------------------------------------------------------------------


def visit(line: Connection, start: Barrier, number: int, where: str) -> list[tuple[str, str]]:
    """Write to random sessions; returns their ids and those of the messages."""
    chance = Random(number)  # noqa: S311 - no secrets here
    ids: list[tuple[str, str]] = []
    start.wait(LIMIT)
    for _ in range(VISITS):
        name = f"session {chance.randrange(SESSIONS)}"
        with opened(where, name) as session:
            ids.append((name, session.user(LONG[0]).id))
            reply = session.record(chance.choice(LONG))
            parts = (TextPart(text=chance.choice(LONG)),)
            writer.amend(state_of(session), reply.id, partial(replace, parts=parts))
            ids.append((name, reply.id))
            if chance.random() < 0.2:
                session.compact("So far, so good.")
    return ids


def keep_clean(line: Connection, where: str) -> int:
    """Clean the store repeatedly until a message comes; returns how often."""
    store = Store.open(where, wait=60)
    rounds = 0
    while not line.poll():
        collect(store)
        time.sleep(0.05)  # let others write
        rounds += 1
    store.close()
    return rounds


def test_a_store_can_be_cleaned_while_all_its_sessions_are_written(where: str) -> None:
    Store.open(where).close()
    with members([(keep_clean, where)]) as cleaners:
        visits = together(visit, where)
        cleaners[0].line.send("enough")
        assert cleaners[0].receive() > 0
    names = {name for replies in visits for name, _ in replies}
    texts: set[str] = set()
    for name in sorted(names):
        with opened(where, name) as session:
            ids = [[message for own, message in replies if own == name] for replies in visits]
            check_session(session, ids)
            texts |= {text for entry in messages_of(session) for text in long_texts(entry.message)}
    assert texts <= set(LONG)


def long_texts(message: Message) -> list[str]:
    return [text for part in message.parts if len(text := part_text(part)) > 2_048]


# --- one new store ------------------------------------------------------------------------------


def open_all(line: Connection, start: Barrier, number: int, stores: list[str]) -> list[str]:
    texts: list[str] = []
    for where in stores:
        start.wait(LIMIT)
        with opened(where, "new") as session:
            texts.append(session.user(f"I am {number}").id)
    return texts


def test_a_new_file_and_session_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    stores = [str(tmp_path / f"{number}.db") for number in range(20)]
    texts = together(open_all, stores)
    for number, where in enumerate(stores):
        with opened(where, "new") as session:
            check_session(session, [[ids[number]] for ids in texts])


# --- one queued compaction ----------------------------------------------------------------------


def race(line: Connection, start: Barrier, number: int, where: str) -> list[tuple[int, str]]:
    """Complete queued compactions; returns their numbers and the outcomes."""
    outcomes: list[tuple[int, str]] = []
    for turn in range(ROUNDS):
        if number == turn % TEAM:
            with opened(where, "queued") as session:
                session.user(f"{turn} {LONG[0]}")
                session.queue()
        start.wait(LIMIT)
        with opened(where, "queued") as session:
            if number % 2:
                session.user("Take the lease.")  # keeps others from writing until it is closed
            if pending := session.pending():
                outcomes.append((pending.number, completed(session, pending.number)))
        start.wait(LIMIT)
    return outcomes


def completed(session: foldmark.Session, number: int) -> str:
    try:
        operation = session.compact(f"Summary by {os.getpid()}.")
    except foldmark.BadInput:
        return "refused"
    assert operation is not None
    return "completed" if operation.number == number else "made anew"


def test_a_queued_compaction_is_completed_by_exactly_one(where: str) -> None:
    team = together(race, where)
    outcomes = [outcome for member in team for outcome in member]
    queued = {number for number, _ in outcomes}
    assert len(queued) >= ROUNDS
    completions = Counter(number for number, how in outcomes if how == "completed")
    assert completions == dict.fromkeys(queued, 1)
    # Holders of the lease always succeed; the others may be late after they looked.
    assert {how for member in team[1::2] for _, how in member} == {"completed"}
    with opened(where, "queued") as session:
        check_pivots(messages_of(session), pivots(session))
        assert all(pivot.state == "done" for pivot in pivots(session))
        check_sums(session)


def test_a_queued_compaction_folded_by_a_newer_one_is_not_pending(where: str) -> None:
    with opened(where, "queued") as session:
        first = session.user(LONG[0])
        session.queue()
        session.revert(first.id)
        for text in LONG:
            session.user(text)
            session.record(text)
        newer = session.queue()
        session.undo()  # the revert: now both are queued
        operation = session.compact("So far.")
        assert operation is not None
        assert newer is not None
        assert operation.number == newer.number
        assert session.pending() is None
        assert session.compact("So far, so good.") is not None
        session.undo()
        session.undo()
        assert session.pending() is not None


# --- a session that is removed ------------------------------------------------------------------


def test_writing_to_a_removed_session_does_not_write_to_the_next_one(where: str) -> None:
    with opened(where, "removed") as session:
        session.user("Mine.")
        session.release()
        time.sleep(0.01)
        assert collect(store_of(session), older_than=0).sessions == ("removed",)
        with opened(where, "next") as following:
            other = following.user("Another's.")
            following.release()
            with pytest.raises(foldmark.StoreError, match="there is no session"):
                session.user("Mine again.")
            assert [entry.message.id for entry in messages_of(following)] == [other.id]


# --- one holder ---------------------------------------------------------------------------------


def speak(line: Connection, where: str, settings: dict[str, float]) -> None:
    """Write each received text; replies with None if another process holds the session."""
    with opened(where, "held", **settings) as session:
        line.send((True, os.getpid()))
        while text := line.recv():
            try:
                line.send((True, session.user(text).id))
            except foldmark.SessionBusy:
                line.send((True, None))


def ask(member: Member, text: str) -> str | None:
    member.line.send(text)
    return member.receive()


def test_a_second_writer_learns_who_holds_the_session(where: str) -> None:
    with members([(speak, where, {})]) as (holder,):
        process = holder.receive()
        first = ask(holder, "Mine.")
        assert first
        with opened(where, "held", wait_seconds=0.3) as session:
            began = time.monotonic()
            with pytest.raises(foldmark.SessionBusy, match=f"by process {process} on ") as caught:
                session.user("And mine?")
            assert time.monotonic() - began >= 0.3
            assert caught.value.session == "held"
            assert caught.value.seconds > 0
            assert [entry.message.id for entry in messages_of(session)] == [first]
            assert session.view().messages
            holder.line.send("")
            assert holder.receive() is None  # it has closed the session
            second = session.user("And mine!").id
            check_session(session, [[first], [second]])


WRITES: dict[str, Callable[[foldmark.Session, str], object]] = {
    "user": lambda session, text: session.user(text),
    "record": lambda session, text: session.record(text),
    "compact": lambda session, text: session.compact(text),
    "queue": lambda session, _: session.queue(),
    "undo": lambda session, _: session.undo(),
    "acquire": lambda session, _: LoopSupport(session).acquire(),
}


def write(line: Connection, where: str) -> None:
    """Run each received command; replies with the name of the error, or ""."""
    with opened(where, "held", lease_seconds=1.0, wait_seconds=0.5) as session:
        for number in range(3):
            session.user(f"Question {number}: {LONG[0]}")
            session.record(f"Answer {number}")
        session.compact("Three questions.")
        line.send((True, os.getpid()))
        while request := line.recv():
            try:
                WRITES[request](session, "Mine again.")
                line.send((True, ""))
            except foldmark.FoldmarkError as error:
                line.send((True, type(error).__name__))


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("other_one", ["stays", "goes"])
def test_a_suspended_and_overtaken_process_writes_nothing_until_it_knows(
    where: str, kind: str, other_one: str
) -> None:
    with members([(write, where)]) as (stopped,):
        process = stopped.receive()
        os.kill(process, signal.SIGSTOP)
        try:
            with opened(where, "held") as other:
                other.user("Another's.")
                if other_one == "goes":
                    other.close()
                before = contents(where)
                stopped.line.send(kind)  # received first after it continues
                os.kill(process, signal.SIGCONT)
                assert stopped.receive() == "SessionOvertaken"
                assert contents(where) == before
                if other_one == "stays":
                    assert ask(stopped, "user") == "SessionBusy"  # it tries to take the lease again
                    other.user("Still another's.")
        finally:
            os.kill(process, signal.SIGCONT)
        assert ask(stopped, "user") == ""  # it continues after the other one's messages
        stopped.line.send("")
        assert stopped.receive() is None
    with opened(where, "held") as session:
        texts = [part_text(entry.message.parts[0]) for entry in messages_of(session)]
        assert texts[-2:] == [
            "Still another's." if other_one == "stays" else "Another's.",
            "Mine again.",
        ]
        check_sums(session)


def contents(where: str) -> tuple[list[Entry], list[Any]]:
    """All messages of a session and all that was done to it, read by a stranger."""
    with opened(where, "held") as session:
        return messages_of(session), session.operations()
