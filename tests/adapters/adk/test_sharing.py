"""Histories in ADK: plugins in turn, deleted sessions, final responses."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="needs the extra `adk`")

from google.adk.models.llm_request import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.tool_context import ToolContext
from google.genai import types

import foldmark
from foldmark.adapters import adk
from tests.support.adk_agents import (
    Contents,
    Scripted,
    agent,
    called,
    plugin,
    ran,
    runner,
    said,
    sqlite_service,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def answering() -> Scripted:
    return Scripted(script=lambda number, _: said(f"answer {number}"))


def words(view: Contents) -> list[str | None]:
    return [part.text for content in view for part in content.parts or ()]


async def deleted(run: Runner) -> None:
    await run.session_service.delete_session(app_name="app", user_id="u", session_id="s1")


@pytest.mark.parametrize("is_kept", [False, True])
async def test_two_plugins_take_turns_in_one_conversation(tmp_path: Path, *, is_kept: bool) -> None:
    model = answering()
    sessions = sqlite_service(tmp_path) if is_kept else InMemorySessionService()
    plugins = [plugin(tmp_path, wait_seconds=0.2) for _ in range(2)]
    runs = [runner(agent(model), one, sessions) for one in plugins]
    expected: list[str] = []
    for turn in range(1, 6):
        await ran(runs[turn % 2], f"request {turn}")
        expected.append(f"request {turn}")
        assert words(model.seen[-1]) == expected
        expected.append(f"answer {turn}")
    (session,) = plugins[0].sessions.values()
    assert len(session.export().messages) == len(expected) + 1  # and where it begins
    for run in runs:
        await run.close()


async def test_a_session_that_was_taken_by_another_is_a_clear_error(tmp_path: Path) -> None:
    run = runner(agent(answering()), plugin(tmp_path, wait_seconds=0.1))
    with foldmark.open(tmp_path / "agent.db", session="app/u/s1/worker") as other:
        other.user("Mine.")
        with pytest.raises(RuntimeError, match="is being written by"):
            await ran(run, "request")
    await run.close()


async def test_the_last_answer_is_kept_also_where_nobody_reads_on(tmp_path: Path) -> None:
    model = answering()
    run = runner(agent(model), plugin(tmp_path))
    message = said("What is it?", "user")
    going = run.run_async(user_id="u", session_id="s1", new_message=message)
    async for event in going:
        if event.is_final_response():
            break  # as many programs do
    await run.close()
    run = runner(agent(model), plugin(tmp_path))
    await ran(run, "What did you say?")
    assert words(model.seen[-1]) == ["What is it?", "answer 1", "What did you say?"]
    await run.close()


async def test_a_result_that_ends_a_run_is_kept(tmp_path: Path) -> None:
    def order(path: str, tool_context: ToolContext) -> dict[str, Any]:
        """Order it."""
        tool_context.actions.skip_summarization = True
        return {"ordered": path}

    def script(number: int, _: LlmRequest) -> types.Content:
        return called("number 7", tool="order") if number == 1 else said("Well.")

    model = Scripted(script=script)
    run = runner(agent(model, tools=[order]), plugin(tmp_path))
    await ran(run, "Order it.")
    await run.close()
    run = runner(agent(model, tools=[order]), plugin(tmp_path))
    await ran(run, "Was it ordered?")
    results = [part.function_response for content in model.seen[-1] for part in content.parts or ()]
    assert [result.response for result in results if result] == [{"ordered": "number 7"}]
    await run.close()


async def test_an_answer_is_kept_once_though_the_next_request_tells_it_again(
    tmp_path: Path,
) -> None:
    ours = plugin(tmp_path)
    model = answering()
    run = runner(agent(model), ours)
    for turn in range(3):
        await ran(run, f"request {turn}")
    (session,) = ours.sessions.values()
    assert [message.is_user for message in session.export().messages][1:] == [True, False] * 3
    assert not session.operations()
    await run.close()


# What ADK had in memory is lost with a restart, not deleted.
@pytest.mark.parametrize(("is_kept", "restarts"), [(False, False), (True, False), (True, True)])
async def test_nothing_of_a_deleted_session_is_shown_again(
    tmp_path: Path, *, is_kept: bool, restarts: bool
) -> None:
    model = answering()
    sessions = sqlite_service(tmp_path) if is_kept else InMemorySessionService()
    ours = plugin(tmp_path)
    run = runner(agent(model), ours, sessions)
    await ran(run, "the secret is 17")
    await ran(run, "go on")
    await deleted(run)
    if restarts:
        await run.close()
        ours = plugin(tmp_path)
        run = runner(agent(model), ours, sessions)
    for turn in range(2):
        await ran(run, f"fresh {turn}")
        assert words(model.seen[-1])[0] == "fresh 0"
        assert "17" not in str(model.seen[-1])
    (session,) = ours.sessions.values()
    assert session.search("secret")  # it is hidden, and not lost
    await run.close()


async def test_a_conversation_that_went_on_from_the_store_goes_on_after_others_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adk, "_MAX_OPEN", 1)
    model = answering()
    run = runner(agent(model), plugin(tmp_path))
    await ran(run, "the number is 17")
    await run.close()
    run = runner(agent(model), plugin(tmp_path))
    for turn in range(3):
        await ran(run, f"request {turn}")
        assert words(model.seen[-1])[:3] == ["the number is 17", "answer 1", "request 0"]
        assert len(words(model.seen[-1])) == 2 * turn + 3
        await ran(run, "Hello.", session="another")  # the first one is closed for it
    await run.close()
