"""Processes that work on one store at the same time."""

import multiprocessing
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

TEAM = 8
LIMIT = 150.0  # seconds that are enough on a busy machine unless a process hangs
_spawning = multiprocessing.get_context("spawn")


class Member:
    """A process that runs a function and sends its result; messages may be exchanged meanwhile."""

    def __init__(self, target: Callable[..., Any], *args: Any) -> None:
        self.line, other = _spawning.Pipe()
        self._process = _spawning.Process(target=_run, args=(other, target, args), daemon=True)
        self._process.start()
        other.close()

    def receive(self) -> Any:
        """The next message; fails if the process failed, or sends nothing for too long."""
        assert self.line.poll(LIMIT), "a process hangs"
        try:
            is_success, value = self.line.recv()
        except EOFError:
            pytest.fail("a process ended without a message; see its error output")
        assert is_success, value
        return value

    def end(self) -> None:
        self._process.kill()
        self._process.join(30)
        self._process.close()
        self.line.close()


def _run(line: Connection, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        line.send((True, target(line, *args)))
    except BaseException:  # noqa: BLE001 - reported to the test
        line.send((False, traceback.format_exc()))


@contextmanager
def members(jobs: Sequence[tuple[Any, ...]]) -> Generator[list[Member]]:
    started: list[Member] = []
    try:
        for target, *args in jobs:
            started.append(Member(target, *args))
        yield started
    finally:
        for member in started:
            member.end()


def together(target: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of a team of processes that start at the same moment."""
    start = _spawning.Barrier(TEAM)
    with members([(target, start, number, *args) for number in range(TEAM)]) as team:
        return [member.receive() for member in team]
