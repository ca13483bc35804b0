"""Agent steps of providers over real HTTP with the real SDKs: deltas, replies, next requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
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

from foldmark.model.messages import Pending, ReasoningPart, TextPart, ToolPart
from foldmark.model.prompt_messages import AssistantMessage, Text, ToolDeclaration, UserMessage
from foldmark.providers.calls import ProviderModel
from foldmark.providers.models import keep_open
from foldmark.summary.protocol import (
    STEP,
    CallDelta,
    DeltaHandler,
    Model,
    ModelFailure,
    ModelRequest,
    StepReply,
    StreamDelta,
    TextDelta,
)
from foldmark.testing import ScriptedModel
from foldmark.wire.formats import request
from tests.support.provider_server import (
    Sent,
    anthropic,
    chat,
    chat_stream,
    gemini,
    provider,
    responses,
    stream,
)
from tests.support.provider_steps import (
    LIST,
    READ,
    SIGNED,
    anthropic_events,
    anthropic_step,
    chat_events,
    chat_step,
    gemini_step,
    hanging,
    responses_step,
    view_after,
)

TOOLS = tuple(
    ToolDeclaration(name=name, description="Looks", schema={"type": "object", "properties": {}})
    for name in ("read", "ls")
)
FIX = UserMessage(content=(Text(text="Fix it"),))
REQUEST = ModelRequest(
    messages=(FIX,), system="You code.", tools=TOOLS, max_tokens=321, purpose=STEP
)


Connect = Callable[[str], Model]
ALL = [
    (anthropic, anthropic_step()),
    (chat, chat_step()),
    (responses, responses_step()),
    (gemini, gemini_step()),
]


def reply_of(
    model: Model, request: ModelRequest = REQUEST, on_delta: DeltaHandler = lambda _: None
) -> StepReply:
    outcome = asyncio.run(model.step(request, on_delta))
    assert isinstance(outcome, StepReply), outcome
    return outcome


def after(step: StepReply) -> ModelRequest:
    """The request that follows a step."""
    return replace(REQUEST, messages=view_after(step))


def round_trip(model: Connect, sent: Sent) -> tuple[StepReply, dict[str, Any]]:
    """A step, and the body of the request that follows it."""
    with provider(sent) as server:
        step = reply_of(model(server.url))
        reply_of(model(server.url), after(step))
    return step, server.requests[1]


# --- deltas and replies ---------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "sent"), ALL)
def test_reasoning_text_and_calls_are_streamed_and_in_the_reply(model: Connect, sent: Sent) -> None:
    deltas: list[StreamDelta] = []
    with provider(sent) as server:
        step = reply_of(model(server.url), on_delta=deltas.append)
    texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
    assert [delta.text for delta in texts if delta.kind == "text"] == ["I look ", "at both."]
    reasoning = "".join(delta.text for delta in texts if delta.kind == "reasoning")
    assert reasoning.startswith("The parser first.")
    assert "".join(p.text for p in step.parts if isinstance(p, ReasoningPart)) == reasoning
    assert [p.text for p in step.parts if isinstance(p, TextPart)] == ["I look at both."]
    assert [(call.tool, call.state.input) for call in step.calls] == [
        ("read", json.loads(READ)),
        ("ls", json.loads(LIST)),
    ]
    assert all(isinstance(call.state, Pending) and not call.state.raw for call in step.calls)
    calls = [(delta.call_id, delta.tool) for delta in deltas if isinstance(delta, CallDelta)]
    assert calls == [(call.call_id, call.tool) for call in step.calls]
    assert len({call.call_id for call in step.calls}) == 2
    assert step.finish == "tool-calls"
    kinds = [type(part) for part in step.parts]
    assert kinds.index(TextPart) > kinds.index(ReasoningPart)
    assert kinds[-2:] == [ToolPart, ToolPart]


@pytest.mark.parametrize(("model", "sent"), ALL)
def test_a_step_has_its_tokens_and_its_price(model: Connect, sent: Sent) -> None:
    with provider(sent) as server:
        step = reply_of(model(server.url))
    assert step.tokens is not None
    assert step.tokens.cache
    assert step.tokens.cache.read == 100
    assert (step.tokens.output, step.tokens.total) == (7, 139)
    assert step.cost is not None
    assert step.cost > 0


def test_a_reply_cut_for_its_length_says_so_even_with_calls() -> None:
    events = [dict(event) for event in anthropic_events()]
    events[-2]["delta"] = {"stop_reason": "max_tokens", "stop_sequence": None}
    with provider(stream(iter(events), named=True)) as server:
        assert reply_of(anthropic(server.url)).finish == "length"


def test_a_reply_of_text_alone_has_stopped() -> None:
    with provider(chat_stream()) as server:
        step = reply_of(chat(server.url))
    assert (step.finish, step.calls) == ("stop", ())
    assert step.parts == (TextPart(text="The tests pass."),)


@pytest.mark.parametrize(
    ("model", "sent"),
    [(anthropic, anthropic_step), (chat, chat_step), (responses, responses_step)],
)
@pytest.mark.parametrize("broken", ['{"path": "pa', "path=parser.py", '["parser.py"]'])
def test_invalid_arguments_are_kept_in_the_reply_and_not_sent_back(
    model: Connect, sent: Callable[[str], Sent], broken: str
) -> None:
    step, body = round_trip(model, sent(broken))
    state = step.calls[0].state
    assert isinstance(state, Pending)
    assert (state.input, state.raw) == ({}, broken)
    assert step.calls[1].state.input == json.loads(LIST)
    assert broken not in json.dumps(body).replace('\\"', '"').replace("\\", "")


def test_a_call_without_arguments_is_valid() -> None:
    with provider(anthropic_step("")) as server:
        state = reply_of(anthropic(server.url)).calls[0].state
    assert isinstance(state, Pending)
    assert (state.input, state.raw) == ({}, UNSET)


def test_calls_without_ids_get_unique_ids() -> None:
    """The agent replaces ids that are the same."""
    deltas: list[StreamDelta] = []
    with provider(chat_step(ids=("", ""))) as server:
        step = reply_of(chat(server.url), on_delta=deltas.append)
    ids = [call.call_id for call in step.calls]
    assert len(set(ids)) == 2
    assert all(ids)
    assert ids == [delta.call_id for delta in deltas if isinstance(delta, CallDelta)]


# --- data that providers get back -----------------------------------------------------------------


def test_anthropic_gets_its_signatures_and_redacted_thinking_back() -> None:
    _, body = round_trip(anthropic, anthropic_step())
    thinking, hidden, text, read, ls = body["messages"][1]["content"]
    assert thinking == {"type": "thinking", "thinking": "The parser first.", "signature": "sig-1"}
    assert hidden == {"type": "redacted_thinking", "data": "hidden-1"}
    assert text["text"] == "I look at both."
    assert (read["id"], ls["id"]) == ("toolu_3", "toolu_4")
    results = body["messages"][2]["content"]
    assert [result["tool_use_id"] for result in results] == ["toolu_3", "toolu_4"]


def test_openai_gets_its_items_back_with_ids_and_encrypted_content() -> None:
    _, body = round_trip(responses, responses_step())
    _, thinking, text, read, ls, *results = body["input"]
    assert thinking == {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "enc-1",
        "summary": [
            {"type": "summary_text", "text": "The parser first."},
            {"type": "summary_text", "text": "Then the tests."},
        ],
    }
    assert (text["id"], text["phase"]) == ("msg_1", "commentary")
    assert [read["id"], read["call_id"], ls["id"], ls["call_id"]] == [
        *("fc_2", "call_2", "fc_3", "call_3")
    ]
    assert (read["arguments"], ls["arguments"]) == (READ, LIST)  # the same bytes
    assert [result["call_id"] for result in results] == ["call_2", "call_3"]
    assert body["include"] == ["reasoning.encrypted_content"]


def test_chat_servers_get_their_extra_fields_back() -> None:
    _, body = round_trip(chat, chat_step())
    reply = body["messages"][2]
    assert reply["reasoning_content"] == "The parser first."
    assert reply["content"] == "I look at both."
    read, ls = reply["tool_calls"]
    assert read["extra_content"] == {"google": {"thought_signature": SIGNED}}
    assert (read["id"], ls["id"]) == ("c_a", "c_b")
    assert (read["function"]["arguments"], ls["function"]["arguments"]) == (READ, LIST)


def test_gemini_gets_its_signature_back_on_the_same_call() -> None:
    _, body = round_trip(gemini, gemini_step())
    parts = [part for content in body["contents"] for part in content["parts"]]
    read, ls = (part for part in parts if "functionCall" in part)
    assert (read["functionCall"]["name"], read["thoughtSignature"]) == ("read", SIGNED)
    assert "thoughtSignature" not in ls
    assert sum("functionResponse" in part for part in parts) == 2


def test_gemini_gets_a_signature_without_text_back() -> None:
    content = {"role": "model", "parts": [{"text": "", "thoughtSignature": SIGNED}]}
    call = {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": dict[str, Any]()}}]}
    events: list[dict[str, Any]] = [
        {"candidates": [{"content": content, "index": 0}]},
        {"candidates": [{"content": call, "index": 0, "finishReason": "STOP"}]},
    ]
    _, body = round_trip(gemini, stream(iter(events)))
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == SIGNED


@pytest.mark.parametrize(
    ("model", "sent", "wire", "field"),
    [
        (anthropic, anthropic_step(), "anthropic", "messages"),
        (chat, chat_step(), "openai-chat", "messages"),
        (responses, responses_step(), "openai-responses", "input"),
    ],
)
def test_the_next_request_is_written_by_our_codec_and_extends_the_one_before(
    model: Connect, sent: Sent, wire: str, field: str
) -> None:
    with provider(sent) as server:
        step = reply_of(model(server.url))
        reply_of(model(server.url), after(step))
    first, second = (body[field] for body in server.requests)
    assert second == request(view_after(step), wire, "You code.")
    assert second[: len(first)] == first


def test_a_model_without_a_codec_gets_its_signed_reasoning_back() -> None:
    seen: list[list[ModelMessage]] = []

    async def talk(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
        seen.append(messages)
        yield {0: DeltaThinkingPart(content="Hm.", signature="sig-1")}
        yield {1: DeltaToolCall(name="ls", json_args=LIST, tool_call_id="c1")}

    model = ProviderModel(lambda: FunctionModel(stream_function=talk), "function:talk")
    reply_of(model, after(reply_of(model)))
    thinking, call = seen[1][1].parts
    assert isinstance(thinking, ThinkingPart)
    assert (thinking.content, thinking.signature) == ("Hm.", "sig-1")
    assert thinking.provider_name == "function"
    assert isinstance(call, ToolCallPart)
    assert (call.tool_call_id, call.args_as_dict()) == ("c1", json.loads(LIST))


# --- requests -------------------------------------------------------------------------------------


def test_tools_may_be_called_in_parallel() -> None:
    bodies: dict[str, dict[str, Any]] = {}
    for model, sent in ALL:
        with provider(sent) as server:
            reply_of(model(server.url))
        bodies[model.__name__] = server.requests[0]
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


@pytest.mark.parametrize(("model", "sent"), ALL)
def test_a_step_without_tools_declares_none(model: Connect, sent: Sent) -> None:
    with provider(sent) as server:
        reply_of(model(server.url), replace(REQUEST, tools=()))
    assert not server.requests[0].get("tools")
    if model is anthropic:  # the session goes on, so it is cached all the same
        assert "cache_control" in json.dumps(server.requests[0])


@pytest.mark.parametrize(("model", "sent"), ALL)
def test_a_request_ends_with_a_user_message(model: Connect, sent: Sent) -> None:
    talk = (FIX, AssistantMessage(content=(Text(text="Half of it is fixed."),)))
    with provider(sent) as server:
        reply_of(model(server.url), replace(REQUEST, messages=talk))
    body = server.requests[0]
    (messages,) = (body[name] for name in ("messages", "input", "contents") if name in body)
    assert messages[-1]["role"] == "user"
    assert "You code." in json.dumps(body)
    assert "Half of it is fixed." in json.dumps(body)


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "cut"),
    [
        (anthropic, anthropic_step(cut=2)),
        (chat, chat_step(cut=2)),
        (responses, responses_step(cut=1)),
        (gemini, gemini_step(cut=1)),
    ],
)
@pytest.mark.parametrize("is_broken", [True, False], ids=["broken", "closed"])
def test_a_stream_without_its_end_is_a_failure_even_after_calls(
    model: Connect, cut: Sent, *, is_broken: bool
) -> None:
    deltas: list[StreamDelta] = []
    with provider(cut._replace(cut=is_broken)) as server:
        outcome = asyncio.run(model(server.url).step(REQUEST, deltas.append))
    assert isinstance(outcome, ModelFailure), outcome
    assert outcome.cause == "failed"
    assert deltas
    assert len(server.requests) == 1


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "start"),
    [
        (anthropic, stream(anthropic_events(), named=True, cut=9).body),
        (chat, stream(chat_events(), cut=7).body),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_cancelled_step_closes_its_connection(
    model: Connect, start: str, *, is_open: bool
) -> None:
    async def run(connected: Model, left: Callable[[], bool]) -> None:
        started = asyncio.Event()
        async with keep_open(connected) if is_open else nullcontext():
            step = asyncio.create_task(connected.step(REQUEST, lambda _: started.set()))
            await asyncio.wait_for(started.wait(), 20)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            assert await asyncio.to_thread(left)

    with hanging(start) as server:
        asyncio.run(run(model(server.url), lambda: server.left.wait(20)))


@pytest.mark.parametrize(("model", "sent"), ALL)
def test_an_open_model_uses_one_connection_for_many_steps(model: Connect, sent: Sent) -> None:
    async def run(connected: Model) -> None:
        async with keep_open(connected):
            for _ in range(3):
                assert isinstance(await connected.step(REQUEST, lambda _: None), StepReply)
        assert isinstance(await connected.step(REQUEST, lambda _: None), StepReply)

    with provider(sent) as server:
        asyncio.run(run(model(server.url)))
        assert server.connections == 2  # one of them for the last step


def test_a_model_without_connections_can_be_kept_open() -> None:
    async def run() -> StepReply | ModelFailure:
        model = ScriptedModel("Done.")
        async with keep_open(model):
            return await model.step(REQUEST, lambda _: None)

    assert asyncio.run(run()) == StepReply(parts=(TextPart(text="Done."),))
