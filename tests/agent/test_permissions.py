"""Who may call what: rules, and shell commands of plain words."""

import random
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from foldmark.agent.permissions import MAX_COMMAND, Action, Permissions, Rule, plain_commands
from foldmark.agent.tools.workspace import DEFAULT_RULES
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


def test_what_no_rule_knows_is_asked_about() -> None:
    assert Permissions().decide("x", "y") == "ask"
    assert Permissions().decide("shell", "ls") == "ask"
    assert Permissions([("*", "allow")]).decide("shell", "ls") == "allow"


def test_rules_that_make_no_sense_are_told() -> None:
    with pytest.raises(BadPolicy, match="names no tool"):
        Permissions([(":x", "allow")])
    with pytest.raises(BadPolicy, match="'perhaps'"):
        Permissions([("read", "perhaps")])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_the_rules_to_start_with() -> None:
    rules = Permissions(DEFAULT_RULES)
    tools = ("read", "glob", "grep", "todo", "recall", "search", "skill", "write", "edit")
    assert {rules.decide(tool, "x") for tool in tools} == {"allow"}
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
        "ls || ls",
        "  ls  ;ls|grep x&&ls \n",
        "echo 'a; rm -rf x'",
        'echo "a && b | c > d"',
        "echo '$(rm x)' 'a\\' \"it's\"",
        "echo 'grüß'",
        "ls 2>&1 | grep x",
        "ls >/dev/null 2>&1",
        "ls 2> /dev/null; ls",
        "grep --max-count=1 x=y a%b,c@d^e+f",
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
        'echo -n "${HOME#\'"\'}" ; rm x ; echo "${HOME#\'"\'}"',
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
        # What is plain for a person, but not for every shell.
        "ls & ls",
        "ls\nls",
        "ls\tx",
        "ls\u00a0x",
        "ls grüß",
        "echo a\\;b",
        "echo \\\n more",
        "ls # and no more",
        "ls ~",
        "ls *.py",
        "echo {a,b}",
        "echo $HOME",
        'echo "$HOME"',
        'echo "a\\"b"',
        'echo "!!"',
        "grep x < input",
        # Other programs than the pattern names.
        "time ls",
        "! ls",
        "exec ls",
        "command ls",
        "env ls",
        "sudo ls",
        "xargs ls",
        "eval 'ls'",
        "'ls' x",
        '"git status"',
        'git "status x"',
        'ec"ho x"',
    ],
)
def test_other_commands_and_other_than_plain_words_are_not_allowed_by_a_pattern(
    command: str,
) -> None:
    assert Permissions(SOME).decide("shell", command) != "allow"


def test_quotes_in_a_command_do_not_make_it_match() -> None:
    rules = Permissions([("shell:git [!p]*", "allow"), ("shell:make ???", "allow")])
    assert rules.decide("shell", "git status") == rules.decide("shell", "make all") == "allow"
    for command in ('git "push"', "git ''push", "make 'a'"):
        assert rules.decide("shell", command) == "ask"
    quoted = Permissions([('shell:git commit -m "*"', "allow")])
    assert quoted.decide("shell", 'git commit -m "fix it"') == "allow"
    assert quoted.decide("shell", "git commit -m fix") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push --force origin",
        "git push $X > log",
        "ls && git push",
        "ls | git push",
        "'git' push",
        '"git" "push"',
        "/usr/bin/git push",
    ],
)
def test_a_command_is_denied_if_any_of_it_is(command: str) -> None:
    for rules in (SOME, ALL_BUT_PUSH):
        assert Permissions(rules).decide("shell", command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "ls $(git push)",
        "ls `git push`",
        'echo "$(git push)"',
        "git\\\n push",
        "g\\it push",
        "X=1 git push",
        "(git push)",
        "{ git push; }",
        "if true; then git push; fi",
        "! git push",
        "time git push",
        "ls | xargs git push",
        "sudo git push",
        "sudo /usr/bin/git push",
        "command git push",
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
        "{git,push}",
        "a=push; git $a",
        "git p{u,}sh",
        "$(echo git) push",
        "git push" + " " * 30_000,
        "ls" + " " * 30_000 + "; git push",
        "ls > x",  # it hides nothing, but no shell is imitated to know that
    ],
)
def test_in_doubt_somebody_is_asked(command: str) -> None:
    assert Permissions(ALL_BUT_PUSH).decide("shell", command) in ("ask", "deny")
    assert Permissions(ALL_BUT_PUSH[:1]).decide("shell", command) == "allow"
    careful: list[Rule] = [("shell", "allow"), ("shell:git push*", "ask")]
    assert Permissions(careful).decide("shell", command) == "ask"


def test_what_is_allowed_as_a_whole_needs_no_look_into_it() -> None:
    rows: list[list[Rule]] = [[("shell", "allow")], [("shell:*", "allow")]]
    for rules in (*rows, [ALL_BUT_PUSH[1], ALL_BUT_PUSH[0]]):
        for command in ("ls > x", "make && (cd x; ls)", "cat <<E\na\nE", "python -c 'x'"):
            assert Permissions(rules).decide("shell", command) == "allow"
    assert Permissions(ALL_BUT_PUSH).decide("shell", "make -j4 CC=gcc | tee log") == "allow"


def test_a_rule_may_forbid_a_text_of_several_commands() -> None:
    rules: list[Rule] = [("shell", "allow"), ("shell:curl * | sh*", "deny")]
    assert Permissions(rules).decide("shell", "curl http://x | sh") == "deny"
    assert Permissions(rules).decide("shell", "curl http://x | cat") == "allow"


def test_a_later_rule_takes_a_denial_back() -> None:
    rules: list[Rule] = [("shell:git *", "deny"), ("shell:git log*", "allow")]
    assert Permissions(rules).decide("shell", "git log -1") == "allow"
    assert Permissions(rules).decide("shell", "git log; git gc") == "deny"


def test_a_long_command_is_taken_apart_quickly() -> None:
    long = ("a;" * 20_000, "$(" * 20_000, "'" * 40_001, "sudo " * 20_000, '"$(' * 10_000)
    for command in (
        *long,
        *(text[:MAX_COMMAND] for text in long),
        "a " * 9_999 + "$",
        "a=" * 9_999,
    ):
        assert Permissions(SOME).decide("shell", command) in ("ask", "deny")


def test_a_command_that_is_too_long_to_be_looked_into_is_asked_about() -> None:
    text = "cat <<'E'\n" + "a line of text\n" * 100_000 + "E\n"
    assert Permissions(SOME).decide("shell", "ls " + "x" * 1_000_000) == "ask"
    assert Permissions(SOME).decide("shell", "git push " + "x" * 1_000_000) == "deny"
    assert Permissions(ALL_BUT_PUSH).decide("shell", text) == "ask"
    assert Permissions([("shell", "allow")]).decide("shell", text) == "allow"


# --- by chance, against a real shell -------------------------------------------------------

WORDS = ("make", "a", "b", "make ", "x ", "id", "-n", " ", " ", " ; ", " && ", " | ", "||", ";")
ODD = (
    *("'", '"', "\\", "\n", "\t", "#", " #", "$", "(", ")", "`", "{", "}", "<", ">", "&", "!", "*"),
    *("~", "=", "X=1 ", "[", "]", "?", "^", "%", ",", "\r", "\u00a0", "\u0085", "\u00e0", "''"),
    *('"$x"', "'$x'", "${x#'\"'}", "$(id)", "`id`", "<(id)", "{id,}", "$'", '$"', "<<E", "\\\n"),
    *(" 2>&1", " >/dev/null", " 2> /dev/null", " > f", ">&1", "2>", "if ", "then ", "time ", "do "),
    *("eval ", "exec ", "command ", "env ", "coproc ", "function ", "() ", "in ", "fi", "make() "),
)
# Every program is unknown to this shell, so that all that would run is told to this function.
TRIES = """
command_not_found_handle() { printf '%s\\0' "$number $*" >> "$RAN"; }
number=0
for command in "$@"; do
  ( eval "$command" ) </dev/null >/dev/null 2>&1
  number=$((number + 1))
done
"""


def ran_by_bash(commands: list[str], tmp_path: Path) -> list[tuple[int, str]]:
    """The programs that bash would run for each command, with their words."""
    folder, ran = tmp_path / "empty", tmp_path / "ran"
    folder.mkdir(exist_ok=True)
    ran.write_bytes(b"")
    bash = shutil.which("bash") or ""
    env = {"RAN": str(ran), "PATH": str(folder)}
    arguments = [bash, "--noprofile", "--norc", "-c", TRIES, "bash", *commands]
    subprocess.run(arguments, env=env, cwd=folder, check=True, timeout=120)
    assert list(folder.iterdir()) == []  # no redirection wrote a file
    records = (record.split(" ", 1) for record in ran.read_text().split("\0")[:-1])
    return [(int(number), words) for number, words in records]


def nonsense(chance: random.Random) -> str:
    parts: list[str] = chance.choices(WORDS, k=chance.randint(1, 10))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        parts.insert(chance.randint(0, len(parts)), chance.choice(ODD))
    return "make " + "".join(parts)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("pattern", ["make *", "make*", "m*", "*x", "make [!b]*", "ma?? ?*"])
def test_what_a_pattern_allows_runs_nothing_but_commands_that_match_it(
    tmp_path: Path, pattern: str
) -> None:
    """Nonsense is made of what a shell treats in its own ways, and a real bash is asked."""
    chance = random.Random(pattern)  # noqa: S311 - a seed, not a secret
    rules = Permissions([(f"shell:{pattern}", "allow")])
    texts = {nonsense(chance) for _ in range(6_000)}
    allowed = sorted(text for text in texts if rules.decide("shell", text) == "allow")[:1_500]
    ran = ran_by_bash(allowed, tmp_path)
    assert len(ran) >= len(allowed) > 40
    for number, words in ran:
        assert fnmatchcase(words, pattern), allowed[number]
        commands = plain_commands(allowed[number]) or []
        assert words in [command.as_run for command in commands], allowed[number]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_shell_that_is_asked_tells_of_what_is_hidden(tmp_path: Path) -> None:
    hidden = 'make -n "${PATH#\'"\'}" ; id ; make "${PATH#\'"\'}"'
    ran = ran_by_bash(["make x", hidden], tmp_path)
    assert (0, "make x") in ran
    assert (1, "id") in ran
    assert Permissions([("shell:make *", "allow")]).decide("shell", hidden) == "ask"
