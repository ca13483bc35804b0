"""What a session did to the files of its folder: per message, as a whole, and how to go back.

Messages name the trees at the start and at the finish of each step; a diff spans from the first
start to the last finish, so edits of others between them are told too. How trees are kept is told
elsewhere. A revert hides messages, and what they did, from all of these.
"""

from collections.abc import Iterable

from foldmark.errors import BadInput
from foldmark.log.log import marker_part
from foldmark.model.messages import Message, StepFinishPart, StepStartPart, TextPart
from foldmark.session.session import Session

Trees = tuple[str, str]


def span(messages: Iterable[Message]) -> Trees | None:
    """The tree before the first step and the one after the last; None where none is known.

    A step of which only one tree is known begins and ends with it.
    """
    steps = (part for message in messages for part in message.parts)
    steps = (part for part in steps if isinstance(part, StepStartPart | StepFinishPart))
    trees = [part.snapshot for part in steps if part.snapshot]
    return (trees[0], trees[-1]) if trees else None


def changed_trees(session: Session, message_id: str | None = None) -> Trees | None:
    """The trees before and after what a message came to, or the whole session; None: no step."""
    if message_id is None:
        return span(session.export(reverted=False).messages)
    return _around(session, message_id)[1]


def tree_before(session: Session, message_id: str) -> str:
    """The files as they were before a message and what answers it."""
    earlier, own, later = _around(session, message_id)
    return _known(own and own[0], earlier and earlier[1], later and later[0], name=message_id)


def tree_after(session: Session, message_id: str) -> str:
    """The files as they were after a message and what answers it."""
    earlier, own, later = _around(session, message_id)
    return _known(own and own[1], earlier and earlier[1], later and later[0], name=message_id)


def _known(*trees: str | None, name: str) -> str:
    if (tree := next(filter(None, trees), None)) is None:
        raise BadInput(f"no snapshot was taken around the message {name!r}")
    return tree


def _around(session: Session, message_id: str) -> tuple[Trees | None, Trees | None, Trees | None]:
    """What was before a message, its own with, after one of the user, what answers it, and after.

    Of messages with equal ids, the newest counts.
    """
    messages = session.export(reverted=False).messages
    places = (place for place in reversed(range(len(messages))) if messages[place].id == message_id)
    first = next(places, None)
    if first is None:
        raise BadInput(f"there is no message {message_id!r} in session {session.id}")
    end = first + 1
    if messages[first].is_user:
        after = (place for place in range(end, len(messages)) if _asks(messages[place]))
        end = next(after, len(messages))
    return span(messages[:first]), span(messages[first:end]), span(messages[end:])


def _asks(message: Message) -> bool:
    """Whether a message is the user's own: no marker, and not what a program said for them."""
    if not message.is_user or marker_part(message) is not None:
        return False
    return any(
        not (isinstance(part, TextPart) and (part.synthetic or part.ignored))
        for part in message.parts
    )
