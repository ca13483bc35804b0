"""The demonstration tells the truth: what it prints happened in the store that it leaves."""

import stat
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from .program import answered, called, printed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One demonstration for all that only look at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("demo")))
        return answered("demo")


def test_the_session_is_pruned_first_and_compacted_where_that_is_not_enough(found: dict[str, Any]):
    kinds = [deed["kind"] for deed in found["deeds"]]
    assert kinds[0] == "prune"
    assert "pivot" in kinds
    for deed in found["deeds"]:
        assert deed["before"] > deed["after"]
        assert deed["hidden"] > 0
    (pivot,) = [deed for deed in found["deeds"] if deed["kind"] == "pivot"]
    assert pivot["after"] < found["usable"] / 2


def test_every_request_fits_before_and_after_the_pivot(found: dict[str, Any]):
    assert found["largest"] < 1
    assert found["after_pivot"] > 100
    assert found["tokens"] > 2 * found["usable"]
    last = found["points"][-1]
    assert last["message"] == 900
    assert last["view"] < found["usable"] < last["log"] == found["tokens"]


def test_undo_gives_the_very_view_of_before_and_redo_the_compacted_one(found: dict[str, Any]):
    undo = found["undo"]
    assert undo["before"] == undo["undone"] != undo["compacted"]
    assert undo["compacted"] == undo["redone"]


def test_nothing_that_was_said_is_lost(found: dict[str, Any]):
    assert found["log"]["messages"] == 900
    assert found["log"]["said"] == found["log"]["kept"]


def test_what_the_model_sees_names_handles_that_recall_the_whole(found: dict[str, Any]):
    pruned, folded = found["examples"]
    assert pruned["shown"].endswith(f"recall {pruned['handle']}]")
    assert folded["shown"] in found["digest"]
    for example in (pruned, folded):
        assert len(example["recalled"]) > len(example["shown"])
        output = printed("recall", "latest", example["handle"], "--store", found["store"])
        assert output.rstrip("\n") == example["recalled"].rstrip("\n")


def test_the_store_that_it_leaves_can_be_undone_to_the_last_act(found: dict[str, Any]):
    last, done = found["deeds"][-1], answered("undo", "latest", "--store", found["store"])
    assert done["act"]["kind"] == last["kind"]
    assert done["after"] - done["before"] == last["before"] - last["after"]
    answered("undo", "latest", "--store", found["store"], "--redo")


def test_a_seed_makes_the_same_demonstration_again(folder: Path):
    first, again = answered("demo", "--seed", "3"), answered("demo", "--seed", "3")
    assert first.pop("path") != again.pop("path")
    assert first.pop("store") != again.pop("store")
    assert first == again


def test_another_seed_makes_another_demonstration(found: dict[str, Any], folder: Path):
    assert answered("demo", "--seed", "4")["log"]["said"] != found["log"]["said"]


def test_the_session_of_the_demonstration_stays_in_a_private_folder(found: dict[str, Any]):
    path, store = Path(found["path"]), Path(found["store"])
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert answered("plan", path)["overflow"]


def test_settings_of_the_user_do_not_change_the_story(
    found: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FOLDMARK_POLICY", "codelet")
    monkeypatch.setenv("FOLDMARK_SUMMARIZER", "openai:gpt-5")
    monkeypatch.setenv("FOLDMARK_WINDOW", "9000")
    assert answered("demo")["deeds"] == found["deeds"]


@pytest.mark.parametrize("columns", [60, 100])
def test_the_demonstration_tells_each_step_and_names_commands(tmp_path: Path, columns: int):
    code, output, errors = called("demo", COLUMNS=str(columns), TMPDIR=str(tmp_path))
    assert (code, errors) == (0, "")
    for number in range(1, 7):
        assert f"\n{number}. " in output
    for text in ("each one fitted", "the very view of before", "(unchanged)", "[Digest of"):
        assert text in " ".join(output.split())
    told, _, commands = output.partition("Try it yourself")
    assert max(map(cell_len, told.splitlines())) <= columns
    (path,) = tmp_path.glob("foldmark-demo-*/session.json")
    assert f"foldmark inspect {path}\n" in commands
