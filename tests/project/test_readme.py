"""What the README says is true: its code runs, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench.lab.generate import generate

from foldmark.files import write_private
from foldmark.model.values import encode
from foldmark.session.settings import load_settings

README = (Path(__file__).parents[2] / "README.md").read_text()
MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


AGENT, FIT, *LOOPS, SESSION = blocks("python")


def test_the_agent_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(AGENT, "README.md", "exec"), {})  # noqa: S102 - our own page
    assert capsys.readouterr().out == "It weighs 25 kg. (2 steps)\n"
    assert len([line for line in AGENT.splitlines() if line.strip()]) <= 10


def test_python_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(SESSION, "README.md", "exec"), {})  # noqa: S102 - our own page
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4
    before, after = int(told[3].split()[0]), int(told[1].split()[0])
    assert after < before / 10
    assert told[2] == "h2 folded 243000"


def test_fit_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(FIT, "README.md", "exec"), {})  # noqa: S102 - our own page
    told = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"601 messages, \d+ that fit, the newest as they are", told[0])
    assert told[1] == "True"


def test_the_loops_in_the_readme_are_those_of_their_page_which_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-loops.md").read_text()
    assert len(LOOPS) == 8
    for loop in LOOPS:
        assert f"```python\n{loop}```" in page


def test_commands_in_the_readme_run(tmp_path: Path) -> None:
    write_private(tmp_path / "session.json", encode(generate(messages=60)))
    lines = [
        line.partition("#")[0].split() for block in blocks("sh") for line in block.splitlines()
    ]
    ours = [line for line in lines if line[:1] == ["foldmark"]]
    assert len(ours) == 15
    for command in ours:
        program = [sys.executable, "-c", "from foldmark.cli import main; main()", *command[1:]]
        run = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert run.stdout


def test_settings_in_the_readme_are_settings(tmp_path: Path) -> None:
    (code,) = blocks("toml")
    (tmp_path / "foldmark.toml").write_text(code)
    found = load_settings(tmp_path, {"FOLDMARK_CONFIG": str(tmp_path / "foldmark.toml")})
    assert (found.policy, found.reserved, found.wait_seconds) == ("foldmark", 20_000, 10)


def test_the_verbs_of_make_exist() -> None:
    verbs = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
    assert verbs == ["demo", "test"]
    for verb in verbs:
        assert f"\n{verb}: $(READY)" in MAKEFILE
