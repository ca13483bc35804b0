"""Foldmark in Google's ADK: the real framework, a scripted model."""

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
from google.genai import errors, types

from foldmark.adapters.adk import FoldmarkPlugin
from foldmark.model.messages import AssistantInfo
from foldmark.tokens.counters import counter
from tests.support.adk_agents import (
    TOO_LONG,
    WINDOW,
    Contents,
    Scripted,
    agent,
    chance,
    plugin,
    ran,
    refusal,
    runner,
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
    saved = await run.session_service.get_session(app_name="app", user_id="u", session_id=session)
    assert saved is not None
    return saved.events


# --- what must hold of every request ---


def check_fits(ours: FoldmarkPlugin, view: Contents, window: int = WINDOW) -> None:
    for session in ours.sessions.values():
        assert session.plan().tokens <= session.usable
        count = counter(session.policy.estimate)
        assert sum(count(words) for words in map(str, spoken(view))) <= window


def spoken(view: Contents) -> list[object]:
    """The content that a model reads."""
    parts = [part for content in view for part in content.parts or ()]
    calls = [part.function_call.args for part in parts if part.function_call]
    results = [part.function_response.response for part in parts if part.function_response]
    return [*calls, *results, *(part.text for part in parts if part.text)]


# --- whole runs ---


async def test_nothing_changes_while_all_fits(tmp_path: Path) -> None:
    ours = plugin(tmp_path, window=100_000)
    bare, model = (Scripted(script=steps(chance(1), 6)) for _ in range(2))
    await ran(
        runner(agent(bare), FoldmarkPlugin(tmp_path / "x.db", window=WINDOW, auto=False)), "Go."
    )
    run = runner(agent(model), ours)
    await ran(run, "Go.")
    assert bare.seen == model.seen
    await run.close()


async def test_a_restart_goes_on_with_adks_own_history(tmp_path: Path) -> None:
    script = steps(chance(5), 15)
    folds, view_text = 0, ""
    for turn in range(4):
        ours = plugin(tmp_path)
        model = Scripted(script=script)
        run = runner(agent(model), ours, sqlite_service(tmp_path))
        await ran(run, f"Request {turn}: the number is {turn}77.")
        (session,) = ours.sessions.values()
        requests = [message for message in session.export().messages if message.is_user]
        said_first = [m for m in requests if "Request" in str(m.parts) and "Digest" not in str(m)]
        assert len(said_first) == turn + 1, "a request was taken twice, or not at all"
        folds = [act.kind for act in session.operations()].count("pivot")
        view_text = texts(model.seen[-1])
        await run.close()
    assert folds >= 2
    assert "077" in view_text, "the first request is lost"


# --- refusals ---


async def test_a_shorter_view_is_counted_as_a_call(tmp_path: Path) -> None:
    ours = plugin(tmp_path, window=60_000)
    usual = steps(chance(2), 30)

    def script(number: int, request: LlmRequest) -> types.Content | Exception:
        is_long = len("".join(map(str, spoken(request.contents)))) > 8_000
        return refusal() if is_long else usual(number, request)

    model = Scripted(script=script)
    run = runner(agent(model), ours)
    with pytest.raises((errors.ClientError, LlmCallsLimitExceededError)):
        await ran(run, "Go.", run_config=RunConfig(max_llm_calls=10))
    sizes = [len("".join(map(str, spoken(view)))) for view in model.seen]
    assert any(size > 8_000 for size in sizes)
    assert len(model.seen) <= 10
    await run.close()


# --- sync, streams, histories that change ---


async def test_a_stream_comes_in_pieces_and_is_folded(tmp_path: Path) -> None:
    ours = plugin(tmp_path)
    model = Scripted(script=steps(chance(4), 30))
    run = runner(agent(model), ours)
    events = await ran(run, "Go.", run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert any(event.partial for event in events)
    assert len([event for event in await kept(run) if event.partial]) == 0
    assert any(act.kind == "pivot" for act in next(iter(ours.sessions.values())).operations())
    check_fits(ours, model.seen[-1])
    await run.close()


async def test_an_agent_that_wants_no_history_is_shown_none(tmp_path: Path) -> None:
    ours = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 3))
    run = runner(agent(model, include_contents="none"), ours)
    for turn in range(4):
        await ran(run, f"Request {turn}.")
        assert "Request" in texts(model.seen[-1])
        assert texts(model.seen[-1]).count("Request ") == 1
    await run.close()


async def test_a_rewound_session_shows_nothing_of_what_was_taken_back(tmp_path: Path) -> None:
    ours = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 3))
    run = runner(agent(model), ours)
    runs = [await ran(run, f"Request {turn}.") for turn in range(3)]
    for turn in (1, 0):
        await run.rewind_async(
            user_id="u", session_id="s1", rewind_before_invocation_id=runs[turn][0].invocation_id
        )
        await ran(run, "Otherwise.")
        assert "Request 2" not in texts(model.seen[-1])
        assert ("Request 0" in texts(model.seen[-1])) is (turn == 1)
    await run.close()


async def test_instructions_that_move_with_each_request_harm_nobody(tmp_path: Path) -> None:
    ours = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 25))
    worker = agent(model, static_instruction="You read.", instruction="It is noon.")
    run = runner(worker, ours)
    for turn in range(2):
        await ran(run, f"Request {turn}.")
        check_fits(ours, model.seen[-1])
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
    replies = [answer(signed)] * 12 + [refused, answer({"text": "Well."})]
    ours = plugin(tmp_path, window=30_000)
    with provider(*replies) as server:
        gemini = Gemini(model="gemini-2.5-flash", base_url=server.url)
        run = runner(agent(gemini), ours)
        events = await ran(run, "Go.")
        await gemini.api_client.aio.aclose()
    assert "Well." in str(events[-1].content)
    assert len(server.requests) == 14
    assert len(json.dumps(server.requests[-1]["contents"])) < len(
        json.dumps(server.requests[-2]["contents"])
    )
    assert "c2lnbmVk" in json.dumps(server.requests[-2])
    (session,) = ours.sessions.values()
    infos = [message.info for message in session.export().messages]
    measured = [info.tokens for info in infos if isinstance(info, AssistantInfo) and info.tokens]
    assert measured
    assert measured[0].input == 300
    await run.close()
