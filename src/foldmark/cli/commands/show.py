"""`foldmark show`: what the model is shown of a session, and what was done to shape that."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from rich.console import RenderableType
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.log.log import Entry, handle
from foldmark.log.view import View
from foldmark.model.messages import Number
from foldmark.model.operations import Operation
from foldmark.model.values import Json
from foldmark.session.diff import ViewDiff
from foldmark.session.session import Session
from foldmark.store.leases import shown_holder
from foldmark.store.loading import Slice, segments
from foldmark.store.rows import SessionRow, read_messages
from foldmark.store.store import Store

from ..groups import flag, option
from ..layout import QUIET, Row, answer, listing, section, titled, words
from ..messages import MOST_LINES, MessagePrinter
from ..operation_diff import operation_diff
from ..options import SessionName, StoreOptions
from ..text import ago, number

EXAMPLE = "Example: foldmark show latest --diff 2"

_DIFF_LINES = 4  # of each text: what an act hides is known by its beginning
_SIGNS = {"removed": ("- ", "bold red"), "added": ("+ ", "bold green")}


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """What of a session is shown."""

    everything: bool = flag("--all", "Show the whole log, folded messages too.")
    before: int | None = option("--before N", "The view before act N.", min=1)
    diff: int | None = option("--diff N", "What act N changed.", min=1)
    full: bool = flag("--full", "Cut no text, however long.")


def show_session(session: SessionName, *, shown: ShowOptions, options: StoreOptions) -> None:
    """Show a session as the model is shown it now; or its log, or what an act changed."""
    everything, before, diff = shown.everything, shown.before, shown.diff
    if everything + (before is not None) + (diff is not None) > 1:
        raise BadInput("give one of --all, --before and --diff, not several")
    with options.session(session) as (opened, kept, row):
        lines = None if shown.full else MOST_LINES if diff is None else _DIFF_LINES
        reader = MessagePrinter(opened.policy.view.placeholder, lines)
        page = SessionPage(opened, kept, row, reader)
        if everything:
            value, pieces = page.log()
        elif diff is not None:
            value, pieces = page.diff(diff)
        else:
            value, pieces = page.view(before)
        answer(value, *(() if options.json else pieces), json=options.json)


class SessionPage:
    """A session: as JSON, and as pieces to print."""

    def __init__(
        self, session: Session, store: Store, row: SessionRow, reader: MessagePrinter
    ) -> None:
        """Take the session, and how to print its messages."""
        self._session = session
        self._store = store
        self._row = row
        self._reader = reader
        self._acts = session.acts()

    # --- a view ---

    def view(self, before: int | None) -> tuple[Json, Iterator[RenderableType]]:
        """The view now, or before an act."""
        view = self._session.view(before=before)
        value = self._head_json(view, before) | {"messages": view.messages}
        return value, self._view_pieces(view, before)

    def _view_pieces(self, view: View, before: int | None) -> Iterator[RenderableType]:
        yield self._head(view, before)
        if self._acts:
            yield operations_table(self._acts)
        for message in view.messages:
            yield self._reader.shown(message)
        if not view.messages:
            yield Text("The model is shown nothing yet.", style=QUIET)

    def _head_json(self, view: View, before: int | None) -> Json:
        return {
            "id": self._row.id,
            "title": self._row.info.title or None,
            "before": before,
            "tokens": view.tokens,
            "folded": self._folded(view, before),
            "log": {"messages": self._row.places, "tokens": self._row.tokens},
            "acts": [operation_json(act) for act in self._acts],
        }

    def _head(self, view: View, before: int | None) -> RenderableType:
        row, folded = self._row, self._folded(view, before)
        seen = f"{number(view.tokens, 'token')} in {number(len(view.places), 'message')}"
        when = "" if before is None else f", before act {before}"
        told = f"{number(folded, 'message')}, which the summary stands for" if folded else "nothing"
        rows: list[tuple[str, RenderableType]] = [
            ("session", row.id),
            ("log", f"{number(row.tokens, 'token')} in {number(row.places, 'message')}"),
            ("view", f"{seen}{when}"),
            ("folded", Text(told, style="magenta" if folded else "")),
        ]
        return titled(row.info.title or "", rows)

    def _folded(self, view: View, before: int | None) -> int:
        """How many messages before the pivot are not shown."""
        if view.pivot is None:
            return 0
        kept = segments(0, view.pivot.marker, self._gaps(before))
        places = set(view.places)
        return sum(place not in places for first, end in kept for place in range(first, end))

    def _gaps(self, before: int | None = None) -> list[tuple[int, int]]:
        """The places that reverts hide."""
        return sorted(
            (act.tail or 0, act.marker or 0)
            for act in self._acts
            if act.kind == "revert" and act.in_force and (before is None or act.number < before)
        )

    # --- the log ---

    def log(self) -> tuple[Json, Iterator[RenderableType]]:
        """Every message that was ever written."""
        view = self._session.view()
        shown, gaps = set(view.places), self._gaps()
        part = Slice(everything=True)
        loaded = self._store.load(self._row.key, part, estimate=self._row.estimate)
        held = list(loaded.messages)
        for first, end in gaps:
            held += read_messages(self._store.engine, self._row.key, first, end, sized=False)
        held.sort(key=lambda one: one.index)
        states = [_state(one.index, shown, gaps) for one in held]
        value = self._head_json(view, None) | {
            "messages": [
                _logged_json(one, state, loaded.past.marks)
                for one, state in zip(held, states, strict=True)
            ]
        }
        return value, self._log_pieces(view, held, states, loaded.past.marks)

    def _log_pieces(
        self,
        view: View,
        held: Sequence[Entry],
        states: Sequence[str],
        marks: Mapping[int, Number],
    ) -> Iterator[RenderableType]:
        yield self._head(view, None)
        if self._acts:
            yield operations_table(self._acts)
        for one, state in zip(held, states, strict=True):
            yield self._reader.logged(one, state, marks)

    # --- an act ---

    def diff(self, number: int) -> tuple[Json, Iterator[RenderableType]]:
        """What an act changed, if it is in force."""
        act = next((act for act in self._acts if act.number == number), None)
        if act is None:
            raise BadInput(f"session {self._row.id} has no act {number}{self._known()}")
        changed = (
            operation_diff(self._session, self._store, act, self._acts) if act.in_force else None
        )
        value: Json = {
            "id": self._row.id,
            "act": operation_json(act),
            "before": changed.before if changed else None,
            "after": changed.after if changed else None,
            "changes": [
                {"change": change, "message": message}
                for change, message in (changed.changes if changed else ())
            ],
        }
        return value, self._diff_pieces(act, changed)

    def _diff_pieces(self, act: Operation, changed: ViewDiff | None) -> Iterator[RenderableType]:
        yield words(f"Act {act.number} of session {self._row.id}: {act.kind}, {act.state}", "bold")
        if changed is None:
            yield Text(f"It is {act.state}, and changes nothing.")
            return
        yield Text(
            f"{number(len(changed.removed), 'message')} out, "
            f"{number(len(changed.added), 'message')} in: "
            f"{changed.before:,} → {number(changed.after, 'token')}"
        )
        for change, message in changed.changes:
            yield self._reader.shown(message, *_SIGNS[change])

    def _known(self) -> str:
        if not self._acts:
            return "; it has none yet"
        return f"; the latest is {self._acts[-1].number}"


def operations_table(acts: Sequence[Operation]) -> RenderableType:
    """What was done to a session beside writing messages."""
    now = time.time()
    rows: list[Row] = [
        (act.number, act.kind, act.state, _tokens(act), ago(now - act.at / 1000)) for act in acts
    ]
    return section("Acts", listing("act kind state tokens when", rows))


def _tokens(act: Operation) -> str:
    if act.before is None or act.after is None:
        return "not known"
    return f"{act.before:,} → {act.after:,}"


def operation_json(act: Operation) -> Json:
    """An act with its state in words."""
    claimed = act.claimed and shown_holder(act.claimed)
    return {**msgspec.structs.asdict(act), "claimed": claimed, "state": act.state}


def _state(place: int, shown: set[int], gaps: Sequence[tuple[int, int]]) -> str:
    if any(first <= place < end for first, end in gaps):
        return "reverted"
    return "shown" if place in shown else "folded"


def _logged_json(held: Entry, state: str, marks: Mapping[int, Number]) -> Json:
    ordinals = range(held.ordinal, held.ordinal + len(held.message.parts))
    return {
        "place": held.index,
        "state": state,
        "handles": [handle(ordinal) for ordinal in ordinals],
        "pruned": [handle(ordinal) for ordinal in ordinals if ordinal in marks],
        "message": held.message,
    }
