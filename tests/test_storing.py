"""A transcript taken into a store again and again, as it grows, is there as if taken once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .imported import SESSION, Lines, grown, imported, told, write

CASES: dict[str, Callable[[Lines], None]] = {}
Case = Callable[[Lines], None]


def case(build: Case) -> Case:
    CASES[build.__name__.strip("_")] = build
    return build


@case
def _parallel_calls_spread_over_lines(lines: Lines) -> None:
    lines.user("Turn the wheel; never touch the sluice")
    lines.answer("m1", "I look at three of them")
    lines.answer("m1", "a")
    lines.answer("m1", "b")
    lines.result("a")
    lines.answer("m1", "c")
    lines.result("c", [{"type": "text", "text": "the millstone"}])
    lines.result("b")
    lines.answer("m2", "They turn.")
    lines.user("Thanks")


@case
def _late_results(lines: Lines) -> None:
    lines.user("Turn the wheel")
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
    lines.user("Turn the wheel")
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
    lines.user("Turn the wheel; always oil it")
    lines.step("a")
    lines.compact()
    lines.user("And the sluice?")
    lines.step("b")
    kept = lines.user("And the millstone?")
    lines.step("c")
    segment = {"headUuid": kept, "anchorUuid": "x", "tailUuid": "y"}
    lines.compact("A summary with a tail.", preservedSegment=segment)
    lines.step("d")
    lines.compact("Another summary.", preservedMessages={"uuids": [kept, "z"]})
    lines.compact("A summary of a tail that is gone.", preservedMessages={"uuids": ["gone"]})
    lines.answer("m2", "Done.")


@case
def _rewinds(lines: Lines) -> None:
    lines.user("Turn the wheel")
    first = lines.step("a")
    lines.user("And the sluice; always shut it")
    lines.step("b")
    second = lines.user("Not so; never open it", parent=first)
    lines.step("c")
    lines.user("Once more", parent=second)
    last = lines.step("d")
    lines.compact("A summary after rewinds.")
    lines.user("And the millstone?", parent=last)
    lines.step("e")


@case
def _a_rewind_to_a_branch_that_was_left(lines: Lines) -> None:
    lines.user("Turn the wheel")
    first = lines.step("a")
    lines.user("And the sluice")
    left = lines.step("b")
    lines.user("Not so", parent=first)
    lines.step("c")
    lines.user("Rather as before", parent=left)
    lines.step("d")
    lines.compact()
    lines.user("Everything anew", parent=first)


@case
def _rewinds_past_prunes_and_pivots(lines: Lines) -> None:
    lines.user("Turn the wheel")
    lines.step("a")
    first = lines.step("b")
    lines.user("And the sluice")
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
    lines.user("Turn the wheel")
    lines.answer("m1", "Others shall do it")
    lines.user("Look at tooth 3", None, isSidechain=True, agentId="one")
    lines.answer("m1", "t", "u")
    lines.answer("s1", "I look", "x", isSidechain=True, agentId="one")
    lines.user("Look at tooth 4", None, isSidechain=True, agentId="two")
    lines.result("x", isSidechain=True, agentId="one")
    lines.answer("s1", "It is one summary", isSidechain=True, agentId="two")
    lines.result("t", "It turns")
    lines.answer("s2", "It turns", isSidechain=True)
    lines.other(type="custom-title", customTitle="The title", sessionId=SESSION)
    lines.result("u", "It stands")
    lines.answer("m2", "All is said.")


@case
def _titles_that_come_late(lines: Lines) -> None:
    lines.other(type="summary", summary="Of another one", leafUuid="x")
    lines.user("Turn the wheel")
    lines.other(type="ai-title", aiTitle="Wheels", sessionId=SESSION)
    lines.answer("m1", "It turns.")
    lines.other(type="summary", summary="Too late", leafUuid="x")
    lines.other(type="ai-title", aiTitle="Wheels that turn", sessionId=SESSION)
    lines.other(type="custom-title", customTitle="Mine", sessionId=SESSION)
    lines.other(type="ai-title", aiTitle="Wheels again", sessionId=SESSION)
    lines.other(type="custom-title", customTitle="My own", sessionId=SESSION)


@case
def _odds_and_ends(lines: Lines) -> None:
    lines.user("A caveat", isMeta=True)
    lines.add("attachment", attachment={"type": "skill_listing", "content": "skills"})
    lines.user("Turn the wheel")
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
    grown(where, path, lines.all)
    imported(once, path)
    for session in ids(name):
        assert told(where, session) == told(once, session)
    assert [held.state for held in imported(where, path)] == ["same"] * len(ids(name))
    for session in ids(name):
        assert told(where, session) == told(once, session)
