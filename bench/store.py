"""The store: opening, marking, appending, searching, and how large it is.

Wall-clock time here: waiting for the disk is part of it. Rivals take turns in one run.
"""

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import foldmark
from bench.lab.generate import generate
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    SessionInfo,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.values import Json, encode, from_plain
from foldmark.policy import FOLDMARK
from foldmark.session.session import state_of
from foldmark.store.importing import SessionImport
from foldmark.store.loading import Slice
from foldmark.store.store import Store
from foldmark.tokens.counters import counter

from .core import pivot
from .measure import millis
from .stores import postgres_server

Row = tuple[str, ...]
CORPUS = Path(os.environ.get("FOLDMARK_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
SHOWN = 40
QUERIES = ("order", "the order was refunded", "zebra", "def test", "timeo")


@contextmanager
def engines() -> Generator[dict[str, Callable[[str], str]]]:
    """How to name a new store of each engine."""
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as folder, postgres_server() as server:
        yield {
            "SQLite": lambda name: str(Path(folder) / f"{name}.db"),
            "PostgreSQL": server,
        }


def wall(job: Callable[[], object]) -> float:
    start = perf_counter()
    job()
    return perf_counter() - start


def in_turns(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            times[name].append(wall(job))
    return {name: median(found) for name, found in times.items()}


def filled(store: Store, name: str, messages: Sequence[Message]) -> None:
    """Write a session, and let it be found by its words."""
    with store.engine.writing():
        row = store.insert_session(SessionInfo(id=name), FOLDMARK.estimate)
        filling = SessionImport(store.engine, row, counter(FOLDMARK.estimate))
        for message in messages:
            filling.add(message)
        filling.finish()
    store.index(row.key)


# --- opening ---


def opening() -> Iterator[Row]:
    """A short and a long session with the same view."""
    made = generate(messages=100_000 + SHOWN, output_chars=300).messages
    after = made[-SHOWN:]
    with engines() as named:
        for engine, name in named.items():
            where = name("opening")
            store = Store.open(where, durable=False)
            for before in (100 - SHOWN, 100_000 - SHOWN):
                filled(store, f"s{before}", [*made[:before], *pivot(), *after])
            yield from _opening_rows(engine, where, store)
            store.close()


def _opening_rows(engine: str, where: str, store: Store) -> Iterator[Row]:
    names = [row.id for row in reversed(store.sessions())]
    long = store.resolve(names[1])

    def view(name: str) -> Callable[[], object]:
        def job() -> None:
            with foldmark.open(where, session=name, window=200_000) as session:
                assert len(session.view().indexes) == SHOWN + 2

        return job

    def everything() -> None:
        loaded = store.load(long.key, Slice(everything=True), estimate=FOLDMARK.estimate)
        assert len(loaded.messages) == long.places

    times = in_turns({name: view(name) for name in names}, rounds=31)
    short, other = (times[name] for name in names)
    whole = in_turns({"all": everything}, rounds=3)["all"]
    yield (
        engine,
        millis(short),
        millis(other),
        f"{other / short:.2f}",
        millis(whole),
        f"1/{whole / other:.0f}",
    )


# --- marking ---


def marking() -> Iterator[Row]:
    """Thousands of marks, against one small transaction that waits for the disk."""
    with engines() as named:
        for engine, name in named.items():
            where = name("marking")
            store = Store.open(where)
            filled(store, "many", [*_outputs(8_800)])
            store.close()
            with foldmark.open(where, session="many", window=50_000, output=1_000) as session:
                session.user("go on")
                yield (engine, *_mark_row(session, where if engine == "SQLite" else None))


def _mark_row(session: foldmark.Session, path: str | None) -> Row:
    marks: list[float] = []
    small: list[float] = []
    pruned = 0
    for number in range(7):
        small.append(wall(lambda number=number: session.user(f"one small write {number}")))
        marks.append(wall(session.prune))
        pruned = session.events(session.info.events - 1)[-1].data["parts"]
        session.undo()
    one = median(small) if path is None else _bare_commit(path)
    alone = _marks_alone(session, pruned)
    return (
        f"{pruned:,}",
        millis(median(marks)),
        millis(alone),
        millis(one),
        f"{alone / one:.1f}",
    )


def _outputs(number: int) -> Iterator[Message]:
    yield Message(info=UserInfo(id="ask"), parts=(TextPart(text="Look at all of it"),))
    for place in range(number + 60):
        state = Completed(input={"command": f"look {place}"}, output=f"row {place} of many\n" * 40)
        part = ToolPart(id=f"p{place}", tool="bash", call_id=f"c{place}", state=state)
        info = AssistantInfo(id=f"m{place}", finish="tool-calls")
        yield Message(info=info, parts=(part,))


def _marks_alone(session: foldmark.Session, number: int) -> float:
    """The transaction of the marks, without the plan before it and the view after it."""
    times: list[float] = []
    act = 0

    def write() -> None:
        nonlocal act
        marks = range(1, number + 1)
        act = state_of(session).write(lambda change: change.prune(marks, 1))  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]

    for _ in range(7):
        times.append(wall(write))
        session.undo(act)
    return median(times)


def _bare_commit(where: str) -> float:
    path = Path(where).with_name("bare.db")
    bare = sqlite3.connect(path, isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute("CREATE TABLE t (n INTEGER)")
    times = [wall(lambda: bare.execute("INSERT INTO t VALUES (1)")) for _ in range(200)]
    bare.close()
    return median(times)


# --- appending ---


def appending() -> Iterator[Row]:
    """Messages one per transaction, against bare inserts of the same bytes."""
    made = generate(messages=1_200, output_chars=1_400).messages
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as folder:
        yield _append_row(Path(folder), made, durable=True)
        yield _append_row(Path(folder), made, durable=False)


def _append_row(folder: Path, made: Sequence[Message], *, durable: bool) -> Row:
    bare = _bare(folder / f"bare{durable}.db", durable=durable)
    ours: list[float] = []
    theirs: list[float] = []
    insert = "INSERT INTO m (session, place, data) VALUES (1, ?, ?)"
    with foldmark.open(folder / f"{durable}.db", window=200_000, durable=durable) as session:
        for place, message in enumerate(made):
            row = (place, encode(message))
            say = session.user if message.is_user else session.record
            theirs.append(wall(lambda row=row: bare.execute(insert, row)))
            ours.append(wall(lambda say=say, message=message: say(message)))
    bare.close()
    size = sum(len(encode(message)) for message in made) / len(made)
    return (
        "each commit on the disk (default)" if durable else "durable = false",
        f"{size / 1000:.1f} kB",
        millis(sum(theirs) / len(theirs)),
        millis(sum(ours) / len(ours)),
        f"{sum(theirs) / sum(ours):.0%}",
        f"{median(theirs) / median(ours):.0%}",
    )


def _bare(path: Path, *, durable: bool) -> sqlite3.Connection:
    bare = sqlite3.connect(path, isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    bare.execute(
        "CREATE TABLE m (key INTEGER PRIMARY KEY, session INTEGER, place INTEGER, data BLOB, "
        "UNIQUE (session, place))"
    )
    return bare


# --- searching ---


def searching() -> Iterator[Row]:
    """A hundred megabytes of folded output."""
    made = generate(messages=18_000, output_chars=5_500).messages
    size = sum(len(encode(message)) for message in made)
    with engines() as named:
        for engine, name in named.items():
            store = Store.open(name("searching"), durable=False)
            filled(store, "large", [*made, *pivot()])
            sizes = f"{size / 1e6:.0f} MB", f"{store.engine.size() / 1e6:.0f} MB"
            store.close()
            with foldmark.open(name("searching"), session="large", window=200_000) as session:
                yield (engine, *sizes, *_search_times(session))


def _search_times(session: foldmark.Session) -> Iterator[str]:
    def job(query: str) -> Callable[[], object]:
        return lambda: session.search(query)

    for query, time in in_turns({query: job(query) for query in QUERIES}, rounds=9).items():
        yield f"{millis(time)} ({len(session.search(query))})"


# --- size ---


def sizes() -> Iterator[Row]:
    """Every record of the corpus, stored whole."""
    if not CORPUS.is_dir():
        yield ("not measured: no corpus", "", "", "", "")
        return
    with engines() as named:
        for engine, name in named.items():
            store = Store.open(name("sizes"), durable=False)
            raw = sum(_stored(store, path) for path in sorted(CORPUS.rglob("*.*")))
            store.engine.tidy()
            size = store.engine.size()
            yield engine, f"{raw / 1e6:.1f} MB", f"{size / 1e6:.1f} MB", f"{size / raw:.0%}"
            store.close()


def _stored(store: Store, path: Path) -> int:
    """The bytes of a transcript, whose records were stored as messages of one part each."""
    if path.suffix not in {".json", ".jsonl", ".traj"} or path.name == "manifest.json":
        return 0
    messages = [
        from_plain(_as_message(place, record), Message)
        for place, record in enumerate(_records(path))
    ]
    filled(store, str(path.relative_to(CORPUS)), messages)
    return path.stat().st_size


def _records(path: Path) -> list[Any]:
    text = path.read_text(errors="replace")
    try:
        held: Any = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(held, dict):
        inner: Any = cast("Json", held).get("messages")
        return cast("list[Any]", inner) if isinstance(inner, list) else [held]
    return cast("list[Any]", held) if isinstance(held, list) else [held]


def _as_message(place: int, record: Any) -> Json:
    if isinstance(record, dict) and {"info", "parts"} <= set(cast("Json", record)):
        return cast("Json", record)  # an OpenCode export
    part: Json = {"type": "record", "record": record}
    return {"info": {"role": "assistant", "id": f"m{place}"}, "parts": [part]}
