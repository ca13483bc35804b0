"""Reading in a process of its own, while this one writes: two cores are better than one.

The other process opens files, reads their steps and counts tokens; a few batches are under way at
a time, so that memory stays as small as without it.
"""

import multiprocessing
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

from foldmark.errors import BadInput
from foldmark.messages import Message
from foldmark.sizes import Size, message_sizes
from foldmark.tokens import counter
from foldmark.values import Frozen

from .format import Format, Step, Unrecognised, format_named
from .reading import Skipped, opened_reading

Sized = tuple[Step, tuple[Size, ...] | None]

_BATCH = 64
_UNDER_WAY = 6


class Job(Frozen):
    """A file to be read, and how."""

    path: str
    format: str | None
    lenient: bool
    most_bytes: int
    estimate: str


class Begun(Frozen):
    """The format was recognised."""

    format: str


class Ended(Frozen):
    """All was read."""

    skipped: tuple[Skipped, ...]


class Refusal(Frozen):
    """It cannot be read."""

    cause: str
    source: str | None
    place: str | None
    unrecognised: bool

    def error(self) -> BadInput:
        """The same, to be raised."""
        kind = Unrecognised if self.unrecognised else BadInput
        return kind(self.cause, source=self.source, place=self.place)


class FarReading:
    """A file that is read elsewhere."""

    def __init__(self, ahead: "Ahead", format: Format) -> None:
        """Take where it is read, and its format."""
        self._ahead = ahead
        self.format = format
        self.skipped: list[Skipped] = []
        self.is_done = False

    def sized(self, estimate: str) -> Iterator[Sized]:
        """Its steps, messages with the sizes of their parts."""
        del estimate  # it was told when the reading began
        while not self.is_done:
            told = self._ahead.told()
            match told:
                case list():
                    yield from told
                case Ended(skipped=skipped):
                    self.is_done = True
                    self.skipped = list(skipped)
                case _:
                    self.is_done = True
                    raise told.error()


class Ahead:
    """The other process."""

    def __init__(self) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self._jobs: Queue[Job | None] = context.Queue()
        self._told: Queue[Any] = context.Queue(maxsize=_UNDER_WAY)
        self._process = context.Process(
            target=read_jobs, args=(self._jobs, self._told), daemon=True
        )
        self._process.start()

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.join()

    def told(self) -> Any:
        """What it says next; BadInput where it has died."""
        while True:
            try:
                return self._told.get(timeout=1.0)
            except Empty:
                if not self._process.is_alive():
                    raise BadInput("the process that reads files has ended") from None

    @contextmanager
    def opened(self, job: Job) -> Generator[FarReading]:
        """A file to be read there."""
        self._jobs.put(job)
        begun = self.told()
        if isinstance(begun, Refusal):
            raise begun.error()
        reading = FarReading(self, format_named(begun.format))
        try:
            yield reading
        finally:
            while not reading.is_done:  # what is left of a file that was given up
                reading.is_done = not isinstance(self.told(), list)


def read_jobs(jobs: "Queue[Job | None]", told: "Queue[Any]") -> None:
    """Read one file after the other."""
    while (job := jobs.get()) is not None:
        try:
            _read(job, told)
        except BadInput as error:
            told.put(
                Refusal(
                    cause=error.cause,
                    source=error.source,
                    place=error.place,
                    unrecognised=isinstance(error, Unrecognised),
                )
            )


def _read(job: Job, told: "Queue[Any]") -> None:
    count = counter(job.estimate)
    with opened_reading(
        job.path, format=job.format, lenient=job.lenient, most_bytes=job.most_bytes
    ) as reading:
        told.put(Begun(format=reading.format.name))
        batch: list[Sized] = []
        for step in reading.steps():
            sizes = message_sizes(step, count) if isinstance(step, Message) else None
            batch.append((step, sizes))
            if len(batch) >= _BATCH:
                told.put(batch)
                batch = []
        told.put(batch)
        told.put(Ended(skipped=tuple(reading.skipped)))
