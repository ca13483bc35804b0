"""The user's requests in a digest: verbatim, each marked as answered or open, within a room.

The open one and the newest get room first; long ones are cut in the middle, with a handle.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from foldmark.log.log import Log, handle
from foldmark.tokens.counters import Counter, truncate_middle

from .passages import clean, one_line, without_bullet
from .previous import OldRequest

_SHORT, _SHORTER = 100, 60  # characters of a request that has no room, or that stands beside
_LONGEST_RULE, _LONG = 500, 300
_LEAST = 80  # tokens below which a text is not worth cutting in the middle


def asked(
    log: Log, places: Sequence[int], before: Sequence[OldRequest], mask: Callable[[str], str]
) -> list[OldRequest]:
    """The requests among the folded messages, after those that were folded before."""
    found = {request.ordinal: _brought_up_to_date(log, request) for request in before}
    inside = set(places)
    newest = max((request.ordinal for request in log.requests.all), default=-1)
    for request in log.requests.all:
        if request.index in inside:
            found[request.ordinal] = OldRequest(
                ordinal=request.ordinal,
                answered=log.requests.answered(request, len(log)),
                text=clean(mask(request.text)).strip(),
            )
    newest = max(newest, *found, -1)
    return [_followed(found[ordinal], newest) for ordinal in sorted(found)]


def _followed(request: OldRequest, newest: int) -> OldRequest:
    """A request that was not answered when the user went on may be worth nothing any more."""
    if request.answered or request.ordinal >= newest:
        return request
    return replace(request, followed=True)


def rule_lines(
    log: Log, places: Sequence[int], before: Sequence[str], mask: Callable[[str], str], beside: str
) -> list[str]:
    """The user's standing instructions that do not stand beside, each on one line."""
    inside = set(places)
    said = [rule.text for rule in log.requests.rules if rule.index in inside]
    told = [one_line(mask(text), _LONGEST_RULE) for text in said if text.strip() not in beside]
    bare = [without_bullet(rule) for rule in (*before, *told)]
    return [rule for rule in dict.fromkeys(bare) if rule and rule not in beside]


def _brought_up_to_date(log: Log, old: OldRequest) -> OldRequest:
    """An open request may have had its answer since; newer ones say so too."""
    if old.answered:
        return old
    known = next((held for held in log.requests.all if held.ordinal == old.ordinal), None)
    if known is None or not log.requests.answered(known, len(log)):
        return old
    return OldRequest(ordinal=old.ordinal, answered=True, text=old.text)


def request_lines(
    requests: Sequence[OldRequest], room: int, count: Counter, beside: str
) -> list[str]:
    """The entries of the requests, oldest first; those without room are told by their handles."""
    told: dict[int, str] = {}
    for request in _by_precedence(requests):
        text = request.text
        if text[:_SHORT] in beside:
            text = one_line(text, _SHORTER)
        share = room // 2 if request.is_open else room // 4
        if count(text) > share:
            cut = truncate_middle(text, share, count, handle(request.ordinal))
            text = cut if share >= _LEAST else one_line(text, _SHORT)
        for tried in (text, one_line(text, _SHORT), one_line(text, _SHORTER)):
            entry = _entry(request, tried)
            if count(entry) + 1 <= room:
                told[request.ordinal] = entry
                room -= count(entry) + 1
                break
    return [told[request.ordinal] for request in requests if request.ordinal in told]


def _by_precedence(requests: Sequence[OldRequest]) -> list[OldRequest]:
    """The open one first, then short ones: a long one must not take the room of many."""
    return sorted(
        requests,
        key=lambda held: (
            not held.is_open,
            len(held.text) > _LONG,
            held.answered,
            -held.ordinal,
        ),
    )


def _entry(request: OldRequest, text: str) -> str:
    indented = "\n  ".join(line.rstrip() for line in text.split("\n") if line.strip())
    return f"- {request.state} ({handle(request.ordinal)}): {indented}"
