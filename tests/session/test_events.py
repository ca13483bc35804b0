"""Events of a session, in order and without gaps; leases; and hooks that change what happens."""

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
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
from foldmark.session.session import state_of
from foldmark.store.store import Store
from tests.support.compacted_sessions import end_leases
from tests.support.stored_sessions import bytes_of, call, fill, opened, work


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def since(session: foldmark.Session, number: int) -> list[Event]:
    return session.events(after=number)


def last(session: foldmark.Session) -> int:
    return session.info.events


def test_each_write_has_its_events(where: str) -> None:
    with opened(where, "s") as session:
        message = session.user("Hello there")
        first, part = session.events()
        assert (first.kind, part.kind) == (events.MESSAGE_WRITTEN, events.PART_WRITTEN)
        assert first.data == {"message": message.id, "place": 0, "tokens": part.data["tokens"]}
        assert part.data == {"handle": "h0", "place": 0, "kind": "text", "tokens": 3}
        assert (first.number, part.number, first.session) == (1, 2, "s")
        assert abs(first.at - time.time() * 1000) < 60_000
        mark = last(session)
        session.record([TextPart(text="I look"), call("c")])
        assert kinds(since(session, mark)) == [events.MESSAGE_WRITTEN, *[events.PART_WRITTEN] * 2]
        mark = last(session)
        session.result("c", "found " * 40)
        (settled,) = since(session, mark)
        assert settled.kind == events.PART_WRITTEN
        assert (settled.data["handle"], settled.data["place"]) == ("h2", 1)
        assert settled.data["tokens"] > 40


def test_operations_report_the_tokens_of_the_view(where: str) -> None:
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
            event = since(session, mark)[-1]
            assert event.kind == kind
            assert event.data.items() >= more.items()
            assert (event.data["before"], event.data["after"]) == (before, session.view().tokens)
        assert_no_gaps(session)
        first = session.operations()[0]
        data = next(event.data for event in session.events() if event.kind == events.PRUNED)
        assert (first.before, first.after) == (data["before"], data["after"])


def assert_no_gaps(session: foldmark.Session) -> None:
    numbers = [event.number for event in session.events(limit=10_000)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_compaction_reports_its_progress(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
        mark = last(session)
        session.queue(auto=True)
        session.queue()  # it is queued already
        session.compact("Folded.")
        new = since(session, mark)
        assert kinds(new) == [events.QUEUED, events.STARTED, events.COMPACTED]
        assert {event.data["act"] for event in new} == {1}
        assert new[0].data["auto"] is True
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


def test_failed_calls_have_no_events(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
        mark, version = last(session), session.info.version
        for fail in (session.undo, session.redo, lambda: session.result("x", "")):
            with pytest.raises(foldmark.BadInput):
                fail()
        assert session.prune() is None
        assert (last(session), session.info.version) == (mark, version)
        session.user("More")
        assert since(session, mark)[0].number == mark + 1


def test_events_can_be_read_in_pages_of_any_size(where: str) -> None:
    with opened(where, "s") as session:
        work(session, 10)
        whole = session.events()
        for limit in (1, 2, 3, 7):
            read: list[Event] = []
            while page := session.events(after=len(read), limit=limit):
                assert len(page) <= limit
                read += page
            assert read == whole
        assert session.events(after=len(whole)) == []


def test_unknown_event_kinds_are_refused(where: str) -> None:
    with opened(where, "s") as session:
        session.subscribe(print, ["app.opened"])  # a kind of the program's own
        for wrong, near in (
            ("session.prund", "session.pruned"),
            ("compactions.", "compaction"),
            ("tool.eaten", "tool.called, tool.finished, tool.started"),
        ):
            with pytest.raises(foldmark.BadInput, match=f"no event '{wrong}'; did you mean {near}"):
                session.subscribe(print, [wrong])
        received: list[Event] = []
        session.subscribe(received.append, "message.written")  # one kind needs no list
        session.user("Hello")
        assert kinds(received) == ["message.written"]


def test_another_session_object_follows_from_a_number(where: str) -> None:
    with opened(where, "s") as writer, opened(where, "s") as reader:
        writer.user("One")
        after = last(writer)
        with ThreadPoolExecutor() as pool:
            follower = pool.submit(lambda: list(islice(reader.follow(after, seconds=60), 4)))
            writer.user("Two")
            writer.user("Three")
            assert follower.result() == writer.events(after=after)
        assert [event.number for event in follower.result()] == [3, 4, 5, 6]

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
        lines = [f"{event.number} {event.kind}" for event in session.events(after=2)]
        assert out.decode().splitlines() == lines


def test_subscribers_get_all_events_even_if_another_one_raises(where: str) -> None:
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
            """Uses the session: the event has happened already."""
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
        for read in (session.view, session.plan, session.export, session.events, session.prune):
            read()
        session.search("x")
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


def test_acquiring_a_session_loads_what_others_wrote(where: str) -> None:
    with opened(where, "s") as one, opened(where, "s") as two:
        one.user("One")
        one.release()
        two.user("Two")
        two.release()
        LoopSupport(one).acquire()
        assert "Two" in str(one.view().messages)
        assert bytes_of(one.view()) == bytes_of(two.view())


@pytest.mark.parametrize("other_one", ["stays", "goes"])
def test_an_overtaken_session_raises_once_and_then_continues(where: str, other_one: str) -> None:
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


def test_an_expired_lease_is_kept_unless_another_takes_it(where: str) -> None:
    with opened(where, "s") as session:
        session.user("One")
        end_leases(where)
        session.user("Two")
        end_leases(where)
        LoopSupport(session).acquire()
        assert session.info.places == 2


def test_a_released_lease_can_be_taken_again(where: str) -> None:
    with opened(where, "s") as one, opened(where, "s") as two:
        one.user("One")
        one.release()
        two.user("Two")
        two.release()
        assert "Two" in str(one.view().messages)
        one.user("Three")


def test_a_session_has_one_heartbeat_thread_however_often_it_releases(where: str) -> None:
    with opened(where, "s", lease_seconds=1.5) as session:
        for number in range(5):
            session.user(f"Message {number}")
            session.release()
        heartbeats = [t for t in threading.enumerate() if t.name == "foldmark-lease-s"]
        assert len(heartbeats) == 1
        assert state_of(session).renew()  # without a lease, a heartbeat takes none
        store = Store.open(where)
        assert store.resolve("s").holder is None
        session.user("Again")
        first = store.resolve("s").expires or 0
        deadline = time.monotonic() + 60
        while (store.resolve("s").expires or 0) <= first:  # until a heartbeat has renewed it
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert store.resolve("s").holder is not None
        store.close()


# --- hooks -----------------------------------------------------------------------------------


def test_an_object_without_hook_methods_is_refused(where: str) -> None:
    class Mistyped:
        def before_compaction(self, compaction: Any) -> None:
            """The name is wrong: it should be before_compact."""

    for hook, problem in (
        (Mistyped(), r"the hook Mistyped has none of .* before_compact,"),
        (Keeps, "the hook Keeps is a class; pass an instance, Keeps"),
    ):
        with pytest.raises(foldmark.BadPolicy, match=problem):
            opened(where, "s", hooks=[hook])


class Keeps:
    """A hook that protects the named parts."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.plans: list[Prune] = []

    def before_prune(self, prune: Prune) -> Any:
        self.plans.append(prune)
        return self.names


def test_a_hook_spares_parts_of_a_prune(where: str) -> None:
    keeps = Keeps()
    with opened(where, "s", hooks=[keeps]) as session:
        work(session)
        session.prune()
        session.undo()
        planned = [f"h{ordinal:x}" for ordinal in keeps.plans[0].ordinals]
        assert len(planned) > 3
        keeps.names = tuple(planned[:2])
        assert session.prune()
        pruned = session.events(limit=10_000)[-1]
        assert (pruned.kind, pruned.data["parts"]) == (events.PRUNED, len(planned) - 2)
        states = {hit.handle: hit.state for hit in session.search("parser", limit=100)}
        assert [states[name] for name in planned[:3]] == ["shown", "shown", "pruned"]
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
        new = since(session, mark)
        assert kinds(new) == [events.FAILED] * 2
        assert all(event.data["reason"] == "vetoed: not now" for event in new)
        assert session.operations() == []
        assert session.compact("Folded.") is not None


def test_a_hook_changes_the_view_and_nothing_else(where: str) -> None:
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


def test_a_hook_that_raises_or_hangs_is_skipped_and_reported(where: str) -> None:
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
        data = [event.data for event in since(session, mark) if event.kind == events.HOOK_FAILED]
        assert [(one["hook"], one["point"]) for one in data] == [
            ("Broken", "before_prune"),
            ("Broken", "before_compact"),
            ("Hangs", "before_compact"),
            ("Broken", "on_view"),
        ]
        assert "RuntimeError: no" in data[0]["problem"]
        assert "longer than 0.2 s" in data[2]["problem"]
        assert_no_gaps(session)
