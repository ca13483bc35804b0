"""A run from its beginning to its end: one turn in a script, or one after the other at a prompt.

A signal stops a turn so that it can go on later.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal

import typer

from foldmark.agent.permissions import Asker, Question, Reply
from foldmark.agent.turn import Turn, TurnResult
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo
from foldmark.providers.models import kept_open
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session

from ..layout import QUIET
from ..text import number, plain
from .context import RunContext
from .lines import Calls, JsonScreen, Line, PlainScreen, Screen, complain, outcome
from .screen import Gauge, TerminalScreen
from .slash_commands import COMMANDS, Leave, is_command, obey, told_errors

Shown = Literal["terminal", "plain", "quiet", "json"]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED = 128  # an exit code is this and the signal's number
TERMINATED = _KILLED + signal.SIGTERM
_GRACE = 3.0  # seconds that a turn has to end after it was to stop twice
_CLOSE = 1.0  # seconds to give the lease back, where even that was too long


# --- in a script ---------------------------------------------------------------------------


def work(context: RunContext, said: str | None, shown: Shown) -> int:
    """One turn without a terminal; its exit code."""
    context.open()
    screens: dict[Shown, type[Screen]] = {"json": JsonScreen, "plain": PlainScreen}
    screen = screens.get(shown, Screen)(Calls(context.agent.toolbox))
    if line := context.about_model():
        screen.say(line)
    result, code = take_turn(context, screen, said)
    (complain if code else screen.say)(outcome(result))
    if code or shown == "plain":
        complain(Line(f"go on with: {context.resuming()}"))
    return code


# --- at a terminal -------------------------------------------------------------------------


def talk(context: RunContext, said: str | None) -> int:
    """Turns, with a prompt after each, until the user leaves; the exit code."""
    from .prompt import Prompt, ask_user  # noqa: PLC0415 - no other command needs prompt_toolkit

    async def ask(question: Question) -> Reply:
        return await ask_user(context.screen, question)

    prompt = Prompt(f"/{name}" for name in COMMANDS)
    if line := context.about_model():
        complain(line)
    goes_on = False  # in the middle of a turn
    if context.options.goes_on:
        _open(context, ask)
        row = context.session.info
        title = f"{plain(row.info.title or 'without a title')}, {number(row.places, 'message')}"
        context.say(Line(f"session {plain(row.id)}: {title}", QUIET))
        goes_on = said is None and _is_unfinished(context.session)
    elif said is None:
        name = plain(context.model.name)
        context.say(Line(f"{name} is ready; /help tells what you can do, Ctrl-D leaves"))
    with suppress(Leave):
        while True:
            if said is not None or goes_on:
                if not context.session_id:  # there is none before the first words
                    _open(context, ask)
                with told_errors(context):
                    if take_turn(context, context.screen, said)[1] == TERMINATED:
                        return TERMINATED
            goes_on = False
            said = _next_words(context, prompt.typed())
    if context.session_id:
        context.say(Line(f"go on with: {context.resuming()}", QUIET, whole=True))
    return 0


def _open(context: RunContext, ask: Asker) -> None:
    context.open(ask)
    context.gauge = Gauge(context.session)
    context.screen = TerminalScreen(Calls(context.agent.toolbox), context.gauge)


def _next_words(context: RunContext, line: str | None) -> str | None:
    """What a line says to the model: nothing where it is a command, which is done."""
    if line is None:
        raise Leave
    if not is_command(line):
        return line or None
    try:
        with ExitStack() as stack:
            if context.session_id:
                stack.enter_context(watched(context.session, context.screen))
            obey(context, line)
    except KeyboardInterrupt:
        context.say(Line("stopped", "yellow"))
    return None


def _is_unfinished(session: Session) -> bool:
    """Whether a session was left in the middle of a turn."""
    last = LoopSupport(session).newest()
    if last is None or not isinstance(last.info, AssistantInfo):
        return True
    return last.info.finish != "stop" or bool(session.open_calls())


# --- one turn ------------------------------------------------------------------------------


def take_turn(context: RunContext, screen: Screen, said: str | None) -> tuple[TurnResult, int]:
    """Take a turn to its end, and show it; the exit code is 1 where a bound was reached."""
    return asyncio.run(_take_turn(context, screen, said))


async def _take_turn(
    context: RunContext, screen: Screen, said: str | None
) -> tuple[TurnResult, int]:
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
    codes = {"stop": 0, "aborted": _KILLED + (stop.signal or signal.SIGINT)}
    return result, codes.get(result.ended, 1)


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
