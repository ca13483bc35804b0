"""Sessions served over MCP in this process, for tests, and what a tool answers."""

import json
from pathlib import Path
from typing import Any

from mcp.types import CallToolResult, TextContent

from foldmark.adapters.mcp.server import Answering
from foldmark.adapters.mcp.shelf import Shelf
from foldmark.cli.mcp import filler
from foldmark.presets import FOLDMARK

from .imported import Lines

fill = filler(None, FOLDMARK.estimate)  # what is new of a file, into a store


def answered(shelf: Shelf, name: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers, as data."""
    answer = Answering(shelf).answer(name, arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return answer.structured_content


def refusal(answer: CallToolResult) -> str:
    """The one line by which a tool refuses."""
    assert answer.is_error
    assert answer.structured_content is None
    (block,) = answer.content
    assert isinstance(block, TextContent)
    assert block.text
    assert "\n" not in block.text
    assert "Traceback" not in block.text
    assert len(block.text) <= 500
    return block.text


def mill() -> Lines:
    """A session of Claude Code with a compaction, a prune after it, and work after that."""
    lines = Lines()
    lines.user("Mend the wheel; the secret word is zeppelin")
    for number in range(4):
        lines.step(f"a{number}", f"early a{number} of a wheel\n" * 40)
    lines.compact("The wheel is being mended.")
    for number in range(6):
        lines.step(f"b{number}", f"early b{number} of a wheel\n" * 40)
    lines.microcompact("b0")
    return lines


def appended(path: Path, lines: Lines, first: int) -> None:
    """Let a file grow by the lines from one on."""
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines.all[first:])
