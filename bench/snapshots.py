"""Snapshots of a folder: what one costs, of how many files, our own CPU and git's together."""

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from foldmark.snapshots.snapshots import Snapshots

from .measure import millis

FILES = (1_000, 20_000)
TIMES = 15
Row = tuple[str, ...]


def spent() -> float:
    """CPU seconds of this process and of the children that ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def taking() -> Iterator[Row]:
    """The first snapshot of a folder, and later ones after each kind of change."""
    for files in FILES:
        with tempfile.TemporaryDirectory(prefix="fm-snapshots-") as made:
            yield _row(Path(made), files)


def _row(place: Path, files: int) -> Row:
    folder = place / "work"
    for number in range(files):
        path = _file(folder, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def function_{number}():\n    return {number}\n" * 20)
    shots = Snapshots(folder, home=place / "home")
    began, wall = spent(), time.perf_counter()
    shots.take()
    first, wall = spent() - began, time.perf_counter() - wall
    time.sleep(2.1)  # until then, git reads files again that are as new as its index
    shots.take()
    return (
        f"{files:,}",
        f"{wall:.1f} s",
        millis(first),
        millis(_usual(shots, lambda _: None)),
        millis(_usual(shots, lambda n: _file(folder, n).write_text(f"edited {n}\n"))),
        millis(_usual(shots, lambda n: (folder / f"new {n}").write_text(f"new {n}\n"))),
    )


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number // 400}/{number // 20}/module {number}.py"


def _usual(shots: Snapshots, change: Callable[[int], object]) -> float:
    """The CPU of a usual snapshot, each after a change."""
    took: list[float] = []
    for number in range(TIMES):
        change(number)
        began = spent()
        shots.take()
        took.append(spent() - began)
    return median(took)
