"""Line-based output of a run: what each tool did, what was pruned or summarized, what failed.

Nothing is redrawn: the final reply, plain text for pipes, or events as JSON.
The model's text goes to standard output, everything else to standard error.
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
from ..text import escape_json, harmless_text, number, plain

ENDED = "run.ended"
_LONGEST = 120  # characters of the subject of a call
_LONGEST_ERROR = 200
_LONGEST_PENDING = 200  # characters held back as the start of a control sequence
# A control sequence that is incomplete at the end of the text.
_INCOMPLETE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z|(?:\x1b[\]PX^_]|[\x90\x9d])[^\x07\x1b\x9c]*\x1b?\Z|\x1b[ -/]*\Z"
)


class Line(NamedTuple):
    """A line of output with its style."""

    text: str
    style: str = ""
    whole: bool = False  # never wrapped, because users copy it


# --- lines ---------------------------------------------------------------------------------


class _RunningCall(NamedTuple):
    """A tool call that is running."""

    tool: str
    subject: str  # as in permission rules and questions
    about: str
    since: float  # milliseconds; the time of the user's answer, if there was a question
    was_asked: bool = False


class Calls:
    """The tool calls that are running: their subjects and start times."""

    def __init__(self, toolbox: Toolbox) -> None:
        """Take the toolbox of the agent that makes the calls."""
        self._toolbox = toolbox
        self._calls: dict[str, _RunningCall] = {}
        self._hinted: set[str] = set()

    def begin(self, event: Event) -> None:
        """Record the start of a call."""
        data = event.data
        tool = self._toolbox.tools.get(data["tool"])
        subject = tool.subject(data["input"]) if tool else ""
        texts = (value for value in data["input"].values() if isinstance(value, str))
        about = plain(subject or next(texts, ""), limit=_LONGEST)
        self._calls[data["call"]] = _RunningCall(data["tool"], subject, about, event.at)

    def note_answer(self, tool: str, subject: str) -> None:
        """Record the user's answer; the time before it does not count as the call's time."""
        now = time.time() * 1_000
        for call, running in self._calls.items():
            if (running.tool, running.subject) == (tool, subject):
                self._calls[call] = running._replace(since=now, was_asked=True)

    def running(self) -> list[tuple[str, float]]:
        """The running calls, each with its time in seconds."""
        now = time.time() * 1_000
        calls = list(self._calls.values())
        return [(_label(each.tool, each.about), (now - each.since) / 1_000) for each in calls]

    def stop(self) -> list[Line]:
        """Forget the calls that were still running at the end of a turn; a line for each."""
        names = [_label(each.tool, each.about) for each in self._calls.values()]
        self._calls.clear()
        return [Line(f"✗ {name} · stopped", "red") for name in names]

    def hint(self, data: Json) -> Line | None:
        """How to allow a call if there is nobody to ask, once per tool; otherwise None."""
        name = data["tool"]
        tool = self._toolbox.tools.get(name)
        if tool is None or name in self._hinted:
            return None
        if self._toolbox.gate.permissions.decide(name, tool.subject(data["input"])) != "ask":
            return None
        self._hinted.add(name)
        return Line(f"there is nobody to ask about {name}; allow it with: --allow {name}")

    def line(self, event: Event) -> Line | None:
        """The line for an event, or None if the event has none."""
        data = event.data
        match event.kind:
            case events.TOOL_STARTED:
                self.begin(event)
            case events.TOOL_FINISHED:
                return self.finish(event)
            case events.STEP_RETRIED:
                cause = plain(data["message"], limit=_LONGEST_ERROR)
                return Line(f"retrying in {data['seconds']:g} s: {cause}", "yellow")
            case events.PRUNED:
                what = number(data["parts"], "old output")
                return Line(f"pruned {what}: {_change(data)}", "yellow")
            case events.COMPACTED:
                return Line(f"summarized the older messages: {_change(data)}", "magenta")
            case events.FAILED:
                cause = plain(data["reason"], limit=_LONGEST_ERROR)
                return Line(f"compaction failed: {cause}", "yellow")
            case _:
                pass
        return None

    def finish(self, event: Event) -> Line:
        """Record the end of a call; returns a line about its result."""
        data = event.data
        call = self._calls.pop(data["call"], None)
        about = plain(data["title"] or "", limit=_LONGEST) or (call.about if call else "")
        name, seconds = _label(data["tool"], about), data["seconds"]
        if data["error"]:
            cause = plain(data["told"], limit=_LONGEST_ERROR)
            return Line(f"✗ {name} · {cause}".removesuffix(" · "), "red")
        if call is not None and call.was_asked:
            seconds = max(0.0, min(seconds, (event.at - call.since) / 1_000))
        size = number(data["characters"], "character")
        details = [size, f"{seconds:.1f} s", *([data["handle"]] if data.get("handle") else [])]
        if code := data.get("exit"):  # the command failed, not its tool
            return Line(" · ".join((f"✗ {name}", f"exit {code}", *details)), "red")
        return Line(" · ".join((f"✓ {name}", *details)), QUIET)


def _label(tool: str, about: str) -> str:
    return f"{plain(tool, limit=40)} {about}".rstrip()


def _change(data: Json) -> str:
    return f"{data['before']:,} → {number(data['after'], 'token')}"


def outcome(result: TurnResult) -> Line:
    """How a turn ended, in one line."""
    steps, files = number(result.steps, "step"), number(len(result.files), "file")
    cost = f", ${result.cost:.3f}" if result.cost else ""
    changed = f", {files} changed" if result.files else ""
    return Line(f"{_ENDINGS[result.ending]} after {steps}{cost}{changed}", QUIET)


_ENDINGS = {
    "stop": "done",
    "length": "the reply was cut off at its length limit",
    "steps": "step limit reached",
    "cost": "cost limit reached",
    "aborted": "stopped",
}


# --- without a terminal --------------------------------------------------------------------


def write_stderr(line: Line) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{line.text}\n")
    sys.stderr.flush()


class Screen:
    """Shows a run; this base class prints the final reply only."""

    def __init__(self, calls: Calls) -> None:
        """Take the running calls."""
        self._calls = calls

    def on_event(self, event: Event) -> None:
        """Show an event; this class only prints how to allow a call."""
        if event.kind == events.TOOL_STARTED and (hint := self._calls.hint(event.data)):
            write_stderr(hint)

    def say(self, line: Line) -> None:
        """Show a line of our own."""

    @contextmanager
    def drawing(self) -> Generator[None]:
        """Show a turn while the context lasts."""
        yield

    def end(self, result: TurnResult) -> None:
        """Show how a turn ended."""
        if text := harmless_text(result.text):
            sys.stdout.write(text.removesuffix("\n") + "\n")


class PlainScreen(Screen):
    """Streams the model's text to standard output, and lines about the rest to standard error."""

    def __init__(self, calls: Calls) -> None:
        """Take the running calls."""
        super().__init__(calls)
        self._filter = TerminalFilter()
        self._open = False  # the last line has not ended

    def on_event(self, event: Event) -> None:
        """Print the text or the line for an event."""
        super().on_event(event)
        if event.kind == events.STEP_DELTA:
            if event.data["what"] == "text":
                self._write(self._filter.feed(event.data["text"]))
            return
        if event.kind in (events.STEP_FINISHED, events.STEP_RETRIED):
            self._end_line()
        if line := self._calls.line(event):
            write_stderr(line)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _end_line(self) -> None:
        self._write(self._filter.flush())
        if self._open:
            self._write("\n")

    def say(self, line: Line) -> None:
        """Print a line of our own."""
        write_stderr(line)

    @contextmanager
    def drawing(self) -> Generator[None]:
        """Print a line for each call that is still running at the end of the context."""
        try:
            yield
        finally:
            self._end_line()
            for line in self._calls.stop():
                write_stderr(line)

    def end(self, result: TurnResult) -> None:
        """Print nothing more: the text was streamed."""


class JsonScreen(Screen):
    """Prints each event as one line of JSON, and nothing else."""

    def on_event(self, event: Event) -> None:
        """Print an event."""
        super().on_event(event)
        print_event(event)

    def end(self, result: TurnResult) -> None:
        """Print the last event, with the result of the turn."""
        names = ("text", "steps", "cost", "tokens", "files")
        data: Json = {name: getattr(result, name) for name in names}
        session = result.session.id
        print_event(ended_event(session, {**data, "ended": result.ending, "session": session}))


def print_event(event: Event) -> None:
    """Print an event as a line of JSON."""
    sys.stdout.write(f"{escape_json(encode(event).decode())}\n")
    sys.stdout.flush()


def ended_event(session: str, data: Json) -> Event:
    """The final event of a run, also of one that failed before its session was opened."""
    return Event(number=0, session=session, kind=ENDED, at=int(time.time() * 1_000), data=data)


# --- streamed text -------------------------------------------------------------------------


class TerminalFilter:
    """Removes control sequences from streamed text, even if they are split between pieces."""

    def __init__(self) -> None:
        """Start with nothing held back."""
        self._pending = ""

    def feed(self, piece: str) -> str:
        """The text that is safe to print now; line ends and tabs stay."""
        text = self._pending + piece
        sequence = _INCOMPLETE.search(text, max(0, len(text) - _LONGEST_PENDING))
        end = len(text) if sequence is None else sequence.start()
        self._pending = text[end:]
        return harmless_text(text[:end])

    def flush(self) -> str:
        """The rest of the text."""
        text, self._pending = self._pending, ""
        return harmless_text(text)
