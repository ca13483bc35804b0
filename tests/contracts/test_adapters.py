"""One contract over the adapters: what holds for Foldmark in every framework."""

import asyncio
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.model.messages import AssistantInfo
from foldmark.policy import FOLDMARK
from tests.support.adapter_contract import (
    FRAMEWORKS,
    WINDOW,
    ContractAgent,
    Reply,
    Script,
    compactions,
    contract_agent,
    stored_session,
    working,
)
from tests.support.effort import examples
from tests.support.failing_models import GatedModel

pytestmark = pytest.mark.anyio
SOON = 15.0  # seconds: only a bound
# Adapters that keep a pool of sessions, with the module of its limit.
POOLED = {
    "langchain": "foldmark.adapters.langchain.middleware",
    "pydantic_ai": "foldmark.adapters.pydantic_ai",
    "adk": "foldmark.adapters.adk",
}
# Adapters that check their settings at once, and abort a compaction with the run.
CHECKED = ("langchain", "pydantic_ai")
MODES = [
    ("langchain", "async"),
    ("langchain", "sync"),
    ("langchain", "stream"),
    ("pydantic_ai", "async"),
    ("pydantic_ai", "stream"),
    ("openai_agents", "async"),
    ("openai_agents", "stream"),
    ("adk", "async"),
    ("adk", "sync"),
    ("adk", "stream"),
]
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
every_mode = pytest.mark.parametrize(("framework", "mode"), MODES)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def echo(name: str = "answer ") -> Script:
    """A script of numbered answers."""

    def script(number: int, _: list[str]) -> Reply:
        return f"{name}{number}"

    return script


def user_texts(session: Any, word: str) -> list[str]:
    """The user's texts with this word, without carried copies."""
    messages = [message for message in session.export().messages if message.is_user]
    texts = [getattr(part, "text", "") for message in messages for part in message.parts]
    return [text for text in texts if text.startswith(word)]


def check_fits(agent: ContractAgent, folder: Path, conversation: str = "t") -> None:
    with stored_session(folder, agent.session_id(conversation)) as session:
        assert max(request.tokens for request in agent.requests) <= session.usable


# --- long runs and restarts ----------------------------------------------------------------


@every_framework
async def test_a_long_conversation_with_crashes_stays_within_the_window_and_loses_nothing(
    tmp_path: Path, framework: str
) -> None:
    steps = working(25)

    def script(number: int, texts: list[str]) -> Reply:
        return ("read", "crash") if number % 31 == 30 else steps(number, texts)

    outputs: list[str] = []
    turns = crashes = 0
    async with contract_agent(framework)(tmp_path, script) as agent:
        while len(agent.requests) < examples(100, 200):
            turns += 1
            try:
                outcome = await agent.run(f"Request {turns}: go on.")
            except Exception as error:  # noqa: BLE001 - frameworks wrap it differently
                assert "cut off" in str(error)  # noqa: PT017 - some runs end so, and some do not
                crashes += 1
                continue
            assert outcome.answer == "Done."
            outputs += outcome.outputs
        assert crashes >= 3
        check_fits(agent, tmp_path)
        assert any(f"Request {turns}" in text for text in agent.requests[-1].texts)
        name = agent.session_id("t")
    # The framework's own history has every output in full.
    assert min(map(len, outputs)) < 1_100  # of the tool that fails
    assert all(not 1_100 < len(output) < 1_900 for output in outputs)
    assert not any("recall" in output for output in outputs)
    with stored_session(tmp_path, name) as session:
        assert compactions(session) >= 2
        assert session.search("Request 1")
        assert user_texts(session, "Request") == [
            f"Request {turn}: go on." for turn in range(1, turns + 1)
        ]


@every_framework
async def test_a_restart_continues_from_the_store(tmp_path: Path, framework: str) -> None:
    replies, name = 0, ""
    for turn in range(4):
        async with contract_agent(framework)(tmp_path, working(14, seed=turn)) as agent:
            await agent.run(f"Request {turn}: the number is {turn}77.")
            assert any("077" in text for text in agent.requests[-1].texts)
            check_fits(agent, tmp_path)
            replies, name = replies + len(agent.requests), agent.session_id("t")
    with stored_session(tmp_path, name) as session:
        assert compactions(session) >= 2
        assert not session.open_calls()
        assert len(user_texts(session, "Request")) == 4
        infos = [message.info for message in session.export().messages]
        stored = [info for info in infos if isinstance(info, AssistantInfo) and not info.summary]
        assert len(stored) == replies


@every_framework
@pytest.mark.parametrize("ending", ["crash", "wait"])
async def test_a_run_that_ends_in_a_tool_leaves_a_conversation_that_continues(
    tmp_path: Path, framework: str, ending: str
) -> None:
    def script(number: int, _: list[str]) -> Reply:
        return [("read",), ("read", ending), "Well."][number]

    async with contract_agent(framework)(tmp_path, script) as agent:
        running = asyncio.create_task(agent.run("Go."))
        if ending == "wait":
            waiting = asyncio.create_task(agent.waits.wait())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
        with pytest.raises((asyncio.CancelledError, Exception)):
            await running
        assert (await agent.run("Otherwise.")).answer == "Well."
        texts = agent.requests[-1].texts
        assert (texts[0], texts[-1]) == ("Go.", "Otherwise.")
        if framework in POOLED:
            assert [(one.is_exclusive, one.users) for one in agent.pool.all()] == [(False, 0)]


@every_mode
async def test_a_run_fits_in_every_mode(tmp_path: Path, framework: str, mode: str) -> None:
    async with contract_agent(framework)(tmp_path, working(40)) as agent:
        outcome = await agent.run("Go.", mode=mode)
        assert outcome.answer == "Done."
        assert len(outcome.outputs) > 40
        check_fits(agent, tmp_path)
        with stored_session(tmp_path, agent.session_id("t")) as session:
            assert compactions(session) >= 1


# --- refusals ------------------------------------------------------------------------------


def refusing(*numbers: int, error: Exception) -> Script:
    """A script of three calls per reply, in which these requests raise the error."""

    def script(number: int, _: list[str]) -> Reply:
        if number in numbers:
            return error
        return "Done." if number > 12 else ("read",) * 3

    return script


@every_mode
async def test_a_refusal_for_length_is_followed_by_a_shorter_request(
    tmp_path: Path, framework: str, mode: str
) -> None:
    kind = contract_agent(framework)
    async with kind(tmp_path, refusing(9, error=kind.refusal()), window=24_000) as agent:
        assert (await agent.run("Go.", mode=mode)).answer == "Done."
        assert len(agent.requests) == 14
        assert agent.requests[10].tokens < 0.7 * agent.requests[9].tokens
        with stored_session(tmp_path, agent.session_id("t")) as session:
            assert compactions(session) >= 1


@every_mode
async def test_a_second_refusal_is_raised(tmp_path: Path, framework: str, mode: str) -> None:
    kind = contract_agent(framework)
    error = kind.refusal()
    async with kind(tmp_path, refusing(9, 10, error=error), window=24_000) as agent:
        with pytest.raises(type(error)):
            await agent.run("Go.", mode=mode)
        assert len(agent.requests) == 11


@every_mode
async def test_other_errors_are_raised_unchanged(tmp_path: Path, framework: str, mode: str) -> None:
    error = RuntimeError("rate limit reached")
    async with contract_agent(framework)(tmp_path, refusing(2, error=error)) as agent:
        with pytest.raises(RuntimeError) as raised:
            await agent.run("Go.", mode=mode)
        assert raised.value is error
        assert "shorter view" not in str(getattr(error, "__notes__", ""))
        assert len(agent.requests) == 3
        with stored_session(tmp_path, agent.session_id("t")) as session:
            assert not session.operations()
        async with contract_agent(framework)(tmp_path, echo(), wait_seconds=0.2) as other:
            await other.run("Otherwise.")  # while the first agent is open
            assert other.requests[-1].texts == ["Go.", "Otherwise."]


# --- several conversations and writers -----------------------------------------------------


@every_framework
async def test_adapters_that_are_not_closed_take_turns_in_one_conversation(
    tmp_path: Path, framework: str
) -> None:
    kind = contract_agent(framework)
    expected: list[str] = []
    async with AsyncExitStack() as stack:
        agents: list[ContractAgent] = [
            await stack.enter_async_context(kind(tmp_path, echo(name), wait_seconds=0.2))
            for name in "abc"
        ]
        for turn in range(7):
            agent = agents[turn % 3]
            expected.append(f"request {turn}")
            answer = (await agent.run(f"request {turn}")).answer
            assert agent.requests[-1].texts == expected
            expected.append(answer)
        with stored_session(tmp_path, kind.session_id("t")) as session:
            assert len(session.export().messages) == len(expected) + 1  # and the root
            assert not session.operations()


@every_framework
async def test_the_session_is_free_while_a_model_thinks(tmp_path: Path, framework: str) -> None:
    kind, steps = contract_agent(framework), working(13)
    is_free: list[bool] = []

    def script(number: int, texts: list[str]) -> Reply:
        with sqlite3.connect(tmp_path / "agent.db") as store:
            query = "SELECT holder FROM sessions WHERE id = ?"
            is_free.append(store.execute(query, (kind.session_id("t"),)).fetchone() == (None,))
        store.close()
        return steps(number, texts)

    async with kind(tmp_path, script, window=4_000) as agent:
        await agent.run("Go.")
        with stored_session(tmp_path, kind.session_id("t")) as session:
            assert session.operations()  # pruning writes, too
    assert is_free == [True] * 13


@every_framework
@pytest.mark.parametrize("in_threads", [False, True])
async def test_many_conversations_at_once_do_not_mix(
    tmp_path: Path, framework: str, *, in_threads: bool
) -> None:
    kind, steps = contract_agent(framework), Counter[str]()

    def script(_: int, texts: list[str]) -> Reply:
        (first,) = [text for text in texts if text.startswith("I am")]
        steps[first] += 1
        return ("read", "fail") if steps[first] < 4 else "Done."

    async with kind(tmp_path, script) as agent:
        names = [f"talk-{number}" for number in range(6)]

        def run(name: str) -> None:
            asyncio.run(agent.run(f"I am {name}.", name))

        if in_threads:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(run, names))
        else:
            await asyncio.gather(*(agent.run(f"I am {name}.", name) for name in names))
    for name in names:
        with stored_session(tmp_path, kind.session_id(name)) as session:
            assert user_texts(session, "I am") == [f"I am {name}."]


@pytest.mark.parametrize("framework", POOLED)
async def test_few_sessions_stay_open_and_closed_ones_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    kind = contract_agent(framework)
    monkeypatch.setattr(import_module(POOLED[framework]), "_MAX_OPEN", 2)
    async with kind(tmp_path, echo()) as agent:
        for turn in range(2):
            for name in "abcd":
                await agent.run(f"request {turn}", name)
                assert len(agent.pool.all()) <= 2
                asked = [text for text in agent.requests[-1].texts if "request" in text]
                assert asked == [f"request {number}" for number in range(turn + 1)]


@pytest.mark.parametrize("framework", CHECKED)
async def test_adapters_that_work_at_the_same_time_lose_nothing_and_show_nothing_twice(
    tmp_path: Path, framework: str
) -> None:
    kind = contract_agent(framework)

    async def work(name: str) -> None:
        async with kind(tmp_path, echo(f"answer {name}"), wait_seconds=60) as agent:
            for number in range(8):
                await agent.run(f"question {name}{number}")
            assert all(len(set(one.texts)) == len(one.texts) for one in agent.requests)

    def run(name: str) -> None:
        asyncio.run(work(name))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, "ab"))
    with sqlite3.connect(tmp_path / "agent.db") as store:
        ids = [row[0] for row in store.execute("SELECT id FROM sessions")]
    store.close()
    stored = ""
    for name in ids:
        with stored_session(tmp_path, name) as session:
            stored += str(session.export().messages)
    numbers = [f"{name}{number}" for name in "ab" for number in range(8)]
    texts = [f"{word} {number}" for word in ("question", "answer") for number in numbers]
    assert [text for text in texts if text not in stored] == []


@pytest.mark.parametrize("framework", POOLED)
async def test_a_session_that_another_holds_costs_no_reply_and_hides_no_refusal(
    tmp_path: Path, framework: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = contract_agent(framework)
    other = stored_session(tmp_path, kind.session_id("t"))
    refusal = kind.refusal()

    def script(number: int, _: list[str]) -> Reply:
        other.user("Mine.")  # takes the lease
        return refusal if number else "Well."

    async with kind(tmp_path, script, wait_seconds=0.1) as agent:
        assert (await agent.run("One.")).answer == "Well."
        assert "lacks the newest messages" in caplog.text or "was not stored" in caplog.text
        other.release()
        with pytest.raises(type(refusal)) as raised:
            await agent.run("Two.")
        assert raised.value is refusal
    other.close()


@pytest.mark.parametrize("framework", CHECKED)
async def test_a_reply_that_comes_after_close_is_stored(tmp_path: Path, framework: str) -> None:
    def script(number: int, _: list[str]) -> Reply:
        agent.pool.close()
        return f"answer {number}"

    async with contract_agent(framework)(tmp_path, script) as agent:
        for number in range(2):
            assert (await agent.run(f"request {number}")).answer == f"answer {number}"
        await agent.run("on")
        assert agent.requests[-1].texts == ["request 0", "answer 0", "request 1", "answer 1", "on"]


@pytest.mark.parametrize("framework", CHECKED)
async def test_a_run_that_is_cancelled_while_it_waits_for_a_summary_gives_up_the_compaction(
    tmp_path: Path, framework: str
) -> None:
    model = GatedModel()
    async with contract_agent(framework)(tmp_path, working(60), summarizer=model) as agent:
        running = asyncio.create_task(agent.run("Go."))
        assert await asyncio.to_thread(model.was_asked.wait, SOON)
        running.cancel()
        async with asyncio.timeout(SOON):  # the model never answers
            await asyncio.gather(running, return_exceptions=True)
    with stored_session(tmp_path, "t") as session:
        assert session.pending() is None
        pivots = [one.state for one in session.operations() if one.kind == "pivot"]
        assert pivots == ["failed"]
        assert session.compact("In short.") is not None


# --- settings ------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", CHECKED)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": -5}, "window is -5"),
        ({"window": "much"}, "window: expected"),
        ({"policy": "nonsense"}, "policy: .*nonsense"),
        ({"threshold": 7.5}, "threshold"),
        ({"windw": 5_000}, "did you mean 'window'"),
        ({"model": "nobody:knows-it", "window": None}, "no limits are known"),
        ({"summarizer": "gpt"}, "provider:model"),
        ({"store": "agent.db"}, "pass the store as the first argument"),
        ({"hooks": [object()]}, "has none of the methods"),
    ],
)
def test_wrong_settings_are_refused_at_once(
    tmp_path: Path, framework: str, settings: Any, message: str
) -> None:
    kind = contract_agent(framework)
    with pytest.raises(foldmark.FoldmarkError, match=message) as raised:
        kind(tmp_path, echo(), **settings)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("framework", CHECKED)
def test_settings_of_all_kinds_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    kind = contract_agent(framework)
    monkeypatch.setenv("FOLDMARK_SUMMARIZER", "gpt")  # the object replaces it
    more: Any = {"hooks": [], "fixed_tokens": 5, "tools": [], "system": "x", "window": WINDOW}
    kind(tmp_path, echo(), policy=FOLDMARK, summarizer=GatedModel(), **more)
    assert not list(tmp_path.iterdir())
