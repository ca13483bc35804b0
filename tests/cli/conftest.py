"""A transcript to look at, a project to work in, and a store."""

from pathlib import Path

import pytest

from tests.support.cli_program import sample_transcript, write_transcript


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small session as a file."""
    return write_transcript(tmp_path, sample_transcript())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, apart from the store and the snapshots."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "app.py").write_text("order = 0\n")
    return folder


@pytest.fixture
def store(where: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new store on each engine, which all commands use."""
    monkeypatch.setenv("FOLDMARK_STORE", where)
    return where
