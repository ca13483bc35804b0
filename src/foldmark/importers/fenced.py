"""Commands that a model writes into its text, as agents without function calling have it.

Such a text is split into what is said and a call, so that the call's output can be told from what
the user says. Nothing is lost: `joined` gives back the very text that `parted` took.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import UNSET

from foldmark.messages import AnyPart, Completed, Pending, TextPart, Time, ToolPart
from foldmark.values import Json
from foldmark.wire.model import options

_FENCE = "```"
_BEFORE, _AFTER = "before", "after"
_COMMAND = "command"


class Place(NamedTuple):
    """Where a command stands in a text, with what encloses it."""

    opens: int
    begins: int
    ends: int
    closes: int


class Output(NamedTuple):
    """What a command gave back, and when."""

    text: str
    at: int | None


class Call(NamedTuple):
    """What is known of a command beside its text; the key is under which its enclosing is kept."""

    key: str
    tool: str
    id: str
    output: Output | None = None


def enclosed(text: str, opening: str, closing: str) -> list[Place]:
    """All commands between an opening and a closing, each as short as it can be."""
    found: list[Place] = []
    opens = text.find(opening)
    while opens >= 0:
        begins = opens + len(opening)
        if opening.startswith(_FENCE):
            # The command begins on the next line; on this one nothing else may stand.
            line = text.find("\n", begins)
            if line < 0:
                break
            if line > begins and not text[begins:line].isspace():
                opens = text.find(opening, begins)
                continue
            begins = line + 1
        ends = text.find(closing, begins)
        if ends < 0:
            break
        found.append(Place(opens, begins, ends, ends + len(closing)))
        opens = text.find(opening, ends + len(closing))
    return found


def place_of(text: str, command: str) -> Place | None:
    """Where a command that is known stands last; None where it is written in another way."""
    begins = text.rfind(f"{_FENCE}\n{command}")
    begins = text.rfind(command) if begins < 0 else begins + len(_FENCE) + 1
    if begins < 0:
        return None
    ends = begins + len(command)
    opens, closing = _opening(text, begins)
    rest = text[ends:]
    blank = len(rest) - len(rest.lstrip())
    closes = ends
    if closing and rest.startswith(closing, blank):
        closes += blank + len(closing)
    return Place(opens, begins, ends, closes)


def _opening(text: str, begins: int) -> tuple[int, str]:
    """Where what encloses a command opens, and what closes it."""
    head = text[:begins].rstrip()
    line = head.rfind("\n") + 1
    fence = head.rfind(_FENCE, line)
    if fence >= 0 and "\n" in text[len(head) : begins]:
        return fence, _FENCE
    tag = head.rfind("<", line)
    if tag >= 0 and head.endswith(">") and head[tag + 1 : -1].isidentifier():
        return tag, f"</{head[tag + 1 :]}"
    return begins, ""


def parted(text: str, place: Place, call: Call) -> tuple[AnyPart, ...]:
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


def _ended(given: Json, output: Output) -> Completed:
    time = UNSET if output.at is None else Time(end=output.at)
    return Completed(input=given, output=output.text, time=time)


def joined(parts: Iterable[AnyPart], key: str) -> str:
    """The text of which these parts were made."""
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, TextPart):
            pieces.append(part.text)
        elif isinstance(part, ToolPart):
            own = options(part.metadata, key)
            if _BEFORE in own:
                pieces += (own[_BEFORE], (part.state.input or {})[_COMMAND], own[_AFTER])
    return "".join(pieces)
