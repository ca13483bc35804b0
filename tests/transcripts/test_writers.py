"""Sessions written in every API format, in OpenCode's format, and as Markdown."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.log.log import Log
from foldmark.log.marks import marked_messages
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    Message,
    Origin,
    Pending,
    ReasoningPart,
    SessionInfo,
    SubtaskPart,
    TextPart,
    Time,
    ToolPart,
    Transcript,
    UserInfo,
)
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import by_classes
from foldmark.transcripts.read import read_sessions
from foldmark.transcripts.write_api import request_body, whole_view, wire_messages, wire_view
from foldmark.transcripts.write_markdown import escaped, fenced, label, markdown
from foldmark.wire.formats import decode
from tests.support.corpus import MANIFEST, Json, each_file, read, views
from tests.support.provider_types import WIRES, assert_accepted
from tests.support.request_checks import LISTS, PARSER, TOOLS, assert_body, tokens
from tests.support.session_strategies import sessions

each_wire = pytest.mark.parametrize("wire", WIRES)


def shown(*messages: Message) -> tuple[PromptMessage, ...]:
    return Viewer(Log(by_classes, messages), FOLDMARK).view().messages


def user_prompt(text: str = "Go", **more: Any) -> Message:
    return Message(info=UserInfo(id="u", **more), parts=(TextPart(text=text),))


def transcript(*messages: Message, **info: Any) -> Transcript:
    return Transcript(info=SessionInfo(id="s", **info), messages=messages)


# --- lists of an API ----------------------------------------------------------------------


def read_list_of(folder: Path, wire: str) -> Transcript:
    """A list of this API, read from a file."""
    path = folder / "kept.json"
    path.write_text(json.dumps(LISTS[wire]))
    (session,) = read_sessions(path)
    return session


@each_wire
def test_a_list_of_an_api_is_written_back_unchanged(tmp_path: Path, wire: str) -> None:
    session = read_list_of(tmp_path, wire)
    assert wire_messages(session, wire) == LISTS[wire]
    path = tmp_path / "again.json"
    path.write_bytes(encode(session))
    (again,) = read_sessions(path)
    assert wire_messages(again, wire) == LISTS[wire]
    for other in WIRES:
        if other != wire:
            assert_accepted(other, wire_messages(session, other))
        assert_accepted(other, wire_view(shown(*session.messages), session.info, other))


@each_wire
def test_summarized_and_pruned_content_is_written(tmp_path: Path, wire: str) -> None:
    session = read_list_of(tmp_path, wire)
    at = Time(created=1)
    marker = Message(info=UserInfo(id="m", time=at), parts=(CompactionPart(auto=True),))
    facts = AssistantInfo(id="n", parent_id="m", summary=True, finish="stop", time=at)
    summary = Message(info=facts, parts=(TextPart(text="All is well."),))
    log = Log(by_classes, session.messages)
    log.mark(list(log.calls), at=5)
    assert wire != "anthropic" or log.marks  # the only one whose list has a whole call
    pruned = marked_messages(log)
    compaction = transcript(*pruned, marker, summary, origin=session.info.origin)
    assert "All is well." in str(shown(*compaction.messages))
    assert wire_messages(compaction, wire) == LISTS[wire]


@each_wire
def test_a_list_that_was_continued_is_written_as_a_request(tmp_path: Path, wire: str) -> None:
    session = read_list_of(tmp_path, wire)
    more = transcript(
        *session.messages, user_prompt("And?", time=Time(created=1)), origin=session.info.origin
    )
    lines = wire_messages(more, wire)
    assert_accepted(wire, lines)
    assert "And?" in json.dumps(lines)


@each_file
@each_wire
def test_real_sessions_are_accepted_unless_they_are_lists_of_that_api(
    entry: Json, wire: str
) -> None:
    own = {"openai-chat": "openai-chat", "gemini-cli": "gemini"}
    for session in read(entry["file"]).sessions[:5]:
        messages = wire_messages(session, wire)
        if own.get(entry["format"]) != wire or session.messages[0].info.time:
            assert_accepted(wire, messages)
        else:
            again = decode(messages, wire)
            assert [item.parts for item in again.messages] == [
                item.parts for item in session.messages
            ]


def test_texts_in_the_message_of_a_marker_are_written() -> None:
    parts = (CompactionPart(auto=False), TextPart(text="and mind the parser"))
    session = whole_view([user_prompt(), Message(info=UserInfo(id="m"), parts=parts)])
    assert "and mind the parser" in str(session)
    assert "CompactionPart" not in str(session)


@given(sessions(), st.sampled_from(WIRES))
def test_any_session_is_written_completely_for_every_api(
    messages: list[Message], wire: str
) -> None:
    lines = wire_messages(transcript(*messages), wire)
    assert_accepted(wire, lines)
    facts = json.dumps(lines, ensure_ascii=False)
    for message in messages:
        for part in message.parts if message.is_user else ():
            if isinstance(part, TextPart) and part.text.strip() and not part.ignored:
                assert part.text in facts


# --- bodies of requests --------------------------------------------------------------------

PROMPTS: Json = {
    "openai-responses": ("instructions", "Be brief."),
    "anthropic": ("system", "Be brief."),
    "gemini": ("systemInstruction", {"parts": [{"text": "Be brief."}]}),
}


@each_wire
@pytest.mark.parametrize("of", WIRES)
def test_a_request_has_the_prompt_and_the_tools_of_its_api(wire: str, of: str) -> None:
    info = SessionInfo(id="s", origin=Origin(system="Be brief.", tools=TOOLS[of]))
    body = request_body(shown(user_prompt()), info, wire)
    assert body.get("tools") == (TOOLS[of] if of == wire else None)
    if wire == "openai-chat":
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    else:
        name, prompt = PROMPTS[wire]
        assert body[name] == prompt
        assert "Be brief." not in json.dumps(list(body.values())[-1])
    assert_body(wire, body)


@each_file
@each_wire
def test_requests_of_real_sessions_are_valid_sdk_bodies(entry: Json, wire: str) -> None:
    for session, view in zip(read(entry["file"]).sessions[:3], views(entry["file"]), strict=False):
        assert_body(wire, request_body(view.messages, session.info, wire))


def test_a_prompt_is_written_back_in_its_blocks(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    path = tmp_path / "kept.json"
    path.write_text(json.dumps({"system": blocks, "messages": [{"role": "user", "content": "Go"}]}))
    (session,) = read_sessions(path)
    body = request_body(whole_view(session.messages), session.info, "anthropic")
    assert body == {"system": blocks, "messages": [{"role": "user", "content": "Go"}]}
    other = request_body(whole_view(session.messages), session.info, "openai-responses")
    assert other["instructions"] == "Be brief."


def test_a_prompt_is_written_once(tmp_path: Path) -> None:
    session = read_list_of(tmp_path, "openai-responses")
    body = request_body(whole_view(session.messages), session.info, "openai-responses")
    assert body["instructions"] == "Be brief."
    assert json.dumps(body).count("Be brief.") == 1


# --- OpenCode's format ---------------------------------------------------------------------


@each_file
def test_an_opencode_export_is_read_back_unchanged(entry: Json, tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    for session in read(entry["file"]).sessions:
        path.write_bytes(encode(session))
        (again,) = read_sessions(path)  # its format is recognized
        assert again == session
        assert shown(*again.messages) == shown(*session.messages)


# --- Markdown ------------------------------------------------------------------------------

PIECES = (
    "`", "``", "```", "````", "~~~", "```text", "\n", "\n\n", "\r", "\r\n", "\t", "    ", " ",
    "<script>alert(1)</script>", "<b>", "<!--", "](https://a.b)", "![a](https://a.b/c.png)",
    "[a]: b", "www.a.b", "https://a.b", "# a", "- a", "> a", "* * *", "|a|b|", "\\", "&lt;", "日本",
    "\u2028", "\x0b", "\x0c", "\x1c", "\x85", "\u202e", "\x1b[31m", "a",
)  # fmt: skip
odd_texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=8).map("".join)
ALLOWED = {
    "heading_open", "heading_close", "inline", "text", "paragraph_open", "paragraph_close", "fence",
    "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "em_open",
    "em_close", "code_inline",
}  # fmt: skip


def fences(text: str) -> list[str]:
    return [token.content for token in tokens(text) if token.type == "fence"]


def lines_of(text: str) -> str:
    """A text as Markdown keeps it, with uniform line breaks."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd") + "\n"


@given(odd_texts)
def test_a_text_never_leaves_its_fence(text: str) -> None:
    lines = "\n".join(["before", "", *fenced(text), "", "after"])
    kinds = [token.type for token in PARSER.parse(lines) if not token.type.startswith("paragr")]
    assert kinds == ["inline", "fence", "inline"]
    assert fences(lines) == [lines_of(text)]


@given(odd_texts)
def test_a_label_is_one_code_span(text: str) -> None:
    session = tokens(f"- file: {label(text)}")
    inner = [token for token in session if token.type in ("text", "code_inline")]
    assert [token.type for token in inner] in (["text", "code_inline"], ["text"])
    assert {token.type for token in session} <= ALLOWED
    line = " ".join(text.split())
    if line.isprintable() and 0 < len(line) < 100:
        assert inner[-1].content == line


@given(odd_texts)
def test_a_title_is_plain_text(text: str) -> None:
    session = tokens(f"# {escaped(text)}")
    assert {token.type for token in session} <= {"heading_open", "heading_close", "inline", "text"}
    assert len([token for token in session if token.type == "heading_open"]) == 1


@given(st.lists(odd_texts, min_size=9, max_size=9))
def test_odd_texts_are_shown_literally(texts: list[str]) -> None:
    reply, reasoning, given_, output, error, name, tool, title, prompt = texts
    parts = (
        ReasoningPart(text=reasoning),
        TextPart(text=reply, synthetic=True),
        ToolPart(tool=tool, state=Completed(input={name: given_, "n": 1}, output=output)),
        ToolPart(tool=tool, state=Failed(input={}, error=error)),
        ToolPart(tool=tool, state=Pending(input={})),
        FilePart(mime=name, url="data:,x", filename=name),
        SubtaskPart(prompt=prompt),
    )
    info = AssistantInfo(id="a", model_id=name, error={"name": error})
    messages = (user_prompt(reply, time=Time(created=1e30)), Message(info=info, parts=parts))
    lines = markdown(transcript(*messages, title=title, directory=name))
    assert lines.endswith("\n")
    assert not lines.endswith("\n\n")
    session = tokens(lines)
    assert {token.type for token in session} <= ALLOWED
    assert [token.tag for token in session if token.type == "heading_open"] == ["h1", "h2", "h2"]
    item = Counter(fences(lines))
    expected = [reply, reply, reasoning, output, prompt]
    assert not Counter(lines_of(text) for text in expected if text.strip()) - item
    assert item[lines_of(error)]
    if "\n" in given_:
        assert item[lines_of(given_)]


def test_a_session_reads_well() -> None:
    call = ToolPart(
        tool="edit",
        state=Completed(
            input={"path": "a.py", "patch": "-1\n+2"},
            output="done",
            time=Time(compacted=1),
            attachments=(FilePart(mime="image/png", url="data:,x", filename="shot.png"),),
        ),
    )
    info = AssistantInfo(id="a", model_id="m-1")
    lines = markdown(
        transcript(
            user_prompt(), Message(info=info, parts=(call,)), title="Mend *it*", directory="/work"
        )
    )
    assert lines == (
        "# Mend \\*it\\*\n\n"
        "- session: `s`\n- folder: `/work`\n- format: `opencode`\n- messages: 2\n"
        "\n## 1 · user\n\n```text\nGo\n```\n"
        "\n## 2 · assistant, `m-1`\n\n*called* `edit`\n"
        '\n```json\n{"path":"a.py"}\n```\n\n`patch`:\n\n```text\n-1\n+2\n```\n'
        "\n*output, 4 B, pruned:*\n\n```text\ndone\n```\n\n- file: `shot.png`\n"
    )


SMALL = [entry for entry in MANIFEST if entry["size"] < 700_000]


@pytest.mark.parametrize("entry", SMALL, ids=lambda entry: entry["file"])
def test_real_sessions_have_a_section_for_each_message(entry: Json) -> None:
    session = max(read(entry["file"]).sessions, key=lambda held: len(held.messages))
    result = tokens(markdown(session))
    assert {token.type for token in result} <= ALLOWED
    origin = session.info.origin
    prompts = 1 if origin and origin.system else 0
    headings = [token for token in result if token.type == "heading_open"]
    assert len(headings) == 1 + prompts + len(session.messages)
