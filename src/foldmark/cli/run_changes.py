"""`foldmark diff`: what a session, or one message of it, changed in files.

A terminal gets colours; a pipe gets a diff that other programs can read.
"""

import sys
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from foldmark.agent.diffs import message_diff, session_diff
from foldmark.errors import BadInput
from foldmark.filediffs import FileDiff
from foldmark.io.packing import as_bytes
from foldmark.io.rows import SessionRow
from foldmark.io.snapshots import Restored, Snapshots, snapshots
from foldmark.io.store import Store
from foldmark.log import ordinal_of
from foldmark.session.session import Session

from .exporting import write_bytes
from .opening import opened_session
from .options import AsJson, SessionName, StorePlace
from .run_screen import terminal_console
from .tables import QUIET, About, count, listing, section, show, show_json, words
from .text import harmless_line, number, plain

EXAMPLE = "Example: foldmark diff latest --stat"

_LONGEST = 20_000  # lines of a file: to compare longer ones takes for ever
_NOTHING = "/dev/null"
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_SIGNS = {"added": Text("added", "green"), "deleted": Text("deleted", "red")}

OfMessage = Annotated[
    str | None,
    typer.Option(
        "--message",
        metavar="MESSAGE",
        help="Only what came of this message: its id, or the handle of its part.",
    ),
]
Stat = Annotated[bool, typer.Option("--stat", help="Only which files, and how many lines.")]
OfFolder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Where the session worked; what it says itself unless given.",
    ),
]


def diff(
    session: SessionName,
    *,
    message: OfMessage = None,
    stat: Stat = False,
    folder: OfFolder = None,
    store: StorePlace = None,
    json: AsJson = False,
) -> None:
    """Show what a session changed in files, from its first step to its last."""
    with opened_session(store, session) as (opened, kept, row):
        name = None if message is None else message_named(kept, row, message)
        found = changes(opened, folder_of(opened, folder), name)
    if json:
        files = [_without_texts(held) for held in found] if stat else list(found)
        show_json({"id": row.id, "message": message, "files": files})
    elif not sys.stdout.isatty() and not stat:
        write_bytes(as_bytes("".join(unified(found))))
    else:
        tell(found, stat=stat)


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
    if not folder.is_dir():
        raise BadInput(f"there is no folder {plain(str(folder))!r}; give --folder DIR")
    found = snapshots(folder, leave_out=session.files)
    if found is None:
        raise BadInput("git is not installed; without it there are no snapshots of files")
    return found


def changes(session: Session, folder: Path, message: str | None) -> tuple[FileDiff, ...]:
    """What a session, or one message of it, changed."""
    held = taken_snapshots(session, folder)
    if message is None:
        return session_diff(held, session)
    return message_diff(held, session, message)


def restored_lines(done: Restored) -> Iterator[str]:
    """What a restore of files did, file by file."""
    told = {"written": done.written, "deleted": done.deleted, "left as it is": done.skipped}
    for what, files in told.items():
        for file in files:
            yield f"{what}: {plain(file)}"
    if not any(told.values()):
        yield "no file had to be changed"


def tell(found: Sequence[FileDiff], *, stat: bool = False) -> None:
    """Print changes for people."""
    if not found:
        show(Text("No file was changed."))
    elif stat:
        show(_table(found))
    else:
        console = terminal_console()
        for line in unified(found):
            console.print(_coloured(line.rstrip("\n")), soft_wrap=True)
        console.print(Text(_total(found), style=QUIET))


def _total(found: Sequence[FileDiff]) -> str:
    return f"{number(len(found), 'file')}: {_lines_changed(found)}"


def _lines_changed(found: Sequence[FileDiff]) -> str:
    more, less = sum(held.additions for held in found), sum(held.deletions for held in found)
    return f"+{more:,} -{less:,} lines"


def _table(found: Sequence[FileDiff]) -> RenderableType:
    rows = (
        (
            _SIGNS.get(held.change, Text(held.change)),
            About(held.file),
            count(held.additions, "green"),
            count(held.deletions, "red"),
            words("no text" if held.binary else "", QUIET),
        )
        for held in found
    )
    return section(_total(found), listing(("change", "about", "added", "deleted", ""), rows))


def _coloured(line: str) -> Text:
    is_head = line.startswith(("--- ", "+++ ", "diff "))
    return Text(harmless_line(line), style="bold" if is_head else _STYLES.get(line[:1], ""))


def _without_texts(held: FileDiff) -> FileDiff:
    return replace(held, before="", after="")


# --- a diff that programs read -------------------------------------------------------------


def unified(found: Sequence[FileDiff]) -> Iterator[str]:
    """Changes as a unified diff, line by line."""
    for held in found:
        yield from _file(held)


def _file(held: FileDiff) -> Iterator[str]:
    before, after = _lines(held.before), _lines(held.after)
    if max(len(before), len(after)) > _LONGEST or (held.before == held.after and _counted(held)):
        # What begins so is left out by who applies a diff.
        yield f"# {_quoted(held.file)}: too long to show: {_lines_changed([held])}\n"
        return
    if held.before == held.after and held.change == "changed" and not held.binary:
        yield f"# {_quoted(held.file)}: only the mode changed\n"
        return
    old, new = _quoted(f"a/{held.file}"), _quoted(f"b/{held.file}")
    yield f"diff --git {old} {new}\n"
    if held.change == "added":
        yield "new file mode 100644\n"
        old = _NOTHING
    elif held.change == "deleted":
        yield "deleted file mode 100644\n"
        new = _NOTHING
    if held.binary:
        yield f"Binary files {old} and {new} differ\n"
    else:
        yield from _marked_ends(unified_diff(before, after, _ended(old), _ended(new)))


def _ended(name: str) -> str:
    """A name with a tab after it, where it would else end at its first space."""
    return f"{name}\t" if " " in name else name


def _counted(held: FileDiff) -> int:
    return held.additions + held.deletions


def _lines(text: str) -> list[str]:
    """Lines with their ends; other signs that Python takes for one are none to a diff."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _marked_ends(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _quoted(name: str) -> str:
    odd = not name.isprintable() or any(sign in name for sign in '"\\')
    return dumps(name, ensure_ascii=False) if odd else name
