"""What happens in a session is told, in order and without gaps; hooks may change what happens."""

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from msgspec.structs import replace

import foldmark
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest
from foldmark.errors import SessionOvertaken
from foldmark.log.log import part_text
from foldmark.log.view import View
from foldmark.model import events
from foldmark.model.events import Event
from foldmark.model.messages import Message, SessionInfo, TextPart
from foldmark.model.prompt_messages import Text, UserMessage
from foldmark.session.hooks import CompactionChange
from foldmark.session.loop_support import LoopSupport
from foldmark.store.store import Store
from tests.support.compacted_sessions import end_leases
from tests.support.stored_sessions import bytes_of, call, fill, opened, work


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def since(session: foldmark.Session, number: int) -> list[Event]:
    return session.events(after=number)


def last(session: foldmark.Session) -> int:
    return session.info.events


def test_each_operation_tells_what_it_did(where: str) -> None:
    with opened(where, "s") as session:
        message = session.user("Hello there")
        written, part = session.events()
        assert (written.kind, part.kind) == (events.MESSAGE_WRITTEN, events.PART_WRITTEN)
        assert written.data == {"message": message.id, "place": 0, "tokens": part.data["tokens"]}
        assert part.data == {"handle": "h0", "place": 0, "kind": "text", "tokens": 3}
        assert (written.number, part.number, written.session) == (1, 2, "s")
        assert abs(written.at - time.time() * 1000) < 60_000
        mark = last(session)
        session.record([TextPart(text="I look"), call("c")])
        assert kinds(since(session, mark)) == [events.MESSAGE_WRITTEN, *[events.PART_WRITTEN] * 2]
        mark = last(session)
        session.result("c", "found " * 40)
        (settled,) = since(session, mark)
        assert settled.kind == events.PART_WRITTEN
        assert (settled.data["handle"], settled.data["place"]) == ("h2", 1)
        assert settled.data["tokens"] > 40


def test_what_shapes_the_view_tells_its_tokens(where: str) -> None:
    with opened(where, "s") as session:
        work(session)
        for operation, kind, more in (
            (session.prune, events.PRUNED, {"act": 1}),
            (lambda: session.compact("Folded."), events.COMPACTED, {"act": 2}),
            (session.undo, events.UNDONE, {"act": 2, "what": "pivot"}),
            (session.redo, events.REDONE, {"act": 2, "what": "pivot"}),
            (lambda: session.revert("h0"), events.REVERTED, {"act": 3}),
            (session.undo, events.UNDONE, {"act": 3, "what": "revert"}),
        ):
            mark, before = last(session), session.view().tokens
            operation()
            told = since(session, mark)[-1]
            assert told.kind == kind
            assert told.data.items() >= more.items()
            assert (told.data["before"], told.data["after"]) == (before, session.view().tokens)
        numbers = [event.number for event in session.events(limit=10_000)]
        assert numbers == list(range(1, len(numbers) + 1))
        results = {pivot.number: pivot for pivot in session.operations()}
        pruned = next(event for event in session.events() if event.kind == events.PRUNED)
        assert (results[1].before, results[1].after) == (
            pruned.data["before"],
            pruned.data["after"],
        )


def test_a_compaction_tells_its_way(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
        mark = last(session)
        session.queue(auto=True)
        session.queue()  # it is queued already
        session.compact("Folded.")
        told = since(session, mark)
        assert kinds(told) == [events.QUEUED, events.STARTED, events.COMPACTED]
        assert {event.data["act"] for event in told} == {1}
        assert told[0].data["auto"] is True
        mark = last(session)
        session.queue()
        session.cancel("too late")
        session.cancel()
        assert kinds(since(session, mark)) == [events.QUEUED, events.FAILED]
        assert since(session, mark)[-1].data == {"act": 2, "reason": "too late"}
        with session.fork() as fork:
            assert [(event.kind, event.data["origin"]) for event in fork.events()] == [
                (events.FORKED, "s")
            ]
    fill(where, session_messages(where), "filled")
    with opened(where, "filled") as session:
        (imported,) = session.events()
        assert imported.kind == events.IMPORTED
        assert imported.data == {"messages": 4, "marks": 0, "pivots": 1}


def session_messages(where: str) -> tuple[Message, ...]:
    with opened(where, "s") as session:
        return session.export().messages


def test_what_fails_tells_nothing(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
        mark, version = last(session), session.info.version
        for request in (session.undo, session.redo, lambda: session.result("x", "")):
            with pytest.raises(foldmark.BadInput):
                request()
        assert session.prune() is None
        assert (last(session), session.info.version) == (mark, version)
        session.user("More")
        assert since(session, mark)[0].number == mark + 1


def test_events_come_in_pieces_of_any_size(where: str) -> None:
    with opened(where, "s") as session:
        work(session, 10)
        whole = session.events()
        for limit in (1, 2, 3, 7):
            results: list[Event] = []
            while piece := session.events(after=len(results), limit=limit):
                assert len(piece) <= limit
                results += piece
            assert results == whole
        assert session.events(after=len(whole)) == []


def test_an_event_that_never_happens_cannot_be_waited_for(where: str) -> None:
    with opened(where, "s") as session:
        session.subscribe(print, ["mill.opened"])  # the program's own
        for wrong, near in (
            ("session.prund", "session.pruned"),
            ("compactions.", "compaction"),
            ("tool.eaten", "tool.called, tool.finished, tool.started"),
        ):
            with pytest.raises(foldmark.BadInput, match=f"no event '{wrong}'; there is {near}"):
                session.subscribe(print, [wrong])
        events: list[Event] = []
        session.subscribe(events.append, "message.written")  # one is enough
        session.user("Hello")
        assert [event.kind for event in events] == ["message.written"]


def test_another_session_object_follows_from_a_number(where: str) -> None:
    with opened(where, "s") as writer, opened(where, "s") as reader:
        writer.user("One")
        after = last(writer)
        results: list[Event] = []
        follower = threading.Thread(
            target=lambda: results.extend(reader.follow(after=after, seconds=2))
        )
        follower.start()
        for text in ("Two", "Three"):
            time.sleep(0.1)
            writer.user(text)
        follower.join(20)
        assert results == writer.events(after=after)
        assert [event.number for event in results] == [3, 4, 5, 6]

        async def read() -> list[Event]:
            return [event async for event in reader.afollow(seconds=0.1)]

        assert asyncio.run(read()) == writer.events()


def test_another_process_follows(where: str) -> None:
    code = (
        "import sys, foldmark\n"
        "with foldmark.open(sys.argv[1], session='s') as session:\n"
        "    print('ready', flush=True)\n"
        "    for event in session.follow(after=2, seconds=20):\n"
        "        print(event.number, event.kind, flush=True)\n"
        "        if event.kind == 'session.compacted': break\n"
    )
    with opened(where, "s") as session:
        session.user("Hello")
        other = subprocess.Popen([sys.executable, "-c", code, where], stdout=subprocess.PIPE)
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        session.compact("Folded.")
        out, _ = other.communicate(timeout=30)
        events = [f"{event.number} {event.kind}" for event in session.events(after=2)]
        assert out.decode().splitlines() == events


def test_subscribers_are_told_the_same_and_one_that_raises_harms_nobody(where: str) -> None:
    with opened(where, "s") as session:
        plain: list[Event] = []
        waiting: list[Event] = []
        pruned: list[Event] = []

        def broken(event: Event) -> None:
            raise RuntimeError(event.kind)

        async def slowly(event: Event) -> None:
            await asyncio.sleep(0)
            waiting.append(event)

        def curious(event: Event) -> None:
            """It may use the session: what is told of has happened."""
            assert session.info.events >= event.number
            assert session.view().tokens >= 0

        session.subscribe(broken)
        end = session.subscribe(plain.append)
        session.subscribe(slowly)
        session.subscribe(curious)
        session.subscribe(pruned.append, [events.PRUNED])
        work(session)
        session.prune()
        session.compact("Folded.")
        whole = session.events(limit=10_000)
        end()
        session.undo()
        assert plain == whole
        assert kinds(pruned) == [events.PRUNED]
        session.close()
        assert waiting[:-1] == whole
        assert waiting[-1].kind == events.UNDONE


def test_reading_takes_no_lease_and_closing_gives_it_back(where: str) -> None:
    store = Store.open(where)
    store.create(SessionInfo(id="s"), estimate="classes")

    def holder() -> str | None:
        return store.resolve("s").holder

    with opened(where, "s") as session:
        session.view()
        session.plan()
        session.export()
        session.search("x")
        session.events()
        session.prune()
        session.cancel()
        session.messages()
        assert holder() is None
        session.user("Hello")
        assert holder() is not None
        session.release()
        assert holder() is None
        session.record("Hello to you")
        assert holder() is not None
        with opened(where, "s", wait_seconds=0.1) as other:
            assert bytes_of(other.view()) == bytes_of(session.view())
            with pytest.raises(foldmark.SessionBusy):
                other.user("Me too")
            assert len(other.view().messages) == 2
    assert holder() is None
    store.close()


def test_who_acquires_a_session_sees_what_others_wrote_before(where: str) -> None:
    with opened(where, "s") as one, opened(where, "s") as two:
        one.user("One")
        one.release()
        two.user("Two")
        two.release()
        LoopSupport(one).acquire()
        assert "Two" in str(one.view().messages)
        assert bytes_of(one.view()) == bytes_of(two.view())


@pytest.mark.parametrize("other_one", ["stays", "goes"])
def test_a_session_that_was_overtaken_is_told_so_once_and_goes_on(
    where: str, other_one: str
) -> None:
    has_closed = other_one == "goes"
    with opened(where, "s", wait_seconds=0.2) as one, opened(where, "s") as two:
        one.user("One")
        end_leases(where)
        two.user("Two")
        if has_closed:
            two.close()
        with pytest.raises(SessionOvertaken, match="session s was taken over by") as caught:
            one.record("Three")
        assert caught.value.session == "s"
        assert bool(caught.value.holder) != has_closed
        if not has_closed:
            with pytest.raises(foldmark.SessionBusy):
                one.record("Three")
            two.close()
        one.record("Three")
        texts = [part_text(message.parts[0]) for message in one.export().messages]
        assert texts == ["One", "Two", "Three"]
        assert "Two" in str(one.view().messages)


def test_a_lease_that_has_run_out_is_still_held_where_nobody_took_it(where: str) -> None:
    with opened(where, "s") as session:
        session.user("One")
        end_leases(where)
        session.user("Two")
        end_leases(where)
        LoopSupport(session).acquire()
        assert session.info.places == 2


def test_a_lease_that_was_given_back_is_no_claim(where: str) -> None:
    with opened(where, "s") as one, opened(where, "s") as two:
        one.user("One")
        one.release()
        two.user("Two")
        two.release()
        assert "Two" in str(one.view().messages)
        one.user("Three")


def test_a_lease_costs_one_thread_however_often_it_is_given_back(where: str) -> None:
    with opened(where, "s", lease_seconds=1.5) as session:
        for number in range(5):
            session.user(f"Message {number}")
            session.release()
        beating = [t for t in threading.enumerate() if t.name == "foldmark-lease-s"]
        assert len(beating) == 1
        time.sleep(0.6)  # it beats while there is no lease, and takes none
        store = Store.open(where)
        assert store.resolve("s").holder is None
        session.user("Again")
        time.sleep(1.8)
        row = store.resolve("s")
        now = store.engine.read(f"SELECT {store.engine.now}")[0][0]
        assert row.holder is not None
        assert (row.expires or 0) > now
        store.close()


# --- hooks -----------------------------------------------------------------------------------


def test_a_hook_that_would_never_be_asked_is_refused(where: str) -> None:
    class Mistyped:
        def before_compaction(self, compaction: Any) -> None:
            """Its name has three letters too many."""

    with pytest.raises(
        foldmark.BadPolicy, match=r"the hook Mistyped has none of .* before_compact,"
    ):
        opened(where, "s", hooks=[Mistyped()])
    with pytest.raises(
        foldmark.BadPolicy, match="the hook Keeps is a class; pass an instance, Keeps"
    ):
        opened(where, "s", hooks=[Keeps])


class Keeps:
    """Spares the parts that it is given."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[Prune] = []

    def before_prune(self, prune: Prune) -> Any:
        self.asked.append(prune)
        return self.names


def test_a_hook_spares_parts_of_a_prune(where: str) -> None:
    keeps = Keeps()
    with opened(where, "s", hooks=[keeps]) as session:
        work(session)
        session.prune()
        session.undo()
        planned = [f"h{ordinal:x}" for ordinal in keeps.asked[0].ordinals]
        assert len(planned) > 3
        keeps.names = tuple(planned[:2])
        operation = session.prune()
        assert operation
        pruned = session.events(limit=10_000)[-1]
        assert (pruned.kind, pruned.data["parts"]) == (events.PRUNED, len(planned) - 2)
        results = {hit.handle: hit.state for hit in session.search("parser", limit=100)}
        assert [results[name] for name in planned[:3]] == ["shown", "shown", "pruned"]
        session.undo()
        keeps.names = tuple(planned)
        assert session.prune() is None


def test_a_hook_vetoes_a_compaction(where: str) -> None:
    class Vetoes:
        def before_compact(self, compaction: CompactionRequest) -> CompactionChange | None:
            return CompactionChange(veto="not now") if compaction.auto else None

    with opened(where, "s", hooks=[Vetoes()]) as session:
        session.user("Hello")
        mark = last(session)
        assert session.queue(auto=True) is None
        assert session.compact("Folded.", auto=True) is None
        told = since(session, mark)
        assert kinds(told) == [events.FAILED] * 2
        assert all(event.data["reason"] == "vetoed: not now" for event in told)
        assert session.operations() == []
        assert session.compact("Folded.") is not None


def test_a_hook_changes_what_is_shown_and_nothing_else(where: str) -> None:
    class Adds:
        def on_view(self, view: View) -> View:
            note = UserMessage(content=(Text(text="Be brief."),))
            return replace(view, messages=(*view.messages, note))

    with opened(where, "s") as session:
        session.user("Hello")
        plain = session.messages()
    with opened(where, "s", hooks=[Adds()]) as session:
        assert session.messages()[:-1] == plain
        assert b"Be brief." in bytes_of(session.view())
        assert b"Be brief." not in str(session.export()).encode()


def test_a_hook_that_raises_or_hangs_is_skipped_and_told(where: str) -> None:
    class Broken:
        def before_prune(self, prune: Prune) -> None:
            raise RuntimeError(f"no {len(prune.prune)}")

        def before_compact(self, compaction: CompactionRequest) -> str:
            return f"nonsense of {compaction.session}"

        def on_view(self, view: View) -> None:
            raise KeyError(view.tokens)

    gate = threading.Event()

    class Hangs:
        def before_compact(self, _: CompactionRequest) -> None:
            gate.wait(20)

    with opened(where, "s", hooks=[Broken(), Hangs()], hook_seconds=0.2) as session:
        work(session)
        mark = last(session)
        assert session.prune() is not None
        assert session.compact("Folded.") is not None
        gate.set()
        assert len(session.view().messages) > 1
        session.user("Go on")
        told = [event for event in since(session, mark) if event.kind == events.HOOK_FAILED]
        assert [(event.data["hook"], event.data["point"]) for event in told] == [
            ("Broken", "before_prune"),
            ("Broken", "before_compact"),
            ("Hangs", "before_compact"),
            ("Broken", "on_view"),
        ]
        assert "RuntimeError: no" in told[0].data["problem"]
        assert "longer than 0.2 s" in told[2].data["problem"]
        numbers = [event.number for event in session.events(limit=10_000)]
        assert numbers == list(range(1, len(numbers) + 1))
