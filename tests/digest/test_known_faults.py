"""Faults that users found in digests: each of these once went wrong."""

import re

import pytest

from foldmark.digest.digest import digest
from foldmark.digest.previous import read_summary
from foldmark.log.log import Log
from foldmark.model.messages import Completed, ToolPart
from foldmark.tokens.counters import by_classes
from tests.support.digest_sessions import answer, assistant, call, digest_text, section, user

COMMANDS, DECISIONS = "Commands and searches", "Decisions and reasons"


def ran(command: str, output: str) -> ToolPart:
    """A command with an unknown exit status."""
    return ToolPart(tool="bash", state=Completed(input={"command": command}, output=output))


def command_line(part: ToolPart) -> str:
    """The line of a digest for a command."""
    (line,) = section(digest_text(user("Go"), assistant(part)), COMMANDS)[:1]
    return line.removeprefix("- ")


# --- what must be in a digest ----------------------------------------------------------------

PASSED = "\n".join(f"tests/test_{n % 40}.py::test_case_{n} PASSED" for n in range(1_500))
FAILED = "FAILED tests/test_login.py::test_retries - assert 17 == 4"
TESTED = f"{PASSED}\nE       assert 17 == 4\n{FAILED}\n1 failed, 1500 passed in 2.1s"


def digest_of_run(budget: int = 3_000) -> str:
    """The digest after a test run with thousands of names in its output."""
    return digest_text(user("Why?"), assistant(ran("make test", TESTED)), budget=budget)


def test_a_failing_command_and_few_of_its_similar_lines_are_shown() -> None:
    text = digest_of_run()
    assert section(text, COMMANDS)[0].startswith(f"- failed (h1): make test → {FAILED[:45]}")
    assert text.count(" PASSED") < 10


def test_a_line_with_a_single_name_is_listed_as_a_name() -> None:
    columns = "\n".join(f"  {name}_id," for name in ("user", "order", "item", "price", "stock"))
    text = digest_text(user("Go"), assistant(call("read", columns, filePath="src/app.sql")))
    assert section(text, "Files")[1].startswith("  also: ")
    assert len(section(text, "Files")) == 2


@pytest.mark.parametrize("budget", [500, 3_000, 10_000])
def test_bare_names_take_a_small_part_of_the_budget(budget: int) -> None:
    text = digest_of_run(budget)
    also = [line for line in text.split("\n") if line.startswith("  also: ")]
    names = [*also, *section(text, "Also named")]
    assert names
    assert sum(by_classes(line) for line in names) <= budget * 0.15
    assert all(line.count(", ") < 12 for line in also)


def test_failures_the_last_commands_and_changes_come_before_names() -> None:
    pairs = [a + b for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    noise = "\n".join(f"the user_{at} opens the {at}_page of /app/{at}.py" for at in pairs)
    calls = [
        call("edit", "ok", filePath="src/signup.py", newString="size = 'large'"),
        call("bash", "ValueError: timeout", status=1, command="python sync.py"),
        call("bash", "quiet", command="ls src"),
        call("grep", noise, pattern="user"),
    ]
    text = digest_text(user("Fix it"), assistant(*calls), budget=1_000)
    assert any(line.startswith("- src/signup.py — changed") for line in section(text, "Files"))
    commands = "\n".join(section(text, COMMANDS))
    assert "python sync.py → ValueError: timeout" in commands
    assert "ls src" in commands


# --- failed commands -------------------------------------------------------------------------

FAILURES = (
    "1 failed, 3000 passed",
    "===== 2 failed, 11 passed, 1 warning in 0.52s =====",
    FAILED,
    "Tests:       2 failed, 3 passed, 5 total",
    " Test Files  1 failed | 3 passed (4)",
    "test result: FAILED. 3 passed; 1 failed; 0 ignored",
    "FAILED (failures=1)",
    "--- FAIL: TestRetries (0.00s)\nFAIL\nFAIL\tapp/login\t0.003s",
    "  3 passing (4ms)\n  1 failing",
    "5 examples, 1 failure",
    "Found 3 errors in 2 files (checked 9 source files)",
    "make: *** [Makefile:3: all] Error 2",
)
MENTIONS = (
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
)
SHOWS = ("cat report.txt out.txt", "grep -h failed a.log", "git log -3")
SEARCHES = ("grep -rn 'a|b' src", "cd /app && rg user", "ls | grep log", "find . -name '*.py'")


@pytest.mark.parametrize("end", FAILURES)
def test_an_output_that_ends_with_failures_has_failed(end: str) -> None:
    line = command_line(ran("make check", f"collecting\n{end}\n"))
    assert line.startswith("failed (h1): make check → ")


@pytest.mark.parametrize(
    "part",
    [
        *(ran("make check", f"collecting\n{end}\n") for end in MENTIONS),
        *(ran(command, "1 failed, 3 passed") for command in SHOWS),
        *(call("bash", "", status=1, command=command) for command in SEARCHES),
    ],
)
def test_mentioned_failures_and_searches_without_hits_are_not_failures(part: ToolPart) -> None:
    assert command_line(part).startswith("ok (h1): ")


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("pytest -q | tail -3", 0, "...\n1 failed, 4 passed"),  # the pipe hides the status
        ("grep -r log src", 2, "grep: src: No such file or directory"),
    ],
)
def test_pipes_and_searches_can_fail(command: str, status: int, output: str) -> None:
    line = command_line(call("bash", output, status=status, command=command))
    assert line == f"failed (h1): {command} → {output.splitlines()[-1]}"


# --- long outputs ----------------------------------------------------------------------------


def searches(characters: int) -> Log:
    """Searches whose outputs are distinct paths."""
    messages, size = [user("Find the users")], 0
    names = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400)]
    while size < characters:
        at = len(messages)
        output = "\n".join(f"src/part_{at}/user_{name}.py: opens page {name}" for name in names)
        messages.append(assistant(call("grep", output, pattern=f"user{at}")))
        size += len(output)
    return Log(by_classes, messages)


def test_the_middle_of_old_outputs_is_not_read() -> None:
    log = searches(1_600_000)
    near, far = log.entries[len(log) - 2], log.entries[2]
    text = digest(log, range(len(log)), 400_000)
    assert f"part_{near.index}/user_ha.py" in text
    assert f"part_{far.index}/user_aa.py" in text
    assert f"part_{far.index}/user_pj.py" in text
    assert f"part_{far.index}/user_ha.py" not in text


def test_no_half_of_a_secret_is_left_of_an_old_output() -> None:
    key = "ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    line = "the server sends the page and the client shows the form\n"
    old = [assistant(call("bash", "x " * n + f"{key} " * 400, command=f"a{n}")) for n in range(40)]
    new = [assistant(call("bash", line * 2_000, command=f"b{n}")) for n in range(12)]
    log = Log(by_classes, [user("Go"), *old, *new])
    text = digest(log, range(len(log)), 20_000)
    assert not re.search(r"[A-Za-z0-9]{12}", re.sub(r"\[masked: [^\]]*\]", "", text))


# --- lines -----------------------------------------------------------------------------------

DATA = '{\n  "origin": "JFK",\n  "seats": [\n    1,\n    2\n  ],\n},\n);\n'


@pytest.mark.parametrize(
    ("data", "prose"),
    [
        (DATA, "The server waits for the client and the old test runs."),
        ("", "服务器等待客户端旧测试日夜不停地运行着。"),
    ],
    ids=["not data", "without spaces"],
)
def test_prose_is_noted(data: str, prose: str) -> None:
    assert section(digest_text(user("Go on"), answer(f"{data}{prose}\n")), "Notes") == [
        f"- {prose} (h1)"
    ]


SUMMARY = """# Where we are
The import is being fixed, and the team wants it done before the release goes out.
```
max_retries = 2
```
## What comes next
- Fix the user_cache, then look at src/app/login.py again.
Nothing else is planned."""


def test_a_models_summary_stays_together_without_handles() -> None:
    text = digest_text(user("Go on"), assistant("Yes."), previous=SUMMARY)
    lines = [f"  {line}" for line in SUMMARY.split("\n") if not line.startswith("```")]
    assert section(text, "Notes") == ["- An earlier summary told:", *lines]
    again = digest_text(user("Go on"), assistant("Yes."), previous=text)
    assert section(again, "Notes") == section(text, "Notes")


def test_an_unanswered_request_before_a_newer_one_is_marked() -> None:
    messages = [user("Fix it"), assistant("Hm."), user("Rename it"), assistant("Yes.")]
    text = digest_text(*messages)
    lines = ["- open, then a newer one (h0): Fix it", "- open (h2): Rename it"]
    assert section(text, "Requests") == lines
    assert [request.followed for request in read_summary(text).requests] == [True, False]
    log = Log(by_classes, [*messages, user("Release it")])
    assert section(digest(log, range(2), 1_000), "Requests") == lines[:1]  # the newer stays
    assert section(digest(log, [4], 1_000, previous=text), "Requests") == [
        lines[0],
        "- open, then a newer one (h2): Rename it",
        "- open (h4): Release it",
    ]


def test_the_first_line_mentions_messages_folded_before() -> None:
    first = digest_text(user("Go on"))
    assert first.startswith("[Digest of 1 messages; recall a handle")
    again = digest_text(user("Go on"), previous=first)
    assert again.split("\n")[0] == (
        "[Digest of 1 messages, and of what was folded before them; "
        "recall a handle, such as h1f, for the whole of it.]"
    )
    assert "[Digest" not in digest_text(user("Go on"), previous=again)[1:]


REASON = "We use JSON instead of XML because it parses faster in the tests of the old client. "
TALK = "The server waits for the client and the old test runs all day long. " * 8


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        (REASON * 10, (REASON * 3).strip()),
        (f"{TALK}So we use JSON instead of XML.", "… So we use JSON instead of XML."),
    ],
    ids=["cut after a sentence", "at the end of a long line"],
)
def test_a_long_line_is_cut_around_its_decision(text: str, decision: str) -> None:
    assert section(digest_text(user("Go"), answer(text)), DECISIONS) == [f"- {decision} (h1)"]
