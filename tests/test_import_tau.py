"""Runs of τ-bench and τ²-bench: episodes and simulations are sessions."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, TextPart, ToolPart, Transcript, has_result
from foldmark.transcripts.format import Format
from foldmark.transcripts.formats import tau2_bench, tau_bench
from foldmark.transcripts.read import opened_reading, read_file, read_sessions
from foldmark.transcripts.source import opened_source
from foldmark.wire.formats import encode

from .bending import assert_acceptable, bent_lines, read_leniently
from .telling import shown

TAU, TAU2 = tau_bench.FORMAT, tau2_bench.FORMAT
REAL = "tau-bench/tau_gpt-4o-airline_first40.json"
REAL2 = "tau2-bench/tau2_toolorchestra_airline_gpt-5.json"
Line = dict[str, Any]
FUNCTION = {"name": "find", "arguments": '{"id": 1}'}
TRAJ: list[Line] = [
    {"role": "system", "content": "Sell tickets."},
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "find", "content": "one"},
    {"role": "assistant", "content": "I found one."},
]
EPISODE: Line = {
    "task_id": 3,
    "reward": 1.0,
    "info": {"task": {"instruction": "You want a ticket. " * 9}},
    "traj": TRAJ,
    "trial": 0,
}
SIMULATION: Line = {
    "id": "sim-1",
    "task_id": "7",
    "trial": 1,
    "start_time": "2026-01-02T03:04:05",
    "end_time": "2026-01-02T03:05:05",
    "termination_reason": "user_stop",
    "reward_info": {"reward": 0.5},
    "messages": [
        {"role": "assistant", "content": "How can I help?", "tool_calls": None, "turn_idx": 0},
        {
            "role": "user",
            "content": None,
            "tool_calls": [
                {"id": "u1", "name": "look", "arguments": {"at": "phone"}, "requestor": "user"}
            ],
            "turn_idx": 1,
        },
        {"role": "tool", "id": "u1", "content": "no signal", "requestor": "user", "turn_idx": 2},
        {"role": "user", "content": "No signal.", "timestamp": "2026-01-02T03:04:15"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "name": "find", "arguments": {"id": 1}, "requestor": "assistant"},
                {"id": "c2", "name": "find", "arguments": {"id": 2}, "requestor": "assistant"},
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            "cost": 0.5,
            "timestamp": "2026-01-02T03:04:25",
        },
        {
            "role": "tool",
            "tool_messages": [
                {"role": "tool", "id": "c1", "content": "one", "requestor": "assistant"},
                {"role": "tool", "id": "c2", "content": "none", "error": True},
            ],
        },
    ],
}
RUN: Line = {
    "timestamp": "2026-01-02T03:00:00",
    "info": {
        "agent_info": {"llm": "openai/gpt-x"},
        "environment_info": {"policy": "Sell tickets.", "tool_defs": [{"name": "find"}]},
    },
    "tasks": [{"id": "7", "description": {"purpose": "A ticket\nis wanted."}}],
    "simulations": [SIMULATION],
}


def written(folder: Path, value: object, indent: int | None = None) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps(value, indent=indent))
    return path


def only(format: Format, value: object) -> Transcript:
    (session,) = read_leniently(format, [value])
    return session


# --- τ-bench --------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_an_episode_is_a_session_named_by_its_task_and_trial(
    tmp_path: Path, indent: int | None
) -> None:
    (session,) = read_sessions(written(tmp_path, [EPISODE], indent))
    assert session.info.id == "run-3-0"
    assert session.info.title
    assert session.info.title.startswith("You want a ticket. You want")
    assert len(session.info.title) == 80
    assert session.extra == {TAU.name: {"task_id": 3, "trial": 0, "reward": 1.0}}
    assert session.info.origin
    assert session.info.origin.system == "Sell tickets."
    assert shown(*session.messages) == [
        "user: hello",
        "call c1",
        "text c1: one",
        "assistant: I found one.",
    ]


def test_an_episode_comes_back_as_it_was() -> None:
    session = only(TAU, [EPISODE])
    assert encode(session.messages, "openai-chat", session.info.origin or None) == TRAJ


def test_episodes_of_the_same_task_have_names_of_their_own() -> None:
    sessions = read_leniently(TAU, [[EPISODE, {**EPISODE, "trial": 1}, EPISODE]])
    assert [session.info.id for session in sessions] == ["kept-3-0", "kept-3-1", "kept-3-0-3"]


def test_an_episode_that_is_none_is_refused_by_its_message(tmp_path: Path) -> None:
    broken = {**EPISODE, "traj": [TRAJ[0], {"role": "narrator"}]}
    with pytest.raises(BadInput) as caught:
        read_sessions(written(tmp_path, [broken]))
    assert caught.value.place
    assert "message 2" in caught.value.place


# --- τ²-bench -------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_a_simulation_is_a_session_with_the_policy_as_its_prompt(
    tmp_path: Path, indent: int | None
) -> None:
    (session,) = read_sessions(written(tmp_path, RUN, indent))
    info = session.info
    assert (info.id, info.title) == ("sim-1", "A ticket is wanted.")
    assert info.origin
    assert (info.origin.system, info.origin.tools) == ("Sell tickets.", [{"name": "find"}])
    assert info.time
    assert (info.time.created, info.time.updated) == (1_767_323_045_000, 1_767_323_105_000)
    facts = {"task_id": "7", "trial": 1, "termination_reason": "user_stop", "reward": 0.5}
    assert session.extra == {TAU2.name: facts}


def test_the_agent_is_not_shown_what_the_users_own_tools_say() -> None:
    session = only(TAU2, RUN)
    lines = shown(*session.messages)
    assert lines[-6:] == [
        "user: No signal.",
        "assistant: Let me see.",
        "call c1",
        "call c2",
        "text c1: one",
        "error-text c2: none",
    ]
    assert not any("phone" in line or "no signal" in line for line in lines)
    unseen = [
        part.text
        for message in session.messages
        for part in message.parts
        if isinstance(part, TextPart) and part.ignored
    ]
    assert unseen == ['look {"at":"phone"}', "no signal"]


def test_answers_carry_what_was_measured() -> None:
    session = only(TAU2, RUN)
    last = session.messages[-1]
    info = last.info
    assert isinstance(info, AssistantInfo)
    assert (info.provider_id, info.model_id, info.cost) == ("openai", "gpt-x", 0.5)
    assert info.finish == "tool-calls"
    assert info.tokens
    assert (info.tokens.input, info.tokens.output) == (100, 10)
    assert info.time
    assert info.time.created == 1_767_323_065_000
    failed = last.parts[-1]
    assert isinstance(failed, ToolPart)
    assert failed.state.metadata == {"is_error": True}


def test_calls_of_the_user_are_counted_as_well(tmp_path: Path) -> None:
    read = read_file(written(tmp_path, RUN))
    assert (read.messages, read.calls, read.results) == (6, 3, 3)


def test_simulations_without_names_are_named_by_their_tasks() -> None:
    nameless = {**SIMULATION, "id": None}
    run = {**RUN, "simulations": [nameless, SIMULATION, nameless, SIMULATION]}
    sessions = read_leniently(TAU2, [run])
    names = [session.info.id for session in sessions]
    assert names == ["kept-7-1", "sim-1", "kept-7-1-3", "sim-1-4"]


def test_odd_arguments_and_contents_are_kept() -> None:
    run = deepcopy(RUN)
    messages = run["simulations"][0]["messages"]
    messages[4]["tool_calls"][0]["arguments"] = "loose"
    messages[3]["content"] = [{"text": "hi"}]
    messages.append({"role": "system", "content": "Be quick."})
    session = only(TAU2, run)
    assert 'user: [{"text":"hi"}]' in shown(*session.messages)
    (call, _) = [
        part for message in session.messages for part in message.parts if isinstance(part, ToolPart)
    ]
    assert call.state.input == {"arguments": "loose"}
    (last,) = session.messages[-1].parts
    assert isinstance(last, TextPart)
    assert (last.text, last.synthetic) == ("Be quick.", True)


def test_a_role_that_is_not_known_is_refused(tmp_path: Path) -> None:
    run = {**RUN, "simulations": [{"messages": [{"role": "narrator"}]}]}
    with pytest.raises(BadInput, match="narrator"):
        read_sessions(written(tmp_path, run))


# --- anything else --------------------------------------------------------------------------


@given(bent_lines([[EPISODE, EPISODE]]))
def test_whatever_episodes_hold_is_read_or_refused(records: list[Any]) -> None:
    for session in read_leniently(TAU, records):
        assert_acceptable(session.messages)


@given(bent_lines([RUN]))
def test_whatever_simulations_hold_is_read_or_refused(records: list[Any]) -> None:
    for session in read_leniently(TAU2, records):
        assert_acceptable(session.messages)
        assert len({message.id for message in session.messages}) == len(session.messages)


@pytest.mark.parametrize("value", [[], {}, [3], [{"task_id": 1}], {"simulations": [], "info": {}}])
def test_other_documents_are_not_taken_for_runs(tmp_path: Path, value: object) -> None:
    with opened_source(written(tmp_path, value)) as source:
        assert not TAU.recognises(source.head)
        assert not TAU2.recognises(source.head)


# --- real files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "counts", "sessions"),
    [(REAL, (1222, 254, 254), 40), (REAL2, (516, 208, 208), 20)],
)
def test_a_real_file_has_as_many_messages_as_are_counted(
    corpus: Path, name: str, counts: tuple[int, int, int], sessions: int
) -> None:
    read = read_file(corpus / name)
    assert (read.messages, read.calls, read.results) == counts
    assert len({session.info.id for session in read.sessions}) == sessions
    for session in read.sessions:
        assert session.info.title
        assert session.info.origin
        assert session.info.origin.system
        assert_acceptable(session.messages)
        assert len({message.id for message in session.messages}) == len(session.messages)
        calls = [part for held in session.messages for part in held.parts]
        assert all(has_result(part) for part in calls if isinstance(part, ToolPart))
    assert read_file(corpus / name) == read


def test_every_episode_of_a_real_file_comes_back_as_it_was(corpus: Path) -> None:
    episodes = json.loads((corpus / REAL).read_bytes())
    for episode, session in zip(episodes, read_sessions(corpus / REAL), strict=True):
        written = encode(session.messages, "openai-chat", session.info.origin or None)
        assert written == episode["traj"]


def test_all_that_is_said_in_a_real_simulation_is_in_its_session(corpus: Path) -> None:
    run = json.loads((corpus / REAL2).read_bytes())
    for simulation, session in zip(run["simulations"], read_sessions(corpus / REAL2), strict=True):
        lines = "\n".join(shown(*session.messages))
        for message in simulation["messages"]:
            assert (message["content"] or "") in lines


def test_only_these_files_of_all_real_ones_are_recognised(corpus: Path) -> None:
    for path in corpus.glob("*/*"):
        with opened_source(path) as source:
            assert TAU.recognises(source.head) is (path == corpus / REAL)
            assert TAU2.recognises(source.head) is (path == corpus / REAL2)
    with opened_reading(corpus / REAL2) as reading:
        assert reading.format is TAU2
