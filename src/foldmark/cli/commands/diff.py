"""`foldmark diff`: the file changes of a session or of one message.

On a terminal the patch is colored; in a pipe it can be passed to `git apply`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from foldmark.agent.file_changes import trees_around
from foldmark.errors import BadInput
from foldmark.files import size_text
from foldmark.log.log import ordinal_of
from foldmark.model.operations import FileDiff
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import MAX_BYTES, NoGit, RestoreResult, Snapshots
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store

from ..groups import flag, option
from ..layout import (
    QUIET,
    Row,
    count,
    listing,
    section,
    show,
    show_json,
    terminal_console,
    write_bytes,
)
from ..options import SessionName, StoreOptions
from ..text import harmless_line, number, plain, quote_file_name

LEFT_OUT = (
    f"Not included: ignored files, and new files over {size_text(MAX_BYTES)} that no tool wrote "
    "by name."
)
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """The folder that a session worked in."""

    folder: Path | None = option(
        "--dir DIR", "Directory that the session worked in (default: the one it recorded)."
    )


@dataclass(frozen=True, kw_only=True)
class DiffOptions(FolderOptions):
    """Which changes to show, and how."""

    message: str | None = option(
        "--message MESSAGE",
        "Show only the changes after this message: its id, or the handle of a part of it.",
    )
    stat: bool = flag("--stat", "Show only file names and line counts.")


def diff(session: SessionName, *, changes: DiffOptions, options: StoreOptions) -> None:
    """Show what a session changed in files, from its first step to its last.

    In a pipe, this is a patch for `git apply`, including binary files and file modes.

    Example: foldmark diff latest --stat
    """
    message, stat = changes.message, changes.stat
    with options.session(session) as (opened, store, row):
        name = None if message is None else resolve_message(store, row, message)
        snapshots = open_snapshots(opened, session_folder(opened, changes.folder))
        trees = trees_around(opened, name)
        changed_files = snapshots.diff(*trees) if trees else ()
        if options.json:
            texts = {"before": "", "after": ""} if stat else {}
            files = [replace(change, **texts) for change in changed_files]
            show_json({"id": row.id, "message": message, "files": files})
            return
        if stat or not changed_files or not trees:
            show(_table(changed_files) if changed_files else Text("No files were changed."))
        elif sys.stdout.isatty():
            print_patch(changed_files, snapshots.patch(*trees, readable=True))
        else:
            write_bytes(snapshots.patch(*trees))
    sys.stderr.write(f"{LEFT_OUT}\n")


def resolve_message(store: Store, row: SessionRow, name: str) -> str:
    """The id of a message, given that id or the handle of one of its parts."""
    ordinal = ordinal_of(name)
    entry = None if ordinal is None else store.message_with_part(row.key, ordinal)
    return name if entry is None else entry.message.id


def session_folder(session: Session, folder: Path | None) -> Path:
    """The folder that a session worked in: the given one, the recorded one, or the current one."""
    return folder or Path(session.info.info.directory or ".")


def open_snapshots(session: Session, folder: Path) -> Snapshots:
    """Open the snapshots of a folder. Raises BadInput if git cannot be used."""
    check_folder(folder)
    try:
        return Snapshots(folder, exclude=session.files)
    except NoGit as error:
        raise BadInput(f"files have no snapshots: {error.cause}") from None


def check_folder(folder: Path) -> Path:
    """Return the folder. Raises BadInput if it does not exist."""
    if folder.is_dir():
        return folder
    name = repr(plain(str(folder)))
    problem = f"{name} is a file, not a folder" if folder.exists() else f"there is no folder {name}"
    raise BadInput(f"{problem}; give --dir DIR")


def restore_report(result: RestoreResult) -> Iterator[str]:
    """The files that were restored, one per line."""
    outcomes = {"written": result.written, "deleted": result.deleted, "unchanged": result.skipped}
    for outcome, files in outcomes.items():
        for file in files:
            yield f"{outcome}: {plain(quote_file_name(file))}"
    if not any(outcomes.values()):
        yield "no files had to change"


def print_patch(changes: Sequence[FileDiff], lines: bytes, *, limit: int | None = None) -> int:
    """Print a colored patch of at most `limit` lines; returns how many were left out."""
    console = terminal_console()
    rows = lines.decode(errors="replace").removesuffix("\n").split("\n")
    for line in rows[:limit]:
        style = _STYLES.get(line[:1], "")
        if line.startswith(("--- ", "+++ ", "diff ")):
            style = "bold"
        console.print(Text(harmless_line(line), style=style), soft_wrap=True)
    console.print(Text(_total(changes), style=QUIET))
    return len(rows) - len(rows[:limit])


def _total(changes: Sequence[FileDiff]) -> str:
    more = sum(change.additions for change in changes)
    less = sum(change.deletions for change in changes)
    return f"{number(len(changes), 'file')}: +{more:,} -{less:,} lines"


def _table(changes: Sequence[FileDiff]) -> RenderableType:
    rows: list[Row] = []
    for change in changes:
        more, less = count(change.additions, "green"), count(change.deletions, "red")
        text = "binary" if change.binary else ""
        rows.append((change.change, quote_file_name(change.file), more, less, text))
    return section(_total(changes), listing("change about added deleted _", rows))
