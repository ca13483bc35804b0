"""`foldmark show`: what the model sees of a session, and the operations that shaped it."""

import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from rich.console import RenderableType
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.log.log import Entry, handle
from foldmark.log.view import View
from foldmark.model.operations import Operation
from foldmark.model.values import Json
from foldmark.session.session import Session
from foldmark.session.view_diff import view_diff
from foldmark.store.leases import holder_label
from foldmark.store.loading import Slice
from foldmark.store.rows import SessionRow, read_gaps
from foldmark.store.store import Store

from ..groups import flag, option
from ..layout import QUIET, USER_WORDS, Row, answer, listing, report_head, safe_text, section
from ..messages import MOST_LINES, MessagePrinter
from ..options import SessionName, StoreOptions
from ..text import ago, number

_DIFF_LINES = 4  # of each text: enough to recognize it
_SIGNS = {"removed": ("- ", "bold red"), "added": ("+ ", "bold green")}

Answer = tuple[Json, list[RenderableType]]  # for --json, and for people


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Which part of a session to show."""

    everything: bool = flag("--all", "Show the whole log, including summarized messages.")
    before: int | None = option("--before N", "Show the view before operation N.", min=1)
    diff: int | None = option("--diff N", "Show what operation N changed.", min=1)
    full: bool = flag("--full", "Show texts in full, however long.")


def show(session: SessionName, *, selection: ShowOptions, options: StoreOptions) -> None:
    """Show what the model sees of a session now; or the whole log, or what an operation changed.

    Example: foldmark show latest --diff 2
    """
    if selection.everything + (selection.before is not None) + (selection.diff is not None) > 1:
        raise BadInput("--all, --before and --diff exclude each other; give one of them")
    with options.session(session) as (opened, store, row):
        lines = None if selection.full else MOST_LINES if selection.diff is None else _DIFF_LINES
        printer = MessagePrinter(opened.policy.view.placeholder, lines)
        if selection.diff is not None:
            value, pieces = _operation(opened, selection.diff, printer)
        else:
            view, operations = opened.view(before=selection.before), opened.operations()
            messages, printed = (
                _log(store, row, view, printer)
                if selection.everything
                else (view.messages, map(printer.prompt, view.messages))
            )
            value, pieces = _head(row, view, operations, selection.before)
            value, pieces = value | {"messages": messages}, [*pieces, *printed]
        answer(value, *(() if options.json else pieces), json=options.json)


# --- the view and the log ------------------------------------------------------------------


def _head(row: SessionRow, view: View, operations: list[Operation], before: int | None) -> Answer:
    """The facts about a session that precede its messages."""
    earlier = [one for one in operations if before is None or one.number < before]
    folded = folded_messages(view, earlier)
    value: Json = {
        "id": row.id,
        "title": row.info.title or None,
        "before": before,
        "tokens": view.tokens,
        "folded": folded,
        "log": {"messages": row.places, "tokens": row.tokens},
        "acts": [operation_json(operation) for operation in operations],
    }
    size = f"{number(view.tokens, 'token')} in {number(len(view.indexes), 'message')}"
    when = "" if before is None else f", before operation {before}"
    summarized = f"{number(folded, 'message')}, replaced by the summary" if folded else "nothing"
    rows: list[tuple[str, RenderableType]] = [
        ("session", row.id),
        ("log", f"{number(row.tokens, 'token')} in {number(row.places, 'message')}"),
        ("view", f"{size}{when}"),
        ("summarized", Text(summarized, style="magenta" if folded else "")),
    ]
    pieces: list[RenderableType] = [report_head(row.info.title or "", rows)]
    if operations:
        pieces.append(operations_table(operations))
    if not view.messages:
        pieces.append(Text("The model sees nothing yet.", style=QUIET))
    return value, pieces


def folded_messages(view: View, operations: Iterable[Operation]) -> int:
    """How many messages before the pivot are neither in the view nor hidden by a revert."""
    if view.pivot is None:
        return 0
    reverts = (one for one in operations if one.kind == "revert" and one.in_force)
    visible = set(view.indexes).union(*(range(one.tail or 0, one.marker or 0) for one in reverts))
    return sum(index not in visible for index in range(view.pivot.marker))


def _log(
    store: Store, row: SessionRow, view: View, printer: MessagePrinter
) -> tuple[list[Json], Iterator[RenderableType]]:
    """Every message of the log, as JSON and as output."""
    visible, gaps = set(view.indexes), read_gaps(store.engine, row.key)
    part = Slice(everything=True, reverted=True)
    loaded = store.load(row.key, part, estimate=row.estimate)
    marks = loaded.past.marks

    def state(index: int) -> str:
        if any(index in gap for gap in gaps):
            return "reverted"
        return "shown" if index in visible else "folded"

    entries = [(entry, state(entry.index), marks) for entry in loaded.messages]
    return [_entry_json(*entry) for entry in entries], (printer.log_entry(*one) for one in entries)


def _entry_json(entry: Entry, state: str, marks: Container[int]) -> Json:
    ordinals = range(entry.ordinal, entry.ordinal + len(entry.message.parts))
    return {
        "place": entry.index,
        "state": state,
        "handles": [handle(ordinal) for ordinal in ordinals],
        "pruned": [handle(ordinal) for ordinal in ordinals if ordinal in marks],
        "message": entry.message,
    }


# --- operations ----------------------------------------------------------------------------


def _operation(session: Session, index: int, printer: MessagePrinter) -> Answer:
    """What an operation changed, if it is in force, without anything that came after it."""
    operations = {operation.number: operation for operation in session.operations()}
    operation = operations.get(index)
    if operation is None:
        hint = f"the latest is {max(operations)}" if operations else "it has none yet"
        raise BadInput(f"session {session.id} has no operation {index}; {hint}")
    head = f"{operation_label(operation)} of session {session.id}: {operation.state}"
    value: Json = {"id": session.id, "act": operation_json(operation)}
    if not operation.in_force:
        nothing = Text(f"It is {operation.state} and changes nothing.")
        value |= {"before": None, "after": None, "changes": []}
        return value, [safe_text(head, "bold"), nothing]
    changed = view_diff(session.view(before=index), session.view(after=index))
    changes = [{"change": change, "message": message} for change, message in changed.changes]
    value |= {"before": changed.before, "after": changed.after, "changes": changes}
    removed, added = number(len(changed.removed), "message"), number(len(changed.added), "message")
    tokens = f"{changed.before:,} → {number(changed.after, 'token')}"
    pieces = (printer.prompt(message, *_SIGNS[sign]) for sign, message in changed.changes)
    text = f"{removed} removed, {added} added: {tokens}"
    return value, [safe_text(head, "bold"), Text(text), *pieces]


def operation_label(operation: Operation) -> str:
    """The number and kind of an operation, as users read them."""
    return f"Operation {operation.number} ({USER_WORDS.get(operation.kind, operation.kind)})"


def operations_table(operations: Sequence[Operation]) -> RenderableType:
    """The operations on a session: prunes, compactions and reverts."""
    now = time.time()
    rows: list[Row] = []
    for operation in operations:
        is_measured = operation.before is not None and operation.after is not None
        tokens = f"{operation.before:,} → {operation.after:,}" if is_measured else "unknown"
        when = ago(now - operation.at / 1000)
        rows.append((operation.number, operation.kind, operation.state, tokens, when))
    return section("Operations", listing("operation kind state tokens when", rows))


def operation_json(operation: Operation) -> Json:
    """An operation as JSON, with its state and the process that claimed it."""
    claimed = operation.claimed and holder_label(operation.claimed)
    return {**msgspec.structs.asdict(operation), "claimed": claimed, "state": operation.state}
