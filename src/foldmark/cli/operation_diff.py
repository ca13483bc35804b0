"""What one act did to a view: the view just before it against the view just after it.

What was written after the act, and what later acts did, is left out of both.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from foldmark.log.log import Log
from foldmark.log.view import View, Viewer
from foldmark.model.operations import Operation
from foldmark.session.diff import ViewDiff, view_diff
from foldmark.session.session import Session
from foldmark.store.loading import Slice
from foldmark.store.rows import Loaded, read_messages
from foldmark.store.store import Store
from foldmark.tokens.counters import counter


def operation_diff(
    session: Session, store: Store, act: Operation, acts: Sequence[Operation]
) -> ViewDiff:
    """How the view before an act, which is in force, became the view after it."""
    differ = _Differ(session, store)
    before = differ.loaded(act.number)
    next_act = next((held.number for held in acts if held.number > act.number), None)
    match act.kind:
        case "prune":
            after = differ.marked(before, differ.loaded(next_act))
        case "pivot":
            after = differ.folded(before, act)
        case "revert":
            after = differ.cut(differ.loaded(next_act), act.marker or 0)
    return view_diff(differ.view(before), differ.view(after))


class _Differ:
    """Loads a session as it was, and shows it as its session would."""

    def __init__(self, session: Session, store: Store) -> None:
        self._session = session
        self._store = store
        self._policy = session.policy

    def loaded(self, act: int | None) -> Loaded:
        """The session as it was before an act, or is."""
        part = Slice(act=act, dangling=self._policy.view.dangling_tail == "everything")
        key = self._session.info.key
        return self._store.load(key, part, estimate=self._policy.estimate)

    def marked(self, before: Loaded, after: Loaded) -> Loaded:
        """The same messages, with the marks of later."""
        marks = {**after.past.marks, **before.past.marks}
        return replace(before, past=replace(before.past, marks=marks))

    def folded(self, before: Loaded, pivot: Operation) -> Loaded:
        """The same messages, with the marker and the summary, which make the pivot."""
        row, end = before.row, (pivot.summary or 0) + 1
        more = read_messages(
            self._store.engine, row.key, before.end, end, sized=self._sized(before)
        )
        past = replace(before.past, undone=before.past.undone - {pivot.marker or 0})
        return replace(before, messages=[*before.messages, *more], past=past)

    def cut(self, loaded: Loaded, end: int) -> Loaded:
        """What there was up to a place."""
        return replace(loaded, messages=[held for held in loaded.messages if held.index < end])

    def view(self, loaded: Loaded) -> View:
        """What was shown of it."""
        sized = self._sized(loaded)
        log = Log(counter(self._policy.estimate), past=loaded.past)
        for held in loaded.messages:
            log.skip(held.index, held.ordinal)
            log.append(held.message, held.sizes if sized else None)
        room = self._session.room
        return Viewer(log, self._policy, model=self._session.model, usable=room).view()

    def _sized(self, loaded: Loaded) -> bool:
        return loaded.row.estimate == self._policy.estimate
