"""Faults that users found in digests: each of these once went wrong."""

import re

import pytest

from foldmark.digest.digest import digest
from foldmark.digest.previous import read_summary
from foldmark.log.log import Log
from foldmark.model.messages import Completed, Message, ToolPart
from foldmark.tokens.counters import by_classes
from tests.support.digest_sessions import answer, assistant, call, digested, section, user


def ran(command: str, output: str) -> ToolPart:
    """A command of which no exit status is known."""
    return ToolPart(tool="bash", state=Completed(input={"command": command}, output=output))


def state_of(part: ToolPart) -> str:
    """The line that a digest has for a command."""
    (line,) = section(digested(user("Go"), assistant(part)), "Commands and searches")[:1]
    return line.removeprefix("- ")


# --- what must be there ----------------------------------------------------------------------

PASSED = "\n".join(f"tests/test_{n % 40}.py::test_case_{n} PASSED" for n in range(1_500))
TESTED = (
    f"{PASSED}\nE       assert 17 == 4\n"
    "FAILED tests/test_wheel.py::test_teeth - assert 17 == 4\n1 failed, 1500 passed in 2.1s"
)


def bare_names(text: str) -> list[str]:
    """The lines of a digest that are nothing but names."""
    also = [line for line in text.split("\n") if line.startswith("  also: ")]
    return [*also, *section(text, "Also named")]


def test_a_failing_command_is_told_though_its_output_names_thousands() -> None:
    text = digested(
        user("Why does make test fail?"), assistant(ran("make test", TESTED)), room=3_000
    )
    told = section(text, "Commands and searches")
    assert told[0].startswith("- failed (h1): make test → FAILED tests/test_wheel.py::test_teeth")


def test_of_lines_that_differ_in_numbers_only_a_few_are_shown() -> None:
    text = digested(user("Why?"), assistant(ran("make test", TESTED)), room=3_000)
    assert "make test" in text
    assert text.count(" PASSED") < 10


def test_lines_that_are_nothing_but_a_name_are_no_lines() -> None:
    columns = "\n".join(f"  {name}_id," for name in ("wheel", "gear", "door", "hinge", "stone"))
    text = digested(user("Go"), assistant(call("read", columns, filePath="src/mill.sql")))
    assert section(text, "Files")[1].startswith("  also: ")
    assert len(section(text, "Files")) == 2


@pytest.mark.parametrize("room", [500, 3_000, 10_000])
def test_bare_names_take_a_small_part_of_the_room(room: int) -> None:
    text = digested(user("Why?"), assistant(ran("make test", TESTED)), room=room)
    names = bare_names(text)
    assert names
    assert sum(by_classes(line) for line in names) <= room * 0.15
    assert all(line.count(", ") < 12 for line in names if line.startswith("  also: "))


def test_what_fails_ran_last_and_was_changed_comes_before_all_that_is_named() -> None:
    pairs = [a + b for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    noise = "\n".join(f"the gear_{at} turns the {at}_wheel of /mill/{at}.py" for at in pairs)
    calls = [
        call("edit", "ok", filePath="src/door.py", newString="hinge = 'brass'"),
        call("bash", "ValueError: jammed", status=1, command="python turn.py"),
        call("bash", "quiet", command="ls mill"),
        call("grep", noise, pattern="gear"),
    ]
    text = digested(user("Mend it"), assistant(*calls), room=1_000)
    assert any(line.startswith("- src/door.py — changed") for line in section(text, "Files"))
    told = "\n".join(section(text, "Commands and searches"))
    assert "python turn.py → ValueError: jammed" in told
    assert "ls mill" in told


# --- what failed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        "1 failed, 3000 passed",
        "===== 2 failed, 11 passed, 1 warning in 0.52s =====",
        "FAILED tests/test_wheel.py::test_teeth - assert 17 == 4",
        "Tests:       2 failed, 3 passed, 5 total",
        " Test Files  1 failed | 3 passed (4)",
        "test result: FAILED. 3 passed; 1 failed; 0 ignored",
        "FAILED (failures=1)",
        "--- FAIL: TestTeeth (0.00s)\nFAIL\nFAIL\tmill/wheel\t0.003s",
        "  3 passing (4ms)\n  1 failing",
        "5 examples, 1 failure",
        "Found 3 errors in 2 files (checked 9 source files)",
        "make: *** [Makefile:3: all] Error 2",
    ],
)
def test_an_output_that_ends_with_failures_has_failed(end: str) -> None:
    assert state_of(ran("make check", f"collecting\n{end}\n")).startswith(
        "failed (h1): make check → "
    )


def test_a_pipe_hides_the_status_of_what_ran_before_it() -> None:
    part = call("bash", "...\n1 failed, 4 passed", status=0, command="pytest -q | tail -3")
    assert state_of(part) == "failed (h1): pytest -q | tail -3 → 1 failed, 4 passed"


@pytest.mark.parametrize(
    "end",
    [
        "0 failed, 12 passed",
        "12 passed, 0 failed in 0.1s",
        "test result: ok. 12 passed; 0 failed; 0 ignored",
        "Found 0 errors in 10 files",
        "10 tests completed, 0 failed",
        'assert "1 failed" in output',
        "# 2 failed, so we try again",
        "2 failed logins were seen last night",
        "FAILED = 'failed'",
        "1 failed, 3 passed\nonce more:\n4 passed in 0.1s",
    ],
)
def test_an_output_that_only_speaks_of_failures_has_not_failed(end: str) -> None:
    assert state_of(ran("make check", f"collecting\n{end}\n")).startswith("ok (h1): make check")


@pytest.mark.parametrize(
    "command", ["cat report.txt out.txt", "grep -h failed a.log", "git log -3"]
)
def test_showing_the_failures_of_others_is_no_failure(command: str) -> None:
    assert state_of(ran(command, "1 failed, 3 passed")).startswith("ok (h1)")


@pytest.mark.parametrize(
    "command", ["grep -rn 'a|b' src", "cd /mill && rg gear", "ls | grep oak", "find . -name '*.py'"]
)
def test_a_search_without_hits_has_not_failed(command: str) -> None:
    assert state_of(call("bash", "", status=1, command=command)).startswith("ok (h1)")


def test_a_search_that_could_not_search_has_failed() -> None:
    part = call("bash", "grep: src: No such file or directory", status=2, command="grep -r oak src")
    assert state_of(part).startswith("failed (h1)")


# --- speed -----------------------------------------------------------------------------------


def searches(characters: int) -> Log:
    """Searches whose outputs are nothing but paths, each of which comes once."""
    messages, size = [user("Find the gears")], 0
    while size < characters:
        at = len(messages)
        names = (f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400))
        found = "\n".join(f"src/part_{at}/gear_{name}.py: turns wheel {name}" for name in names)
        messages.append(assistant(call("grep", found, pattern=f"gear{at}")))
        size += len(found)
    return Log(by_classes, messages)


def test_the_middles_of_old_outputs_are_not_read() -> None:
    log = searches(3_000_000)
    near, far = log.entries[len(log) - 2], log.entries[2]
    text = digest(log, range(len(log)), 400_000)
    assert f"part_{near.index}/gear_ha.py" in text
    assert f"part_{far.index}/gear_aa.py" in text
    assert f"part_{far.index}/gear_pj.py" in text
    assert f"part_{far.index}/gear_ha.py" not in text


def test_no_half_of_a_secret_is_left_of_an_old_output() -> None:
    key = "ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    old = [assistant(call("bash", "x " * n + f"{key} " * 400, command=f"a{n}")) for n in range(40)]
    log = Log(by_classes, [user("Go"), *old, *filler()])
    text = digest(log, range(len(log)), 20_000)
    assert not re.search(r"[A-Za-z0-9]{12}", re.sub(r"\[masked: [^\]]*\]", "", text))


def filler() -> list[Message]:
    line = "the wheel turns the stone and the stone grinds the corn\n"
    return [assistant(call("bash", line * 2_000, command=f"b{n}")) for n in range(12)]


# --- lines -----------------------------------------------------------------------------------


def test_lines_of_data_are_no_prose() -> None:
    data = '{\n  "origin": "JFK",\n  "seats": [\n    1,\n    2\n  ],\n},\n);\n'
    talk = "The river bends around the hill and the old mill turns.\n"
    text = digested(user("Go on, please"), answer(f"{data}{talk}"))
    assert section(text, "Notes") == [f"- {talk.strip()} (h1)"]


def test_prose_in_a_script_without_spaces_is_prose() -> None:
    said = "河流绕过山丘旧磨坊日夜不停地转动着。"
    assert section(digested(user("Go on"), answer(said)), "Notes") == [f"- {said} (h1)"]


SUMMARY = """# Where we are
The mill is being mended, and the miller wants it done before the harvest comes in.
```
gear_ratio = 2
```
## What comes next
- Oil the gear_box, then look at src/mill/wheel.py again.
Nothing else is planned."""


def test_the_summary_of_a_model_stays_together_without_handles() -> None:
    text = digested(user("Go on"), assistant("Yes."), previous=SUMMARY)
    lines = [line for line in SUMMARY.split("\n") if not line.startswith("```")]
    assert section(text, "Notes") == [
        "- An earlier summary told:",
        *(f"  {line}" for line in lines),
    ]
    again = digested(user("Go on"), assistant("Yes."), previous=text)
    assert section(again, "Notes") == section(text, "Notes")


def test_a_request_that_was_passed_over_is_not_plainly_open() -> None:
    messages = [user("Oil the wheel"), assistant("Hm."), user("Paint the door"), assistant("Yes.")]
    text = digested(*messages)
    told = ["- open, then a newer one (h0): Oil the wheel", "- open (h2): Paint the door"]
    assert section(text, "Requests") == told
    assert [held.followed for held in read_summary(text).requests] == [True, False]
    log = Log(by_classes, messages)
    assert section(digest(log, range(2), 1_000), "Requests") == told[:1]  # the newer is not folded


def test_a_request_that_was_passed_over_stays_so_when_it_is_carried_on() -> None:
    old = "## Requests\n- open, then a newer one (h0): Oil it\n- open (h2): Paint it"
    log = Log(by_classes, [user("a"), assistant("b"), user("c"), assistant("d"), user("Open it")])
    text = digest(log, [4], 1_000, previous=old)
    assert section(text, "Requests") == [
        "- open, then a newer one (h0): Oil it",
        "- open, then a newer one (h2): Paint it",
        "- open (h4): Open it",
    ]


def test_the_first_line_tells_of_what_was_folded_before() -> None:
    first = digested(user("Go on"))
    assert first.startswith("[Digest of 1 messages; recall a handle")
    again = digested(user("Go on"), previous=first)
    assert again.split("\n")[0] == (
        "[Digest of 1 messages, and of what was folded before them; "
        "recall a handle, such as h1f, for the whole of it.]"
    )
    assert "[Digest" not in digested(user("Go on"), previous=again)[1:]


def test_items_of_lists_get_one_bullet() -> None:
    rules = "- Always oil the wheel first.\n* Never open the sluice at night."
    long = "Grind the corn of the village. " * 200
    text = digested(
        user(f"{long}\n{rules}\n{long}"), answer("- The gear_box is made of old brass."), room=600
    )
    assert section(text, "Standing instructions") == [
        "- Always oil the wheel first.",
        "- Never open the sluice at night.",
    ]
    assert "- The gear_box is made of old brass. (h1)" in section(text, "Notes")


def test_decisions_are_cut_where_a_sentence_ends() -> None:
    reason = "We use oak instead of pine because it lasts longer in the water of the mill race. "
    told = section(digested(user("Go"), answer(reason * 10)), "Decisions and reasons")
    assert told == [f"- {(reason * 3).strip()} (h1)"]


def test_a_decision_at_the_end_of_a_long_line_is_told() -> None:
    talk = "The river bends around the hill and the old mill turns all day long. " * 8
    told = section(
        digested(user("Go"), answer(f"{talk}So we use oak instead of pine.")),
        "Decisions and reasons",
    )
    assert told == ["- … So we use oak instead of pine. (h1)"]
