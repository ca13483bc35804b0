"""A short outline of the messages omitted from a request, made without a model.

It quotes the user's requests and lists the work. It depends only on the omitted messages: the same
messages always give the same bytes. Quoted text is indented, so that it cannot imitate a heading.
A digest (`digest`) has far more detail and takes far longer.
"""

from collections.abc import Iterable, Sequence

from foldmark.log.tool_targets import Target
from foldmark.log.user_requests import STANDING
from foldmark.model.values import Frozen
from foldmark.tokens.counters import Counter, truncate_middle

_LONGEST = 160  # characters of a request in a list
_MAX_LINES, _MAX_FILES, _MAX_COMMANDS = 100, 40, 12
# The budget is divided by these: for the first request, the last one, and each list.
_FIRST, _LAST, _RULES = 4, 3, 6
# A standing instruction contains one of these; a search for them is cheaper than the pattern.
_HINTS = (
    *("always", "never", "from now on", "every time", "whenever", "at all times"),
    *("no matter what", "keep in mind", "remember", "do not", "don't", "must not", "only use"),
    "for the rest of",
)


class OmittedMessages(Frozen):
    """The content of an outline."""

    messages: int
    requests: Sequence[str]
    calls: Sequence[tuple[str, Target]]  # the newest, with tool names
    instructions: Sequence[str] = ()  # system prompts between messages


def outline(omitted: OmittedMessages, budget: int, count: Counter, *, extra: int = 0) -> str:
    """The outline, within `budget` tokens plus `extra` for the last request."""
    head = f"[{omitted.messages} earlier messages of this conversation are left out here.]"
    page = _Page(head, budget + extra, count)
    requests = [text for request in omitted.requests if (text := request.strip())]
    if requests:
        alone = extra if len(requests) == 1 else 0
        page.quote("## The first request", requests[0], budget // _FIRST + alone)
    if len(requests) > 1:
        page.quote("## The last request among them", requests[-1], budget // _LAST + extra)
    for text in omitted.instructions:
        page.quote("## An instruction of the program", text, budget // _FIRST)
    page.add_list("## What the user wants at all times", _rules(requests), budget // _RULES)
    files_changed, files_read, commands = _work(omitted.calls)
    page.add_list("## Files changed, the latest first", files_changed, budget // _RULES)
    page.add_list("## The last commands and searches", commands, budget // _RULES)
    page.add_list("## Files read, the latest first", files_read, budget // _RULES)
    others = [_line(text) for text in requests[-2:0:-1][:_MAX_LINES]]
    page.add_list("## Requests in between, the latest first", others, page.budget)
    return page.text


class _Page:
    """Text builder that accepts lines until its token budget is used up."""

    def __init__(self, head: str, budget: int, count: Counter) -> None:
        self._lines = [head]
        self._count = count
        self.budget = budget - count(head) - 1

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def quote(self, heading: str, text: str, limit: int) -> None:
        budget = min(limit, self.budget) - self._count(heading) - 4
        if budget > 8:
            self._add([heading, *indented(truncate_middle(text, budget * 9 // 10, self._count))])

    def add_list(self, heading: str, items: Iterable[str], limit: int) -> None:
        budget = min(limit, self.budget) - self._count(heading) - 4
        lines: list[str] = []
        for item in items:
            budget -= self._count(item) + 3
            if budget < 0:
                break
            lines.append(f"- {item}")
        if lines:
            self._add(["", heading, *lines])

    def _add(self, lines: list[str]) -> None:
        cost = self._count("\n".join(lines)) + 2
        if cost <= self.budget:
            self._lines += lines
            self.budget -= cost


def indented(text: str) -> list[str]:
    """The indented lines of a text."""
    return [f"  {line}" for line in text.splitlines()]


def _line(text: str) -> str:
    line = " ".join(text[: _LONGEST * 2].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _rules(requests: Sequence[str]) -> list[str]:
    """The lines with standing instructions, latest first."""
    whole = "\n".join(requests).lower()
    hints = [hint for hint in _HINTS if hint in whole]
    if not hints:
        return []
    rules: dict[str, None] = {}
    for text in reversed(requests):
        lower = text.lower()
        if any(hint in lower for hint in hints):
            lines = (line.strip() for line in text.splitlines())
            statements = (line for line in lines if len(line) <= 500 and not line.endswith("?"))
            rules.update(dict.fromkeys(line for line in statements if STANDING.search(line)))
    return list(rules)


def _work(calls: Sequence[tuple[str, Target]]) -> tuple[list[str], list[str], list[str]]:
    """The changed files, the files only read, and the other calls; latest first."""
    writes: dict[str, Target] = {}
    reads: dict[str, Target] = {}
    others: dict[tuple[str, str], Target] = {}
    for tool, target in reversed(calls):
        match target.access:
            case "write":
                writes.setdefault(target.about, target)
            case "read":
                reads.setdefault(target.about, target)
            case _:
                others.setdefault((tool, target.about), target)
    only_read = [target for path, target in reads.items() if path not in writes]
    return (
        [target.label for target in list(writes.values())[:_MAX_FILES]],
        [target.label for target in only_read[:_MAX_FILES]],
        [f"{tool}: {other.label}" for (tool, _), other in list(others.items())[:_MAX_COMMANDS]],
    )
