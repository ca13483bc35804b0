"""A growing transcript that is imported repeatedly is stored as if imported once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from foldmark.errors import BadInput, SessionBusy
from foldmark.policy import OPENCODE
from foldmark.store.importing import SessionConflict
from foldmark.store.store import Store
from foldmark.transcripts.read import open_reading
from foldmark.transcripts.store import store_reading
from tests.support.stored_sessions import bytes_of, opened
from tests.support.stored_transcripts import (
    SESSION,
    Lines,
    import_file,
    import_growing,
    stored_state,
    write,
)

CASES: dict[str, Callable[[Lines], None]] = {}
Case = Callable[[Lines], None]


def case(build: Case) -> Case:
    CASES[build.__name__.strip("_")] = build
    return build


@case
def _parallel_calls_spread_over_lines(lines: Lines) -> None:
    lines.user("Fix the parser; never touch the printer")
    lines.answer("m1", "I look at three of them")
    lines.answer("m1", "a")
    lines.answer("m1", "b")
    lines.result("a")
    lines.answer("m1", "c")
    lines.result("c", [{"type": "text", "text": "the lexer"}])
    lines.result("b")
    lines.answer("m2", "They pass.")
    lines.user("Thanks")


@case
def _late_results(lines: Lines) -> None:
    lines.user("Fix the parser")
    lines.answer("m1", "I wait for it", "a", "b")
    for number in range(12):
        lines.user(f"Are you there, {number}?")
    lines.result("a", "late")
    lines.answer("m2", "One is back")
    lines.compact()
    lines.result("b", "later still")
    lines.user("And now?")
    lines.result("b", "twice")


@case
def _microcompactions(lines: Lines) -> None:
    lines.user("Fix the parser")
    for call in ("a", "b", "c"):
        lines.step(call)
    lines.answer("m1", "This one waits", "w")
    lines.microcompact("a", "b", "w", "unknown")
    lines.result("w")
    lines.step("d")
    lines.microcompact("a", "c")
    lines.answer("m2", "Done.")
    lines.microcompact("d")


@case
def _compactions(lines: Lines) -> None:
    lines.user("Fix the parser; always test it")
    lines.step("a")
    lines.compact()
    lines.user("And the printer?")
    lines.step("b")
    rest = lines.user("And the lexer?")
    lines.step("c")
    segment = {"headUuid": rest, "anchorUuid": "x", "tailUuid": "y"}
    lines.compact("A summary with a tail.", preservedSegment=segment)
    lines.step("d")
    lines.compact("Another summary.", preservedMessages={"uuids": [rest, "z"]})
    lines.compact("A summary of a tail that is gone.", preservedMessages={"uuids": ["gone"]})
    lines.answer("m2", "Done.")


@case
def _rewinds(lines: Lines) -> None:
    lines.user("Fix the parser")
    first = lines.step("a")
    lines.user("And the printer; always shut it")
    lines.step("b")
    second = lines.user("Not so; never open it", parent=first)
    lines.step("c")
    lines.user("Once more", parent=second)
    last = lines.step("d")
    lines.compact("A summary after rewinds.")
    lines.user("And the lexer?", parent=last)
    lines.step("e")


@case
def _a_rewind_to_a_branch_that_was_left(lines: Lines) -> None:
    lines.user("Fix the parser")
    first = lines.step("a")
    lines.user("And the printer")
    remaining = lines.step("b")
    lines.user("Not so", parent=first)
    lines.step("c")
    lines.user("Rather as before", parent=remaining)
    lines.step("d")
    lines.compact()
    lines.user("Everything anew", parent=first)


@case
def _rewinds_past_prunes_and_pivots(lines: Lines) -> None:
    lines.user("Fix the parser")
    lines.step("a")
    first = lines.step("b")
    lines.user("And the printer")
    lines.step("c")
    lines.microcompact("a", "c")
    lines.compact()
    lines.user("And now?")
    lines.user("Not so", parent=first)
    lines.step("d")
    lines.microcompact("a", "b")
    lines.step("e")


@case
def _sidechains(lines: Lines) -> None:
    lines.user("Fix the parser")
    lines.answer("m1", "Others shall do it")
    lines.user("Look at line 3", None, isSidechain=True, agentId="one")
    lines.answer("m1", "t", "u")
    lines.answer("s1", "I look", "x", isSidechain=True, agentId="one")
    lines.user("Look at line 4", None, isSidechain=True, agentId="two")
    lines.result("x", isSidechain=True, agentId="one")
    lines.answer("s1", "It is one summary", isSidechain=True, agentId="two")
    lines.result("t", "It passes")
    lines.answer("s2", "It passes", isSidechain=True)
    lines.other(type="custom-title", customTitle="The title", sessionId=SESSION)
    lines.result("u", "It fails")
    lines.answer("m2", "All is said.")


@case
def _titles_that_come_late(lines: Lines) -> None:
    lines.other(type="summary", summary="Of another one", leafUuid="x")
    lines.user("Fix the parser")
    lines.other(type="ai-title", aiTitle="Parsers", sessionId=SESSION)
    lines.answer("m1", "It passes.")
    lines.other(type="summary", summary="Too late", leafUuid="x")
    lines.other(type="ai-title", aiTitle="Parsers that work", sessionId=SESSION)
    lines.other(type="custom-title", customTitle="Mine", sessionId=SESSION)
    lines.other(type="ai-title", aiTitle="Parsers again", sessionId=SESSION)
    lines.other(type="custom-title", customTitle="My own", sessionId=SESSION)


@case
def _odds_and_ends(lines: Lines) -> None:
    lines.user("A caveat", isMeta=True)
    lines.add("attachment", attachment={"type": "skill_listing", "content": "skills"})
    lines.user("Fix the parser")
    lines.add("progress", data={"type": "hook"})
    lines.answer("m1", "I look")
    lines.add("attachment", attachment={"type": "queued_command", "prompt": "Quickly"})
    lines.answer("m1", "a")
    lines.answer("m1", "And at another", "b")
    lines.result("a")
    lines.result("gone", "of nobody")
    lines.answer("m3", "API Error", model="<synthetic>")
    lines.result("b")
    lines.user([])
    lines.other(type="file-history-snapshot", messageId="x", snapshot={})
    lines.answer("m1", "The same id again")


def ids(name: str) -> list[str]:
    subs = ("one", "two", "subagent") if name == "sidechains" else ()
    return [SESSION, *(f"{SESSION}-{sub}" for sub in subs)]


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_grew_line_by_line_is_as_if_imported_at_once(
    name: str, where: str, tmp_path: Path
) -> None:
    lines = Lines()
    CASES[name](lines)
    path, once = tmp_path / f"{SESSION}.jsonl", str(tmp_path / "once.db")
    import_growing(where, path, lines.all)
    import_file(once, path)
    for session in ids(name):
        assert stored_state(where, session) == stored_state(once, session)
    assert [item.state for item in import_file(where, path)] == ["same"] * len(ids(name))
    for session in ids(name):
        assert stored_state(where, session) == stored_state(once, session)


REAL = {
    "claude-code/entireio-cli_dc55b3a1dc.jsonl": 40,
    "claude-code/vibecodingtracker_claude_code.jsonl": 7,
    "codex/ai-sessions_codex-pomodoro.jsonl": 11,
    "pi/pi-mono_before-compaction.jsonl": 150,
    "copilot-cli/vibecodingtracker_copilot.jsonl": 9,
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_that_grew_is_as_if_imported_at_once(
    name: str, where: str, tmp_path: Path, corpus: Path
) -> None:
    lines = (corpus / name).read_bytes().splitlines(keepends=True)
    path, once = tmp_path / Path(name).name, str(tmp_path / "once.db")
    for end in [*range(REAL[name], len(lines), len(lines) // 3), len(lines)]:
        path.write_bytes(b"".join(lines[:end]))
        import_file(where, path)
    (result,) = import_file(once, path)
    assert stored_state(where, result.id) == stored_state(once, result.id)
    assert [item.state for item in import_file(where, path)] == ["same"]


# --- changes in the store ------------------------------------------------------------------


def rewound() -> Lines:
    """A prune, a compaction and a rewind, in this order."""
    lines = Lines()
    lines.user("Fix the parser")
    lines.step("a")
    lines.step("b")
    lines.microcompact("a")
    lines.user("And the printer")
    lines.compact()
    first = lines.step("c")
    lines.user("Not this")
    lines.step("d")
    lines.user("But that", parent=first)
    lines.answer("m9", "So be it.")
    return lines


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_was_undone_stays_undone_when_the_file_grows(
    number: int, where: str, tmp_path: Path
) -> None:
    lines = rewound()
    path = write(tmp_path / "a.jsonl", lines.all)
    import_file(where, path)
    with opened(where, SESSION) as session:
        assert [act.kind for act in session.operations()] == ["prune", "pivot", "revert"]
        session.undo(number)
        view = bytes_of(session.view())
    lines.step("e")
    (result,) = import_file(where, write(path, lines.all))
    assert (result.state, result.pivots, result.pruned) == ("grown", 0, 0)
    with opened(where, SESSION) as session:
        states = [act.state for act in session.operations()]
        assert [state == "undone" for state in states] == [n == number for n in (1, 2, 3)]
        assert bytes_of(session.view()).startswith(view[:-1])
        session.redo()
        assert {act.state for act in session.operations()} == {"done"}


def test_a_rewind_is_an_operation_that_can_be_undone(where: str, tmp_path: Path) -> None:
    import_file(where, write(tmp_path / "a.jsonl", rewound().all))
    with opened(where, SESSION, policy=OPENCODE) as session:
        after = bytes_of(session.view())
        assert b"But that" in after
        assert b"Not this" not in after
        assert "Not this" not in str(session.export(reverted=False))
        assert "Not this" in str(session.export())
        assert session.search("Not this")[0].state == "reverted"
        session.undo()
        assert b"Not this" in bytes_of(session.view())
        assert b"Not this" in bytes_of(session.view(before=3))
        session.redo()
        assert bytes_of(session.view()) == after


def unchanged(where: str, path: Path, error: type[Exception], words: str) -> None:
    """Check that an import is refused and leaves the session unchanged."""
    before = stored_state(where, SESSION)
    with pytest.raises(error, match=words):
        import_file(where, path)
    assert stored_state(where, SESSION) == before


def test_a_session_that_was_continued_in_the_store_is_not_overwritten(
    where: str, tmp_path: Path
) -> None:
    lines = rewound()
    lines.answer("m10", "I wait", "w")
    path = write(tmp_path / "a.jsonl", lines.all)
    import_file(where, path)
    with opened(where, SESSION) as session:
        session.user("I go on here")
    assert import_file(where, path)[0].state == "same"
    lines.microcompact("b")
    assert import_file(where, write(path, lines.all))[0].state == "same"
    lines.result("w")
    unchanged(where, write(path, lines.all), SessionConflict, "continues differently after message")
    lines.user("I go on there")
    unchanged(where, write(path, lines.all), SessionConflict, "differs from message")


def test_a_result_that_was_added_in_the_store_is_not_overwritten(
    where: str, tmp_path: Path
) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.answer("m1", "I fix it", "w")
    path = write(tmp_path / "a.jsonl", lines.all)
    import_file(where, path)
    with opened(where, SESSION) as session:
        session.result("w", "It ran here")
    assert import_file(where, path)[0].state == "same"
    lines.result("w", "It ran there")
    unchanged(where, write(path, lines.all), SessionConflict, "from message 2 on")


def test_a_session_that_another_writes_to_is_left_alone(where: str, tmp_path: Path) -> None:
    lines = rewound()
    path = write(tmp_path / "a.jsonl", lines.all)
    import_file(where, path)
    with opened(where, SESSION) as session:
        session.user("Mine")
        places = session.view().indexes
        with pytest.raises(SessionBusy, match=f"process {os.getpid()}"):
            import_file(where, path)
        session.user("Mine still")
        assert session.view().indexes == (*places, places[-1] + 1)


def test_new_messages_are_counted_like_the_first_ones(where: str, tmp_path: Path) -> None:
    lines = rewound()
    path = tmp_path / "a.jsonl"
    with Store.open(where, durable=False) as store:
        for end, estimate in ((6, "round4"), (len(lines.all), "classes")):
            with open_reading(write(path, lines.all[:end])) as reading:
                store_reading(store, reading, estimate=estimate)
        assert store.resolve(SESSION).estimate == "round4"
        with open_reading(path) as reading:
            (once,) = store_reading(store, reading, estimate="round4", name="once")
        assert store.resolve(SESSION).tokens == once.tokens


def test_an_older_copy_of_a_file_changes_nothing(where: str, tmp_path: Path) -> None:
    lines = rewound()
    lines.other(type="custom-title", customTitle="The title", sessionId=SESSION)
    import_file(where, write(tmp_path / "a.jsonl", lines.all))
    before = stored_state(where, SESSION)
    (result,) = import_file(where, write(tmp_path / "b.jsonl", lines.all[:7]))
    assert result.state == "same"
    assert stored_state(where, SESSION) == before


def test_a_new_title_is_imported(where: str, tmp_path: Path) -> None:
    lines = rewound()
    import_file(where, write(tmp_path / "a.jsonl", lines.all))
    lines.other(type="custom-title", customTitle="The title", sessionId=SESSION)
    (result,) = import_file(where, write(tmp_path / "a.jsonl", lines.all))
    assert (result.state, result.title) == ("grown", "The title")


# --- transactions --------------------------------------------------------------------------


def sessions_in(where: str) -> list[str]:
    with Store.open(where, durable=False) as store:
        return [row.id for row in store.sessions()]


def test_a_file_with_a_bad_line_is_not_imported(where: str, tmp_path: Path) -> None:
    lines = Lines()
    CASES["sidechains"](lines)
    path = write(tmp_path / "a.jsonl", lines.all)
    good = path.read_text()
    path.write_text(f"{good}\n\nno JSON\n{good}")
    with pytest.raises(BadInput, match=rf"a\.jsonl: line {len(lines.all) + 3}: not valid JSON"):
        import_file(where, path)
    assert sessions_in(where) == []
    with Store.open(where) as store, open_reading(path, lenient=True) as reading:
        assert len(store_reading(store, reading, estimate="classes")) == 4
        assert [item.line for item in reading.skipped] == [len(lines.all) + 3]


def test_a_bad_new_line_changes_nothing(where: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rewound().all)
    import_file(where, path)
    lines = rewound()
    lines.step("e")
    write(path, lines.all)
    path.write_text(path.read_text() + '{"type": "user"}\n')
    unchanged(where, path, BadInput, "'message' is missing")


_KILLED = """
import os, signal, sys
from foldmark.transcripts.read import open_reading
from foldmark.transcripts.store import store_reading
from foldmark.store.store import Store
where, path, most = sys.argv[1:]

def watch(position):
    if position > int(most):
        os.kill(os.getpid(), signal.SIGKILL)

with Store.open(where) as store, open_reading(path) as reading:
    store_reading(store, reading, estimate="classes", on_progress=watch)
"""


def killed(*arguments: object) -> int:
    command = [sys.executable, "-c", _KILLED, *map(str, arguments)]
    return subprocess.run(command, check=False, timeout=60).returncode


def test_a_killed_import_leaves_nothing_and_can_be_repeated(where: str, tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    for number in range(150):
        lines.step(f"{number}", f"{number} lines of a parser\n" * 200)
    path = write(tmp_path / "a.jsonl", lines.all)
    assert killed(where, path, 500_000) == -signal.SIGKILL
    assert sessions_in(where) == []
    import_file(where, write(tmp_path / "b.jsonl", lines.all[:41]))
    assert killed(where, path, 500_000) == -signal.SIGKILL
    assert import_file(where, path)[0].state == "grown"
    import_file(str(tmp_path / "once.db"), path)
    assert stored_state(where, SESSION) == stored_state(str(tmp_path / "once.db"), SESSION)
