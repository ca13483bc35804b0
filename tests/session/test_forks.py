"""Forks, removal of old sessions, and lookup of sessions by id."""

from typing import Any

import pytest

from foldmark.errors import BadInput, FoldmarkError, NoSession, StoreError
from foldmark.model.messages import Message, SessionInfo, TextPart, UserInfo
from foldmark.model.values import encode
from foldmark.store.maintenance import collect
from foldmark.store.store import Store
from tests.support.stored_sessions import bytes_of, call, exported, fill, opened, plain, work

LONG = "the same long text\n" * 300


def user_message(text: str, name: str = "m") -> Message:
    return Message(info=UserInfo(id=name), parts=(TextPart(text=text),))


def test_an_old_session_is_removed_with_its_rows_and_nothing_else(where: str) -> None:
    with opened(where, "s") as session:
        work(session)
        session.prune()
        session.compact(LONG)
        session.fork(session="f").close()
        fill(where, [user_message(LONG), user_message("short")], "one")
    before = exported(where, "f")
    store = Store.open(where)
    store.engine.run("UPDATE sessions SET updated = 0 WHERE id <> 'f'")
    assert set(collect(store, older_than=1, dry_run=True).sessions) == {"s", "one"}
    freed = collect(store, older_than=1)
    assert set(freed.sessions) == {"s", "one"}
    if not where.startswith("postgresql"):  # PostgreSQL keeps the space and reuses it
        assert freed.after < freed.before
    assert collect(store, older_than=1).sessions == ()
    row = store.resolve("f")
    for table in ("parts", "acts", "events"):
        sql = f"SELECT DISTINCT session FROM {table}"  # noqa: S608 - our own names
        assert store.engine.read(sql) == [(row.key,)]
    assert store.engine.read("SELECT count(*) FROM messages") == [(row.places,)]
    store.close()
    assert exported(where, "f") == before


def test_a_fork_starts_like_its_origin_and_is_independent(where: str) -> None:
    with opened(where, "s") as session:
        work(session)
        assert session.prune()
        folded = session.compact("All tests pass.")
        assert folded
        session.user("And now?")
        with session.fork(session="f") as fork:
            assert bytes_of(fork.view()) == bytes_of(session.view())
            assert fork.view().tokens == session.view().tokens
            assert fork.plan().tokens == session.plan().tokens
            assert fork.info.info.parent_id == "s"
            assert [operation.state for operation in fork.operations()] == ["done", "done"]
            assert plain(fork.export())["messages"] == plain(session.export())["messages"]
            origin = bytes_of(session.view())
            fork.undo()
            fork.undo()
            fork.user("Only here")
            assert bytes_of(session.view()) == origin
            unfolded = bytes_of(fork.view())
            session.undo()
            session.user("Only there")
            assert bytes_of(fork.view()) == unfolded
            assert b"Only here" not in bytes_of(session.view())
            assert [operation.state for operation in session.operations()] == ["done", "undone"]


def test_a_fork_of_an_undone_pivot_is_not_folded(where: str) -> None:
    with opened(where, "s") as session:
        work(session, 3)
        unfolded = bytes_of(session.view())
        session.compact("All tests pass.")
        folded = bytes_of(session.view())
        session.undo()
        for message in (None, session.export().messages[-1].id):
            with session.fork(message) as fork:
                assert bytes_of(fork.view()) == unfolded
                fork.redo()
                assert bytes_of(fork.view()) == folded
            with session.fork(message) as fork:
                assert bytes_of(fork.view()) == unfolded


def test_a_fork_at_a_message_has_the_view_of_that_time(where: str) -> None:
    with opened(where, "s") as session:
        views: list[tuple[str, bytes]] = []
        for number in range(6):
            session.user(f"Ask {number}")
            message = session.record([TextPart(text=f"Say {number}"), call(f"c{number}")])
            session.result(f"c{number}", f"line {number}\n" * 700)
            if number == 4:
                assert session.prune()
            views.append((message.id, bytes_of(session.view())))
            if number == 2:
                session.compact("Folded.")
        for name, view in views:
            with session.fork(name) as fork:
                assert bytes_of(fork.view()) == view
                ids = [message.id for message in session.export().messages]
                assert fork.info.places == ids.index(name) + 1
                fork.user("Go on")
                fork.record([call("new")])
                fork.result("new", "done")
        with pytest.raises(BadInput, match="no message"):
            session.fork("nobody")
        with pytest.raises(StoreError, match="already exists"):
            session.fork(session="s")


def test_a_fork_omits_reverted_messages(where: str) -> None:
    with opened(where, "s") as session:
        first = session.user("One")
        session.user("Two")
        session.revert(first.id)
        session.user("Three")
        with session.fork() as fork:
            assert bytes_of(fork.view()) == bytes_of(session.view())
            texts = [m["parts"][0]["text"] for m in plain(fork.export())["messages"]]
            assert texts == ["One", "Three"]
            assert fork.recall("h2") == "Three"
            fork.user("Four")
            view = bytes_of(fork.view())
        with opened(where, fork.id) as again:
            assert bytes_of(again.view()) == view


def test_sessions_are_found_by_id_prefix_and_age(where: str) -> None:
    store = Store.open(where)
    with pytest.raises(NoSession) as none:
        store.resolve("latest")
    assert none.value.nearest == ()
    for name in ("repo-one", "repo-two", "other", "odd\0", "'; DROP TABLE sessions; --", "ü%_"):
        store.create(SessionInfo(id=name), estimate="classes")
    assert store.resolve("repo-one").id == "repo-one"
    assert store.resolve("oth").id == "other"
    assert store.resolve("odd\0").info.id == "odd\0"
    assert store.resolve("ü").id == "ü%_"
    assert store.resolve("';").info.id == "'; DROP TABLE sessions; --"
    assert store.resolve("latest").id == "ü%_"
    for name, nearest in (
        ("repo", ("repo-one", "repo-two")),
        ("repo-onne", ("repo-one",)),
        ("zzz", ()),
        ("", ()),
        ("%", ()),
        ("_", ()),
    ):
        with pytest.raises(NoSession) as missing:
            store.resolve(name)
        assert missing.value.nearest[: len(nearest)] == nearest
        assert bool(missing.value.nearest) == bool(nearest)
    assert len(store.sessions()) == 6
    store.close()
    with opened(where, "repo-one") as session:
        session.user("Newer")
    with opened(where, "latest") as session:
        assert session.id == "repo-one"


def test_a_session_is_created_once(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
    store = Store.open(where)
    with pytest.raises(StoreError, match="already exists"):
        store.create(SessionInfo(id="s"), estimate="classes")
    store.close()
    with opened(where, "s") as session:
        assert len(session.view().messages) == 1
    with pytest.raises(FoldmarkError, match="cannot be a session id"):
        opened(where, " ")


def test_a_closed_session_refuses_every_call(where: str) -> None:
    session = opened(where, "s")
    session.user("Hello")
    session.close()
    session.close()
    calls: tuple[Any, ...] = (
        session.view,
        session.export,
        session.prune,
        session.operations,
        lambda: session.user("More"),
        lambda: session.search("hello"),
    )
    for refused in calls:
        with pytest.raises(StoreError, match="closed"):
            refused()


def test_the_info_of_a_session_is_stored_unchanged(where: str) -> None:
    info = SessionInfo(id="i\0", title="\ud83d \ue0011f", permission={"\ue000extra": [1]})
    store = Store.open(where)
    store.create(info, estimate="classes")
    stored = store.resolve("i\0").info
    store.close()
    assert encode(stored) == encode(info)
