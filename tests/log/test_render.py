"""What a model is shown of single messages, finished, failed, pruned (spec 000, 001, 003)."""

from typing import Any

import pytest
from msgspec.structs import replace

from foldmark.log.log import Log, ordinal_of
from foldmark.log.view import NO_REPLY, Viewer
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Pending,
    ReasoningPart,
    Running,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    Output,
    Reasoning,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.policy import FOLDMARK, OPENCODE_2025, PRESETS, Policy
from foldmark.tokens.counters import by_classes, counter
from foldmark.tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD
from tests.support.view_lines import shown, told

EVERY = pytest.mark.parametrize("policy", PRESETS.values(), ids=lambda p: p.name)
ABORTED = {"name": "MessageAbortedError"}
SHOT = FilePart(mime="image/png", url="data:image/png;base64,AAAA")


def user(text: str, *parts: AnyPart) -> Message:
    return Message(info=UserInfo(id="u"), parts=(TextPart(text=text), *parts))


def agent(*parts: AnyPart, **info: Any) -> Message:
    return Message(info=AssistantInfo(id="a", finish="stop", **info), parts=parts)


def call(state: Any) -> ToolPart:
    return ToolPart(tool="bash", call_id="c1", state=state)


def ran(output: str) -> ToolPart:
    return call(Completed(input={"command": "ls"}, output=output))


def did(tool: str, length: int, **given: Any) -> ToolPart:
    """A finished call with an output of this length."""
    return ToolPart(tool=tool, call_id="c1", state=Completed(input=given, output="x" * length))


def placeholder(*parts: AnyPart) -> str:
    """What is shown of the last of these parts, once it is pruned."""
    log = Log(by_classes, [user("look"), agent(*parts)])
    log.mark([len(parts)], at=9)
    return told(Viewer(log, FOLDMARK))[-1].removeprefix("text c1: ")


# --- single messages ------------------------------------------------------------------------


@EVERY
def test_a_finished_call_is_shown_with_its_output(policy: Policy) -> None:
    work = agent(StepStartPart(), TextPart(text="I look."), ran("a.py"), StepFinishPart())
    assert shown(user("look"), work, policy=policy) == [
        "user: look",
        "assistant: I look.",
        "call c1",
        "text c1: a.py",
    ]


@EVERY
@pytest.mark.parametrize("state", [Pending(input={}, raw="{"), Running(input={})])
def test_an_interrupted_call_is_shown_as_an_error(policy: Policy, state: Any) -> None:
    assert shown(user("look"), agent(call(state)), policy=policy) == [
        "user: look",
        "call c1",
        "error-text c1: [Tool execution was interrupted]",
    ]


@EVERY
def test_a_failed_call_is_shown_with_its_error(policy: Policy) -> None:
    failed = agent(call(Failed(input={}, error="no such file")))
    assert shown(user("look"), failed, policy=policy)[1:] == [
        "call c1",
        "error-text c1: no such file",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("opencode-2025", "[Old tool result content cleared]"),
        ("opencode", "[Old tool result content cleared]"),
        ("opencode-buffer", "[output truncated by compaction]"),
        ("foldmark", "[bash ls: 4 B pruned; recall h1]"),
    ],
)
def test_a_pruned_output_is_shown_as_a_placeholder(name: str, text: str) -> None:
    policy = PRESETS[name]
    log = Log(counter(policy.estimate), [user("look"), agent(ran("a.py"))])
    viewer = Viewer(log, policy)
    assert told(viewer)[-1] == "text c1: a.py"
    log.mark([1], at=5)
    assert told(viewer) == ["user: look", "call c1", f"text c1: {text}"]


def test_a_placeholder_is_a_setting() -> None:
    policy = replace(OPENCODE_2025, view=replace(OPENCODE_2025.view, placeholder="[compacted]"))
    log = Log(counter(policy.estimate), [user("look"), agent(ran("a.py"))])
    log.mark([1], at=5)
    assert told(Viewer(log, policy))[-1] == "text c1: [compacted]"


@EVERY
def test_a_failed_answer_is_left_out(policy: Policy) -> None:
    failed = agent(TextPart(text="half an ans"), error={"name": "APIError"})
    assert "half an ans" not in " ".join(shown(user("look"), failed, user("again"), policy=policy))


@EVERY
@pytest.mark.parametrize("part", [TextPart(text="As I was"), ran("a.py")])
def test_an_aborted_answer_is_kept_if_it_had_said_something(policy: Policy, part: AnyPart) -> None:
    aborted = agent(StepStartPart(), part, error=ABORTED)
    assert len(shown(user("look"), aborted, policy=policy)) > 1


@EVERY
def test_an_aborted_answer_that_had_only_thought_is_left_out(policy: Policy) -> None:
    aborted = agent(StepStartPart(), ReasoningPart(text="hm"), error=ABORTED)
    assert shown(user("look"), aborted, policy=policy) == ["user: look"]


@EVERY
@pytest.mark.parametrize(
    ("reader", "thought"),
    [("", "thought: hm"), ("test:small", "thought: hm"), ("test:large", "assistant: hm")],
)
def test_the_reasoning_of_another_model_is_plain_text(
    policy: Policy, reader: str, thought: str
) -> None:
    answer = agent(
        *(ReasoningPart(text="hm"), TextPart(text="yes")), provider_id="test", model_id="small"
    )
    lines = shown(user("is it?"), answer, policy=policy, model=reader)
    assert lines == ["user: is it?", thought, "assistant: yes"]


@EVERY
def test_ignored_text_is_not_shown_and_synthetic_text_is(policy: Policy) -> None:
    aside = TextPart(text="not for you", ignored=True)
    note = TextPart(text="Continue if you have next steps", synthetic=True)
    assert shown(user("look", aside, note), policy=policy) == [
        "user: look",
        "user: Continue if you have next steps",
    ]


@EVERY
def test_a_picture_is_shown_and_a_text_file_was_expanded_before(policy: Policy) -> None:
    picture = FilePart(mime="image/png", url="data:image/png;base64,AAAA")
    notes = FilePart(mime="text/plain", url="file:///notes.txt")
    assert shown(user("look", picture, notes), policy=policy) == ["user: look", "user: <image/png>"]


def test_nothing_of_a_message_is_lost_or_added() -> None:
    thought = ReasoningPart(text="hm", metadata={"anthropic": {"signature": "s"}})
    shot = replace(SHOT, filename="shot.png")
    output = replace(ran("a.py"), state=Completed(input={}, output="a.py", attachments=(shot,)))
    log = Log(by_classes, [user("look", SHOT), agent(thought, ran("a.py")), agent(output)])
    picture = Media(data=SHOT.url, media_type="image/png")
    named = Media(data=SHOT.url, media_type="image/png", filename="shot.png")
    out = Output(type="text", value="a.py")
    assert Viewer(log, OPENCODE_2025).view().messages == (
        UserMessage(content=(Text(text="look"), picture)),
        AssistantMessage(
            content=(
                Reasoning(text="hm", provider_options={"anthropic": {"signature": "s"}}),
                Call(tool_call_id="c1", tool_name="bash", input={"command": "ls"}),
            )
        ),
        ToolMessage(content=(Result(tool_call_id="c1", tool_name="bash", output=out),)),
        AssistantMessage(content=(Call(tool_call_id="c1", tool_name="bash", input={}),)),
        ToolMessage(
            content=(Result(tool_call_id="c1", tool_name="bash", output=out, attachments=(named,)),)
        ),
    )


@EVERY
def test_a_view_costs_what_its_texts_cost_and_a_little_for_each_message(policy: Policy) -> None:
    count = counter(policy.estimate)
    words = [f"{number} words and more of them" for number in range(4)]
    work = agent(ReasoningPart(text=words[1]), TextPart(text=words[2]), ran(words[3]))
    log = Log(count, [user(words[0]), work])
    given = count('{"command":"ls"}')
    texts = sum(count(text) for text in words)
    viewer = Viewer(log, policy)
    assert viewer.view().tokens == 3 * MESSAGE_OVERHEAD + CALL_OVERHEAD + given + texts
    log.mark([3], at=5)
    pruned = count(told(viewer)[-1].removeprefix("text c1: "))
    assert viewer.view().tokens == (
        3 * MESSAGE_OVERHEAD + CALL_OVERHEAD + given + texts - count(words[3]) + pruned
    )


def test_an_answer_that_shows_nothing_still_was_one() -> None:
    blank = agent(TextPart(text=" "))
    assert shown(user("one"), blank, user("two"))[1] == f"assistant: {NO_REPLY}"


@EVERY
def test_a_task_for_another_agent_is_told_of(policy: Policy) -> None:
    task = SubtaskPart(prompt="look", agent="explore")
    log = Log(counter(policy.estimate), [user("go", task)])
    lines = told(Viewer(log, policy))
    assert len(lines) == 2
    told_of = log.count(lines[1].removeprefix("user: "))
    assert Viewer(log, policy).view().tokens == MESSAGE_OVERHEAD + log.count("go") + told_of


# --- placeholders ---------------------------------------------------------------------------


def test_a_placeholder_names_tool_target_size_and_handle() -> None:
    assert placeholder(did("read", 4_000, filePath="src/app.py")) == (
        "[read src/app.py: 4.0 kB pruned; recall h1]"
    )
    assert placeholder(did("grep", 999, pattern="x", path="src")) == (
        "[grep x: 999 B pruned; recall h1]"
    )
    assert placeholder(did("read", 1_000, path="a")) == "[read a: 1.0 kB pruned; recall h1]"
    assert placeholder(did("think", 400)) == "[think: 400 B pruned; recall h1]"
    assert placeholder(ran("one\ntwo\n")) == "[bash ls: 8 B, 3 lines pruned; recall h1]"


def test_the_handle_in_a_placeholder_leads_back_to_the_part() -> None:
    for number in range(1, 40):
        parts = [*(TextPart(text="next") for _ in range(number)), did("bash", 500)]
        handle = placeholder(*parts).rpartition("recall ")[2].rstrip("]")
        assert ordinal_of(handle) == number + 1
        log = Log(by_classes, [user("look"), agent(*parts), agent()])
        found = log.part_at(number + 1)
        assert found is not None
        entry, offset = found
        assert entry.message.parts[offset] == parts[-1]


@pytest.mark.parametrize("name", ["", "h", "7", "hx", "h-1", "h 1", "handle", "h1_0"])
def test_what_is_no_handle_leads_nowhere(name: str) -> None:
    assert ordinal_of(name) is None


def test_a_handle_beyond_the_log_leads_nowhere() -> None:
    log = Log(by_classes, [user("one"), agent(), user("two")])
    assert log.part_at(1) == (log.entries[2], 0)
    assert log.part_at(2) is None
    assert log.part_at(-1) is None


def test_a_long_target_is_cut_and_stays_on_one_line() -> None:
    text = placeholder(did("bash", 2_000, command="first\nsecond " + "x" * 200))
    assert text.startswith("[bash first second xxx")
    assert text.endswith("…: 2.0 kB pruned; recall h1]")
    assert len(text) < 130


@EVERY
def test_attachments_go_with_the_output_and_come_back_with_it(policy: Policy) -> None:
    part = did("screenshot", 500)
    part = replace(part, state=replace(part.state, attachments=(SHOT,)))
    log = Log(counter(policy.estimate), [user("look"), agent(part)])
    viewer = Viewer(log, policy)
    before = viewer.view()
    assert len(first_result(viewer).attachments) == 1
    log.mark([1], at=9)
    assert first_result(viewer).attachments == ()
    assert first_result(viewer).output.value.startswith("[")
    assert viewer.view().tokens < before.tokens
    log.unmark([1])
    assert viewer.view() == before


def first_result(viewer: Viewer) -> Result:
    results = (message for message in viewer.view().messages if isinstance(message, ToolMessage))
    return next(results).content[0]


# --- not so yet -----------------------------------------------------------------------------


def test_braces_in_a_target_are_shown_as_they_are() -> None:
    part = did("bash", 4_000, command="echo {size} {handle} a : b")
    assert placeholder(part) == "[bash echo {size} {handle} a : b: 4.0 kB pruned; recall h1]"


def test_an_empty_thought_of_another_model_is_not_shown() -> None:
    sealed = ReasoningPart(text="", metadata={"anthropic": {"signature": "s"}})
    answer = agent(sealed, TextPart(text="yes"), provider_id="test", model_id="small")
    assert shown(user("is it?"), answer, model="test:large") == ["user: is it?", "assistant: yes"]
