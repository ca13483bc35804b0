"""The scripted model: replies of every kind, estimated tokens, a window."""

import asyncio
import doctest
from collections.abc import Callable

import pytest

import foldmark.testing
from foldmark.model.messages import Pending, ReasoningPart, TextPart, Tokens, ToolPart
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    Output,
    Result,
    Text,
    ToolDeclaration,
    ToolMessage,
    UserMessage,
)
from foldmark.summary.fallback import flaw
from foldmark.summary.prompting import SECTIONS
from foldmark.summary.protocol import (
    STEP,
    CallDelta,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    StepReply,
    StreamDelta,
    TextDelta,
)
from foldmark.testing import ScriptedModel, call, request_tokens, thought
from foldmark.tokens.counters import counter

LONG_TEXT = "a text that is longer than a piece"
THROTTLED = ModelFailure(cause="throttled", message="slow down", retry_after=2.0)


def step_request(text: str = "Fix it", purpose: str = STEP) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(content=(Text(text=text),)),), purpose=purpose)


def step(
    model: ScriptedModel,
    request: ModelRequest | None = None,
    deltas: list[StreamDelta] | None = None,
) -> StepReply | ModelFailure:
    on_delta = (deltas if deltas is not None else []).append
    return asyncio.run(model.step(request or step_request(), on_delta))


def step_reply(model: ScriptedModel, request: ModelRequest | None = None) -> StepReply:
    outcome = step(model, request)
    assert isinstance(outcome, StepReply), outcome
    return outcome


def ask(model: ScriptedModel, purpose: str = "summary") -> Outcome:
    return asyncio.run(model.ask(step_request(purpose=purpose), lambda _: None))


def test_the_example_in_its_documentation_runs() -> None:
    result = doctest.testmod(foldmark.testing)
    assert result.attempted > 0
    assert result.failed == 0


# --- replies --------------------------------------------------------------------------------------


def test_replies_come_in_order_and_the_last_one_repeats() -> None:
    cut = ModelReply(text="two", finish="length")
    model = ScriptedModel("one", cut)
    assert [ask(model) for _ in range(3)] == [ModelReply(text="one"), cut, cut]
    assert len(model.requests) == 3
    model = ScriptedModel("one", "two")
    replies = [step_reply(model) for _ in range(3)]
    texts = ("one", "two", "two")
    assert replies == [StepReply(parts=(TextPart(text=text),)) for text in texts]


@pytest.mark.parametrize("run", [ask, step])
def test_without_repetition_a_request_after_the_last_reply_fails(
    run: Callable[[ScriptedModel], object],
) -> None:
    model = ScriptedModel("one", repeat=False)
    assert not isinstance(run(model), ModelFailure)
    assert isinstance(run(model), ModelFailure)
    assert isinstance(run(ScriptedModel()), ModelFailure)


def test_a_reply_to_ask_may_be_a_failure_an_exception_or_a_function() -> None:
    model = ScriptedModel(THROTTLED, OSError("gone"), lambda request: f"for {request.purpose}")
    assert ask(model) == THROTTLED
    with pytest.raises(OSError, match="gone"):
        ask(model)
    assert ask(model, "title") == ModelReply(text="for title")


def test_a_reply_to_step_may_be_complete_a_failure_an_exception_or_a_function() -> None:
    listing = ToolPart(tool="ls", call_id="mine", state=Pending(input={}))
    complete = StepReply(parts=(listing,), cost=0.5)
    tokens = Tokens(input=5, output=2)
    model = ScriptedModel(
        complete,
        THROTTLED,
        ModelReply(text="cut", finish="length", tokens=tokens, cost=0.1),
        lambda request: [f"for {request.purpose}", call("ls")],
        OSError("gone"),
    )
    assert step(model) == complete
    assert step(model) == THROTTLED
    assert step(model) == StepReply(
        parts=(TextPart(text="cut"),), finish="length", tokens=tokens, cost=0.1
    )
    reply = step_reply(model)
    assert reply.parts[0] == TextPart(text="for step")
    assert len(reply.calls) == 1
    with pytest.raises(OSError, match="gone"):
        step(model)


def test_several_parts_are_one_reply_and_are_streamed_in_order() -> None:
    deltas: list[StreamDelta] = []
    parts = [thought("Hm."), "Both at once.", call("read", path="a"), call("read", path="a")]
    reply = step(ScriptedModel(parts), deltas=deltas)
    assert isinstance(reply, StepReply)
    assert [type(part) for part in reply.parts] == [ReasoningPart, TextPart, ToolPart, ToolPart]
    assert (reply.calls[0].tool, reply.calls[0].state) == ("read", Pending(input={"path": "a"}))
    assert reply.finish == "tool-calls"
    first, second = (str(part.call_id) for part in reply.calls)
    assert first != second
    assert deltas == [
        TextDelta(text="Hm.", kind="reasoning"),
        TextDelta(text="Both at once."),
        CallDelta(call_id=first, tool="read"),
        CallDelta(call_id=second, tool="read"),
    ]


def test_a_repeated_call_has_another_id_each_time_in_every_model() -> None:
    models = [ScriptedModel(call("ls")), ScriptedModel(call("ls"))]
    requests = (step_request(f"turn {number}") for number in range(4))
    replies = [step_reply(*pair) for pair in zip(models * 2, requests, strict=True)]
    assert len({reply.calls[0].call_id for reply in replies}) == 4


def test_long_text_is_streamed_in_pieces_and_requests_are_recorded() -> None:
    texts: list[str] = []
    model = ScriptedModel(LONG_TEXT, name="test:one", delay=0.01)
    request = ModelRequest(messages=(), system="Be short.")
    asyncio.run(model.ask(request, texts.append))
    assert (len(texts), "".join(texts)) == (3, LONG_TEXT)
    assert (model.requests, model.name) == ([request], "test:one")
    deltas: list[StreamDelta] = []
    step(model, deltas=deltas)
    assert deltas == [TextDelta(text=text) for text in texts]


# --- summaries beside steps -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        ScriptedModel(call("ls"), "Done."),
        ScriptedModel(["I look", call("ls")]),
        ScriptedModel(StepReply(parts=(TextPart(text="Done."),))),
    ],
)
def test_a_script_for_steps_replies_to_ask_with_a_valid_summary(model: ScriptedModel) -> None:
    summary, title = ask(model), ask(model, "title")
    assert isinstance(summary, ModelReply)
    assert flaw(summary, counter("classes"), limit=200, sections=SECTIONS) is None
    assert isinstance(title, ModelReply)
    assert "\n" not in title.text
    assert step_reply(model).parts  # `ask` has taken nothing from the script
    assert [request.purpose for request in model.requests] == ["summary", "title", "step"]


def test_after_a_step_the_script_is_for_steps_only() -> None:
    model = ScriptedModel("one", "two")
    step(model)
    summary = ask(model)
    assert isinstance(summary, ModelReply)
    assert summary.text not in ("one", "two")
    assert step_reply(model).parts == (TextPart(text="two"),)


def test_summaries_have_a_script_of_their_own() -> None:
    assert ask(ScriptedModel("step", summaries="S")) == ModelReply(text="S")
    assert ask(ScriptedModel("step", summaries=THROTTLED)) == THROTTLED
    model = ScriptedModel("step", summaries=lambda request: f"of a {request.purpose}")
    assert ask(model, "chunk") == ModelReply(text="of a chunk")


def test_calls_in_a_reply_to_ask_are_counted() -> None:
    summary = ask(ScriptedModel("x", summaries=["I must look", call("ls"), call("ls")]))
    assert summary == ModelReply(text="I must look", finish="tool-calls", calls=2)
    complete = ModelReply(text="x", calls=3)
    assert ask(ScriptedModel(complete)) == complete


# --- tokens and the window ------------------------------------------------------------------------


def long_request(words: int) -> ModelRequest:
    output = Output(type="text", value="order " * words)
    result = Result(tool_call_id="c", tool_name="ls", output=output)
    listing = Call(tool_call_id="c", tool_name="ls", input={"path": "src"})
    picture = Media(data="data:image/png;base64,iVBORw0KGgo=", media_type="image/png")
    messages = (
        UserMessage(content=(Text(text="Fix it"), picture)),
        AssistantMessage(content=(listing,)),
        ToolMessage(content=(result,)),
    )
    tool = ToolDeclaration(name="ls", description="Lists files", schema={"type": "object"})
    return ModelRequest(messages=messages, system="You code.", tools=(tool,), purpose=STEP)


def test_tokens_are_reported_only_on_demand_and_never_replaced() -> None:
    assert step_reply(ScriptedModel("Done.")).tokens is None
    complete = StepReply(parts=(), tokens=Tokens(input=7))
    assert step_reply(ScriptedModel(complete, measured=True)) == complete
    small, large = (
        step_reply(ScriptedModel("Done.", measured=True), long_request(words)).tokens
        for words in (1, 900)
    )
    assert small is not None
    assert large is not None
    assert small.input == request_tokens(long_request(1))
    assert 900 <= int(large.input or 0) - int(small.input or 0) <= 1_800
    assert small.output == counter("classes")("Done.")
    assert small.total == int(small.input or 0) + int(small.output or 0)


def test_everything_in_a_request_counts() -> None:
    request = long_request(50)
    messages, system, tools = request.messages, request.system, request.tools
    smaller = [
        ModelRequest(messages=messages, tools=tools),
        ModelRequest(messages=messages, system=system),
        *(
            ModelRequest(messages=messages[:n] + messages[n + 1 :], system=system, tools=tools)
            for n in range(3)
        ),
    ]
    assert all(request_tokens(part) < request_tokens(request) for part in smaller)


def test_a_request_larger_than_the_window_fails_with_an_overflow() -> None:
    model = ScriptedModel("Done.", window=2_000)
    assert isinstance(step(model, long_request(20)), StepReply)
    outcome = step(model, long_request(900))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "overflow"
    assert "2000" in outcome.message
    assert isinstance(asyncio.run(model.ask(long_request(900), lambda _: None)), ModelFailure)
