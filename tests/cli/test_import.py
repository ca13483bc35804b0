"""`foldmark import`: files and folders, again and again, on both engines."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.lab.generate import generate

import foldmark
from tests.support.cli_program import (
    fill_store,
    json_of,
    output_of,
    refusal,
    run_cli,
    sample_transcript,
    session_ids,
    write_transcript,
)
from tests.support.stored_transcripts import SESSION, Lines, write
from tests.support.terminal import in_terminal

OTHER = "99999999-2222-4333-8444-555555555555"


def talk(text: str = "Load the order", name: str = SESSION) -> Lines:
    lines = Lines()
    lines.user(text, sessionId=name)
    lines.step("a")
    lines.step("b")
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two transcripts, and what else may lie beside them."""
    home = tmp_path / "projects"
    for name in ("b/deep", "a", ".hidden"):
        (home / name).mkdir(parents=True)
    write(home / "b" / "deep" / f"{SESSION}.jsonl", talk().all)
    write(home / "a" / "any.jsonl", talk("Other words", OTHER).all)
    write(home / ".hidden" / "x.jsonl", talk("Hidden", "hidden").all)
    write(home / "a" / ".x.jsonl", talk("Hidden", "hidden too").all)
    (home / "a" / "link.jsonl").symlink_to(home / ".hidden" / "x.jsonl")
    (home / "a" / "linked").symlink_to(home / ".hidden")
    (home / "a" / "package.json").write_text('{"name": "shop"}')
    (home / "a" / "empty.jsonl").touch()
    (home / "a" / "picture.json").write_bytes(b"\x89PNG\0\0")
    (home / "README.md").write_text("# A shop\n")
    (home / "notes.txt").write_text("not looked at")
    return home


def ids(where: object) -> list[str]:
    return sorted(session_ids(where))


def states(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(Path(item["file"]).name, item["state"]) for item in report["imported"]]


# --- folders -------------------------------------------------------------------------------


def test_a_folder_is_imported_in_order_without_hidden_files(store: str, folder: Path) -> None:
    report = json_of("import", folder)
    assert set(report) == {"store", "imported", "unchanged", "passed_over", "skipped", "refused"}
    assert states(report) == [("any.jsonl", "new"), (f"{SESSION}.jsonl", "new")]
    assert [Path(item).name for item in report["passed_over"]] == [
        *("README.md", "empty.jsonl", "package.json", "picture.json")
    ]
    assert report["refused"] == report["skipped"] == report["unchanged"] == []
    assert ids(store) == [SESSION, OTHER]
    again = json_of("import", folder)
    assert [Path(item).name for item in again["unchanged"]] == ["any.jsonl", f"{SESSION}.jsonl"]
    assert again["imported"] == []
    output = output_of("import", folder)
    assert "2 files unchanged since the last import." in output
    assert "4 files without a transcript, ignored." in output


def test_only_files_that_have_grown_are_read_again(store: str, folder: Path) -> None:
    output_of("import", folder)
    lines = talk()
    lines.step("c")
    write(folder / "b" / "deep" / f"{SESSION}.jsonl", lines.all)
    report = json_of("import", folder)
    assert states(report) == [(f"{SESSION}.jsonl", "grown")]
    assert report["imported"][0]["messages"] == 4
    assert len(report["unchanged"]) == 1
    os.utime(folder / "a" / "any.jsonl")
    assert states(json_of("import", folder)) == [("any.jsonl", "same")]
    os.utime(folder / "a" / "any.jsonl")
    assert "1 session with nothing new." in output_of("import", folder)


def test_a_bad_transcript_does_not_stop_the_others(store: str, folder: Path) -> None:
    bad = folder / "a" / "bad.jsonl"
    write(bad, talk("Bad", "bad").all)
    bad.write_text("\n" + bad.read_text() + "{no\n")
    code, output, errors = run_cli("import", folder, "--json")
    assert code == 2
    assert errors.startswith(f"foldmark: {bad}: line 7: not valid JSON")
    assert errors.count("\n") == 1
    assert [item["file"] for item in json.loads(output)["refused"]] == [str(bad)]
    assert ids(store) == [SESSION, OTHER]
    code, output, errors = run_cli("import", folder, "--lenient", "--json")
    assert (code, errors) == (0, "")
    (remaining,) = json.loads(output)["skipped"]
    assert (remaining["file"], remaining["line"]) == (str(bad), 7)
    assert ids(store) == [SESSION, OTHER, "bad"]


def test_a_folder_or_file_that_is_named_twice_is_imported_once(store: str, folder: Path) -> None:
    file = folder / "a" / "any.jsonl"
    report = json_of("import", folder, file, folder)
    assert states(report) == [("any.jsonl", "new"), (f"{SESSION}.jsonl", "new")]
    link = folder.parent / "other name.jsonl"
    link.symlink_to(file)
    report = json_of("import", link, file)
    assert len(report["unchanged"]) == 2
    assert ids(store) == [SESSION, OTHER]


def test_a_copy_of_a_file_is_the_same_session(store: str, folder: Path) -> None:
    output_of("import", folder)
    copied = folder.parent / f"{SESSION}.jsonl"
    copied.write_bytes((folder / "b" / "deep" / copied.name).read_bytes())
    assert states(json_of("import", copied)) == [(copied.name, "same")]
    assert ids(store) == [SESSION, OTHER]


def test_only_our_databases_in_a_folder_are_imported(folder: Path) -> None:
    store = folder / "mine.db"
    fill_store(str(folder / "theirs.db"), sample_transcript())
    (folder / "broken.db").write_bytes(b"SQLite format 3\0 and nothing else")
    code, _, errors = run_cli("import", folder, "--store", store)
    assert (code, errors) == (0, "")
    assert ids(store) == [SESSION, OTHER, "ses_shop"]
    report = json.loads(run_cli("import", folder, "--store", store, "--json")[1])
    assert {"mine.db", "broken.db"} <= {Path(item).name for item in report["passed_over"]}
    assert "imported into" in refusal("import", store, "--store", store)


# --- files ---------------------------------------------------------------------------------


def test_a_format_may_be_forced(store: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", talk().all)
    report = json_of("import", path, "--format", "claude-code")
    assert report["imported"][0]["format"] == "claude-code"
    assert "Did you mean 'claude-code'" in refusal("import", path, "--format", "claude_code")
    line = refusal("import", path, "--format", "codex")
    assert line.startswith(f"foldmark: {path}: ")


def test_a_session_that_continued_in_the_store_is_not_changed(store: str, tmp_path: Path) -> None:
    lines = talk()
    path = write(tmp_path / f"{SESSION}.jsonl", lines.all)
    output_of("import", path)
    with foldmark.open(store, session=SESSION) as opened:
        opened.user("I go on here")
        before = opened.export()
    lines.step("c")
    for name in ("d", "e"):
        report = json_of("import", write(path, lines.all))
        (entry,) = report["imported"]
        assert entry["id"].startswith(f"{SESSION}-")
        lines.step(name)
    assert entry["state"] == "grown"
    assert len(ids(store)) == 2
    with foldmark.open(store, session=SESSION) as opened:
        assert opened.export() == before


def test_only_the_session_that_continued_in_the_store_gets_a_new_id(
    store: str, tmp_path: Path
) -> None:
    lines = talk()
    lines.user("Look", None, isSidechain=True, agentId="one")
    path = write(tmp_path / f"{SESSION}.jsonl", lines.all)
    output_of("import", path)
    with foldmark.open(store, session=SESSION) as opened:
        opened.user("I go on here")
    lines.step("c")
    report = json_of("import", write(path, lines.all))
    assert sorted(item["state"] for item in report["imported"]) == ["new", "same"]
    assert len(ids(store)) == 3


def test_a_session_that_is_being_written_is_not_imported(store: str, tmp_path: Path) -> None:
    lines = talk()
    path = write(tmp_path / f"{SESSION}.jsonl", lines.all)
    output_of("import", path)
    lines.step("c")
    write(path, lines.all)
    with foldmark.open(store, session=SESSION) as opened:
        opened.user("Mine")
        line = refusal("import", path)
        assert f"process {os.getpid()}" in line
        assert [item.id for item in opened.export().messages][:-1] == ["u1", "m-a", "m-b"]


def test_an_incomplete_last_line_is_imported_next_time(store: str, tmp_path: Path) -> None:
    lines = talk()
    lines.user("Not yet")
    path = write(tmp_path / f"{SESSION}.jsonl", lines.all)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    report = json_of("import", path)
    assert (report["imported"][0]["messages"], report["refused"]) == (3, [])
    assert [item["line"] for item in report["skipped"]] == [6]
    path.write_bytes(whole)
    report = json_of("import", path)
    assert (report["imported"][0]["messages"], report["imported"][0]["state"]) == (4, "grown")
    assert report["skipped"] == []


# --- who looks at it -----------------------------------------------------------------------


def test_a_progress_bar_is_drawn_only_on_terminals_and_for_large_files(tmp_path: Path) -> None:
    lines = talk()
    for number in range(120):
        lines.step(f"{number}", f"{number} lines of an order\n" * 2_000)
    path = write(tmp_path / "a.jsonl", lines.all)
    assert path.stat().st_size > 4 * 2**20
    to_a = ("--store", tmp_path / "a.db")
    drawn = in_terminal("import", path, *to_a, is_error_shown=True, COLUMNS="100")
    assert "importing a.jsonl" in drawn
    assert "MB" in drawn
    code, output, errors = run_cli("import", path, "--store", tmp_path / "b.db")
    assert (code, errors) == (0, "")
    assert "importing" not in output
    small = write(tmp_path / "b.jsonl", talk("Small", "small").all)
    assert "importing" not in in_terminal("import", small, *to_a, is_error_shown=True)


# --- what it takes -------------------------------------------------------------------------

_PEAK = """
import sys
from pathlib import Path
from foldmark.transcripts.format import formats
from foldmark.transcripts.read import open_reading
from foldmark.transcripts.store import store_reading
from foldmark.store.store import Store
formats()
with open_reading(sys.argv[1]) as reading:
    if len(sys.argv) == 2:
        for _ in reading.steps():
            pass
    else:
        with Store.open(sys.argv[2], durable=False) as store:
            store_reading(store, reading, estimate="classes")
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(status["VmHWM"].split()[0])
"""


def peak(*arguments: object) -> float:
    """The most memory, in megabytes, that a process needs to read a file, or to import it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc here to ask for the memory of a process alone")
    command = [sys.executable, "-c", _PEAK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    return int(done.stdout) / 1024


def large(path: Path, megabytes: int) -> Path:
    """A file of many steps, prompts and compactions."""
    output = "".join(f"{number * number % 9973} of an order\n" for number in range(1_600))
    lines = talk()
    with path.open("w") as file:
        number = 0
        while file.tell() < megabytes * 2**20:
            number += 1
            lines.step(f"{number:x}", f"{number}\n{output}")
            if number % 10 == 0:
                lines.user(f"Always turn {number}: {output}")
            if number % 200 == 0:
                lines.compact()
            file.writelines(json.dumps(line) + "\n" for line in lines.all)
            lines.all.clear()
    return path


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small, big = large(tmp_path / "a.jsonl", 8), large(tmp_path / "b.jsonl", 32)
    assert peak(big) - peak(small) < 16
    first, second = tmp_path / "a.db", tmp_path / "b.db"
    assert peak(big, second) - peak(small, first) < 24
    assert peak(big, second) < 160  # again
    assert peak(big) < 140


def test_the_memory_for_a_line_is_a_few_times_its_size(tmp_path: Path) -> None:
    lines = talk()
    lines.step("c", 'Say "order", or \\ entry\n' * 500_000)
    path = write(tmp_path / "a.jsonl", lines.all)
    size = path.stat().st_size / 2**20
    assert size > 12
    assert peak(path, tmp_path / "a.db") < 50 + 9 * size


def test_a_document_is_imported_like_lines(store: str, tmp_path: Path) -> None:
    transcript = generate(4, messages=120, pivots=True, pruned=True, window=40_000)
    path = write_transcript(tmp_path, transcript)
    assert states(json_of("import", path)) == [("session.json", "new")]
    path.touch()
    assert states(json_of("import", path)) == [("session.json", "same")]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_whole_ids_are_shown_in_wide_terminals_only(columns: int, tmp_path: Path, folder: Path):
    store = ("--store", tmp_path / "a.db")
    output = output_of("import", folder, *store, COLUMNS=str(columns))
    for text in (SESSION[:16], "claude-code", "new", "Load", "2 sessions from 2 files"):
        assert text in output
    assert (SESSION in output) == (columns == 120)
