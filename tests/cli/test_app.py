import json
import re
from pathlib import Path

import pytest

from foldmark.cli.options import parse_size
from tests.support.cli_program import (
    json_of,
    output_of,
    run_cli,
    sample_transcript,
    write_transcript,
)

PLAN_KEYS = {"overflow", "usable", "tokens", "prune", "keep", "tail_start"}


# --- help and version ----------------------------------------------------------------------


def test_the_program_alone_shows_its_commands():
    code, output, errors = run_cli()
    assert (code, errors) == (0, "")
    for command in ("inspect", "plan", "compact", "demo"):
        assert command in output


def test_the_version_is_told():
    assert re.fullmatch(r"foldmark \d+\.\d+\.\d+\S*\n", output_of("--version"))


@pytest.mark.parametrize(
    ("text", "size"), [("10", 10), ("1kB", 1024), ("512MB", 2**29), ("1.5 GiB", 3 * 2**29)]
)
def test_a_size_may_have_a_unit(text: str, size: int):
    assert parse_size(text) == size


# --- inspect -------------------------------------------------------------------------------


def test_inspect_counts_what_real_exports_hold(corpus: Path):
    for path in sorted((corpus / "opencode").glob("*.json")):
        messages = json.loads(path.read_bytes())["messages"]
        states = [p["state"] for m in messages for p in m["parts"] if p["type"] == "tool"]
        found = json_of("inspect", path)
        assert found["format"] == "opencode"
        assert (found["messages"], found["tool_calls"]) == (len(messages), len(states))
        assert found["pruned"] == sum("compacted" in state.get("time", {}) for state in states)
        assert found["tokens"]["total"] == sum(found["tokens"]["by_kind"].values())


def test_inspect_shows_kinds_tools_and_the_largest_parts(transcript_file: Path):
    output = output_of("inspect", transcript_file)
    for text in ("How the orders load", "tool outputs", "read", "order_3.py", "No compactions"):
        assert text in output
    assert "/shop/" not in output  # paths are told from where the session worked


def test_inspect_reads_standard_input(transcript_file: Path):
    code, output, errors = run_cli("inspect", "-", "--json", data=transcript_file.read_bytes())
    assert (code, errors) == (0, "")
    assert json.loads(output)["tool_results"] == 12


def test_another_policy_counts_in_its_own_way(transcript_file: Path):
    assert (
        json_of("inspect", transcript_file)["tokens"]
        != json_of("inspect", transcript_file, "--policy", "codelet")["tokens"]
    )


# --- plan ----------------------------------------------------------------------------------


def test_a_plan_for_a_real_export_has_the_documented_keys(corpus: Path):
    for path in sorted((corpus / "opencode").glob("*.json")):
        found = json_of("plan", path)
        assert set(found) >= PLAN_KEYS
        for held in (*found["prune"], *found["keep"]):
            assert {"part", "tool", "tokens", "reason"} <= set(held)
        assert found["freed"] == sum(held["tokens"] for held in found["prune"])


def test_a_plan_is_for_the_newest_model_unless_another_is_named(transcript_file: Path):
    assert json_of("plan", transcript_file)["model"] == "anthropic:claude-sonnet-4-5"
    other = json_of("plan", transcript_file, "--model", "openai:gpt-5")
    assert other["model"] == "openai:gpt-5"
    assert other["usable"] != json_of("plan", transcript_file)["usable"]


def test_a_window_makes_an_unknown_model_known(tmp_path: Path):
    path = write_transcript(tmp_path, sample_transcript(model="of-our-own"))
    found = json_of("plan", path, "--window", "24000")
    assert (found["window"], found["usable"]) == (24_000, 18_000)


def test_a_small_window_overflows_and_pruning_may_be_enough(transcript_file: Path):
    found = json_of("plan", transcript_file, "--window", "24000")
    assert found["overflow"]
    assert found["pressure"] > 1
    assert found["prune"]
    assert found["after_prune"]["tokens"] < found["tokens"]
    assert not found["after_prune"]["overflow"]
    output = output_of("plan", transcript_file, "--window", "24000")
    assert "It overflows" in output
    assert "it fits, without a summary" in output


def test_a_large_window_fits(transcript_file: Path):
    assert not json_of("plan", transcript_file)["overflow"]
    assert "It fits" in output_of("plan", transcript_file)


def test_reserved_and_threshold_move_what_is_usable(transcript_file: Path):
    assert (
        json_of("plan", transcript_file, "--window", "100000", "--reserved", "1000")["usable"]
        == 99_000
    )
    assert (
        json_of("plan", transcript_file, "--window", "100000", "--threshold", "0.5")["usable"]
        == 50_000
    )
    assert (
        json_of("plan", transcript_file, "--window", "100000", "--threshold", "20000")["usable"]
        == 20_000
    )


def test_what_is_switched_off_is_not_done(transcript_file: Path):
    arguments = ("plan", transcript_file, "--window", "24000")
    assert not json_of(*arguments, "--no-auto")["overflow"]
    assert "automatic compaction is off" in output_of(*arguments, "--no-auto")
    kept = json_of(*arguments, "--no-prune")
    assert (kept["prune"], kept["freed"]) == ([], 0)
    assert "Prune would hide nothing" in output_of(*arguments, "--no-prune")


def test_the_environment_switches_off_unless_an_option_says_otherwise(
    transcript_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FOLDMARK_DISABLE_AUTOCOMPACT", "1")
    assert not json_of("plan", transcript_file, "--window", "24000")["overflow"]
    assert json_of("plan", transcript_file, "--window", "24000", "--auto")["overflow"]


def test_the_tables_group_reasons_and_name_where_the_tail_begins(tmp_path: Path):
    path = write_transcript(tmp_path, sample_transcript(calls=80))
    found = json_of("plan", path, "--window", "24000")
    output = output_of("plan", path, "--window", "24000")
    assert f"and {len(found['prune']) - 15} more" in output
    ids = [message.id for message in sample_transcript(calls=80).messages]
    assert f"from message {ids.index(found['tail_start']) + 1} of {len(ids)} on" in output
    for reason in {held["reason"] for held in found["keep"]}:
        assert reason in output
