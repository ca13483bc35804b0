"""Events: what happened in a session. Subscribers cannot change what they are notified of."""

from collections.abc import Iterable
from difflib import get_close_matches

from foldmark.errors import BadInput

from .values import Frozen, Json

MESSAGE_WRITTEN = "message.written"
PART_WRITTEN = "part.written"
PRUNED = "session.pruned"
QUEUED = "compaction.queued"
STARTED = "compaction.started"
DELTA = "compaction.delta"
FAILED = "compaction.failed"
COMPACTED = "session.compacted"
UNDONE = "session.undone"
REDONE = "session.redone"
REVERTED = "session.reverted"
FORKED = "session.forked"
IMPORTED = "session.imported"
HOOK_FAILED = "hook.failed"

# Published by a running agent; like `compaction.delta`, these are not stored.
TURN_STARTED = "turn.started"
TURN_FINISHED = "turn.finished"
STEP_STARTED = "step.started"
STEP_DELTA = "step.delta"
STEP_RETRIED = "step.retried"
STEP_FINISHED = "step.finished"
TOOL_CALLED = "tool.called"
TOOL_STARTED = "tool.started"
TOOL_FINISHED = "tool.finished"

KINDS = tuple(kind for name, kind in sorted(globals().items()) if name.isupper())


class Event(Frozen):
    """Something that happened in a session."""

    number: int  # its position in the session's stream, from 1, without gaps
    session: str
    kind: str
    at: int  # milliseconds
    data: Json


def check_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return one or several kinds as a tuple; raises BadInput for a misspelled one.

    Programs may publish kinds of their own, so a kind is an error only if it resembles ours.
    """
    requested = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    families = {f"{kind.partition('.')[0]}." for kind in KINDS}
    for kind in requested:
        if kind in KINDS or kind in families:
            continue
        near = get_close_matches(kind, [*KINDS, *sorted(families)], n=1, cutoff=0.8)
        family = f"{kind.partition('.')[0]}."
        near = near or sorted(one for one in KINDS if one.startswith(family))
        if near:
            raise BadInput(f"there is no event {kind!r}; did you mean {', '.join(near)}?")
    return requested
