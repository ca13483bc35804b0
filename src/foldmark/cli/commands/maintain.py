"""`foldmark gc` and `backup`: a store kept for years."""

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
from ..layout import QUIET, answer, section, show, unwritable, words
from ..options import StoreOptions
from ..text import number

_MOST_LISTED = 20

Destination = Annotated[str, argument("DEST", "A file that is not there yet.")]


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """Which sessions go, and whether that is asked about."""

    older_than: float | None = option(
        "--older-than DAYS",
        "Remove sessions, too, that nobody wrote to for so many days.",
        min=0,
    )
    dry_run: bool = flag("--dry-run", "Only tell what would be removed.")
    yes: bool = flag("--yes", "Remove sessions without asking.")


def gc(*, collecting: CollectOptions, options: StoreOptions) -> None:
    """Give unused room back to the disk; and if asked, remove sessions that are old.

    A session that someone is writing to is never removed.

    Example: foldmark gc --older-than 90 --dry-run
    """
    older_than, dry_run, yes = collecting.older_than, collecting.dry_run, collecting.yes
    if older_than is not None and not math.isfinite(older_than):
        raise typer.BadParameter(f"{older_than} is no number of days")
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
    """Whether the sessions that would go may go, if there are any."""
    old = maintenance.collect(store, older_than=days, dry_run=True).sessions
    if not old:
        return True
    told = f"{number(len(old), 'session')} would be removed for good"
    if options.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(f"{told}; give --yes to do so, --dry-run to see which")
    show(section(told, *_listed(old)))
    return typer.confirm("Remove them?")


def _listed(sessions: tuple[str, ...]) -> Iterator[Text]:
    yield from (words(name, "cyan") for name in sessions[:_MOST_LISTED])
    if (rest := len(sessions) - _MOST_LISTED) > 0:
        yield Text(f"… and {rest:,} more", style=QUIET)


def backup(destination: Destination, *, options: StoreOptions) -> None:
    """Copy the whole store, as of one moment, into a new file that only you may read.

    The file is a store itself: look into it with --store, or bring it back with import.

    Example: foldmark backup sessions-of-may.db
    """
    path = Path(destination)
    with options.open() as opened:
        count = len(opened.sessions())
        try:
            maintenance.backup(opened, path)
            size = path.stat().st_size
        except (OSError, ValueError) as error:
            raise unwritable(destination, error) from None
    text = f"Wrote {destination}: {number(count, 'session')}, {size_text(size)}."
    value = {"path": destination, "size": size, "sessions": count}
    answer(value, words(text, most=1_000), json=options.json)
