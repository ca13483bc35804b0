"""The user's own words, carried verbatim across a pivot.

The first request and standing instructions stand before the summary; the request that was still
being worked on stands after it, where the work goes on. All is told by what came before the
marker, so that it stays the same, byte for byte, as the session grows.
"""

from foldmark.model.messages import FilePart
from foldmark.policy import Policy
from foldmark.tokens.counters import truncate_middle
from foldmark.tokens.media import media_tokens

from .log import Log, handle
from .user_requests import AttachedFile, UserRequest

HEADING = "The user's own words from before this point:"
REPEATED = "[The request on which the following work was done, repeated from before the summary:]"


def user_text_budget(policy: Policy, usable: int) -> int:
    """The tokens that the user's words may take; a quarter of a small window at most."""
    return min(policy.view.user_text, usable // 4) if usable else policy.view.user_text


def open_request(log: Log, before: int) -> UserRequest | None:
    """The newest request before a place, if it has no answer yet."""
    request = log.requests.newest(before)
    return None if request is None or log.requests.answered(request, before) else request


def carried_user_text(log: Log, marker: int, tail: int | None, room: int) -> str:
    """The first request and the standing instructions that a pivot folded."""
    start = marker if tail is None else tail
    first = log.requests.all[0] if log.requests.all else None
    bridged = _bridged(log, marker, tail)
    sections: list[str] = []
    said = repeated_request(log, marker, tail, room)
    if first is not None and first != bridged and first.index < start:
        state = "answered" if log.requests.answered(first, marker) else "open"
        text = truncate_middle(first.text, room // 3, log.count, handle(first.ordinal))
        sections.append(f"First request ({state}):\n{text}")
        said += text
    rules = _standing(log, start, room // 3, said)
    if rules:
        listed = (rule if rule.startswith(("- ", "* ")) else f"- {rule}" for rule in rules)
        sections.append("Standing instructions:\n" + "\n".join(listed))
    return "\n\n".join([HEADING, *sections]) if sections else ""


def repeated_request(
    log: Log, marker: int, tail: int | None, room: int, *, whole: bool = True
) -> str:
    """The folded request that the work after the summary belongs to; else nothing.

    An open one is there whole, whatever its length, unless a smaller view was asked for; one that
    was answered fits the room.
    """
    request = _bridged(log, marker, tail)
    if request is None:
        return ""
    if request != open_request(log, marker):
        text = truncate_middle(request.text, room // 3, log.count, handle(request.ordinal))
        return f"{REPEATED}\n{text}"
    text = request.text
    if not whole:  # in a view of a size that was asked for, half of that at most
        text = truncate_middle(text, 2 * room, log.count, handle(request.ordinal))
    return "\n".join([REPEATED, text, *_named_files(request, room)])


def repeated_files(log: Log, marker: int, tail: int | None, room: int) -> tuple[FilePart, ...]:
    """The files of the open request that are shown again with it."""
    request = _bridged(log, marker, tail)
    if request is None or request != open_request(log, marker):
        return ()
    return tuple(held.part for held in shown_files(request, room))


def shown_files(request: UserRequest, room: int) -> list[AttachedFile]:
    """Of a request's files, the first ones that fit the room: it may be about them."""
    left = room
    shown: list[AttachedFile] = []
    for held in request.files:
        left -= file_tokens(held.part)
        if left < 0:
            break
        shown.append(held)
    return shown


def file_tokens(part: FilePart) -> int:
    """The tokens of a file that is shown."""
    return media_tokens(part.url, part.mime)


def _named_files(request: UserRequest, room: int) -> list[str]:
    """The others by their names, if the request does not consist of these."""
    shown = shown_files(request, room)
    others = [held for held in request.files if held not in shown]
    names = [f"{held.named[:-1]}; recall {handle(held.ordinal)}]" for held in others]
    return names if names and request.text != "\n\n".join(h.named for h in request.files) else []


def _bridged(log: Log, marker: int, tail: int | None) -> UserRequest | None:
    if tail is None:
        return open_request(log, marker)
    # What follows a split turn's cut needs its request, even where that was answered. A message
    # in the user's place that the program wrote ("go on") needs it only while it is open.
    request = log.requests.newest(tail)
    split = not log.entries[tail].message.is_user
    if log.requests.starts_at(tail) or request is None:
        return None
    return request if split or request == open_request(log, marker) else None


def _standing(log: Log, start: int, room: int, said: str) -> list[str]:
    """Standing instructions that are not there yet; where they are too many, the newest."""
    kept: dict[str, None] = {}
    for rule in reversed(log.requests.rules):
        if rule.index < start and rule.text not in kept and rule.text not in said:
            room -= log.count(rule.text) + 2
            if room < 0:
                break
            kept[rule.text] = None
    return list(reversed(kept))
