"""What holds for every command: width, untrusted text, JSON, refusals, help, and closed pipes."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len

import foldmark
from foldmark.cli.app import app
from tests.support.cli_program import (
    HOSTILE,
    STEERING,
    compacted_store,
    fill_store,
    hostile_transcript,
    output_of,
    refusal,
    run_cli,
    run_program,
    sample_transcript,
    write_transcript,
)
from tests.support.markdown_pages import check_arguments

# Commands that read a transcript, and commands on a store.
ON_FILES = (
    "inspect session.json --window 24000",
    "plan session.json --window 24000",
    "compact session.json --window 24000",
    "compact session.json --window 8000",
    "compact session.json --window 900000",
)
ON_STORES = (
    "sessions",
    "show latest",
    "show latest --all --full",
    "search latest order",
    "search latest 'order {hostile}'",
    "gc --older-than 0 --dry-run",
    "fork latest",
    "backup copy.db",
)
# Commands whose output is not a table.
RAW_ON_FILES = ("convert session.json", "convert session.json --to gemini")
RAW_ON_STORES = ("recall latest h1", "events latest", "export latest", "export latest --to gemini")
# Commands that change a session, or that need no input.
CHANGING = (
    "show latest --diff 1",
    "undo latest",
    "revert latest h5",
    "diff latest",
    "diff latest --stat",
)
OTHERS = ("formats", "demo", "import session.json --store new.db")
ALL = (*ON_FILES, *RAW_ON_FILES, *ON_STORES, *RAW_ON_STORES, *CHANGING, *OTHERS)
NAMES = sorted(command.name or command.callback.__name__ for command in app.registered_commands)  # pyright: ignore[reportOptionalMemberAccess] - each has one
WAITING = {"mcp", "run"}  # for a client, or for a model


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transcripts and stores, made once."""
    folder = tmp_path_factory.mktemp("originals")
    write_transcript(folder, sample_transcript(calls=40))
    write_transcript(folder, hostile_transcript(), "hostile.json")
    fill_store(str(folder / "hostile.db"), hostile_transcript())
    compacted_store(str(folder / "agent.db"))
    return folder


@pytest.fixture
def folder(
    originals: Path, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a transcript, and a compacted session in the user's own store."""
    store = own_home / "data" / "foldmark" / "foldmark.db"
    store.parent.mkdir(parents=True)
    shutil.copy(originals / "agent.db", store)
    shutil.copy(originals / "session.json", tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hostile(folder: Path, originals: Path, own_home: Path) -> Path:
    """The same folder, with untrusted text in all places."""
    shutil.copy(originals / "hostile.json", folder / "session.json")
    shutil.copy(originals / "hostile.db", own_home / "data" / "foldmark" / "foldmark.db")
    return folder


def arguments(line: str) -> list[str]:
    return [word.format(hostile=HOSTILE) for word in shlex.split(line)]


def test_every_command_is_checked_here():
    assert {line.split()[0] for line in ALL} | WAITING == set(NAMES)


# --- output --------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("line", [*ON_FILES, *ON_STORES, *CHANGING, *OTHERS])
def test_no_line_is_wider_than_the_terminal(line: str, columns: int):
    output = output_of(*arguments(line), COLUMNS=str(columns))
    table = output.partition("Try it yourself")[0]  # commands to copy are never wrapped
    assert max(map(cell_len, table.splitlines())) <= columns


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("line", [*ON_FILES, *ON_STORES, "events latest"])
def test_untrusted_text_never_controls_the_terminal(line: str):
    code, output, errors = run_cli(*arguments(line), COLUMNS="160")
    assert (code, errors) == (0, "")
    assert not STEERING.search(output)
    if line.split(maxsplit=1)[0] not in ("events", "backup", "plan") and "900000" not in line:
        assert "[red]x[/red]" in output.replace("\n", "")


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("line", [*ON_FILES, *ON_STORES, "formats", "import session.json"])
def test_json_is_one_line_of_json_with_untrusted_text_escaped(line: str):
    code, output, errors = run_cli(*arguments(line), "--json")
    assert (code, errors) == (0, "")
    assert output.count("\n") == 1
    assert isinstance(json.loads(output), dict | list)
    assert not STEERING.search(output)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", [*RAW_ON_FILES, *RAW_ON_STORES, *CHANGING, *OTHERS])
def test_other_commands_print_json_as_well(line: str):
    code, output, _ = run_cli(*arguments(line), "--json")
    assert code == 0
    lines = output.splitlines() if line.startswith("events") else [output]
    assert lines
    assert all(isinstance(json.loads(text), dict | list) for text in lines)


def test_a_reader_that_goes_away_is_no_error(folder: Path):
    programs = [
        run_program(*arguments(line))
        for line in ("plan session.json", "show latest --full", "events latest", "export latest")
    ]
    for program in programs:
        with program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.close()
            assert program.stderr.read() == b""
    assert folder.exists()


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused_in_one_line(name: str):
    assert f"see foldmark {name} --help" in refusal(name, "--nonsense")


@pytest.mark.parametrize("line", [*ON_FILES, *RAW_ON_FILES, "import session.json"])
def test_a_missing_file_is_refused_in_one_line(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert "session.json" in refusal(*arguments(line))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", [*ON_STORES, *RAW_ON_STORES, *CHANGING])
def test_a_missing_store_is_refused_and_not_created(
    line: str, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    own = own_home / "data" / "foldmark" / "foldmark.db"
    told = f"foldmark: no store at {own}; start with: foldmark import FILE\n"
    assert refusal(*arguments(line)) == told
    assert not own.parent.exists()
    Path("empty.db").touch()
    assert "no store at empty.db" in refusal(*arguments(line), "--store", "empty.db")
    assert list(tmp_path.iterdir()) == [tmp_path / "empty.db"]
    assert not Path("empty.db").stat().st_size


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line", [one for one in (*ON_STORES, *RAW_ON_STORES, *CHANGING) if "latest" in one]
)
def test_an_unknown_session_is_refused_in_one_line(line: str):
    told = refusal(*arguments(line.replace("latest", "nothing")))
    assert "no session 'nothing'" in told


# --- help ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example_that_runs(
    name: str, folder: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
):
    short = output_of(name, "-h", COLUMNS="200")
    assert short == output_of(name, "--help", COLUMNS="200")
    example = re.search(rf"Example: foldmark ({name}\b.*)", short)
    assert example
    words = shlex.split(example[1].partition(" > ")[0])
    if {name, *words} & (WAITING | {"--follow", "--files"}):
        check_arguments(words)
        return
    projects = folder / ".claude" / "projects"
    projects.mkdir(parents=True)
    for copy in (folder / "session.jsonl", projects / "session.json"):
        shutil.copy("session.json", copy)
    fill_store("work.db", sample_transcript())
    store = own_home / "data" / "foldmark" / "foldmark.db"
    with foldmark.open(str(store), session="latest") as session:
        session.revert(session.export().messages[5].id)  # operation 3
    home = {"~/": f"{folder}/", "h3f": "h3"}
    for old, new in home.items():
        words = [word.replace(old, new) for word in words]
    assert output_of(*words)
