"""A run from its beginning to its end: one turn in a script, or one after the other at a prompt.

A signal stops a turn so that it can go on later.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, NamedTuple, NoReturn

import typer

from foldmark.agent.turn import Turn, TurnResult
from foldmark.errors import FoldmarkError
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo
from foldmark.providers.models import kept_open
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session

from ..layout import QUIET
from ..text import error_line, number, plain
from .context import RunContext
from .lines import Calls, JsonScreen, Line, PlainScreen, Screen, complain, outcome
from .prompt import Asking, Prompt
from .screen import Gauge, TerminalScreen
from .slash_commands import COMMANDS, Leave, early_answer, is_command, obey

Shown = Literal["terminal", "plain", "quiet", "json"]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED = 128  # an exit code is this and the signal's number
_TERMINATED = _KILLED + signal.SIGTERM
_GRACE = 3.0  # seconds that a turn has to end after it was to stop twice
_CLOSE = 1.0  # seconds to give the lease back, where even that was too long


# --- in a script ---------------------------------------------------------------------------


def work(context: RunContext, said: str | None, shown: Shown) -> int:
    """One turn without a terminal; its exit code."""
    context.open()
    calls = Calls(context.agent.toolbox)
    screen: Screen = (
        JsonScreen(calls) if shown == "json" else PlainScreen(calls, quiet=shown == "quiet")
    )
    if line := context.about_model():
        screen.say(line)
    done = take_turn(context, screen, said)
    is_done = done.result.ended == "stop"
    (screen.say if is_done else complain)(outcome(done.result))
    if not is_done or shown == "plain":
        complain(Line(f"go on with: {context.resuming()}"))
    return done.code


@contextmanager
def terminable() -> Generator[None]:
    """Let SIGTERM end a run as an exit does, so that its session is closed."""

    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(_TERMINATED)

    before = None
    with suppress(ValueError):  # not in the main thread
        before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


# --- at a terminal -------------------------------------------------------------------------


def talk(context: RunContext, said: str | None) -> int:
    """Turns, with a prompt after each, until the user leaves; the exit code."""
    prompt = Prompt(f"/{name}" for name in COMMANDS)
    goes_on = context.options.goes_on
    if line := context.about_model():
        complain(line)
    if said is None and not goes_on:
        said = _first_words(prompt, context.model.name)
        if said is None:
            return 0
    asking = Asking()
    context.open(asking.ask)
    context.gauge = Gauge(context.session)
    context.screen = asking.screen = TerminalScreen(Calls(context.agent.toolbox), context.gauge)
    if goes_on:
        row = context.session.info
        title = f"{plain(row.info.title or 'without a title')}, {number(row.places, 'message')}"
        context.screen.say(Line(f"session {plain(row.id)}: {title}", QUIET))
    code = _talked(prompt, context, said)
    if not code:
        context.screen.say(Line(f"go on with: {context.resuming()}", QUIET, whole=True))
    return code


def _first_words(prompt: Prompt, name: str) -> str | None:
    """What the user says first; there is no session before that."""
    complain(Line(f"{plain(name)} is ready; /help tells what you can do, Ctrl-D leaves"))
    while (line := prompt.typed()) is not None:
        if line and not is_command(line):
            return line
        try:
            for told in early_answer(line):
                complain(told)
        except Leave:
            return None
    return None


def _talked(prompt: Prompt, context: RunContext, said: str | None) -> int:
    goes_on = said is None and _is_unfinished(context.session)
    while True:
        if said is not None or goes_on:
            done = _shown_turn(context, said)
            if done is not None and done.signal == signal.SIGTERM:
                return _TERMINATED
        said, goes_on = None, False
        line = prompt.typed()
        if line is None:
            return 0
        if not is_command(line):
            said = line or None
            continue
        try:
            with watched(context.session, context.screen):
                obey(context, line)
        except Leave:
            return 0
        except KeyboardInterrupt:
            context.screen.say(Line("stopped", "yellow"))


def _shown_turn(context: RunContext, said: str | None) -> "TurnEnd | None":
    """One turn; what goes wrong is told, and the user may say something else."""
    try:
        return take_turn(context, context.screen, said)
    except FoldmarkError as error:
        context.screen.say(Line(plain(error_line(error), most=1_000), "red"))
        return None


def _is_unfinished(session: Session) -> bool:
    """Whether a session was left in the middle of a turn."""
    last = LoopSupport(session).newest()
    if last is None or not isinstance(last.info, AssistantInfo):
        return True
    return last.info.finish != "stop" or bool(session.open_calls())


# --- one turn ------------------------------------------------------------------------------


class TurnEnd(NamedTuple):
    """A turn that has ended, and the signal that stopped it, if one did."""

    result: TurnResult
    signal: int | None

    @property
    def code(self) -> int:
        """The exit code of a run that ends so: 1 where a bound was reached."""
        if self.result.ended == "stop":
            return 0
        if self.result.ended == "aborted":
            return _KILLED + (self.signal or signal.SIGINT)
        return 1


def take_turn(context: RunContext, screen: Screen, said: str | None) -> TurnEnd:
    """Take a turn to its end, and show it."""
    return asyncio.run(_take_turn(context, screen, said))


async def _take_turn(context: RunContext, screen: Screen, said: str | None) -> TurnEnd:
    agent, session = context.agent, context.session
    turn = agent.turn(said, session)
    stop = _Stop(turn)
    try:
        with stop.heard(), screen.shown(), watched(session, screen, turn):
            async with kept_open(agent.model):
                result = await turn.arun()
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        raise typer.Exit(_KILLED + stop.signal) from None
    screen.end(result)
    return TurnEnd(result, stop.signal)


@contextmanager
def watched(session: Session, screen: Screen, turn: Turn | None = None) -> Generator[None]:
    """Show what happens in a session; a turn whose output nobody takes any more is stopped."""
    broken: list[OSError] = []

    def take(event: Event) -> None:
        if broken:
            return
        try:
            screen.take(event)
        except OSError as error:
            broken.append(error)
            if turn is not None:
                turn.abort()

    end = session.subscribe(take)
    try:
        yield
    finally:
        end()
    if broken:
        raise broken[0]


class _Stop:
    """Stops a turn when a signal comes; the second one leaves without waiting for its end."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._task = asyncio.current_task()
        self.signal: int | None = None

    @contextmanager
    def heard(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._take, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                with suppress(NotImplementedError, ValueError, RuntimeError):
                    if loop.remove_signal_handler(number):
                        signal.signal(number, handler)

    def _take(self, number: int) -> None:
        if self.signal is None:
            self.signal = number
            self._turn.abort()
            return
        if self._task is not None:
            self._task.cancel()
        leaving = threading.Timer(_GRACE, self._leave)
        leaving.daemon = True
        leaving.start()

    def _leave(self) -> None:
        """End the program, whatever still hangs; the session is given back first."""
        closing = threading.Thread(target=self._turn.session.close, daemon=True)
        closing.start()
        closing.join(_CLOSE)
        os._exit(_KILLED + (self.signal or signal.SIGINT))
