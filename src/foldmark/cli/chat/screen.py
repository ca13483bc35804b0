"""A run on a terminal: streamed text, tool calls with their status, and a gauge at the bottom.

Finished output is printed and stays. The line in progress, the running calls and the gauge are
redrawn below it. Text of models and tools is never interpreted as markup.
"""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from foldmark.agent.permissions import Question
from foldmark.agent.turn import TurnResult
from foldmark.model import events
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo, Tokens
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.tokens.budget import pressure

from ..commands.show import folded_messages
from ..layout import QUIET, pressure_color, pressure_text, terminal_console
from ..text import number, plain
from .lines import Calls, Line, Screen, TerminalFilter, outcome

_PER_SECOND = 10
_MOST_THOUGHT = 2_000  # characters of the model's thinking kept to show its start
_MOST_CALLS = 8  # lines for running calls
_BAR = 10  # characters
_THOUSAND, _MILLION = 1_000, 1_000_000
_RESHAPED = frozenset(
    {events.PRUNED, events.COMPACTED, events.UNDONE, events.REDONE, events.REVERTED}
)


# --- the gauge -----------------------------------------------------------------------------


class Gauge:
    """The figures of a session, updated by its events."""

    def __init__(self, session: Session) -> None:
        """Read the current figures of the session."""
        self._session = session
        past = session.follow(seconds=0) if session.info.acts else ()
        prunes = (event.data for event in past if event.kind == events.PRUNED)
        self._hidden = {data["act"]: data["parts"] for data in prunes}  # outputs per prune
        self._spent = 0.0  # by finished turns
        self.cost = 0.0
        self.step = 0
        self.cached: float | None = None  # share of the newest request
        self.refresh()

    def refresh(self) -> None:
        """Read the figures from the session again."""
        operations = self._session.operations()
        self.used, self.usable = self._session.tokens, self._session.usable
        in_force = (operation for operation in operations if operation.in_force)
        self.pruned = sum(self._hidden.get(operation.number, 0) for operation in in_force)
        self.folded = folded_messages(self._session.view(), operations)

    def on_event(self, event: Event) -> None:
        """Update the figures."""
        data = event.data
        match event.kind:
            case events.STEP_STARTED:
                self.step, self.used = data["step"], data["tokens"]
            case events.STEP_FINISHED:
                self.used, self.usable = data["used"], data["usable"]
                self.cost = self._spent + data["cost"]
                last = LoopSupport(self._session).newest()
                info = last.info if last else None
                tokens = info.tokens if isinstance(info, AssistantInfo) else None
                self.cached = cached_share(tokens) if tokens else None
            case events.TURN_FINISHED:
                self._spent = self.cost = self._spent + data["cost"]
            case kind if kind in _RESHAPED:
                if kind == events.PRUNED:
                    self._hidden[data["act"]] = data["parts"]
                self.refresh()
            case _:
                pass

    def line(self, width: int) -> Text:
        """The gauge on one line; the least important figures are left out if it is too narrow."""
        full = pressure(self.used, self.usable) if self.usable else 0.0
        whole = f" of {short(self.usable)}" if self.usable else " tokens"
        figures = {
            pressure_text(full).replace(" %", "%") if self.usable else "no limit": True,
            f"{short(self.used)}{whole}": True,
            f"pruned {self.pruned:,}": self.pruned,
            f"summarized {self.folded:,}": self.folded,
            f"cached {self.cached or 0:.0%}": self.cached is not None,
            dollars(self.cost): self.cost,
            f"step {self.step:,}": self.step,
        }
        items = [item for item, is_known in figures.items() if is_known]
        while len(items) > 1 and sum(map(len, items)) + 3 * len(items) + _BAR > width:
            items.pop()
        color = pressure_color(full)
        filled = min(_BAR, round(full * _BAR))
        line = Text("[", style=QUIET, no_wrap=True, overflow="ellipsis")
        line.append("█" * filled, style=color)
        line.append("░" * (_BAR - filled) + "] ")
        line.append(items[0], style=color)
        return line.append("".join(f" · {item}" for item in items[1:]))


def short(tokens: int) -> str:
    """A number of tokens in a few characters."""
    if tokens < _THOUSAND:
        return str(tokens)
    unit, sign = (_THOUSAND, "k") if tokens < _MILLION else (_MILLION, "M")
    figure = f"{tokens / unit:.1f}"
    return f"{figure.removesuffix('.0')}{sign}"


def dollars(cost: float) -> str:
    """A cost, to a tenth of a cent below one dollar."""
    return f"${cost:.3f}" if cost < 1 else f"${cost:,.2f}"


def cached_share(tokens: Tokens) -> float | None:
    """The share of a request that came from the provider's cache, or None if unknown."""
    read, write = (tokens.cache.read or 0, tokens.cache.write or 0) if tokens.cache else (0, 0)
    whole = (tokens.input or 0) + read + write
    return read / whole if whole and (read or write) else None


# --- the screen -----------------------------------------------------------------------------


class TerminalScreen(Screen):
    """Draws a run. Events may come from any thread, one at a time."""

    _live: Live  # of the current turn

    def __init__(self, calls: Calls, gauge: Gauge) -> None:
        """Take the running calls and the gauge."""
        super().__init__(calls)
        self._gauge = gauge
        self.console = terminal_console()
        self._lock = threading.RLock()
        self._filter = TerminalFilter()
        self._open = ""  # the line in progress
        self._thought = ""
        self._announced: dict[str, str] = {}  # calls whose input is still streaming
        self._folding: int | None = None  # characters of the summary so far
        self._waiting: list[Event] | None = None  # events during a question

    # --- a turn ---

    @contextmanager
    def drawing(self) -> Generator[None]:
        """Draw while the context lasts."""
        self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._settle()
                self._announced.clear()
                self._folding = None
            self._live.stop()
            for line in self._calls.stop():
                self.say(line)

    def _begin(self) -> None:
        self._live = Live(
            self,
            console=self.console,
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start()

    @contextmanager
    def paused(self, question: Question) -> Generator[None]:
        """Stop drawing during a question about a call."""
        with self._lock:
            self._settle()
            self._waiting = []
        self._live.stop()
        try:
            yield
        finally:
            self._begin()
            with self._lock:
                self._calls.note_answer(question.tool, question.subject)
                waiting, self._waiting = self._waiting, None
                for event in waiting:
                    self.on_event(event)

    def on_event(self, event: Event) -> None:
        """Show an event, or queue it during a question."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(event)
                return
            self._gauge.on_event(event)
            self._note(event)
            if line := self._calls.line(event):
                self._settle()
                self.say(line)

    def _note(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case events.STEP_DELTA if data["what"] == "text":
                self._end_thought()
                self._print(self._filter.feed(data["text"]))
            case events.STEP_DELTA:
                self._thought = (self._thought + data["text"])[:_MOST_THOUGHT]
            case events.TOOL_CALLED:
                self._settle()
                self._announced[data["call"]] = plain(data["tool"], limit=40)
            case events.STEP_FINISHED | events.STEP_RETRIED:
                self._settle()
                self._announced.clear()
            case events.STARTED:
                self._folding = 0
            case events.DELTA:
                self._folding = (self._folding or 0) + len(str(data.get("text", "")))
            case events.COMPACTED | events.FAILED:
                self._folding = None
            case _:
                return

    def _print(self, text: str) -> None:
        *lines, self._open = wrap_text(self._open + text, self.console)
        for line in lines:
            self.console.print(Text(line))

    def _end_thought(self) -> None:
        thought, self._thought = plain(self._thought, limit=max(self.console.width - 3, 1)), ""
        if thought:
            self.console.print(Text(f"· {thought}", style=f"italic {QUIET}"))

    def _settle(self) -> None:
        """Print the line in progress."""
        self._end_thought()
        text = self._filter.flush()
        self._print(f"{text}\n" if self._open or text else "")

    def say(self, line: Line) -> None:
        """Show a line of Foldmark itself, not of the model."""
        text = Text(line.text, style=line.style, overflow="fold")
        self.console.print(text, soft_wrap=line.whole)

    def end(self, result: TurnResult) -> None:
        """Show how a turn ended, and the last state of the gauge."""
        line = outcome(result)
        self.say(line if result.ending == "stop" else line._replace(style="yellow"))
        self.console.print(self._gauge.line(self.console.width))

    # --- drawing ---

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The unfinished part of the output."""
        # Drawing holds the console's lock, which printing waits for: do not take ours here.
        yield from self._pieces(options.max_width)

    def _pieces(self, width: int) -> Generator[RenderableType]:
        if self._thought:
            # Show the end, where it grows.
            thought = plain(self._thought[-4 * width :], limit=10_000)[-max(width - 12, 1) :]
            yield _one_line(f"· thinking {thought}", f"italic {QUIET}")
        if self._open:
            yield _one_line(self._open)
        if self._folding is not None:
            progress = f": {number(self._folding, 'character')} so far" if self._folding else ""
            yield _one_line(f"… summarizing the older messages{progress}", "magenta")
        yield from self._call_lines()
        yield self._gauge.line(width)

    def _call_lines(self) -> Generator[RenderableType]:
        lines = [f"… {name}" for name in list(self._announced.values())]
        for name, seconds in self._calls.running():
            lines.append(f"… {name}" + (f" · {int(seconds)} s" if seconds >= 1 else ""))
        for line in lines[:_MOST_CALLS]:
            yield _one_line(line, "cyan")
        if len(lines) > _MOST_CALLS:
            yield _one_line(f"… and {len(lines) - _MOST_CALLS} more", QUIET)


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def wrap_text(text: str, console: Console) -> list[str]:
    """The text as lines that fit the console; the last keeps its trailing spaces."""
    whole = text.rstrip(" ")
    lines = (Text(line).wrap(console, console.width, tab_size=4) for line in whole.split("\n"))
    *rows, last = (row.plain for line in lines for row in line)
    return [*rows, last + text[len(whole) :]]
