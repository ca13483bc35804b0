"""Short builders of messages and digests, for tests of the digest."""

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
    content = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return Message(info=AssistantInfo(id="a", finish=finish), parts=content)


def answer(text: str) -> Message:
    return assistant(text, finish="stop")


def call(tool: str, output: str = "", *, status: int = 0, **arguments: Any) -> ToolPart:
    state = Completed(input=arguments, output=output, metadata={"exit": status})
    return ToolPart(tool=tool, state=state)


def failed_call(tool: str, error: str, **arguments: Any) -> ToolPart:
    return ToolPart(tool=tool, state=Failed(input=arguments, error=error))


def digest_text(*messages: Message, budget: int = 2_000, **options: Any) -> str:
    """The digest of these messages."""
    log = Log(by_classes, messages)
    return digest(log, range(len(log)), budget, **options)


def section(text: str, name: str) -> list[str]:
    """The lines of a section of a digest."""
    _, _, rest = text.partition(f"\n## {name}\n")
    return rest.partition("\n\n")[0].split("\n") if rest else []
