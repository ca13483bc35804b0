"""`foldmark mcp`: an MCP server that lets an agent search its own hidden messages."""

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
    open_within,
    read_only_store,
)
from foldmark.errors import BadInput, FoldmarkError, NoStore
from foldmark.files import MAX_BYTES, STANDARD_INPUT, printable
from foldmark.session.settings import Settings
from foldmark.store.store import Store
from foldmark.transcripts.format import format_named, recognize_format
from foldmark.transcripts.import_files import folder_files, is_folder
from foldmark.transcripts.read import Reading, open_reading
from foldmark.transcripts.source import Source
from foldmark.transcripts.store import store_reading

from ..groups import argument, option
from ..options import FORMAT, STORE, store_location, store_settings

_EXTRA = frozenset({"mcp", "mcp_types", "anyio"})
_WAITING = "foldmark: MCP server, waiting for a client on standard input (Ctrl-C ends it)\n"

Served = Annotated[
    str | None,
    argument(
        "PATH",
        "Transcript in any known format, or folder of transcripts (default: a store's sessions).",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The sessions to serve."""

    store: str | None = option(*STORE, show_default=False)
    session: str | None = option(
        "-s --session ID",
        "Serve only this session of the store: its id, a start of its id, or `latest`.",
        show_default=False,
    )
    format: str | None = option(*FORMAT)


def mcp(path: Served = None, *, options: ServeOptions) -> None:
    """Serve sessions to an agent over MCP, read-only: search, recall, plan and inspect.

    The server uses standard input and output, and ends when its client disconnects.

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
        raise BadInput(
            "the MCP server is not installed; run: pip install 'foldmark[mcp]'"
        ) from None
    source = opened_source(path, **vars(options))
    if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison] - closed by a shell
        sys.stderr.write(_WAITING)
    # Ctrl-C ends the process at once, because Python would wait for another line of input.
    # Nothing is open that could be left incomplete.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        serve(source)
    finally:
        signal.signal(signal.SIGINT, before)


def opened_source(
    path: str | None, *, store: str | None, session: str | None, format: str | None
) -> SessionSource:
    """The sessions that the command serves."""
    settings = store_settings(store=store)
    if path is None:
        if format is not None:
            raise BadInput("--format is for a transcript; give its path, or leave out --format")
        try:
            opened = read_only_store(store_location(settings), wait=max(settings.wait_seconds, 1.0))
        except NoStore as error:
            hint = "give a transcript, a folder of them, or --store FILE"
            raise BadInput(f"no store at {error.store}; {hint}") from None
        try:
            return StoreSource(opened, settings, session)
        except BaseException:
            opened.close()
            raise
    if store is not None or session is not None:
        raise BadInput("give either a path, or --store with --session, not both")
    return _transcripts(path, settings, format)


def _transcripts(path: str, settings: Settings, format: str | None) -> SessionSource:
    if path == STANDARD_INPUT:
        raise BadInput("standard input is for the client; give the path of a transcript")
    location = Path(path)
    with suppress(RuntimeError):
        location = location.expanduser()
    fill = filler(format, settings.rules().estimate)

    def is_transcript(file: Path) -> bool:
        with suppress(FoldmarkError), open_within(location, file) as opened:
            _reading(opened, file.name, format, lenient=False)
            return True
        return False

    def files() -> list[Path]:
        return list(map(Path, folder_files(str(location))))

    if not is_folder(str(location)):
        with open_reading(location, format=format):
            return TranscriptSource(location, settings, fill)
    folder = FolderSource(location, settings, fill, files)
    if not any(map(is_transcript, files())):
        cause = "this folder has no transcript; give another path"
        raise BadInput(cause, source=printable(path))
    return folder


def filler(format: str | None, estimate: str) -> Fill:
    """A function that stores the new messages of an open file and skips unreadable lines."""

    def fill(store: Store, file: BinaryIO, name: str) -> int:
        reading = _reading(file, name, format, lenient=True)
        store_reading(store, reading, estimate=estimate)
        return len(reading.skipped)

    return fill


def _reading(file: BinaryIO, name: str, format: str | None, *, lenient: bool) -> Reading:
    known_format = format_named(format) if format else None
    source = Source(file, printable(name), MAX_BYTES)
    return Reading(source, known_format or recognize_format(source.head), lenient=lenient)
