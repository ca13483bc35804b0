"""The scripted model as an agent's: every kind of reply, tokens by estimate, a window."""

import asyncio

import pytest

from foldmark.model.messages import Pending, ReasoningPart, TextPart, Tokens, ToolPart
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    ToolDeclaration,
    Media,
    Output,
    Result,
    Text,
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
    StreamDelta,
    StepReply,
    TextDelta,
)
from foldmark.testing import ScriptedModel, request_tokens, call, thought
from foldmark.tokens.counters import counter


def ask(text: str = "Mend it", purpose: str = STEP) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(content=(Text(text=text),)),), purpose=purpose)


def stepped(
    model: ScriptedModel, given: ModelRequest | None = None, told: list[StreamDelta] | None = None
) -> StepReply | ModelFailure:
    pieces = told if told is not None else []
    return asyncio.run(model.step(given or ask(), pieces.append))


def answered(model: ScriptedModel, given: ModelRequest | None = None) -> StepReply:
    outcome = stepped(model, given)
    assert isinstance(outcome, StepReply), outcome
    return outcome


def summary(model: ScriptedModel, purpose: str = "summary") -> Outcome:
    return asyncio.run(model.ask(ask(purpose=purpose), lambda _: None))


def test_a_text_is_words_and_a_call_is_pending_with_an_id() -> None:
    model = ScriptedModel("I look.", call("read", path="mill.py"))
    assert answered(model) == StepReply(parts=(TextPart(text="I look."),))
    step = answered(model)
    (part,) = step.calls
    assert (part.tool, part.state) == ("read", Pending(input={"path": "mill.py"}))
    assert part.call_id
    assert step.finish == "tool-calls"


def test_several_bits_are_one_answer_in_their_order() -> None:
    told: list[StreamDelta] = []
    bits = [thought("Hm."), "Both at once.", call("read", path="a"), call("read", path="a")]
    step = stepped(ScriptedModel(bits), told=told)
    assert isinstance(step, StepReply)
    assert [type(part) for part in step.parts] == [ReasoningPart, TextPart, ToolPart, ToolPart]
    first, second = step.calls
    assert first.call_id != second.call_id
    assert told == [
        TextDelta(text="Hm.", kind="reasoning"),
        TextDelta(text="Both at once."),
        CallDelta(call_id=str(first.call_id), tool="read"),
        CallDelta(call_id=str(second.call_id), tool="read"),
    ]


def test_a_call_that_is_repeated_has_another_id_each_time_in_every_model() -> None:
    models = [ScriptedModel(call("ls")), ScriptedModel(call("ls"))]
    steps = [answered(model, ask(f"turn {n}")) for n, model in enumerate(models * 2)]
    assert len({step.calls[0].call_id for step in steps}) == 4


def test_a_reply_may_be_a_whole_outcome_or_a_function_of_the_ask() -> None:
    whole = StepReply(parts=(ToolPart(tool="ls", call_id="mine", state=Pending(input={})),), cost=0.5)
    refusal = ModelFailure(cause="throttled", message="slow down")
    tokens = Tokens(input=5, output=2)
    model = ScriptedModel(
        whole,
        refusal,
        ModelReply(text="cut", finish="length", tokens=tokens, cost=0.1),
        lambda given: [f"for {given.purpose}", call("ls")],
        OSError("gone"),
    )
    assert stepped(model) == whole
    assert stepped(model) == refusal
    assert stepped(model) == StepReply(
        parts=(TextPart(text="cut"),), finish="length", tokens=tokens, cost=0.1
    )
    step = answered(model)
    assert step.parts[0] == TextPart(text="for step")
    assert len(step.calls) == 1
    with pytest.raises(OSError, match="gone"):
        stepped(model)


def test_a_script_that_has_ended_refuses_or_repeats_its_last_reply() -> None:
    model = ScriptedModel("one", "two")
    assert [answered(model).parts[0] for _ in range(3)] == [
        TextPart(text=text) for text in ("one", "two", "two")
    ]
    model = ScriptedModel("one", repeat=False)
    answered(model)
    assert isinstance(stepped(model), ModelFailure)


def test_long_words_are_told_in_pieces_after_a_while() -> None:
    told: list[StreamDelta] = []
    text = "a text that is longer than a piece"
    stepped(ScriptedModel(text, delay=0.01), told=told)
    assert len(told) == 3
    assert "".join(piece.text for piece in told if isinstance(piece, TextDelta)) == text


# --- asks beside steps ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        ScriptedModel(call("ls"), "Done."),
        ScriptedModel(["I look", call("ls")]),
        ScriptedModel(StepReply(parts=(TextPart(text="Done."),))),
    ],
)
def test_a_script_for_steps_answers_asks_with_a_summary_that_is_accepted(
    model: ScriptedModel,
) -> None:
    said = summary(model)
    assert isinstance(said, ModelReply)
    assert flaw(said, counter("classes"), limit=200, sections=SECTIONS) is None
    title = summary(model, "title")
    assert isinstance(title, ModelReply)
    assert "\n" not in title.text
    first = answered(model)
    assert first.parts  # the asks have taken nothing from the script
    assert [given.purpose for given in model.requests] == ["summary", "title", "step"]


def test_a_model_that_has_stepped_gives_no_more_of_its_script_to_asks() -> None:
    model = ScriptedModel("one", "two")
    answered(model)
    said = summary(model)
    assert isinstance(said, ModelReply)
    assert said.text not in ("one", "two")
    assert answered(model).parts == (TextPart(text="two"),)


def test_summaries_have_a_script_of_their_own() -> None:
    assert summary(ScriptedModel("step", summaries="S")) == ModelReply(text="S")
    refusal = ModelFailure(cause="failed", message="no")
    assert summary(ScriptedModel("step", summaries=refusal)) == refusal
    model = ScriptedModel("step", summaries=lambda given: f"of a {given.purpose}")
    assert summary(model, "chunk") == ModelReply(text="of a chunk")


def test_an_ask_that_is_answered_by_calls_counts_them() -> None:
    said = summary(ScriptedModel("x", summaries=["I must look", call("ls"), call("ls")]))
    assert said == ModelReply(text="I must look", finish="tool-calls", calls=2)
    kept = ModelReply(text="x", calls=3)
    assert summary(ScriptedModel(kept)) == kept


# --- tokens and the window ------------------------------------------------------------------------


def long_ask(words: int) -> ModelRequest:
    result = Result(
        tool_call_id="c", tool_name="ls", output=Output(type="text", value="wheel " * words)
    )
    made = Call(tool_call_id="c", tool_name="ls", input={"path": "mill"})
    picture = Media(data="data:image/png;base64,iVBORw0KGgo=", media_type="image/png")
    talk = (
        UserMessage(content=(Text(text="Mend it"), picture)),
        AssistantMessage(content=(made,)),
        ToolMessage(content=(result,)),
    )
    tool = ToolDeclaration(name="ls", description="Lists files", schema={"type": "object"})
    return ModelRequest(messages=talk, system="You code.", tools=(tool,), purpose=STEP)


def test_tokens_are_told_only_where_they_are_asked_for() -> None:
    assert answered(ScriptedModel("Done.")).tokens is None
    small, large = (answered(ScriptedModel("Done.", measured=True), long_ask(n)) for n in (1, 900))
    assert small.tokens is not None
    assert large.tokens is not None
    assert small.tokens.input == request_tokens(long_ask(1))
    assert 900 <= int(large.tokens.input or 0) - int(small.tokens.input or 0) <= 1_800
    assert small.tokens.output == counter("classes")("Done.")
    assert small.tokens.total == int(small.tokens.input or 0) + int(small.tokens.output or 0)


def test_everything_in_a_request_counts() -> None:
    whole = long_ask(50)
    less = [
        ModelRequest(messages=whole.messages, system="", tools=whole.tools),
        ModelRequest(messages=whole.messages, system=whole.system),
        *(
            ModelRequest(
                messages=(*whole.messages[:n], *whole.messages[n + 1 :]),
                system=whole.system,
                tools=whole.tools,
            )
            for n in range(3)
        ),
    ]
    assert all(request_tokens(part) < request_tokens(whole) for part in less)


def test_tokens_that_a_reply_gives_are_kept() -> None:
    reply = StepReply(parts=(), tokens=Tokens(input=7))
    assert answered(ScriptedModel(reply, measured=True)) == reply


def test_a_request_that_exceeds_the_window_is_refused_as_an_overflow() -> None:
    model = ScriptedModel("Done.", window=2_000)
    assert isinstance(stepped(model, long_ask(20)), StepReply)
    outcome = stepped(model, long_ask(900))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "overflow"
    assert "2000" in outcome.message
    said = asyncio.run(model.ask(long_ask(900), lambda _: None))
    assert isinstance(said, ModelFailure)
