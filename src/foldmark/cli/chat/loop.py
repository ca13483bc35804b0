"""A run from start to end: one turn in a script, or several turns at a prompt.

A signal stops a turn so that it can be continued later.
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
from foldmark.providers.models import keep_open
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session

from ..layout import QUIET
from ..text import number, plain
from .context import RunContext
from .lines import Calls, JsonScreen, Line, PlainScreen, Screen, outcome, write_stderr
from .screen import Gauge, TerminalScreen
from .slash_commands import COMMANDS, LeaveChat, is_command, report_errors, run_slash_command

OutputMode = Literal["terminal", "plain", "quiet", "json"]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED = 128  # the exit code after a signal is 128 plus its number
TERMINATED = _KILLED + signal.SIGTERM
_GRACE = 3.0  # seconds for a turn to end after the second signal
_CLOSE = 1.0  # seconds to release the lease if the turn did not end


# --- in a script ---------------------------------------------------------------------------


def run_once(context: RunContext, task: str | None, mode: OutputMode) -> int:
    """Run one turn without a terminal and return its exit code."""
    context.open()
    screens: dict[OutputMode, type[Screen]] = {"json": JsonScreen, "plain": PlainScreen}
    screen = screens.get(mode, Screen)(Calls(context.agent.toolbox))
    if line := context.model_note():
        screen.say(line)
    result, code = run_turn(context, screen, task)
    (write_stderr if code else screen.say)(outcome(result))
    if code or mode == "plain":
        write_stderr(Line(f"continue with: {context.resume_command()}"))
    return code


# --- at a terminal -------------------------------------------------------------------------


def run_chat(context: RunContext, message: str | None) -> int:
    """Run turns, with a prompt after each, until the user leaves; returns the exit code."""
    from .prompt import Prompt, ask_user  # noqa: PLC0415 - no other command needs prompt_toolkit

    async def ask(question: Question) -> Reply:
        return await ask_user(context.screen, question)

    prompt = Prompt(f"/{name}" for name in COMMANDS)
    if line := context.model_note():
        write_stderr(line)
    is_resuming = False  # an unfinished turn
    if context.options.resume:
        _open(context, ask)
        row = context.session.info
        title = f"{plain(row.info.title or '(no title)')}, {number(row.places, 'message')}"
        context.say(Line(f"session {plain(row.id)}: {title}", QUIET))
        is_resuming = message is None and _is_unfinished(context.session)
    elif message is None:
        name = plain(context.model.name)
        context.say(Line(f"{name} is ready; /help lists the commands, Ctrl-D leaves"))
    with suppress(LeaveChat):
        while True:
            if message is not None or is_resuming:
                if not context.session_id:  # a session starts with its first message
                    _open(context, ask)
                with report_errors(context):
                    if run_turn(context, context.screen, message)[1] == TERMINATED:
                        return TERMINATED
            is_resuming = False
            message = _next_message(context, prompt.read())
    if context.session_id:
        context.say(Line(f"continue with: {context.resume_command()}", QUIET, whole=True))
    return 0


def _open(context: RunContext, ask: Asker) -> None:
    context.open(ask)
    context.gauge = Gauge(context.session)
    context.screen = TerminalScreen(Calls(context.agent.toolbox), context.gauge)


def _next_message(context: RunContext, line: str | None) -> str | None:
    """The message in a line for the model; None for a slash command, which is run here."""
    if line is None:
        raise LeaveChat
    if not is_command(line):
        return line or None
    try:
        with ExitStack() as stack:
            if context.session_id:
                stack.enter_context(watch(context.session, context.screen))
            run_slash_command(context, line)
    except KeyboardInterrupt:
        context.say(Line("stopped", "yellow"))
    return None


def _is_unfinished(session: Session) -> bool:
    """Whether a session stopped in the middle of a turn."""
    last = LoopSupport(session).newest()
    if last is None or not isinstance(last.info, AssistantInfo):
        return True
    return last.info.finish != "stop" or bool(session.open_calls())


# --- one turn ------------------------------------------------------------------------------


def run_turn(context: RunContext, screen: Screen, message: str | None) -> tuple[TurnResult, int]:
    """Run a turn and show it; the exit code is 1 if a limit ended it."""
    return asyncio.run(_run_turn(context, screen, message))


async def _run_turn(
    context: RunContext, screen: Screen, message: str | None
) -> tuple[TurnResult, int]:
    agent, session = context.agent, context.session
    turn = agent.turn(message, session)
    stop = _Stop(turn)
    try:
        with stop.listening(), screen.drawing(), watch(session, screen, turn):
            async with keep_open(agent.model):
                result = await turn.arun()
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        raise typer.Exit(_KILLED + stop.signal) from None
    screen.end(result)
    codes = {"stop": 0, "aborted": _KILLED + (stop.signal or signal.SIGINT)}
    return result, codes.get(result.ending, 1)


@contextmanager
def watch(session: Session, screen: Screen, turn: Turn | None = None) -> Generator[None]:
    """Show a session's events; abort the turn if the output can no longer be written."""
    broken: list[OSError] = []

    def on_event(event: Event) -> None:
        if broken:
            return
        try:
            screen.on_event(event)
        except OSError as error:
            broken.append(error)
            if turn is not None:
                turn.abort()

    end = session.subscribe(on_event)
    try:
        yield
    finally:
        end()
    if broken:
        raise broken[0]


class _Stop:
    """Stops a turn on a signal; a second signal leaves without waiting for the turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._task = asyncio.current_task()
        self.signal: int | None = None

    @contextmanager
    def listening(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                with suppress(NotImplementedError, ValueError, RuntimeError):
                    if loop.remove_signal_handler(number):
                        signal.signal(number, handler)

    def _on_signal(self, number: int) -> None:
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
        """End the program even if something hangs, after an attempt to release the session."""
        closing = threading.Thread(target=self._turn.session.close, daemon=True)
        closing.start()
        closing.join(_CLOSE)
        os._exit(_KILLED + (self.signal or signal.SIGINT))
