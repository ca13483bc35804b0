"""Invariants of every event, compaction and total in a store."""

import foldmark
from foldmark.log.log import Entry, marker_part, part_text
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo
from foldmark.model.operations import Operation
from foldmark.session.session import state_of
from foldmark.store.loading import Slice
from tests.support.killed_session import store_of


def check_pivots(entries: list[Entry], pivots: list[Operation]) -> None:
    """A pivot has a marker, and a summary unless it is queued; both belong to an operation."""
    messages = {entry.index: entry.message for entry in entries}
    markers = {index for index, message in messages.items() if marker_part(message)}
    summaries = {
        index
        for index, message in messages.items()
        if isinstance(message.info, AssistantInfo) and message.info.summary is True
    }
    assert markers <= {pivot.marker for pivot in pivots}
    assert summaries == {pivot.summary for pivot in pivots} - {None}
    assert len({pivot.marker for pivot in pivots}) == len(pivots)
    for pivot in pivots:
        assert pivot.failed is None
        if pivot.summary is None:
            assert pivot.state == "queued"
            continue
        info = messages[pivot.summary].info
        assert isinstance(info, AssistantInfo)
        assert info.finish == "stop"
        assert pivot.marker is not None
        assert pivot.marker < pivot.summary
        assert pivot.after is not None
        if pivot.marker in messages:
            assert info.parent_id == messages[pivot.marker].id
        assert part_text(messages[pivot.summary].parts[0]).strip()


def all_events(session: foldmark.Session, after: int = 0) -> list[Event]:
    events: list[Event] = []
    while more := session.events(after):
        events += more
        after = more[-1].number
    return events


def check_sums(session: foldmark.Session) -> None:
    """Redundant data agrees: a session's totals, and its view from a part and from the whole."""
    row = session.info
    whole = store_of(session).load(row.key, Slice(everything=True), estimate=row.estimate)
    sizes = [size for entry in whole.messages for size in entry.sizes]
    assert len(sizes) == row.parts
    assert sum(size.total for size in sizes) == row.tokens
    ordinal = 0
    for entry in whole.messages:
        assert entry.ordinal == ordinal
        ordinal += len(entry.sizes)
    log = state_of(session).build_log(whole)
    viewer = state_of(session).viewer_of(log)
    assert viewer.view().messages == session.view().messages
