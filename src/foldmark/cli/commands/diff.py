"""`foldmark diff`: what a session, or one message of it, changed in files.

A terminal gets colours; a pipe gets a patch that `git apply` takes.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from foldmark.agent.file_changes import changed_trees
from foldmark.errors import BadInput
from foldmark.files import size_text
from foldmark.log.log import ordinal_of
from foldmark.model.operations import FileDiff
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import MOST_BYTES, NoGit, Restored, Snapshots
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
from ..text import harmless_line, number, plain, shown_name

LEFT_OUT = (
    f"Left out: ignored files, and new ones of more than {size_text(MOST_BYTES)}, "
    "unless a tool wrote them by name."
)
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """The folder of a session."""

    folder: Path | None = option(
        "--folder DIR", "Where the session worked; what it says itself unless given."
    )


@dataclass(frozen=True, kw_only=True)
class DiffOptions(FolderOptions):
    """What of the changes is shown."""

    message: str | None = option(
        "--message MESSAGE",
        "Only what came of this message: its id, or the handle of its part.",
    )
    stat: bool = flag("--stat", "Only which files, and how many lines.")


def diff(session: SessionName, *, changes: DiffOptions, options: StoreOptions) -> None:
    """Show what a session changed in files, from its first step to its last.

    In a pipe it is a patch for `git apply`, files that are no text and modes included.

    Example: foldmark diff latest --stat
    """
    message, stat = changes.message, changes.stat
    with options.session(session) as (opened, kept, row):
        name = None if message is None else message_named(kept, row, message)
        held = taken_snapshots(opened, folder_of(opened, changes.folder))
        trees = changed_trees(opened, name)
        found = held.diff(*trees) if trees else ()
        if options.json:
            texts = {"before": "", "after": ""} if stat else {}
            files = [replace(one, **texts) for one in found]
            show_json({"id": row.id, "message": message, "files": files})
            return
        if stat or not found or not trees:
            show(_table(found) if found else Text("No file was changed."))
        elif sys.stdout.isatty():
            tell(found, held.patch(*trees, for_people=True))
        else:
            write_bytes(held.patch(*trees))
    sys.stderr.write(f"{LEFT_OUT}\n")


def message_named(store: Store, row: SessionRow, name: str) -> str:
    """The id of a message, by that or by the handle of a part of it."""
    ordinal = ordinal_of(name)
    held = None if ordinal is None else store.holding(row.key, ordinal)
    return name if held is None else held.message.id


def folder_of(session: Session, given: Path | None) -> Path:
    """The folder in which a session worked: the one given, its own, or this one."""
    return given or Path(session.info.info.directory or ".")


def taken_snapshots(session: Session, folder: Path) -> Snapshots:
    """The snapshots of a folder; BadInput where there can be none."""
    checked_folder(folder)
    try:
        return Snapshots(folder, leave_out=session.files)
    except NoGit as error:
        raise BadInput(f"there are no snapshots of files: {error.cause}") from None


def checked_folder(folder: Path) -> Path:
    """A folder that is there; BadInput where it is not."""
    if folder.is_dir():
        return folder
    name = repr(plain(str(folder)))
    told = f"{name} is a file, not a folder" if folder.exists() else f"there is no folder {name}"
    raise BadInput(f"{told}; give --folder DIR")


def restored_lines(done: Restored) -> Iterator[str]:
    """What a restore of files did, file by file."""
    told = {"written": done.written, "deleted": done.deleted, "left as it is": done.skipped}
    for what, files in told.items():
        for file in files:
            yield f"{what}: {plain(shown_name(file))}"
    if not any(told.values()):
        yield "no file had to be changed"


def tell(found: Sequence[FileDiff], lines: bytes, *, most: int | None = None) -> int:
    """Print a patch for people, so many lines of it at most; how many are left out."""
    console = terminal_console()
    told = lines.decode(errors="replace").removesuffix("\n").split("\n")
    for line in told[:most]:
        style = _STYLES.get(line[:1], "")
        if line.startswith(("--- ", "+++ ", "diff ")):
            style = "bold"
        console.print(Text(harmless_line(line), style=style), soft_wrap=True)
    console.print(Text(_total(found), style=QUIET))
    return len(told) - len(told[:most])


def _total(found: Sequence[FileDiff]) -> str:
    more, less = sum(held.additions for held in found), sum(held.deletions for held in found)
    return f"{number(len(found), 'file')}: +{more:,} -{less:,} lines"


def _table(found: Sequence[FileDiff]) -> RenderableType:
    rows: list[Row] = []
    for held in found:
        more, less = count(held.additions, "green"), count(held.deletions, "red")
        text = "no text" if held.binary else ""
        rows.append((held.change, shown_name(held.file), more, less, text))
    return section(_total(found), listing("change about added deleted _", rows))
