"""Many processes, one store: no word is lost, nothing is done twice, and nobody waits for ever."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from tests.support.killed_session import store_of
from tests.support.processes import LIMIT, TEAM, Member, members, together
from tests.support.store_checks import all_events, check_pivots, check_sums

SESSIONS, VISITS, ROUNDS = 50, 12, 8
# Long enough to be kept apart; few, so that one is let go while another process takes it up.
LONG = tuple(f"The wheel {number} turns.\n" * 300 for number in range(4))


def opened(where: str, name: str, **more: Any) -> foldmark.Session:
    settings: dict[str, Any] = {"window": 8_000, "output": 1_000, "wait_seconds": 60, **more}
    return foldmark.open(where, session=name, **settings)


def messages_of(session: foldmark.Session) -> list[Entry]:
    row = session.info
    return read_messages(store_of(session).engine, row.key, 0, row.places, sized=False)


def check_session(session: foldmark.Session, said: Sequence[Sequence[str]]) -> None:
    """All that each process said is there, once, in its order; and all is whole."""
    found = messages_of(session)
    places = {held.message.id: held.index for held in found}
    assert len(places) == len(found) == session.info.places
    for ids in said:
        assert [places[message] for message in ids] == sorted(places[message] for message in ids)
    pivots = [act for act in session.acts() if act.kind == "pivot"]
    check_pivots(found, pivots)
    own = {held.message.id for held in found if held.index in {act.marker for act in pivots}}
    own |= {held.message.id for held in found if held.index in {act.summary for act in pivots}}
    assert places.keys() - own == {message for ids in said for message in ids}
    assert [event.number for event in all_events(session)] == list(
        range(1, session.info.events + 1)
    )
    check_sums(session)
    assert session.plan().tokens >= 0


# --- one session -------------------------------------------------------------------------------


def take_turns(line: Connection, start: Barrier, number: int, where: str) -> list[str]:
    """Come back to one session again and again; the ids of what was said."""
    chance = Random(number)  # noqa: S311 - no secrets here
    said: list[str] = []
    start.wait(LIMIT)
    for turn in range(6):
        with opened(where, "shared") as session:
            # At once, while others may be about to do the same, or have just done it.
            with suppress(foldmark.BadInput):
                if chance.random() < 0.67:
                    session.queue()
                else:
                    session.compact("In a hurry.")
            texts = [f"{number}.{turn} {chance.choice(LONG)}" for _ in range(chance.randint(1, 4))]
            said += [session.user(text).id for text in texts]
            if chance.random() < 0.4:
                session.prune()
            if chance.random() < 0.5 and session.pending():
                session.compact(f"So far, says {number}.")
            if chance.random() < 0.2:
                session.compact(f"All in one, says {number}.")
    return said


def test_processes_that_share_a_session_lose_nothing(where: str) -> None:
    said = together(take_turns, where)
    with opened(where, "shared") as session:
        check_session(session, said)
        assert len([act for act in session.acts() if act.state in {"queued", "claimed"}]) <= 1
        assert any(act.kind == "pivot" and act.summary for act in session.acts())


# --- many sessions ------------------------------------------------------------------------------


def visit(line: Connection, start: Barrier, number: int, where: str) -> list[tuple[str, str]]:
    """Look in at sessions by chance; what was said, and where."""
    chance = Random(number)  # noqa: S311 - no secrets here
    said: list[tuple[str, str]] = []
    start.wait(LIMIT)
    for _ in range(VISITS):
        name = f"session {chance.randrange(SESSIONS)}"
        with opened(where, name) as session:
            said.append((name, session.user(LONG[0]).id))
            reply = session.record(chance.choice(LONG))
            parts = (TextPart(text=chance.choice(LONG)),)
            writer.amend(
                state_of(session), reply.id, lambda held, parts=parts: replace(held, parts=parts)
            )
            said.append((name, reply.id))
            if chance.random() < 0.2:
                session.compact("So far, so good.")
    return said


def keep_clean(line: Connection, where: str) -> int:
    """Tidy the store, again and again, until told to end; how often that was."""
    store = Store.open(where, wait=60)
    rounds = 0
    while not line.poll():
        collect(store)
        time.sleep(0.05)  # others have to write, after all
        rounds += 1
    store.close()
    return rounds


def test_a_store_of_many_sessions_is_kept_clean_while_all_are_written_to(where: str) -> None:
    Store.open(where).close()
    with members([(keep_clean, where)]) as cleaners:
        visits = together(visit, where)
        cleaners[0].line.send("enough")
        assert cleaners[0].told() > 0
    names = {name for said in visits for name, _ in said}
    texts: set[str] = set()
    for name in sorted(names):
        with opened(where, name) as session:
            ids = [[message for own, message in said if own == name] for said in visits]
            check_session(session, ids)
            texts |= {text for held in messages_of(session) for text in long_texts(held.message)}
    assert texts <= set(LONG)


def long_texts(message: Message) -> list[str]:
    return [text for part in message.parts if len(text := part_text(part)) > 2_048]


# --- one new store ------------------------------------------------------------------------------


def open_all(line: Connection, start: Barrier, number: int, stores: list[str]) -> list[str]:
    said: list[str] = []
    for where in stores:
        start.wait(LIMIT)
        with opened(where, "new") as session:
            said.append(session.user(f"I am {number}").id)
    return said


def test_a_new_file_and_a_new_session_may_be_opened_by_all_at_once(tmp_path: Path) -> None:
    stores = [str(tmp_path / f"{number}.db") for number in range(20)]
    said = together(open_all, stores)
    for number, where in enumerate(stores):
        with opened(where, "new") as session:
            check_session(session, [[ids[number]] for ids in said])


# --- one queued compaction ----------------------------------------------------------------------


def race(line: Connection, start: Barrier, number: int, where: str) -> list[tuple[int, str]]:
    """Complete what is queued, if it still is; which acts that were, and what came of it."""
    seen: list[tuple[int, str]] = []
    for turn in range(ROUNDS):
        if number == turn % TEAM:
            with opened(where, "queued") as session:
                session.user(f"{turn} {LONG[0]}")
                session.queue()
        start.wait(LIMIT)
        with opened(where, "queued") as session:
            if number % 2:
                session.user("Now it is mine to write.")  # and nobody else's, until it is closed
            if pending := session.pending():
                seen.append((pending.number, completed(session, pending.number)))
        start.wait(LIMIT)
    return seen


def completed(session: foldmark.Session, number: int) -> str:
    try:
        act = session.compact(f"Summary by {os.getpid()}.")
    except foldmark.BadInput:
        return "refused"
    assert act is not None
    return "completed" if act.number == number else "made anew"


def test_a_queued_compaction_is_completed_by_exactly_one(where: str) -> None:
    found = together(race, where)
    done = Counter(number for seen in found for number, how in seen if how == "completed")
    queued = {number for seen in found for number, _ in seen}
    assert len(queued) >= ROUNDS
    assert done == dict.fromkeys(queued, 1)
    # Who has the lease sees what is so; who has not may be late between the look and the call.
    assert {how for seen in found[1::2] for _, how in seen} == {"completed"}
    with opened(where, "queued") as session:
        pivots = [act for act in session.acts() if act.kind == "pivot"]
        check_pivots(messages_of(session), pivots)
        assert all(act.state == "done" for act in pivots)
        check_sums(session)


def test_a_queued_compaction_that_a_newer_one_has_folded_is_not_waited_for(where: str) -> None:
    with opened(where, "queued") as session:
        first = session.user(LONG[0])
        session.queue()
        session.revert(first.id)
        for text in LONG:
            session.user(text)
            session.record(text)
        newer = session.queue()
        session.undo()  # of the revert: now both are queued
        done = session.compact("So far.")
        assert done is not None
        assert newer is not None
        assert done.number == newer.number
        assert session.pending() is None
        assert session.compact("So far, so good.") is not None
        session.undo()
        session.undo()
        assert session.pending() is not None


# --- a session that is removed meanwhile --------------------------------------------------------


def test_who_writes_to_a_removed_session_does_not_write_to_the_next_one(where: str) -> None:
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
            assert [held.message.id for held in messages_of(following)] == [other.id]


# --- one holder ---------------------------------------------------------------------------------


def speak(line: Connection, where: str, settings: dict[str, float]) -> None:
    """Say what one is told to; None where another one holds the session."""
    with opened(where, "held", **settings) as session:
        line.send((True, os.getpid()))
        while text := line.recv():
            try:
                line.send((True, session.user(text).id))
            except foldmark.SessionBusy:
                line.send((True, None))


def asked(member: Member, text: str) -> str | None:
    member.line.send(text)
    return member.told()


def test_who_comes_second_is_told_who_holds_the_session(where: str) -> None:
    with members([(speak, where, {})]) as (holder,):
        process = holder.told()
        first = asked(holder, "Mine.")
        assert first
        with opened(where, "held", wait_seconds=0.3) as session:
            began = time.monotonic()
            with pytest.raises(foldmark.SessionBusy, match=f"by process {process} on ") as caught:
                session.user("And mine?")
            assert 0.3 <= time.monotonic() - began < 20
            assert caught.value.session == "held"
            assert caught.value.seconds > 0
            assert [held.message.id for held in messages_of(session)] == [first]
            assert session.view().messages
            holder.line.send("")
            assert holder.told() is None  # it has closed
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
    """Do what one is told to; the name of the error where that fails."""
    with opened(where, "held", lease_seconds=1.0, wait_seconds=0.5) as session:
        for number in range(3):
            session.user(f"Question {number}: {LONG[0]}")
            session.record(f"Answer {number}")
        session.compact("Three questions.")
        line.send((True, os.getpid()))
        while asked := line.recv():
            try:
                WRITES[asked](session, "Mine again.")
                line.send((True, ""))
            except foldmark.FoldmarkError as error:
                line.send((True, type(error).__name__))


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("other_one", ["stays", "goes"])
def test_who_was_stopped_and_overtaken_writes_nothing_until_it_is_told(
    where: str, kind: str, other_one: str
) -> None:
    with members([(write, where)]) as (stopped,):
        process = stopped.told()
        os.kill(process, signal.SIGSTOP)
        try:
            with opened(where, "held") as other:
                other.user("Another's.")
                if other_one == "goes":
                    other.close()
                before = contents(where)
                stopped.line.send(kind)  # the first that it sees when it wakes up
                os.kill(process, signal.SIGCONT)
                assert stopped.told() == "SessionOvertaken"
                assert contents(where) == before
                if other_one == "stays":
                    assert asked(stopped, "user") == "SessionBusy"  # it asks for the lease again
                    other.user("Still another's.")
        finally:
            os.kill(process, signal.SIGCONT)
        assert asked(stopped, "user") == ""  # it goes on, on what the other one left
        stopped.line.send("")
        assert stopped.told() is None
    with opened(where, "held") as session:
        said = [part_text(held.message.parts[0]) for held in messages_of(session)]
        assert said[-2:] == [
            "Still another's." if other_one == "stays" else "Another's.",
            "Mine again.",
        ]
        check_sums(session)


def contents(where: str) -> tuple[list[Entry], list[Any]]:
    """All messages of a session and all that was done to it, read by a stranger."""
    with opened(where, "held") as session:
        return messages_of(session), session.acts()
