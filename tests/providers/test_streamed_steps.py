"""Models that step, over real HTTP with the real SDKs: what is told, and what goes back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec import UNSET
from pydantic_ai import ModelMessage
from pydantic_ai.messages import ThinkingPart, ToolCallPart
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)

from foldmark.errors import BadPolicy
from foldmark.model.messages import Pending, ReasoningPart, TextPart, ToolPart
from foldmark.model.prompt_messages import AssistantMessage, ToolDeclaration, Text, UserMessage
from foldmark.providers.calls import ProviderModel
from foldmark.providers.models import keep_open, model_named
from foldmark.summary.protocol import (
    STEP,
    CallDelta,
    Model,
    ModelFailure,
    ModelRequest,
    StreamDelta,
    StepReply,
    TextDelta,
)
from foldmark.testing import ScriptedModel
from foldmark.wire.formats import request
from tests.support.provider_server import Sent, chat_stream, provider, stream
from tests.support.provider_steps import (
    LIST,
    READ,
    SIGNED,
    anthropic_events,
    anthropic_step,
    chat_events,
    chat_step,
    counting,
    gemini_step,
    hanging,
    responses_step,
    shown_after,
)

TOOLS = tuple(
    ToolDeclaration(name=name, description="Looks", schema={"type": "object", "properties": {}})
    for name in ("read", "ls")
)
MEND = UserMessage(content=(Text(text="Mend it"),))
ASK = ModelRequest(messages=(MEND,), system="You code.", tools=TOOLS, max_tokens=321, purpose=STEP)


def anthropic(url: str) -> Model:
    return model_named("anthropic:claude-sonnet-4-6", base_url=url, api_key="k")


def chat(url: str) -> Model:
    return model_named("openai:gpt-4o", base_url=f"{url}/v1", api_key="k")


def responses(url: str) -> Model:
    return model_named("openai-responses:gpt-5", base_url=f"{url}/v1", api_key="k")


def gemini(url: str) -> Model:
    return model_named("google-gla:gemini-2.5-flash", base_url=url, api_key="k")


Made = Callable[[str], Model]
ALL = [
    (anthropic, anthropic_step()),
    (chat, chat_step()),
    (responses, responses_step()),
    (gemini, gemini_step()),
]


def stepped(
    model: Model, ask: ModelRequest = ASK, told: list[StreamDelta] | None = None
) -> StepReply | ModelFailure:
    pieces = told if told is not None else []
    return asyncio.run(model.step(ask, pieces.append))


def answered(
    model: Model, ask: ModelRequest = ASK, told: list[StreamDelta] | None = None
) -> StepReply:
    outcome = stepped(model, ask, told)
    assert isinstance(outcome, StepReply), outcome
    return outcome


def after(step: StepReply) -> ModelRequest:
    return ModelRequest(messages=shown_after(step), system="You code.", tools=TOOLS, purpose=STEP)


def there_and_back(made: Made, sent: Sent) -> tuple[StepReply, dict[str, Any]]:
    """A step, and the request that follows it."""
    with provider(sent) as server:
        model = made(server.url)
        step = answered(model)
        answered(model, after(step))
    return step, server.asked[1]


# --- what is told and what is answered ------------------------------------------------------------


@pytest.mark.parametrize(("made", "sent"), ALL)
def test_thoughts_words_and_calls_are_told_as_they_come_and_are_the_answer(
    made: Made, sent: Sent
) -> None:
    told: list[StreamDelta] = []
    with provider(sent) as server:
        step = answered(made(server.url), told=told)
    words = [piece for piece in told if isinstance(piece, TextDelta)]
    assert "".join(w.text for w in words if w.kind == "text") == "I look at both."
    assert [w.text for w in words if w.kind == "text"] == ["I look ", "at both."]
    thought = "".join(w.text for w in words if w.kind == "reasoning")
    assert thought.startswith("The mill first.")
    thoughts = [part.text for part in step.parts if isinstance(part, ReasoningPart)]
    assert "".join(thoughts) == thought
    assert [p.text for p in step.parts if isinstance(p, TextPart)] == ["I look at both."]
    assert [(call.tool, call.state.input) for call in step.calls] == [
        ("read", json.loads(READ)),
        ("ls", json.loads(LIST)),
    ]
    assert all(isinstance(call.state, Pending) and not call.state.raw for call in step.calls)
    calls = [piece for piece in told if isinstance(piece, CallDelta)]
    assert [(call.call_id, call.tool) for call in calls] == [
        (call.call_id, call.tool) for call in step.calls
    ]
    assert len({call.call_id for call in step.calls}) == 2
    assert step.finish == "tool-calls"
    kinds = [type(part) for part in step.parts]
    assert kinds.index(TextPart) > kinds.index(ReasoningPart)
    assert kinds[-2:] == [ToolPart, ToolPart]


@pytest.mark.parametrize(("made", "sent"), ALL)
def test_a_step_has_its_tokens_and_its_price(made: Made, sent: Sent) -> None:
    with provider(sent) as server:
        step = answered(made(server.url))
    assert step.tokens is not None
    assert step.tokens.cache
    assert step.tokens.cache.read == 100
    assert (step.tokens.output, step.tokens.total) == (7, 139)
    assert step.cost is not None
    assert step.cost > 0


def test_an_answer_that_was_cut_for_its_length_says_so_though_it_calls() -> None:
    events = [dict(event) for event in anthropic_events()]
    events[-2]["delta"] = {"stop_reason": "max_tokens", "stop_sequence": None}
    with provider(stream(iter(events), named=True)) as server:
        assert answered(anthropic(server.url)).finish == "length"


def test_an_answer_of_words_alone_has_stopped() -> None:
    with provider(chat_stream()) as server:
        step = answered(chat(server.url))
    assert (step.finish, step.calls) == ("stop", ())
    assert step.parts == (TextPart(text="The tests pass."),)


@pytest.mark.parametrize(
    ("made", "sent"),
    [
        (anthropic, anthropic_step),
        (chat, chat_step),
        (responses, responses_step),
    ],
)
@pytest.mark.parametrize("broken", ['{"path": "mi', "path=mill.py", '["mill.py"]'])
def test_arguments_that_are_no_object_are_kept_as_they_came_and_sent_as_none(
    made: Made, sent: Callable[[str], Sent], broken: str
) -> None:
    step, body = there_and_back(made, sent(broken))
    state = step.calls[0].state
    assert isinstance(state, Pending)
    assert (state.input, state.raw) == ({}, broken)
    assert step.calls[1].state.input == json.loads(LIST)
    assert broken not in json.dumps(body).replace('\\"', '"').replace("\\", "")


def test_a_call_without_arguments_is_no_broken_one() -> None:
    with provider(anthropic_step("")) as server:
        state = answered(anthropic(server.url)).calls[0].state
    assert isinstance(state, Pending)
    assert (state.input, state.raw) == ({}, UNSET)


def test_calls_without_ids_get_ids_of_their_own() -> None:
    """Those that have the same are told apart by the agent."""
    told: list[StreamDelta] = []
    with provider(chat_step(ids=("", ""))) as server:
        step = answered(chat(server.url), told=told)
    names = [call.call_id for call in step.calls]
    assert len(set(names)) == 2
    assert all(names)
    assert names == [piece.call_id for piece in told if isinstance(piece, CallDelta)]


# --- what goes back -------------------------------------------------------------------------------


def test_anthropic_gets_its_signatures_and_its_hidden_thoughts_back() -> None:
    _, body = there_and_back(anthropic, anthropic_step())
    thinking, hidden, text, read, ls = body["messages"][1]["content"]
    assert thinking == {"type": "thinking", "thinking": "The mill first.", "signature": "sig-1"}
    assert hidden == {"type": "redacted_thinking", "data": "hidden-1"}
    assert text["text"] == "I look at both."
    assert (read["id"], ls["id"]) == ("toolu_3", "toolu_4")
    results = body["messages"][2]["content"]
    assert [held["tool_use_id"] for held in results] == ["toolu_3", "toolu_4"]


def test_openai_gets_its_items_back_with_their_ids_and_what_is_encrypted() -> None:
    _, body = there_and_back(responses, responses_step())
    _, thinking, text, read, ls, *results = body["input"]
    assert thinking == {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "enc-1",
        "summary": [
            {"type": "summary_text", "text": "The mill first."},
            {"type": "summary_text", "text": "Then the wheels."},
        ],
    }
    assert (text["id"], text["phase"]) == ("msg_1", "commentary")
    assert [(held["id"], held["call_id"]) for held in (read, ls)] == [
        ("fc_2", "call_2"),
        ("fc_3", "call_3"),
    ]
    assert (read["arguments"], ls["arguments"]) == (READ, LIST)  # byte by byte
    assert [held["call_id"] for held in results] == ["call_2", "call_3"]
    assert body["include"] == ["reasoning.encrypted_content"]


def test_servers_of_chat_completions_get_back_what_they_added() -> None:
    _, body = there_and_back(chat, chat_step())
    said = body["messages"][2]
    assert said["reasoning_content"] == "The mill first."
    assert said["content"] == "I look at both."
    read, ls = said["tool_calls"]
    assert read["extra_content"] == {"google": {"thought_signature": SIGNED}}
    assert (read["id"], ls["id"]) == ("c_a", "c_b")
    assert (read["function"]["arguments"], ls["function"]["arguments"]) == (READ, LIST)


def test_gemini_gets_its_signature_back_on_the_call_that_had_it() -> None:
    _, body = there_and_back(gemini, gemini_step())
    parts = [part for content in body["contents"] for part in content["parts"]]
    read, ls = (part for part in parts if "functionCall" in part)
    assert (read["functionCall"]["name"], read["thoughtSignature"]) == ("read", SIGNED)
    assert "thoughtSignature" not in ls
    assert sum("functionResponse" in part for part in parts) == 2


def test_gemini_gets_a_signature_back_that_came_without_words() -> None:
    content = {"role": "model", "parts": [{"text": "", "thoughtSignature": SIGNED}]}
    call: dict[str, Any] = {
        "role": "model",
        "parts": [{"functionCall": {"name": "ls", "args": {}}}],
    }
    events: list[dict[str, Any]] = [
        {"candidates": [{"content": content, "index": 0}]},
        {"candidates": [{"content": call, "index": 0, "finishReason": "STOP"}]},
    ]
    _, body = there_and_back(gemini, stream(iter(events)))
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == SIGNED


@pytest.mark.parametrize(
    ("made", "sent", "wire", "field"),
    [
        (anthropic, anthropic_step(), "anthropic", "messages"),
        (chat, chat_step(), "openai-chat", "messages"),
        (responses, responses_step(), "openai-responses", "input"),
    ],
)
def test_the_next_request_is_what_our_codec_writes_and_begins_as_the_one_before(
    made: Made, sent: Sent, wire: str, field: str
) -> None:
    with provider(sent) as server:
        model = made(server.url)
        step = answered(model)
        answered(model, after(step))
    first, second = (body[field] for body in server.asked)
    assert second == request(shown_after(step), wire, "You code.")
    assert second[: len(first)] == first


def test_a_model_without_a_wire_of_ours_gets_its_signed_thoughts_back() -> None:
    seen: list[list[ModelMessage]] = []

    async def talk(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
        seen.append(messages)
        yield {0: DeltaThinkingPart(content="Hm.", signature="sig-1")}
        yield {1: DeltaToolCall(name="ls", json_args=LIST, tool_call_id="c1")}

    model = ProviderModel(lambda: FunctionModel(stream_function=talk), "function:talk")
    step = answered(model)
    answered(model, after(step))
    thinking, call = seen[1][1].parts
    assert isinstance(thinking, ThinkingPart)
    assert (thinking.content, thinking.signature) == ("Hm.", "sig-1")
    assert thinking.provider_name == "function"
    assert isinstance(call, ToolCallPart)
    assert (call.tool_call_id, call.args_as_dict()) == ("c1", json.loads(LIST))


# --- what is asked --------------------------------------------------------------------------------


def test_tools_may_be_called_and_several_at_the_same_time() -> None:
    bodies: dict[str, dict[str, Any]] = {}
    for made, sent in ALL:
        with provider(sent) as server:
            answered(made(server.url))
        bodies[made.__name__] = server.asked[0]
    for name in ("chat", "responses"):
        assert bodies[name].get("tool_choice", "auto") == "auto"
        assert bodies[name].get("parallel_tool_calls", True) is True
        assert len(bodies[name]["tools"]) == 2
    assert bodies["anthropic"].get("tool_choice", {"type": "auto"}) == {"type": "auto"}
    assert bodies["anthropic"]["max_tokens"] == 321
    assert "cache_control" in json.dumps(bodies["anthropic"])
    config = bodies["gemini"].get("toolConfig", {}).get("functionCallingConfig", {})
    assert config.get("mode", "AUTO") == "AUTO"
    assert bodies["gemini"]["generationConfig"]["maxOutputTokens"] == 321


@pytest.mark.parametrize(("made", "sent"), ALL)
def test_a_step_without_tools_declares_none(made: Made, sent: Sent) -> None:
    ask = ModelRequest(messages=(MEND,), system="You code.", purpose=STEP)
    with provider(sent) as server:
        answered(made(server.url), ask)
    assert not server.asked[0].get("tools")
    if made is anthropic:  # the session goes on, so what it says is cached all the same
        assert "cache_control" in json.dumps(server.asked[0])


@pytest.mark.parametrize(("made", "sent"), ALL)
def test_the_user_has_the_last_word_of_a_request(made: Made, sent: Sent) -> None:
    talk = (MEND, AssistantMessage(content=(Text(text="Half of it is mended."),)))
    ask = ModelRequest(messages=talk, system="You code.", tools=TOOLS, purpose=STEP)
    with provider(sent) as server:
        answered(made(server.url), ask)
    body = server.asked[0]
    (messages,) = (body[name] for name in ("messages", "input", "contents") if name in body)
    assert messages[-1]["role"] == "user"
    assert "You code." in json.dumps(body)
    assert "Half of it is mended." in json.dumps(body)


# --- what goes wrong ------------------------------------------------------------------------------

LONG = "prompt is too long: 214676 tokens > 200000 maximum"


def failure(status: int, kind: str, message: str, *headers: tuple[str, str]) -> Sent:
    error = {"type": kind, "code": kind, "message": message}
    return Sent(status, json.dumps({"type": "error", "error": error}), headers)


@pytest.mark.parametrize("made", [anthropic, chat, responses, gemini])
def test_what_is_refused_says_why_and_is_not_tried_again(made: Made) -> None:
    slow = failure(429, "rate_limit_error", "slow down", ("retry-after", "7"))
    cases = [
        (failure(400, "context_length_exceeded", LONG), "overflow", None),
        (slow, "throttled", 7.0),
        (failure(401, "authentication_error", "bad key"), "unavailable", None),
        (failure(500, "api_error", "oops"), "failed", None),
    ]
    for sent, cause, wait in cases:
        with provider(sent) as server:
            outcome = stepped(made(server.url))
        assert isinstance(outcome, ModelFailure)
        assert (outcome.cause, outcome.retry_after) == (cause, wait)
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("made", "cut"),
    [
        (anthropic, anthropic_step(cut=2)),
        (chat, chat_step(cut=2)),
        (responses, responses_step(cut=1)),
        (gemini, gemini_step(cut=1)),
    ],
)
@pytest.mark.parametrize("politely", [True, False])
def test_a_stream_that_breaks_off_is_no_answer_though_calls_were_told(
    made: Made, cut: Sent, *, politely: bool
) -> None:
    told: list[StreamDelta] = []
    with provider(cut._replace(cut=not politely)) as server:
        outcome = stepped(made(server.url), told=told)
    assert isinstance(outcome, ModelFailure), outcome
    assert outcome.cause == "failed"
    assert told


def test_a_key_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(BadPolicy, match="set ANTHROPIC_API_KEY, or pass api_key=… in Python"):
        model_named("anthropic:claude-sonnet-4-6")


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "begun"),
    [
        (anthropic, stream(anthropic_events(), named=True, cut=9).body),
        (chat, stream(chat_events(), cut=7).body),
    ],
)
@pytest.mark.parametrize("held", [True, False])
def test_a_step_that_is_cancelled_in_the_middle_leaves_its_connection(
    made: Made, begun: str, *, held: bool
) -> None:
    async def cancelled(model: Model, left: Callable[[], bool]) -> None:
        heard = asyncio.Event()
        stepping = asyncio.create_task(model.step(ASK, lambda _: heard.set()))
        await asyncio.wait_for(heard.wait(), 20)
        stepping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stepping
        assert await asyncio.to_thread(left)

    async def run(url: str, left: Callable[[], bool]) -> None:
        model = made(url)
        async with keep_open(model) if held else nullcontext():
            await cancelled(model, left)

    with hanging(begun) as server:
        asyncio.run(run(server.url, lambda: server.left.wait(20)))


@pytest.mark.parametrize(("made", "sent"), ALL)
def test_a_model_that_is_kept_open_uses_one_connection_for_many_steps(
    made: Made, sent: Sent
) -> None:
    async def run(url: str) -> None:
        model = made(url)
        async with keep_open(model):
            for _ in range(3):
                assert isinstance(await model.step(ASK, lambda _: None), StepReply)
        assert isinstance(await model.step(ASK, lambda _: None), StepReply)

    with counting(sent) as (url, server):
        asyncio.run(run(url))
        assert server.connections == 2  # one of them for the step after it was left


def test_a_model_without_connections_is_kept_open_as_well() -> None:
    async def run() -> StepReply | ModelFailure:
        model = ScriptedModel("Done.")
        async with keep_open(model):
            return await model.step(ASK, lambda _: None)

    assert asyncio.run(run()) == StepReply(parts=(TextPart(text="Done."),))
