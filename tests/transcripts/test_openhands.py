"""Runs of OpenHands: actions and what they caused, condensations, and older forms of both."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    FilePart,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
    Transcript,
    has_result,
)
from foldmark.transcripts.read import read_sessions, read_transcript
from tests.support.transcript_reading import calls, first_reply, output, requests
from tests.support.view_lines import view_of

Event = dict[str, Any]
STAMP, AT = "2026-01-02T03:04:05", 1_767_323_045_000


def action(number: int, kind: str, source: str = "agent", **args: Any) -> Event:
    about = {"id": number, "timestamp": STAMP, "source": source, "message": "for people"}
    return {**about, "action": kind, "args": args}


def system() -> Event:
    tools = [{"type": "function", "function": {"name": "execute_bash"}}]
    return action(0, "system", content="You help.", tools=tools, openhands_version="0.35.0")


def user(number: int, text: str, **args: Any) -> Event:
    return action(number, "message", "user", content=text, **args)


def observation(
    number: int, cause: int | None, content: Any, kind: str = "run", **extras: Any
) -> Event:
    about = {"id": number, "timestamp": STAMP, "source": "agent", "cause": cause}
    return {**about, "observation": kind, "content": content, "extras": extras}


def call(name: str, **arguments: Any) -> Event:
    function = {"name": "execute_bash", "arguments": json.dumps(arguments)}
    return {"id": name, "type": "function", "function": function}


def with_response(event: Event, name: str, response: str, *calls: Event, **message: Any) -> Event:
    """An event with its call and the whole response that requested it."""
    text = {"role": "assistant", "content": "I look.", "tool_calls": list(calls), **message}
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    value = {"id": response, "model": "claude-x", "choices": [{"message": text}], "usage": usage}
    about = {"function_name": "execute_bash", "tool_call_id": name, "model_response": value}
    return {**event, "tool_call_metadata": about}


def pair(number: int, name: str, output: str = "a.py") -> tuple[Event, Event]:
    value = call(name, command="ls")
    first = with_response(action(number, "run", command="ls"), name, f"r{number}", value)
    return first, with_response(observation(number + 1, number, output), name, f"r{number}", value)


def read(folder: Path, *history: Any, **more: Any) -> Transcript:
    file = folder / "output.jsonl"
    file.write_text(json.dumps({"instance_id": "task-1", "history": list(history), **more}))
    return read_transcript(file)


# --- actions and observations ---------------------------------------------------------------


def test_an_observation_is_the_result_of_the_call_that_caused_it(tmp_path: Path) -> None:
    session = read(tmp_path, system(), user(1, "fix it"), *pair(2, "c1"))
    lines = ["user: fix it", "assistant: I look.", "call c1", "text c1: a.py"]
    assert view_of(*session.messages) == lines
    assert [message.id for message in session.messages] == ["task-1-1", "task-1-2"]
    assert calls(session)[0].state.input == {"command": "ls"}


def test_system_prompt_and_tools_are_in_the_origin(tmp_path: Path) -> None:
    info = read(tmp_path, system(), user(1, "fix it"), metrics={"accumulated_cost": 0.5}).info
    assert info.origin
    assert info.origin.system == "You help."
    assert info.origin.tools == system()["args"]["tools"]
    assert (info.id, info.version) == ("task-1", "0.35.0")
    assert info.time
    assert info.time.created == AT


def test_all_calls_of_one_response_are_one_reply(tmp_path: Path) -> None:
    both = (call("c1", command="ls"), call("c2", command="pwd"))
    session = read(
        tmp_path,
        user(1, "fix it"),
        with_response(action(2, "run", command="ls"), "c1", "r1", *both),
        observation(3, 2, "a.py"),
        with_response(action(4, "run", command="pwd"), "c2", "r1", *both),
        with_response(observation(5, 4, "/work"), "c2", "r1", *both),
    )
    lines = ["assistant: I look.", "call c1", "call c2", "text c1: a.py", "text c2: /work"]
    assert view_of(*session.messages)[1:] == lines
    assert len(session.messages) == 2


def test_a_call_missing_from_its_response_is_read_from_its_action(tmp_path: Path) -> None:
    one = call("c1", command="ls")
    session = read(
        tmp_path,
        with_response(action(1, "run", command="ls"), "c1", "r1", one),
        with_response(action(2, "read", path="/a", thought="Again."), "c2", "r1", one),
        observation(3, 2, "text", "read"),
    )
    second = calls(session)[1]
    assert (second.call_id, second.state.input) == ("c2", {"path": "/a"})
    assert output(second) == "text"
    assert "Again." not in str(session)


def test_an_action_without_its_response_is_a_call_of_its_kind(tmp_path: Path) -> None:
    args: Event = {
        "thought": {"text": "I look.", "reasoning_content": "hm"},
        "hidden": False,
        "cwd": None,
    }
    session = read(
        tmp_path, user(1, "go"), action(2, "run", command="ls", **args), observation(3, 2, "a")
    )
    reasoning, text, part = first_reply(session)[0].parts
    assert (reasoning, text) == (ReasoningPart(text="hm"), TextPart(text="I look."))
    assert isinstance(part, ToolPart)
    assert (part.tool, part.state.input, output(part)) == ("run", {"command": "ls"}, "a")


def test_a_reply_has_its_model_and_usage(tmp_path: Path) -> None:
    _, info = first_reply(read(tmp_path, user(1, "go"), *pair(2, "c1")))
    assert info.model_id == "claude-x"
    assert info.tokens
    assert info.tokens.total == 11
    usage = {"prompt_tokens": 84, "cache_read_tokens": 70, "cache_write_tokens": 11}
    metrics = {"token_usages": [{"response_id": "r2", "completion_tokens": 5, **usage}]}
    metadata = {"llm_config": {"model": "openai/gpt-x"}}
    facts = read(tmp_path, user(1, "go"), *pair(2, "c1"), metrics=metrics, metadata=metadata)
    _, info = first_reply(facts)
    cache = Cache(read=70, write=11)
    assert info.tokens == Tokens(input=3, output=5, reasoning=0, total=89, cache=cache)
    assert (info.provider_id, info.model_id) == ("openai", "gpt-x")


def test_prefix_and_suffix_are_part_of_an_output(tmp_path: Path) -> None:
    around = {"prefix": "[cut]", "suffix": "\n[exit code 0]"}
    session = read(
        tmp_path, action(1, "run", command="ls"), observation(2, 1, "a.py", metadata=around)
    )
    assert output(calls(session)[0]) == "[cut]a.py\n[exit code 0]"


def test_errors_are_marked(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        action(1, "edit", path="/a"),
        observation(2, 1, "no such file", "error"),
        action(3, "browse", url="http://x"),
        observation(4, 3, "lost", "browse", error=True, screenshot="for the screen"),
    )
    assert [part.state.metadata for part in calls(session)] == [{"is_error": True}] * 2


def test_an_observation_without_a_call_is_synthetic(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        user(1, "go"),
        observation(2, None, "bad call", "error"),
        observation(3, 99, "lost"),
    )
    parts = [part for message in session.messages[1:] for part in message.parts]
    assert parts == [note("bad call"), note("lost")]


def note(text: str) -> TextPart:
    return TextPart(text=text, synthetic=True)


def test_the_content_of_a_delegate_is_its_output(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        action(1, "delegate", agent="Browser", inputs={"task": "look"}),
        observation(2, 1, "", "delegate", outputs={"content": "found it"}),
    )
    assert output(calls(session)[0]) == "found it"


def test_messages_have_their_images(tmp_path: Path) -> None:
    urls = ["data:image/png;base64,QUJD", "https://x/y.png"]
    session = read(tmp_path, user(1, "see", image_urls=urls), action(2, "message", content="nice"))
    first, *files = session.messages[0].parts
    assert first == TextPart(text="see")
    kinds = ["image/png", "image/*"]
    assert files == [FilePart(mime=kind, url=url) for kind, url in zip(kinds, urls, strict=True)]
    assert view_of(*session.messages)[-1] == "assistant: nice"


def test_recalled_knowledge_is_synthetic(tmp_path: Path) -> None:
    sample = [{"name": "git", "trigger": "git", "content": "Never push."}]
    session = read(
        tmp_path,
        user(1, "go"),
        action(2, "recall", "user", query="go"),
        observation(
            3, 2, "Added", "recall", microagent_knowledge=sample, date="2026-01-02", repo_name=""
        ),
        observation(4, 2, "Added", "recall", microagent_knowledge=[]),
    )
    assert len(session.messages) == 2
    assert session.messages[1].parts == (note("date: 2026-01-02\n\nNever push."),)


def test_commands_of_the_user_are_synthetic(tmp_path: Path) -> None:
    ran = action(2, "run", "user", command="make")
    session = read(tmp_path, user(1, "go"), ran, observation(3, 2, "done"))
    assert view_of(*session.messages)[1:] == [
        "user: User executed the command:\nmake",
        "user: done",
    ]
    assert requests(session) == ["go"]


def test_state_events_are_not_messages(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        observation(1, None, "", "agent_state_changed", agent_state="running"),
        action(2, "change_agent_state", "environment", agent_state="stopped"),
        action(3, "null"),
        observation(4, None, "No observation", "null"),
        user(5, "go"),
    )
    assert [message.id for message in session.messages] == ["task-1-5"]


# --- condensations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forgotten",
    [
        {"forgotten_event_ids": [2, 3, 4, 5]},
        {"forgotten_event_ids": None, "forgotten_events_start_id": 2, "forgotten_events_end_id": 5},
    ],
)
def test_a_condensation_is_a_compaction_with_a_tail(tmp_path: Path, forgotten: Event) -> None:
    facts: Event = {"summary": "All is well.", "summary_offset": 2, **forgotten}
    session = read(
        tmp_path,
        user(1, "fix it"),
        *pair(2, "c1"),
        *pair(4, "c2"),
        *pair(6, "c3", "kept"),
        action(8, "condensation", **facts),
        *pair(9, "c4", "new"),
    )
    lines = view_of(*session.messages)
    assert "assistant: All is well." in lines
    results = [line for line in lines if line.startswith("text")]
    assert results == ["text c3: kept", "text c4: new"]
    marker = session.messages[4]
    assert marker.info.wire == {"openhands": {"summary_offset": 2, **forgotten}}
    assert len(Log(len, session.messages).pivots) == 1


def test_events_may_be_forgotten_without_a_summary(tmp_path: Path) -> None:
    forgotten = action(6, "condensation", forgotten_event_ids=[2, 3])
    session = read(tmp_path, user(1, "go"), *pair(2, "c1"), *pair(4, "c2", "kept"), forgotten)
    lines = view_of(*session.messages)
    assert [line for line in lines if line.startswith("text")] == ["text c2: kept"]


# --- rows and files -------------------------------------------------------------------------


def test_each_line_is_a_session_even_if_a_task_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "output.jsonl"
    names = ["task-1", 7, "task-1", None]
    rows = [{"instance_id": name, "history": [user(1, f"go {name}")]} for name in names]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    transcript = read_sessions(file)
    assert [session.info.id for session in transcript] == ["task-1", "7", "task-1-2", "output"]
    assert [len(session.messages) for session in transcript] == [1, 1, 1, 1]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_bare", [True, False])
def test_a_file_may_be_the_events_of_one_run(
    tmp_path: Path, indent: int | None, *, is_bare: bool
) -> None:
    events = [system(), user(1, "fix it"), *pair(2, "c1")]
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(events if is_bare else {"trajectory": events}, indent=indent))
    session = read_transcript(file)
    assert session.info.id == "kept"
    assert view_of(*session.messages)[-1] == "text c1: a.py"


def test_repeated_event_ids_become_unique(tmp_path: Path) -> None:
    session = read(tmp_path, user(1, "a"), user(1, "b"), user(1, "c"))
    assert [message.id for message in session.messages] == ["task-1-1", "task-1-1-2", "task-1-1-3"]


# --- older versions -------------------------------------------------------------------------


def test_actions_and_observations_may_be_in_pairs(tmp_path: Path) -> None:
    run = {"action": "run", "args": {"command": "ls", "thought": "I look."}}
    null: Event = {"observation": "null", "content": "", "extras": {}}
    session = read(
        tmp_path,
        [{"action": "message", "source": "user", "args": {"content": "go"}}, null],
        [run, {"observation": "run", "content": "a.py", "extras": {}}],
        [run, None],
    )
    assert [line for line in view_of(*session.messages) if line.startswith(("user", "text"))] == [
        "user: go",
        "text task-1-pair-1: a.py",
    ]
    assert len(calls(session)) == 2


def test_arguments_may_be_fields_of_the_event(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        {"action": "message", "content": "fix it"},
        {"action": "run", "command": "ls", "thought": "I look."},
        {"observation": "run", "content": "a.py", "command": "ls", "exit_code": 0},
        {"action": "message", "content": "Done."},
        {"action": "message", "content": "Go on."},
    )
    assert [line for line in view_of(*session.messages) if "call" not in line[:5]] == [
        "user: fix it",
        "assistant: I look.",
        "text task-1-event-1: a.py",
        "assistant: Done.",
        "user: Go on.",
    ]


def test_a_task_that_is_not_an_event_is_a_prompt(tmp_path: Path) -> None:
    session = read(tmp_path, action(1, "run", command="ls"), instruction="fix it")
    assert view_of(*session.messages)[0] == "user: fix it"
    again = read(tmp_path, user(1, "fix it, please"), instruction="fix it")
    assert view_of(*again.messages) == ["user: fix it, please"]


# --- real files -----------------------------------------------------------------------------

REAL = "openhands/openhands_multi_swe_bench_output.jsonl"


def test_in_a_real_file_only_the_last_call_has_no_result(corpus: Path) -> None:
    for session in read_sessions(corpus / REAL):
        *others, last = calls(session)
        assert all(has_result(part) for part in others)
        assert has_result(last) == (last.tool != "finish")


def test_replies_of_a_real_file_have_usage(corpus: Path) -> None:
    for session in read_sessions(corpus / REAL):
        infos = [message.info for message in session.messages]
        answers = [info for info in infos if isinstance(info, AssistantInfo)]
        assert answers
        assert all(info.tokens and info.tokens.total for info in answers)
