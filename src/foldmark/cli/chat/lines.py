"""What is told of a run in lines: what each tool did, what was pruned and folded, what failed.

The screens here draw nothing: for the last words alone, for pipes and files, for events as JSON.
Words go to standard output; all that is said beside them goes to standard error.
"""

import re
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from foldmark.agent.tool_calls import Toolbox
from foldmark.agent.turn import TurnResult
from foldmark.model import events
from foldmark.model.events import Event
from foldmark.model.values import Json, encode

from ..layout import QUIET
from ..text import escaped, harmless_text, number, plain

ENDED = "run.ended"
_LONGEST = 120  # characters of what a call is about
_LONGEST_ERROR = 200
_LONGEST_HELD = 200  # characters of what may become a sequence
# At the end of what came so far: a sequence that has begun, and has not ended.
_BEGUN = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z|(?:\x1b[\]PX^_]|[\x90\x9d])[^\x07\x1b\x9c]*\x1b?\Z|\x1b[ -/]*\Z"
)


class Line(NamedTuple):
    """A line for people."""

    text: str
    style: str = ""
    whole: bool = False  # it is to be copied, and never broken


# --- lines ---------------------------------------------------------------------------------


class _RunningCall(NamedTuple):
    """A call that runs."""

    tool: str
    subject: str  # as rules and questions have it
    about: str
    since: float  # milliseconds; when it was allowed, where the user was asked
    was_asked: bool = False


class Calls:
    """What the calls of a session are about, and since when they run."""

    def __init__(self, hands: Toolbox) -> None:
        """Take what their agent works with."""
        self._hands = hands
        self._begun: dict[str, _RunningCall] = {}
        self._hinted: set[str] = set()

    def begin(self, event: Event) -> None:
        """Note a call that begins."""
        data = event.data
        tool = self._hands.tools.get(data["tool"])
        subject = tool.subject(data["input"]) if tool else ""
        texts = (value for value in data["input"].values() if isinstance(value, str))
        about = plain(subject or next(texts, ""), most=_LONGEST)
        self._begun[data["call"]] = _RunningCall(data["tool"], subject, about, event.at)

    def answered(self, tool: str, subject: str) -> None:
        """Note that the user has answered: how long that took is not the call's time."""
        now = time.time() * 1_000
        for call, held in self._begun.items():
            if (held.tool, held.subject) == (tool, subject):
                self._begun[call] = held._replace(since=now, was_asked=True)

    def running(self) -> list[tuple[str, float]]:
        """The calls that run now, and for how many seconds."""
        now = time.time() * 1_000
        held = list(self._begun.values())
        return [(_named(each.tool, each.about), (now - each.since) / 1_000) for each in held]

    def stopped(self) -> list[Line]:
        """The calls that will not end, as the turn has: a line for each."""
        held = [_named(each.tool, each.about) for each in self._begun.values()]
        self._begun.clear()
        return [Line(f"✗ {name} · stopped", "red") for name in held]

    def hint(self, data: Json) -> Line | None:
        """How to allow a call about which nobody can be asked; said once for each tool."""
        name = data["tool"]
        tool = self._hands.tools.get(name)
        if tool is None or name in self._hinted:
            return None
        if self._hands.gate.permissions.decide(name, tool.subject(data["input"])) != "ask":
            return None
        self._hinted.add(name)
        return Line(f"nobody can be asked here about {name}; allow it with: --allow {name}")

    def told(self, event: Event) -> Line | None:
        """The line for an event; None where there is nothing to say."""
        data = event.data
        match event.kind:
            case events.TOOL_STARTED:
                self.begin(event)
            case events.TOOL_FINISHED:
                return self.finished(event)
            case events.STEP_RETRIED:
                cause = plain(data["message"], most=_LONGEST_ERROR)
                return Line(f"asked again in {data['seconds']:g} s: {cause}", "yellow")
            case events.PRUNED:
                what = number(data["parts"], "old output")
                return Line(f"pruned {what}: {_change(data)}", "yellow")
            case events.COMPACTED:
                return Line(f"folded the older part: {_change(data)}", "magenta")
            case events.FAILED:
                return Line(f"not folded: {plain(data['reason'], most=_LONGEST_ERROR)}", "yellow")
            case _:
                pass
        return None

    def finished(self, event: Event) -> Line:
        """A call that has ended, in one line."""
        data = event.data
        begun = self._begun.pop(data["call"], None)
        about = plain(data["title"] or "", most=_LONGEST) or (begun.about if begun else "")
        name, seconds = _named(data["tool"], about), data["seconds"]
        if data["error"]:
            cause = plain(data["told"], most=_LONGEST_ERROR)
            return Line(f"✗ {name} · {cause}".removesuffix(" · "), "red")
        if begun is not None and begun.was_asked:
            seconds = max(0.0, min(seconds, (event.at - begun.since) / 1_000))
        size = number(data["characters"], "character")
        told = [size, f"{seconds:.1f} s", *([data["handle"]] if data.get("handle") else [])]
        if code := data.get("exit"):  # a command that failed is no error of its tool
            return Line(" · ".join((f"✗ {name}", f"exit {code}", *told)), "red")
        return Line(" · ".join((f"✓ {name}", *told)), QUIET)


def _named(tool: str, about: str) -> str:
    return f"{plain(tool, most=40)} {about}".rstrip()


def _change(data: Json) -> str:
    return f"{data['before']:,} → {number(data['after'], 'token')}"


def outcome(ended: TurnResult) -> Line:
    """How a turn ended, in one line."""
    steps, files = number(ended.steps, "step"), number(len(ended.files), "file")
    cost = f", ${ended.cost:.3f}" if ended.cost else ""
    changed = f", {files} changed" if ended.files else ""
    return Line(f"{_ENDINGS[ended.ended]} after {steps}{cost}{changed}", QUIET)


_ENDINGS = {
    "stop": "done",
    "length": "the answer was cut off, as it was too long,",
    "steps": "as many steps as were allowed: ended",
    "cost": "as many dollars as were allowed: ended",
    "aborted": "stopped",
}


# --- without a terminal --------------------------------------------------------------------


def complain(line: Line) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{line.text}\n")
    sys.stderr.flush()


class Screen:
    """Shows a run to whoever looks; this one shows the last words alone."""

    def __init__(self, calls: Calls) -> None:
        """Take what is known of calls."""
        self._calls = calls

    def take(self, event: Event) -> None:
        """Show what an event tells: here, how to allow what nobody can be asked about."""
        if event.kind == events.TOOL_STARTED and (hint := self._calls.hint(event.data)):
            complain(hint)

    def say(self, line: Line) -> None:
        """Show a line of ours."""

    @contextmanager
    def shown(self) -> Generator[None]:
        """Show a turn for as long as the context lasts."""
        yield

    def end(self, ended: TurnResult) -> None:
        """Show how a turn has ended."""
        if text := harmless_text(ended.text):
            sys.stdout.write(text.removesuffix("\n") + "\n")


class PlainScreen(Screen):
    """Words to standard output as they come, lines about the rest to standard error."""

    def __init__(self, calls: Calls) -> None:
        """Take what is known of calls."""
        super().__init__(calls)
        self._words = Harmless()
        self._open = False  # the line that was written last has not ended

    def take(self, event: Event) -> None:
        """Show what an event tells."""
        super().take(event)
        if event.kind == events.STEP_DELTA:
            if event.data["what"] == "text":
                self._write(self._words.take(event.data["text"]))
            return
        if event.kind in (events.STEP_FINISHED, events.STEP_RETRIED):
            self._end_line()
        if line := self._calls.told(event):
            complain(line)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _end_line(self) -> None:
        self._write(self._words.rest())
        if self._open:
            self._write("\n")

    def say(self, line: Line) -> None:
        """Show a line of ours."""
        complain(line)

    @contextmanager
    def shown(self) -> Generator[None]:
        """Show a turn: nothing is drawn."""
        try:
            yield
        finally:
            self._end_line()
            for line in self._calls.stopped():
                complain(line)

    def end(self, ended: TurnResult) -> None:
        """Show nothing more: all was shown as it came."""


class JsonScreen(Screen):
    """Every event as one JSON object on a line of its own, and nothing else."""

    def take(self, event: Event) -> None:
        """Print an event."""
        super().take(event)
        print_event(event)

    def end(self, ended: TurnResult) -> None:
        """Print how it ended."""
        told = ("text", "ended", "steps", "cost", "tokens", "files")
        data: Json = {name: getattr(ended, name) for name in told}
        name = ended.session.id
        print_event(ended_event(name, {**data, "session": name}))


def print_event(event: Event) -> None:
    """Print an event as a line of JSON."""
    sys.stdout.write(f"{escaped(encode(event).decode())}\n")
    sys.stdout.flush()


def ended_event(session: str, data: Json) -> Event:
    """What is printed last, also where a run fails before it has a session."""
    return Event(number=0, session=session, kind=ENDED, at=int(time.time() * 1_000), data=data)


# --- words as they come --------------------------------------------------------------------


class Harmless:
    """Takes pieces of a text, and gives them without anything that steers a terminal."""

    def __init__(self) -> None:
        """Begin with nothing held back."""
        self._held = ""

    def take(self, piece: str) -> str:
        """What can be shown now; ends of lines and tabs stay."""
        text = self._held + piece
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST_HELD))
        cut = len(text) if begun is None else begun.start()
        self._held = text[cut:]
        return harmless_text(text[:cut])

    def rest(self) -> str:
        """What was held back."""
        text, self._held = self._held, ""
        return harmless_text(text)
