"""`foldmark plan`: what prune and compact would do, and why."""

from pathlib import Path

import pytest

from tests.support.cli_program import json_of, output_of, sample_transcript, write_transcript

PLAN_KEYS = {"overflow", "usable", "tokens", "prune", "keep", "tail_start"}
SMALL = "--window 24000"


def test_a_plan_for_a_real_export_has_the_documented_keys(corpus: Path):
    for path in sorted((corpus / "opencode").glob("*.json")):
        report = json_of("plan", path)
        assert set(report) >= PLAN_KEYS
        for item in (*report["prune"], *report["keep"]):
            assert {"part", "tool", "tokens", "reason"} <= set(item)
        assert report["freed"] == sum(item["tokens"] for item in report["prune"])


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("", "model", "anthropic:claude-sonnet-4-5"),
        ("--model openai:gpt-5", "model", "openai:gpt-5"),
        ("--window 100000 --reserved 1000", "usable", 99_000),
        ("--window 100000 --threshold 0.5", "usable", 50_000),
        ("--window 100000 --threshold 20000", "usable", 20_000),
        ("", "overflow", False),
        (SMALL, "overflow", True),
        (f"{SMALL} --no-auto", "overflow", False),
        (f"{SMALL} --no-prune", "prune", []),
        (f"{SMALL} --no-prune", "freed", 0),
    ],
)
def test_a_plan_obeys_its_options(file: Path, options: str, key: str, value: object):
    assert json_of("plan", file, *options.split())[key] == value


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "It fits"),
        (SMALL, "It overflows"),
        (SMALL, "it fits, without a summary"),
        (f"{SMALL} --no-auto", "automatic compaction is off"),
        (f"{SMALL} --no-prune", "Prune would hide nothing"),
    ],
)
def test_a_plan_says_what_would_happen(file: Path, options: str, text: str):
    assert text in output_of("plan", file, *options.split())


def test_a_plan_is_for_the_window_of_its_model(file: Path, tmp_path: Path):
    other = json_of("plan", file, "--model", "openai:gpt-5")
    assert other["usable"] != json_of("plan", file)["usable"]
    path = write_transcript(tmp_path, sample_transcript(model="of-our-own"), "own.json")
    report = json_of("plan", path, *SMALL.split())
    assert (report["window"], report["usable"]) == (24_000, 18_000)


def test_a_small_window_overflows_and_pruning_may_be_enough(file: Path):
    report = json_of("plan", file, *SMALL.split())
    assert report["pressure"] > 1
    assert report["prune"]
    assert report["after_prune"]["tokens"] < report["tokens"]
    assert not report["after_prune"]["overflow"]


def test_a_variable_switches_compaction_off_unless_an_option_switches_it_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FOLDMARK_DISABLE_AUTOCOMPACT", "1")
    assert not json_of("plan", file, *SMALL.split())["overflow"]
    assert json_of("plan", file, *SMALL.split(), "--auto")["overflow"]


def test_the_tables_group_reasons_and_show_where_recent_messages_start(tmp_path: Path):
    path = write_transcript(tmp_path, sample_transcript(calls=80))
    report = json_of("plan", path, *SMALL.split())
    output = output_of("plan", path, *SMALL.split())
    assert f"and {len(report['prune']) - 15} more" in output
    ids = [message.id for message in sample_transcript(calls=80).messages]
    assert f"from message {ids.index(report['tail_start']) + 1} of {len(ids)} on" in output
    for reason in {item["reason"] for item in report["keep"]}:
        assert reason in output


def test_planning_does_not_change_the_file(file: Path):
    before = file.read_bytes()
    output_of("plan", file, *SMALL.split())
    assert file.read_bytes() == before
