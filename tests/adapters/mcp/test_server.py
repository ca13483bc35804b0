"""The MCP server with the official client: transcripts, folders and stores."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import foldmark
from foldmark.adapters.mcp.server import mcp_server
from foldmark.cli.commands.mcp import opened_source
from tests.support.cli_program import (
    FOLDMARK,
    compacted_store,
    environment,
    fill_store,
    output_of,
    sample_transcript,
    write_transcript,
)
from tests.support.cli_program import refusal as cli_refusal
from tests.support.mcp_clients import (
    Hit,
    answered,
    appended,
    hits_of,
    listed,
    page_of,
    parser_session,
    refusal,
    session_of,
    text_of,
)
from tests.support.stored_transcripts import SESSION, write

Talk = Callable[[Client], Awaitable[None]]
LIMIT = 150.0  # seconds in which even a busy machine is done, if nothing hangs
DOCS = Path(__file__).parents[3] / "docs" / "mcp.md"


def talked(talk: Talk, server: Any) -> None:
    """Run the official client against a server."""

    async def run() -> None:
        with anyio.fail_after(LIMIT):
            async with Client(server) as client:
                await talk(client)

    anyio.run(run)


def served(talk: Talk, path: Path) -> None:
    """Run the client against what the command would serve, in this process."""
    source = opened_source(str(path), store=None, session=None, format=None)
    try:
        talked(talk, mcp_server(source))
    finally:
        source.close()


async def told(client: Client, name: str, **arguments: Any) -> str:
    """The answer of a tool."""
    return text_of(await client.call_tool(name, arguments))


async def hits(client: Client, **arguments: Any) -> list[Hit]:
    """The hits of a search."""
    return hits_of(await told(client, "search", **arguments))


async def complaint(client: Client, name: str, **arguments: Any) -> str:
    """The one-line error of a tool."""
    return refusal(await client.call_tool(name, arguments))


# --- whole sessions; the last over stdio ----------------------------------------------------------


def test_a_client_looks_behind_a_compaction_and_sees_what_is_written_meanwhile(tmp_path: Path):
    lines = parser_session()
    path = write(tmp_path / "session.jsonl", lines.all)
    before = path.read_bytes()

    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"search", "recall", "plan", "inspect"}
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        (hit,) = await hits(client, query="zeppelin")
        assert hit.state == "folded"
        assert "zeppelin" in hit.snippet
        page = page_of(await told(client, "recall", handle=hit.handle))
        assert page.text == "Mend the parser; the secret word is zeppelin"
        assert page.next is None
        assert "in a window of 2,000." in await told(client, "plan", window=2_000)
        figures = await told(client, "inspect")
        assert listed(figures, "session") == [SESSION]
        (compaction,) = listed(figures, "compaction")
        assert "5 hidden" in compaction
        (tool,) = listed(figures, "tool")
        assert tool.startswith("Read: ")

        assert await hits(client, query="billing") == []
        first = len(lines.all)
        lines.step("new", "a timeout in billing")
        appended(path, lines, first)
        (hit,) = await hits(client, query="billing")
        assert (hit.state, hit.tool) == ("shown", "Read")
        page = page_of(await told(client, "recall", handle=hit.handle))
        assert page.text == "a timeout in billing"

        assert "no handle" in await complaint(client, "recall", handle="h999")
        assert "no tool" in await complaint(client, "delete", handle="h1")

    served(talk, path)
    assert path.read_bytes().startswith(before)


def test_a_client_finds_its_way_in_a_folder(tmp_path: Path):
    folder = tmp_path / "projects"
    (folder / "-repo").mkdir(parents=True)
    old = write(folder / "-repo" / f"{SESSION}.jsonl", parser_session().all)
    new = write_transcript(folder, sample_transcript(), "parsers.json")
    (folder / "notes.md").write_text("# Nothing of an agent\n")
    for age, path in enumerate((folder / "notes.md", new, old)):
        os.utime(path, (10**9 - age, 10**9 - age))

    async def talk(client: Client) -> None:
        figures = await told(client, "inspect")
        assert session_of(figures) == "parsers.json"
        assert "title: How the orders load\n" in figures
        names = ["notes.md", "parsers.json", f"-repo/{SESSION}.jsonl"]
        assert listed(figures, "session") == names
        for name in (f"-repo/{SESSION}.jsonl", SESSION, SESSION[:8], "-repo/"):
            found = await told(client, "search", query="zeppelin", session=name)
            assert len(hits_of(found)) == 1
            assert session_of(found) == f"-repo/{SESSION}.jsonl"
        assert await hits(client, query="zeppelin") == []
        os.utime(old)  # it is written to
        assert session_of(await told(client, "plan")) == f"-repo/{SESSION}.jsonl"
        assert "no session 'printer'" in await complaint(client, "inspect", session="printer")

    served(talk, folder)


def test_a_store_is_read_while_another_process_writes_to_it(tmp_path: Path):
    where = compacted_store(str(tmp_path / "agent.db"))

    async def talk(client: Client) -> None:
        with foldmark.open(where, session="ses_live", window=8_000, output=1_000) as live:
            live.user("Is the zeppelin there?")  # takes the lease, and keeps it
            assert [hit.state for hit in await hits(client, query="zeppelin")] == ["shown"]
            text = await told(client, "search", query="entry 3")
            assert session_of(text) == "ses_live"
            found = hits_of(text)
            assert {"folded"} <= {hit.state for hit in found}
            page = page_of(await told(client, "recall", handle=found[0].handle))
            assert page.text == live.recall(found[0].handle)
            live.record("It has landed.")  # nobody has taken the lease away
            assert await hits(client, query="landed")
            assert listed(await told(client, "inspect"), "compaction")
            assert f": {live.tokens:,} of " in await told(client, "plan", window=8_000)

    program = StdioServerParameters(
        command=str(FOLDMARK), args=["mcp", "--store", where], env=environment()
    )
    talked(talk, stdio_client(program))


# --- the command ---------------------------------------------------------------------------


def test_what_cannot_be_served_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd.json").write_text('{"neither": "nor"}')
    (tmp_path / "text.db").write_text("no database")
    transcript = write_transcript(tmp_path, sample_transcript())
    store = compacted_store(str(tmp_path / "agent.db"), steps=12)
    for arguments, problem in (
        ((tmp_path / "none.jsonl",), "there is no such file"),
        ((tmp_path / "odd.json",), "not a known transcript"),
        ((tmp_path / "empty",), "this folder has no transcript"),
        (("-",), "standard input is for the client"),
        ((transcript, "--store", store), "give either a path"),
        ((transcript, "--format", "nonsense"), "unknown format"),
        (("--store", store, "--format", "codex"), "--format is for a transcript"),
        (("--store", tmp_path / "none.db"), "no store at"),
        (("--store", tmp_path / "text.db"), "not a database"),
        (("--store", store, "--session", "ses_gone"), "there is no session"),
    ):
        assert problem in cli_refusal("mcp", *arguments), arguments
    assert not (tmp_path / "none.db").exists()


def test_without_its_extra_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "foldmark.adapters.mcp.server")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    path = write_transcript(tmp_path, sample_transcript())
    assert "pip install 'foldmark[mcp]'" in cli_refusal("mcp", path)


def test_other_commands_do_not_pay_for_it():
    code = "import sys, foldmark.cli.app; print('mcp' in sys.modules, 'anyio' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False False\n"


def test_the_help_tells_how_to_add_it_to_claude_code_and_opencode():
    output = " ".join(output_of("mcp", "--help").split())
    assert "Example: foldmark mcp ~/.claude/projects" in output
    assert "claude mcp add foldmark -- foldmark mcp ~/.claude/projects" in output
    assert '"command": ["foldmark", "mcp", "--store", "agent.db"]' in output


# --- the page ------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def page_store(folder: Path) -> str:
    """The store of the documentation page."""
    return compacted_store(
        fill_store(str(folder / "agent.db"), sample_transcript(calls=20)), "ses_live", steps=12
    )


def requests(*calls: tuple[str, dict[str, Any]]) -> bytes:
    """The bytes that a client sends: the handshake, then these calls, numbered from 1."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    lines: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
    ]
    for number, (name, arguments) in enumerate(calls, 1):
        params = {"name": name, "arguments": arguments}
        lines.append({"id": number, "method": "tools/call", "params": params})
    return b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines)


def started(line: str, folder: Path, **changes: str) -> subprocess.Popen[bytes]:
    """Start a shell command."""
    pipe = subprocess.PIPE
    command = ["sh", "-c", f"exec {line.replace('foldmark', str(FOLDMARK), 1)}"]
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=environment(**changes)
    )


def test_the_commands_of_the_page_serve_until_their_client_goes_and_leave_nothing_behind(
    tmp_path: Path,
):
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    scratch.mkdir()
    (home / ".claude" / "projects").mkdir(parents=True)
    write(home / ".claude" / "projects" / "s.jsonl", parser_session().all)
    write(tmp_path / "session.jsonl", parser_session().all)
    page_store(tmp_path)
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert "claude mcp add foldmark -- foldmark mcp ~/.claude/projects" in lines
    ours = [line for line in lines if line.startswith("foldmark ")]
    assert len(ours) >= 3
    running = [started(line, tmp_path, HOME=str(home), TMPDIR=str(scratch)) for line in ours]
    for line, server in zip(ours, running, strict=True):
        way = signal.SIGKILL if "session.jsonl" in line else 0
        with server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stderr is not None
            server.stdin.write(requests(("search", {"query": "the"})))
            server.stdin.flush()
            answers = [json.loads(server.stdout.readline()) for _ in range(2)]
            assert [answer["id"] for answer in answers] == [0, 1]
            assert hits_of(answers[1]["result"]["content"][0]["text"]), line
            if way:
                server.send_signal(way)
            server.stdin.close()
            assert (server.stdout.read(), server.stderr.read()) == (b"", b""), line
            assert server.wait(LIMIT) == -way
    assert list(scratch.iterdir()) == []


def test_the_answers_of_the_page_are_what_its_calls_answer(tmp_path: Path):
    (config,) = re.findall(r"opencode.json.*?```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert json.loads(config)["mcp"]["foldmark"]["command"][:2] == ["foldmark", "mcp"]
    examples = re.findall(r"`(\w+) (\{.*?\})`:\n\n```text\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert [name for name, _, _ in examples] == ["search", "recall", "plan", "inspect"]
    assert len(blocks("text")) == len(examples)
    source = opened_source(None, store=page_store(tmp_path), session=None, format=None)
    for name, arguments, block in examples:
        answer = answered(source, name, **json.loads(arguments)).splitlines()
        pieces = [piece.split("\n") for piece in block.strip("\n").split("\n…\n")]
        for piece in pieces:  # the page leaves lines out where it says so
            index = answer.index(piece[0])
            assert answer[index : index + len(piece)] == piece, name
        assert (pieces[0][0], pieces[-1][-1]) == (answer[0], answer[-1]), name
    source.close()
