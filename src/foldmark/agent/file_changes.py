"""The file changes of a session, per message and as a whole, and the trees to restore.

Steps record the tree before and after them; a diff spans from the first to the last, so it
includes edits made by others in between. Reverted messages are ignored. `snapshots/` stores the
trees.
"""

from collections.abc import Iterable

from foldmark.errors import BadInput
from foldmark.log.log import marker_part
from foldmark.model.messages import Message, StepFinishPart, StepStartPart, TextPart
from foldmark.session.session import Session

Trees = tuple[str, str]


def tree_span(messages: Iterable[Message]) -> Trees | None:
    """The trees before the first step and after the last; None if no step has a tree.

    A step with only one tree starts and ends with it.
    """
    steps = (part for message in messages for part in message.parts)
    steps = (part for part in steps if isinstance(part, StepStartPart | StepFinishPart))
    trees = [part.snapshot for part in steps if part.snapshot]
    return (trees[0], trees[-1]) if trees else None


def trees_around(session: Session, message_id: str | None = None) -> Trees | None:
    """The trees before and after a message, or the whole session; None if it has no step."""
    if message_id is None:
        return tree_span(session.export(reverted=False).messages)
    return _spans(session, message_id)[1]


def tree_before(session: Session, message_id: str) -> str:
    """The tree before a message and the answers to it."""
    earlier, own, later = _spans(session, message_id)
    return _first_tree(own and own[0], earlier and earlier[1], later and later[0], name=message_id)


def tree_after(session: Session, message_id: str) -> str:
    """The tree after a message and the answers to it."""
    earlier, own, later = _spans(session, message_id)
    return _first_tree(own and own[1], earlier and earlier[1], later and later[0], name=message_id)


def _first_tree(*trees: str | None, name: str) -> str:
    if (tree := next(filter(None, trees), None)) is None:
        raise BadInput(f"no snapshot was taken around the message {name!r}")
    return tree


def _spans(session: Session, message_id: str) -> tuple[Trees | None, Trees | None, Trees | None]:
    """The spans before a message, of it (with the answers to a user message), and after it.

    If several messages have the id, the newest is used.
    """
    messages = session.export(reverted=False).messages
    ids = [message.id for message in messages]
    first = max((index for index, id in enumerate(ids) if id == message_id), default=None)
    if first is None:
        raise BadInput(f"session {session.id} has no message {message_id!r}")
    end = first + 1
    if messages[first].is_user:
        after = (index for index in range(end, len(messages)) if _is_request(messages[index]))
        end = next(after, len(messages))
    return tree_span(messages[:first]), tree_span(messages[first:end]), tree_span(messages[end:])


def _is_request(message: Message) -> bool:
    """Whether a message is a user's own: neither a marker nor written by a program."""
    if not message.is_user or marker_part(message) is not None:
        return False
    return any(
        not (isinstance(part, TextPart) and (part.synthetic or part.ignored))
        for part in message.parts
    )
