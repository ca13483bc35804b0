"""Runs of mini-swe-agent: commands in fenced blocks, real calls, and how a run ends."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    Completed,
    Pending,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
    Transcript,
    has_result,
)
from foldmark.transcripts.formats._runs import enclosed_commands, split_at_command
from foldmark.transcripts.formats.mini_swe_agent import MiniSweAgent
from foldmark.transcripts.read import read_sessions, read_transcript
from tests.support.transcript_reading import calls, first_reply, requests
from tests.support.view_lines import joined, view_of

Raw = dict[str, Any]
CREATED = 1_767_323_045
SPOKEN = "THOUGHT: I look around.\n\n```bash\nls -a\n```"


def user(content: Any, **extra: Any) -> Raw:
    return {"role": "user", "content": content, **({"extra": extra} if extra else {})}


def text_reply(text: str, **extra: Any) -> Raw:
    return {"role": "assistant", "content": text, "extra": extra}


def response(message: Raw | None = None, **usage: Any) -> Raw:
    about = {"id": "gen-1", "created": CREATED, "model": "claude-x", "usage": usage}
    return {**about, "choices": [{"message": {"role": "assistant", **(message or {})}}]}


def call(name: str, command: str) -> Raw:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": name, "type": "function", "function": function}


def call_reply(*calls: Raw, **more: Any) -> Raw:
    actions = [{"command": "ls", "tool_call_id": item["id"]} for item in calls]
    text = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return {**text, "extra": {"actions": actions}, **more}


def result(name: str, content: Any) -> Raw:
    extra = {"raw_output": "for people", "returncode": 0, "timestamp": CREATED + 0.5}
    return {"role": "tool", "tool_call_id": name, "content": content, "extra": extra}


def run(*messages: Raw, **more: Any) -> Raw:
    prompt = {"role": "system", "content": "You can run commands."}
    about: Raw = {"info": {}, "trajectory_format": "mini-swe-agent-1.1"}
    return {**about, "messages": [prompt, *messages], **more}


def read(folder: Path, *messages: Raw, **more: Any) -> Transcript:
    file = folder / "task-7.traj.json"
    file.write_text(json.dumps(run(*messages, **more), indent=2))
    return read_transcript(file)


# --- the first version ----------------------------------------------------------------------


def test_a_command_in_the_text_is_a_call_and_the_next_message_its_output(tmp_path: Path) -> None:
    session = read(tmp_path, user("fix it"), text_reply(SPOKEN), user("<output>a.py</output>"))
    assert view_of(*session.messages) == [
        "user: fix it",
        "assistant: THOUGHT: I look around.",
        "call task-7-2-call",
        "text task-7-2-call: <output>a.py</output>",
    ]
    (part,) = calls(session)
    assert (part.tool, part.state.input) == ("bash", {"command": "ls -a"})
    assert session.info.origin
    assert session.info.origin.system == "You can run commands."


@pytest.mark.parametrize("text", ["I am done.", f"{SPOKEN}\n{SPOKEN}", "```bash ls```"])
def test_only_a_single_command_is_a_call(tmp_path: Path, text: str) -> None:
    session = read(tmp_path, user("fix it"), text_reply(text), user("One command, please."))
    assert view_of(*session.messages)[1:] == [f"assistant: {text}", "user: One command, please."]
    assert requests(session) == ["fix it"]


def test_text_after_a_command_follows_the_call(tmp_path: Path) -> None:
    text = f"{SPOKEN}\n\nThen I go on.\n"
    session = read(tmp_path, user("fix it"), text_reply(text), user("a.py"))
    parts = session.messages[1].parts
    assert [type(part) for part in parts] == [TextPart, ToolPart, TextPart]
    assert joined(parts, "mini-swe-agent") == text


def test_a_reply_has_its_usage_and_reasoning(tmp_path: Path) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 70}, "cost": 0.25}
    usage = {"prompt_tokens": 84, "completion_tokens": 5, "cache_creation_input_tokens": 11}
    value = response({"reasoning": "hm", "reasoning_content": "hm"}, **usage, **details)
    session = read(tmp_path, user("go"), text_reply(SPOKEN, response=value), user("a.py"))
    _, info = first_reply(session)
    assert info.tokens == Tokens(
        input=3, output=5, reasoning=0, total=89, cache=Cache(read=70, write=11)
    )
    assert (info.cost, info.model_id, info.finish) == (0.25, "claude-x", "tool-calls")
    assert info.time
    assert info.time.created == CREATED * 1000
    first = session.messages[1].parts[0]
    assert isinstance(first, ReasoningPart)
    assert first.text == "hm"


def test_a_last_call_without_output_is_pending(tmp_path: Path) -> None:
    (part,) = calls(read(tmp_path, user("go"), text_reply(SPOKEN)))
    assert part.state == Pending(input={"command": "ls -a"})


PIECES = st.sampled_from(["```", "```bash", "\n", "ls", " ", "x", "bash", "é"])


@given(st.lists(PIECES, max_size=16).map("".join))
def test_commands_are_found_as_the_program_finds_them(text: str) -> None:
    expected = [match.strip() for match in re.findall(r"```bash\s*\n(.*?)\n```", text, re.DOTALL)]
    places = enclosed_commands(text, "```bash", "\n```")
    if all(expected):
        assert [text[index.begins : index.ends].strip() for index in places] == expected
    for index in places:
        assert joined(split_at_command(text, index, "k", "bash", "c"), "k") == text


# --- the second version ---------------------------------------------------------------------


def test_results_are_joined_with_their_calls(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        user("fix it"),
        call_reply(call("c1", "ls"), call("c2", "pwd"), reasoning_content="hm"),
        result("c1", "a.py"),
        result("c2", [{"type": "text", "text": "/work"}]),
    )
    lines = ["user: fix it", "thought: hm", "call c1", "call c2", "text c1: a.py", "text c2: /work"]
    assert view_of(*session.messages) == lines
    state = calls(session)[0].state
    assert isinstance(state, Completed)
    assert state.time
    assert state.time.end == CREATED * 1000 + 500


def test_a_command_named_in_actions_is_found_in_the_text(tmp_path: Path) -> None:
    text = "It lists all:\n<run>\nls\n</run>"
    actions = [{"command": "ls"}]
    session = read(tmp_path, user("go"), text_reply(text, actions=actions, cost=0.5), user("a.py"))
    (part,) = calls(session)
    assert part.state == Completed(input={"command": "ls"}, output="a.py")
    assert first_reply(session)[1].cost == 0.5
    assert joined(session.messages[1].parts, "mini-swe-agent") == text


@pytest.mark.parametrize(
    "text", ["```mswea_bash_command\nls\n```", "<mswea_bash_command>ls</mswea_bash_command>"]
)
def test_commands_may_be_enclosed_in_other_ways(tmp_path: Path, text: str) -> None:
    (part,) = calls(read(tmp_path, user("go"), text_reply(text), user("a.py")))
    assert part.state == Completed(input={"command": "ls"}, output="a.py")


def test_images_of_an_output_are_attachments(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    output = user([{"type": "text", "text": "seen"}, image])
    (part,) = calls(read(tmp_path, user("go"), text_reply(SPOKEN), output))
    assert isinstance(part.state, Completed)
    assert part.state.output == "seen"
    assert [file.mime for file in part.state.attachments or ()] == ["image/png"]


def test_an_interruption_of_the_user_is_not_an_output(tmp_path: Path) -> None:
    text = user("Stop that.", interrupt_type="UserInterruption")
    session = read(tmp_path, user("go"), text_reply(SPOKEN), text)
    assert not has_result(calls(session)[0])
    assert session.messages[2].parts == (TextPart(text="Stop that."),)


def test_the_submission_is_the_output_of_the_last_call(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        user("go"),
        call_reply(call("c1", "echo DONE")),
        {"role": "exit", "content": "the patch", "extra": {"exit_status": "Submitted"}},
    )
    assert view_of(*session.messages)[-1] == "text c1: the patch"


@pytest.mark.parametrize(("why", "lines"), [("LimitsExceeded", ["user: LimitsExceeded"]), ("", [])])
def test_the_reason_for_the_end_of_a_run_is_synthetic(
    tmp_path: Path, why: str, lines: list[str]
) -> None:
    messages = (user("go"), call_reply(call("c1", "ls")), result("c1", "a.py"))
    session = read(tmp_path, *messages, {"role": "exit", "content": why})
    assert view_of(*session.messages)[3:] == lines
    assert requests(session) == ["go"]


def test_responses_are_read_completely(tmp_path: Path) -> None:
    arguments = json.dumps({"command": "ls"})
    items = [
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": arguments},
    ]
    usage = {"input_tokens": 9, "output_tokens": 2}
    about = {"object": "response", "model": "gpt-x", "created_at": CREATED, "usage": usage}
    session = read(
        tmp_path,
        user("fix it"),
        {**about, "output": items, "extra": {"cost": 0.1, "actions": []}},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {}},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "No."}]},
    )
    lines = ["user: fix it", "thought: hm", "call c1", "text c1: a.py", "user: No."]
    assert view_of(*session.messages) == lines
    _, info = first_reply(session)
    assert (info.model_id, info.cost) == ("gpt-x", 0.1)
    assert info.tokens
    assert info.tokens.total == 11


# --- runs -----------------------------------------------------------------------------------


def test_a_run_has_its_task_folder_and_model(tmp_path: Path) -> None:
    config = {"model": {"model_name": "google/gemini-x"}, "environment": {"cwd": "/work"}}
    info = {"exit_status": "Submitted", "submission": "long", "mini_version": "1.15.0"}
    session = read(
        tmp_path,
        user("go"),
        text_reply(SPOKEN, response=response()),
        info={**info, "config": config},
        instance_id="task-1",
    )
    facts = session.info
    assert (facts.id, facts.directory, facts.version) == ("task-1", "/work", "1.15.0")
    assert session.extra == {"mini-swe-agent": {"exit_status": "Submitted"}}
    _, info = first_reply(session)
    assert (info.provider_id, info.model_id) == ("google", "gemini-x")


# --- real files -----------------------------------------------------------------------------


def real(corpus: Path) -> list[Any]:
    manifest = json.loads((corpus / "manifest.json").read_bytes())
    return [file for file in manifest if file["format"] == MiniSweAgent.name]


def test_every_reply_of_a_real_file_can_be_rebuilt(corpus: Path) -> None:
    for file in real(corpus):
        (session,) = read_sessions(corpus / file["file"])
        messages = json.loads((corpus / file["file"]).read_bytes())["messages"]
        text = [message.parts for message in session.messages if not message.is_user]
        expected = [item["content"] for item in messages if item["role"] == "assistant"]
        assert [joined(parts, "mini-swe-agent") for parts in text] == expected
        assert all(has_result(part) for part in calls(session))


def test_the_costs_of_a_real_file_are_those_of_the_run(corpus: Path) -> None:
    for file in real(corpus):
        (session,) = read_sessions(corpus / file["file"])
        infos = [message.info for message in session.messages]
        costs = [info.cost for info in infos if isinstance(info, AssistantInfo) and info.cost]
        stats = json.loads((corpus / file["file"]).read_bytes())["info"]["model_stats"]
        assert sum(costs) == pytest.approx(stats["instance_cost"])
        assert len(costs) == stats["api_calls"]
