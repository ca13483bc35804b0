"""Commands that a model writes into its text, as agents without function calling have it.

Such a text is split into what is said and a call, so that the call's output can be told from what
the user says. Nothing is lost: what stood around the command is kept in the call's metadata.
"""

import re
from collections import deque
from typing import NamedTuple

from msgspec import UNSET

from foldmark.model.messages import AnyPart, Completed, Pending, TextPart, Time, ToolPart
from foldmark.model.values import Json

_FENCE = "```"
_BEFORE, _AFTER = "before", "after"
_COMMAND = "command"
_LINE_END = re.compile(r"\s*\n")
# A fence or a tag, on either side of a command.
_OPENING = re.compile(r"(?:```[^\n`]*\n|<(\w+)>)\s*")
_CLOSING = re.compile(r"\s*(?:```|</(\w+)>)")
_MOST_OPENINGS = 64


class Place(NamedTuple):
    """Where a command stands in a text, with what encloses it."""

    opens: int
    begins: int
    ends: int
    closes: int


class FencedOutput(NamedTuple):
    """What a command gave back, and when."""

    text: str
    at: int | None


class FencedCall(NamedTuple):
    """What is known of a command beside its text; the key is under which its enclosing is kept."""

    key: str
    tool: str
    id: str
    output: FencedOutput | None = None


def enclosed(text: str, opening: str, closing: str) -> list[Place]:
    """All commands between an opening and a closing, each as short as it can be."""
    found: list[Place] = []
    opens = text.find(opening)
    while opens >= 0:
        begins = opens + len(opening)
        if opening.startswith(_FENCE):
            # The command begins on a line of its own; on this one nothing else may stand.
            line = _LINE_END.match(text, begins)
            if line is None:
                opens = text.find(opening, begins)
                continue
            begins = line.end()
        ends = text.find(closing, begins)
        if ends < 0:
            break
        found.append(Place(opens, begins, ends, ends + len(closing)))
        opens = text.find(opening, ends + len(closing))
    return found


def place_of(text: str, command: str) -> Place | None:
    """Where a command that is known stands last; None where it is written in another way."""
    if text.strip() == command:
        return Place(0, 0, len(text), len(text))
    for opening in reversed(deque(_OPENING.finditer(text), maxlen=_MOST_OPENINGS)):
        begins = opening.end()
        if text.startswith(command, begins):
            ends = begins + len(command)
            closing = _CLOSING.match(text, ends)
            if closing is not None and closing.group(1) == opening.group(1):
                return Place(opening.start(), begins, ends, closing.end())
    return None


def parted(text: str, place: Place, call: FencedCall) -> tuple[AnyPart, ...]:
    """What is said before a command, the command as a call, and what is said after it."""
    said = text[: place.opens].rstrip()
    command = text[place.begins : place.ends].strip()
    begins = text.find(command, place.begins)
    rest = text[place.closes :].lstrip()
    after = text[begins + len(command) : len(text) - len(rest)]
    given = {_COMMAND: command}
    part = ToolPart(
        tool=call.tool,
        call_id=call.id,
        state=Pending(input=given) if call.output is None else _ended(given, call.output),
        metadata={call.key: {_BEFORE: text[len(said) : begins], _AFTER: after}},
    )
    before = (TextPart(text=said),) if said else ()
    return (*before, part, TextPart(text=rest)) if rest else (*before, part)


def _ended(given: Json, output: FencedOutput) -> Completed:
    time = UNSET if output.at is None else Time(end=output.at)
    return Completed(input=given, output=output.text, time=time)
