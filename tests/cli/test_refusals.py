import subprocess
import sys
from pathlib import Path

import pytest

from foldmark.cli.app import main
from foldmark.model.messages import SessionInfo, Transcript
from tests.support.cli_program import (
    FOLDMARK,
    STEERING,
    environment,
    refusal,
    run_cli,
    sample_transcript,
    write_transcript,
)


def refusal(*arguments: object) -> str:
    """The one line with which the program refuses something."""
    code, output, errors = run_cli(*arguments)
    assert (code, output) == (2, "")
    assert errors.startswith("foldmark: ")
    assert errors.endswith("\n")
    assert errors.count("\n") == 1
    assert not STEERING.search(errors)
    return errors


@pytest.fixture
def transcript_file(tmp_path: Path) -> Path:
    return write_transcript(tmp_path, sample_transcript())


@pytest.mark.parametrize("command", ["inspect", "plan"])
@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\0\0", "binary file"),
        (b"caf\xe9", "not UTF-8"),
        (b'{"info": {"id": "a"}, "messages": [', "cut off"),
        (b"[1, 2]", "not a transcript"),
        (b'{"info": {"id": "a"}, "messages": "none"}', "$.messages: expected a list, got a text"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(
    tmp_path: Path, command: str, data: bytes, cause: str
):
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    line = refusal(command, path)
    assert str(path) in line
    assert cause in line


def test_a_missing_file_and_a_folder_are_one_line_each(tmp_path: Path):
    assert "there is no such file" in refusal("inspect", tmp_path / "nowhere.json")
    assert "folder" in refusal("plan", tmp_path)


def test_a_line_over_the_limit_is_refused_with_its_number_the_limit_and_the_option(tmp_path: Path):
    path = tmp_path / "long.json"
    path.write_bytes(b'{"a": "' + b"x" * 3_000_000 + b'"}')
    line = refusal("inspect", path, "--max-size", "2MB")
    for part in ("line 1", "2MB", "--max-size"):
        assert part in line


def test_an_unknown_policy_names_the_nearest(transcript_file: Path):
    assert "Did you mean 'opencode'?" in refusal("inspect", transcript_file, "--policy", "opncode")


def test_an_unknown_model_says_what_to_set(tmp_path: Path):
    path = write_transcript(tmp_path, sample_transcript(model="claude-sonet-4-5"))
    line = refusal("plan", path)
    assert "Did you mean anthropic:claude-sonnet-4-5" in line
    assert "--window N" in line


def test_a_session_without_a_model_asks_for_one(tmp_path: Path):
    path = write_transcript(tmp_path, Transcript(info=SessionInfo(id="s"), messages=()))
    assert "--model PROVIDER:NAME or --window N" in refusal("plan", path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "x.json", "--window", "0"),
        ("plan", "x.json", "--window", "many"),
        ("plan", "x.json", "--threshold", "nan"),
        ("plan", "x.json", "--threshold", "-1"),
        ("plan", "x.json", "--reserved", "-5"),
        ("inspect", "x.json", "--max-size", "huge"),
        ("inspect",),
        ("inspekt", "x.json"),
    ],
)
def test_a_wrong_argument_is_one_line_as_well(arguments: tuple[str, ...]):
    assert refusal(*arguments)


def test_control_characters_in_a_file_name_do_not_reach_the_terminal(tmp_path: Path):
    assert "no such file" in refusal("inspect", tmp_path / "a\x1b[31m\nfoldmark: fine")


def test_without_the_extra_one_line_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from foldmark.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "foldmark: the command line is not installed; run: pip install 'foldmark[cli]'\n"
    )


def test_an_interrupt_ends_with_130_and_no_traceback(monkeypatch: pytest.MonkeyPatch):
    class Interrupted:
        @property
        def buffer(self) -> object:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert main(["inspect", "-"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_went_away_is_no_reason_to_complain(transcript_file: Path):
    with subprocess.Popen(
        [FOLDMARK, "plan", transcript_file],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_output_that_cannot_be_written_is_one_line(transcript_file: Path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [FOLDMARK, "inspect", transcript_file],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=environment(),
        )
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert done.stderr.startswith(b"foldmark: ")


def test_a_window_that_holds_not_even_what_must_be_shown_is_refused(transcript_file: Path):
    line = refusal("plan", transcript_file, "--window", "100")
    assert "75 usable tokens" in line
    assert "larger window" in line


def test_figures_beyond_reason_are_no_traceback(tmp_path: Path):
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
