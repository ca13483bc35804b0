"""Small sessions about a pump, made by hand."""

from typing import Any

from msgspec import UNSET

from foldmark.log.log import Log
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Cache,
    CompactionPart,
    Completed,
    Failed,
    Message,
    Pending,
    ReasoningPart,
    TextPart,
    Time,
    Tokens,
    ToolPart,
    UserInfo,
)
from foldmark.tokens.counters import counter


def user(name: str, *parts: AnyPart, at: int = 0) -> Message:
    return Message(info=UserInfo(id=name, time=Time(created=at)), parts=parts)


def asked(name: str, text: str, at: int = 0) -> Message:
    return user(name, TextPart(text=text), at=at)


def answer(name: str, *parts: AnyPart, at: int = 0, measured: int = 0) -> Message:
    info = AssistantInfo(
        id=name,
        provider_id="acme",
        model_id="large",
        finish="stop",
        time=Time(created=at, completed=at),
        tokens=Tokens(input=1, output=7, cache=Cache(read=measured - 1)) if measured else UNSET,
    )
    return Message(info=info, parts=parts)


def read(path: str, output: str, *, pruned: int = 0, **given: Any) -> ToolPart:
    time = Time(compacted=pruned) if pruned else UNSET
    state = Completed(input={"filePath": path, **given}, output=output, time=time)
    return ToolPart(tool="read", state=state)


def wrote(path: str, output: str = "Written.") -> ToolPart:
    return ToolPart(tool="write", state=Completed(input={"filePath": path}, output=output))


def ran(command: str, output: str) -> ToolPart:
    return ToolPart(tool="bash", state=Completed(input={"command": command}, output=output))


def pivot(
    name: str, *summary: AnyPart, tail: str = "", wire: Any = UNSET, **told: Any
) -> tuple[Message, Message]:
    """A marker and its summary."""
    part = CompactionPart(auto=True, tail_start_id=tail or UNSET)
    marker = Message(info=UserInfo(id=f"{name}-marker", wire=wire), parts=(part,))
    info = AssistantInfo(
        id=f"{name}-summary", parent_id=marker.id, summary=True, finish="stop", **told
    )
    return marker, Message(info=info, parts=summary)


def session() -> list[Message]:
    """One request, calls in every state, and an answer a minute later."""
    return [
        user("m1", TextPart(text="Mend the pump, please"), at=1_000),
        answer(
            "m2",
            ReasoningPart(text="The valve comes first"),
            TextPart(text="I look at the valve"),
            read("/pump/valve.py", "def valve(): ...\n" * 90),
            ToolPart(tool="bash", state=Failed(input={"command": "turn"}, error="stuck " * 50)),
            ToolPart(tool="bash", state=Pending(input={"command": "turn harder"})),
        ),
        answer("m3", TextPart(text="The valve is mended"), at=61_000),
    ]


def logged(*messages: Message) -> Log:
    return Log(counter("classes"), messages)
