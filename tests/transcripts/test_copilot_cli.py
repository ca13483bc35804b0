"""Events of GitHub Copilot CLI."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    FilePart,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
    is_error_output,
    is_opaque,
)
from foldmark.tokens.counters import counter
from foldmark.transcripts.build import SessionOpened
from foldmark.transcripts.formats.copilot_cli import CopilotCli
from foldmark.transcripts.read import open_reading, read_file, read_sessions
from tests.support.transcript_reading import read, written
from tests.support.view_lines import view_of


def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    agent = {"agentId": data.pop("agent")} if "agent" in data else {}
    at = f"2026-01-01T00:00:{number:02d}.000Z"
    return {
        "type": kind,
        "data": data,
        "id": f"e{number}",
        "parentId": None,
        "timestamp": at,
        **agent,
    }


START = event(
    0,
    "session.start",
    sessionId="s1",
    copilotVersion="1.0.1",
    startTime="2026-01-01T00:00:00.000Z",
    context={"cwd": "/work"},
)
TURN = [
    START,
    event(1, "session.model_change", newModel="claude-x"),
    event(2, "system.message", role="system", content="Be helpful."),
    event(3, "user.message", content="Look", transformedContent="<now/>\n\nLook\n\n<tables/>"),
    event(
        4,
        "assistant.message",
        messageId="m1",
        content="I look.",
        reasoningText="They want me to look.",
        reasoningOpaque="b64",
        outputTokens=12,
        toolRequests=[
            {
                "toolCallId": "c1",
                "name": "view",
                "arguments": {"path": "a"},
                "intentionSummary": "look at a",
            },
            {"toolCallId": "c2", "name": "view", "arguments": {"path": "b"}},
        ],
    ),
    event(5, "tool.execution_start", toolCallId="c1", toolName="view", arguments={"path": "a"}),
    event(6, "hook.start", hookType="postToolUse", input={"toolResult": "text of a"}),
    event(
        7,
        "tool.execution_complete",
        toolCallId="c1",
        success=True,
        result={"content": "text of a", "detailedContent": "a diff"},
    ),
    event(
        8,
        "tool.execution_complete",
        toolCallId="c2",
        success=False,
        error={"message": "no such file", "code": "failure"},
    ),
    event(9, "assistant.message", messageId="m2", content="Done.", toolRequests=[], model="gpt-y"),
    event(10, "abort", reason="user_initiated"),
]


def test_a_session_has_its_folder_version_and_system_prompt(tmp_path: Path):
    info = read(tmp_path, *TURN).info
    assert (info.id, info.directory, info.version) == ("s1", "/work", "1.0.1")
    assert info.origin
    assert (info.origin.format, info.origin.system) == ("copilot-cli", "Be helpful.")


def test_only_a_changed_system_prompt_updates_the_session(tmp_path: Path):
    again = event(20, "system.message", role="system", content="Be helpful.")
    newer = event(21, "system.message", role="system", content="Be brief.")
    with open_reading(written(tmp_path, *TURN, again, newer)) as reading:
        facts = [step.info.origin for step in reading.steps() if isinstance(step, SessionOpened)]
    assert [origin.system for origin in facts if origin] == ["Be helpful.", "Be brief."]


def test_the_typed_text_is_separate_from_the_texts_of_the_program(tmp_path: Path):
    text = read(tmp_path, *TURN).messages[0].parts
    assert text == (
        TextPart(text="<now/>\n\n", synthetic=True),
        TextPart(text="Look"),
        TextPart(text="\n\n<tables/>", synthetic=True),
    )


def test_a_text_that_was_rewritten_is_kept_but_not_shown(tmp_path: Path):
    prompt = event(1, "user.message", content="/plan it", transformedContent="Make a plan: it")
    session = read(tmp_path, START, prompt)
    assert session.messages[0].parts == (
        TextPart(text="Make a plan: it", synthetic=True),
        TextPart(text="/plan it", ignored=True),
    )
    assert view_of(*session.messages) == ["user: Make a plan: it"]


@pytest.mark.parametrize(
    "notice",
    [
        event(1, "user.message", content="", transformedContent="Go on."),
        event(1, "user.message", content="Go on.", source="skill-pdf"),
        event(1, "system.notification", content="Go on."),
    ],
)
def test_texts_of_the_program_in_the_role_of_the_user_are_synthetic(tmp_path: Path, notice: Any):
    [message] = read(tmp_path, START, notice).messages
    assert message.parts == (TextPart(text="Go on.", synthetic=True),)


def test_a_reply_has_its_reasoning_text_calls_and_results(tmp_path: Path):
    answer = read(tmp_path, *TURN).messages[1]
    reasoning, text, first, second = answer.parts
    opaque = {"copilot-cli": {"reasoningOpaque": "b64"}}
    assert reasoning == ReasoningPart(text="They want me to look.", metadata=opaque)
    assert text == TextPart(text="I look.")
    assert isinstance(first, ToolPart)
    assert isinstance(first.state, Completed)
    assert (first.tool, first.call_id, first.state.input) == ("view", "c1", {"path": "a"})
    assert (first.state.output, first.state.title) == ("text of a", "look at a")
    assert isinstance(second, ToolPart)
    assert isinstance(second.state, Completed)
    assert second.state.output == "no such file"
    assert is_error_output(second.state)
    assert isinstance(answer.info, AssistantInfo)
    assert answer.info.tokens == Tokens(output=12)


def test_a_reply_has_its_own_model_or_the_selected_one(tmp_path: Path):
    infos = [message.info for message in read(tmp_path, *TURN).messages]
    facts = [(info.provider_id, info.model_id) for info in infos if isinstance(info, AssistantInfo)]
    assert facts == [("github-copilot", "claude-x"), ("github-copilot", "gpt-y")]


def test_a_result_without_a_call_is_a_text(tmp_path: Path):
    events = (
        event(11, "tool.execution_start", toolCallId="u1", toolName="glob", arguments={"p": "*"}),
        event(
            12, "tool.execution_complete", toolCallId="u1", success=True, result={"content": "a.py"}
        ),
    )
    path = written(tmp_path, *TURN, *events)
    text = read_sessions(path)[0].messages[-1].parts[0]
    assert isinstance(text, TextPart)
    assert (text.text, text.synthetic) == ("a.py", True)
    assert is_opaque(text)
    assert text.metadata
    assert text.metadata["copilot-cli"]["block"]["toolName"] == "glob"
    file = read_file(path)
    assert (file.messages, file.calls, file.results) == (3, 2, 3)


def test_inline_files_are_kept(tmp_path: Path):
    blob = {"type": "blob", "mimeType": "image/png", "data": "QUJD"}
    prompt = event(1, "user.message", content="See", attachments=[blob, {"type": "file"}])
    assert read(tmp_path, START, prompt).messages[0].parts == (
        TextPart(text="See"),
        FilePart(mime="image/png", url="data:image/png;base64,QUJD"),
    )


def test_a_text_argument_is_the_input_of_a_call(tmp_path: Path):
    calls = [{"toolCallId": "c", "name": "apply_patch", "arguments": "*** Begin", "type": "custom"}]
    answer = event(1, "assistant.message", messageId="m", content="", toolRequests=calls)
    part = read(tmp_path, START, answer).messages[0].parts[0]
    assert isinstance(part, ToolPart)
    assert part.state.input == {"input": "*** Begin"}


# --- compactions and subagents ---


def compacted(**fields: Any) -> list[dict[str, Any]]:
    return [
        *TURN,
        event(20, "session.compaction_start"),
        event(21, "user.message", content="Meanwhile"),
        event(22, "session.compaction_complete", **fields),
        event(23, "assistant.message", messageId="m3", content="After."),
    ]


def test_a_compaction_keeps_messages_since_its_start(tmp_path: Path):
    events = compacted(
        success=True, summaryContent="It was about a.", preCompactionTokens=900, trigger="threshold"
    )
    session = read(tmp_path, *events)
    view = view_of(*session.messages)
    assert view[-3:] == ["assistant: It was about a.", "user: Meanwhile", "assistant: After."]
    assert not any("text of a" in line for line in view)
    marker = next(item for item in session.messages if item.id == "e22-marker")
    assert marker.info.wire
    assert marker.info.wire["copilot-cli"]["preCompactionTokens"] == 900


def test_a_failed_compaction_changes_nothing(tmp_path: Path):
    session = read(tmp_path, *compacted(success=False, error="too long"))
    assert not Log(counter("classes"), session.messages).pivots
    assert "text c1: text of a" in view_of(*session.messages)


def test_subagents_are_sessions_of_their_own(tmp_path: Path):
    events = [
        *TURN[:5],
        event(11, "user.message", agent="a1", content="Find it", source="agent-a1"),
        event(12, "assistant.message", agent="a1", messageId="m8", content="Found."),
        event(13, "assistant.message", parentToolCallId="c2", messageId="m9", content="Older."),
        event(
            14, "tool.execution_complete", toolCallId="c1", success=True, result={"content": "ok"}
        ),
    ]
    main, newer, older = read_sessions(written(tmp_path, *events))
    assert [item.info.id for item in (newer, older)] == ["s1-a1", "s1-c2"]
    assert newer.info.parent_id == "s1"
    assert newer.messages[0].parts == (TextPart(text="Find it"),)
    assert "assistant: Found." not in view_of(*main.messages)
    call = main.messages[1].parts[2]
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, Completed)
    assert call.state.output == "ok"


# --- ids and real files ---


def test_the_same_file_gives_the_same_messages(tmp_path: Path):
    path = written(tmp_path, *(item | {"id": None} for item in TURN))
    assert read_sessions(path) == read_sessions(path)


def test_texts_and_outputs_of_real_events_are_complete(corpus: Path):
    for path in sorted((corpus / CopilotCli.name).iterdir()):
        [session] = read_sessions(path)
        parts = [part for message in session.messages for part in message.parts]
        texts = "".join(part.text for part in parts if isinstance(part, TextPart))
        states = [part.state for part in parts if isinstance(part, ToolPart)]
        outputs = {state.output for state in states if isinstance(state, Completed)}
        assert all(isinstance(state, Completed) for state in states)
        for line in path.read_text().splitlines():
            data: dict[str, Any] = json.loads(line)["data"]
            result: dict[str, str] = data.get("result") or {}
            assert data.get("transformedContent", "") in texts
            output = result.get("content", "")
            assert output in outputs or output in texts
