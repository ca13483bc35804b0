"""A program that works on a session until it is killed, and tells on its output what it has done.

Before each call it says what it is about to do, and after it what came of it: what was told is
what a store must still hold when the program is no more.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any

import foldmark
from foldmark.model.messages import Message, Pending, TextPart, ToolPart
from foldmark.model.operations import Operation
from foldmark.model.values import encode
from foldmark.session.session import state_of
from foldmark.store.engine import Engine
from foldmark.store.store import Store

SESSION = "victim"


def opened(where: str, **more: Any) -> foldmark.Session:
    """The session that everything here is about."""
    return foldmark.open(where, session=SESSION, window=8_000, output=1_000, **more)


def store_of(session: foldmark.Session) -> Store:
    """Where a session is kept, to look at what is really there."""
    return state_of(session).store


def digest(message: Message) -> str:
    """The exact content of a message, in short."""
    return sha256(encode(message)).hexdigest()[:16]


def tell(**told: Any) -> None:
    """Write a line that is there whole, or not at all, and at once."""
    os.write(1, json.dumps(told).encode() + b"\n")


def told(kind: str, job: Callable[[], Message | Operation | None]) -> Any:
    """Do something; say so before and after."""
    tell(doing=kind)
    done = job()
    match done:
        case Message():
            tell(did=kind, id=done.id, digest=digest(done))
        case Operation():
            tell(did=kind, act=done.number, state=done.state)
        case None:
            tell(did=kind)
    return done


class Worker:
    """Does by chance what agents do."""

    def __init__(self, session: foldmark.Session, seed: int) -> None:
        self._session = session
        self._seed = seed
        self._chance = Random(seed)  # noqa: S311 - no secrets here
        self._calls = count()

    def run(self) -> None:
        while True:
            self._step()
            self._fold()

    def _text(self, most: int) -> str:
        """Some lines; the longest are kept apart by the store."""
        lines = int(most ** self._chance.random())
        return f"{self._seed}: the wheel turns {self._chance.random()}\n" * lines

    def _step(self) -> None:
        session, chance = self._session, self._chance
        if chance.random() < 0.5:
            told("user", lambda: session.user(self._text(80)))
        names = [f"{self._seed}.{next(self._calls)}" for _ in range(chance.randint(0, 3))]
        calls = [
            ToolPart(tool="read", call_id=name, state=Pending(input={"filePath": f"{name}.py"}))
            for name in names
        ]
        told("record", lambda: session.record([TextPart(text=self._text(10)), *calls]))
        for name in names:
            output = self._text(160)
            told("result", lambda name=name, output=output: session.result(name, output))

    def _fold(self) -> None:
        session, chance = self._session, self._chance
        if chance.random() < 0.3:
            told("prune", session.prune)
        if chance.random() < 0.15 and session.pending() is None:
            told("queue", session.queue)
        elif chance.random() < 0.2:
            summary = f"{self._seed}: so far {chance.random()}. " * chance.choice((1, 100))
            kind = "fold" if session.pending() is None else "complete"
            told(kind, lambda: session.compact(summary))
        if chance.random() < 0.15 and any(act.in_force for act in session.acts()):
            told("undo", session.undo)
            if chance.random() < 0.8:
                told("redo", session.redo)


def work(where: str, seed: int) -> None:
    """Work until killed, from a word on the input on: what comes before takes Python's time."""
    tell(ready=os.getpid())
    sys.stdin.readline()
    with opened(where) as session:
        Worker(session, seed).run()


def hold(where: str) -> None:
    """Say something, and keep the lease."""
    session = opened(where)
    told("user", lambda: session.user("Mine."))
    sys.stdin.readline()


# --- a death at every statement --------------------------------------------------------------


def die_at_each(where: str, way: str) -> None:
    """Do one thing again and again, each time in a process that dies one statement later."""
    for number in count(1):
        sys.stdin.readline()
        child = os.fork()
        if child == 0:
            _do_and_die(where, way, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        tell(died=number, status=status)
        if status == 0:
            return


def _do_and_die(where: str, way: str, number: int) -> None:
    session = opened(where)
    _let_die(store_of(session).engine, number)
    if way == "queue":
        session.queue()
    else:
        session.compact("All of it, in short.")


def _let_die(engine: Engine, number: int) -> None:
    """Kill this process after so many statements that write, commits among them."""
    left = number

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            result = call(*args, **named)
            step()
            return result

        return called

    writing = engine.writing

    @contextmanager
    def written() -> Generator[None]:
        with writing():
            yield
        step()  # all is done, and nobody was told

    for name in ("run", "run_many"):
        setattr(engine, name, stepping(getattr(engine, name)))
    engine.writing = written


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", where, seed]:
            work(where, int(seed))
        case ["die", where, way]:
            die_at_each(where, way)
        case ["hold", where]:
            hold(where)
        case unknown:
            sys.exit(f"victim: {unknown} is nothing I can do")
