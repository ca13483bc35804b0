"""A program that works on a session until it is killed, and prints what it has done.

It prints a line before each call, and its outcome after it: the store must still have every
printed outcome after the program was killed.
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
    """The session that is worked on."""
    return foldmark.open(where, session=SESSION, window=8_000, output=1_000, **more)


def store_of(session: foldmark.Session) -> Store:
    """The store of a session."""
    return state_of(session).store


def digest(message: Message) -> str:
    """A short hash of the exact content of a message."""
    return sha256(encode(message)).hexdigest()[:16]


def report(**data: Any) -> None:
    """Print a line at once, whole or not at all."""
    os.write(1, json.dumps(data).encode() + b"\n")


def reported(kind: str, job: Callable[[], Message | Operation | None]) -> Any:
    """Do something, and print a line before and after it."""
    report(doing=kind)
    result = job()
    match result:
        case Message():
            report(did=kind, id=result.id, digest=digest(result))
        case Operation():
            report(did=kind, act=result.number, state=result.state)
        case None:
            report(did=kind)
    return result


class Worker:
    """Does randomly what agents do."""

    def __init__(self, session: foldmark.Session, seed: int) -> None:
        self._session = session
        self._seed = seed
        self._chance = Random(seed)  # noqa: S311 - no secrets here
        self._calls = count()

    def run(self) -> None:
        while True:
            self._step()
            self._fold()

    def _text(self, limit: int) -> str:
        """Some lines; the store keeps the longest texts separately."""
        lines = int(limit ** self._chance.random())
        return f"{self._seed}: the build runs {self._chance.random()}\n" * lines

    def _step(self) -> None:
        session, chance = self._session, self._chance
        if chance.random() < 0.5:
            reported("user", lambda: session.user(self._text(80)))
        names = [f"{self._seed}.{next(self._calls)}" for _ in range(chance.randint(0, 3))]
        calls = [
            ToolPart(tool="read", call_id=name, state=Pending(input={"filePath": f"{name}.py"}))
            for name in names
        ]
        reported("record", lambda: session.record([TextPart(text=self._text(10)), *calls]))
        for name in names:
            output = self._text(160)
            reported("result", lambda name=name, output=output: session.result(name, output))

    def _fold(self) -> None:
        session, chance = self._session, self._chance
        if chance.random() < 0.3:
            reported("prune", session.prune)
        if chance.random() < 0.15 and session.pending() is None:
            reported("queue", session.queue)
        elif chance.random() < 0.2:
            summary = f"{self._seed}: so far {chance.random()}. " * chance.choice((1, 100))
            kind = "fold" if session.pending() is None else "complete"
            reported(kind, lambda: session.compact(summary))
        if chance.random() < 0.15 and any(one.in_force for one in session.operations()):
            reported("undo", session.undo)
            if chance.random() < 0.8:
                reported("redo", session.redo)


def work(where: str, seed: int) -> None:
    """Work until killed; waits for a line first, because starting Python takes long."""
    report(ready=os.getpid())
    sys.stdin.readline()
    with opened(where) as session:
        Worker(session, seed).run()


def hold(where: str) -> None:
    """Write a message, and keep the lease."""
    session = opened(where)
    reported("user", lambda: session.user("Mine."))
    sys.stdin.readline()


# --- a kill at every statement ---------------------------------------------------------------


def die_at_each(where: str, way: str) -> None:
    """Repeat one operation, each time in a process that is killed one statement later."""
    for number in count(1):
        sys.stdin.readline()
        child = os.fork()
        if child == 0:
            _do_and_die(where, way, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        report(died=number, status=status)
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
    """Kill this process after a number of writing statements, including commits."""
    remaining = number

    def step() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            step()
            return result

        return called

    writing = engine.writing

    @contextmanager
    def written() -> Generator[None]:
        with writing():
            yield
        step()  # committed, but not acknowledged

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
            sys.exit(f"unknown arguments: {unknown}")
