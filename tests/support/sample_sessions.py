"""Small sessions of a coding agent, and their parts."""

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


def user_text(name: str, text: str, at: int = 0) -> Message:
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


def read(path: str, output: str, *, pruned: int = 0, **arguments: Any) -> ToolPart:
    time = Time(compacted=pruned) if pruned else UNSET
    state = Completed(input={"filePath": path, **arguments}, output=output, time=time)
    return ToolPart(tool="read", state=state)


def write_call(path: str, output: str = "Written.") -> ToolPart:
    return ToolPart(tool="write", state=Completed(input={"filePath": path}, output=output))


def bash_call(command: str, output: str) -> ToolPart:
    return ToolPart(tool="bash", state=Completed(input={"command": command}, output=output))


def pivot(
    name: str, *summary: AnyPart, tail: str = "", wire: Any = UNSET, **fields: Any
) -> tuple[Message, Message]:
    """A marker and its summary."""
    part = CompactionPart(auto=True, tail_start_id=tail or UNSET)
    marker = Message(info=UserInfo(id=f"{name}-marker", wire=wire), parts=(part,))
    info = AssistantInfo(
        id=f"{name}-summary", parent_id=marker.id, summary=True, finish="stop", **fields
    )
    return marker, Message(info=info, parts=summary)


def session() -> list[Message]:
    """One request, calls in every state, and an answer a minute later."""
    return [
        user("m1", TextPart(text="Fix the login, please"), at=1_000),
        answer(
            "m2",
            ReasoningPart(text="The tests come first"),
            TextPart(text="I look at the login"),
            read("/app/login.py", "def login(): ...\n" * 90),
            ToolPart(tool="bash", state=Failed(input={"command": "pytest"}, error="stuck " * 50)),
            ToolPart(tool="bash", state=Pending(input={"command": "pytest -x"})),
        ),
        answer("m3", TextPart(text="The login is fixed"), at=61_000),
    ]


def logged(*messages: Message) -> Log:
    return Log(counter("classes"), messages)
