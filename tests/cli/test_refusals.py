"""Wrong input is refused in one line that says what to do, and nothing is written."""

import json
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from foldmark.cli.app import main
from foldmark.model.messages import SessionInfo, Transcript
from tests.support.cli_program import (
    FOLDMARK,
    compacted_store,
    environment,
    refusal,
    run_cli,
    sample_transcript,
    write_transcript,
)

# Files that are no transcripts, and why.
BAD_FILES = {
    "empty.json": (b"", "empty"),
    "picture.json": (b"\x89PNG\r\n\0\0", "binary file"),
    "latin.json": (b"caf\xe9", "not UTF-8"),
    "half.json": (b'{"info": {"id": "a"}, "messages": [', "ends too early"),
    "numbers.json": (b"[1, 2]", "not a known transcript format"),
    "text.json": (b'{"info": {"id": "a"}, "messages": "none"}', "$.messages: expected a list"),
    "long.json": (b'{"a": "' + b"x" * 3_000_000 + b'"}', "--max-size"),
}
BAD_HANDLES = ("h9999", "hxyz", "7", "''", f"h{'f' * 40}", "h-1")
# Command lines, and what their refusals say.
REFUSALS = (
    *((f"inspect {name} --max-size 2MB", cause) for name, (_, cause) in BAD_FILES.items()),
    *((f"plan {name} --max-size 2MB", cause) for name, (_, cause) in BAD_FILES.items()),
    ("inspect long.json --max-size 2MB", "line 1 is longer, but the limit is 2MB"),
    ("plan .", "folder"),
    ("inspect 'a\x1b[31m\nfoldmark: fine'", "no such file"),
    ("inspect session.json --policy opncode", "Did you mean 'opencode'?"),
    ("inspect session.json --model acme:none", "acme:none"),
    ("inspect session.json --max-size huge", "write it like 512MB"),
    ("inspect", "FILE"),
    ("inspekt session.json", "inspekt"),
    ("plan unknown.json", "Did you mean anthropic:claude-sonnet-4-5"),
    ("plan unknown.json", "--window N"),
    ("plan bare.json", "--model PROVIDER:NAME or --window N"),
    ("plan session.json --window 100", "75 usable tokens"),
    ("plan session.json --window 100", "larger window"),
    *((f"plan session.json --window {size}", "--window") for size in ("0", "many")),
    *((f"plan session.json --threshold {size}", "threshold") for size in ("nan", "-1")),
    ("plan session.json --reserved -5", "reserved"),
    ("compact session.json --summarizer cleverness", "give digest or PROVIDER:MODEL"),
    ("compact session.json --summarizer nobody:model", "provider 'nobody'"),
    ("compact session.json --summarizer openai:gpt-5", "OPENAI_API_KEY"),
    ("compact session.json --summarizer anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
    ("compact session.json --base-url http://127.0.0.1:1/v1", "--base-url needs a model"),
    ("compact session.json --api telegraph", "'telegraph'"),
    ("compact session.json --policy foldmarc", "Did you mean 'foldmark'"),
    ("compact session.json --model nobody:model", "no limits are known"),
    *((f"compact session.json --window {size}", "--window") for size in ("0", "many")),
    ("compact session.json --window 60", "usable tokens"),
    ("compact session.json --target 60", "60 usable tokens"),
    ("compact session.json --target 1", "--target"),
    ("compact none.json --target 6001 --window 6000", "--target 6001 is more than --window 6000"),
    ("compact none.json --target 6000 --window 6000", "there is no such file"),
    ("compact session.json --json --output -", "leave out --output -"),
    ("compact session.json --pick 7", "7"),
    ("compact session.json --output /no/such/folder/out.json", "its folder does not exist"),
    ("compact session.json --output /", "this is a folder"),
    ("compact chat.json", "--window N"),
    ("compact large.json --window 8000 --output out.json", "6000 usable tokens"),
    ("compact large.json --window 8000 --output out.json", "the open request"),
    ("compact session.json --output latest.json", "--force"),
    *(
        (f"compact session.json --output {name} --force", "the transcript itself")
        for name in ("session.json", "link.json")
    ),
    ("convert session.json --format pigeon", "'pigeon'"),
    ("convert session.json --format pigeon", "claude-code"),
    ("convert none.json -o .", "folder"),
    ("export none -o .", "folder"),
    ("convert session.json -o no/out", "cannot be written"),
    ("import none.json --store new.db", "there is no such file"),
    ("import hidden --store new.db", "no transcript in this folder"),
    ("import hidden --as x --store new.db", "this is a folder"),
    *(
        (f"import session.json --as {name} --store new.db", "session id")
        for name in ("latest", "' '")
    ),
    ("import latest.json", "--as ID"),
    ("import session.json chat.json --as x --store new.db", "--as is for one file"),
    ("import session.json --policy opncode --store new.db", "Did you mean 'opencode'"),
    ("import foreign.db --store new.db", "another program"),
    ("import agent.db --store agent.db", "imported into"),
    ("import agent.db --as x --store new.db", "keep their ids"),
    ("sessions --store notes.txt", "not a database"),
    ("sessions --store foreign.db", "another program"),
    ("sessions --store .", "regular file"),
    ("backup agent.db", "agent.db: the file already exists"),
    ("backup no/copy.db", "no/copy.db"),
    *((f"gc --older-than {days}", "older-than") for days in ("nan", "-1", "many")),
    *((f"gc --older-than 0{more}", "--yes") for more in ("", " --json")),
    *((f"show latest {option} 9", "has no operation 9") for option in ("--before", "--diff")),
    *((f"show latest {option} 0", option) for option in ("--before", "--diff")),
    ("show latest --all --diff 1", "exclude each other"),
    ("show ''", "session"),
    ("undo latest --operation 9", "has no operation 9"),
    ("undo latest --redo", "nothing to redo"),
    ("search latest '*\x1b[('", "has no word to search for"),
    ("search latest order --limit 0", "--limit"),
    *((f"events latest --after={number}", "--after") for number in ("-1", "x", "9" * 30)),
    *((f"recall latest {handle}", "session ses_live has no handle") for handle in BAD_HANDLES),
    *((f"revert latest {handle}", "no message") for handle in BAD_HANDLES),
    *((f"fork latest --at {handle}", "no message") for handle in BAD_HANDLES),
    ("fork latest --as ses_live", "already exists"),
    *((f"fork latest --as {name}", "session id") for name in ("latest", "''")),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad transcripts, and a store."""
    folder = tmp_path_factory.mktemp("refusals")
    for name, (data, _) in BAD_FILES.items():
        (folder / name).write_bytes(data)
    write_transcript(folder, sample_transcript(calls=40))
    write_transcript(folder, sample_transcript(name="latest"), "latest.json")
    write_transcript(folder, sample_transcript(model="claude-sonet-4-5"), "unknown.json")
    write_transcript(folder, Transcript(info=SessionInfo(id="s"), messages=()), "bare.json")
    for name, text in (("chat", "Fix it"), ("large", "check the orders " * 9_000)):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        (folder / f"{name}.json").write_text(json.dumps(messages))
    (folder / "hidden" / ".hidden").mkdir(parents=True)
    (folder / "link.json").symlink_to("session.json")
    (folder / "notes.txt").write_text("Longer than the sixteen bytes of a header")
    with closing(sqlite3.connect(folder / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE songs (title TEXT)")
    compacted_store(str(folder / "agent.db"), steps=12)
    return folder


@pytest.mark.parametrize(("line", "cause"), REFUSALS)
def test_wrong_input_is_refused_in_one_line_and_nothing_is_written(
    files: Path, line: str, cause: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(files)
    monkeypatch.setenv("FOLDMARK_STORE", "agent.db")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    before = contents(files)
    result = refusal(*shlex.split(line))
    assert cause in result
    if line.split()[1:2] and line.split()[1] in BAD_FILES:
        assert line.split()[1] in result
    assert contents(files) == before


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder and their bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# --- the program itself --------------------------------------------------------------------


def test_without_the_extra_one_line_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from foldmark.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "foldmark: the command line is not installed; run: pip install 'foldmark[cli]'\n"
    )


def test_an_interrupt_ends_with_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    class Interrupted:
        @property
        def buffer(self) -> object:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert main(["inspect", "-"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_output_that_cannot_be_written_is_one_line(file: Path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [FOLDMARK, "inspect", file],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=environment(),
        )
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert done.stderr.startswith(b"foldmark: ")


def test_absurd_figures_cause_no_traceback(tmp_path: Path):
    path = tmp_path / "odd.json"
    path.write_text(
        '{"info":{"id":"s"},"messages":[{"info":{"id":"m","role":"assistant","finish":"stop",'
        '"time":{"created":-1e308,"completed":1e308},"tokens":{"input":1e308,"output":1e308}},'
        '"parts":[{"type":"tool","tool":"read","callID":"c","state":{"status":"completed",'
        '"input":{"filePath":"a","offset":1e300,"limit":-1e300},"output":"x"}}]}]}'
    )
    for arguments in (("inspect", path), ("inspect", path, "--max-size", "9" * 400)):
        assert run_cli(*arguments)[0] == 0
    code, _, errors = run_cli("plan", path, "--window", "1000")
    assert code in {0, 2}
    assert "Traceback" not in errors
