"""Reads from a session: view, plan, search, recall, export and events."""

from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from foldmark.analysis.plan import Plan, session_plan
from foldmark.compaction.fold import tokens_used
from foldmark.errors import BadInput, BadPolicy, StoreError
from foldmark.log.log import ordinal_of, part_text
from foldmark.log.marks import marked_messages, with_reverts
from foldmark.log.view import View
from foldmark.model.events import Event
from foldmark.model.messages import Transcript
from foldmark.store.loading import Slice
from foldmark.store.rows import read_gaps
from foldmark.store.search import SearchHit, State
from foldmark.store.search import search as search_store
from foldmark.store.transaction import WORTH_INDEXING
from foldmark.tokens.budget import pressure as share_used
from foldmark.tokens.limits import Limit

from .state import SessionState

# Seconds between two polls for events; the pause grows while there are none.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


def view(state: SessionState, operation: int | None = None, *, after: bool = False) -> View:
    """The view now, or just before or after an operation."""
    if operation is None:
        with state.lock:
            current = state.refresh().view()
        return state.hooks.change_view(current)
    with state.lock, state.report_damage():
        part = state.slice(operation, after=after)
        state.operation(operation)
        loaded = state.store.load(state.key, part, estimate=state.policy.estimate)
        return state.viewer_of(state.build_log(loaded)).view()


def plan(state: SessionState) -> Plan:
    """What pruning and compacting would do now, and why."""
    with state.lock:
        viewer, limit = state.refresh(), _window(state)
        return session_plan(viewer, limit, model=state.model, fixed=state.fixed_tokens)


def pressure(state: SessionState) -> float:
    """The share of the usable window that is in use; more than 1 means that it is full."""
    with state.lock:
        viewer, limit = state.refresh(), _window(state)
        if limit.context == 0:
            return 0.0
        return share_used(tokens_used(viewer, fixed=state.fixed_tokens), state.usable)


def _window(state: SessionState) -> Limit:
    if state.limit is None:
        raise BadPolicy("the context window is unknown; give model=… or window=…")
    return state.limit


def search(state: SessionState, query: str, limit: int) -> list[SearchHit]:
    """Search all messages, including hidden ones: exact matches first, then newest first."""
    with state.lock:
        row = state.store.row(state.key)
        if row.places - row.indexed >= WORTH_INDEXING:
            # The first search after an import builds the index; if it cannot, it reads all rows.
            with suppress(StoreError):
                state.store.index(state.key)
        viewer = state.refresh()
        visible, marks = set(viewer.view().indexes), state.log.marks
        gaps = read_gaps(state.store.engine, state.key)
        with state.store.engine.reading(), state.report_damage():
            row = state.store.row(state.key)
            hits = search_store(state.store.engine, row, query, limit)
    results: list[SearchHit] = []
    for hit in hits:
        is_shown, is_pruned = hit.place in visible, (ordinal_of(hit.handle) or 0) in marks
        status: State = "pruned" if is_shown and is_pruned else "shown" if is_shown else "folded"
        if not is_shown and any(hit.place in gap for gap in gaps):
            status = "reverted"
        results.append(replace(hit, state=status))
    return results


def recall(state: SessionState, name: str) -> str:
    """The full content behind a handle, whether or not it is hidden."""
    ordinal = ordinal_of(name)
    entry = None if ordinal is None else state.store.message_with_part(state.key, ordinal)
    if entry is None or ordinal is None:
        raise BadInput(f"session {state.id} has no handle {name!r}")
    with state.report_damage():
        return part_text(entry.message.parts[ordinal - entry.ordinal])


def export(state: SessionState, *, reverted: bool) -> Transcript:
    """The whole session in the format of `opencode export`."""
    part = Slice(everything=True, reverted=reverted)
    with state.report_damage():
        loaded = state.store.load(state.key, part, estimate=state.policy.estimate)
        pivots = state.store.operations(state.key, "pivot")
        times = {pivot.marker or 0: pivot.undone for pivot in pivots if pivot.undone is not None}
        messages = marked_messages(state.build_log(loaded), times)
        gaps = read_gaps(state.store.engine, state.key) if reverted else []
    info = with_reverts(loaded.row.info, messages, gaps)
    return Transcript(info=info, messages=messages, extra=loaded.row.extra)


def poll(state: SessionState, after: int, seconds: float | None) -> Iterator[list[Event] | float]:
    """Yield new events as they occur, or the seconds to wait if there are none."""
    waited, pause = 0.0, _SHORTEST_PAUSE
    while seconds is None or waited <= seconds:
        events = state.store.events(state.row, after)
        if events:
            after, waited, pause = events[-1].number, 0.0, _SHORTEST_PAUSE
            yield events
        else:
            yield pause
            waited, pause = waited + pause, min(pause * 1.5, _LONGEST_PAUSE)
