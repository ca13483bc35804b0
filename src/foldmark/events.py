"""Events: what happened in a session. Who is told of one cannot change what it tells of."""

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


class Event(Frozen):
    """Something that happened."""

    number: int  # its place in the session's stream, from 1, without gaps
    session: str
    kind: str
    at: int  # milliseconds
    data: Json
