"""Recorded traffic with Anthropic's API: conversations that requests repeat."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    CompactionPart,
    Completed,
    Message,
    TextPart,
    Tokens,
    ToolPart,
    has_result,
)
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.formats.claude_trace import ClaudeTrace, joined_stream
from foldmark.transcripts.read import read_file, read_sessions
from foldmark.transcripts.source import Record
from foldmark.wire.formats import encode
from tests.support.malformed_records import read_leniently
from tests.support.view_lines import view_of

REAL = "anthropic-api/claude-trace_test-traffic.sanitized.jsonl"
Line = dict[str, Any]
TOOLS = [{"name": "ls", "input_schema": {"type": "object"}}]
USAGE = {
    "input_tokens": 5,
    "output_tokens": 7,
    "cache_read_input_tokens": 11,
    "cache_creation_input_tokens": 13,
}
SUMMARISE = "Your task is to create a detailed summary of the conversation so far."
CONTINUED = "This session is being continued from a previous conversation. Summary: all is well."


def text(words: str, **more: Any) -> Line:
    return {"type": "text", "text": words, **more}


def user(*content: Line) -> Line:
    return {"role": "user", "content": list(content)}


def model(*content: Line) -> Line:
    return {"role": "assistant", "content": list(content)}


def call(name: str) -> Line:
    return {"type": "tool_use", "id": name, "name": "ls", "input": {"path": name}}


def result(name: str, output: Any = "a.py") -> Line:
    return {"type": "tool_result", "tool_use_id": name, "content": output}


def reply(number: int, *content: Line, **more: Any) -> Line:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": "tool_use" if content[-1]["type"] == "tool_use" else "end_turn",
        "usage": USAGE,
        **more,
    }


def exchange(messages: list[Line], answer: Line | None = None, **body: Any) -> Line:
    """A line with a request and its reply."""
    prompt = {"model": "claude-x", "system": "Help.", "tools": TOOLS, "messages": messages, **body}
    url = "https://api.anthropic.com/v1/messages?beta=true"
    return {
        "request": {"timestamp": 1_700_000_000.5, "method": "POST", "url": url, "body": prompt},
        "response": {"timestamp": 1_700_000_001, "status_code": 200, "body": answer},
        "logged_at": "2026-01-01T00:00:00",
    }


def session_views(lines: list[Line]) -> list[list[str]]:
    """The view of each session."""
    return [view_of(*session.messages) for session in read_leniently(ClaudeTrace, lines)]


ASK, CALLED, LISTED = user(text("list it")), model(call("c1")), user(result("c1"))
FIRST = exchange([ASK], reply(1, call("c1")))
SECOND = exchange([ASK, CALLED, LISTED], reply(2, text("a.py is there")))
SAID = model(text("a.py is there"))
WHOLE = ["user: list it", "call c1", "text c1: a.py", "assistant: a.py is there"]


# --- conversations --------------------------------------------------------------------------


def test_repeated_messages_of_requests_are_read_once() -> None:
    (session,) = read_leniently(ClaudeTrace, [FIRST, SECOND])
    assert view_of(*session.messages) == WHOLE
    assert [message.id for message in session.messages] == ["kept-1", "msg_1", "msg_2"]
    assert session.info.id == "kept"
    assert session.info.origin
    assert session.info.origin.system == "Help."
    assert session.info.origin.tools == TOOLS


def test_a_reply_has_its_model_usage_and_time() -> None:
    (session,) = read_leniently(ClaudeTrace, [FIRST, SECOND])
    info = session.messages[1].info
    assert isinstance(info, AssistantInfo)
    assert (info.provider_id, info.model_id, info.finish) == ("anthropic", "claude-x", "tool-calls")
    assert info.tokens == Tokens(
        input=5, output=7, reasoning=0, total=36, cache=Cache(read=11, write=13)
    )
    assert info.time
    assert info.time.created == 1_700_000_001_000


def test_cache_marks_and_text_forms_are_not_new_messages() -> None:
    prompt = {"role": "user", "content": "list it"}
    marked = user(text("list it", cache_control={"type": "ephemeral"}))
    item = [text("a.py", cache_control={"type": "ephemeral"})]
    first = exchange([marked], reply(1, call("c1")))
    second = exchange([prompt, CALLED, user(result("c1", [text("a.py")]))], reply(2, text("yes")))
    again = [prompt, CALLED, user(result("c1", item)), model(text("yes")), user(text("bye"))]
    (lines,) = session_views([first, second, exchange(again)])
    assert lines == ["user: list it", "call c1", "text c1: a.py", "assistant: yes", "user: bye"]


def test_a_reply_that_is_repeated_with_changes_is_the_same_reply() -> None:
    trimmed = model(text("a.py is there."))
    (lines,) = session_views(
        [FIRST, SECOND, exchange([ASK, CALLED, LISTED, trimmed, user(text("bye"))])]
    )
    assert lines == [*WHOLE, "user: bye"]


def test_history_from_before_the_trace_is_read() -> None:
    (lines,) = session_views([exchange([ASK, CALLED, LISTED], reply(2, text("a.py is there")))])
    assert lines == WHOLE


def test_interleaved_conversations_are_separate_sessions() -> None:
    other = user(text("count it"))
    lines = [FIRST, exchange([other], reply(5, text("one"))), SECOND]
    sessions = read_leniently(ClaudeTrace, lines)
    assert [session.info.id for session in sessions] == ["kept", "kept-2"]
    assert session_views(lines) == [WHOLE, ["user: count it", "assistant: one"]]


def test_requests_of_the_program_itself_are_left_out() -> None:
    quota = exchange([user(text("quota"))], reply(7, text("A")), tools=[], max_tokens=1)
    title = exchange([ASK], reply(8, text("Listing")), tools=[], system="Give a title.")
    assert session_views([quota, FIRST, title, quota, SECOND, title]) == [WHOLE]


def test_a_request_without_tools_is_read_if_it_continues_or_is_all() -> None:
    first = exchange([ASK], reply(1, text("how?")), tools=[])
    second = exchange([ASK, model(text("how?")), user(text("so"))], reply(2, text("ok")), tools=[])
    grown = ["user: list it", "assistant: how?", "user: so", "assistant: ok"]
    assert session_views([FIRST, first, SECOND, second]) == [WHOLE, grown]
    assert session_views([first]) == [["user: list it", "assistant: how?"]]


def test_reminders_of_the_program_are_synthetic() -> None:
    reminder = text("<system-reminder>be quick</system-reminder>")
    (session,) = read_leniently(ClaudeTrace, [exchange([user(reminder, text("go"))])])
    parts = session.messages[0].parts
    assert [isinstance(part, TextPart) and bool(part.synthetic) for part in parts] == [True, False]


# --- what changes ---------------------------------------------------------------------------


def test_a_repeated_request_reverts_its_first_reply() -> None:
    (lines,) = session_views([FIRST, SECOND, exchange([ASK, CALLED, LISTED], reply(3, text("b")))])
    assert lines == [*WHOLE[:3], "assistant: b"]


def test_a_failed_request_has_no_reply() -> None:
    failed = exchange([ASK], {"type": "error", "error": {"type": "overloaded_error"}})
    (session,) = read_leniently(ClaudeTrace, [failed, FIRST, SECOND])
    assert view_of(*session.messages) == WHOLE


def test_a_request_without_the_last_messages_reverts_them() -> None:
    changed = exchange([ASK, CALLED, LISTED, SAID, user(text("no, this"))], reply(4, text("ok")))
    before = exchange([ASK, CALLED, LISTED, SAID, user(text("now that"))], reply(3, text("done")))
    (lines,) = session_views([FIRST, SECOND, before, changed])
    assert lines == [*WHOLE, "user: no, this", "assistant: ok"]


def test_a_result_that_was_replaced_is_pruned() -> None:
    missing = user(result("c1", "[Old tool result content cleared]"))
    after = exchange([ASK, CALLED, missing, SAID, user(text("go on"))], reply(3, text("ok")))
    (session,) = read_leniently(ClaudeTrace, [FIRST, SECOND, after])
    (part,) = session.messages[1].parts
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, Completed)
    assert part.state.output == "a.py"
    assert part.state.time
    assert part.state.time.compacted == 1_700_000_000_500


def test_a_changed_first_message_changes_nothing() -> None:
    other = user(text("<system-reminder>now</system-reminder>"), text("list it"))
    (lines,) = session_views(
        [FIRST, exchange([other, CALLED, LISTED], reply(2, text("a.py is there")))]
    )
    assert lines == WHOLE


# --- compactions ----------------------------------------------------------------------------

FOLDING = exchange(
    [user(text("list it!")), CALLED, LISTED, SAID, user(text(SUMMARISE))],
    reply(3, text("<summary>all is well</summary>")),
    system="You summarise.",
    tools=TOOLS[:0],
)
COMMAND = text("<command-name>/compact</command-name>")


@pytest.mark.parametrize("blocks", [[], [COMMAND]])
@pytest.mark.parametrize("summary_requests", [[FOLDING], []])
def test_a_conversation_that_starts_with_a_summary_is_a_compaction(
    blocks: list[Line], summary_requests: list[Line]
) -> None:
    started = exchange([user(text(CONTINUED), *blocks, text("go on"))], reply(4, text("on it")))
    (session,) = read_leniently(ClaudeTrace, [FIRST, SECOND, *summary_requests, started])
    log = Log(counter(FOLDMARK.estimate), session.messages)
    assert len(log.pivots) == 1
    marker = session.messages[3]
    (part,) = marker.parts
    assert isinstance(part, CompactionPart)
    assert part.auto is not bool(blocks)
    lines = view_of(*session.messages)
    assert lines[1:] == [
        f"assistant: {CONTINUED}",
        *(f"user: {block['text']}" for block in blocks),
        "user: go on",
        "assistant: on it",
    ]
    if summary_requests:
        assert marker.info.wire
        assert marker.info.wire[ClaudeTrace.name]["usage"] == USAGE


def test_a_summary_without_a_following_request_changes_nothing() -> None:
    after = exchange([ASK, CALLED, LISTED, SAID, user(text("go on"))], reply(4, text("ok")))
    (lines,) = session_views([FIRST, SECOND, FOLDING, after])
    assert lines == [*WHOLE, "user: go on", "assistant: ok"]


def test_a_compacted_conversation_continues() -> None:
    started = user(text(CONTINUED), text("go on"))
    first = exchange([started], reply(4, call("c2")))
    second = exchange([started, model(call("c2")), user(result("c2", "b"))], reply(5, text("done")))
    (lines,) = session_views([FIRST, SECOND, FOLDING, first, second])
    assert lines[-4:] == ["user: go on", "call c2", "text c2: b", "assistant: done"]


# --- streams --------------------------------------------------------------------------------


def stream(*events: Line) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def begun(index: int, block: Line) -> Line:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, **delta: str) -> Line:
    return {"type": "content_block_delta", "index": index, "delta": delta}


START: Line = {"type": "message_start", "message": {**reply(1, text("")), "content": []}}
EVENTS: list[Line] = [
    START,
    begun(0, {"type": "thinking", "thinking": "", "signature": ""}),
    piece(0, type="thinking_delta", thinking="h"),
    piece(0, type="thinking_delta", thinking="m"),
    piece(0, type="signature_delta", signature="sig"),
    {"type": "ping"},
    begun(1, text("")),
    piece(1, type="text_delta", text="let "),
    piece(1, type="text_delta", text="me"),
    begun(2, {**call("c1"), "input": {}}),
    piece(2, type="input_json_delta", partial_json=""),
    piece(2, type="input_json_delta", partial_json='{"path":'),
    piece(2, type="input_json_delta", partial_json=' "c1"}'),
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def test_a_streamed_reply_is_joined() -> None:
    line = exchange([ASK])
    line["response"] |= {"body": None, "body_raw": stream(*EVENTS)}
    (session,) = read_leniently(ClaudeTrace, [line, SECOND])
    assert view_of(*session.messages) == [
        *("user: list it", "thought: hm", "assistant: let me", "call c1", "text c1: a.py"),
        "assistant: a.py is there",
    ]
    info = session.messages[1].info
    assert isinstance(info, AssistantInfo)
    assert info.tokens
    assert (info.tokens.input, info.tokens.output) == (5, 9)
    reasoning, _, called = encode(session.messages, "anthropic")[1]["content"]
    assert reasoning == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert called == call("c1")


def test_an_interrupted_stream_gives_a_partial_reply() -> None:
    whole = stream(*EVENTS[:12]) + 'event: content_block_delta\ndata: {"type":"content_bl'
    session = joined_stream(whole)
    assert session
    assert [block["type"] for block in session["content"]] == ["thinking", "text", "tool_use"]
    assert session["content"][2]["input"] == {"arguments": '{"path":'}
    assert joined_stream("") is None
    assert joined_stream('data: {"type":"error"}\n') is None


def test_citations_of_a_stream_are_kept() -> None:
    cited: Line = {"type": "content_block_delta", "index": 0}
    cited["delta"] = {"type": "citations_delta", "citation": {"url": "x"}}
    session = joined_stream(stream(START, begun(0, text("", citations=[])), cited))
    assert session
    assert session["content"] == [text("", citations=[{"url": "x"}])]


# --- odd lines ------------------------------------------------------------------------------


def test_requests_to_other_endpoints_are_ignored() -> None:
    counted = exchange([ASK], {"input_tokens": 5})
    counted["request"]["url"] = "https://api.anthropic.com/v1/messages/count_tokens"
    event = {"request": {"url": "https://example.com/log", "body": "x=1"}, "response": None}
    assert session_views([counted, event, {"request": {}}, FIRST, SECOND]) == [WHOLE]


def test_a_lone_surrogate_is_replaced() -> None:
    odd = exchange([user(text("half \ud83d"))], {"type": "error"})
    assert session_views([odd]) == [["user: half ?"]]


def test_an_unreadable_line_adds_nothing() -> None:
    broken = exchange([ASK, CALLED, LISTED, user({"type": "text", "text": 5})], reply(9, text("x")))
    assert session_views([FIRST, broken, SECOND]) == [WHOLE]
    importer = ClaudeTrace("x")
    with pytest.raises(BadInput):
        importer.steps_of(Record(line=1, data=json.dumps(broken).encode()))


# --- a real file ----------------------------------------------------------------------------


def bare(message: Line) -> Line:
    """A message without cache marks."""
    blocks: list[Line] = message["content"]
    rest = [{name: block[name] for name in block if name != "cache_control"} for block in blocks]
    return {"role": message["role"], "content": rest}


def real_request(corpus: Path, number: int) -> list[Line]:
    line = (corpus / REAL).read_bytes().splitlines()[number]
    return list(map(bare, json.loads(line)["request"]["body"]["messages"]))


def real_halves(corpus: Path) -> tuple[list[Message], list[Message]]:
    """The messages before the compaction, and those after its summary."""
    (session,) = read_sessions(corpus / REAL)
    (pivot,) = Log(counter(FOLDMARK.estimate), session.messages).pivots
    return list(session.messages[: pivot.marker]), list(session.messages[pivot.summary + 1 :])


def test_a_real_file_has_as_many_messages_as_are_counted_up_to_its_compaction(corpus: Path) -> None:
    # The manifest counts the messages of line 35, the request for the summary.
    before, after = real_halves(corpus)
    calls = [part for message in before for part in message.parts if isinstance(part, ToolPart)]
    assert (len(encode(before, "anthropic")) + 1, len(calls)) == (27, 11)
    assert all(map(has_result, calls))
    file = read_file(corpus / REAL)
    assert (file.messages, file.calls, file.results) == (
        27 + len(encode(after, "anthropic")),
        12,
        12,
    )


def test_requests_of_a_real_file_can_be_rebuilt(corpus: Path) -> None:
    before, after = real_halves(corpus)
    assert list(map(bare, encode(before, "anthropic")))[:25] == real_request(corpus, 32)
    again = list(map(bare, encode(after, "anthropic")))
    # The summary was in the first message, and is now that of the compaction.
    first, *rest = real_request(corpus, 63)
    assert again[1:5] == rest
    summary = [block for block in first["content"] if block not in again[0]["content"]]
    assert len(summary) == 1


def test_after_the_compaction_of_a_real_file_only_its_summary_is_shown(corpus: Path) -> None:
    (session,) = read_sessions(corpus / REAL)
    lines = view_of(*session.messages)
    assert lines[1].startswith("assistant: This session is being continued")
    assert lines[-3:] == ["assistant: Weather folder deleted.", "user: bye", "assistant: Goodbye!"]
