"""The user's own words, carried verbatim across a pivot.

The first request and standing instructions stand before the summary; the request that was still
being worked on stands after it, where the work goes on. All is told by what came before the
marker, so that it stays the same, byte for byte, as the session grows.
"""

from collections.abc import Iterable

from .log import Log, Pivot, handle
from .policy import Policy
from .requests import Request
from .tokens import Counter

HEADING = "The user's own words from before this point:"
REPEATED = "[The request on which the following work was done, repeated from before the summary:]"


def words_room(policy: Policy, usable: int) -> int:
    """The tokens that the user's words may take; a quarter of a small window at most."""
    return min(policy.view.words, usable // 4) if usable else policy.view.words


def words(log: Log, pivot: Pivot, tail: int | None, room: int) -> str:
    """The first request and the standing instructions that a pivot folded."""
    start = pivot.marker if tail is None else tail
    folded = [request for request in log.requests.all[:1] if request.index < start]
    bridged = _bridged(log, pivot, tail)
    sections: list[str] = []
    for request in folded:
        if request != bridged:
            state = "answered" if log.requests.answered(request, pivot.marker) else "open"
            text = fitted(request.text, room // 2, log.count, handle(request.ordinal))
            sections.append(f"First request ({state}):\n{text}")
    rules = _standing(log, start, room // 2, bridged)
    if rules:
        sections.append("Standing instructions:\n" + "\n".join(f"- {rule}" for rule in rules))
    return "\n\n".join([HEADING, *sections]) if sections else ""


def bridge(log: Log, pivot: Pivot, tail: int | None) -> str:
    """The folded request that the work after the summary belongs to; else nothing."""
    request = _bridged(log, pivot, tail)
    return f"{REPEATED}\n{request.text}" if request else ""


def _bridged(log: Log, pivot: Pivot, tail: int | None) -> Request | None:
    if tail is not None and log.entries[tail].message.is_user:
        return None
    request = log.requests.newest(pivot.marker if tail is None else tail)
    if request is None:
        return None
    # A split turn keeps its request even where it was answered later: its messages follow.
    if tail is None and log.requests.answered(request, pivot.marker):
        return None
    return request


def _standing(log: Log, start: int, room: int, bridged: Request | None) -> list[str]:
    """Standing instructions in their order; where they are too many, the newest of them."""
    texts = (
        rule.text
        for rule in reversed(log.requests.rules)
        if rule.index < start and (bridged is None or rule.index != bridged.index)
    )
    return list(reversed(list(_within(dict.fromkeys(texts), room, log.count))))


def _within(texts: Iterable[str], room: int, count: Counter) -> Iterable[str]:
    for text in texts:
        room -= count(text) + 1
        if room < 0:
            return
        yield text


def fitted(text: str, room: int, count: Counter, name: str) -> str:
    """The text, or its head and tail around a note that names the handle of the whole."""
    tokens = count(text)
    if tokens <= room:
        return text
    keep = max(0, len(text) * room // max(1, tokens) // 2 - 40)
    note = f"\n[… {len(text) - 2 * keep} characters left out; recall {name} …]\n"
    return text[:keep] + note + text[len(text) - keep :]
