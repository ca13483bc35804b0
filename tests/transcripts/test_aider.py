"""Chat histories of Aider: their messages, and files rebuilt from them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, Message, TextPart, Transcript
from foldmark.transcripts.formats.aider import Aider, Kind
from foldmark.transcripts.read import SessionCollector, open_reading, read_sessions
from foldmark.transcripts.source import Record, open_source
from tests.support.malformed_records import assert_acceptable
from tests.support.view_lines import view_of

REAL = "aider/aider_chat-history_first.md"
HEADER = "\n# aider chat started at 2026-01-02 03:04:05\n\n"
BANNER = "> Aider v1  \n> Main model: claude-x with diff edit format  \n"
TURN = "\n#### fix the bug  \n\nDone:\n\n```\nx = 1\n```\n\n> Applied edit to a.py  \n"
NOTHING = re.compile(r"[>\s]*")


def read(text: str, name: str = "notes.md") -> list[Transcript]:
    """The sessions of a text, without a file."""
    importer = Aider(name)
    sessions = SessionCollector(Aider.name)
    lines = text.split("\n")
    terminated = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    for number, line in enumerate(terminated, 1):
        for step in importer.steps_of(Record(line=number, data=line.encode())):
            sessions.add(step)
    for step in importer.final_steps():
        sessions.add(step)
    return sessions.transcripts()


def assert_rebuilt(sessions: Sequence[Transcript], whole: str) -> None:
    """Check that the sessions contain every line of the file, apart from surrounding blanks."""
    reply = [line.strip() for line in whole.split("\n") if not NOTHING.fullmatch(line)]
    pieces = [piece for session in sessions for piece in written(session)]
    assert len(reply) == len(pieces)
    for line, piece in zip(reply, pieces, strict=True):
        assert line in {form.strip() for form in piece}
    for session in sessions:
        replies = [message for message in session.messages if kind(message) == "reply"]
        assert all(text(reply) in whole for reply in replies)


def written(session: Transcript) -> Iterator[tuple[str, ...]]:
    """The forms that each line may have in a file; only the first of an output needs a mark."""
    if session.info.title:
        yield (f"# {session.info.title}",)
    for message in session.messages:
        first = True
        for line in text(message).split("\n"):
            forms = {"user": (f"#### {line}",), "output": (f"> {line}", line), "reply": (line,)}
            if not NOTHING.fullmatch(forms[kind(message)][0]):
                yield forms[kind(message)][: 1 if first else 2]
            first = False


def kind(message: Message) -> Kind:
    if not message.is_user:
        return "reply"
    (part,) = message.parts
    return "output" if isinstance(part, TextPart) and part.synthetic else "user"


def text(message: Message) -> str:
    (part,) = message.parts
    assert isinstance(part, TextPart)
    return part.text


def kinds_and_texts(session: Transcript) -> list[tuple[Kind, str]]:
    return [(kind(message), text(message)) for message in session.messages]


# --- messages -------------------------------------------------------------------------------


def test_a_session_has_prompts_replies_and_outputs() -> None:
    (session,) = read(HEADER + BANNER + TURN)
    assert session.info.id == "notes-1"
    assert session.info.title == "aider chat started at 2026-01-02 03:04:05"
    assert session.info.time
    assert session.info.time.created == 1_767_323_045_000
    assert kinds_and_texts(session) == [
        ("output", "Aider v1\nMain model: claude-x with diff edit format"),
        ("user", "fix the bug"),
        ("reply", "Done:\n\n```\nx = 1\n```"),
        ("output", "Applied edit to a.py"),
    ]


def test_the_view_shows_all_of_it() -> None:
    (session,) = read(HEADER + BANNER + TURN)
    assert view_of(*session.messages) == [
        "user: Aider v1\nMain model: claude-x with diff edit format",
        "user: fix the bug",
        "assistant: Done:\n\n```\nx = 1\n```",
        "user: Applied edit to a.py",
    ]


def test_replies_have_the_model_of_the_session_banner() -> None:
    first, second = read(HEADER + BANNER + TURN + HEADER + TURN)
    models = [
        [item.info.model_id for item in session.messages if isinstance(item.info, AssistantInfo)]
        for session in (first, second)
    ]
    assert models[0] == ["claude-x"]
    assert not models[1][0]


def test_lines_of_the_user_are_one_prompt_until_a_blank_line() -> None:
    (session,) = read(f"{HEADER}\n#### one  \n####   \n#### two  \n\n#### /diff  \n")
    assert kinds_and_texts(session) == [("user", "one\n\ntwo"), ("user", "/diff")]


def test_an_output_ends_with_two_spaces() -> None:
    (session,) = read(f"{HEADER}{BANNER}\n> $ ls\na.py\n\n>> b.py\nc.py  \n> done  \n\nFine.\n\n")
    assert kinds_and_texts(session)[1:] == [
        ("output", "$ ls\na.py\n\n>> b.py\nc.py\ndone"),
        ("reply", "Fine."),
    ]


def test_a_heading_or_quote_in_a_reply_is_part_of_the_reply() -> None:
    answer = "Look:\n\n#### `Coder` class\n\n> a quote\n\nThat is it."
    (session,) = read(f"{HEADER}{BANNER}\n#### explain  \n\n{answer}\n\n\n#### thanks  \n")
    assert kinds_and_texts(session)[1:] == [
        ("user", "explain"),
        ("reply", answer),
        ("user", "thanks"),
    ]


def test_text_before_the_first_header_is_a_session() -> None:
    before, session = read(f"left over\n\n> ^C  \n{HEADER}{BANNER}")
    assert before.info.id == "notes-0"
    assert not before.info.title
    assert kinds_and_texts(before) == [("reply", "left over"), ("output", "^C")]
    assert session.info.id == "notes-1"
    assert [item.info.id for item in read(f"\n\n{HEADER}{BANNER}")] == ["notes-1"]


def test_a_session_may_be_empty() -> None:
    first, second = read(HEADER + HEADER + BANNER)
    assert first.messages == ()
    assert len(second.messages) == 1


def test_a_header_needs_a_time() -> None:
    (session,) = read(f"{HEADER}{BANNER}\n#### what is this  \n\n# aider chat started at noon\n\n")
    assert kinds_and_texts(session)[-1] == ("reply", "# aider chat started at noon")


def test_a_file_without_trailing_spaces_is_read_by_its_prefixes() -> None:
    lines = (HEADER + BANNER + TURN).replace("  \n", "\n")
    (session,) = read(lines)
    assert [kind for kind, _ in kinds_and_texts(session)] == ["output", "user", "reply", "output"]


# --- rebuilt files --------------------------------------------------------------------------

PIECES = (
    *(HEADER, BANNER, TURN, "\n", "  \n", "    \n", "word\n", "word  \n", "#### ask  \n"),
    *("#### heading\n", "####   \n", "####\n", "> out  \n", "> out\n", ">  \n", ">   \n", ">\n"),
    *("> a   \n", "\r\n", "> dos  \r\n", "#### dos  \r\n", "word\r\n", "\u2028\x0b\n", "> >  \n"),
    "# aider chat started at 2026-01-02 03:04:05  \n",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from(["", "end", "> end", "  "]))
def test_a_file_can_be_rebuilt_from_its_sessions(pieces: list[str], end: str) -> None:
    whole = "".join(pieces) + end
    sessions = read(whole)
    if sessions:
        assert_rebuilt(sessions, whole)
    else:
        assert not whole.strip()
    for session in sessions:
        assert_acceptable(session.messages)
        assert len({message.id for message in session.messages}) == len(session.messages)


@given(st.text(max_size=60))
def test_any_text_can_be_rebuilt(whole: str) -> None:
    assert_rebuilt(read(whole), whole)


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("beginning", [HEADER, "words\n" * 999 + HEADER, "#### hi  \n> yes  \n"])
def test_a_history_is_recognized_by_its_header_or_its_prefixes(
    tmp_path: Path, beginning: str
) -> None:
    path = tmp_path / "history.md"
    path.write_text(beginning)
    with open_reading(path) as reading:
        assert reading.format is Aider


@pytest.mark.parametrize("other", ["# Notes\n\n> a quote\n\n#### heading\n", '{"role":"user"}\n'])
def test_other_files_are_not_recognized(tmp_path: Path, other: str) -> None:
    path = tmp_path / "notes.md"
    path.write_text(other)
    with open_source(path) as source:
        assert not Aider.recognizes(source.head)


def test_a_line_that_is_not_utf8_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "history.md"
    path.write_bytes((HEADER + "word\n" * 60_000).encode() + b"\xff\n")
    with pytest.raises(BadInput) as refusal:
        read_sessions(path)
    assert refusal.value.location
    assert refusal.value.location.startswith("line 60004")


def test_a_real_file_can_be_rebuilt(corpus: Path) -> None:
    sessions = read_sessions(corpus / REAL)
    assert len(sessions) == 246
    assert_rebuilt(sessions, (corpus / REAL).read_bytes().decode())
