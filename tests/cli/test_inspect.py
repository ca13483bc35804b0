import json
import re
from pathlib import Path
from typing import Any

import pytest

from foldmark.analysis.history import MAX_POINTS
from foldmark.model.messages import CompactionPart, Message, SessionInfo, TextPart, Transcript
from foldmark.model.messages import UserInfo as User
from foldmark.transcripts.read import read_file
from tests.support.cli_program import (
    STEERING,
    json_of,
    output_of,
    run_cli,
    sample_transcript,
    tool_message,
    write_transcript,
)
from tests.support.corpus import FOREIGN
from tests.support.sample_sessions import answer, bash_call, pivot, read, user_text, write_call

KEYS = {
    *("format", "messages", "tool_calls", "tool_results", "pivots", "pruned", "tokens", "view"),
    *("log", "sessions", "session", "largest", "duplicated", "superseded", "compactions"),
    *("prunes", "growth", "rehearsal"),
}
HOSTILE = "/shop/[red]x[/red]\x1b[2J\x9b31m\r\nfoldmark: all is well\u202e.py"


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    """A session that was folded once, with outputs that repeat and are stale."""
    listing = bash_call("ls", "order.py ticket.py\n" * 40)
    return write_transcript(
        tmp_path,
        Transcript(
            info=SessionInfo(id="s", title="The shop", directory="/shop"),
            messages=(
                user_text("m1", "Fix the order, and tell me why it failed"),
                answer("m2", read("/shop/order.py", "entry\n" * 900), listing, measured=20_000),
                answer("m3", write_call("/shop/order.py"), listing),
                *pivot("k", TextPart(text="It was fixed."), wire={"acme": {"preTokens": 21_000}}),
                user_text("m6", "Now the ticket"),
                answer("m7", read("/shop/ticket.py", "row 1\n" * 200), measured=9_000),
            ),
        ),
    )


# --- as JSON -------------------------------------------------------------------------------


def test_json_has_all_figures(folded: Path):
    report = json_of("inspect", folded)
    assert set(report) >= KEYS
    assert (report["sessions"], report["session"], report["pivots"]) == (1, 1, 1)
    assert {item["file"] for item in report["tokens"]["by_file"]} == {
        "/shop/order.py",
        "/shop/ticket.py",
    }
    assert (report["duplicated"]["outputs"], report["superseded"]["outputs"]) == (1, 1)
    (compaction,) = report["compactions"]
    assert compaction["told"] == {"preTokens": 21_000}
    assert compaction["lost"] == {"files": 1, "largest": ["/shop/order.py"], "requests": 1}
    assert report["growth"][-1]["view"] == report["view"]["tokens"]
    assert report["growth"][-1]["log"] == report["tokens"]["total"]
    assert [item.get("measured") for item in report["growth"]][1] == 20_000


def test_every_file_of_the_corpus_can_be_inspected(corpus: Path):
    files = sorted(path for path in corpus.glob("*/*") if path.is_file())
    for path in (path for path in files if path.parent.name not in FOREIGN):
        read_whole = read_file(path)
        report = json_of("inspect", path)
        assert set(report) >= KEYS, path
        assert report["format"] == read_whole.format
        assert (report["messages"], report["tool_calls"], report["tool_results"]) == (
            read_whole.messages,
            read_whole.calls,
            read_whole.results,
        )
        assert report["sessions"] == len(read_whole.sessions)
        assert report["tokens"]["total"] == sum(report["tokens"]["by_kind"].values())
        assert 0 < len(report["growth"]) <= MAX_POINTS
        assert len(report["compactions"]) == report["pivots"]


def test_the_simulation_uses_the_model_or_window(file: Path):
    small = json_of("inspect", file, "--window", "24000")["rehearsal"]
    assert (small["window"], small["usable"]) == (24_000, 18_000)
    assert small["prunes"] > 0
    assert small["first_prune"]["message"] > 1
    large = json_of("inspect", file)["rehearsal"]
    assert (large["model"], large["prunes"]) == ("anthropic:claude-sonnet-4-5", 0)
    other = json_of("inspect", file, "--model", "openai:gpt-5")["rehearsal"]
    assert other["window"] != large["window"]


def test_an_unknown_model_has_the_default_window(tmp_path: Path):
    path = write_transcript(tmp_path, sample_transcript(model="of-our-own"))
    assert json_of("inspect", path)["rehearsal"]["window"] == 200_000


# --- several sessions ----------------------------------------------------------------------


@pytest.fixture
def several(corpus: Path) -> Path:
    return corpus / "openhands" / "openhands_multi_swe_bench_output.jsonl"


def test_several_sessions_are_summed_and_one_can_be_picked(several: Path):
    whole = json_of("inspect", several)
    single = [json_of("inspect", several, "--pick", n + 1) for n in range(whole["sessions"])]
    assert whole["sessions"] == len(single) > 1
    for name in ("log", "requests"):
        assert whole[name] == sum(one[name] for one in single)
    assert whole["tokens"]["total"] == sum(one["tokens"]["total"] for one in single)
    assert whole["view"]["tokens"] == sum(one["view"]["tokens"] for one in single)
    longest = max(range(len(single)), key=lambda n: single[n]["log"])
    assert whole["session"] == longest + 1
    assert whole["growth"] == single[longest]["growth"]
    assert {piece["session"] for piece in single[0]["largest"]} == {1}


def test_the_tables_of_several_sessions_name_them(several: Path):
    output = output_of("inspect", several)
    assert re.search(r"^\d+ sessions in total$", output, re.MULTILINE)
    assert re.search(r"How session \d grew\nthe longest of \d", output)
    assert re.search(r"^ +session +handle", output, re.MULTILINE)
    assert "sessions in total" not in output_of("inspect", several, "--pick", "1")


# --- as tables -----------------------------------------------------------------------------


def test_the_report_has_files_waste_growth_and_compactions(folded: Path):
    output = output_of("inspect", folded)
    for text in (
        "Tokens by file",
        "1 repeated output (",
        "1 superseded output (",
        "written at h3",
        "How the session grew",
        "message 4: from ",
        "the names of 1 file (order.py) and the text of 1 user request",
        "from 20,000 to 9,000 tokens of input",
        "preTokens 21,000",
        "What the policy foldmark would have done in the session",
    ):
        assert text in output


def test_the_report_says_what_a_policy_would_have_done_and_when(file: Path):
    report = json_of("inspect", file, "--window", "24000")["rehearsal"]
    output = output_of("inspect", file, "--window", "24000")
    assert f"before message {report['first_prune']['message']}: " in output
    assert f"{report['peak']:,} tokens" in output
    assert "compact          never" in output
    assert "too small for any compaction" in output_of("inspect", file, "--window", "100")


def test_recorded_prunes_are_reported(tmp_path: Path):
    messages = (
        answer("m1", read("/shop/order.py", "entry\n" * 900, pruned=1_500), at=1_000),
        answer("m2", read("/shop/ticket.py", "row 1\n" * 900, pruned=1), at=2_000),
    )
    output = output_of(
        "inspect",
        write_transcript(tmp_path, Transcript(info=SessionInfo(id="s"), messages=messages)),
    )
    assert "before message 2: 1 output of " in output
    assert "after the last message: 1 output of " in output


def test_a_terminal_without_colors_or_braille_is_supported(folded: Path):
    code, output, errors = run_cli("inspect", folded, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert (code, errors) == (0, "")
    assert "\x1b" not in output
    assert "## the model saw" in output
    assert "from 20,000 to 9,000 tokens" in output


def test_names_in_compactions_never_control_the_terminal(tmp_path: Path):
    wire: Any = {"acme": {f"pre{HOSTILE}": 5, "trigger": HOSTILE}}
    work = (
        answer("m1", read(HOSTILE, "x\n" * 500), read(HOSTILE, "x\n" * 500), write_call(HOSTILE)),
        *pivot("k", TextPart(text=HOSTILE[:3]), wire=wire),
    )
    path = write_transcript(tmp_path, sample_transcript(*work))
    for arguments in (("inspect", path), ("inspect", path, "--json")):
        code, output, errors = run_cli(*arguments, COLUMNS="160")
        assert (code, errors) == (0, "")
        assert not STEERING.search(output)


# --- odd sessions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (user_text("m1", ""),),
        (user_text("m1", "Only a request"),),
        (answer("m1"),),
        (Message(info=User(id="k"), parts=(CompactionPart(auto=True),)),),
        pivot("k", TextPart(text="A summary of nothing")),
        pivot("k"),
        (tool_message(1, "", "", ""),),
    ],
    ids=["empty", "silent", "request", "answer", "queued", "bare-pivot", "void-pivot", "nameless"],
)
def test_unusual_sessions_can_be_inspected(tmp_path: Path, messages: tuple[Message, ...]):
    path = write_transcript(tmp_path, Transcript(info=SessionInfo(id="s"), messages=messages))
    assert json.loads(output_of("inspect", path, "--json"))["log"] == len(messages)
    assert "What the policy foldmark would have done" in output_of("inspect", path)


def test_inspect_counts_real_exports(corpus: Path):
    for path in sorted((corpus / "opencode").glob("*.json")):
        messages = json.loads(path.read_bytes())["messages"]
        states = [p["state"] for m in messages for p in m["parts"] if p["type"] == "tool"]
        report = json_of("inspect", path)
        assert report["format"] == "opencode"
        assert (report["messages"], report["tool_calls"]) == (len(messages), len(states))
        assert report["pruned"] == sum("compacted" in state.get("time", {}) for state in states)
        assert report["tokens"]["total"] == sum(report["tokens"]["by_kind"].values())


def test_inspect_shows_kinds_tools_and_the_largest_parts(file: Path):
    output = output_of("inspect", file)
    for text in ("How the orders load", "tool outputs", "read", "order_3.py", "No compactions"):
        assert text in output
    assert "/shop/" not in output  # paths are told from where the session worked


def test_inspect_reads_standard_input(file: Path):
    code, output, errors = run_cli("inspect", "-", "--json", data=file.read_bytes())
    assert (code, errors) == (0, "")
    assert json.loads(output)["tool_results"] == 12


def test_another_policy_counts_in_its_own_way(file: Path):
    assert (
        json_of("inspect", file)["tokens"]
        != json_of("inspect", file, "--policy", "codelet")["tokens"]
    )


def test_json_has_hostile_tool_names_unchanged(tmp_path: Path):
    path = write_transcript(tmp_path, sample_transcript(tool_message(99, HOSTILE, "/w/x.py", "y")))
    assert HOSTILE in json_of("inspect", path)["tokens"]["by_tool"]
