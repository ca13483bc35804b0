"""Items of the Agents SDK: none is lost or changed, whatever was folded.

FOLDMARK_EXAMPLES=10000 looks harder.
"""

import asyncio
import random
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from agents import Agent
from agents.run_config import CallModelData, ModelInputData

import foldmark
from foldmark.adapters.openai_agents import FoldmarkSession
from foldmark.adapters.openai_agents.items import ItemsMirror
from tests.support.effort import examples
from tests.support.scripted_openai_agents import asked, called, check_pairs, gave, said

EXAMPLES = examples(30, 150)
Json = dict[str, Any]
PIXEL = "data:image/png;base64,iVBORw0KGgo="

THINKING: Json = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [
        {"type": "summary_text", "text": "I must look."},
        {"type": "summary_text", "text": "Then say."},
    ],
    "encrypted_content": "gAAAA-bound-to-rs_1",
    "status": "completed",
}
STORED_THINKING: Json = {
    "type": "reasoning",
    "id": "rs_2",
    "summary": [],
}  # the provider has the rest
# Every kind of item that the SDK keeps, each with all its fields, as runs that end well.
RUNS: dict[str, list[Json]] = {
    "easy": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}],
    "typed": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Be brief."}],
        },
        {"role": "system", "content": "Be kind."},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Hi"}],
            "status": "completed",
        },
    ],
    "files": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": PIXEL, "detail": "high"},
                {"type": "input_image", "file_id": "file_7", "detail": "auto"},
                {"type": "input_file", "file_url": "https://example.org/a.pdf"},
                {
                    "type": "input_file",
                    "filename": "a.txt",
                    "file_data": "data:text/plain;base64,QQ==",
                },
            ],
        }
    ],
    "message": [
        asked("Go"),
        {
            "type": "message",
            "id": "msg_7",
            "role": "assistant",
            "status": "completed",
            "phase": "final_answer",
            "content": [
                {
                    "type": "output_text",
                    "text": "See [1].",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://example.org",
                            "title": "E",
                            "start_index": 4,
                            "end_index": 7,
                        }
                    ],
                    "logprobs": [],
                },
                {"type": "refusal", "refusal": "No more."},
            ],
        },
    ],
    "calls": [
        asked("Go"),
        THINKING,
        {
            **called("a", '{"n": 1}'),
            "status": "completed",
            "_agents_tool_description": "Look.",
            "namespace": "n",
        },
        {**called("b", '{ "n":2 }'), "status": "completed"},
        {**gave("b", "two"), "id": "fco_1", "status": "completed"},
        gave(
            "a",
            [
                {"type": "input_text", "text": "one"},
                {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
            ],
        ),
        STORED_THINKING,
        said("Both.", "msg_8"),
    ],
    "custom": [
        asked("Go"),
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "c",
            "name": "patch",
            "input": "*** Begin",
        },
        {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."},
    ],
    "shell": [
        asked("Go"),
        {
            "type": "shell_call",
            "id": "sh_1",
            "call_id": "s",
            "action": {"commands": ["ls"], "timeout_ms": 10},
            "status": "completed",
        },
        {
            "type": "shell_call_output",
            "call_id": "s",
            "output": [
                {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
            ],
            "max_output_length": 100,
        },
    ],
    "computer": [
        asked("Go"),
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "cc",
            "action": {"type": "screenshot"},
            "pending_safety_checks": [],
            "status": "completed",
        },
        {
            "type": "computer_call_output",
            "call_id": "cc",
            "output": {"type": "computer_screenshot", "image_url": PIXEL},
            "acknowledged_safety_checks": [],
        },
    ],
    "hosted": [
        asked("Go"),
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        },
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["q"],
            "results": [{"text": "t"}],
        },
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "code": "1",
            "container_id": "c",
            "outputs": [],
            "status": "completed",
        },
        {"type": "image_generation_call", "id": "ig_1", "result": "QQ==", "status": "completed"},
        {"type": "mcp_list_tools", "id": "ml_1", "server_label": "s", "tools": []},
        {
            "type": "mcp_call",
            "id": "mc_1",
            "name": "t",
            "server_label": "s",
            "arguments": "{}",
            "output": "o",
        },
        said("Found.", "msg_9"),
        {
            "type": "mcp_approval_request",
            "id": "ma_1",
            "name": "t",
            "server_label": "s",
            "arguments": "{}",
        },
        {"type": "mcp_approval_response", "approval_request_id": "ma_1", "approve": True},
        {"type": "compaction", "id": "cm_1", "encrypted_content": "gAAAA"},
    ],
    "odd": [
        {"role": "user", "content": []},
        {"role": "user", "content": ""},
        gave("never", "an orphan"),
        called("open"),
        {**said(" ", "msg_a"), "content": []},
        asked("Again"),
        asked("Again"),
        gave("open", "late"),
        {"type": "something_new", "id": "x", "of": {"deep": [1, None, True, 1.5]}},
        {"type": "reasoning", "id": "rs_without_a_summary"},
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "*** Begin"},
        gave("d", "told as a function's"),
        {
            "role": "user",
            "content": [
                {"type": "input_file", "file_data": "data:a/b;base64,QQ==", "filename": None}
            ],
        },
        {"type": None, "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
    ],
}


def opened(folder: Path, name: str = "one", window: int = 100_000) -> FoldmarkSession:
    return FoldmarkSession(name, folder / "agent.db", window=window, output=200, durable=False)


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("at_once", [True, False])
def test_every_kind_of_item_comes_back_from_the_store_as_it_was(
    tmp_path: Path, kind: str, *, at_once: bool
) -> None:
    items = RUNS[kind]

    async def add() -> None:
        with opened(tmp_path) as session:
            for batch in [items] if at_once else [[item] for item in items]:
                await session.add_items(list(batch))
            assert await session.get_items() == items

    async def found() -> None:
        with opened(tmp_path) as session:
            assert await session.get_items() == items

    asyncio.run(add())
    asyncio.run(found())


@pytest.mark.parametrize("kind", sorted(set(RUNS) - {"odd"}))
def test_what_is_shown_unaltered_is_sent_as_it_was(tmp_path: Path, kind: str) -> None:
    items = [{n: value for n, value in item.items() if n[0] != "_"} for item in RUNS[kind]]
    for _ in range(2):  # as it came, then from the store
        with opened(tmp_path) as session:
            if not asyncio.run(session.get_items()):
                asyncio.run(session.add_items(list(RUNS[kind])))
            sent_items = asyncio.run(view(session, items)).input
            assert [item for item in sent_items if item not in items] == []
            assert len(sent_items) == len(items)
            check_pairs(sent_items)


async def view(session: FoldmarkSession, items: list[Any]) -> Any:
    data = ModelInputData(input=list(items), instructions="Be brief.")
    agent: Agent[Any] = Agent(name="worker")
    asked_for = session.filter(CallModelData(model_data=data, agent=agent, context=None))
    # Each in a context of its own: within one, the SDK adds items between two requests.
    return await asyncio.create_task(asked_for, context=Context())


def test_a_hidden_output_leaves_the_call_and_its_thinking_alone(tmp_path: Path) -> None:
    items: list[Json] = [asked("Go")]
    for step in range(24):
        items += [
            {**THINKING, "id": f"rs_{step}"},
            called(f"c{step}"),
            gave(f"c{step}", f"line {step}\n" * 100),
        ]
    with opened(tmp_path, window=6_000) as session:
        asyncio.run(session.add_items(list(items)))
        sent_items = asyncio.run(view(session, items)).input
        assert [act.kind for act in session.session.operations()] == ["prune"]
        assert [item for item in sent_items if item.get("type") != "function_call_output"] == [
            item for item in items if item.get("type") != "function_call_output"
        ]
        assert sum(item in items for item in sent_items) < len(items)


def test_the_hidden_output_of_a_shell_takes_another_form_with_its_call(tmp_path: Path) -> None:
    items: list[Json] = [asked("Go")]
    for step in range(24):
        _, call, result = RUNS["shell"]
        text = [{**result["output"][0], "stdout": f"line {step}\n" * 100}]
        items += [
            {**call, "id": f"sh_{step}", "call_id": f"s{step}"},
            {**result, "call_id": f"s{step}", "output": text},
        ]
    with opened(tmp_path, window=6_000) as session:
        asyncio.run(session.add_items(list(items)))
        sent_items = asyncio.run(view(session, items)).input
        check_pairs(sent_items)
        kinds = {item["type"] for item in sent_items if "call_id" in item}
        assert kinds == {
            "shell_call",
            "shell_call_output",
            "function_call",
            "function_call_output",
        }
        assert asyncio.run(session.get_items()) == items


def test_what_was_sent_before_it_was_added_is_there_once(tmp_path: Path) -> None:
    asyncio.run(once(tmp_path))


async def once(folder: Path) -> None:
    talk = [asked("Yes"), called("a"), gave("a", "one"), asked("Yes"), said("Well.")]
    with opened(folder) as session:
        for end in (1, 3, 4):
            await view(session, talk[:end])
        await session.add_items(talk[:1])
        await session.add_items(talk[1:3])
        await session.add_items(talk[3:])
        assert await session.get_items() == talk
        await session.add_items([asked("Yes")])
        await view(session, [*talk, asked("Yes")])
        assert await session.get_items() == [*talk, asked("Yes")]
        assert not session.session.operations()


def test_a_list_that_leaves_out_open_calls_is_still_ours(tmp_path: Path) -> None:
    items = [asked("Go"), THINKING, called("open"), asked("Again")]
    with opened(tmp_path) as session:
        asyncio.run(session.add_items(list(items)))
        sent_items = asyncio.run(view(session, [items[0], items[3]])).input
        check_pairs(sent_items)
        assert sent_items[1]["encrypted_content"]
        assert not session._others  # pyright: ignore[reportPrivateUsage]


# --- fuzz -----------------------------------------------------------------------------------------


def test_random_sessions_have_no_orphans_and_stay_within_their_window(tmp_path: Path) -> None:
    rng = random.Random(11)  # noqa: S311 - the same each time
    for number in range(EXAMPLES):
        # A store for some: one for all grows, and one for each costs more than the work.
        asyncio.run(fuzzed(rng, tmp_path / f"{number // 50}", f"s{number}"))


async def fuzzed(rng: random.Random, folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    window = rng.choice([1_500, 2_500, 4_000, 8_000])
    history: list[Json] = []
    session = opened(folder, name, window)
    try:
        for step in range(rng.randint(3, 8)):
            if rng.random() < 0.08:
                session.close()
                session = opened(folder, name, window)
                assert await session.get_items() == history
            if history and rng.random() < 0.08:
                assert await session.pop_item() == history.pop()
            new = random_items(rng, f"{name}_{step}", window)
            if rng.random() < 0.3:
                await view(session, [*history, *new])  # sent first
            await session.add_items(list(new))
            history += new
            sent_items = (await view(session, history)).input
            check_pairs(sent_items)
            assert session.session.tokens <= session.session.usable
        assert await session.get_items() == history
        assert not session._others  # pyright: ignore[reportPrivateUsage]
    finally:
        session.close()


def random_items(rng: random.Random, name: str, window: int) -> list[Json]:
    """A user message, or a response with one to four calls, some without results."""
    if rng.random() < 0.3:
        return [asked(f"Request {name}: " + "please " * rng.randint(1, 20))]
    names = [f"{name}_{number}" for number in range(rng.randint(1, 4))]
    items: list[Json] = []
    if rng.random() < 0.3:
        items.append({**THINKING, "id": f"rs_{name}"})
    if rng.random() < 0.3:
        items.append(said("I look.", f"msg_{name}"))
    items += [called(call, f'{{"n": "{call}"}}') for call in names]
    results = [gave(call, "word " * rng.randint(1, window // 8)) for call in names]
    rng.shuffle(results)
    return items + [result for result in results if rng.random() < 0.92]


def test_a_session_written_elsewhere_has_items_of_its_own_only(tmp_path: Path) -> None:
    with foldmark.open(tmp_path / "agent.db", session="one", window=8_000) as plain:
        plain.user("Said without the SDK.")
        followed = ItemsMirror(plain)
        followed.add([asked("Said with it.")])
        assert followed.items == [asked("Said with it.")]
        assert followed.view() == [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Said without the SDK."}],
            },
            asked("Said with it."),
        ]
