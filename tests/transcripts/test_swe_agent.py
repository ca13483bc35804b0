"""Runs of SWE-agent: commands in texts, function calls, and demonstrations."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    ReasoningPart,
    TextPart,
    ToolPart,
    Transcript,
    has_result,
)
from foldmark.transcripts.formats._runs import find_command, split_at_command
from foldmark.transcripts.formats.swe_agent import SweAgent
from foldmark.transcripts.read import read_sessions, read_transcript
from tests.support.transcript_reading import calls, requests
from tests.support.view_lines import joined, view_of

Item = dict[str, Any]
SPOKEN = "I look around.\n\n```\nls -a\n```"


def prompt(text: str = "You fix things.") -> Item:
    return {"role": "system", "content": text, "agent": "main", "message_type": "system_prompt"}


def user(content: Any, **more: Any) -> Item:
    return {"role": "user", "content": content, "agent": "main", **more}


def text_reply(text: str, action: str, **more: Any) -> Item:
    facts = {"thought": "", "action": action, "agent": "main"}
    return {"role": "assistant", "content": text, **facts, **more}


def call(name: str, tool: str = "bash", **arguments: Any) -> Item:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": name, "type": "function", "function": function}


def call_reply(text: str, *calls: Item, **more: Any) -> Item:
    return text_reply(text, "ls", tool_calls=list(calls), message_type="action", **more)


def result(name: str, content: Any) -> Item:
    about = {"message_type": "observation", "tool_call_ids": [name]}
    return {"role": "tool", "content": content, "agent": "main", **about}


def run(*history: Item, steps: tuple[Item, ...] = (), **more: Any) -> Item:
    about = {"info": {"exit_status": "submitted"}, "environment": "main"}
    return {"trajectory": list(steps), "history": list(history), **about, **more}


def read(folder: Path, *history: Item, **more: Any) -> Transcript:
    file = folder / "task-7.traj"
    file.write_text(json.dumps(run(*history, **more), indent=2))
    return read_transcript(file)


# --- commands in text -----------------------------------------------------------------------


def test_a_command_in_the_text_is_a_call_and_the_next_message_its_output(tmp_path: Path) -> None:
    session = read(tmp_path, prompt(), user("fix it"), text_reply(SPOKEN, "ls -a\n"), user("a.py"))
    assert view_of(*session.messages) == [
        "user: fix it",
        "assistant: I look around.",
        "call task-7-2-call",
        "text task-7-2-call: a.py",
    ]
    (part,) = calls(session)
    assert (part.tool, part.state.input) == ("bash", {"command": "ls -a"})
    assert session.info.origin
    assert session.info.origin.system == "You fix things."


def test_its_own_commands_are_tools_of_their_names(tmp_path: Path) -> None:
    text = "```\nedit 1:1\nx = 1\nend_of_edit\n```\nThat is all."
    session = read(
        tmp_path, user("go"), text_reply(text, "edit 1:1\nx = 1\nend_of_edit\n"), user("ok")
    )
    (part,) = calls(session)
    assert part.tool == "edit"
    assert session.messages[1].parts[1] == TextPart(text="That is all.")
    assert joined(session.messages[1].parts, "swe-agent") == text


def test_the_last_output_may_be_in_the_trajectory_only(tmp_path: Path) -> None:
    step = {"action": "submit", "observation": "the patch", "messages": [user("fix it")]}
    history = (user("fix it"), text_reply("```\nsubmit\n```", "submit"))
    (part,) = calls(read(tmp_path, *history, steps=(step,)))
    assert isinstance(part.state, Completed)
    assert (part.tool, part.state.output) == ("submit", "the patch")


def test_messages_repeated_in_the_trajectory_are_ignored(tmp_path: Path) -> None:
    history = (user("fix it"), text_reply(SPOKEN, "ls -a"), user("a.py"))
    step = {"action": "ls -a", "observation": "a.py, raw", "messages": [1], "query": "?"}
    assert read(tmp_path, *history, steps=(step,)) == read(tmp_path, *history)


def test_a_demonstration_is_synthetic_and_not_an_output(tmp_path: Path) -> None:
    demo = user("Here is how.", is_demo=True, message_type="demonstration")
    session = read(tmp_path, prompt(), demo, user("fix it", message_type="observation"))
    (first,), (second,) = (message.parts for message in session.messages)
    assert first == TextPart(text="Here is how.", synthetic=True)
    assert second == TextPart(text="fix it")
    assert requests(session) == ["fix it"]


def test_a_command_in_another_form_follows_the_text(tmp_path: Path) -> None:
    text = "<function=bash>\n<parameter=command>ls</parameter>\n</function>"
    session = read(tmp_path, user("go"), text_reply(text, "ls   -a"), user("a.py"))
    reply, part = session.messages[1].parts
    assert reply == TextPart(text=text)
    assert isinstance(part, ToolPart)
    assert part.state == Completed(input={"command": "ls   -a"}, output="a.py")
    assert joined(session.messages[1].parts, "swe-agent") == text


def test_after_a_reply_without_a_command_comes_a_user_message(tmp_path: Path) -> None:
    session = read(tmp_path, user("go"), text_reply("I am done.", ""), user("Are you?"))
    assert view_of(*session.messages) == ["user: go", "assistant: I am done.", "user: Are you?"]


@pytest.mark.parametrize(
    ("text", "command", "before"),
    [
        ("Go.\n```\nls\n```", "ls", "\n```\n"),
        ("Go.\n```bash\n ls\n```\nIt tells all.", "ls", "\n```bash\n "),
        ("<command>\nls\n</command>", "ls", "<command>\n"),
        ("```\nls\n```\nand\n```\nls\n```", "ls", "\n```\n"),
        (" ls\n", "ls", " "),
    ],
)
def test_a_command_is_found_with_what_encloses_it(text: str, command: str, before: str) -> None:
    index = find_command(text, command)
    assert index
    parts = split_at_command(text, index, "k", "bash", "c")
    (part,) = (part for part in parts if isinstance(part, ToolPart))
    assert part.state.input == {"command": command}
    assert part.metadata
    assert part.metadata["k"]["before"] == before
    assert joined(parts, "k") == text


@pytest.mark.parametrize("text", ["It tells all.", "```\nls -a\n```", "<a>ls</b>", "```\nls"])
def test_similar_text_is_not_a_command(text: str) -> None:
    assert find_command(text, "ls") is None


PIECES = st.sampled_from(["```", "\n", "ls", " ", "bash", "<command>", "</command>", "é", "x"])


@given(st.lists(PIECES, max_size=14).map("".join), st.sampled_from(["ls", "x", "ls\nx"]))
def test_a_split_text_can_be_rebuilt(text: str, command: str) -> None:
    index = find_command(text, command)
    if index:
        parts = split_at_command(text, index, "k", "bash", "c")
        assert joined(parts, "k") == text
        assert all(part.text.strip() for part in parts if isinstance(part, TextPart))


# --- real calls -----------------------------------------------------------------------------


def test_results_are_joined_with_their_calls(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        prompt(),
        user([{"type": "text", "text": "fix it"}]),
        call_reply("I look.", call("c1", command="ls")),
        result("c1", [{"type": "text", "text": "a.py"}]),
        call_reply("", call("c2", "submit")),
        result("c2", "the patch"),
    )
    assert view_of(*session.messages) == [
        "user: fix it",
        "assistant: I look.",
        "call c1",
        "text c1: a.py",
        "call c2",
        "text c2: the patch",
    ]
    assert [part.state.input for part in calls(session)] == [{"command": "ls"}, {}]


def test_a_result_without_a_call_is_synthetic(tmp_path: Path) -> None:
    session = read(tmp_path, user("go"), result("c9", "alone"))
    (part,) = session.messages[1].parts
    assert isinstance(part, TextPart)
    assert (part.text, part.synthetic) == ("alone", True)


def test_thinking_keeps_its_signature(tmp_path: Path) -> None:
    reasoning = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    item = call_reply("I look.", call("c1"), thinking_blocks=[reasoning])
    first, *_ = read(tmp_path, user("go"), item).messages[1].parts
    assert first == ReasoningPart(text="hm", metadata={"anthropic": {"signature": "sig"}})


# --- runs -----------------------------------------------------------------------------------

CONFIG = {
    "agent": {"model": {"name": "anthropic/claude-x"}},
    "problem_statement": {"id": "task-1"},
}


@pytest.mark.parametrize("config", [CONFIG, json.dumps(CONFIG)])
def test_the_configuration_has_the_task_and_model(tmp_path: Path, config: Any) -> None:
    info = {"exit_status": "submitted", "submission": "long", "swe_agent_version": "1.0.1"}
    stats = {"instance_cost": 0.5}
    session = read(
        tmp_path,
        user("go"),
        text_reply("Yes.", ""),
        replay_config=config,
        info={**info, "model_stats": stats},
    )
    answer = session.messages[1].info
    assert isinstance(answer, AssistantInfo)
    assert (answer.provider_id, answer.model_id) == ("anthropic", "claude-x")
    assert (session.info.id, session.info.version) == ("task-1", "1.0.1")
    assert session.extra == {"swe-agent": {"exit_status": "submitted", "model_stats": stats}}


@pytest.mark.parametrize("config", ["no JSON", 3, None, {"agent": "me", "problem_statement": []}])
def test_a_run_without_a_task_has_the_name_of_its_file(tmp_path: Path, config: Any) -> None:
    assert read(tmp_path, user("go"), replay_config=config).info.id == "task-7"


# --- real files -----------------------------------------------------------------------------


def real(corpus: Path) -> list[Any]:
    manifest = json.loads((corpus / "manifest.json").read_bytes())
    return [file for file in manifest if file["format"] == SweAgent.name]


def test_every_reply_of_a_real_file_can_be_rebuilt(corpus: Path) -> None:
    for file in real(corpus):
        (session,) = read_sessions(corpus / file["file"])
        history = json.loads((corpus / file["file"]).read_bytes())["history"]
        text = [message.parts for message in session.messages if not message.is_user]
        expected = [item["content"] for item in history if item["role"] == "assistant"]
        assert [joined(parts, "swe-agent") for parts in text] == expected
        assert all(has_result(part) for part in calls(session))
