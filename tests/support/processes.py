"""Processes that work on one store at the same time."""

import multiprocessing
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

TEAM = 8
LIMIT = 150.0  # seconds in which even a busy machine is done, if nobody hangs
_spawning = multiprocessing.get_context("spawn")


class Member:
    """A process that does one thing and gives its result, or asks and is told on the way."""

    def __init__(self, target: Callable[..., Any], *args: Any) -> None:
        self.line, other = _spawning.Pipe()
        self._process = _spawning.Process(target=_run, args=(other, target, args), daemon=True)
        self._process.start()
        other.close()

    def told(self) -> Any:
        """What it says next; fails where it failed, or says nothing for too long."""
        assert self.line.poll(LIMIT), "a process hangs"
        try:
            went_well, said = self.line.recv()
        except EOFError:
            pytest.fail("a process ended without a word; see what it complained of")
        assert went_well, said
        return said

    def end(self) -> None:
        self._process.kill()
        self._process.join(30)
        self._process.close()
        self.line.close()


def _run(line: Connection, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        line.send((True, target(line, *args)))
    except BaseException:  # noqa: BLE001 - the test is to see it
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
    """What the processes of a team give back that all begin at the same moment."""
    start = _spawning.Barrier(TEAM)
    with members([(target, start, number, *args) for number in range(TEAM)]) as team:
        return [member.told() for member in team]
