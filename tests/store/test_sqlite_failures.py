"""SQLite files that cannot be used: each is reported with advice and left unchanged."""

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import foldmark
from foldmark.errors import BadInput, FoldmarkError, StoreError
from foldmark.session.session import state_of
from foldmark.store.maintenance import backup
from foldmark.store.sqlite import COMPANION_SUFFIXES
from foldmark.store.store import Store
from tests.support.stored_sessions import bytes_of, exported, opened, work

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
SIDE_FILES = COMPANION_SUFFIXES[:2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A closed store with a session and a fork in it."""
    path = tmp_path / "store.db"
    with opened(str(path), "s") as session:
        work(session, 40)
        session.prune()
        session.compact("Folded.")
        session.user("And now?")
        work(session, 5)
        session.fork(session="f").close()
    assert not any(Path(f"{path}{suffix}").exists() for suffix in SIDE_FILES)
    return path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(where: object, match: str, session: str | None = "s") -> StoreError:
    with pytest.raises(StoreError, match=match) as raised:
        foldmark.open(str(where), session=session)
    return raised.value


# --- files that are not our stores -----------------------------------------------------------


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with opened(str(path), "s") as session:
        session.user("Hello")
    assert len(exported(str(path))["messages"]) == 1


@pytest.mark.parametrize("content", [b"some text\n", b"SQLite", b"\0" * 4096, b"PK\3\4" * 900])
def test_a_file_that_is_not_a_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    assert str(path) in str(refused(path, "not a database"))
    assert path.read_bytes() == content
    assert names_in(tmp_path) == ["store.db"]


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sessions (id)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    refused(path, "another program")
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["other.db"]


def test_paths_that_are_not_regular_files_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be opened or written: (Is a directory|this is no regular file)")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "no regular file")
    (tmp_path / "plain").write_text("x")
    refused(tmp_path / "plain" / "store.db", "cannot be opened or written: Not a directory")
    refused(tmp_path / ("x" * 300), "cannot be opened or written: File name too long")
    refused(f"{tmp_path}/a\0b", "NUL")
    refused("/dev/null", "no regular file")
    assert names_in(tmp_path) == ["pipe", "plain"]


@pytest.mark.parametrize(
    "address",
    ["mysql://me:secret@h/db", "postgresql+psycopg://me:secret@h/db", "PostgreSQL://h/secret"],
)
def test_an_address_of_another_kind_is_not_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="unknown kind of store") as raised:
        Store.open(address)
    assert "secret" not in str(raised.value)
    assert names_in(tmp_path) == []


def test_an_unknown_users_home_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with opened("~nobody-here/store.db", "s") as session:
        session.user("Hello")
    assert (tmp_path / "~nobody-here" / "store.db").is_file()


# --- privacy ---------------------------------------------------------------------------------


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_all_created_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store.db"
    with opened(str(path), "s") as session:
        session.user("Hello")
        files = [path, *(Path(f"{path}{suffix}") for suffix in SIDE_FILES)]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# --- damage ----------------------------------------------------------------------------------


def problems_of(where: Path) -> list[Exception]:
    """The errors of all reading calls on a store that may be damaged; each has one of our types."""
    problems: list[Exception] = []

    def attempt(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - checked below
            problems.append(error)

    def read_all() -> None:
        with opened(str(where), "s") as session:
            for call in (session.view, session.export, session.plan, session.operations):
                attempt(call)
            attempt(session.events)
            attempt(lambda: session.search("parser"))
            attempt(lambda: session.view(before=2))
            attempt(lambda: session.recall("h5"))

    attempt(read_all)
    untyped = [error for error in problems if not isinstance(error, StoreError | BadInput)]
    assert not untyped, "".join(traceback.format_exception(untyped[0]))
    return problems


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_reported_and_not_made_worse(file: Path, seed: int) -> None:
    whole = file.read_bytes()
    choice = random.Random(seed)  # noqa: S311 - test data
    detected = 0
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(choice.choice((1, 2, 8, 40))):
            start, size = choice.randrange(100, len(whole)), choice.choice((1, 4, 64, 400))
            noise = choice.choice((choice.randbytes(size), b"\0" * size, b"\xff" * size))
            damaged[start : start + size] = noise[: len(whole) - start]
        for suffix in SIDE_FILES:
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        file.write_bytes(damaged)
        detected += bool(problems_of(file))
        assert file.read_bytes() == bytes(damaged)
    assert detected > 5


def test_a_truncated_file_is_reported(file: Path) -> None:
    whole = file.read_bytes()
    for length in (10, 50, 512, 4095, 4096, 8192, len(whole) // 2, len(whole) - 4096):
        file.write_bytes(whole[:length])
        assert problems_of(file), length
        assert file.read_bytes() == whole[:length]


def test_an_intact_file_has_no_problems(file: Path) -> None:
    assert problems_of(file) == []


# --- space -----------------------------------------------------------------------------------


def integrity(path: Path) -> list[tuple[str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall()
    finally:
        connection.close()


def check_full_disk(session: foldmark.Session, free: Callable[[], object], path: Path) -> None:
    """Write until the disk is full: no acknowledged message is lost, and the session goes on."""
    texts: list[str] = []
    session.user("First")

    def write(size: int) -> None:
        for number in range(10_000):
            text = f"{number} " + random.Random(number).randbytes(size).hex()  # noqa: S311
            session.user(text)
            texts.append(text)

    for size in (3_000, 1_000, 9_000):
        with pytest.raises(StoreError, match=r"full; .* try again"):
            write(size)
        assert bytes_of(session.view()).count(b" ") >= len(texts)
    assert len(texts) > 5
    free()
    session.user("Space again")
    stored = [getattr(message.parts[0], "text", "") for message in session.export().messages]
    assert stored[: len(texts) + 1] == ["First", *texts]
    assert stored[-1] == "Space again"
    session.close()
    assert integrity(path) == [("ok",)]
    assert len(exported(str(path))["messages"]) == len(stored)


def test_a_store_at_its_size_limit_goes_on_when_there_is_space(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    session = opened(str(path), "s")
    engine = state_of(session).store.engine
    pages = engine.read("PRAGMA page_count")[0][0]
    engine.read(f"PRAGMA max_page_count = {pages + 100}")
    check_full_disk(session, lambda: engine.read("PRAGMA max_page_count = 100000"), path)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A mounted disk of 2 MB."""
    if not ROOT or shutil.which("mount") is None:
        pytest.skip("no permission to mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="fm-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("no small disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def test_a_session_goes_on_after_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 700_000)
    session = opened(str(small_disk / "store.db"), "s", durable=True)
    check_full_disk(session, ballast.unlink, small_disk / "store.db")


# --- permission ------------------------------------------------------------------------------


def run_unprivileged(job: Callable[[], None]) -> str:
    """Run a job as a user without rights; return its error in one line, or "fine"."""
    if not ROOT:
        return error_of(job)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        os.write(writing, error_of(job).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(child, 0)
    return result


def error_of(job: Callable[[], None]) -> str:
    try:
        job()
    except FoldmarkError as error:
        return f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - reported to the test
        return f"untyped {error!r}"
    return "fine"


@pytest.fixture
def shared_file(file: Path) -> Iterator[Path]:
    """The store in a folder that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix="fm-shared-"))
    path = folder / "store.db"
    shutil.copy(file, path)
    folder.chmod(0o755)
    path.chmod(0o644)
    yield path
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_an_unreadable_file_is_reported(shared_file: Path) -> None:
    shared_file.chmod(0)
    error = run_unprivileged(lambda: opened(str(shared_file), "s").close())
    assert error.startswith("StoreError: ")
    assert "ermission" in error


def test_a_read_only_file_can_be_read(shared_file: Path) -> None:
    before = shared_file.read_bytes()

    def read() -> None:
        with opened(str(shared_file), "s") as session:
            assert session.view().messages
            assert session.search("parser")

    def write() -> None:
        with opened(str(shared_file), "s") as session:
            session.user("Hello")

    shared_file.chmod(0o444)
    shared_file.parent.chmod(0o777)
    assert run_unprivileged(read) == "fine"
    assert "read-only" in run_unprivileged(write)
    shared_file.parent.chmod(0o555)
    assert run_unprivileged(write).startswith("StoreError: ")
    assert shared_file.read_bytes() == before


def test_a_read_only_folder_is_reported(shared_file: Path) -> None:
    shared_file.parent.chmod(0o555)
    path = shared_file.parent / "new" / "x.db"
    error = run_unprivileged(lambda: opened(str(path), "s").close())
    assert error == f"StoreError: {path}: cannot be opened or written: Permission denied"


def test_without_psycopg_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import foldmark\n"
        "try: foldmark.open('postgresql://localhost/x')\n"
        "except foldmark.StoreError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'foldmark[postgres]'" in run.stdout


def test_no_backup_is_made_of_a_damaged_store(file: Path, tmp_path: Path) -> None:
    with file.open("r+b") as data:
        data.seek(3 * 4096)  # pages after the one that opening reads
        data.write(random.Random(1).randbytes(6 * 4096))  # noqa: S311 - test data
    with Store.open(file) as store, pytest.raises(StoreError, match="damaged"):
        backup(store, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
