"""Foldmark in Google's ADK: the real framework, a scripted model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="needs the extra `adk`")

from google.adk.agents import RunConfig
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.agents.run_config import StreamingMode  # pyright: ignore[reportPrivateImportUsage] - as ADK's guides do
from google.adk.events import Event
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import errors, types

from foldmark.adapters.adk import FoldmarkPlugin
from foldmark.model.messages import AssistantInfo
from foldmark.tokens.counters import counter
from tests.support.adk_agents import (
    TOO_LONG,
    WINDOW,
    Contents,
    Script,
    Scripted,
    agent,
    chance,
    plugin,
    ran,
    refusal,
    runner,
    said,
    sqlite_service,
    steps,
    texts,
)
from tests.support.provider_server import Sent, provider

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# --- a model by a script, and agents for it ---


async def kept(run: Runner, session: str = "s1") -> list[Event]:
    found = await run.session_service.get_session(app_name="app", user_id="u", session_id=session)
    assert found is not None
    return found.events


# --- what must hold of every request ---


def check_fits(held: FoldmarkPlugin, view: Contents, window: int = WINDOW) -> None:
    for session in held.sessions.values():
        assert session.plan().tokens <= session.usable
        count = counter(session.policy.estimate)
        assert sum(count(words) for words in map(str, spoken(view))) <= window


def spoken(view: Contents) -> list[object]:
    """What a model reads of contents."""
    parts = [part for content in view for part in content.parts or ()]
    calls = [part.function_call.args for part in parts if part.function_call]
    results = [part.function_response.response for part in parts if part.function_response]
    return [*calls, *results, *(part.text for part in parts if part.text)]


# --- whole runs ---


async def test_two_hundred_steps_never_overflow_and_lose_nothing(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(3), 20))
    run = runner(agent(model), held)
    events: list[Event] = []
    turn = 0
    while len(model.seen) < 200:
        turn += 1
        events += await ran(run, f"Request {turn}: go on.", stop=turn % 4 == 0)
        check_fits(held, model.seen[-1])
    (session,) = held.sessions.values()
    assert [act.kind for act in session.operations()].count("pivot") >= 2
    # ADK's own session has every event as it was told, and every request.
    own = await kept(run)
    assert [event.id for event in own if event.author != "user"] == [event.id for event in events]
    assert sum(event.author == "user" for event in own) == turn
    longest = max(len(str(event.content)) for event in own if event.get_function_responses())
    assert longest > 2_000
    assert session.search("Request 1")
    await run.close()
    assert not held.sessions


async def test_nothing_changes_while_all_fits(tmp_path: Path) -> None:
    held = plugin(tmp_path, window=100_000)
    bare, seen = (Scripted(script=steps(chance(1), 6)) for _ in range(2))
    await ran(
        runner(agent(bare), FoldmarkPlugin(tmp_path / "x.db", window=WINDOW, auto=False)), "Go."
    )
    run = runner(agent(seen), held)
    await ran(run, "Go.")
    assert bare.seen == seen.seen
    await run.close()


@pytest.mark.parametrize("forgets", [False, True])
async def test_a_restart_goes_on_from_the_store(tmp_path: Path, *, forgets: bool) -> None:
    script = steps(chance(5), 15)
    folds, shown = 0, ""
    for turn in range(4):
        held = plugin(tmp_path)
        model = Scripted(script=script)
        services = InMemorySessionService() if forgets else sqlite_service(tmp_path)
        run = runner(agent(model), held, services)
        await ran(run, f"Request {turn}: the number is {turn}77.")
        (session,) = held.sessions.values()
        requests = [message for message in session.export().messages if message.is_user]
        said_first = [m for m in requests if "Request" in str(m.parts) and "Digest" not in str(m)]
        assert len(said_first) == turn + 1, "a request was taken twice, or not at all"
        folds = [act.kind for act in session.operations()].count("pivot")
        shown = texts(model.seen[-1])
        await run.close()
    assert folds >= 2
    assert "077" in shown, "the first request is lost"


# --- refusals ---


def refusing(limit: int, error: Exception) -> Script:
    """Refuses what is longer than so many characters."""
    usual = steps(chance(2), 30)

    def script(number: int, request: LlmRequest) -> types.Content | Exception:
        is_long = len("".join(map(str, spoken(request.contents)))) > limit
        return error if is_long else usual(number, request)

    return script


def always(error: Exception) -> Script:
    def script(number: int, request: LlmRequest) -> Exception:
        return error

    return script


@pytest.mark.parametrize("streaming", [StreamingMode.NONE, StreamingMode.SSE])
async def test_a_refusal_for_length_is_answered_by_a_shorter_view(
    tmp_path: Path, streaming: StreamingMode
) -> None:
    held = plugin(tmp_path, window=60_000)
    model = Scripted(script=refusing(40_000, refusal()))
    run = runner(agent(model), held)
    events = await ran(run, "Go.", run_config=RunConfig(streaming_mode=streaming))
    assert "is done" in str(events[-1].content)
    assert len(events) >= 50
    (session,) = held.sessions.values()
    assert session.limit is not None
    assert session.limit.context == 5_000  # it was told once, and is known from then on
    sizes = [len("".join(map(str, spoken(view)))) for view in model.seen]
    assert sum(size > 40_000 for size in sizes) == 1
    assert [event.error_code for event in events if event.error_code] == []
    await run.close()


async def test_a_second_refusal_is_the_callers(tmp_path: Path) -> None:
    held = plugin(tmp_path, window=60_000)
    model = Scripted(script=always(refusal()))
    run = runner(agent(model), held)
    with pytest.raises(errors.ClientError) as caught:
        await ran(run, "Go. " * 3_000)
    assert len(model.seen) <= 2
    assert "exceeds the maximum" in str(caught.value)
    await run.close()


async def test_other_errors_go_through_untouched(tmp_path: Path) -> None:
    error = RuntimeError("rate limit reached")
    held = plugin(tmp_path)
    model = Scripted(script=always(error))
    run = runner(agent(model), held)
    with pytest.raises(RuntimeError) as caught:
        await ran(run, "Go.")
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert len(model.seen) == 1
    assert not next(iter(held.sessions.values())).operations()
    await run.close()


async def test_a_shorter_view_is_counted_as_a_call(tmp_path: Path) -> None:
    held = plugin(tmp_path, window=60_000)
    model = Scripted(script=refusing(8_000, refusal()))
    run = runner(agent(model), held)
    with pytest.raises((errors.ClientError, LlmCallsLimitExceededError)):
        await ran(run, "Go.", run_config=RunConfig(max_llm_calls=10))
    sizes = [len("".join(map(str, spoken(view)))) for view in model.seen]
    assert any(size > 8_000 for size in sizes)
    assert len(model.seen) <= 10
    await run.close()


# --- sync, streams, histories that change ---


def test_a_blocking_run_is_folded_too(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(4), 30))
    run = runner(agent(model), held)
    events = list(run.run(user_id="u", session_id="s1", new_message=said("Go.", "user")))
    assert "is done" in str(events[-1].content)
    assert any(act.kind == "pivot" for act in next(iter(held.sessions.values())).operations())
    asyncio.run(run.close())


async def test_a_stream_comes_in_pieces_and_is_folded(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(4), 30))
    run = runner(agent(model), held)
    events = await ran(run, "Go.", run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert any(event.partial for event in events)
    assert len([event for event in await kept(run) if event.partial]) == 0
    assert any(act.kind == "pivot" for act in next(iter(held.sessions.values())).operations())
    check_fits(held, model.seen[-1])
    await run.close()


async def test_an_agent_that_wants_no_history_is_shown_none(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 3))
    run = runner(agent(model, include_contents="none"), held)
    for turn in range(4):
        await ran(run, f"Request {turn}.")
        assert "Request" in texts(model.seen[-1])
        assert texts(model.seen[-1]).count("Request ") == 1
    await run.close()


async def test_a_rewound_session_shows_nothing_of_what_was_taken_back(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 3))
    run = runner(agent(model), held)
    asked = [await ran(run, f"Request {turn}.") for turn in range(3)]
    for turn in (1, 0):
        await run.rewind_async(
            user_id="u", session_id="s1", rewind_before_invocation_id=asked[turn][0].invocation_id
        )
        await ran(run, "Otherwise.")
        assert "Request 2" not in texts(model.seen[-1])
        assert ("Request 0" in texts(model.seen[-1])) is (turn == 1)
    await run.close()


async def test_instructions_that_move_with_each_request_harm_nobody(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 25))
    worker = agent(model, static_instruction="You read.", instruction="It is noon.")
    run = runner(worker, held)
    for turn in range(2):
        await ran(run, f"Request {turn}.")
        check_fits(held, model.seen[-1])
        assert texts(model.seen[-1]).count("It is noon.") == 1
    await run.close()


# --- the real client ---


async def test_the_real_client_is_sent_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "none")
    call = {"functionCall": {"name": "read", "args": {"path": "a.py"}}}
    signed = {**call, "thoughtSignature": "c2lnbmVk"}
    usage = {"promptTokenCount": 300, "candidatesTokenCount": 9, "totalTokenCount": 309}

    def answer(*parts: Any) -> Sent:
        content = {"role": "model", "parts": list(parts)}
        candidates = [{"content": content, "finishReason": "STOP"}]
        return Sent(200, json.dumps({"candidates": candidates, "usageMetadata": usage}))

    refused = Sent(400, json.dumps(TOO_LONG))
    given = [answer(signed)] * 12 + [refused, answer({"text": "Well."})]
    held = plugin(tmp_path, window=30_000)
    with provider(*given) as server:
        gemini = Gemini(model="gemini-2.5-flash", base_url=server.url)
        run = runner(agent(gemini), held)
        events = await ran(run, "Go.")
        await gemini.api_client.aio.aclose()
    assert "Well." in str(events[-1].content)
    assert len(server.asked) == 14
    assert len(json.dumps(server.asked[-1]["contents"])) < len(
        json.dumps(server.asked[-2]["contents"])
    )
    assert "c2lnbmVk" in json.dumps(server.asked[-2])
    (session,) = held.sessions.values()
    infos = [message.info for message in session.export().messages]
    measured = [info.tokens for info in infos if isinstance(info, AssistantInfo) and info.tokens]
    assert measured
    assert measured[0].input == 300
    await run.close()
