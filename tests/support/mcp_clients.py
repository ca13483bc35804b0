"""Sessions served over MCP in this process, for tests, and what a tool answers."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from mcp.types import CallToolResult, TextContent

from foldmark.adapters.mcp.server import ToolDispatcher
from foldmark.adapters.mcp.sources import SessionSource
from foldmark.cli.commands.mcp import filler
from foldmark.policy import FOLDMARK
from tests.support.stored_transcripts import Lines

fill = filler(None, FOLDMARK.estimate)  # what is new of a file, into a store
_HIT = re.compile(r"(h\w+) (\w+) (.*?), message \d+: (.*)")
_PAGE = re.compile(r".*: characters [\d,]+ to [\d,]+ of ([\d,]+)\.(?: Next page: start=(\d+)\.)?\n")


class Hit(NamedTuple):
    """A line of an answer of `search`."""

    handle: str
    state: str
    tool: str
    snippet: str


class Page(NamedTuple):
    """An answer of `recall`."""

    text: str
    total: int
    next: int | None


def text_of(answer: CallToolResult) -> str:
    """The one text that an answer is; nothing is told beside it."""
    assert not answer.is_error, answer.content
    assert answer.structured_content is None
    (block,) = answer.content
    assert isinstance(block, TextContent)
    return block.text


def answered(shelf: SessionSource, name: str, **arguments: Any) -> str:
    """What a tool answers."""
    return text_of(ToolDispatcher(shelf).answer(name, arguments))


def quoted(text: str) -> str:
    """What stands between the fences of an answer."""
    fence = re.findall(r"^=== record \w+ ===$", text, re.MULTILINE)[-1]
    return text.split(f"{fence}\n", 1)[1].removesuffix(f"\n{fence}")


def hits_of(text: str) -> list[Hit]:
    """What `search` has found."""
    if text.startswith("Nothing in"):
        return []
    lines = [_HIT.fullmatch(line) for line in quoted(text).split("\n")]
    assert all(lines), text
    return [Hit(*line.groups()) for line in lines if line]


def page_of(text: str) -> Page:
    """What `recall` has given."""
    head = _PAGE.match(text)
    assert head, text
    return Page(quoted(text), int(head[1].replace(",", "")), int(head[2]) if head[2] else None)


def listed(text: str, kind: str) -> list[str]:
    """What an answer of `inspect` lists of one kind: sessions, tools, compactions."""
    lines = quoted(text).split("\n")
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


def session_of(text: str) -> str:
    """Which session an answer is of."""
    match = re.search(r'[Ss]ession "(.*?)"', text)
    assert match, text
    return match[1]


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


def parser_session() -> Lines:
    """A session of Claude Code with a compaction, a prune after it, and work after that."""
    lines = Lines()
    lines.user("Mend the parser; the secret word is zeppelin")
    for number in range(4):
        lines.step(f"a{number}", f"early a{number} of a parser\n" * 40)
    lines.compact("The parser is being mended.")
    for number in range(6):
        lines.step(f"b{number}", f"early b{number} of a parser\n" * 40)
    lines.microcompact("b0")
    return lines


def appended(path: Path, lines: Lines, first: int) -> None:
    """Let a file grow by the lines from one on."""
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines.all[first:])
