"""`foldmark gc` and `backup`: maintain a store."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.files import size_text
from foldmark.store import maintenance
from foldmark.store.store import Store

from ..groups import argument, flag, option
from ..layout import QUIET, answer, safe_text, section, show, write_error
from ..options import StoreOptions
from ..text import number

_MOST_LISTED = 20

Destination = Annotated[str, argument("DEST", "New file for the copy.")]


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """Which sessions to remove, and whether to ask first."""

    older_than: float | None = option(
        "--older-than DAYS",
        "Also remove sessions that were not written to for this many days.",
        min=0,
    )
    dry_run: bool = flag("--dry-run", "Only show what would be removed.")
    yes: bool = flag("--yes", "Remove sessions without asking.")


def gc(*, collecting: CollectOptions, options: StoreOptions) -> None:
    """Return unused space to the disk, and optionally remove old sessions.

    A session that is being written to is never removed.

    Example: foldmark gc --older-than 90 --dry-run
    """
    older_than, dry_run, yes = collecting.older_than, collecting.dry_run, collecting.yes
    if older_than is not None and not math.isfinite(older_than):
        raise typer.BadParameter(f"--older-than {older_than} is not a number of days")
    with options.open() as opened:
        if not (dry_run or yes or older_than is None or _allowed(opened, older_than, options)):
            show(Text("Nothing was removed."))
            return
        freed = maintenance.collect(opened, older_than=older_than, dry_run=dry_run)
    what, before = number(len(freed.sessions), "session"), size_text(freed.before)
    title = f"Removed {what}: {before} → {size_text(freed.after)}"
    if dry_run:
        title = f"Would remove {what}; the store has {before}"
    report = section(title, *_listed(freed.sessions))
    answer({"dry_run": dry_run, **asdict(freed)}, report, json=options.json)


def _allowed(store: Store, days: float, options: StoreOptions) -> bool:
    """Whether the old sessions may be removed; asks the user if there are any."""
    old = maintenance.collect(store, older_than=days, dry_run=True).sessions
    if not old:
        return True
    question = f"{number(len(old), 'session')} would be removed permanently"
    if options.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(f"{question}; add --yes to remove, or --dry-run to see which")
    show(section(question, *_listed(old)))
    return typer.confirm("Remove them?")


def _listed(sessions: tuple[str, ...]) -> Iterator[Text]:
    yield from (safe_text(name, "cyan") for name in sessions[:_MOST_LISTED])
    if (rest := len(sessions) - _MOST_LISTED) > 0:
        yield Text(f"… and {rest:,} more", style=QUIET)


def backup(destination: Destination, *, options: StoreOptions) -> None:
    """Copy the whole store, as of one moment, to a new file that only you can read.

    The copy is a store: open it with --store, or restore sessions from it with import.

    Example: foldmark backup sessions-of-may.db
    """
    path = Path(destination)
    with options.open() as opened:
        count = len(opened.sessions())
        try:
            maintenance.backup(opened, path)
            size = path.stat().st_size
        except (OSError, ValueError) as error:
            raise write_error(destination, error) from None
    text = f"Wrote {destination}: {number(count, 'session')}, {size_text(size)}."
    value = {"path": destination, "size": size, "sessions": count}
    answer(value, safe_text(text, limit=1_000), json=options.json)
