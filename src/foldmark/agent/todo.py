"""The tool with which a model keeps a list of what is to be done."""

from typing import Annotated, Literal

import msgspec

from .functions import tool
from .tool import Output, Tool

_SIGNS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}


class Item(msgspec.Struct, frozen=True):
    """One thing to do."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


def todo_tool() -> Tool:
    """The tool `todo`."""

    @tool(changes=False, subject=lambda _: "")
    def todo(items: Annotated[list[Item], "The whole list, also what is done."]) -> Output:
        """Keep a list of what is to be done, for long work; give the whole list each time."""
        lines = [f"{_SIGNS[item.status]} {' '.join(item.content.split())}" for item in items]
        done = sum(item.status == "completed" for item in items)
        return Output(
            text="\n".join(lines) or "the list is empty",
            title=f"{done} of {len(items)} done",
            metadata={"todos": msgspec.to_builtins(items)},
        )

    return todo
