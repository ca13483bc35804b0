"""The run on a terminal: words as they come, each call with its status, a gauge at the bottom.

What is finished is printed and stays; the line that is being written, the calls that run and the
gauge are drawn below it, again and again. Nothing of a model or a tool is taken for markup.
"""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from foldmark.agent.turn import TurnResult
from foldmark.model import events
from foldmark.model.events import Event

from .run_gauge import Gauge
from .run_lines import Calls, Line, outcome, told
from .run_words import Lines
from .tables import QUIET
from .text import number, plain

_PER_SECOND = 10
_MOST_THOUGHT = 2_000  # characters of a thought that are kept to show its beginning
_MOST_CALLS = 8  # lines for calls that run


def terminal_console() -> Console:
    """A console on standard output that takes nothing for markup."""
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


class TerminalScreen:
    """Draws a run. Events may come from any thread, one after the other."""

    def __init__(self, calls: Calls, gauge: Gauge) -> None:
        """Take what is known of calls, and the gauge."""
        self._calls = calls
        self._gauge = gauge
        self.console = terminal_console()
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._words = Lines()
        self._thought = ""
        self._announced: dict[str, str] = {}  # calls whose input is being written
        self._folding: int | None = None  # characters of a summary so far
        self._held: list[Event] | None = None  # what came while a question is asked

    # --- a turn ---

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draw for as long as the context lasts."""
        self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._settle()
                self._announced.clear()
                self._folding = None
            self._stop()
            for line in self._calls.stopped():
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

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Draw nothing, so that a question can be asked."""
        with self._lock:
            self._settle()
            self._held = []
        drawn = self._live is not None
        self._stop()
        try:
            yield
        finally:
            if drawn:
                self._begin()
            with self._lock:
                held, self._held = self._held, None
                for event in held or ():
                    self.take(event)

    def take(self, event: Event) -> None:
        """Show what an event tells; while a question is asked, that waits."""
        with self._lock:
            if self._held is not None:
                self._held.append(event)
                return
            self._gauge.take(event)
            self._note(event)
            if line := told(event, self._calls):
                self._settle()
                self.say(line)

    def _note(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case events.STEP_DELTA if data["what"] == "text":
                self._end_thought()
                self._print(self._words.take(data["text"], self.console.width))
            case events.STEP_DELTA:
                self._thought = (self._thought + data["text"])[:_MOST_THOUGHT]
            case events.TOOL_CALLED:
                self._settle()
                self._announced[data["call"]] = plain(data["tool"], most=40)
            case events.STEP_FINISHED | events.STEP_RETRIED:
                self._settle()
                self._announced.clear()
            case events.TOOL_STARTED:
                self._calls.begin(event)
            case events.STARTED:
                self._folding = 0
            case events.DELTA:
                self._folding = (self._folding or 0) + len(str(data.get("text", "")))
            case events.COMPACTED | events.FAILED:
                self._folding = None
            case _:
                return

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self.console.print(Text(line))

    def _end_thought(self) -> None:
        thought, self._thought = plain(self._thought, most=max(self.console.width - 3, 1)), ""
        if thought:
            self.console.print(Text(f"· {thought}", style=f"italic {QUIET}"))

    def _settle(self) -> None:
        """Print for good what was being written."""
        self._end_thought()
        self._print(self._words.end(self.console.width))

    def say(self, line: Line) -> None:
        """Show a line of ours."""
        text = Text(line.text, style=line.style, overflow="fold")
        self.console.print(text, soft_wrap=line.whole)

    def answered(self, tool: str, subject: str) -> None:
        """Note that the user has answered a question about a call."""
        with self._lock:
            self._calls.answered(tool, subject)

    def end(self, ended: TurnResult) -> None:
        """Show how a turn has ended: the last state of the gauge stays."""
        line = outcome(ended)
        self.say(line if ended.ended == "stop" else line._replace(style="yellow"))
        self.console.print(self._gauge.line(self.console.width))

    # --- what is drawn ---

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is not finished yet, as it is at this moment."""
        # Without our lock: who draws holds the console's, which who prints waits for.
        yield from self._pieces(options.max_width)

    def _pieces(self, width: int) -> Generator[RenderableType]:
        if self._thought:
            # The end of it: that is what moves.
            thought = plain(self._thought[-4 * width :], most=10_000)[-max(width - 12, 1) :]
            yield _one_line(f"· thinking {thought}", f"italic {QUIET}")
        if self._words.open:
            yield _one_line(self._words.open)
        if self._folding is not None:
            written = f": {number(self._folding, 'character')} so far" if self._folding else ""
            yield _one_line(f"… folding the older part{written}", "magenta")
        yield from self._calls_drawn()
        yield self._gauge.line(width)

    def _calls_drawn(self) -> Generator[RenderableType]:
        lines = [f"… {name}" for name in list(self._announced.values())]
        for name, seconds in self._calls.running():
            lines.append(f"… {name}" + (f" · {int(seconds)} s" if seconds >= 1 else ""))
        for line in lines[:_MOST_CALLS]:
            yield _one_line(line, "cyan")
        if len(lines) > _MOST_CALLS:
            yield _one_line(f"… and {len(lines) - _MOST_CALLS} more", QUIET)


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
