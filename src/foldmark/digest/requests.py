"""The user's requests in a digest: verbatim, each marked as answered or open, within a budget.

The open request and the newest come first; long ones are truncated in the middle, with a handle.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from foldmark.log.log import Log, handle
from foldmark.tokens.counters import Counter, truncate_middle

from .passages import clean, one_line, without_bullet
from .previous import OldRequest

_SHORT, _SHORTER = 100, 60  # characters of a request beyond the budget, or visible anyway
_LONGEST_RULE, _LONG = 500, 300
_MIN_TOKENS = 80  # below which a text is not worth truncating in the middle


def user_requests(
    log: Log, indexes: Sequence[int], before: Sequence[OldRequest], mask: Callable[[str], str]
) -> list[OldRequest]:
    """The requests of the summary before and of the folded messages, in order."""
    requests = {request.ordinal: _updated(log, request) for request in before}
    inside = set(indexes)
    newest = max((request.ordinal for request in log.requests.all), default=-1)
    for request in log.requests.all:
        if request.index in inside:
            requests[request.ordinal] = OldRequest(
                ordinal=request.ordinal,
                answered=log.requests.is_answered(request, len(log)),
                text=clean(mask(request.text)).strip(),
            )
    newest = max(newest, *requests, -1)
    return [_mark_followed(requests[ordinal], newest) for ordinal in sorted(requests)]


def _mark_followed(request: OldRequest, newest: int) -> OldRequest:
    """The request, marked if a newer one came before its answer: it may be obsolete."""
    if request.answered or request.ordinal >= newest:
        return request
    return replace(request, followed=True)


def rule_lines(
    log: Log, indexes: Sequence[int], before: Sequence[str], mask: Callable[[str], str], beside: str
) -> list[str]:
    """The user's standing instructions that are not visible beside, each on one line."""
    inside = set(indexes)
    texts = [rule.text for rule in log.requests.rules if rule.index in inside]
    rules = [one_line(mask(text), _LONGEST_RULE) for text in texts if text.strip() not in beside]
    bare = [without_bullet(rule) for rule in (*before, *rules)]
    return [rule for rule in dict.fromkeys(bare) if rule and rule not in beside]


def _updated(log: Log, old: OldRequest) -> OldRequest:
    """The request, marked as answered if it was answered since."""
    if old.answered:
        return old
    current = next((each for each in log.requests.all if each.ordinal == old.ordinal), None)
    if current is None or not log.requests.is_answered(current, len(log)):
        return old
    return OldRequest(ordinal=old.ordinal, answered=True, text=old.text)


def request_lines(
    requests: Sequence[OldRequest], budget: int, count: Counter, beside: str
) -> list[str]:
    """The lines of the requests that fit into the budget, oldest first."""
    entries: dict[int, str] = {}
    for request in _by_precedence(requests):
        text = request.text
        if text[:_SHORT] in beside:
            text = one_line(text, _SHORTER)
        share = budget // 2 if request.is_open else budget // 4
        if count(text) > share:
            shortened = truncate_middle(text, share, count, handle(request.ordinal))
            text = shortened if share >= _MIN_TOKENS else one_line(text, _SHORT)
        for candidate in (text, one_line(text, _SHORT), one_line(text, _SHORTER)):
            entry = _entry(request, candidate)
            if count(entry) + 1 <= budget:
                entries[request.ordinal] = entry
                budget -= count(entry) + 1
                break
    return [entries[request.ordinal] for request in requests if request.ordinal in entries]


def _by_precedence(requests: Sequence[OldRequest]) -> list[OldRequest]:
    """The open request first, then short ones, so that a long one does not displace many."""
    return sorted(
        requests,
        key=lambda request: (
            not request.is_open,
            len(request.text) > _LONG,
            request.answered,
            -request.ordinal,
        ),
    )


def _entry(request: OldRequest, text: str) -> str:
    indented = "\n  ".join(line.rstrip() for line in text.split("\n") if line.strip())
    return f"- {request.state} ({handle(request.ordinal)}): {indented}"
