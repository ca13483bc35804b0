"""The demonstration tells the truth: what it prints happened in the store that it leaves."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from foldmark.demo.demonstration import SAMPLE, sample
from foldmark.model.messages import Completed, ToolPart
from foldmark.model.values import encode
from tests.support.cli_program import json_of, output_of


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One demonstration for all that only look at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("demo")))
        return json_of("demo")


def test_the_sample_is_a_realistic_session_without_paths_of_the_recording_machine():
    transcript = sample()
    assert SAMPLE.stat().st_size < 2**16
    assert 150 <= len(transcript.messages) <= 170
    assert transcript.info.directory == "/home/dev/orders-service"
    text = encode(transcript).decode()
    assert not re.search(r"/(?:tmp|work|root|private|Users)/", text)
    outputs = [
        part.state.output
        for message in transcript.messages
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, Completed)
    ]
    assert any("FAILED (failures=" in output for output in outputs)
    assert any(output.rstrip().endswith("OK") for output in outputs)


def test_the_session_is_pruned_first_and_then_compacted(report: dict[str, Any]):
    assert [act["kind"] for act in report["acts"]] == ["prune", "pivot"]
    for act in report["acts"]:
        assert act["before"] > act["after"]
    assert report["acts"][1]["after"] < report["usable"] / 2


def test_every_request_fits_though_the_log_does_not(report: dict[str, Any]):
    assert report["largest"] < report["usable"] < report["tokens"]
    last = report["points"][-1]
    assert last["message"] == report["messages"] == len(sample().messages)
    assert last["view"] < report["usable"] < last["log"] == report["tokens"]


def test_the_users_constraint_survives_the_compaction(report: dict[str, Any]):
    assert report["survived"]
    visible = output_of("show", "latest", "--full", "--store", report["store"])
    assert report["constraint"] in " ".join(visible.split())
    (first, *_) = sample().messages
    assert report["constraint"] in str(first.parts[0])


def test_undo_restores_the_earlier_view_and_redo_the_compacted_one(report: dict[str, Any]):
    undo = report["undo"]
    assert undo["before"] == undo["undone"] != undo["compacted"]
    assert undo["compacted"] == undo["redone"]


def test_nothing_is_lost_and_a_handle_recalls_the_whole_output(report: dict[str, Any]):
    assert report["unchanged"]
    recall = report["recall"]
    assert recall["shown"] in report["summary"]
    assert len(recall["recalled"]) > len(recall["shown"])
    output = output_of("recall", "latest", recall["handle"], "--store", report["store"])
    assert output.rstrip("\n") == recall["recalled"].rstrip("\n")


def test_the_last_operation_can_be_undone_in_the_store_it_leaves(report: dict[str, Any]):
    last, done = report["acts"][-1], json_of("undo", "latest", "--store", report["store"])
    assert done["act"]["kind"] == last["kind"]
    assert done["after"] - done["before"] == last["before"] - last["after"]
    json_of("undo", "latest", "--store", report["store"], "--redo")


def test_the_session_of_the_demonstration_stays_in_a_private_folder(report: dict[str, Any]):
    path, store = Path(report["path"]), Path(report["store"])
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json_of("plan", path, "--window", "32000")["overflow"]


def test_the_users_settings_do_not_change_the_demonstration(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FOLDMARK_POLICY", "codelet")
    monkeypatch.setenv("FOLDMARK_SUMMARIZER", "openai:gpt-5")
    monkeypatch.setenv("FOLDMARK_WINDOW", "9000")
    again = json_of("demo")
    assert [act["after"] for act in again["acts"]] == [act["after"] for act in report["acts"]]
    assert again["undo"] == report["undo"]


def test_the_demonstration_shows_each_step_and_names_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = output_of("demo")
    for number in range(1, 6):
        assert f"\n{number}. " in output
    text = " ".join(output.split())
    for words in ("is still there word for word", "restores the earlier view", "[Digest of"):
        assert words in text
    _, _, commands = output.partition("Try it yourself")
    (path,) = tmp_path.glob("foldmark-demo-*/session.json")
    assert f"foldmark inspect {path}\n" in commands
