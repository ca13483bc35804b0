"""`foldmark import`: transcripts of any format, whole folders, and other stores, into a store."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.policy import PRESETS
from foldmark.transcripts.import_files import BatchImport, ImportTarget
from foldmark.transcripts.store import Imported

from ..groups import argument, flag, option
from ..layout import QUIET, Row, answer, listing, words
from ..options import (
    FORMAT,
    LENIENT,
    StoreOptions,
    new_name,
    opened_store,
    size_option,
    store_place,
    store_settings,
)
from ..progress import tracked
from ..text import number, plain
from .sessions import shown_names

_MOST_ROWS = 40

Files = Annotated[
    list[str],
    argument(
        "FILE",
        "Transcripts of any format (`foldmark formats`), folders of them, or stores of "
        "Foldmark; - is standard input.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """How files are imported."""

    name: str | None = option("--as ID", "Keep the session under this id.")
    format: str | None = option(*FORMAT)
    lenient: bool = flag(*LENIENT)
    policy: str | None = option(
        "--policy NAME",
        f"Count tokens as this policy does: {', '.join(PRESETS)}.",
        show_default=False,
    )
    max_size: int = size_option()


def import_(files: Files, *, reading: ImportOptions, options: StoreOptions) -> None:
    """Read sessions into a store, which is made if there is none.

    Again and again, if you like: what is there already is not doubled, and of a file that has
    grown only what is new is added. Each file is imported whole or not at all; one that cannot be
    read does not keep the others from it.

    Example: foldmark import ~/.claude/projects --store work.db
    """
    if new_name(reading.name) and len(files) > 1:
        raise BadInput("--as names one session, but there are several files")
    settings = store_settings(store=options.store, policy=reading.policy)
    with ExitStack() as stack:
        target = ImportTarget(
            place=store_place(settings),
            open=lambda: stack.enter_context(opened_store(settings)),
            make=lambda: stack.enter_context(opened_store(settings, make=True)),
            estimate=settings.rules().estimate,
        )
        importer = BatchImport(
            target,
            name=reading.name,
            format=reading.format,
            lenient=reading.lenient,
            max_size=reading.max_size,
        )
        found = importer.files(files)
        for file, move in tracked("importing", found):
            importer.watch = move
            importer.take(file)
        store = importer.store.name if importer.store else None
        rows = importer.store.sessions() if importer.store else []
        names = dict(zip((row.id for row in rows), shown_names(rows), strict=True))
    lists = ("imported", "unchanged", "passed_over", "skipped", "refused")
    value = {"store": store, **{name: getattr(importer, name) for name in lists}}
    report = list(_report(importer, store, names))
    if options.json or report:
        answer(value, *report, json=options.json)
    for held in importer.refused:
        sys.stderr.write(f"foldmark: {plain(held.problem, most=1_000)}\n")
    if importer.refused:
        raise typer.Exit(2)


def _report(
    importer: BatchImport, store: str | None, names: Mapping[str, str]
) -> Iterator[RenderableType]:
    kept = [held for held in importer.imported if held.state != "same"]
    same = len(importer.imported) - len(kept)
    if kept:
        files = number(len({held.file for held in kept}), "file")
        messages = number(sum(held.messages for held in kept), "message")
        tokens = number(sum(held.tokens for held in kept), "token")
        text = f"{number(len(kept), 'session')} of {files}: {messages}, {tokens}, in {store}"
        yield Group(_table(kept, names), words(text, QUIET, most=300))
    told: list[str] = []
    if importer.unchanged:
        told.append(f"{number(len(importer.unchanged), 'file')} unchanged since the last import.")
    if same:
        told.append(f"{number(same, 'session')} with nothing new.")
    if importer.passed_over:
        told.append(
            f"{number(len(importer.passed_over), 'file')} without a transcript, passed over."
        )
    told += [f"{held.file}: left out line {held.line}: {held.cause}" for held in importer.skipped]
    if told:
        yield Group(*(words(line, QUIET, most=300) for line in told))


def _table(kept: Sequence[Imported], names: Mapping[str, str]) -> RenderableType:
    rows: list[Row] = []
    for held in kept[:_MOST_ROWS]:
        name, told = names.get(held.id, held.id), (held.title or "", held.format or "")
        rows.append((name, *told, held.state, held.messages, held.tokens))
    rest = len(kept) - _MOST_ROWS
    more = [Text(f"… and {number(rest, 'more session')}", style=QUIET)] if rest > 0 else []
    return Group(listing("id title format _ messages tokens", rows), *more)
