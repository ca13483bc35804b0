"""What an agent's loop asks of a view first: the newest messages, and the tasks still queued."""

from collections.abc import Iterable

from foldmark.log.log import Log
from foldmark.model.messages import AssistantInfo, CompactionPart, Message, SubtaskPart
from foldmark.model.values import Frozen


class Latest(Frozen):
    """The newest messages of a view, and the tasks that came after its last finished answer."""

    user: Message | None
    assistant: Message | None
    finished: Message | None
    tasks: tuple[CompactionPart | SubtaskPart, ...]


def latest(log: Log, places: Iterable[int]) -> Latest:
    """The newest messages and pending tasks among these places of a log."""
    user: Message | None = None
    assistant: Message | None = None
    finished: Message | None = None
    tasks: list[CompactionPart | SubtaskPart] = []
    for place in sorted(places, reverse=True):
        message = log.entries[place].message
        if isinstance(message.info, AssistantInfo):
            assistant = assistant or message
            if finished is None and message.info.finish:
                finished = message
        else:
            user = user or message
        if finished is None:
            queued = (p for p in message.parts if isinstance(p, CompactionPart | SubtaskPart))
            tasks = [*queued, *tasks]
        elif user is not None:
            break
    return Latest(user=user, assistant=assistant, finished=finished, tasks=tuple(tasks))
