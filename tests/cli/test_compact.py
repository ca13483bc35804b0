"""`foldmark compact`: what it makes fits, what it says is true, and what is wrong is one line."""

import json
import stat
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from foldmark.model.messages import Message, TextPart, UserInfo
from foldmark.policy import PRESETS
from foldmark.wire.codec import WIRES
from foldmark.wire.formats import decode
from tests.support.cli_program import (
    json_of,
    output_of,
    run_cli,
    sample_transcript,
    write_transcript,
)
from tests.support.corpus import FOREIGN

KEYS = {
    *("before", "after", "summary", "messages", "how", "calls", "cost", "flaws", "pruned"),
    *("folded", "window", "usable", "target", "wire", "tokens", "tail_start", "out"),
}
CALLS = 120
ENOUGH, SMALL = 24_000, 8_000  # where pruning is enough for so many calls, and where it is not


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_transcript(tmp_path, sample_transcript(calls=CALLS))


def talk(folder: Path, *request: str) -> Path:
    """A list of messages that names no model."""
    path = folder / "chat.json"
    message = [{"role": "user", "content": text} for text in request]
    path.write_text(json.dumps([{"role": "system", "content": "Be brief."}, *message]))
    return path


def compacted(*arguments: object) -> dict[str, Any]:
    return json_of("compact", *arguments)


def assert_consistent(report: dict[str, Any]) -> None:
    """What is told of one compaction agrees with itself."""
    assert set(report) >= KEYS
    assert report["after"]["tokens"] + report["fixed"] <= report["usable"]
    assert report["target"] is None or report["after"]["tokens"] <= report["target"]
    shares, gone = report["tokens"]["after"], report["tokens"]["before"]
    assert sum(shares.values()) == report["after"]["tokens"]
    assert min(*shares.values(), *gone.values()) >= 0
    assert (report["summary"] is None) == (report["how"] is None) == (not report["folded"])
    assert report["messages"]


# --- what is made --------------------------------------------------------------------------


def test_a_session_that_fits_is_not_changed(file: Path):
    report = compacted(file, "--window", 900_000)
    assert_consistent(report)
    assert (report["before"], report["summary"]) == (report["after"], None)
    assert (report["pruned"], report["folded"], report["calls"]) == ([], [], 0)
    whole = json.loads(output_of("convert", file, "--to", report["wire"], "--view"))
    assert report["messages"] == whole
    assert "It fits already" in output_of("compact", file, "--window", 900_000)


def test_pruning_comes_first_and_needs_no_summary(file: Path):
    report = compacted(file, "--window", ENOUGH)
    assert_consistent(report)
    assert (report["summary"], report["folded"]) == (None, [])
    handles = {item["handle"] for item in report["pruned"]}
    text = json.dumps(report["messages"])
    assert handles
    assert all(f"recall {handle}]" in text for handle in handles)
    assert report["tokens"]["after"]["placeholders"] > 0
    assert "Pruned: " in output_of("compact", file, "--window", ENOUGH)


def test_if_pruning_is_not_enough_a_digest_replaces_older_messages(file: Path):
    report = compacted(file, "--window", SMALL)
    assert_consistent(report)
    assert (report["how"], report["calls"], report["cost"]) == ("digest", 0, 0)
    assert report["summary"] in json.dumps(report["messages"], ensure_ascii=False).replace(
        "\\n", "\n"
    )
    ids = [message.id for message in sample_transcript(calls=CALLS).messages]
    folded = [item["message"] for item in report["folded"]]
    assert folded == ids[: len(folded)]
    assert report["tail_start"] in (None, ids[len(folded)])
    output = output_of("compact", file, "--window", SMALL)
    for text in ("Summarized: ", "no model was called", "The summary starts with", "--output FILE"):
        assert text in output


def test_a_target_is_met_even_if_the_window_is_large(file: Path):
    for target in (3_000, 1_000):
        report = compacted(file, "--target", target)
        assert_consistent(report)
        assert report["how"] == "digest"


def test_the_users_requests_stay_in_the_view(tmp_path: Path):
    rule = "Never touch the schema, whatever the tests say"
    message = Message(info=UserInfo(id="rule"), parts=(TextPart(text=rule),))
    path = write_transcript(tmp_path, sample_transcript(message, calls=CALLS))
    report = compacted(path, "--window", SMALL)
    assert rule in json.dumps(report["messages"])
    assert "Look at order 0, then tell me how it loads" in json.dumps(report["messages"])


def test_the_same_transcript_gives_the_same_messages(file: Path):
    assert compacted(file, "--window", SMALL) == compacted(file, "--window", SMALL)


@pytest.mark.parametrize("wire", WIRES)
def test_each_api_format_can_be_written_and_read_again(file: Path, wire: str):
    report = compacted(file, "--window", SMALL, "--api", wire)
    assert report["wire"] == wire
    decode(report["messages"], wire)


def test_the_api_format_is_the_transcripts_own_by_default(tmp_path: Path):
    report = compacted(talk(tmp_path, "Fix it"), "--window", SMALL)
    assert report["wire"] == "openai-chat"
    assert [message["role"] for message in report["messages"]] == ["system", "user"]
    assert report["fixed"] > 0


def test_a_window_smaller_than_a_policys_reserve_is_still_usable(file: Path):
    for policy in PRESETS:
        report = compacted(file, "--window", SMALL, "--policy", policy)
        assert_consistent(report)
        assert report["usable"] >= SMALL // 4


def test_environment_variables_switch_pruning_off(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOLDMARK_DISABLE_PRUNE", "1")
    assert compacted(file, "--window", ENOUGH)["pruned"] == []
    monkeypatch.setenv("FOLDMARK_DISABLE_AUTOCOMPACT", "1")  # who asks for it by hand gets it
    assert compacted(file, "--window", ENOUGH)["how"] == "digest"


def test_a_transcript_is_read_from_standard_input_and_never_changed(file: Path):
    before = file.read_bytes()
    code, output, errors = run_cli("compact", "-", "--window", SMALL, "--json", data=before)
    assert (code, errors) == (0, "")
    assert json.loads(output)["how"] == "digest"
    output_of("compact", file, "--window", SMALL)
    assert file.read_bytes() == before


@pytest.mark.parametrize("policy", ["foldmark", "opencode", "codelet"])
def test_real_transcripts_of_every_format_can_be_compacted(corpus: Path, policy: str):
    folders = sorted(path for path in corpus.iterdir() if path.is_dir())
    for folder in (folder for folder in folders if folder.name not in FOREIGN):
        path = min(folder.iterdir(), key=lambda file: file.stat().st_size)
        for sizes in (("--window", 24_000), ("--window", 200_000, "--target", 4_000)):
            arguments = ("compact", path, *sizes, "--policy", policy, "--json")
            code, output, _ = run_cli(*arguments)
            assert code == 0, (path.name, sizes)
            report = json.loads(output)
            assert_consistent(report)
            decode(report["messages"], report["wire"])


# --- the file that is written --------------------------------------------------------------


def test_the_output_file_is_private_and_has_the_messages(file: Path, tmp_path: Path):
    out = tmp_path / "messages.json"
    output = output_of("compact", file, "--window", SMALL, "--output", out)
    assert "Wrote " in output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    report = compacted(file, "--window", SMALL, "--output", out, "--force")
    assert json.loads(out.read_bytes()) == report["messages"]
    assert report["out"] == str(out)


def test_standard_output_has_only_the_messages(file: Path):
    output = output_of("compact", file, "--window", SMALL, "--output", "-")
    assert json.loads(output) == compacted(file, "--window", SMALL)["messages"]


def test_instructions_focus_the_digest(tmp_path: Path):
    names = ["".join(letters) for letters in product("abcdef", repeat=3)]
    answers = [
        f"See shop/order_{name}.py, where {name}_speed is told to clients." for name in names
    ]
    message = [{"role": "assistant", "content": text} for text in ("The basket leaks.", *answers)]
    path = talk(tmp_path, "Look after the shop")
    path.write_text(json.dumps([*json.loads(path.read_text()), *message]))
    result = [
        str(compacted(path, "--target", "900", *more)["messages"])
        for more in ((), ("--instructions", "keep all about baskets"))
    ]
    assert ["The basket leaks." in text for text in result] == [False, True]


# --- what is refused -----------------------------------------------------------------------


# --- how it looks --------------------------------------------------------------------------


def test_a_session_within_its_target_is_not_changed(file: Path):
    assert compacted(file, "--target", 500_000, "--window", 900_000)["summary"] is None


def test_a_session_without_a_model_can_be_compacted_to_a_target(tmp_path: Path):
    assert compacted(talk(tmp_path, "Fix it"), "--target", "100")["summary"] is None
