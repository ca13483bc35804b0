"""`foldmark sessions` and `events`: the sessions of a store, and what happened to them."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from os.path import commonprefix

from rich.console import Console, RenderableType
from rich.text import Text

from foldmark.files import size_text
from foldmark.model.events import Event
from foldmark.model.values import Json, encode
from foldmark.store.leases import busy_error, has_died
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store

from ..groups import flag, option
from ..layout import QUIET, Cell, Row, answer, listing, safe_text
from ..options import SessionName, StoreOptions
from ..text import ago, escape_json, number, percent, plain

_WIDE = 110  # columns from which whole ids are shown
_SHORTEST = 16
_MOST_TEXT = 300


@dataclass(frozen=True, kw_only=True)
class EventOptions(StoreOptions):
    """Which events to print, and how."""

    after: int = option("--after N", "Only events after number N.", min=0, max=2**62, default=0)
    follow: bool = flag("--follow", "Wait for new events until Ctrl-C.")
    json: bool = flag("--json", "Print one JSON object per line.")


def sessions(*, options: StoreOptions) -> None:
    """List the sessions of a store, the most recently written first.

    Example: foldmark sessions --store work.db
    """
    with options.open() as opened:
        rows = opened.sessions()
        writers = [_writer(opened, row) for row in rows]
        disk, name = opened.engine.size(), opened.name
    size = sum(row.size for row in rows)
    listed = [_as_json(row, writer) for row, writer in zip(rows, writers, strict=True)]
    value: Json = {"store": name, "sessions": listed, "disk": disk, "size": size}
    pieces: list[RenderableType] = [
        safe_text(f"No sessions in {name} yet; start with: foldmark import FILE")
    ]
    if rows:
        text = f"{number(len(rows), 'session')}, {size_text(disk)} on disk"
        if size > disk:
            text += f"; compression saves {percent(size - disk, size)} of {size_text(size)}"
        pieces = [_table(rows, writers), Text(text, style=QUIET)]
    answer(value, *pieces, json=options.json)


def _writer(store: Store, row: SessionRow) -> str | None:
    """The process that is writing to a session, or None."""
    if row.holder is None or has_died(row.holder):
        return None
    lease = busy_error(store.engine, row.key, row.id)
    return lease.holder if lease.seconds > 0 else None


def _as_json(row: SessionRow, writer: str | None) -> Json:
    fields = ("tokens", "size", "acts", "created", "updated")
    return {
        "id": row.id,
        "title": row.info.title or None,
        "directory": row.info.directory or None,
        "messages": row.places,
        **{name: getattr(row, name) for name in fields},
        "writer": writer,
    }


def display_names(rows: Sequence[SessionRow]) -> list[str]:
    """The ids of the sessions: whole in wide terminals, otherwise unambiguous prefixes."""
    return [row.id for row in rows] if Console().width >= _WIDE else short_names(rows)


def _table(rows: Sequence[SessionRow], writers: Sequence[str | None]) -> RenderableType:
    now = time.time()
    columns = "id title messages tokens size updated"
    if any(writers):
        columns += " state"
    lines: list[Row] = []
    for row, name, writer in zip(rows, display_names(rows), writers, strict=True):
        cells: list[Cell] = [name, row.info.title or "", row.places, row.tokens]
        cells += [size_text(row.size), ago(now - row.updated / 1000)]
        cells.append(safe_text(f"written by {writer}", "yellow", limit=40) if writer else "")
        lines.append(cells)
    return listing(columns, lines)


def short_names(rows: Sequence[SessionRow]) -> list[str]:
    """The shortest prefixes of the ids that are unambiguous, and at least 16 characters."""
    ids = sorted(row.id for row in rows)
    lengths: dict[str, int] = {}
    for before, own, after in zip(["", *ids], ids, [*ids[1:], ""], strict=False):
        common = (commonprefix([own, other]) for other in (before, after))  # noqa: RUF071 - ids
        lengths[own] = 1 + max(map(len, common))
    return [row.id[: max(_SHORTEST, lengths[row.id])] for row in rows]


# --- events --------------------------------------------------------------------------------


def events(session: SessionName, *, options: EventOptions) -> None:
    """Print what happened to a session, in any process: one line per event, oldest first.

    Example: foldmark events latest --follow --json
    """
    with options.session(session) as (opened, _, _):
        for event in opened.follow(options.after, seconds=None if options.follow else 0):
            line = escape_json(encode(event).decode()) if options.json else _line(event)
            sys.stdout.write(f"{line}\n")
            if options.follow:
                sys.stdout.flush()


def _line(event: Event) -> str:
    at = datetime.fromtimestamp(event.at / 1000).astimezone()
    texts = {
        name: value if isinstance(value, str) else encode(value).decode()
        for name, value in event.data.items()
    }
    data = " ".join(f"{name}={plain(text, limit=_MOST_TEXT)}" for name, text in texts.items())
    line = f"{event.number:>6}  {at:%m-%d %H:%M:%S}  {plain(event.kind):<18}  {data}"
    return line.rstrip()
