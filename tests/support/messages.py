"""Builders of messages and parts for tests of the log, the view and compaction."""

from typing import Any

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    CompactionPart,
    Completed,
    Message,
    TextPart,
    ToolPart,
    UserInfo,
)


def user(text: str = "continue", *parts: AnyPart, name: str = "u", **fields: Any) -> Message:
    return Message(info=UserInfo(id=name), parts=(TextPart(text=text, **fields), *parts))


def reply(*parts: AnyPart, name: str = "a", finish: str = "stop", **info: Any) -> Message:
    return Message(info=AssistantInfo(id=name, finish=finish, **info), parts=parts)


def said(text: str = "ok", name: str = "a", **info: Any) -> Message:
    return reply(TextPart(text=text), name=name, **info)


def call(state: Any, name: str = "c1") -> ToolPart:
    return ToolPart(tool="bash", call_id=name, state=state)


def ran(output: str, name: str = "c1") -> ToolPart:
    return call(Completed(input={"command": "ls"}, output=output), name)


def marker(name: str = "m", **fields: Any) -> Message:
    return Message(info=UserInfo(id=name), parts=(CompactionPart(auto=True, **fields),))


def summary(text: str = "so far", of: str = "m", **info: Any) -> Message:
    return reply(TextPart(text=text), name=f"s-{of}", summary=True, parent_id=of, **info)
