"""`foldmark show`: what the model is shown of a session, and what was done to shape that."""

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
from foldmark.session.diff import view_diff
from foldmark.session.session import Session
from foldmark.store.leases import shown_holder
from foldmark.store.loading import Slice
from foldmark.store.rows import SessionRow, read_gaps
from foldmark.store.store import Store

from ..groups import flag, option
from ..layout import QUIET, Row, answer, listing, section, titled, words
from ..messages import MOST_LINES, MessagePrinter
from ..options import SessionName, StoreOptions
from ..text import ago, number

_DIFF_LINES = 4  # of each text: what an act hides is known by its beginning
_SIGNS = {"removed": ("- ", "bold red"), "added": ("+ ", "bold green")}

Answer = tuple[Json, list[RenderableType]]  # for programs, and for people


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """What of a session is shown."""

    everything: bool = flag("--all", "Show the whole log, folded messages too.")
    before: int | None = option("--before N", "The view before act N.", min=1)
    diff: int | None = option("--diff N", "What act N changed.", min=1)
    full: bool = flag("--full", "Cut no text, however long.")


def show(session: SessionName, *, shown: ShowOptions, options: StoreOptions) -> None:
    """Show a session as the model is shown it now; or its log, or what an act changed.

    Example: foldmark show latest --diff 2
    """
    if shown.everything + (shown.before is not None) + (shown.diff is not None) > 1:
        raise BadInput("give one of --all, --before and --diff, not several")
    with options.session(session) as (opened, store, row):
        lines = None if shown.full else MOST_LINES if shown.diff is None else _DIFF_LINES
        printer = MessagePrinter(opened.policy.view.placeholder, lines)
        if shown.diff is not None:
            value, pieces = _operation(opened, shown.diff, printer)
        else:
            view, acts = opened.view(before=shown.before), opened.acts()
            messages, shown_messages = (
                _log(store, row, view, printer)
                if shown.everything
                else (view.messages, map(printer.shown, view.messages))
            )
            value, pieces = _head(row, view, acts, shown.before)
            value, pieces = value | {"messages": messages}, [*pieces, *shown_messages]
        answer(value, *(() if options.json else pieces), json=options.json)


# --- a view, and the log -------------------------------------------------------------------


def _head(row: SessionRow, view: View, acts: list[Operation], before: int | None) -> Answer:
    """What is told of a session before its messages."""
    folded = folded_messages(view, [act for act in acts if act.number < (before or 2**62)])
    value: Json = {
        "id": row.id,
        "title": row.info.title or None,
        "before": before,
        "tokens": view.tokens,
        "folded": folded,
        "log": {"messages": row.places, "tokens": row.tokens},
        "acts": [operation_json(act) for act in acts],
    }
    seen = f"{number(view.tokens, 'token')} in {number(len(view.places), 'message')}"
    when = "" if before is None else f", before act {before}"
    told = f"{number(folded, 'message')}, which the summary stands for" if folded else "nothing"
    rows: list[tuple[str, RenderableType]] = [
        ("session", row.id),
        ("log", f"{number(row.tokens, 'token')} in {number(row.places, 'message')}"),
        ("view", f"{seen}{when}"),
        ("folded", Text(told, style="magenta" if folded else "")),
    ]
    pieces: list[RenderableType] = [titled(row.info.title or "", rows)]
    if acts:
        pieces.append(operations_table(acts))
    if not view.messages:
        pieces.append(Text("The model is shown nothing yet.", style=QUIET))
    return value, pieces


def folded_messages(view: View, acts: Iterable[Operation]) -> int:
    """How many messages before the pivot are neither shown nor hidden by a revert."""
    if view.pivot is None:
        return 0
    reverts = (act for act in acts if act.kind == "revert" and act.in_force)
    known = set(view.places).union(*(range(act.tail or 0, act.marker or 0) for act in reverts))
    return sum(place not in known for place in range(view.pivot.marker))


def _log(
    store: Store, row: SessionRow, view: View, printer: MessagePrinter
) -> tuple[list[Json], Iterator[RenderableType]]:
    """Every message that was ever written."""
    shown, gaps = set(view.places), read_gaps(store.engine, row.key)
    part = Slice(everything=True, reverted=True)
    loaded = store.load(row.key, part, estimate=row.estimate)
    marks = loaded.past.marks

    def state(place: int) -> str:
        if any(place in gap for gap in gaps):
            return "reverted"
        return "shown" if place in shown else "folded"

    values = [_logged_json(held, state(held.index), marks) for held in loaded.messages]
    return values, (printer.logged(held, state(held.index), marks) for held in loaded.messages)


def _logged_json(held: Entry, state: str, marks: Container[int]) -> Json:
    ordinals = range(held.ordinal, held.ordinal + len(held.message.parts))
    return {
        "place": held.index,
        "state": state,
        "handles": [handle(ordinal) for ordinal in ordinals],
        "pruned": [handle(ordinal) for ordinal in ordinals if ordinal in marks],
        "message": held.message,
    }


# --- an act --------------------------------------------------------------------------------


def _operation(session: Session, wanted: int, printer: MessagePrinter) -> Answer:
    """What an act changed, if it is in force; not what was written or done after it."""
    acts = {act.number: act for act in session.acts()}
    act = acts.get(wanted)
    if act is None:
        known = f"; the latest is {max(acts)}" if acts else "; it has none yet"
        raise BadInput(f"session {session.id} has no act {wanted}{known}")
    head = f"Act {act.number} of session {session.id}: {act.kind}, {act.state}"
    value: Json = {"id": session.id, "act": operation_json(act)}
    if not act.in_force:
        nothing = Text(f"It is {act.state}, and changes nothing.")
        return value | {"before": None, "after": None, "changes": []}, [
            words(head, "bold"),
            nothing,
        ]
    changed = view_diff(session.view(before=wanted), session.view(after=wanted))
    changes = [{"change": change, "message": message} for change, message in changed.changes]
    value |= {"before": changed.before, "after": changed.after, "changes": changes}
    out, come = number(len(changed.removed), "message"), number(len(changed.added), "message")
    tokens = f"{changed.before:,} → {number(changed.after, 'token')}"
    shown = (printer.shown(message, *_SIGNS[change]) for change, message in changed.changes)
    return value, [words(head, "bold"), Text(f"{out} out, {come} in: {tokens}"), *shown]


def operations_table(acts: Sequence[Operation]) -> RenderableType:
    """What was done to a session beside writing messages."""
    now = time.time()
    rows: list[Row] = []
    for act in acts:
        known = act.before is not None and act.after is not None
        tokens = f"{act.before:,} → {act.after:,}" if known else "not known"
        rows.append((act.number, act.kind, act.state, tokens, ago(now - act.at / 1000)))
    return section("Acts", listing("act kind state tokens when", rows))


def operation_json(act: Operation) -> Json:
    """An act with its state in words."""
    claimed = act.claimed and shown_holder(act.claimed)
    return {**msgspec.structs.asdict(act), "claimed": claimed, "state": act.state}
