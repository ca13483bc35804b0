"""Commands on a whole store: import, export, sessions, gc and backup, on both engines."""

import json
import os
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest
from bench.lab.generate import generate
from msgspec.structs import replace

import foldmark
from foldmark.cli.commands.sessions import short_names
from foldmark.cli.text import ago
from foldmark.model.messages import SessionInfo, Transcript, decode_transcript
from foldmark.store.store import Store
from foldmark.tokens.counters import counter
from tests.support.cli_program import (
    FOLDMARK,
    answered,
    called,
    ended,
    environment,
    filled,
    printed,
    refused,
    session,
    stored,
    worked,
)

READING = {
    "sessions": (),
    "show": ("latest",),
    "search": ("latest", "wheel"),
    "recall": ("latest", "h1"),
    "events": ("latest",),
    "export": ("latest",),
    "undo": ("latest",),
    "revert": ("latest", "h1"),
    "fork": ("latest",),
    "gc": (),
    "backup": ("copy.db",),
}
Capture = pytest.CaptureFixture[str]


def named(name: str, title: str = "How the wheels turn") -> Transcript:
    made = session(calls=4)
    return replace(made, info=replace(made.info, id=name, title=title))


def ids(where: object) -> list[str]:
    return [held["id"] for held in answered("sessions", "--store", where)["sessions"]]


@pytest.mark.parametrize("command", ["import", *READING])
def test_every_command_on_a_store_has_help_with_an_example(command: str):
    output = printed(command, "--help")
    assert f"Example: foldmark {command}" in output
    for option in ("--store", "--json"):
        assert option in output


# --- where the store is --------------------------------------------------------------------


@pytest.mark.parametrize("command", READING)
def test_only_import_makes_a_store(
    command: str,
    tmp_path: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
):
    monkeypatch.chdir(tmp_path)
    own = own_home / "data" / "foldmark" / "foldmark.db"
    line = refused(capsys, command, *READING[command])
    assert not own.parent.exists()
    assert line == f"foldmark: no store at {own}; begin with: foldmark import FILE\n"
    Path("empty.db").touch()
    assert "no store at empty.db" in refused(
        capsys, command, *READING[command], "--store", "empty.db"
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "empty.db"]
    assert not Path("empty.db").stat().st_size


def test_the_users_own_store_is_private_and_the_same_in_every_folder(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    printed("import", stored(tmp_path, named("kept")))
    own = own_home / "data" / "foldmark" / "foldmark.db"
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    monkeypatch.chdir(there)
    assert "kept" in printed("sessions")
    assert not [*here.iterdir(), *there.iterdir()]
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # by its specification to be ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    assert answered("import", stored(tmp_path, named("kept")))["store"] == str(
        tmp_path / ".local" / "share" / "foldmark" / "foldmark.db"
    )


def test_a_database_without_our_tables_stays_without_them(where: str, capsys: Capture):
    assert "no store at" in refused(capsys, "sessions", "--store", where)
    assert "no store at" in refused(capsys, "sessions", "--store", where)


def test_the_store_of_the_settings_is_used_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    filled("file.db", named("of-the-file"))
    filled("variable.db", named("of-the-variable"))
    filled("option.db", named("of-the-option"))
    (tmp_path / "foldmark").mkdir()
    (tmp_path / "foldmark" / "foldmark.toml").write_text('store = "../file.db"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "of-the-file" in printed("sessions")
    Path("foldmark.toml").write_text('store = "variable.db"\n')
    assert "foldmark.toml: line 1: store cannot be set" in refused(capsys, "sessions")
    Path("foldmark.toml").unlink()
    monkeypatch.setenv("FOLDMARK_STORE", "variable.db")
    assert "of-the-variable" in printed("sessions")
    assert "of-the-option" in printed("sessions", "--store", "option.db")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://miller:se-cret@localhost:1/db",
        "postgresql://miller:se@cret/x@localhost:1/db",
        "postgresql://miller:x@localhost:1/db?password=se-cret",
        "host=localhost port=1 dbname=db password=se-cret",
        "host=localhost port=1 dbname=db password='se cret'",
    ],
)
def test_a_password_is_never_told(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.setenv("FOLDMARK_WAIT_SECONDS", "1")
    path = stored(tmp_path, named("ses_a"))
    for command in (("sessions",), ("import", path)):
        line = refused(capsys, *command, "--store", address)
        assert line.startswith("foldmark: postgresql")
        assert "cret" not in line


def test_a_file_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path, capsys: Capture):
    path = tmp_path / "notes.txt"
    path.write_text("Bread, milk, and more than sixteen bytes of it")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    before = path.read_bytes(), foreign.read_bytes()
    assert "no database" in refused(capsys, "sessions", "--store", path)
    assert "another program" in refused(capsys, "sessions", "--store", foreign)
    assert "another program" in refused(capsys, "import", foreign, "--store", tmp_path / "new.db")
    assert "regular file" in refused(capsys, "sessions", "--store", tmp_path)
    assert before == (path.read_bytes(), foreign.read_bytes())


# --- import --------------------------------------------------------------------------------


def test_import_tells_what_it_brought(where: str, tmp_path: Path):
    made = generate(3, messages=300, pivots=True, pruned=True, window=40_000)
    path = stored(tmp_path, made)
    found = answered("import", path, "--store", where)
    (told,) = found["imported"]
    assert (told["id"], told["messages"], told["file"]) == (made.info.id, 300, str(path))
    log = foldmark.Log(counter("classes"), made.messages)
    assert (told["pivots"], told["pruned"]) == (len(log.pivots), len(log.marks))
    assert told["pivots"] > 0 < told["pruned"]
    assert found["refused"] == []
    output = printed("import", path, "--as", "again", "--store", where)
    assert f"{told['tokens']:,}" in output
    assert ids(where) == ["again", made.info.id]


def test_a_session_that_is_there_already_is_not_doubled_and_another_of_its_id_gets_its_own(
    where: str, tmp_path: Path
):
    path = stored(tmp_path, named("ses_a"))
    printed("import", path, "--store", where)
    assert "1 file unchanged" in printed("import", path, "--store", where)
    assert ids(where) == ["ses_a"]
    other = replace(named("ses_a"), messages=named("ses_a").messages[1:])
    told = answered("import", stored(tmp_path, other, "other.json"), "--store", where)
    (kept,) = told["imported"]
    assert kept["state"] == "new"
    assert kept["id"].startswith("ses_a-")
    printed("import", path, "--as", "ses_b", "--store", where)
    assert ids(where) == ["ses_b", kept["id"], "ses_a"]


def test_one_bad_file_fails_alone(where: str, tmp_path: Path):
    good = [stored(tmp_path, named(name), f"{name}.json") for name in ("ses_a", "ses_b")]
    bad = tmp_path / "bad.json"
    bad.write_text('{"info": ')
    code, output, errors = called(
        "import", good[0], bad, good[1], tmp_path / "none.json", "--store", where, "--json"
    )
    assert code == 2
    assert [held["id"] for held in json.loads(output)["imported"]] == ["ses_a", "ses_b"]
    assert [held["file"] for held in json.loads(output)["refused"]] == [
        str(bad),
        str(tmp_path / "none.json"),
    ]
    first, second = errors.splitlines()
    assert first.startswith(f"foldmark: {bad}: ")
    assert second.endswith("none.json: there is no such file")


def test_what_cannot_be_read_makes_no_store(tmp_path: Path, capsys: Capture):
    refused(capsys, "import", tmp_path / "none.json", "--store", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_standard_input_is_imported_too(tmp_path: Path):
    data = stored(tmp_path, named("ses_a")).read_bytes()
    code, _, errors = called("import", "-", "--store", tmp_path / "a.db", data=data)
    assert (code, errors) == (0, "")
    assert ids(tmp_path / "a.db") == ["ses_a"]


def test_ids_that_could_not_be_asked_for_are_refused(tmp_path: Path, capsys: Capture):
    good, place = stored(tmp_path, named("ses_a")), ("--store", tmp_path / "a.db")
    for name in ("latest", " "):
        assert "cannot be the id" in refused(capsys, "import", good, "--as", name, *place)
        path = stored(tmp_path, named(name), "odd.json")
        assert "give --as ID" in refused(capsys, "import", path, *place)
    assert "several files" in refused(capsys, "import", good, good, "--as", "x", *place)
    assert "Did you mean 'opencode'" in refused(
        capsys, "import", good, "--policy", "opncode", *place
    )


def test_another_policy_counts_in_its_own_way(where: str, tmp_path: Path):
    path = stored(tmp_path, named("ses_a"))
    ours = answered("import", path, "--store", where)
    theirs = answered("import", path, "--as", "b", "--policy", "opencode", "--store", where)
    assert ours["imported"][0]["tokens"] != theirs["imported"][0]["tokens"]


def test_a_store_is_imported_session_by_session(where: str, tmp_path: Path, capsys: Capture):
    other = worked(str(tmp_path / "other.db"))
    filled(other, named("ses_a"))
    filled(where, named("ses_a", "of old"))
    code, output, errors = ended(capsys, "import", other, "--store", where, "--json")
    assert code == 2
    assert errors.count("\n") == 1
    assert "session ses_a is in" in errors
    (told,) = json.loads(output)["imported"]
    assert (told["id"], told["pivots"], told["pruned"] > 0) == ("ses_live", 1, True)
    for command in ("show", "export"):
        copied = answered(command, "ses_live", "--store", where)
        assert copied == answered(command, "ses_live", "--store", other)
    assert answered("sessions", "--store", where)["sessions"][0]["title"] == "of old"


def test_a_store_is_not_imported_into_itself_nor_under_one_id(tmp_path: Path, capsys: Capture):
    path = filled(str(tmp_path / "a.db"), named("ses_a"))
    assert "imported into" in refused(capsys, "import", path, "--store", path)
    line = refused(capsys, "import", path, "--as", "x", "--store", tmp_path / "b.db")
    assert "keep their ids" in line


# --- export --------------------------------------------------------------------------------


def test_what_is_exported_is_what_was_imported(where: str, tmp_path: Path):
    made = generate(5, messages=200, pivots=True, pruned=True, window=40_000)
    path = stored(tmp_path, made)
    printed("import", path, "--store", where)
    code, output, errors = called("export", "latest", "--store", where)
    assert (code, errors) == (0, "")
    assert decode_transcript(output.encode()) == made


def test_a_session_is_written_to_a_private_file_once(where: str, tmp_path: Path, capsys: Capture):
    filled(where, named("ses_a"))
    path = tmp_path / "out.json"
    told = answered("export", "ses_a", "-o", path, "--store", where)
    assert (told["id"], told["path"], told["size"]) == ("ses_a", str(path), path.stat().st_size)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert decode_transcript(path.read_bytes()) == named("ses_a")
    path.write_text("precious")
    assert "--force" in refused(capsys, "export", "ses_a", "-o", path, "--store", where)
    assert path.read_text() == "precious"
    assert "Wrote session ses_a" in printed(
        "export", "ses_a", "-o", path, "--force", "--store", where
    )
    assert path.read_text() != "precious"
    for bad, cause in ((tmp_path, "folder"), (tmp_path / "no" / "a", "cannot be written")):
        assert cause in refused(capsys, "export", "ses_a", "-o", bad, "--force", "--store", where)


# --- sessions ------------------------------------------------------------------------------


def test_sessions_are_listed_with_the_newest_first(where: str):
    filled(where, named("ses_old", "The older one"), named("ses_new", "The newer one"))
    found = answered("sessions", "--store", where)
    assert set(found) == {"store", "sessions", "disk", "size"}
    assert [held["id"] for held in found["sessions"]] == ["ses_new", "ses_old"]
    assert set(found["sessions"][0]) == {
        *("id", "title", "directory", "messages", "tokens", "size", "acts"),
        *("created", "updated", "writer"),
    }
    assert found["sessions"][0]["messages"] == len(named("x").messages)
    assert found["size"] == sum(held["size"] for held in found["sessions"])
    output = printed("sessions", "--store", where)
    assert output.index("ses_new") < output.index("ses_old")
    for text in ("The newer one", "just now", "2 sessions, ", "on disk"):
        assert text in output
    assert "state" not in output


def test_what_compression_saves_is_told(where: str):
    many = [named(f"ses_{number}") for number in range(40)]
    assert "compression saves " in printed("sessions", "--store", filled(where, *many))


def test_who_is_writing_is_told(where: str):
    filled(where, named("ses_b"))
    with foldmark.open(where, session="ses_a") as writing:
        writing.user("Hello")
        listed = {held["id"]: held for held in answered("sessions", "--store", where)["sessions"]}
        assert f"process {os.getpid()} on" in listed["ses_a"]["writer"]
        assert listed["ses_b"]["writer"] is None
        assert f"written by process {os.getpid()}" in printed("sessions", "--store", where)
    assert answered("sessions", "--store", where)["sessions"][0]["writer"] is None


def test_a_store_without_sessions_says_how_to_begin(where: str, capsys: Capture):
    Store.open(where).close()
    assert "No sessions in" in printed("sessions", "--store", where)
    assert "there is no session 'latest'" in refused(capsys, "show", "latest", "--store", where)


def test_short_names_stand_for_one_session_each(tmp_path: Path):
    names = [
        "ses_0123456789ab",
        "ses_0123456789abcd",
        "ses_0123456789xx",
        "a",
        "ses_zz0123456789abc",
    ]
    store = Store.open(tmp_path / "a.db")
    for name in names:
        store.create(SessionInfo(id=name), estimate="classes")
    rows = store.sessions()
    short = short_names(rows)
    assert [store.named(name).id for name in short] == [row.id for row in rows]
    assert short[names[::-1].index("ses_zz0123456789abc")] == "ses_zz0123456789"
    store.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (59, "just now"),
        (200, "3 min ago"),
        (90_000, "25 h ago"),
        (200_000, "2 days ago"),
        (4e8, "4,629 days ago"),
    ],
)
def test_times_are_told_as_people_tell_them(seconds: float, text: str):
    assert ago(seconds) == text


# --- gc and backup -------------------------------------------------------------------------


def test_sessions_are_removed_only_when_that_is_said(where: str, capsys: Capture):
    filled(where, named("ses_a"), named("ses_b"))
    old = ("gc", "--older-than", "0", "--store", where)
    assert "--yes" in refused(capsys, *old)
    assert "--yes" in refused(capsys, *old, "--json")
    assert sorted(answered(*old, "--dry-run")["sessions"]) == ["ses_a", "ses_b"]
    assert "Would remove 2 sessions" in printed(*old, "--dry-run")
    assert answered("gc", "--store", where)["sessions"] == []
    assert answered("gc", "--older-than", "1", "--store", where)["sessions"] == []
    assert len(ids(where)) == 2
    told = answered(*old, "--yes")
    assert set(told) == {"dry_run", "sessions", "before", "after"}
    assert sorted(told["sessions"]) == ["ses_a", "ses_b"]
    assert ids(where) == []
    assert "Removed 0 sessions" in printed(*old)
    for days in ("nan", "-1", "many"):
        assert "Traceback" not in refused(capsys, "gc", "--older-than", days, "--store", where)


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", []), (b"n\n", ["ses_a"])])
def test_a_terminal_is_asked_before_sessions_go(tmp_path: Path, answer: bytes, left: list[str]):
    import pty  # noqa: PLC0415 - there are systems without

    where = filled(str(tmp_path / "a.db"), named("ses_a"))
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [FOLDMARK, "gc", "--older-than", "0", "--store", where]
    done = subprocess.run(
        command, stdin=theirs, stdout=theirs, stderr=theirs, check=False, env=environment()
    )
    told = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert "ses_a" in told
    assert ids(where) == left


def test_a_backup_is_a_store_itself(where: str, tmp_path: Path, capsys: Capture):
    worked(where)
    path = tmp_path / "copy.db"
    told = answered("backup", path, "--store", where)
    assert told == {"path": str(path), "size": path.stat().st_size, "sessions": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ours, theirs = (answered("show", "latest", "--store", store) for store in (where, path))
    assert ours == theirs
    line = refused(capsys, "backup", path, "--store", where)
    assert line.startswith(f"foldmark: {path}: the file is there already")
    assert "Wrote" in printed("backup", tmp_path / "b.db", "--store", where)
    missing = tmp_path / "no" / "c.db"
    assert str(missing) in refused(capsys, "backup", missing, "--store", where)
