"""Wrong input to a session is refused before anything is written."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import foldmark
from foldmark.log.view import View
from foldmark.model.messages import Pending, ToolPart
from foldmark.model.prompt_messages import PromptMessage, Text, UserMessage
from foldmark.session.view_diff import view_diff

Wrong = Callable[[foldmark.Session], object]
ODD = cast("Any", 5)
WRONG: dict[str, Wrong] = {
    "time": lambda session: session.user("a", time="yesterday"),
    "agent": lambda session: session.user("a", agent=5),
    "finish": lambda session: session.record("a", finish=ODD),
    "tokens": lambda session: session.record("a", tokens=cast("Any", {"input": "1"})),
    "field": lambda session: session.user("a", no_such_field=1),
    "content": lambda session: session.user(ODD),
    "part": lambda session: session.user(cast("Any", [5])),
    "call": lambda session: session.record(
        [ToolPart(tool="b", call_id=ODD, state=Pending(input={}))]
    ),
    "object": lambda session: session.record(
        [ToolPart(tool="b", state=Pending(input={"a": object()}))]
    ),
    "output": lambda session: session.result("c", cast("Any", None)),
    "metadata": lambda session: session.result("c", "x", metadata=cast("Any", [1])),
    "fork": lambda session: session.fork(session="latest"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_values_that_could_not_be_read_again_are_refused(where: str, wrong: Wrong) -> None:
    with foldmark.open(where, session="s") as session:
        session.record([ToolPart(tool="b", call_id="c", state=Pending(input={}))])
        before, view = session.info, session.view()
        with pytest.raises(foldmark.BadInput):
            wrong(session)
        assert session.info.places == before.places
        assert session.view() == view
        session.result("c", "done")
    with foldmark.open(where, session="s") as again:
        assert again.recall("h0") == "done"


@pytest.mark.parametrize("name", ["", " ", "a\0b", "a\ud800"])
def test_invalid_session_ids_are_refused(where: str, name: str) -> None:
    with pytest.raises(foldmark.BadInput, match="cannot be a session id"):
        foldmark.open(where, session=name)


def test_a_result_for_a_folded_call_is_stored(where: str) -> None:
    with foldmark.open(where, window=8_000, output=1_000) as session:
        session.user("Look")
        session.record([ToolPart(tool="b", call_id="late", state=Pending(input={}))])
        for number in range(3):
            session.user(f"And {number}?")
            session.record("A long answer. " * 900)
        session.compact("We looked.")
        view = session.view()
        session.result("late", "here is the zebra")
        assert session.view() == view
        assert [hit.state for hit in session.search("zebra")] == ["folded"]
        assert session.recall("h1") == "here is the zebra"
        assert session.events()[-1].kind == "part.written"
        with pytest.raises(foldmark.BadInput, match="there are no open calls"):
            session.result("late", "again")


def test_reverted_messages_are_found_and_can_be_reverted_to(where: str) -> None:
    with foldmark.open(where) as session:
        ids = [session.user(f"word{number}").id for number in range(5)]
        session.revert(ids[1])
        assert session.search("word3")[0].state == "reverted"
        with pytest.raises(foldmark.BadInput, match="no message"):
            session.fork("h4")
        session.revert("h4")
        assert session.view().indexes == (0, 1, 2, 3, 4)
        session.undo()
        assert session.view().indexes == (0, 1)


def test_colored_output_is_found(where: str) -> None:
    with foldmark.open(where) as session:
        session.user("pytest said \x1b[31mFAILED\x1b[0m twice")
        assert [hit.handle for hit in session.search("failed")] == ["h0"]
        session.compact("Done.")
        assert [hit.handle for hit in session.search("failed")] == ["h0"]


def test_views_of_thousands_of_equal_messages_are_compared_quickly() -> None:
    def view(texts: list[str]) -> View:
        messages: list[PromptMessage] = [UserMessage(content=(Text(text=text),)) for text in texts]
        return View(messages=tuple(messages), indexes=(), tokens=len(texts), pivot=None)

    old = ["ok", "fine"] * 4_000
    new = [*old[:100], "summary", *old[5_000:]]
    large = view_diff(view(old), view(new))  # comparing all pairs would take minutes
    assert len(large.added) - len(large.removed) == len(new) - len(old)
    small = view_diff(view(["a", "b", "c", "b"]), view(["a", "x", "c", "b"]))
    changes = [(change, message.content[0]) for change, message in small.changes]
    assert changes == [("removed", Text(text="b")), ("added", Text(text="x"))]


def test_a_file_name_with_sqlite_syntax_is_only_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with foldmark.open("file:a.db?mode=memory") as session:
        session.user("Hello")
    (result,) = tmp_path.iterdir()
    assert result.name == "file:a.db?mode=memory"
    assert result.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk")
def test_a_store_on_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        with foldmark.open(disk / "a.db", session="s") as session:
            session.user("Hello")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with foldmark.open(disk / "a.db", session="s") as session:
            assert len(session.view().messages) == 1
            with pytest.raises(foldmark.StoreError, match="read-only"):
                session.user("More")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_prompt_messages_have_a_role() -> None:
    assert UserMessage(content=()).role == "user"
