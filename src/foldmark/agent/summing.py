"""What is noted at the end of a turn: titles, and which files it changed."""

import logging

from foldmark.errors import FoldmarkError
from foldmark.model.file_diffs import FileDiff
from foldmark.model.values import Json
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import Snapshots

_log = logging.getLogger("foldmark")
START = "start"  # in a session's summary: the tree that its first turn found
MOST_TOLD = 500  # files that are noted by their names; of more, it is noted how many


def summed_up(
    session: Session,
    snapshots: Snapshots | None,
    trees: tuple[str | None, str | None],
    *,
    asked: str | None,
    title: str,
) -> tuple[str, ...]:
    """Note what a turn came to, under what the user said and for the session; the files."""
    old, new = trees
    diffs = _counted(snapshots, old, new) or ()
    if asked is not None:
        session.summarise_turn(asked, {"title": title, **_listed(diffs)})
    info = session.info.info
    session.describe(
        title=title if title and not info.title else None,
        summary=_whole(snapshots, info.summary or {}, old, new),
    )
    return tuple(diff.file for diff in diffs)


def _whole(
    snapshots: Snapshots | None, known: Json, old: str | None, new: str | None
) -> Json | None:
    """What the session changed as a whole, and the tree that it began with; None: as it was."""
    start = known.get(START)
    if not isinstance(start, str):
        start = old
    elif old == new:
        return None
    diffs = _counted(snapshots, start, new)
    if diffs is None:
        return None
    return {
        **known,
        START: start,
        "additions": sum(diff.additions for diff in diffs),
        "deletions": sum(diff.deletions for diff in diffs),
        "files": len(diffs),
    }


def _counted(
    snapshots: Snapshots | None, old: str | None, new: str | None
) -> tuple[FileDiff, ...] | None:
    """What changed between two trees; None where that cannot be told: no reason to fail."""
    if snapshots is None or not old or not new:
        return None
    try:
        return snapshots.diff(old, new, texts=False) if old != new else ()
    except FoldmarkError as error:  # it began on another machine, or somebody is in a hurry
        _log.warning("what was changed is not noted: %s", error)
        return None


def _listed(diffs: tuple[FileDiff, ...]) -> Json:
    """The files that changed: the first of them, and how many more there are."""
    told: Json = {"diffs": [_told(diff) for diff in diffs[:MOST_TOLD]]}
    return {**told, "more": len(diffs) - MOST_TOLD} if len(diffs) > MOST_TOLD else told


def _told(diff: FileDiff) -> Json:
    return {
        "file": diff.file,
        "additions": diff.additions,
        "deletions": diff.deletions,
        "status": diff.change,
    }
