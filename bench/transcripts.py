"""Reading real transcripts, and taking them into a store, against bare `json.loads`."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from foldmark.cli.options import opened_store
from foldmark.policy import FOLDMARK
from foldmark.session.settings import load_settings
from foldmark.store.store import Store
from foldmark.transcripts.format import formats
from foldmark.transcripts.import_files import BatchImport, ImportTarget
from foldmark.transcripts.read import open_reading
from foldmark.transcripts.store import store_reading

from .measure import millis, seconds
from .store import CORPUS, wall

_LARGEST = 10
_ROUNDS = 9


def corpus_files() -> list[Path]:
    """The transcripts of formats that are known, without what is written about them."""
    known = {format.name for format in formats()}
    return sorted(path for path in CORPUS.glob("*/*") if path.parent.name in known)


def reading() -> Iterator[tuple[str, ...]]:
    if not CORPUS.is_dir():
        yield ("not measured: no corpus", *("" for _ in range(7)))
        return
    formats()  # loaded once, before anything is measured
    for path in sorted(corpus_files(), key=lambda path: -path.stat().st_size)[:_LARGEST]:
        if path.suffix == ".md":
            continue
        with tempfile.TemporaryDirectory() as folder:
            times = _times(path, Path(folder))
        bare = times["bare"]
        yield (
            f"{path.parent.name}/{path.name[:28]}",
            f"{path.stat().st_size / 1e6:.1f} MB",
            millis(bare),
            millis(times["parse"]),
            f"{times['parse'] / bare:.2f}",
            millis(times["store"]),
            f"{times['store'] / bare:.2f}",
            f"{times['again'] / bare:.2f}",
        )


def _times(path: Path, folder: Path) -> dict[str, float]:
    """The best of some rounds, each with all rivals in turn."""
    best: dict[str, float] = {}
    for number in range(_ROUNDS):
        with Store.open(folder / f"{number}.db") as store:
            jobs: dict[str, Callable[[], object]] = {
                "bare": lambda: _loaded(path),
                "parse": lambda: _parsed(path),
                "store": lambda store=store: _stored(path, store),
                "again": lambda store=store: _stored(path, store),
            }
            for name, job in jobs.items():
                best[name] = min(best.get(name, 1e9), seconds(job))
    return best


def _loaded(path: Path) -> None:
    data = path.read_bytes()
    try:
        json.loads(data)
    except json.JSONDecodeError:
        for line in data.splitlines():
            json.loads(line)


def _parsed(path: Path) -> None:
    with open_reading(path) as reading:
        for _ in reading.steps():
            pass


def _stored(path: Path, store: Store) -> None:
    with open_reading(path) as reading:
        store_reading(store, reading, estimate=FOLDMARK.estimate)


def folder() -> Iterator[tuple[str, ...]]:
    if not CORPUS.is_dir():
        yield ("not measured: no corpus", *("" for _ in range(5)))
        return
    files = [str(path) for path in corpus_files()]
    size = sum(Path(file).stat().st_size for file in files)
    with tempfile.TemporaryDirectory() as place:
        where = str(Path(place) / "all.db")
        for name in ("the first time", "again"):
            kept: list[int] = []
            seconds = wall(lambda kept=kept: kept.append(_imported(files, where)))
            yield (
                name,
                f"{len(files)}",
                f"{size / 1e6:.1f} MB",
                f"{kept[0]}",
                f"{seconds:.2f} s",
                f"{size / 1e6 / seconds:.0f} MB/s",
            )


def _imported(files: list[str], where: str) -> int:
    with ExitStack() as stack:
        settings = load_settings(store=where)
        target = ImportTarget(
            location=where,
            open=lambda: stack.enter_context(opened_store(settings)),
            create=lambda: stack.enter_context(opened_store(settings, create=True)),
            estimate=settings.rules().estimate,
        )
        batch = BatchImport(target, max_size=2**29)
        for file in batch.files(files):
            batch.import_file(file)
        return len(batch.imported)
