"""`foldmark sessions`: what is in a store."""

import time
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from foldmark.files import size_text
from foldmark.model.values import Json
from foldmark.store.leases import busy, has_died
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store

from .opening import existing_store
from .options import AsJson, StorePlace
from .tables import QUIET, About, Row, count, listing, show, show_json, words
from .text import ago, number, percent

EXAMPLE = "Example: foldmark sessions --store work.db"

WIDE = 110  # columns from which on there is room for whole ids
_SHORTEST = 16


def sessions(*, store: StorePlace = None, json: AsJson = False) -> None:
    """List the sessions of a store, the one that was last written to first."""
    with existing_store(store) as opened:
        rows = opened.sessions()
        writers = [writer(opened, row) for row in rows]
        size, name = opened.engine.size(), opened.name
    if json:
        listed = [_as_json(row, held) for row, held in zip(rows, writers, strict=True)]
        show_json({"store": name, "sessions": listed, "disk": size, "size": _whole(rows)})
    elif not rows:
        show(words(f"No sessions in {name} yet; begin with: foldmark import FILE"))
    else:
        show(_table(rows, writers), _total(rows, size))


def writer(store: Store, row: SessionRow) -> str | None:
    """Who is writing to a session, if anyone."""
    if row.holder is None or has_died(row.holder):
        return None
    lease = busy(store.engine, row.key, row.id)
    return lease.holder if lease.seconds > 0 else None


def _as_json(row: SessionRow, held: str | None) -> Json:
    return {
        "id": row.id,
        "title": row.info.title or None,
        "directory": row.info.directory or None,
        "messages": row.places,
        "tokens": row.tokens,
        "size": row.size,
        "acts": row.acts,
        "created": row.created,
        "updated": row.updated,
        "writer": held,
    }


def _whole(rows: Sequence[SessionRow]) -> int:
    return sum(row.size for row in rows)


def _table(rows: Sequence[SessionRow], writers: Sequence[str | None]) -> RenderableType:
    names = [row.id for row in rows] if Console().width >= WIDE else short_names(rows)
    columns = ["id", "title", "messages", "tokens", "size", "updated"]
    if any(writers):
        columns.append("state")
    now = time.time()
    lines: list[Row] = []
    for row, name, held in zip(rows, names, writers, strict=True):
        state = words(f"written by {held}", "yellow", most=40) if held else Text()
        cells: list[RenderableType] = [
            words(name, "cyan"),
            About(row.info.title or ""),
            count(row.places),
            count(row.tokens),
            Text(size_text(row.size), justify="right"),
            Text(ago(now - row.updated / 1000)),
            state,
        ]
        lines.append(cells[: len(columns)])
    return listing(columns, lines)


def short_names(rows: Sequence[SessionRow]) -> list[str]:
    """Of each id as much as no other one begins with: it stands for the whole."""
    ids = sorted(row.id for row in rows)
    lengths: dict[str, int] = {}
    for before, own, after in zip(["", *ids], ids, [*ids[1:], ""], strict=False):
        lengths[own] = 1 + max(_common(before, own), _common(own, after))
    return [row.id[: max(_SHORTEST, lengths[row.id])] for row in rows]


def _common(one: str, other: str) -> int:
    """How many characters two ids begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _total(rows: Sequence[SessionRow], size: int) -> Text:
    whole = _whole(rows)
    told = f"{number(len(rows), 'session')}, {size_text(size)} on disk"
    if whole > size:
        saved = percent(whole - size, whole)
        told += f"; sharing and compression save {saved} of {size_text(whole)}"
    return Text(told, style=QUIET)
