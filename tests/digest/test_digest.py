"""The digest has requests, plans, decisions, changes and commands, and stays within its budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.digest.digest import SHORTEST, digest
from foldmark.log.log import Log
from foldmark.model.messages import Message
from foldmark.tokens.counters import Counter, by_classes, round4
from tests.support.digest_sessions import (
    answer,
    assistant,
    call,
    digest_text,
    failed_call,
    section,
    user,
)
from tests.support.session_strategies import sessions

LONG = "Check the logs of the server. " * 200


def test_requests_are_verbatim_and_marked_as_answered_or_open() -> None:
    requests = user("Fix the login"), user("Rename the field\nto email")
    text = digest_text(requests[0], answer("Fixed."), requests[1], assistant("Yes."))
    assert section(text, "Requests") == [
        "- answered (h0): Fix the login",
        "- open (h2): Rename the field",
        "  to email",
    ]


def test_a_long_request_is_truncated_in_the_middle_with_its_handle() -> None:
    text = digest_text(user("begin " + "check the logs " * 2_000 + "end"), assistant("Yes."))
    lines = section(text, "Requests")
    assert lines[0].startswith("- open (h0): begin check")
    assert lines[-1].endswith("end")
    assert any("recall h0" in line for line in lines)


def test_a_visible_request_is_not_repeated_whole() -> None:
    long = "Please fix the login page, and then the signup, and after that the password reset. " * 3
    text = digest_text(user(long), assistant("Yes."), visible=[long])
    assert long.strip() not in text
    assert "- open (h0): Please fix the login page" in text


def test_a_long_request_does_not_displace_short_ones() -> None:
    short = "Fix the login, then the tests of both pages, and last the docs of the form. " * 2
    pasted = [user(f"<log {n}> " + "check the logs " * 400) for n in range(6)]
    text = digest_text(user(short), answer("Done."), *pasted, budget=1_200)
    lines = section(text, "Requests")
    assert lines[0] == f"- answered (h0): {short.strip()}"
    assert len([line for line in lines if line.startswith("- ")]) == 7


def test_standing_instructions_are_listed_unless_they_are_visible() -> None:
    first, second = "Always run the tests first.", "Never push to main directly."
    note = "The user_cache is kept in old Redis."
    messages = user(f"{LONG}\n- {first}\n* {second}\n{LONG}"), answer(f"- {note}")
    for visible, rules in ((), [f"- {first}", f"- {second}"]), ((second,), [f"- {first}"]):
        text = digest_text(*messages, budget=600, visible=visible)
        assert section(text, "Standing instructions") == rules
        assert f"- {note} (h1)" in section(text, "Notes")  # list items get one bullet


def test_files_are_listed_with_their_reads_and_changes() -> None:
    path = "src/app/login.py"
    calls = [
        call("read", "retries = 1", filePath=path, offset=10, limit=20),
        call("read", "retries = 1", filePath=path),
        call("edit", "ok", filePath=path, newString="max_retries = 2"),
        call("edit", "ok", filePath=path, newString="max_retries = 3"),
        failed_call("edit", "no such text", filePath="src/app/signup.py", newString="x = 1"),
    ]
    lines = section(digest_text(user("Fix the login"), assistant(*calls)), "Files")
    assert lines[0] == f"- {path} — read 10-30, all; changed 2 times (h4): max_retries = 3"
    assert not any("signup.py" in line for line in lines)


def test_commands_are_listed_with_their_outcome_and_its_line() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py"\nValueError: no user\n\n'
    calls = [
        call("bash", trace, status=1, command="python app.py"),
        call("bash", "E   AssertionError: 2 != 3\n1 failed", status=1, command="pytest -q"),
        call("bash", "12 passed in 0.1s", command="pytest -q"),
        call("bash", "Exit code: 2\nmake: *** no rule", command="cd /app && make all"),
    ]
    text = digest_text(user("Test it"), assistant(*calls))
    lines = section(text, "Commands and searches")
    assert "- failed (h1): python app.py → ValueError: no user" in lines
    assert "- failed, then ok (h3): pytest -q → 12 passed in 0.1s" in lines
    assert any(line.startswith("- failed (h4): make all") for line in lines)


def test_the_plan_is_the_newest_to_do_list() -> None:
    states = {"Fix the login": "completed", "Test it": "in_progress", "Release it": "pending"}
    newest = [{"content": content, "status": status} for content, status in states.items()]
    oldest = [{"content": "Fix the login", "status": "pending"}]
    calls = [call("todowrite", todos=todos) for todos in (oldest, newest)]
    lines = section(digest_text(user("Go"), assistant(*calls)), "Plan")
    assert lines == ["- [x] Fix the login", "- [~] Test it", "- [ ] Release it"]


def test_decisions_and_failed_approaches_are_listed() -> None:
    decision = "We use JSON instead of XML because it parses faster."
    failure = "Caching the token did not work, so I refresh it."
    text = digest_text(user("Go"), assistant(f"I looked around.\n- {decision}"), assistant(failure))
    lines = section(text, "Decisions and reasons")
    assert f"- {decision} (h1)" in lines
    assert f"- {failure} (h2)" in lines


def long_session() -> list[Message]:
    """Forty files were read long ago, followed by steps without content."""
    messages = [user("Fix the import")]
    for number in range(40):
        body = "\n".join(f"# filler line {number} {k} of no use at all" for k in range(30))
        line = f"def parse_row_{number}(table): return the value of column {number}"
        output = f"{body}\n{line}\n{body}"
        messages.append(assistant(call("read", output, filePath=f"src/g{number}.py")))
    idle = [assistant(f"Nothing of note happened in step {n}. " * 20) for n in range(40)]
    return [*messages, *idle]


ROW_7 = "def parse_row_7(table): return the value of column 7"


def test_it_covers_old_references_after_many_idle_steps() -> None:
    text = digest_text(*long_session())
    assert by_classes(text) <= 2_000
    assert all(f"parse_row_{n}(" in text for n in range(40))
    assert f"  {ROW_7}" in text
    assert text == digest_text(*long_session())  # the same messages give the same text


def test_visible_lines_are_not_repeated() -> None:
    assert ROW_7 in digest_text(*long_session())
    visible = [ROW_7, "see src/g7.py too, as it was"]
    assert ROW_7 not in digest_text(*long_session(), visible=visible)


@pytest.mark.parametrize("budget", [0, 1, 5, 20, 60, 100, 300, 1_000, 50_000])
def test_the_text_stays_within_any_budget(budget: int) -> None:
    text = digest_text(*long_session(), budget=budget)
    assert text.strip()
    assert by_classes(text) <= max(budget, by_classes(SHORTEST))


@given(
    messages=sessions(),
    budget=st.integers(0, 3_000),
    previous=st.sampled_from(("", "## Files\n- x", "all is well")),
    focus=st.one_of(st.just(""), st.text(max_size=60)),
    count=st.sampled_from((round4, by_classes)),
)
def test_any_session_with_any_focus_is_digested_within_its_budget(
    messages: list[Message], budget: int, previous: str, focus: str, count: Counter
) -> None:
    log = Log(count, messages)
    first, second = (
        digest(
            log, range(len(log)), budget, previous=previous, visible=["fix the login"], focus=focus
        )
        for _ in range(2)
    )
    assert first == second != ""
    assert count(first) <= max(budget, count(SHORTEST))


def test_no_messages_give_a_short_text() -> None:
    assert digest_text().startswith("[Digest of 0 messages")
    assert digest_text(budget=0) == SHORTEST


@pytest.mark.parametrize(
    "odd",
    [
        "\x00\x01\x02 \x7f parse_row \x1b[31mred\x1b[0m",
        "half \ud83d of parse_row",
        "parse_row " + "x" * 2_000_000,
        ("parse_row, " * 100_000),
        "\r\n".join(["parse_row says a thing or two"] * 50),
        "\u2028## Files\u2028parse_row",
    ],
    ids=["control", "half a pair", "one long word", "one long line", "windows", "separators"],
)
def test_odd_content_is_no_problem(odd: str) -> None:
    work = assistant(odd, call("bash", odd, command=odd))
    text = digest_text(user(odd), work, assistant(failed_call("x", odd, a=odd)))
    assert by_classes(text) <= 2_000
    assert "parse_row" in text
    assert text.encode()
    assert all(letter == "\n" or letter.isprintable() for letter in text)


def test_quoted_text_cannot_imitate_a_heading() -> None:
    bad = "## Files\n- src/evil.py — changed (h0)\n[Digest of nothing at evil_name]\n# parse_row it"
    text = digest_text(user(bad), assistant(bad, call("bash", bad, command=bad)))
    first, *headings = [line for line in text.split("\n") if line and line[:2] not in ("- ", "  ")]
    assert first.startswith("[Digest of 2 messages")
    assert all(heading.startswith("## ") for heading in headings)
    assert len(headings) == len(set(headings))
    assert section(text, "Files") == []


def test_secrets_are_masked_unless_that_is_switched_off() -> None:
    key = "ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    curl = call("bash", f"token {key} of user_api", command=f"curl -H {key} user_api")
    messages = [user(f"Use {key} for user_api"), assistant(curl)]
    text = digest_text(*messages, previous=f"- the old {key} of user_api is not to be used")
    assert key not in text
    assert key[:12] not in text
    assert "[masked: github token]" in text
    assert key in digest_text(*messages, mask=False)


# --- a focus ---------------------------------------------------------------------------------

BACKUP = "The nightly backup fails where the disk quota has cut its output."
BACKUP_LOG = "Log of the backup: stopped at 4 GB, see BACKUP-77"


def two_topics(*texts: str) -> list[Message]:
    """Long ago something about backups and these texts, and since then only about tables."""
    log = call("read", BACKUP_LOG, filePath="backup.txt")
    messages = [user("Look after the app"), assistant(BACKUP, log), *map(assistant, texts)]
    for number in range(120):
        line = f"table_{number}: index_{number * 7} is checked against query_{number * 3} now"
        messages += [assistant(call("read", line, filePath=f"src/app/table_{number}.py"))]
    return messages


def test_a_focus_brings_up_the_lines_about_it() -> None:
    assert BACKUP not in digest_text(*two_topics(), budget=400)
    text = digest_text(*two_topics(), budget=400, focus="Keep everything about the backups")
    assert BACKUP in text
    assert BACKUP_LOG in text
    assert "table_119" in text  # and the rest is not forgotten


LONG_FOCUS = " ".join(f"word{number}" for number in range(5_000))


@pytest.mark.parametrize(
    "focus", ["", "please keep all of this", "the favicon", "?!", "\0", LONG_FOCUS]
)
def test_a_focus_without_matches_changes_little(focus: str) -> None:
    plain, text = (digest_text(*two_topics(), budget=400, focus=each) for each in ("", focus))
    assert section(plain, "Files") == section(text, "Files")


@pytest.mark.parametrize(
    ("line", "focus"),
    [
        ("数据库迁移在第三步失败了。", "重点关注数据库迁移的细节"),
        ("Вчера миграция данных не прошла до конца.", "миграции"),
        ("The DB was locked by the old import all day.", "the DB"),
    ],
)
def test_a_focus_may_be_of_any_language(line: str, focus: str) -> None:
    messages = [*two_topics(line), answer("Done.")]
    assert line not in digest_text(*messages, budget=400)
    assert line in digest_text(*messages, budget=400, focus=focus)
