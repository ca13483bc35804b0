"""Who may call what: rules, commands taken apart, and questions."""

import asyncio
import random
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from foldmark.agent.commands import compound
from foldmark.agent.permissions import (
    Action,
    Asker,
    Gate,
    No,
    Permissions,
    Question,
    Reply,
    Rule,
)
from foldmark.agent.workspace import DEFAULT_RULES
from foldmark.errors import BadPolicy


@pytest.mark.parametrize(
    ("tool", "subject", "action"),
    [
        ("read", "a.py", "allow"),
        ("read", ".env", "deny"),
        ("read", "deep/down/.env", "deny"),
        ("read", "keys/public.pem", "allow"),
        ("read", "keys/own.pem", "deny"),
        ("write", "src/a/b.py", "allow"),
        ("write", "setup.py", "ask"),
        ("mcp_fetch", "http://x", "deny"),
        ("mcp_", "", "deny"),
        ("other", "", "ask"),
        ("READ", "a.py", "ask"),
    ],
)
def test_the_last_rule_that_matches_counts(tool: str, subject: str, action: Action) -> None:
    rules: list[Rule] = [
        ("read", "allow"),
        ("read:*.env", "deny"),
        ("read:*.pem", "deny"),
        ("read:*/public.pem", "allow"),
        ("write:src/*", "allow"),
        ("mcp_*", "deny"),
    ]
    assert Permissions(rules).decide(tool, subject) == action


def test_what_no_rule_knows_is_as_the_default_says() -> None:
    assert Permissions().decide("x", "y") == "ask"
    assert Permissions(default="deny").decide("shell", "ls") == "deny"
    assert Permissions([("*", "allow")], "deny").decide("shell", "ls") == "allow"


def test_rules_that_make_no_sense_are_told() -> None:
    with pytest.raises(BadPolicy, match="names no tool"):
        Permissions([(":x", "allow")])
    with pytest.raises(BadPolicy, match="'perhaps'"):
        Permissions([("read", "perhaps")])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_the_rules_to_start_with() -> None:
    rules = Permissions(DEFAULT_RULES)
    known = ("read", "glob", "grep", "todo", "recall", "search", "skill", "write", "edit")
    assert {rules.decide(tool, "x") for tool in known} == {"allow"}
    assert rules.decide("shell", "ls") == "ask"
    assert rules.decide("unknown", "") == "ask"


# --- commands ------------------------------------------------------------------------------

SOME: tuple[Rule, ...] = (
    ("shell", "ask"),
    ("shell:git status*", "allow"),
    ("shell:ls*", "allow"),
    ("shell:echo *", "allow"),
    ("shell:grep *", "allow"),
    ("shell:git push*", "deny"),
)
ALL_BUT_PUSH: tuple[Rule, ...] = (("shell", "allow"), ("shell:git push*", "deny"))


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git status --short && ls -la",
        "ls | grep x",
        "ls; ls;",
        "ls\nls",
        "ls & ls",
        "echo 'a; rm -rf x'",
        'echo "a && b | c > d"',
        "echo a\\;b",
        "echo '$(rm x)'",
        "ls 2>&1 | grep x",
        "ls >/dev/null 2>&1",
        "ls 2> /dev/null; ls",
        "ls # and no more",
        "echo \\\n more",
        "grep x < input",
        "echo $HOME",
    ],
)
def test_a_command_is_allowed_if_all_of_it_is(command: str) -> None:
    assert Permissions(SOME).decide("shell", command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "git status; rm x",
        "git status && rm x",
        "git status || rm x",
        "git status | rm x",
        "git status |& rm x",
        "git status & rm x",
        "git status\nrm x",
        "git status # it's\nrm x #'",
        "git status $(rm x)",
        "git status `rm x`",
        'echo "$(rm x)"',
        'echo "`rm x`"',
        "echo ${x:-$(rm x)}",
        "grep <(rm x)",
        "ls > file",
        "ls >> file",
        "ls >| file",
        "ls &> file",
        "ls >& file",
        "ls >&1file",
        "ls 1>/dev/nullx",
        "ls >/dev/null/../../home/x",
        "ls <<END\nrm\nEND",
        "ls <> file",
        "(ls)",
        "echo 'open",
        'echo "open',
        "echo $'it\\'s' ; rm x #'",
        "X=1 git status",
        "PAGER=evil git status",
        "ls=1 rm x",
        "ls[1 2]=3 rm x",
        "ls+=1 rm x",
        "echo \x1b[31m",
        "echo a\rrm",
        "echo a\\\n#; rm x",
        "echo \\ #; rm x",
        "if ls; then rm x; fi",
        "",
        "   ",
    ],
)
def test_a_command_that_hides_another_or_writes_is_not_allowed_by_a_pattern(command: str) -> None:
    assert Permissions(SOME).decide("shell", command) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push --force origin",
        "ls && git push",
        "ls $(git push)",
        "ls `git push`",
        'echo "$(git push)"',
        "git\\\n push",
        "'git' push",
        '"git" "push"',
        "g\\it push",
        "/usr/bin/git push",
        "X=1 git push",
        "(git push)",
        "{ git push; }",
        "if true; then git push; fi",
        "! git push",
        "ls | xargs git push",
        "sudo git push",
        "command git push",
    ],
)
def test_a_command_is_denied_if_any_of_it_is(command: str) -> None:
    for rules in (SOME, ALL_BUT_PUSH):
        assert Permissions(rules).decide("shell", command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'git push'",
        'bash -lc "ls; git push"',
        "eval 'git push'",
        "sudo -u me git push",
        "find . -exec git push {} +",
        "$GIT push",
        "/usr/bin/g?t push",
        "echo 'git push'",
    ],
)
def test_in_doubt_somebody_is_asked(command: str) -> None:
    assert Permissions(ALL_BUT_PUSH).decide("shell", command) in ("ask", "deny")
    assert Permissions(ALL_BUT_PUSH[:1]).decide("shell", command) == "allow"


def test_what_is_allowed_as_a_whole_needs_no_look_into_it() -> None:
    for command in ("ls > x", "ls $(pwd)", "make && (cd x; ls)", "cat <<E\na\nE", "python -c 'x'"):
        assert Permissions(ALL_BUT_PUSH).decide("shell", command) == "allow"
    assert Permissions([("shell:*", "allow")]).decide("shell", "ls $(pwd) > x") == "allow"


def test_a_later_rule_takes_a_denial_back() -> None:
    rules: list[Rule] = [("shell:git *", "deny"), ("shell:git log*", "allow")]
    assert Permissions(rules).decide("shell", "git log -1") == "allow"
    assert Permissions(rules).decide("shell", "git log; git gc") == "deny"


def test_commands_are_split_as_a_shell_splits_them(tmp_path: Path) -> None:
    """Each part writes its own name when it runs; a shell is asked which ones there are."""
    for name in "abcd":
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf {name} >> {tmp_path}/ran\n")
        (tmp_path / name).chmod(0o755)
    for command in (
        "a; b && c | d",
        "a 'x; b' && c",
        'a "x && b" | d',
        "a # it's b\nb # 'c",
        "a \\; b\nc",
        'a "\\"; b" ; c',
        "a \\\n b; c",
        "a & b & wait",
        "a 2>&1; b",
        "a 'x'\"'\"'y; b'; c",
        "a#b; c",
        'a "x # y"; b',
    ):
        (tmp_path / "ran").write_text("")
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", command], env=env, check=False, stderr=subprocess.DEVNULL)
        seen = {one.forms[0].split()[0] for one in compound(command).commands}
        ran = set((tmp_path / "ran").read_text())
        assert ran <= seen, command
        assert {name for name in seen if len(name) == 1} == ran, command


def test_a_long_command_is_taken_apart_quickly() -> None:
    for command in ("a;" * 20_000, "$(" * 20_000, "'" * 40_001, "sudo " * 20_000, '"$(' * 10_000):
        assert Permissions(SOME).decide("shell", command) in ("ask", "deny")


# --- asking --------------------------------------------------------------------------------


def refusal(gate: Gate, subject: str = "ls", tool: str = "shell") -> str | None:
    return asyncio.run(gate.refusal(tool, subject, {"command": subject}))


def asker(*replies: Reply) -> tuple[Asker, list[Question]]:
    """Somebody who gives these answers, and the questions."""
    asked: list[Question] = []

    def ask(question: Question) -> Reply:
        asked.append(question)
        return replies[len(asked) - 1]

    return ask, asked


def test_nobody_to_ask_means_no_and_says_which_rule_would_allow_it() -> None:
    words = refusal(Gate(Permissions()), "npm test")
    assert words is not None
    assert '"shell:npm test" = allow' in words
    assert '"todo" = allow' in (refusal(Gate(Permissions()), "", "todo") or "")
    assert "\x1b" not in (refusal(Gate(Permissions()), "\x1b[2J\n" * 999) or "")


def test_who_is_asked_decides() -> None:
    ask, asked = asker("once", "no", No(words="use make"))
    gate = Gate(Permissions(), ask)
    assert refusal(gate) is None
    assert refusal(gate) == "the user said no to this call"
    assert refusal(gate) == "the user said no: use make"
    assert asked[0] == Question(tool="shell", subject="ls", input={"command": "ls"})


def test_always_is_remembered_for_this_very_call_alone() -> None:
    ask, asked = asker("always", "no")
    gate = Gate(Permissions(), ask)
    assert refusal(gate, "ls") is None
    assert refusal(gate, "ls") is None
    assert refusal(gate, "ls *") is not None
    assert len(asked) == 2


def test_nobody_is_asked_about_what_is_forbidden_or_allowed() -> None:
    ask, asked = asker()
    gate = Gate(Permissions([("shell:ls", "allow"), ("shell:rm*", "deny")]), ask)
    assert refusal(gate, "ls") is None
    assert "forbids" in (refusal(gate, "rm x") or "")
    assert asked == []


def test_no_answer_is_no_permission() -> None:
    def fails(question: Question) -> Reply:
        raise EOFError

    def mumbles(question: Question) -> Reply:
        return "perhaps"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    assert "EOFError" in (refusal(Gate(Permissions(), fails)) or "")
    assert refusal(Gate(Permissions(), mumbles)) is not None


def test_who_never_answers_does_not_keep_a_program_from_ending() -> None:
    answered, began = threading.Event(), threading.Event()
    waits: list[bool] = []

    def ask(question: Question) -> Reply:
        began.set()
        waits.append(answered.wait(10))
        return "once"

    async def cut() -> None:
        task = asyncio.create_task(Gate(Permissions(), ask).refusal("shell", "ls", {}))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cut())
    assert waits == []  # it still waits
    answered.set()


def test_calls_at_the_same_time_are_asked_about_one_after_the_other() -> None:
    under_way, most = 0, 0
    asked: list[str] = []

    async def ask(question: Question) -> Reply:
        nonlocal under_way, most
        asked.append(question.subject)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return "always"

    async def both(gate: Gate) -> list[str | None]:
        subjects = ("ls", "pwd", "ls", "pwd", "id")
        return await asyncio.gather(*(gate.refusal("shell", one, {}) for one in subjects))

    gate = Gate(Permissions(), ask)
    assert asyncio.run(both(gate)) == [None] * 5
    assert asyncio.run(both(gate)) == [None] * 5  # on another loop
    assert asked == ["ls", "pwd", "id"]
    assert most == 1


PIECES = (
    *("a ", "a", "b ", "b", "b", " ", ";", "&", "|", "'", '"', "\\", "\n", "#", "$", "(", ")"),
    *("`", "{", "}", "<", ">", "x", "\\\n", " #", "&&", ">&1", " >/dev/null", "=", "!", "[", "*"),
)
# Each command is read by the shell as it stands; `b` leaves a mark when it runs.
TRIES = """
a() { :; }; b() { echo "$1" >> "$MARKS"; }
for command in "$@"; do ( eval "$command" ) </dev/null >/dev/null 2>&1; done
"""


def test_no_command_that_a_pattern_allows_runs_another(tmp_path: Path) -> None:
    """Nonsense is made of what a shell treats in its own ways, and the real shell is asked."""
    chance = random.Random(6)  # noqa: S311 - a seed, not a secret
    rules = Permissions([("shell:a*", "allow")])
    made = ("a" + "".join(chance.choices(PIECES, k=chance.randint(1, 14))) for _ in range(8_000))
    allowed = [text for text in made if "b" in text and rules.decide("shell", text) == "allow"]
    assert len(allowed) > 200
    marks = tmp_path / "marks"
    marks.touch()
    env = {"MARKS": str(marks), "PATH": "/nowhere"}
    for shell in ("sh", "bash"):
        if program := shutil.which(shell):
            given = [program, "-c", TRIES, "sh", *allowed]
            subprocess.run(given, env=env, cwd=tmp_path, check=False, timeout=60)
            assert marks.read_text() == "", shell
    subprocess.run(["/bin/sh", "-c", TRIES, "sh", "a; b"], env=env, check=False)
    assert marks.read_text() != ""
