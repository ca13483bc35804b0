"""One turn of a run: what it tells is shown, and a signal stops it so that it can go on later."""

import asyncio
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import typer

from foldmark.agent.agent import Agent
from foldmark.agent.turn import Turn, TurnResult
from foldmark.model.events import Event
from foldmark.providers.models import kept_open
from foldmark.session.session import Session

from .run_lines import Screen

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED = 128  # an exit code is this and the signal's number
_GRACE = 3.0  # seconds that a turn has to end after it was to stop twice
_CLOSE = 1.0  # seconds to give the lease back, where even that was too long


class Turned(NamedTuple):
    """A turn that has ended, and the signal that stopped it, if one did."""

    ended: TurnResult
    signal: int | None

    @property
    def code(self) -> int:
        """The exit code of a run that ends so: 1 where a bound was reached."""
        if self.ended.ended == "stop":
            return 0
        if self.ended.ended == "aborted":
            return _KILLED + (self.signal or signal.SIGINT)
        return 1


def turned(agent: Agent, session: Session, screen: Screen, said: str | None) -> Turned:
    """Take a turn to its end, and show it."""
    return asyncio.run(_turned(agent, session, screen, said))


async def _turned(agent: Agent, session: Session, screen: Screen, said: str | None) -> Turned:
    turn = agent.turn(said, session)
    stop = _Stop(turn)
    try:
        with stop.heard(), screen.shown(), watched(session, screen, turn):
            async with kept_open(agent.model):
                ended = await turn.arun()
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        raise typer.Exit(_KILLED + stop.signal) from None
    screen.end(ended)
    return Turned(ended, stop.signal)


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
        before = {number: signal.getsignal(number) for number in SIGNALS}
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread
            for number in SIGNALS:
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
