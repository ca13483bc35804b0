"""Sessions of every kind: parallel, interrupted, failed and repeated calls, several pivots, failed
markers, media, empty messages.

Parts are drawn from pools that are built once, so that a session is only a few dozen choices and
thousands of sessions can be tried.
"""

import random
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Cache,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    Message,
    ModelRef,
    Pending,
    ReasoningPart,
    Running,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Time,
    Tokens,
    ToolPart,
    UserInfo,
)

PNG = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MODEL = ModelRef(provider_id="test", model_id="small")
FILES = ("src/app.py", "src/db.py", "docs/guide.md")
WORDS = ("fix", "the", "login", "test", "timeout", "in", "worker", "never", "日本", "ok")
_choice = random.Random(3)  # noqa: S311 - test data


def _sentence() -> str:
    return " ".join(_choice.choices(WORDS, k=_choice.randint(1, 12)))


def _tool(tool: str) -> ToolPart:
    """A call in a random state; few call ids, so that some are repeated."""
    arguments: dict[str, Any] = {"command": _sentence()}
    if tool in {"read", "edit"}:
        arguments = {"filePath": _choice.choice(FILES)}
        if _choice.random() < 0.3:
            arguments |= {"offset": 10, "limit": 20}
    start = _choice.randint(1, 50)
    time = Time(start=start, end=start + _choice.randint(0, 20))
    output = _sentence() * _choice.choice((0, 1, 5, 40, 200))
    attached = (FilePart(mime="image/png", url=PNG),) if _choice.random() < 0.1 else ()
    state = _choice.choice(
        (
            Completed(input=arguments, output=output, time=time, metadata={"exit": 0}),
            Completed(input=arguments, output=output, time=time, attachments=attached),
            Completed(input=arguments, output=output, time=time, metadata={"exit": 1}),
            Completed(input=arguments, output=output, time=Time(start=start, end=99, compacted=99)),
            Failed(input=arguments, error=_sentence(), time=time),
            Running(input=arguments, time=Time(start=start)),
            Pending(input=arguments),
        )
    )
    call_id = _choice.choice(("c1", "c2", "c3", "c4", "c5", ""))
    return ToolPart(id=f"prt_{_choice.randint(0, 9**9)}", tool=tool, call_id=call_id, state=state)


TOOLS = [_tool(name) for name in ("read", "edit", "bash", "grep", "skill") * 24]
TEXTS = [TextPart(text=_sentence()) for _ in range(30)] + [TextPart(text=""), TextPart(text=" \n")]
REASONINGS = [
    ReasoningPart(text=text, metadata={"anthropic": {"signature": "s"}})
    for text in (_sentence(), _sentence(), _sentence(), "", " ")
]
SHOT = FilePart(mime="image/png", url=PNG, filename="shot.png")
USER_PARTS: list[tuple[AnyPart, ...]] = [
    *[(TextPart(text=_sentence()),) for _ in range(20)],
    *[(TextPart(text=_sentence()), TextPart(text=f"Always {_sentence()}")) for _ in range(4)],
    (TextPart(text=_sentence()), SHOT),
    (TextPart(text=_sentence(), synthetic=True),),
    (TextPart(text=_sentence(), ignored=True),),
    (TextPart(text="  \n"),),
    (TextPart(text=_sentence(), metadata={"pin": True}),),
    (),
]
ERRORS: tuple[Any, ...] = (None,) * 8 + ({"name": "APIError"}, {"name": "MessageAbortedError"})


@st.composite
def user_messages(draw: st.DrawFn, number: int) -> Message:
    parts = draw(st.sampled_from(USER_PARTS))
    return Message(info=UserInfo(id=f"msg_{number}", model=MODEL), parts=parts)


@st.composite
def assistant_messages(draw: st.DrawFn, number: int, parent: str) -> Message:
    kind = draw(st.integers(0, 15))
    parts: list[AnyPart] = [StepStartPart()] if kind % 2 else []
    if kind >= 12:
        parts.append(draw(st.sampled_from(REASONINGS)))
    if kind % 4 < 2:
        parts.append(draw(st.sampled_from(TEXTS)))
    tools = draw(st.lists(st.sampled_from(TOOLS), max_size=4)) if kind % 3 else []
    parts += tools
    finish = "tool-calls" if tools else ("stop", "stop", "length", "")[kind % 4]
    error = draw(st.sampled_from(ERRORS))
    measured = draw(st.sampled_from((0, 10, 500, 3000)))
    info = AssistantInfo(
        id=f"msg_{number}",
        parent_id=parent,
        provider_id="test",
        model_id="small",
        tokens=Tokens(input=measured, output=5, reasoning=0, cache=Cache(read=0, write=0)),
        **({"finish": finish} if finish else {}),
        **({"error": error} if error else {}),
    )
    parts.append(StepFinishPart(reason=finish))
    return Message(info=info, parts=tuple(parts))


@st.composite
def pivots(draw: st.DrawFn, number: int, ids: list[str]) -> list[Message]:
    """A marker with a summary that is done, failed, incomplete or missing."""
    tail = draw(st.sampled_from(("", "", "msg_gone", *ids[-8:])))
    part = CompactionPart(auto=True, tail_start_id=tail or UNSET)
    marker = Message(info=UserInfo(id=f"msg_{number}"), parts=(part,))
    outcome = draw(st.sampled_from(("done", "done", "failed", "half", "queued")))
    if outcome == "queued":
        return [marker]
    extra: dict[str, Any] = {} if outcome == "half" else {"finish": "stop"}
    if outcome == "failed":
        extra["error"] = {"name": "APIError"}
    info = AssistantInfo(
        id=f"msg_{number + 1}",
        parent_id=marker.id,
        mode="compaction",
        agent="compaction",
        summary=True,
        **extra,
    )
    summary = Message(info=info, parts=(TextPart(text=f"Summary {number}: all is well."),))
    between = [draw(user_messages(number + 2))] if draw(st.integers(0, 3)) == 0 else []
    return [marker, *between, summary]


@st.composite
def sessions(draw: st.DrawFn, max_size: int = 24) -> list[Message]:
    messages: list[Message] = []
    parent = ""
    kinds = draw(st.lists(st.integers(0, 9), max_size=max_size))
    for step, kind in enumerate(kinds):
        number = step * 10
        if kind <= 2:
            messages.append(draw(user_messages(number)))
            parent = messages[-1].id
        elif kind == 3:
            messages += draw(pivots(number, [message.id for message in messages]))
        else:
            messages.append(draw(assistant_messages(number, parent)))
    return messages
