"""Sessions for tests of the digest, told in few words."""

from typing import Any

from foldmark.digest.digest import digest
from foldmark.log.log import Log
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    Message,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.tokens.counters import by_classes


def user(text: str) -> Message:
    return Message(info=UserInfo(id="u"), parts=(TextPart(text=text),))


def assistant(*parts: AnyPart | str, finish: str = "tool-calls") -> Message:
    held = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return Message(info=AssistantInfo(id="a", finish=finish), parts=held)


def answer(text: str) -> Message:
    return assistant(text, finish="stop")


def call(tool: str, output: str = "", *, status: int = 0, **given: Any) -> ToolPart:
    return ToolPart(
        tool=tool, state=Completed(input=given, output=output, metadata={"exit": status})
    )


def broken(tool: str, error: str, **given: Any) -> ToolPart:
    return ToolPart(tool=tool, state=Failed(input=given, error=error))


def digested(*messages: Message, room: int = 2_000, **more: Any) -> str:
    log = Log(by_classes, messages)
    return digest(log, range(len(log)), room, **more)


def section(text: str, name: str) -> list[str]:
    """The lines of a section."""
    _, _, rest = text.partition(f"\n## {name}\n")
    return rest.partition("\n\n")[0].split("\n") if rest else []
