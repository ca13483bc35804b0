"""Commands on a whole store: import, export, sessions, gc and backup, on both engines."""

import json
import os
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
    compacted_store,
    environment,
    fill_store,
    json_of,
    output_of,
    refusal,
    run_cli,
    sample_transcript,
    session_ids,
    write_transcript,
)


def named(name: str, title: str = "How the orders load") -> Transcript:
    transcript = sample_transcript(calls=4)
    return replace(transcript, info=replace(transcript.info, id=name, title=title))


# --- where the store is --------------------------------------------------------------------


def test_the_users_own_store_is_private_and_the_same_in_every_folder(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    output_of("import", write_transcript(tmp_path, named("kept")))
    own = own_home / "data" / "foldmark" / "foldmark.db"
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    monkeypatch.chdir(there)
    assert "kept" in output_of("sessions")
    assert not [*here.iterdir(), *there.iterdir()]
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # by its specification to be ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    assert json_of("import", write_transcript(tmp_path, named("kept")))["store"] == str(
        tmp_path / ".local" / "share" / "foldmark" / "foldmark.db"
    )


def test_a_database_without_our_tables_stays_without_them(store: str):
    assert "no store at" in refusal("sessions")
    assert "no store at" in refusal("sessions")


def test_the_store_of_the_settings_is_used_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    fill_store("file.db", named("of-the-file"))
    fill_store("variable.db", named("of-the-variable"))
    fill_store("option.db", named("of-the-option"))
    (tmp_path / "foldmark").mkdir()
    (tmp_path / "foldmark" / "foldmark.toml").write_text('store = "../file.db"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "of-the-file" in output_of("sessions")
    Path("foldmark.toml").write_text('store = "variable.db"\n')
    assert "foldmark.toml: line 1: store cannot be set" in refusal("sessions")
    Path("foldmark.toml").unlink()
    monkeypatch.setenv("FOLDMARK_STORE", "variable.db")
    assert "of-the-variable" in output_of("sessions")
    assert "of-the-option" in output_of("sessions", "--store", "option.db")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://writer:se-cret@localhost:1/db",
        "postgresql://writer:se@cret/x@localhost:1/db",
        "postgresql://writer:x@localhost:1/db?password=se-cret",
        "host=localhost port=1 dbname=db password=se-cret",
        "host=localhost port=1 dbname=db password='se cret'",
    ],
)
def test_a_password_is_never_printed(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOLDMARK_WAIT_SECONDS", "1")
    path = write_transcript(tmp_path, named("ses_a"))
    for command in (("sessions",), ("import", path)):
        line = refusal(*command, "--store", address)
        assert line.startswith("foldmark: postgresql")
        assert "cret" not in line


# --- import --------------------------------------------------------------------------------


def test_import_reports_what_it_added(store: str, tmp_path: Path):
    transcript = generate(3, messages=300, pivots=True, pruned=True, window=40_000)
    path = write_transcript(tmp_path, transcript)
    report = json_of("import", path)
    (result,) = report["imported"]
    assert (result["id"], result["messages"], result["file"]) == (
        transcript.info.id,
        300,
        str(path),
    )
    log = foldmark.Log(counter("classes"), transcript.messages)
    assert (result["pivots"], result["pruned"]) == (len(log.pivots), len(log.marks))
    assert result["pivots"] > 0 < result["pruned"]
    assert report["refused"] == []
    output = output_of("import", path, "--as", "again")
    assert f"{result['tokens']:,}" in output
    assert session_ids(store) == ["again", transcript.info.id]


def test_a_session_is_not_duplicated_and_another_with_its_id_gets_a_new_one(
    store: str, tmp_path: Path
):
    path = write_transcript(tmp_path, named("ses_a"))
    output_of("import", path)
    assert "1 file unchanged" in output_of("import", path)
    assert session_ids(store) == ["ses_a"]
    other = replace(named("ses_a"), messages=named("ses_a").messages[1:])
    result = json_of("import", write_transcript(tmp_path, other, "other.json"))
    (entry,) = result["imported"]
    assert entry["state"] == "new"
    assert entry["id"].startswith("ses_a-")
    output_of("import", path, "--as", "ses_b")
    assert session_ids(store) == ["ses_b", entry["id"], "ses_a"]


def test_one_bad_file_fails_alone(store: str, tmp_path: Path):
    good = [write_transcript(tmp_path, named(name), f"{name}.json") for name in ("ses_a", "ses_b")]
    bad = tmp_path / "bad.json"
    bad.write_text('{"info": ')
    code, output, errors = run_cli(
        "import", good[0], bad, good[1], tmp_path / "none.json", "--json"
    )
    assert code == 2
    assert [item["id"] for item in json.loads(output)["imported"]] == ["ses_a", "ses_b"]
    assert [item["file"] for item in json.loads(output)["refused"]] == [
        str(bad),
        str(tmp_path / "none.json"),
    ]
    first, second = errors.splitlines()
    assert first.startswith(f"foldmark: {bad}: ")
    assert second.endswith("none.json: there is no such file")


def test_standard_input_is_imported_too(tmp_path: Path):
    data = write_transcript(tmp_path, named("ses_a")).read_bytes()
    code, _, errors = run_cli("import", "-", "--store", tmp_path / "a.db", data=data)
    assert (code, errors) == (0, "")
    assert session_ids(tmp_path / "a.db") == ["ses_a"]


def test_another_policy_counts_in_its_own_way(store: str, tmp_path: Path):
    path = write_transcript(tmp_path, named("ses_a"))
    ours = json_of("import", path)
    theirs = json_of("import", path, "--as", "b", "--policy", "opencode")
    assert ours["imported"][0]["tokens"] != theirs["imported"][0]["tokens"]


def test_a_store_is_imported_session_by_session(store: str, tmp_path: Path):
    other = compacted_store(str(tmp_path / "other.db"))
    fill_store(other, named("ses_a"))
    fill_store(store, named("ses_a", "of old"))
    code, output, errors = run_cli("import", other, "--json")
    assert code == 2
    assert errors.count("\n") == 1
    assert "session ses_a is already in" in errors
    (result,) = json.loads(output)["imported"]
    assert (result["id"], result["pivots"], result["pruned"] > 0) == ("ses_live", 1, True)
    for command in ("show", "export"):
        copied = json_of(command, "ses_live")
        assert copied == json_of(command, "ses_live", "--store", other)
    assert json_of("sessions")["sessions"][0]["title"] == "of old"


# --- export --------------------------------------------------------------------------------


def test_an_export_equals_the_import(store: str, tmp_path: Path):
    transcript = generate(5, messages=200, pivots=True, pruned=True, window=40_000)
    path = write_transcript(tmp_path, transcript)
    output_of("import", path)
    code, output, errors = run_cli("export", "latest")
    assert (code, errors) == (0, "")
    assert decode_transcript(output.encode()) == transcript


# --- sessions ------------------------------------------------------------------------------


def test_sessions_are_listed_with_the_newest_first(store: str):
    fill_store(store, named("ses_old", "The older one"), named("ses_new", "The newer one"))
    report = json_of("sessions")
    assert set(report) == {"store", "sessions", "disk", "size"}
    assert [item["id"] for item in report["sessions"]] == ["ses_new", "ses_old"]
    assert set(report["sessions"][0]) == {
        *("id", "title", "directory", "messages", "tokens", "size", "acts"),
        *("created", "updated", "writer"),
    }
    assert report["sessions"][0]["messages"] == len(named("x").messages)
    assert report["size"] == sum(item["size"] for item in report["sessions"])
    output = output_of("sessions")
    assert output.index("ses_new") < output.index("ses_old")
    for text in ("The newer one", "just now", "2 sessions, ", "on disk"):
        assert text in output
    assert "state" not in output


def test_the_savings_of_compression_are_shown(store: str):
    many = [named(f"ses_{number}") for number in range(40)]
    assert "compression saves " in output_of("sessions", "--store", fill_store(store, *many))


def test_the_writing_process_is_shown(store: str):
    fill_store(store, named("ses_b"))
    with foldmark.open(store, session="ses_a") as writing:
        writing.user("Hello")
        listed = {item["id"]: item for item in json_of("sessions")["sessions"]}
        assert f"process {os.getpid()} on" in listed["ses_a"]["writer"]
        assert listed["ses_b"]["writer"] is None
        assert f"written by process {os.getpid()}" in output_of("sessions")
    assert json_of("sessions")["sessions"][0]["writer"] is None


def test_a_store_without_sessions_says_how_to_start(store: str):
    Store.open(store).close()
    assert "No sessions in" in output_of("sessions")
    assert "there is no session 'latest'" in refusal("show", "latest")


def test_short_names_are_unambiguous(tmp_path: Path):
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
    assert [store.resolve(name).id for name in short] == [row.id for row in rows]
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
def test_times_are_shown_in_one_unit(seconds: float, text: str):
    assert ago(seconds) == text


# --- gc and backup -------------------------------------------------------------------------


def test_sessions_are_removed_only_with_yes(store: str):
    fill_store(store, named("ses_a"), named("ses_b"))
    old = ("gc", "--older-than", "0")
    assert sorted(json_of(*old, "--dry-run")["sessions"]) == ["ses_a", "ses_b"]
    assert "Would remove 2 sessions" in output_of(*old, "--dry-run")
    assert json_of("gc")["sessions"] == []
    assert json_of("gc", "--older-than", "1")["sessions"] == []
    assert len(session_ids(store)) == 2
    result = json_of(*old, "--yes")
    assert set(result) == {"dry_run", "sessions", "before", "after"}
    assert sorted(result["sessions"]) == ["ses_a", "ses_b"]
    assert session_ids(store) == []
    assert "Removed 0 sessions" in output_of(*old)


@pytest.mark.parametrize(("answer", "remaining"), [(b"y\n", []), (b"n\n", ["ses_a"])])
def test_gc_asks_on_a_terminal_before_it_removes_sessions(
    tmp_path: Path, answer: bytes, remaining: list[str]
):
    import pty  # noqa: PLC0415 - there are systems without

    where = fill_store(str(tmp_path / "a.db"), named("ses_a"))
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [FOLDMARK, "gc", "--older-than", "0", "--store", where]
    done = subprocess.run(
        command, stdin=theirs, stdout=theirs, stderr=theirs, check=False, env=environment()
    )
    result = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert "ses_a" in result
    assert session_ids(where) == remaining


def test_a_backup_is_a_store(store: str, tmp_path: Path):
    compacted_store(store)
    path = tmp_path / "copy.db"
    result = json_of("backup", path)
    assert result == {"path": str(path), "size": path.stat().st_size, "sessions": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ours, theirs = (json_of("show", "latest", "--store", store) for store in (store, path))
    assert ours == theirs
    line = refusal("backup", path)
    assert line.startswith(f"foldmark: {path}: the file already exists")
    assert "Wrote" in output_of("backup", tmp_path / "b.db")
    missing = tmp_path / "no" / "c.db"
    assert str(missing) in refusal("backup", missing)
