"""An outline of messages that are left out of a request: short, quick, made without a model.

What the user asked for, in their own words, and what was worked on. It depends on nothing but
what is left out: the same messages always give the same bytes. What is quoted is indented, so
that nothing in it can pass for a heading. A digest (`digest`) says far more, and takes far longer.
"""

from collections.abc import Iterable, Sequence

from foldmark.log.tool_targets import Target
from foldmark.log.user_requests import STANDING
from foldmark.model.values import Frozen
from foldmark.tokens.counters import Counter, truncate_middle

_LONGEST = 160  # characters of a request that is one among many
_MOST_LINES, _MOST_FILES, _MOST_COMMANDS = 100, 40, 12
# Of the room, one in so many: for the first request, the last one, and what holds for good.
_FIRST, _LAST, _RULES = 4, 3, 6
# Words that a line that holds for good has; a search for them costs far less than the pattern.
_HINTS = (
    *("always", "never", "from now on", "every time", "whenever", "at all times"),
    *("no matter what", "keep in mind", "remember", "do not", "don't", "must not", "only use"),
    "for the rest of",
)


class LeftOut(Frozen):
    """What an outline is made of."""

    messages: int
    requests: Sequence[str]
    calls: Sequence[tuple[str, Target]]  # the newest, with the names of their tools
    instructions: Sequence[str] = ()  # of the program, in between


def outline(left: LeftOut, room: int, count: Counter, *, last: int = 0) -> str:
    """The outline, within so many tokens; the last request may have more, if it is still open."""
    head = f"[{left.messages} earlier messages of this conversation are left out here.]"
    page = _Page(head, room + last, count)
    requests = [text for held in left.requests if (text := held.strip())]
    if requests:
        alone = last if len(requests) == 1 else 0
        page.quote("## The first request", requests[0], room // _FIRST + alone)
    if len(requests) > 1:
        page.quote("## The last request among them", requests[-1], room // _LAST + last)
    for text in left.instructions:
        page.quote("## An instruction of the program", text, room // _FIRST)
    page.tell("## What the user wants at all times", _standing(requests), room // _RULES)
    changed, read, ran = _worked_on(left.calls)
    page.tell("## Files changed, the latest first", changed, room // _RULES)
    page.tell("## The last commands and searches", ran, room // _RULES)
    page.tell("## Files read, the latest first", read, room // _RULES)
    others = [_line(text) for text in requests[-2:0:-1][:_MOST_LINES]]
    page.tell("## Requests in between, the latest first", others, page.left)
    return page.text


class _Page:
    """Text that grows as long as there is room."""

    def __init__(self, head: str, room: int, count: Counter) -> None:
        self._lines = [head]
        self._count = count
        self.left = room - count(head) - 1

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def quote(self, heading: str, text: str, most: int) -> None:
        room = min(most, self.left) - self._count(heading) - 4
        if room > 8:
            self._add([heading, *indented(truncate_middle(text, room * 9 // 10, self._count))])

    def tell(self, heading: str, items: Iterable[str], most: int) -> None:
        room = min(most, self.left) - self._count(heading) - 4
        lines: list[str] = []
        for item in items:
            room -= self._count(item) + 3
            if room < 0:
                break
            lines.append(f"- {item}")
        if lines:
            self._add(["", heading, *lines])

    def _add(self, lines: list[str]) -> None:
        cost = self._count("\n".join(lines)) + 2
        if cost <= self.left:
            self._lines += lines
            self.left -= cost


def indented(text: str) -> list[str]:
    """The lines of a text, moved in."""
    return [f"  {line}" for line in text.splitlines()]


def _line(text: str) -> str:
    line = " ".join(text[: _LONGEST * 2].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _standing(requests: Sequence[str]) -> list[str]:
    """The lines that ask for something for good, the latest first."""
    whole = "\n".join(requests).lower()
    hints = [hint for hint in _HINTS if hint in whole]
    if not hints:
        return []
    found: dict[str, None] = {}
    for text in reversed(requests):
        lower = text.lower()
        if any(hint in lower for hint in hints):
            lines = (line.strip() for line in text.splitlines())
            held = (line for line in lines if len(line) <= 500 and not line.endswith("?"))
            found.update(dict.fromkeys(line for line in held if STANDING.search(line)))
    return list(found)


def _worked_on(calls: Sequence[tuple[str, Target]]) -> tuple[list[str], list[str], list[str]]:
    """Files that were changed, files that were only read, and what else was done; latest first."""
    changed: dict[str, Target] = {}
    read: dict[str, Target] = {}
    ran: dict[tuple[str, str], Target] = {}
    for tool, target in reversed(calls):
        match target.act:
            case "write":
                changed.setdefault(target.about, target)
            case "read":
                read.setdefault(target.about, target)
            case _:
                ran.setdefault((tool, target.about), target)
    only_read = [target for path, target in read.items() if path not in changed]
    return (
        [target.label for target in list(changed.values())[:_MOST_FILES]],
        [target.label for target in only_read[:_MOST_FILES]],
        [f"{tool}: {held.label}" for (tool, _), held in list(ran.items())[:_MOST_COMMANDS]],
    )
