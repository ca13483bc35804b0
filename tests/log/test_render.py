"""The view of single messages: finished, failed and pruned calls (spec 000, 001, 003)."""

from typing import Any

import pytest
from msgspec.structs import replace

from foldmark.log.log import Log, ordinal_of
from foldmark.log.view import NO_REPLY, Viewer
from foldmark.model.messages import (
    AnyPart,
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
from tests.support.messages import call, ran, reply, user
from tests.support.view_lines import lines_of, view_of

EVERY = pytest.mark.parametrize("policy", PRESETS.values(), ids=lambda p: p.name)
ABORTED = {"name": "MessageAbortedError"}
SHOT = FilePart(mime="image/png", url="data:image/png;base64,AAAA")


def did(tool: str, length: int, **arguments: Any) -> ToolPart:
    """A finished call with an output of this length."""
    return ToolPart(tool=tool, call_id="c1", state=Completed(input=arguments, output="x" * length))


def placeholder(*parts: AnyPart) -> str:
    """The placeholder of the last of these parts once it is pruned."""
    log = Log(by_classes, [user("look"), reply(*parts)])
    log.mark([len(parts)], at=9)
    return lines_of(Viewer(log, FOLDMARK))[-1].removeprefix("text c1: ")


# --- single messages ------------------------------------------------------------------------


def aborted(part: AnyPart) -> Message:
    return reply(StepStartPart(), part, error=ABORTED)


NOTES = FilePart(mime="text/plain", url="file:///notes.txt")
ASIDE = TextPart(text="not for you", ignored=True)
INTERRUPTED = ["call c1", "error-text c1: [Tool execution was interrupted]"]
ERROR = ["call c1", "error-text c1: no such file"]
LINES: dict[str, tuple[Message, list[str]]] = {
    "a requested call": (reply(call(Pending(input={}, raw="{"))), INTERRUPTED),
    "a running call": (reply(call(Running(input={}))), INTERRUPTED),
    "a failed call": (reply(call(Failed(input={}, error="no such file"))), ERROR),
    "an aborted text": (aborted(TextPart(text="As I")), ["assistant: As I"]),
    "an aborted call": (aborted(ran("a.py")), ["call c1", "text c1: a.py"]),
    "aborted reasoning": (aborted(ReasoningPart(text="hm")), []),
    "ignored text": (user("yes", ASIDE), ["user: yes"]),
    "synthetic text": (user("yes", synthetic=True), ["user: yes"]),
    "an image": (user("yes", SHOT), ["user: yes", "user: <image/png>"]),
    "an expanded text file": (user("yes", NOTES), ["user: yes"]),
}


@EVERY
@pytest.mark.parametrize(("message", "lines"), LINES.values(), ids=LINES)
def test_each_kind_of_part_has_its_own_lines(
    policy: Policy, message: Message, lines: list[str]
) -> None:
    assert view_of(user("look"), message, policy=policy) == ["user: look", *lines]


@EVERY
def test_a_finished_call_is_shown_with_its_output(policy: Policy) -> None:
    work = reply(StepStartPart(), TextPart(text="I look."), ran("a.py"), StepFinishPart())
    lines = view_of(user("look"), work, policy=policy)
    assert lines == ["user: look", "assistant: I look.", "call c1", "text c1: a.py"]


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
    log = Log(counter(policy.estimate), [user("look"), reply(ran("a.py"))])
    viewer = Viewer(log, policy)
    assert lines_of(viewer)[-1] == "text c1: a.py"
    log.mark([1], at=5)
    assert lines_of(viewer) == ["user: look", "call c1", f"text c1: {text}"]


def test_a_placeholder_is_a_setting() -> None:
    policy = replace(OPENCODE_2025, view=replace(OPENCODE_2025.view, placeholder="[compacted]"))
    log = Log(counter(policy.estimate), [user("look"), reply(ran("a.py"))])
    log.mark([1], at=5)
    assert lines_of(Viewer(log, policy))[-1] == "text c1: [compacted]"


@EVERY
def test_a_failed_reply_is_left_out(policy: Policy) -> None:
    failed = reply(TextPart(text="half an ans"), error={"name": "APIError"})
    assert "half an ans" not in " ".join(
        view_of(user("look"), failed, user("again"), policy=policy)
    )


@EVERY
@pytest.mark.parametrize(
    ("reader", "thought"),
    [("", "thought: hm"), ("test:small", "thought: hm"), ("test:large", "assistant: hm")],
)
def test_the_reasoning_of_another_model_is_plain_text(
    policy: Policy, reader: str, thought: str
) -> None:
    parts = (ReasoningPart(text="hm"), TextPart(text="yes"))
    answer = reply(*parts, provider_id="test", model_id="small")
    lines = view_of(user("is it?"), answer, policy=policy, model=reader)
    assert lines == ["user: is it?", thought, "assistant: yes"]


def test_a_view_has_all_parts_and_fields_of_its_messages() -> None:
    thought = ReasoningPart(text="hm", metadata={"anthropic": {"signature": "s"}})
    shot = replace(SHOT, filename="shot.png")
    output = replace(ran("a.py"), state=Completed(input={}, output="a.py", attachments=(shot,)))
    log = Log(by_classes, [user("look", SHOT), reply(thought, ran("a.py")), reply(output)])
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
def test_a_view_has_the_tokens_of_its_texts_and_an_overhead_per_message(policy: Policy) -> None:
    count = counter(policy.estimate)
    texts = [f"{number} words and more of them" for number in range(4)]
    work = reply(ReasoningPart(text=texts[1]), TextPart(text=texts[2]), ran(texts[3]))
    log = Log(count, [user(texts[0]), work])
    overhead = 3 * MESSAGE_OVERHEAD + CALL_OVERHEAD + count('{"command":"ls"}')
    viewer = Viewer(log, policy)
    assert viewer.view().tokens == overhead + sum(map(count, texts))
    log.mark([3], at=5)
    texts[3] = lines_of(viewer)[-1].removeprefix("text c1: ")
    assert viewer.view().tokens == overhead + sum(map(count, texts))


def test_a_blank_reply_still_separates_two_requests() -> None:
    assert (
        view_of(user("one"), reply(TextPart(text=" ")), user("two"))[1] == f"assistant: {NO_REPLY}"
    )


@EVERY
def test_a_task_for_another_agent_is_shown(policy: Policy) -> None:
    task = SubtaskPart(prompt="look", agent="explore")
    log = Log(counter(policy.estimate), [user("go", task)])
    lines = lines_of(Viewer(log, policy))
    assert len(lines) == 2
    note = log.count(lines[1].removeprefix("user: "))
    assert Viewer(log, policy).view().tokens == MESSAGE_OVERHEAD + log.count("go") + note


# --- placeholders ---------------------------------------------------------------------------


BRACES = "echo {size} {handle} a : b"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (did("read", 4_000, filePath="src/app.py"), "read src/app.py: 4.0 kB"),
        (did("grep", 999, pattern="x", path="src"), "grep x: 999 B"),
        (did("read", 1_000, path="a"), "read a: 1.0 kB"),
        (did("think", 400), "think: 400 B"),
        (did("bash", 4_000, command=BRACES), f"bash {BRACES}: 4.0 kB"),
        (ran("one\ntwo\n"), "bash ls: 8 B, 3 lines"),
    ],
)
def test_a_placeholder_names_tool_target_size_and_handle(part: ToolPart, text: str) -> None:
    assert placeholder(part) == f"[{text} pruned; recall h1]"


def test_the_handle_in_a_placeholder_leads_back_to_the_part() -> None:
    for number in range(1, 40):
        parts = [*(TextPart(text="next") for _ in range(number)), did("bash", 500)]
        handle = placeholder(*parts).rpartition("recall ")[2].rstrip("]")
        assert ordinal_of(handle) == number + 1
        log = Log(by_classes, [user("look"), reply(*parts), reply()])
        position = log.part_at(number + 1)
        assert position is not None
        assert position[0].message.parts[position[1]] == parts[-1]


def test_a_long_target_is_truncated_to_one_line() -> None:
    text = placeholder(did("bash", 2_000, command="first\nsecond " + "x" * 200))
    assert text.startswith("[bash first second xxx")
    assert text.endswith("…: 2.0 kB pruned; recall h1]")
    assert len(text) < 130


@EVERY
def test_attachments_are_hidden_and_restored_with_the_output(policy: Policy) -> None:
    part = did("screenshot", 500)
    part = replace(part, state=replace(part.state, attachments=(SHOT,)))
    log = Log(counter(policy.estimate), [user("look"), reply(part)])
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


def test_empty_reasoning_of_another_model_is_not_shown() -> None:
    sealed = ReasoningPart(text="", metadata={"anthropic": {"signature": "s"}})
    answer = reply(sealed, TextPart(text="yes"), provider_id="test", model_id="small")
    assert view_of(user("is it?"), answer, model="test:large") == ["user: is it?", "assistant: yes"]
