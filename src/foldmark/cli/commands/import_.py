"""`foldmark import`: read transcripts, folders of them, and other stores into a store."""

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
from foldmark.transcripts.store import ImportResult

from ..groups import argument, flag, option
from ..layout import QUIET, Row, answer, listing, safe_text
from ..options import (
    FORMAT,
    LENIENT,
    StoreOptions,
    check_new_id,
    opened_store,
    size_option,
    store_location,
    store_settings,
)
from ..progress import track_files
from ..text import number, plain
from .sessions import display_names

_MOST_ROWS = 40

Files = Annotated[
    list[str],
    argument(
        "FILE",
        "Transcripts in any known format (see `foldmark formats`), folders of them, or Foldmark "
        "stores; - reads standard input.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """How to import files."""

    name: str | None = option("--as ID", "Store the session under this id.")
    format: str | None = option(*FORMAT)
    lenient: bool = flag(*LENIENT)
    policy: str | None = option(
        "--policy NAME",
        f"Policy whose token estimate to use: {', '.join(PRESETS)}.",
        show_default=False,
    )
    max_size: int = size_option()


def import_(files: Files, *, reading: ImportOptions, options: StoreOptions) -> None:
    """Import sessions into a store, which is created if necessary.

    Importing again is safe: nothing is duplicated, and a file that has grown only adds its new
    messages. Each file is imported completely or not at all; a file that cannot be read does not
    stop the others.

    Example: foldmark import ~/.claude/projects --store work.db
    """
    if check_new_id(reading.name) and len(files) > 1:
        raise BadInput("--as is for one file; leave it out or give a single file")
    settings = store_settings(store=options.store, policy=reading.policy)
    with ExitStack() as stack:
        target = ImportTarget(
            location=store_location(settings),
            open=lambda: stack.enter_context(opened_store(settings)),
            create=lambda: stack.enter_context(opened_store(settings, create=True)),
            estimate=settings.rules().estimate,
        )
        importer = BatchImport(
            target,
            name=reading.name,
            format=reading.format,
            lenient=reading.lenient,
            max_size=reading.max_size,
        )
        paths = importer.files(files)
        for file, move in track_files("importing", paths):
            importer.on_progress = move
            importer.import_file(file)
        store = importer.store.name if importer.store else None
        rows = importer.store.sessions() if importer.store else []
        names = dict(zip((row.id for row in rows), display_names(rows), strict=True))
    lists = ("imported", "unchanged", "passed_over", "skipped", "refused")
    value = {"store": store, **{name: getattr(importer, name) for name in lists}}
    report = list(_report(importer, store, names))
    if options.json or report:
        answer(value, *report, json=options.json)
    for refusal in importer.refused:
        sys.stderr.write(f"foldmark: {plain(refusal.problem, limit=1_000)}\n")
    if importer.refused:
        raise typer.Exit(2)


def _report(
    importer: BatchImport, store: str | None, names: Mapping[str, str]
) -> Iterator[RenderableType]:
    changed = [result for result in importer.imported if result.state != "same"]
    same = len(importer.imported) - len(changed)
    if changed:
        files = number(len({result.file for result in changed}), "file")
        messages = number(sum(result.messages for result in changed), "message")
        tokens = number(sum(result.tokens for result in changed), "token")
        text = f"{number(len(changed), 'session')} from {files}: {messages}, {tokens}, in {store}"
        yield Group(_table(changed, names), safe_text(text, QUIET, limit=300))
    notes: list[str] = []
    if importer.unchanged:
        notes.append(f"{number(len(importer.unchanged), 'file')} unchanged since the last import.")
    if same:
        notes.append(f"{number(same, 'session')} with nothing new.")
    if importer.passed_over:
        files = number(len(importer.passed_over), "file")
        notes.append(f"{files} without a transcript, ignored.")
    for line in importer.skipped:
        notes += [f"{line.file}: skipped line {line.line}: {line.cause}"]
    if notes:
        yield Group(*(safe_text(line, QUIET, limit=300) for line in notes))


def _table(results: Sequence[ImportResult], names: Mapping[str, str]) -> RenderableType:
    rows: list[Row] = []
    for result in results[:_MOST_ROWS]:
        name, about = names.get(result.id, result.id), (result.title or "", result.format or "")
        rows.append((name, *about, result.state, result.messages, result.tokens))
    rest = len(results) - _MOST_ROWS
    more = [Text(f"… and {number(rest, 'more session')}", style=QUIET)] if rest > 0 else []
    return Group(listing("id title format _ messages tokens", rows), *more)
