"""Files that cannot be used as they are: each is told as such, in words, and left as it was."""

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
from foldmark.store.store import Store
from tests.support.stored_sessions import bytes_of, exported, opened, work

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
SIDE_FILES = ("-wal", "-shm")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a session in it, closed."""
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
    with pytest.raises(StoreError, match=match) as told:
        foldmark.open(str(where), session=session)
    return told.value


# --- what is no store of ours ----------------------------------------------------------------


def test_an_empty_file_is_made_into_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with opened(str(path), "s") as session:
        session.user("Hello")
    assert len(exported(str(path))["messages"]) == 1


@pytest.mark.parametrize("content", [b"some text\n", b"SQLite", b"\0" * 4096, b"PK\3\4" * 900])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
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


@pytest.mark.parametrize("version", [2, 99])
def test_a_store_of_another_version_is_left_alone(file: Path, version: int) -> None:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    refused(file, rf"another Foldmark \(schema {version}, this one needs 1\)")
    assert file.read_bytes() == before


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
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
    [
        "mysql://me:secret@host/db",
        "postgresql+psycopg://me:secret@host/db",
        "PostgreSQL://h/secret",
    ],
)
def test_an_address_of_another_kind_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="unknown kind of store") as told:
        Store.open(address)
    assert "secret" not in str(told.value)
    assert names_in(tmp_path) == []


def test_a_home_of_nobody_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_all_that_is_made_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store.db"
    with opened(str(path), "s") as session:
        session.user("Hello")
        made = [path, *(Path(f"{path}{suffix}") for suffix in SIDE_FILES)]
        assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o600] * 3
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# --- damage ----------------------------------------------------------------------------------


def everything(where: Path) -> list[Exception]:
    """What goes wrong where all is asked of a store that may be damaged."""
    problems: list[Exception] = []

    def tried(asked: Callable[[], object]) -> None:
        try:
            asked()
        except Exception as error:  # noqa: BLE001 - which it is, is the question
            problems.append(error)

    def all_of_it() -> None:
        with opened(str(where), "s") as session:
            tried(session.view)
            tried(session.export)
            tried(session.plan)
            tried(session.operations)
            tried(session.events)
            tried(lambda: session.search("wheel"))
            tried(lambda: session.view(before=2))
            tried(lambda: session.recall("h5"))

    tried(all_of_it)
    return problems


def untyped(problems: list[Exception]) -> list[str]:
    return [
        "".join(traceback.format_exception(error))
        for error in problems
        if not isinstance(error, StoreError | BadInput)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_told_and_not_made_worse(file: Path, seed: int) -> None:
    whole = file.read_bytes()
    choice = random.Random(seed)  # noqa: S311 - test data
    found = 0
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(choice.choice((1, 2, 8, 40))):
            place, size = choice.randrange(100, len(whole)), choice.choice((1, 4, 64, 400))
            noise = choice.choice((choice.randbytes(size), b"\0" * size, b"\xff" * size))
            damaged[place : place + size] = noise[: len(whole) - place]
        for suffix in SIDE_FILES:
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        file.write_bytes(damaged)
        problems = everything(file)
        assert untyped(problems) == []
        assert file.read_bytes() == bytes(damaged)
        found += bool(problems)
    assert found > 5


def test_a_file_that_was_cut_off_is_told(file: Path) -> None:
    whole = file.read_bytes()
    for length in (10, 50, 512, 4095, 4096, 8192, len(whole) // 2, len(whole) - 4096):
        file.write_bytes(whole[:length])
        problems = everything(file)
        assert problems, length
        assert untyped(problems) == []
        assert file.read_bytes() == whole[:length]


def test_a_sound_file_has_no_problem(file: Path) -> None:
    assert everything(file) == []


# --- room ------------------------------------------------------------------------------------


def integrity(path: Path) -> list[tuple[str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall()
    finally:
        connection.close()


def goes_on_after(session: foldmark.Session, make_room: Callable[[], object], path: Path) -> None:
    """Write until there is no room; then nothing that was acknowledged is lost."""
    said: list[str] = []
    session.user("First")

    def talk(size: int) -> None:
        for number in range(10_000):
            text = f"{number} " + random.Random(number).randbytes(size).hex()  # noqa: S311
            session.user(text)
            said.append(text)

    for size in (3_000, 1_000, 9_000):
        with pytest.raises(StoreError, match=r"full; .* try again"):
            talk(size)
        assert bytes_of(session.view()).count(b" ") >= len(said)
    assert len(said) > 5
    make_room()
    session.user("There is room again")
    told_now = [message.parts[0] for message in session.export().messages]
    texts = [getattr(part, "text", "") for part in told_now]
    assert texts[: len(said) + 1] == ["First", *said]
    assert texts[-1] == "There is room again"
    session.close()
    assert integrity(path) == [("ok",)]
    assert len(exported(str(path))["messages"]) == len(texts)


def test_a_store_at_its_limit_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    session = opened(str(path), "s")
    engine = state_of(session).store.engine
    pages = engine.read("PRAGMA page_count")[0][0]
    engine.read(f"PRAGMA max_page_count = {pages + 100}")
    goes_on_after(session, lambda: engine.read("PRAGMA max_page_count = 100000"), path)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of two megabytes."""
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


def test_a_full_disk_is_told_and_a_session_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 700_000)
    session = opened(str(small_disk / "store.db"), "s", durable=True)
    goes_on_after(session, ballast.unlink, small_disk / "store.db")


# --- permission ------------------------------------------------------------------------------


def as_anyone(job: Callable[[], None]) -> str:
    """Do a job as a user without rights; what it raised, in one line."""
    if not ROOT:
        return told_by(job)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        os.write(writing, told_by(job).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


def told_by(job: Callable[[], None]) -> str:
    try:
        job()
    except FoldmarkError as error:
        return f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - which it is, is the question
        return f"untyped {error!r}"
    return "fine"


@pytest.fixture
def shared_file(file: Path) -> Iterator[Path]:
    """The store, in a folder that anyone may read."""
    folder = Path(tempfile.mkdtemp(prefix="fm-shared-"))
    path = folder / "store.db"
    shutil.copy(file, path)
    folder.chmod(0o755)
    path.chmod(0o644)
    yield path
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_that_may_not_be_read_is_told(shared_file: Path) -> None:
    shared_file.chmod(0)
    told = as_anyone(lambda: opened(str(shared_file), "s").close())
    assert told.startswith("StoreError: ")
    assert "ermission" in told


def test_a_file_that_may_only_be_read_can_be_read(shared_file: Path) -> None:
    before = shared_file.read_bytes()

    def read() -> None:
        with opened(str(shared_file), "s") as session:
            assert session.view().messages
            assert session.search("wheel")

    def write() -> None:
        with opened(str(shared_file), "s") as session:
            session.user("Hello")

    shared_file.chmod(0o444)
    shared_file.parent.chmod(0o777)
    assert as_anyone(read) == "fine"
    assert "read-only" in as_anyone(write)
    shared_file.parent.chmod(0o555)
    told = as_anyone(write)
    assert told.startswith("StoreError: ")
    assert shared_file.read_bytes() == before


def test_a_folder_that_may_not_be_written_to_is_told(shared_file: Path) -> None:
    shared_file.parent.chmod(0o555)
    told = as_anyone(lambda: opened(str(shared_file.parent / "new" / "x.db"), "s").close())
    assert (
        told
        == f"StoreError: {shared_file.parent}/new/x.db: cannot be opened or written: Permission denied"
    )


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
        data.seek(3 * 4096)  # pages of tables, behind the one that opening reads
        data.write(random.Random(1).randbytes(6 * 4096))  # noqa: S311 - test data
    store = Store.open(file)
    with pytest.raises(StoreError, match="damaged"):
        backup(store, tmp_path / "copy.db")
    store.close()
    assert not (tmp_path / "copy.db").exists()
