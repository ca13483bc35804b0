"""Transcripts of Codex: replies of several items, token usage, rollbacks and compactions."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldmark.log.log import Log, marker_part
from foldmark.log.render import is_summary
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    Cache,
    Completed,
    Message,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
    has_result,
    is_opaque,
)
from foldmark.policy import FOLDMARK, OPENCODE_2025
from foldmark.tokens.counters import counter
from foldmark.transcripts.formats.codex import Codex
from foldmark.transcripts.read import open_reading, read_sessions
from foldmark.wire.lists import write_list
from foldmark.wire.openai_responses import OpenAIResponses
from tests.support.malformed_records import read_leniently
from tests.support.transcript_reading import read, replies, requests, texts
from tests.support.view_lines import lines_of, view_of

STAMP = "2026-01-02T03:04:05.000Z"
AT = 1_767_323_045_000
SEALED = "[A summary that only its provider can read.]"
Line = dict[str, Any]
FILES = (
    "codex/agentv_34f597b72d-1.jsonl",
    "codex/agentv_4bdc81f3ac-1.jsonl",
    "codex/ai-sessions_codex-pomodoro.jsonl",
    "codex/mise_12ee462dfd.jsonl",
)


def line(kind: str, **payload: Any) -> Line:
    return {"timestamp": STAMP, "type": kind, "payload": payload}


def meta(**more: Any) -> Line:
    return line("session_meta", id="s1", cwd="/work", cli_version="1.2", **more)


def item(kind: str, **fields: Any) -> Line:
    return line("response_item", type=kind, **fields)


def text_item(text: str, role: str = "user") -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def user(text: str) -> Line:
    return line("response_item", **text_item(text))


def reply(text: str) -> Line:
    return line("response_item", **text_item(text, "assistant"))


def reasoning_item(text: str) -> Line:
    summary = [{"type": "summary_text", "text": text}]
    return item("reasoning", id="rs_1", summary=summary, encrypted_content="E")


def call(name: str) -> Line:
    return item("function_call", name="shell", arguments='{"cmd":"ls"}', call_id=name)


def output(name: str, text: str) -> Line:
    return item("function_call_output", call_id=name, output=text)


def event(kind: str, **fields: Any) -> Line:
    return line("event_msg", type=kind, **fields)


def usage(used: int, total: int, output_tokens: int = 5) -> Line:
    last = {
        "input_tokens": used,
        "cached_input_tokens": 40,
        "output_tokens": output_tokens,
        "reasoning_output_tokens": 2,
        "total_tokens": used + output_tokens,
    }
    whole = {"total_tokens": total}
    return event("token_count", info={"last_token_usage": last, "total_token_usage": whole})


def compacted(*history: Line, message: str = "", **more: Any) -> Line:
    return line("compacted", message=message, replacement_history=list(history), **more)


# --- sessions -------------------------------------------------------------------------------


def test_the_first_line_has_the_session_its_prompt_and_its_tools(
    tmp_path: Path,
) -> None:
    tools = [{"type": "function", "name": "page"}]
    about = meta(base_instructions={"text": "You help."}, dynamic_tools=tools)
    info = read(tmp_path, about, user("look")).info
    assert (info.id, info.directory, info.version) == ("s1", "/work", "1.2")
    assert info.time
    assert info.time.created == AT
    assert info.origin
    assert (info.origin.format, info.origin.system) == ("codex", "You help.")
    assert info.origin.tools == tools


def test_a_forked_session_keeps_its_own_id(tmp_path: Path) -> None:
    first, other = meta(forked_from_id="s0"), line("session_meta", id="s0", cwd="/else")
    info = read(tmp_path, first, other, user("look")).info
    assert (info.id, info.parent_id, info.directory) == ("s1", "s0", "/work")


def test_a_session_without_metadata_has_the_name_of_its_file() -> None:
    unreadable = item("message", role="user")
    (session,) = read_leniently(Codex, [unreadable, user("look")])
    assert (session.info.id, texts(session)) == ("kept", ["look"])


def test_a_session_may_be_given_a_name(tmp_path: Path) -> None:
    rename = event("thread_name_updated", thread_name="the move")
    assert read(tmp_path, meta(), user("look"), rename).info.title == "the move"


def test_lines_of_other_kinds_and_copies_for_the_screen_are_ignored(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        meta(),
        {"type": "world_state", "payload": [1]},
        user("look"),
        event("user_message", message="look"),
        item("ghost_snapshot", ghost_commit={"id": "c"}),
        reply("yes"),
        event("agent_message", message="yes"),
    )
    assert texts(session) == ["look", "yes"]


# --- items ----------------------------------------------------------------------------------


def test_the_items_of_one_reply_are_one_message_with_results(
    tmp_path: Path,
) -> None:
    session = read(
        tmp_path,
        meta(),
        line("turn_context", model="gpt-x", effort="high"),
        user("look"),
        reasoning_item("hm"),
        reply("I look."),
        call("c1"),
        call("c2"),
        output("c1", "one"),
        output("c2", "two"),
        reply("Done."),
    )
    assert len(session.messages) == 3
    kinds = [type(part) for part in session.messages[1].parts]
    assert kinds == [ReasoningPart, TextPart, ToolPart, ToolPart]
    states = [part.state for part in session.messages[1].parts if isinstance(part, ToolPart)]
    assert [state.output for state in states if isinstance(state, Completed)] == ["one", "two"]
    first, second = replies(session)
    assert (first.provider_id, first.model_id, first.variant) == ("openai", "gpt-x", "high")
    assert (first.finish, second.finish) == ("tool-calls", "stop")


def test_texts_of_the_program_in_the_role_of_the_user_are_not_requests(tmp_path: Path) -> None:
    context = text_item("# AGENTS.md instructions for /work\nBe kind.")
    context["content"].append({"type": "input_text", "text": "<environment_context>\n</x>"})
    above = line("response_item", **text_item("Never push.", "developer"))
    lines = [meta(), above, line("response_item", **context), user("<b>look</b>"), reply("yes")]
    session = read(tmp_path, *lines)
    assert requests(session) == ["<b>look</b>"]
    assert len(view_of(*session.messages)) == 5


def test_items_are_written_back_unchanged(tmp_path: Path) -> None:
    lines = [
        line("response_item", **text_item("Never push.", "developer")),
        user("look"),
        reasoning_item("hm"),
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c1", status="x"),
        item("custom_tool_call_output", call_id="c1", output="ok"),
        item("web_search_call", id="ws_1", status="completed", action={"type": "search"}),
        reply("Done."),
    ]
    session = read(tmp_path, meta(), *lines)
    assert write_list(OpenAIResponses(), session.messages) == [one["payload"] for one in lines]


# --- token usage ----------------------------------------------------------------------------


def test_usage_comes_after_its_step(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        meta(),
        user("look"),
        call("c1"),
        output("c1", "one"),
        usage(100, total=105),
        reply("Done."),
        usage(200, total=310),
    )
    first, second = replies(session)
    cache = Cache(read=40, write=0)
    assert first.tokens == Tokens(input=60, output=5, reasoning=2, total=105, cache=cache)
    assert second.tokens
    assert second.tokens.total == 205


def test_in_old_versions_usage_comes_before_its_step_and_is_repeated(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        meta(),
        user("look"),
        event("token_count", info=None),
        usage(100, total=105),
        call("c1"),
        output("c1", "one"),
        usage(100, total=105),
        usage(200, total=310),
        reasoning_item("hm"),
        reply("Done."),
    )
    assert [info.tokens and info.tokens.total for info in replies(session)] == [105, 205]


def test_a_step_without_usage_does_not_get_that_of_the_next_one(
    tmp_path: Path,
) -> None:
    lines = [user("look"), reply("half"), user("again"), usage(100, total=105), reply("whole")]
    first, second = replies(read(tmp_path, meta(), *lines))
    assert not first.tokens
    assert second.tokens


def test_usage_ends_a_reply(tmp_path: Path) -> None:
    session = read(
        tmp_path, meta(), user("look"), reply("one"), usage(100, total=105), reply("two")
    )
    assert [len(message.parts) for message in session.messages] == [1, 1, 1]


def test_an_estimate_after_a_compaction_belongs_to_no_reply(tmp_path: Path) -> None:
    estimate = usage(0, total=105, output_tokens=0)
    session = read(
        tmp_path, meta(), reply("one"), usage(100, total=105), compacted(), estimate, reply("two")
    )
    first, second = replies(session)
    assert first.tokens
    assert not second.tokens


# --- rollbacks ------------------------------------------------------------------------------


def test_rolled_back_turns_are_reverted(tmp_path: Path) -> None:
    turns = [user("one"), reply("1"), user("two"), reply("2"), user("three"), reply("3")]
    back = event("thread_rolled_back", num_turns=2)
    session = read(tmp_path, meta(), *turns, back, user("other"), reply("4"))
    assert texts(session) == ["one", "1", "other", "4"]


def test_turns_can_be_rolled_back_one_by_one(tmp_path: Path) -> None:
    back = event("thread_rolled_back", num_turns=1)
    lines = [user("one"), reply("1"), user("two"), reply("2"), back, user("three"), back]
    assert texts(read(tmp_path, meta(), *lines)) == ["one", "1"]


def test_rolling_back_too_many_turns_keeps_the_context_before_them(
    tmp_path: Path,
) -> None:
    context = line("response_item", **text_item("<environment_context>"))
    back = event("thread_rolled_back", num_turns=9)
    session = read(tmp_path, meta(), context, user("one"), reply("1"), back, user("two"))
    assert texts(session) == ["<environment_context>", "two"]


# --- compactions ----------------------------------------------------------------------------


def test_an_encrypted_summary_is_kept_for_its_provider_and_replaced_for_others(
    tmp_path: Path,
) -> None:
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "E"}
    above = text_item("Never push.", "developer")
    session = read(
        tmp_path,
        meta(),
        user("first"),
        reply("one"),
        compacted(above, text_item("first"), sealed, window_number=1),
        reply("two"),
        user("second"),
    )
    assert session.messages[2].info.wire == {"codex": {"window_number": 1}}
    (part,) = session.messages[3].parts
    assert isinstance(part, TextPart)
    assert is_opaque(part)
    assert part.metadata == {"openai": {"block": sealed}}
    assert requests(session) == ["first", "second"]
    assert view_of(*session.messages, policy=OPENCODE_2025)[1:] == [
        f"assistant: {SEALED}",
        "user: Never push.",
        "user: first",
        "assistant: two",
        "user: second",
    ]


def test_a_summary_that_is_a_text_is_not_repeated(tmp_path: Path) -> None:
    history = (text_item("first"), text_item("Another model wrote:\nSum."))
    lines = [user("first"), reply("one"), compacted(*history, message="Sum.")]
    session = read(tmp_path, meta(), *lines, reply("two"))
    assert texts(session) == ["first", "one", "Sum.", "first", "two"]


def test_in_old_versions_prompts_are_kept_by_a_compaction(tmp_path: Path) -> None:
    context = line("response_item", **text_item("<environment_context>"))
    lines = [context, user("first"), reply("one"), user("second"), reply("two")]
    session = read(tmp_path, meta(), *lines, line("compacted", message="Sum."), reply("three"))
    assert texts(session)[5:] == ["Sum.", "first", "second", "three"]
    assert requests(session) == ["first", "second"]


@pytest.mark.parametrize(("turns", "left"), [(1, ["first"]), (2, [])])
def test_prompts_can_be_rolled_back_after_a_compaction(
    tmp_path: Path, turns: int, left: list[str]
) -> None:
    back = event("thread_rolled_back", num_turns=turns)
    compaction = compacted(text_item("first"), text_item("second"), message="Sum.")
    session = read(tmp_path, meta(), user("first"), user("second"), compaction, back)
    assert texts(session) == ["first", "second", "Sum.", *left]
    assert len(Log(len, session.messages).pivots) == 1


def test_calls_that_a_compaction_repeats_are_counted_once(tmp_path: Path) -> None:
    lines = [meta(), user("look"), call("c1"), output("c1", "one")]
    again = compacted(*(one["payload"] for one in lines[1:]))
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in [*lines, again]))
    with open_reading(file) as reading:
        steps = list(reading.steps())
    tally = reading.reader.tally
    assert (tally.messages, tally.calls, tally.results) == (1, 1, 1)
    last = steps[-1]
    assert isinstance(last, Message)
    assert has_result(last.parts[0])


# --- real files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_replies_of_a_real_file_have_usage_and_models(corpus: Path, name: str) -> None:
    (session,) = read_sessions(corpus / name)
    assert all(info.tokens and info.model_id for info in replies(session)[:-1])


@pytest.mark.parametrize("name", FILES)
def test_the_items_of_a_real_file_are_all_there_in_their_order(corpus: Path, name: str) -> None:
    windows: list[list[Any]] = [[]]
    for data in (corpus / name).read_bytes().splitlines():
        one = json.loads(data)
        if one["type"] == "response_item":
            windows[-1].append(one["payload"])
        elif one["type"] == "compacted":
            history = one["payload"]["replacement_history"]
            windows.append([rest for rest in history if rest["type"] != "compaction"])
    (session,) = read_sessions(corpus / name)
    file: list[list[Message]] = [[]]
    for message in session.messages:
        if marker_part(message):
            file.append([])
        elif not is_summary(message):
            file[-1].append(message)
    assert [write_list(OpenAIResponses(), messages) for messages in file] == windows


def test_after_compactions_a_real_file_shows_the_replacement_history(
    corpus: Path,
) -> None:
    (session,) = read_sessions(corpus / FILES[0])
    log = Log(counter(FOLDMARK.estimate), session.messages)
    lines = lines_of(Viewer(log, FOLDMARK))
    assert lines[1] == f"assistant: {SEALED}"
    assert len(log.requests.all) == 10
    before = log.pivots[-1].marker
    prompt = [request.text for request in log.requests.all if request.index < before]
    assert {f"user: {text}" for text in prompt} <= set(lines)
