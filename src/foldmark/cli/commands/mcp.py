"""`foldmark mcp`: an MCP server, so that an agent can look behind its own compaction."""

import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

from foldmark.adapters.mcp.sources import (
    Fill,
    FolderSource,
    SessionSource,
    StoreSource,
    TranscriptSource,
    opened_within,
    read_only_store,
)
from foldmark.errors import BadInput, FoldmarkError, NoStore
from foldmark.files import MOST_BYTES, STANDARD_INPUT, harmless
from foldmark.session.settings import Settings
from foldmark.store.store import Store
from foldmark.transcripts.format import format_named, recognised
from foldmark.transcripts.import_files import folder_files, is_folder
from foldmark.transcripts.read import Reading, opened_reading
from foldmark.transcripts.source import Source
from foldmark.transcripts.store import store_reading

from ..groups import argument, option
from ..options import FORMAT, STORE, store_place, store_settings

_EXTRA = frozenset({"mcp", "mcp_types", "anyio"})
_WAITING = "foldmark: an MCP server; it waits for a client on standard input (Ctrl-C ends it)\n"

Served = Annotated[
    str | None,
    argument(
        "PATH",
        "A transcript of any format, or a folder of them; else the sessions of a store.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What is served."""

    store: str | None = option(*STORE, show_default=False)
    session: str | None = option(
        "--session ID",
        "Serve this session of the store alone: its id, a beginning of it, or `latest`.",
        show_default=False,
    )
    format: str | None = option(*FORMAT)


def mcp(path: Served = None, *, options: ServeOptions) -> None:
    """Serve sessions to an agent over MCP: search, recall, plan and inspect. Only reads.

    It speaks on standard input and output, and ends when its client goes.

    Example: foldmark mcp ~/.claude/projects

    Claude Code: claude mcp add foldmark -- foldmark mcp ~/.claude/projects

    OpenCode, in opencode.json: "mcp": {"foldmark": {"type": "local", "command": ["foldmark",
    "mcp", "--store", "agent.db"]}}
    """
    try:
        from foldmark.adapters.mcp.server import serve  # noqa: PLC0415 - it comes with an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise BadInput("the MCP server needs: pip install 'foldmark[mcp]'") from None
    shelf = opened_source(path, **vars(options))
    if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison] - closed by a shell
        sys.stderr.write(_WAITING)
    # Ctrl-C ends the process at once: Python would wait for a line of input, which may not come.
    # Nothing is open that could be left half done.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        serve(shelf)
    finally:
        signal.signal(signal.SIGINT, before)


def opened_source(
    path: str | None, *, store: str | None, session: str | None, format: str | None
) -> SessionSource:
    """The sessions that the command was pointed at."""
    settings = store_settings(store=store)
    if path is None:
        if format is not None:
            raise BadInput("--format is for a transcript; give its path, or leave it out")
        try:
            opened = read_only_store(store_place(settings), wait=max(settings.wait_seconds, 1.0))
        except NoStore as error:
            hint = "give a transcript, a folder of them, or --store FILE"
            raise BadInput(f"no store at {error.store}; {hint}") from None
        try:
            return StoreSource(opened, settings, session)
        except BaseException:
            opened.close()
            raise
    if store is not None or session is not None:
        raise BadInput("give a path, or --store with --session, not both")
    return _transcripts(path, settings, format)


def _transcripts(path: str, settings: Settings, format: str | None) -> SessionSource:
    if path == STANDARD_INPUT:
        raise BadInput("standard input is where the client speaks; give the path of a transcript")
    found = Path(path)
    with suppress(RuntimeError):
        found = found.expanduser()
    fill = filler(format, settings.rules().estimate)

    def is_transcript(file: Path) -> bool:
        with suppress(FoldmarkError), opened_within(found, file) as opened:
            _reading(opened, file.name, format, lenient=False)
            return True
        return False

    def files() -> list[Path]:
        return list(map(Path, folder_files(str(found))))

    if not is_folder(str(found)):
        with opened_reading(found, format=format):
            return TranscriptSource(found, settings, fill)
    folder = FolderSource(found, settings, fill, files)
    if not any(map(is_transcript, files())):
        raise BadInput("there is no transcript in this folder", source=harmless(path))
    return folder


def filler(format: str | None, estimate: str) -> Fill:
    """What takes what is new of an open file into a store; lines it cannot read are left out."""

    def fill(store: Store, file: BinaryIO, name: str) -> int:
        reading = _reading(file, name, format, lenient=True)
        store_reading(store, reading, estimate=estimate)
        return len(reading.skipped)

    return fill


def _reading(file: BinaryIO, name: str, format: str | None, *, lenient: bool) -> Reading:
    named = format_named(format) if format else None
    source = Source(file, harmless(name), MOST_BYTES)
    return Reading(source, named or recognised(source.head), lenient=lenient)
