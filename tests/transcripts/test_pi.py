"""Transcripts of pi: messages, trees of entries, compactions, and what the user ran."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    CompactionPart,
    Completed,
    FilePart,
    Message,
    Pending,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
    Transcript,
    has_result,
)
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.formats.pi import Pi
from foldmark.transcripts.read import read_sessions
from tests.support.malformed_records import read_leniently
from tests.support.stored_sessions import opened
from tests.support.stored_transcripts import import_file
from tests.support.transcript_reading import first_reply, read, requests, texts
from tests.support.view_lines import lines_of, view_of

STAMP = "2026-01-02T03:04:05.000Z"
AT = 1_767_323_045_000
SIGNED = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-x"}
Line = dict[str, Any]


def header(**more: Any) -> Line:
    return {"type": "session", "id": "s1", "timestamp": STAMP, "cwd": "/work", **more}


def entry(message: Line, **more: Any) -> Line:
    return {"type": "message", "timestamp": STAMP, "message": message, **more}


def user(text: str, **more: Any) -> Line:
    return entry({"role": "user", "content": [{"type": "text", "text": text}]}, **more)


def agent(*content: Line, of: Line | None = None, **more: Any) -> Line:
    about = {"stopReason": "stop", **SIGNED} if of is None else of
    return entry({"role": "assistant", "content": list(content), **about}, **more)


def reply(words: str, **more: Any) -> Line:
    return agent({"type": "text", "text": words}, **more)


def call(name: str, **arguments: Any) -> Line:
    return {"type": "toolCall", "id": name, "name": "bash", "arguments": arguments}


def result(name: str, *content: Line, **more: Any) -> Line:
    return entry({"role": "toolResult", "toolCallId": name, "content": list(content), **more})


def words(text: str) -> Line:
    return {"type": "text", "text": text}


def tree(*lines: Line) -> list[Line]:
    """Entries with ids; the parent of each is the previous one by default."""
    value: list[Line] = [header(version=3)]
    last: str | None = None
    for number, line in enumerate(lines):
        name = f"e{number}"
        value.append({"parentId": last, **line, "id": name})
        last = name
    return value


# --- sessions and messages ------------------------------------------------------------------


def test_the_first_line_has_the_session_info(tmp_path: Path) -> None:
    info = read(tmp_path, header(), user("look")).info
    assert (info.id, info.directory) == ("s1", "/work")
    assert info.time
    assert info.time.created == AT
    assert info.origin
    assert info.origin.format == "pi"


def test_a_session_without_a_header_has_the_name_of_its_file() -> None:
    (session,) = read_leniently(Pi, [user("look")])
    assert (session.info.id, texts(session)) == ("kept", ["look"])


def test_an_unreadable_first_line_does_not_lose_the_session() -> None:
    (session,) = read_leniently(Pi, [entry({"role": "user", "content": 3}), user("look")])
    assert texts(session) == ["look"]


def test_a_session_may_be_given_a_name(tmp_path: Path) -> None:
    rename = {"type": "session_info", "name": "the move"}
    assert read(tmp_path, header(), user("look"), rename).info.title == "the move"


def test_content_may_be_a_plain_text(tmp_path: Path) -> None:
    session = read(tmp_path, header(), entry({"role": "user", "content": "look"}))
    assert texts(session) == ["look"]


def test_results_are_joined_with_their_calls(tmp_path: Path) -> None:
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    session = read(
        tmp_path,
        header(),
        user("look"),
        agent(call("c1", command="ls"), call("c2", command="cat x")),
        result("c2", words("no"), words("such file"), isError=True),
        result("c1", words("a.png"), image, details={"seen": "only on the screen"}),
    )
    message, info = first_reply(session)
    first, second = message.parts
    assert isinstance(first, ToolPart)
    assert isinstance(second, ToolPart)
    assert isinstance(first.state, Completed)
    assert isinstance(second.state, Completed)
    assert first.state.output == "a.png"
    assert first.state.attachments == (
        FilePart(mime="image/png", url="data:image/png;base64,QUJD"),
    )
    assert second.state.output == "no\nsuch file"
    assert second.state.metadata == {"is_error": True}
    assert len(session.messages) == 2
    assert info.finish == "stop"


def test_a_result_without_a_call_is_synthetic(tmp_path: Path) -> None:
    session = read(tmp_path, header(), user("look"), result("c9", words("alone")))
    (part,) = session.messages[1].parts
    assert isinstance(part, TextPart)
    assert part.synthetic
    assert part.text == "alone"


def test_a_reply_has_its_model_usage_and_cost(tmp_path: Path) -> None:
    usage = {"input": 3, "output": 5, "cacheRead": 70, "cacheWrite": 11, "cost": {"total": 0.25}}
    about = {**SIGNED, "usage": usage, "stopReason": "toolUse"}
    level = {"type": "thinking_level_change", "thinkingLevel": "high"}
    _, info = first_reply(
        read(tmp_path, header(), user("look"), level, agent(call("c1"), of=about))
    )
    assert (info.provider_id, info.model_id, info.variant) == ("anthropic", "claude-x", "high")
    cache = Cache(read=70, write=11)
    assert info.tokens == Tokens(input=3, output=5, reasoning=0, total=89, cache=cache)
    assert (info.cost, info.finish) == (0.25, "tool-calls")


def test_a_reply_without_a_model_has_the_selected_one(tmp_path: Path) -> None:
    change = {"type": "model_change", "provider": "openai", "modelId": "gpt-x"}
    _, info = first_reply(read(tmp_path, header(), change, agent(words("yes"), of={})))
    assert (info.provider_id, info.model_id) == ("openai", "gpt-x")


@pytest.mark.parametrize(
    ("about", "metadata"),
    [
        (SIGNED, {"anthropic": {"signature": "sig"}}),
        ({"api": "google-vertex"}, {"google": {"thoughtSignature": "sig"}}),
        ({"provider": "groq"}, {"groq": {"signature": "sig"}}),
        ({}, {"pi": {"signature": "sig"}}),
    ],
)
def test_thinking_keeps_its_signature_for_its_provider(
    tmp_path: Path, about: Line, metadata: Line
) -> None:
    reasoning = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"}
    message, _ = first_reply(read(tmp_path, header(), agent(reasoning, of=about)))
    assert message.parts == (ReasoningPart(text="hm", metadata=metadata),)


def test_redacted_thinking_stays_redacted(tmp_path: Path) -> None:
    reasoning = {"type": "thinking", "thinking": "", "thinkingSignature": "x", "redacted": True}
    message, _ = first_reply(read(tmp_path, header(), agent(reasoning)))
    assert message.parts == (ReasoningPart(text="", metadata={"anthropic": {"redactedData": "x"}}),)


def test_an_aborted_reply_has_an_error_and_no_usage(tmp_path: Path) -> None:
    about = {**SIGNED, "stopReason": "aborted", "errorMessage": "stopped", "usage": {"input": 0}}
    started = {**call("c1", command="l"), "partialJson": '{"command":"l'}
    message, info = first_reply(read(tmp_path, header(), user("look"), agent(started, of=about)))
    assert info.error == {"name": "MessageAbortedError", "data": {"message": "stopped"}}
    assert not info.finish
    assert not info.tokens
    (part,) = message.parts
    assert isinstance(part, ToolPart)
    assert part.state == Pending(input={"command": "l"}, raw='{"command":"l')


def test_a_failed_reply_is_not_shown(tmp_path: Path) -> None:
    about = {**SIGNED, "stopReason": "error", "errorMessage": "400"}
    session = read(tmp_path, header(), user("look"), agent(words("half"), of=about))
    assert view_of(*session.messages) == ["user: look"]


# --- commands and extensions ----------------------------------------------------------------


def bash(**more: Any) -> Line:
    return entry({"role": "bashExecution", "command": "make", "output": "done", **more})


def test_a_command_of_the_user_is_not_a_request(tmp_path: Path) -> None:
    session = read(
        tmp_path, header(), user("look"), bash(exitCode=2, fullOutputPath="/work/all.log")
    )
    lines = view_of(*session.messages)
    assert lines[1].startswith("user: Ran `make`\n```\ndone\n```")
    assert "exit code 2" in lines[1]
    assert "/work/all.log" in lines[1]
    assert requests(session) == ["look"]


def test_an_excluded_command_is_not_shown(tmp_path: Path) -> None:
    session = read(tmp_path, header(), user("look"), bash(excludeFromContext=True))
    assert len(session.messages) == 2
    assert view_of(*session.messages) == ["user: look"]


def test_texts_of_extensions_are_synthetic(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        header(),
        {"type": "custom_message", "content": "mind the gap", "customType": "x"},
        entry({"role": "hookMessage", "content": [words("mind the step")]}),
        {"type": "custom", "data": {"content": "kept for itself"}},
        entry({"role": "notification", "content": "seen by people"}),
        {"type": "label", "targetId": "e1", "label": "here"},
    )
    assert texts(session) == ["mind the gap", "mind the step"]
    assert requests(session) == []


# --- compactions ----------------------------------------------------------------------------


def compaction(**more: Any) -> Line:
    return {"type": "compaction", "timestamp": STAMP, "summary": "All is well.", **more}


def marker(transcript: Transcript) -> CompactionPart:
    parts = [part for message in transcript.messages for part in message.parts]
    return next(part for part in parts if isinstance(part, CompactionPart))


def test_in_version_1_a_compaction_names_the_first_kept_line(
    tmp_path: Path,
) -> None:
    session = read(
        tmp_path,
        header(),
        user("first"),
        reply("one"),
        user("second"),
        reply("two"),
        compaction(firstKeptEntryIndex=3, tokensBefore=900),
        user("third"),
    )
    assert [line for line in view_of(*session.messages) if "words from before" not in line] == [
        "assistant: All is well.",
        "user: second",
        "assistant: two",
        "user: third",
    ]
    assert session.messages[4].info.wire == {"pi": {"tokensBefore": 900}}


def test_a_tail_that_starts_with_a_result_starts_with_its_call(tmp_path: Path) -> None:
    lines = [header(), user("first"), agent(call("c1")), result("c1", words("ok"))]
    session = read(tmp_path, *lines, compaction(firstKeptEntryIndex=3))
    assert marker(session).tail_start_id == session.messages[1].id


def test_a_tail_may_start_with_an_entry_without_a_message(tmp_path: Path) -> None:
    change = {"type": "model_change", "provider": "openai", "modelId": "gpt-x"}
    lines = tree(
        user("first"), reply("one"), change, user("second"), compaction(firstKeptEntryId="e2")
    )
    assert marker(read(tmp_path, *lines)).tail_start_id == "e3"


def test_a_tail_is_on_the_current_branch(tmp_path: Path) -> None:
    level = {"type": "thinking_level_change", "thinkingLevel": "high"}
    lines = tree(user("first"), level, user("left"), user("then", parentId="e1"), user("last"))
    folded = compaction(firstKeptEntryId="e1", id="e5", parentId="e4")
    assert marker(read(tmp_path, *lines, folded)).tail_start_id == "e3"


@pytest.mark.parametrize("first", [None, "gone", "e9", 7])
def test_a_compaction_with_an_unknown_entry_has_no_tail(tmp_path: Path, first: object) -> None:
    lines = tree(user("first"), reply("one"), compaction(firstKeptEntryId=first))
    assert not marker(read(tmp_path, *lines)).tail_start_id


def test_a_compaction_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'summary' is null"):
        read(tmp_path, header(), compaction(summary=None))


# --- trees ----------------------------------------------------------------------------------


def test_an_entry_with_an_earlier_parent_reverts_those_between(tmp_path: Path) -> None:
    lines = tree(
        user("first"), reply("one"), user("wrong"), reply("so"), user("right", parentId="e1")
    )
    assert texts(read(tmp_path, *lines)) == ["first", "one", "right"]


def test_an_entry_without_a_parent_reverts_all(tmp_path: Path) -> None:
    lines = tree(user("first"), reply("one"), user("again", parentId=None))
    assert texts(read(tmp_path, *lines)) == ["again"]


def test_a_return_to_before_a_compaction_reverts_it(tmp_path: Path) -> None:
    lines = tree(user("first"), reply("one"), compaction(), user("again", parentId="e1"))
    session = read(tmp_path, *lines)
    assert texts(session) == ["first", "one", "again"]
    assert not Log(len, session.messages).pivots


def test_the_summary_of_another_branch_is_synthetic(tmp_path: Path) -> None:
    remaining = {"type": "branch_summary", "summary": "It did not work.", "parentId": "e0"}
    session = read(tmp_path, *tree(user("first"), reply("one"), remaining, user("then")))
    assert len(session.messages) == 3
    (part,) = session.messages[1].parts
    assert isinstance(part, TextPart)
    assert part.synthetic
    assert part.text.endswith("It did not work.")


def test_an_entry_with_an_unknown_parent_is_appended(tmp_path: Path) -> None:
    lines = tree(user("first"), reply("one", parentId="skipped"))
    assert texts(read(tmp_path, *lines)) == ["first", "one"]


def test_a_continued_branch_is_complete(tmp_path: Path) -> None:
    lines = tree(
        user("root"), user("left"), user("right", parentId="e0"), user("left again", parentId="e1")
    )
    assert texts(read(tmp_path, *lines)) == ["root", "left", "left again"]
    where = str(tmp_path / "kept.db")
    (rest,) = import_file(where, tmp_path / "kept.jsonl")
    with opened(where, rest.id) as session:
        assert texts(session.export(reverted=False)) == ["root", "left", "left again"]


@given(st.lists(st.integers(0, 30), max_size=30))
def test_messages_are_those_of_the_current_branch(places: list[int]) -> None:
    branches: list[list[str]] = [[]]  # the branch that ends with each entry
    lines: list[Line] = [header(version=3)]
    for number, index in enumerate(places):
        branch = branches[index % len(branches)]
        kind = reply if number % 3 else user
        parent = branch[-1] if branch else None
        lines.append(kind(f"t{number}", parentId=parent) | {"id": f"e{number}"})
        branches.append([*branch, f"e{number}"])
    (session,) = read_leniently(Pi, lines)
    assert [message.id for message in session.messages] == branches[-1]


# --- real files -----------------------------------------------------------------------------

REAL = "pi/pi-mono_before-compaction.jsonl"


def test_in_a_real_file_only_aborted_calls_have_no_results(
    corpus: Path,
) -> None:
    (session,) = read_sessions(corpus / REAL)
    broken = [message for message in session.messages if not all_answered(message)]
    errors = [message.info.error for message in broken if isinstance(message.info, AssistantInfo)]
    # One call was pending when the user requested a compaction.
    assert len(broken) == 4
    assert sum(bool(error) for error in errors) == 3


def all_answered(message: Message) -> bool:
    return all(has_result(part) for part in message.parts if isinstance(part, ToolPart))


def test_after_compactions_a_real_file_shows_the_summary_and_the_tail(
    corpus: Path,
) -> None:
    raw = [json.loads(line) for line in (corpus / REAL).read_bytes().splitlines()]
    last = max(index for index, line in enumerate(raw) if line["type"] == "compaction")
    rest = raw[raw[last]["firstKeptEntryIndex"]]["message"]["content"][0]["text"]
    (session,) = read_sessions(corpus / REAL)
    log = Log(counter(FOLDMARK.estimate), session.messages)
    lines = lines_of(Viewer(log, FOLDMARK))
    assert len(log.pivots) == 2
    assert lines[1:3] == [f"assistant: {raw[last]['summary']}", f"user: {rest}"]
