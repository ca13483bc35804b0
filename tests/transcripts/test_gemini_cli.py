"""Sessions of Gemini CLI: documents, lines, and saved contents."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    Completed,
    FilePart,
    ReasoningPart,
    TextPart,
    Tokens,
    Transcript,
    has_result,
    is_error_output,
)
from foldmark.tokens.counters import counter
from foldmark.transcripts.build import SessionOpened
from foldmark.transcripts.formats.gemini_cli import GeminiCli
from foldmark.transcripts.read import open_reading, read_file, read_sessions
from foldmark.transcripts.source import open_source
from foldmark.wire.formats import encode
from tests.support.transcript_reading import calls, completed, output, read, written
from tests.support.view_lines import view_of

Line = dict[str, Any]
MASKED = "<tool_output_masked>\nsee the file\n</tool_output_masked>"
HEADER = {
    "sessionId": "s1",
    "projectHash": "p1",
    "startTime": "2026-01-01T00:00:00.000Z",
    "lastUpdated": "2026-01-01T00:00:00.000Z",
    "kind": "main",
}


def entry(name: str, content: Any, kind: str = "user", **more: Any) -> Line:
    return {
        "id": name,
        "timestamp": "2026-01-01T00:01:00Z",
        "type": kind,
        "content": content,
        **more,
    }


def response(call: str, **outputs: str) -> Line:
    return {"functionResponse": {"id": call, "name": "read_file", "response": outputs}}


def tool(name: str, *results: Line) -> Line:
    call = {
        "id": name,
        "name": "read_file",
        "args": {"path": name},
        "resultDisplay": "for the screen",
    }
    return {**call, "result": list(results) or None, "status": "success"}


ASKED = entry("u1", [{"text": "Look"}])
BARE = entry(
    "g1", "I look.", "gemini", model="gemini-x", thoughts=[{"subject": "A", "description": "b"}]
)
MEASURED = {"input": 100, "output": 8, "cached": 40, "thoughts": 5, "tool": 0, "total": 113}
ANSWER = {
    **BARE,
    "tokens": MEASURED,
    "toolCalls": [
        tool("c1", response("c1", output="one")),
        tool("c2", response("c2", error="no")),
    ],
}
RESULTS = entry("r1", [response("c1", output="one"), response("c2", error="no")])
DONE = entry("g2", "Done.", "gemini")
SETUP = entry("env", [{"text": "<session_context>\nhere\n</session_context>"}])
LINES = [
    HEADER,
    {"$set": {"messages": [SETUP], "lastUpdated": "2026-01-01T00:00:01Z"}},
    ASKED,
    {"$set": {"lastUpdated": "2026-01-01T00:02:00Z"}},
    BARE,
    ANSWER,
    RESULTS,
    DONE,
]
FOLDED = [
    entry("snap", [{"text": "<state_snapshot>a file was read</state_snapshot>"}]),
    entry("ack", [{"text": "Got it."}], "gemini"),
]


def ids(transcript: Transcript) -> list[str]:
    return [message.id for message in transcript.messages]


# --- one document ---


def document(folder: Path, *messages: Line) -> Path:
    path = folder / "session.json"
    path.write_text(json.dumps({**HEADER, "messages": messages}, indent=2))
    return path


def test_a_document_has_the_info_of_its_session(tmp_path: Path):
    [session] = read_sessions(document(tmp_path, ASKED, ANSWER, DONE))
    assert (session.info.id, session.info.project_id) == ("s1", "p1")
    assert session.info.origin
    assert session.info.origin.format == "gemini-cli"
    assert ids(session) == ["u1", "g1", "g2"]


def test_a_reply_has_its_thoughts_text_calls_and_results(tmp_path: Path):
    [session] = read_sessions(document(tmp_path, ASKED, ANSWER, DONE))
    reasoning, words, *_ = session.messages[1].parts
    assert reasoning == ReasoningPart(text="**A** b")
    assert words == TextPart(text="I look.")
    first, second = map(completed, calls(session))
    assert (first.input, first.output) == ({"path": "c1"}, "one")
    assert second.output == "no"
    assert is_error_output(second)


def test_token_counts_are_converted(tmp_path: Path):
    [session] = read_sessions(document(tmp_path, ASKED, ANSWER))
    info = session.messages[1].info
    assert isinstance(info, AssistantInfo)
    assert (info.provider_id, info.model_id) == ("google", "gemini-x")
    cache = Cache(read=40, write=0)
    assert info.tokens == Tokens(input=60, output=13, reasoning=5, total=113, cache=cache)


def test_messages_for_the_user_only_are_ignored(tmp_path: Path):
    asides = [entry(kind, "Careful.", kind) for kind in ("info", "error", "warning")]
    path = document(tmp_path, ASKED, *asides, DONE)
    assert ids(read_sessions(path)[0]) == ["u1", "g2"]
    assert read_file(path).messages == 2


def test_files_of_tools_are_messages(tmp_path: Path):
    picture = entry("i1", [{"inlineData": {"mimeType": "image/png", "data": "QUJD"}}], "info")
    [session] = read_sessions(document(tmp_path, ASKED, picture, DONE))
    assert isinstance(session.messages[1].parts[0], FilePart)


def test_a_call_without_a_result_is_pending(tmp_path: Path):
    waiting = {**BARE, "toolCalls": [tool("c1")]}
    path = document(tmp_path, ASKED, waiting)
    assert not has_result(read_sessions(path)[0].messages[1].parts[-1])
    assert (read_file(path).calls, read_file(path).results) == (1, 0)


def test_a_call_that_is_also_in_the_content_is_one_call(tmp_path: Path):
    prompt = {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "c1"}}}
    answer = {**ANSWER, "content": [{"text": "I look."}, prompt]}
    assert read_file(document(tmp_path, ASKED, answer)).calls == 2


# --- lines ---


def test_a_repeated_message_replaces_the_earlier_one(tmp_path: Path):
    session = read(tmp_path, *LINES)
    assert ids(session) == ["env", "u1", "g1", "g2"]
    assert list(map(output, calls(session))) == ["one", "no"]
    file = read_file(written(tmp_path, *LINES))
    assert (file.messages, file.calls, file.results) == (5, 2, 2)


def test_the_session_context_is_synthetic(tmp_path: Path):
    part = read(tmp_path, *LINES).messages[0].parts[0]
    assert isinstance(part, TextPart)
    assert part.synthetic


def test_late_results_are_joined_with_their_calls(tmp_path: Path):
    between = [entry(f"x{number}", "…") for number in range(20)]
    waiting = {**BARE, "toolCalls": [tool("c1"), tool("c2")]}
    by_record = read(tmp_path, HEADER, ASKED, waiting, *between, ANSWER)
    by_message = read(tmp_path, HEADER, ASKED, waiting, *between, RESULTS)
    assert list(map(output, calls(by_record))) == ["one", "no"]
    assert by_message.messages == by_record.messages


def test_a_later_title_is_that_of_the_session(tmp_path: Path):
    with open_reading(written(tmp_path, *LINES, {"$set": {"summary": "Reading"}})) as reading:
        infos = [step.info for step in reading.steps() if isinstance(step, SessionOpened)]
    assert [info.title or "" for info in infos] == ["", "Reading"]
    assert infos[-1].time
    assert infos[-1].time.updated == 1_767_225_720_000


def test_a_rewind_reverts_a_message_and_all_after_it(tmp_path: Path):
    again = entry("u2", "Again")
    session = read(tmp_path, *LINES, entry("u3", "Wrong"), DONE, {"$rewindTo": "u3"}, again)
    assert ids(session) == ["env", "u1", "g1", "g2", "u2"]
    assert ids(read(tmp_path, *LINES, {"$rewindTo": "u1"}, again)) == ["env", "u2"]
    assert ids(read(tmp_path, *LINES, {"$rewindTo": "nobody"}, again)) == ["u2"]


def test_a_shorter_history_reverts_the_missing_messages(tmp_path: Path):
    session = read(tmp_path, *LINES, {"$set": {"messages": [SETUP, ASKED]}}, entry("u2", "Go on"))
    assert ids(session) == ["env", "u1", "u2"]


def test_a_history_with_other_ids_replaces_the_first(tmp_path: Path):
    other = [{**item, "id": f"{item['id']}-2"} for item in (ASKED, ANSWER)]
    session = read(tmp_path, *LINES, {"$set": {"messages": other}})
    assert ids(session) == ["u1-2", "g1-2"]
    assert list(map(output, calls(session))) == ["one", "no"]


def test_a_history_with_a_snapshot_is_a_compaction(tmp_path: Path):
    more = [entry("u2", "And now?"), entry("g3", "Now this.", "gemini")]
    history = [SETUP, *FOLDED, *more]
    session = read(tmp_path, *LINES, *more, {"$set": {"messages": history}}, entry("u3", "Good"))
    assert ids(session)[-4:] == ["g3", "s1-fold-1-marker", "s1-fold-1-summary", "u3"]
    view = view_of(*session.messages)
    assert view[-3:] == ["user: And now?", "assistant: Now this.", "user: Good"]
    assert view[-4].endswith("<state_snapshot>a file was read</state_snapshot>\n\nGot it.")
    assert "text c1: one" not in view


def test_a_compaction_that_keeps_nothing_has_no_tail(tmp_path: Path):
    session = read(tmp_path, *LINES, {"$set": {"messages": FOLDED}}, entry("u2", "Good"))
    [pivot] = Log(counter("classes"), session.messages).pivots
    assert pivot.tail_id is None
    assert view_of(*session.messages)[-2:] == [
        "assistant: <state_snapshot>a file was read</state_snapshot>\n\nGot it.",
        "user: Good",
    ]


def test_a_rewind_after_a_compaction_keeps_the_compaction(tmp_path: Path):
    lines = [
        *LINES,
        {"$set": {"messages": [*FOLDED, DONE]}},
        entry("u2", "Bad"),
        {"$rewindTo": "u2"},
    ]
    session = read(tmp_path, *lines, entry("u3", "Good"))
    assert ids(session)[-2:] == ["s1-fold-1-summary", "u3"]


@pytest.mark.parametrize("again", [1, 12])
def test_results_that_are_masked_later_are_pruned(tmp_path: Path, again: int):
    between = [entry(f"x{number}", "…") for number in range(again)]
    masked = {**ANSWER, "toolCalls": [tool("c1", response("c1", output=MASKED))]}
    by_line = read(tmp_path, *LINES, *between, masked)
    history = [SETUP, ASKED, masked, RESULTS, DONE, *between]
    by_history = read(tmp_path, *LINES, *between, {"$set": {"messages": history}})
    for session in (by_line, by_history):
        first, second = map(completed, calls(session))
        assert isinstance(first, Completed)
        assert first.output == "one"
        assert first.time
        assert first.time.compacted
        assert not (second.time and second.time.compacted)


def test_a_result_that_was_always_masked_is_not_pruned(tmp_path: Path):
    masked = {**BARE, "toolCalls": [tool("c1", response("c1", output=MASKED))]}
    (call,) = calls(read(tmp_path, HEADER, ASKED, masked))
    assert output(call) == MASKED
    time = completed(call).time
    assert not time or not time.compacted


# --- bare contents ---

CONTENTS: list[Line] = [
    {"role": "user", "parts": [{"text": "Look"}]},
    {
        "role": "model",
        "parts": [
            {"text": "Hm", "thought": True},
            {
                "functionCall": {"id": "c1", "name": "read_file", "args": {}},
                "thoughtSignature": "s",
            },
        ],
    },
    {"role": "user", "parts": [response("c1", output="one"), response("lost", output="two")]},
]


@pytest.mark.parametrize("whole", [CONTENTS, {"history": CONTENTS, "authType": "oauth"}])
def test_saved_contents_are_read_without_loss(tmp_path: Path, whole: Any):
    path = tmp_path / "checkpoint-mine.json"
    path.write_text(json.dumps(whole, indent=2))
    [session] = read_sessions(path)
    assert session.info.id == "checkpoint-mine"
    assert session.info.origin
    assert session.info.origin.format == "gemini-cli"
    assert encode(session.messages, "gemini") == CONTENTS
    file = read_file(path)
    assert (file.messages, file.calls, file.results) == (3, 1, 2)


def test_several_histories_in_one_file_are_numbered_sessions(tmp_path: Path):
    session = read_sessions(written(tmp_path, CONTENTS, CONTENTS), format="gemini-cli")
    assert [item.info.id for item in session] == ["kept", "kept-2"]


@pytest.mark.parametrize(
    "whole",
    [
        [{"role": "user", "content": "hi"}],
        [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}],
        [*CONTENTS, {"role": "assistant", "parts": []}],
        {"history": [{"role": "user", "content": "hi"}]},
        {"sessionId": "s"},
        [1],
    ],
)
def test_lists_of_other_apis_are_not_recognized(tmp_path: Path, whole: Any):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(whole, indent=2))
    with open_source(path) as source:
        assert not GeminiCli.recognizes(source.head)


# --- ids and real files ---


def test_the_same_file_gives_the_same_messages(tmp_path: Path):
    path = document(tmp_path, *({**item, "id": None} for item in (ASKED, ANSWER, DONE)))
    assert read_sessions(path) == read_sessions(path)
    assert ids(read_sessions(path)[0]) == ["s1-1", "s1-2", "s1-3"]


def test_calls_and_contents_of_real_sessions_are_complete(corpus: Path):
    for path in sorted((corpus / GeminiCli.name).iterdir()):
        [session] = read_sessions(path)
        assert all(isinstance(call.state, Completed) for call in calls(session))
        whole = json.loads(path.read_bytes())
        if isinstance(whole, list):
            assert encode(session.messages, "gemini") == whole
