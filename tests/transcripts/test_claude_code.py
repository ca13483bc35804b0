"""Transcripts of Claude Code: replies in pieces, prunes, compactions, rewinds and subagents."""

from pathlib import Path
from typing import Any

import pytest

from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    Completed,
    FilePart,
    Pending,
    SessionInfo,
    TextPart,
    Tokens,
    ToolPart,
    Transcript,
    has_result,
)
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.format import formats
from foldmark.transcripts.read import open_reading, read_sessions
from foldmark.transcripts.source import open_source
from tests.support.stored_transcripts import SESSION, Lines, messages, write
from tests.support.view_lines import view_of


def read(tmp_path: Path, lines: Lines, name: str = f"{SESSION}.jsonl") -> Transcript:
    """The only session of these lines."""
    (session,) = read_sessions(write(tmp_path / name, lines.all))
    return session


def tool(transcript: Transcript, call: str) -> ToolPart:
    parts = [part for message in transcript.messages for part in message.parts]
    (part,) = [item for item in parts if isinstance(item, ToolPart) and item.call_id == call]
    return part


# --- messages ------------------------------------------------------------------------------


def test_the_lines_of_a_reply_are_one_message(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.answer("m1", "I look")
    lines.answer("m1", "a")
    lines.result("a", "It passes")
    lines.answer("m1", "b")
    lines.result("b", "It fails")
    lines.answer("m2", "One of two.")
    session = read(tmp_path, lines)
    assert messages(session) == [
        ("u1", ["Fix the parser"]),
        ("m1", ["I look", "Read", "Read"]),
        ("m2", ["One of two."]),
    ]
    info = session.messages[1].info
    assert isinstance(info, AssistantInfo)
    cache = Cache(read=70, write=0)
    assert info.tokens == Tokens(input=3, output=5, reasoning=0, total=78, cache=cache)
    assert (info.provider_id, info.model_id, info.finish) == ("anthropic", "claude-x", "tool-calls")
    assert info.time
    assert info.time.created == 1_767_607_202_000
    states = [tool(session, call).state for call in ("a", "b")]
    assert [state.output for state in states if isinstance(state, Completed)] == [
        "It passes",
        "It fails",
    ]
    assert "never shown" not in str(session)


def test_results_may_have_images_and_errors(tmp_path: Path) -> None:
    lines = Lines()
    lines.answer("m1", "a", "b", "c")
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    lines.result("a", [{"type": "text", "text": "seen"}, {"type": "image", "source": source}])
    failed = {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True}
    lines.user([failed, {"type": "text", "text": "Stop that"}])
    session = read(tmp_path, lines)
    image_state, error_state = tool(session, "a").state, tool(session, "b").state
    assert isinstance(image_state, Completed)
    assert isinstance(error_state, Completed)
    assert image_state.attachments == (
        FilePart(mime="image/png", url="data:image/png;base64,AAAA"),
    )
    assert (error_state.output, error_state.metadata) == ("no", {"is_error": True})
    assert isinstance(tool(session, "c").state, Pending)
    assert messages(session)[-1] == ("u3", ["Stop that"])


def test_a_reply_that_continues_after_something_else_gets_a_new_id(tmp_path: Path) -> None:
    lines = Lines()
    lines.answer("m1", "I look")
    lines.add("attachment", attachment={"type": "queued_command", "prompt": "Quickly"})
    lines.answer("m1", "And on")
    lines.answer("m1", "and on")
    lines.user("Go")
    lines.all.append(lines.all[-1])  # instead of the one before
    names = ["m1", "u2", "m1-2", "u5-2"]
    assert [name for name, _ in messages(read(tmp_path, lines))] == names


@pytest.mark.parametrize(
    "notice",
    [
        "<command-name>/exit</command-name>\n<command-args></command-args>",
        "<local-command-stdout>Bye!</local-command-stdout>",
        "[Request interrupted by user]",
        "[Request interrupted by user for tool use]",
    ],
)
def test_notices_of_the_program_are_not_requests(tmp_path: Path, notice: str) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.user(notice)
    session = read(tmp_path, lines)
    log = Log(counter("classes"), session.messages)
    assert [request.text for request in log.requests.all] == ["Fix the parser"]
    assert notice in "\n".join(view_of(*session.messages))


def test_texts_of_the_program_are_synthetic(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("A caveat", isMeta=True)
    lines.add("attachment", attachment={"type": "skill_listing", "content": "skills"})
    lines.add("attachment", attachment={"type": "todo", "items": [1]})
    lines.add("attachment", attachment={"type": "hook_success", "content": ""})
    queued = {"type": "queued_command", "prompt": "Quickly"}
    lines.add("attachment", attachment=queued)
    lines.add("attachment", attachment={**queued, "commandMode": "task-notification"})
    block = {"type": "text", "text": "With a picture"}
    lines.add("attachment", attachment={**queued, "prompt": [block], "commandMode": "prompt"})
    session = read(tmp_path, lines)
    parts = [part for message in session.messages for part in message.parts]
    facts = [(part.text, bool(part.synthetic)) for part in parts if isinstance(part, TextPart)]
    assert facts == [
        ("A caveat", True),
        ("skills", True),
        ('{"type":"todo","items":[1]}', True),
        ("Quickly", False),
        ("Quickly", True),
        ("With a picture", False),
    ]


def test_a_result_without_a_call_is_a_text(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Go")
    lines.result("gone", "of nobody")
    session = read(tmp_path, lines)
    assert messages(session) == [("u1", ["Go"]), ("gone-result-1", ["of nobody"])]


def test_replies_of_the_program_itself_are_not_shown(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Go")
    lines.answer("m1", "API Error: overloaded", model="<synthetic>")
    lines.answer("m2", "Here I am.")
    session = read(tmp_path, lines)
    info = session.messages[1].info
    assert isinstance(info, AssistantInfo)
    assert not info.tokens
    assert not info.model_id
    assert "overloaded" in str(session)
    assert "overloaded" not in str(view_of(*session.messages))


# --- sessions ------------------------------------------------------------------------------


def test_a_session_has_the_id_of_its_file_name_if_that_is_a_uuid(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Go", sessionId="the one before")
    lines.user("On")
    session = read(tmp_path, lines)
    assert session.info.id == SESSION
    assert (session.info.directory, session.info.version) == ("/work", "2.1.0")
    assert read(tmp_path, lines, "any name.jsonl").info.id == "the one before"
    del lines.all[0]["sessionId"]
    assert read(tmp_path, lines, "any name.jsonl").info.id == "any name"


def test_subagents_are_sessions_of_their_own(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Go")
    lines.answer("m1", "t")
    lines.user("Look", None, isSidechain=True, agentId="one")
    lines.answer("m1", "x", isSidechain=True, agentId="one")
    lines.answer("m1", "and more")
    lines.result("x", "seen", isSidechain=True, agentId="one")
    lines.user("Look, too", None, isSidechain=True)
    lines.result("t", "all seen")
    main, one, other = read_sessions(write(tmp_path / f"{SESSION}.jsonl", lines.all))
    assert messages(main) == [("u1", ["Go"]), ("m1", ["Read", "and more"])]
    assert messages(one) == [("u3", ["Look"]), ("m1", ["Read"])]
    assert has_result(tool(main, "t"))
    assert has_result(tool(one, "x"))
    assert (one.info.id, one.info.parent_id) == (f"{SESSION}-one", SESSION)
    assert (one.info.title, other.info.id) == ("subagent one", f"{SESSION}-subagent")


@pytest.mark.parametrize(
    ("title_lines", "title"),
    [
        ([("summary", "One"), ("summary", "Two")], "One"),
        ([("summary", "One"), ("aiTitle", "Two"), ("aiTitle", "Three")], "Three"),
        ([("aiTitle", "One"), ("summary", "Two")], "One"),
        ([("customTitle", "One"), ("aiTitle", "Two"), ("customTitle", "Three")], "Three"),
        ([("customTitle", "One"), ("customTitle", None), ("aiTitle", 7)], "One"),
        ([("customTitle", ["odd"])], None),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_titles_of_the_user_override_those_of_the_program(
    title_lines: list[tuple[str, Any]], title: str | None, tmp_path: Path, *, first: bool
) -> None:
    kinds = {"summary": "summary", "aiTitle": "ai-title", "customTitle": "custom-title"}
    lines, titles = Lines(), Lines()
    lines.user("Go")
    lines.user("Look", None, isSidechain=True, agentId="one")
    for name, text in title_lines:
        titles.other(type=kinds[name], **{name: text})
    lines.all = titles.all + lines.all if first else lines.all + titles.all
    main, side = read_sessions(write(tmp_path / "a.jsonl", lines.all))
    assert (main.info.title or None, side.info.title) == (title, "subagent one")


# --- compactions, prunes and reverts -------------------------------------------------------


def view_text(transcript: Transcript) -> str:
    log = Log(counter(FOLDMARK.estimate), transcript.messages)
    return str(Viewer(log, FOLDMARK).view().messages)


def test_after_a_compaction_the_summary_and_later_messages_are_shown(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.step("a")
    lines.compact("So it was.", preTokens=155_000)
    lines.user("And now?")
    session = read(tmp_path, lines)
    assert messages(session)[2:] == [
        ("u5-marker", [""]),
        ("u5-summary", ["So it was."]),
        ("u6", ["And now?"]),
    ]
    assert session.messages[2].info.wire == {
        "claude-code": {"trigger": "auto", "preTokens": 155_000}
    }
    view = view_text(session)
    assert "So it was." in view
    assert "And now?" in view
    assert "line a of a parser" not in view


def test_a_summary_without_a_boundary_is_a_compaction(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.step("a")
    lines.user([{"type": "text", "text": "So it was."}], isCompactSummary=True)
    session = read(tmp_path, lines)
    assert len(Log(counter(FOLDMARK.estimate), session.messages).pivots) == 1
    assert "line a of a parser" not in view_text(session)


@pytest.mark.parametrize("way", ["segment", "messages", "gone", "odd"])
def test_messages_that_a_compaction_preserved_are_shown(way: str, tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.step("a")
    rest = lines.user("And this is kept")
    lines.step("b")
    ways: dict[str, dict[str, Any]] = {
        "segment": {"preservedSegment": {"headUuid": rest, "tailUuid": "x"}},
        "messages": {"preservedMessages": {"uuids": [rest, "x"]}},
        "gone": {"preservedSegment": {"headUuid": "gone"}},
        "odd": {"preservedSegment": [rest], "preservedMessages": {"uuids": []}},
    }
    lines.compact("So it was.", **ways[way])
    view = view_text(read(tmp_path, lines))
    assert ("line b of a parser" in view) == (way in ("segment", "messages"))
    assert "line a of a parser" not in view


def test_microcompacted_outputs_are_pruned(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.step("a")
    lines.step("b")
    lines.microcompact("a", "gone")
    lines.add("system", subtype="microcompact_boundary", microcompactMetadata=None)
    lines.add("system", subtype="microcompact_boundary", microcompactMetadata={"x": 1})
    session = read(tmp_path, lines)
    view = view_text(session)
    assert "line a of a parser" not in view
    assert "line b of a parser" in view
    state = tool(session, "a").state
    assert isinstance(state, Completed)
    assert state.time
    assert state.time.compacted == 1_767_607_206_000


def test_a_prompt_that_replaces_an_earlier_one_reverts_it(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    first = lines.step("a")
    lines.user("And the printer")
    lines.step("b")
    lines.user("Rather the lexer", parent=first)
    lines.step("c")
    assert messages(read(tmp_path, lines)) == [
        ("u1", ["Fix the parser"]),
        ("m-a", ["I look at parser a", "Read"]),
        ("u7", ["Rather the lexer"]),
        ("m-c", ["I look at parser c", "Read"]),
    ]


def test_lines_without_a_message_can_be_parents(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Fix the parser")
    lines.step("a")
    between = lines.add("progress", data={"type": "hook"}, message=["odd"])
    lines.user("And the printer")
    lines.user("Rather the lexer", parent=between)
    assert [name for name, _ in messages(read(tmp_path, lines))] == ["u1", "m-a", "u6"]


# --- lines of other shapes -----------------------------------------------------------------


def test_lines_of_other_types_may_have_any_shape(tmp_path: Path) -> None:
    lines = Lines()
    lines.user("Go", agentId=None, isMeta=None, cwd=None, version=None, parentUuid=None)
    lines.other(type="never-seen", message="text", uuid=7, cwd=[], attachment=0)
    lines.other(type="queue-operation", operation="enqueue", content="Go")
    lines.add("system", subtype="api_error", error={"status": 529})
    assert messages(read(tmp_path, lines)) == [("u1", ["Go"])]


@pytest.mark.parametrize("name", ["user", "assistant", "system", "attachment", "progress"])
def test_any_line_of_a_conversation_is_recognized(name: str, tmp_path: Path) -> None:
    lines = Lines()
    lines.add(name, message={"role": name, "content": "x"}, attachment={"type": "x"})
    with open_source(write(tmp_path / "a.jsonl", lines.all)) as source:
        assert [item.name for item in formats() if item.recognizes(source.head)] == ["claude-code"]


# --- real files ----------------------------------------------------------------------------


def test_after_real_compactions_the_view_begins_with_the_summary(corpus: Path) -> None:
    for name in ("entireio-cli_95adddad32", "context-evaluator_946606a339"):
        (session,) = read_sessions(corpus / "claude-code" / f"{name}.jsonl")
        log = Log(counter(FOLDMARK.estimate), session.messages)
        pivot, view = log.pivot, Viewer(log, FOLDMARK).view()
        assert pivot is not None
        summary = log.entries[pivot.summary].message.parts[0]
        assert isinstance(summary, TextPart)
        assert summary.text.startswith("This session is being continued")
        assert view.indexes[:2] == (pivot.marker, pivot.summary)
        assert view.indexes[-1] == len(log) - 1


def test_titles_usage_and_models_of_a_real_file(corpus: Path) -> None:
    (session,) = read_sessions(corpus / "claude-code" / "oh-my-posh_6e27a41b09.jsonl")
    assert session.info.title == "Oh My Posh feasible issues"
    answers = [item.info for item in session.messages if isinstance(item.info, AssistantInfo)]
    facts = [info for info in answers if not info.error]
    assert all(info.tokens and info.model_id for info in facts)
    assert isinstance(session.info, SessionInfo)


def test_steps_are_emitted_while_the_file_is_read(tmp_path: Path) -> None:
    lines = Lines()
    for number in range(40):
        lines.user(f"Turn {number}")
    with open_reading(write(tmp_path / "a.jsonl", lines.all)) as reading:
        steps = reading.steps()
        positions = [reading.source.position for _ in zip(range(30), steps, strict=False)]
    assert positions == sorted(positions)
