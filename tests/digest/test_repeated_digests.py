"""Each digest continues the accounts of the one before."""

from foldmark.digest.digest import digest
from foldmark.digest.previous import read_summary
from foldmark.log.log import Log
from foldmark.model.messages import Message
from foldmark.tokens.counters import by_classes
from tests.support.digest_sessions import answer, assistant, call, digest_text, section, user

LOGIN = "src/app/login.py"
FIRST = (
    user("Fix the login, and mind the user_cache"),
    assistant(
        "We use Redis instead of files because of the locks.",
        call("edit", "ok", filePath=LOGIN, newString="max_retries = 2 # as asked for"),
        call("bash", "ValueError: no user_cache", status=1, command="python check_login.py"),
        call("todowrite", todos=[{"content": "Fix the page_size", "status": "pending"}]),
        call("grep", "src/signup.py: the page_size must be a power of two", pattern="size"),
    ),
)
SECOND = (answer("Fixed."), user("Rename it"), assistant(call("bash", "ok", command="ls -la")))
THIRD = (answer("Renamed."), user("Release it"), assistant("Building the release_notes now."))


def chain(*rounds: tuple[Message, ...]) -> list[str]:
    """The digest after each round, made of the one before and the new messages."""
    log = Log(by_classes)
    texts, start = [""], 0
    for messages in rounds:
        for message in messages:
            log.append(message)
        texts.append(digest(log, range(start, len(log)), 1_500, previous=texts[-1]))
        start = len(log)
    return texts[1:]


def next_digest(previous: str) -> str:
    """The digest of a short turn after an earlier summary."""
    return digest_text(user("Go on"), assistant("Yes."), previous=previous)


def test_every_account_is_still_there_after_three_pivots() -> None:
    first, _, third = chain(FIRST, SECOND, THIRD)
    assert section(first, "Requests") == ["- open (h0): Fix the login, and mind the user_cache"]
    assert section(third, "Requests") == [
        "- answered (h0): Fix the login, and mind the user_cache",
        "- answered (h7): Rename it",
        "- open (ha): Release it",
    ]
    for line in (
        "- We use Redis instead of files because of the locks. (h1)",
        f"- {LOGIN} — changed (h2): max_retries = 2 # as asked for",
        "- failed (h3): python check_login.py → ValueError: no user_cache",
        "- [ ] Fix the page_size",
        "  src/signup.py: the page_size must be a power of two",
    ):
        assert line in first.split("\n")
        assert line in third.split("\n")
    assert "release_notes" in third


def test_accounts_are_continued() -> None:
    edit = call("edit", "ok", filePath=LOGIN, newString="max_retries = 4 # and more")
    run = call("bash", "fine", command="python check_login.py")
    _, second = chain(FIRST, (assistant(edit, run),))
    assert f"{LOGIN} — changed 2 times (h6): max_retries = 4 # and more" in second
    assert "- failed, then ok (h7): python check_login.py" in second


def test_a_digest_is_parsed_into_its_accounts() -> None:
    summary = read_summary(chain(FIRST)[0])
    assert [(file.path, file.changes) for file in summary.files] == [(LOGIN, 1)]
    texts = [request.text for request in summary.requests]
    assert texts == ["Fix the login, and mind the user_cache"]
    assert summary.plan == ("[ ] Fix the page_size",)
    assert {run.command: run.failed for run in summary.runs}["python check_login.py"]
    assert "## " not in "".join(passage.text for passage in summary.passages)


def test_standing_instructions_are_continued() -> None:
    rule = "- Never push to main directly."
    previous = f"[Digest of 3 messages]\n\n## Standing instructions\n{rule}"
    assert rule in section(next_digest(next_digest(previous)), "Standing instructions")


def test_lines_under_our_headings_that_are_no_accounts_are_kept() -> None:
    line = "user_cache.py holds the user_cache"
    text = next_digest(f"## Files\n- {line}\n## Commands and searches\n- none ran")
    assert section(text, "Notes")[1:] == [f"  {line}", "  none ran"]
    odd = "## Files\n- odd\n  parse_row is what it says\n## Requests\n- (h0) x\n## Plan\n- "
    assert "[Digest of" in next_digest(odd)


def test_names_without_a_line_stay_names() -> None:
    names = ["page_size", "release_notes", "user_cache"]
    text = next_digest(f"## Also named\n- {', '.join(names)}")
    assert section(text, "Notes") == []
    assert sorted(section(text, "Also named")[0][2:].split(", ")) == names
