"""Who may call what: rules, and commands taken apart."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from foldmark.agent.commands import LONGEST, compound
from foldmark.agent.permissions import Action, Permissions, Rule
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
        "trap 'git push' EXIT",
        "trap git\\ push EXIT",
        "exec -a x git push",
        "exec -c -a x git push",
        "coproc git push",
        "flock lock git push",
        "{git,push}",
        "a=push; git $a",
        "sudo git ${x:-push}",
        "git p{u,}sh",
        "$(echo git) push",
        "`echo git` push",
        "X=1 $(echo git) push",
        "git $(echo push)",
        'git "$(echo push)"',
        "git push" + " " * 30_000,
        "ls" + " " * 30_000 + "; git push",
    ],
)
def test_in_doubt_somebody_is_asked(command: str) -> None:
    assert Permissions(ALL_BUT_PUSH).decide("shell", command) in ("ask", "deny")
    assert Permissions(ALL_BUT_PUSH[:1]).decide("shell", command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "echo $(pwd) $(date)",
        "echo `pwd` `date` $(date; ls)",
        "for f in $(ls); do echo $f; done",
        "x=$(pwd); cd $x",
        "git commit -m $X",
        "(cd a; ls) && echo $((1+2)) $(pwd)",
        "diff <(ls a) <(ls b)",
        "echo ${HOME} {a,b}",
        "awk '{print $1}' x",
    ],
)
def test_what_is_expanded_in_other_commands_is_no_doubt(command: str) -> None:
    assert Permissions(ALL_BUT_PUSH).decide("shell", command) == "allow"


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


def test_a_command_that_is_too_long_to_be_looked_into_is_asked_about() -> None:
    text = "cat <<'E'\n" + "a line of text\n" * 100_000 + "E\n"
    assert Permissions(SOME).decide("shell", "ls " + "x" * 1_000_000) == "ask"
    assert Permissions(SOME).decide("shell", "git push " + "x" * 1_000_000) == "deny"
    assert Permissions(ALL_BUT_PUSH).decide("shell", text) == "ask"
    assert Permissions([("shell", "allow")]).decide("shell", text) == "allow"


def test_many_different_commands_are_not_each_held_against_all_others() -> None:
    rules: list[Rule] = [*ALL_BUT_PUSH, *((f"shell:never{n}*", "deny") for n in range(5))]
    for form in ("a{};", "'a{}';", "$(a{});", "sudo a{};"):
        pieces = "".join(form.format(number) for number in range(4_000))
        assert Permissions(rules).decide("shell", pieces[:LONGEST]) in ("allow", "ask")


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
