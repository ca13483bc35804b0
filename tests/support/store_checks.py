"""What must hold of every event, compaction and sum in a store."""

import foldmark
from foldmark.log.log import Entry, marker_part, part_text
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo
from foldmark.model.operations import Operation
from foldmark.session.session import state_of
from foldmark.store.loading import Slice
from tests.support.killed_session import store_of


def check_pivots(found: list[Entry], pivots: list[Operation]) -> None:
    """A pivot has both its messages, or its marker alone; and no message is without its act."""
    messages = {held.index: held.message for held in found}
    markers = {place for place, message in messages.items() if marker_part(message)}
    summaries = {
        place
        for place, message in messages.items()
        if isinstance(message.info, AssistantInfo) and message.info.summary is True
    }
    assert markers <= {act.marker for act in pivots}
    assert summaries == {act.summary for act in pivots} - {None}
    assert len({act.marker for act in pivots}) == len(pivots)
    for act in pivots:
        assert act.failed is None
        if act.summary is None:
            assert act.state == "queued"
            continue
        info = messages[act.summary].info
        assert isinstance(info, AssistantInfo)
        assert info.finish == "stop"
        assert act.marker is not None
        assert act.marker < act.summary
        assert act.after is not None
        if act.marker in messages:
            assert info.parent_id == messages[act.marker].id
        assert part_text(messages[act.summary].parts[0]).strip()


def all_events(session: foldmark.Session, after: int = 0) -> list[Event]:
    found: list[Event] = []
    while more := session.events(after):
        found += more
        after = more[-1].number
    return found


def check_sums(session: foldmark.Session) -> None:
    """What is kept twice agrees: a session's figures, and its view from less and from more."""
    row = session.info
    whole = store_of(session).load(row.key, Slice(everything=True), estimate=row.estimate)
    sizes = [size for held in whole.messages for size in held.sizes]
    assert len(sizes) == row.parts
    assert sum(size.total for size in sizes) == row.tokens
    ordinal = 0
    for held in whole.messages:
        assert held.ordinal == ordinal
        ordinal += len(held.sizes)
    log = state_of(session).built(whole)
    viewer = state_of(session).viewing(log)
    assert viewer.view().messages == session.view().messages
