"""Commands on one session of a store: looked at, searched, and taken back, on both engines."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from bench.lab.generate import generate
from msgspec.structs import replace
from rich.cells import cell_len

import foldmark
from foldmark.model.messages import Message, TextPart, UserInfo
from foldmark.model.values import encode
from tests.support.cli_program import (
    FOLDMARK,
    STEERING,
    compacted_store,
    environment,
    fill_store,
    json_of,
    output_of,
    refusal,
    run_cli,
    sample_transcript,
    tool_message,
)

HOSTILE = "[red]x[/red]\x1b[31m\x1b]0;title\x07\x9b2J\r\nfoldmark: all is well\u202e"


def as_json(value: object) -> object:
    return json.loads(encode(value))


# --- show ----------------------------------------------------------------------------------


def test_show_gives_the_view_that_the_model_is_shown(where: str):
    compacted_store(where)
    found = json_of("show", "latest", "--store", where)
    assert set(found) == {"id", "title", "before", "tokens", "folded", "log", "acts", "messages"}
    with foldmark.open(where, session="ses_live") as opened:
        view = opened.view()
        assert found["messages"] == as_json(view.messages)
        assert found["tokens"] == view.tokens
        shown = set(view.indexes)
    assert found["folded"] == found["log"]["messages"] - len(shown) > 0
    acts = [(act["number"], act["kind"], act["state"]) for act in found["acts"]]
    assert acts == [(1, "prune", "done"), (2, "pivot", "done")]
    assert found["acts"][0]["before"] > found["acts"][0]["after"]
    output = output_of("show", "latest", "--store", where)
    act = found["acts"][1]
    for text in (
        f"{found['folded']} messages, replaced by the summary",
        f"{act['before']:,} → {act['after']:,}",
        "The orders load.",
        "And now the discounts?",
        '→ read {"filePath":"/shop/order_29.py"}',
    ):
        assert text in output


def test_long_texts_are_cut_unless_all_is_wanted(where: str):
    compacted_store(where)
    cut = output_of("show", "latest", "--store", where)
    whole = output_of("show", "latest", "--full", "--store", where)
    assert cut.count("entry 29 of an order") == 12
    assert "… 289 lines more; --full shows all" in cut
    assert whole.count("entry 29 of an order") == 300
    assert "--full" not in whole


def test_the_view_before_an_act_is_shown(where: str):
    compacted_store(where)
    before = json_of("show", "latest", "--before", "1", "--store", where)
    assert (before["before"], before["folded"]) == (1, 0)
    assert before["tokens"] == before["acts"][0]["before"]
    pruned = output_of("show", "latest", "--before", "2", "--store", where)
    assert "before operation 2" in pruned
    assert "recall h1]" in pruned


def test_a_diff_tells_what_one_act_did_and_nothing_that_came_later(where: str):
    compacted_store(where)
    prune = json_of("show", "latest", "--diff", "1", "--store", where)
    assert set(prune) == {"id", "act", "before", "after", "changes"}
    assert (prune["before"], prune["after"]) == (prune["act"]["before"], prune["act"]["after"])
    assert {held["message"]["role"] for held in prune["changes"]} == {"tool"}
    pivot = json_of("show", "latest", "--diff", "2", "--store", where)
    assert (pivot["before"], pivot["after"]) == (pivot["act"]["before"], pivot["act"]["after"])
    added = [held["message"] for held in pivot["changes"] if held["change"] == "added"]
    assert "The orders load." in json.dumps(added)
    assert "discounts" not in json.dumps(added)
    output = output_of("show", "latest", "--diff", "1", "--store", where)
    assert "- tool" in output
    assert "+ tool" in output
    output_of("undo", "latest", "--store", where)
    undone = json_of("show", "latest", "--diff", "2", "--store", where)
    assert (undone["changes"], undone["act"]["state"]) == ([], "undone")
    assert "changes nothing" in output_of("show", "latest", "--diff", "2", "--store", where)


def test_the_diff_of_a_revert_takes_messages_out(where: str):
    compacted_store(where)
    output_of("revert", "latest", "h5", "--store", where)
    with foldmark.open(where, session="ses_live") as opened:
        opened.user("Do something else")
    changes = json_of("show", "latest", "--diff", "3", "--store", where)["changes"]
    assert "The orders load." in json.dumps([h for h in changes if h["change"] == "removed"])
    assert "entry 4" in json.dumps([h for h in changes if h["change"] == "added"])
    assert "something else" not in json.dumps(changes)


def test_a_diff_of_imported_acts_is_of_them_alone(where: str):
    fill_store(where, generate(3, messages=300, pivots=True, pruned=True, window=40_000))
    prune = json_of("show", "latest", "--diff", "1", "--store", where)
    assert {held["message"]["role"] for held in prune["changes"]} == {"tool"}
    pivot = json_of("show", "latest", "--diff", "2", "--store", where)
    assert pivot["before"] > pivot["after"]


def test_the_whole_log_names_places_handles_and_states(where: str):
    compacted_store(where)
    view = json_of("show", "latest", "--store", where)
    output_of("revert", "latest", "h3", "--store", where)
    found = json_of("show", "latest", "--all", "--store", where)["messages"]
    assert [held["place"] for held in found] == list(range(view["log"]["messages"]))
    assert [held["state"] for held in found] == ["shown"] * 4 + ["reverted"] * (len(found) - 4)
    assert found[1]["handles"] == ["h1"]
    output_of("undo", "latest", "--store", where)
    again = json_of("show", "latest", "--all", "--store", where)["messages"]
    assert [held["state"] for held in again].count("folded") == view["folded"]
    assert again[1]["pruned"] == ["h1"]
    output = output_of("show", "latest", "--all", "--store", where)
    assert again[1]["message"]["info"]["id"] in output
    assert "h1 → read" in output
    assert "folded" in output


def test_an_act_that_is_not_there_is_refused(where: str):
    compacted_store(where)
    for option in ("--before", "--diff"):
        line = refusal("show", "latest", option, "9", "--store", where)
        assert "has no operation 9" in line
        assert refusal("show", "latest", option, "0", "--store", where)
    assert "exclude each other" in refusal(
        "show", "latest", "--all", "--diff", "1", "--store", where
    )
    assert "has no operation 9" in refusal("undo", "latest", "--operation", "9", "--store", where)


# --- names ---------------------------------------------------------------------------------


def test_a_session_is_found_by_a_beginning_that_only_it_has(where: str):
    made = sample_transcript(calls=2)
    names = ("ses_shop", "ses_shoper", "ses_bakery")
    fill_store(where, *(replace(made, info=replace(made.info, id=name)) for name in names))
    assert json_of("show", "ses_b", "--store", where)["id"] == "ses_bakery"
    assert json_of("show", "ses_shop", "--store", where)["id"] == "ses_shop"
    assert json_of("show", "latest", "--store", where)["id"] == "ses_bakery"
    for wrong, near in (("ses_", "ses_bakery, ses_shop"), ("ses_bakry", "ses_bakery")):
        assert f"did you mean {near}" in refusal("show", wrong, "--store", where)
    assert refusal("show", "", "--store", where)


# --- search and recall ---------------------------------------------------------------------


def test_words_are_found_shown_pruned_and_folded(where: str):
    compacted_store(where)
    found = json_of("search", "latest", "entry", "29", "--store", where)
    assert set(found) == {"id", "query", "found"}
    (hit,) = found["found"]
    assert set(hit) == {"handle", "message", "place", "kind", "tool", "snippet", "state"}
    assert (hit["tool"], hit["state"]) == ("read", "shown")
    states = {
        held["state"]
        for held in json_of("search", "latest", "order", "--limit", "99", "--store", where)["found"]
    }
    assert states >= {"shown", "folded"}
    output_of("undo", "latest", "--store", where)
    (hit,) = json_of("search", "latest", "entry 3 of", "--limit", "1", "--store", where)["found"]
    assert hit["state"] == "pruned"
    output = output_of("search", "latest", "entry 3 of", "--limit", "1", "--store", where)
    for text in (
        hit["handle"],
        "pruned",
        "read",
        "entry 3 of an order",
        "foldmark recall ses_live",
    ):
        assert text in output


@pytest.mark.parametrize(
    "query", ["\"' OR 1=1 -- * NEAR(", "'); DROP TABLE sessions; --", "x\0y", "ΑΣ %s %(a)s ? \\"]
)
def test_a_query_is_data(where: str, query: str):
    compacted_store(where, steps=8)
    assert json_of("search", "latest", query, "--store", where)["found"] == []
    assert "No matches in session ses_live" in output_of(
        "search", "latest", query, "--store", where
    )
    assert json_of("search", "latest", "order", "--store", where)["found"]


def test_a_query_without_words_is_refused(where: str):
    compacted_store(where, steps=8)
    assert "has no word to search for" in refusal("search", "latest", "*\x1b[(", "--store", where)
    assert refusal("search", "latest", "order", "--limit", "0", "--store", where)


def test_what_is_recalled_is_what_was_said_to_the_byte(where: str):
    text = f"first\r\nsecond\ttab {HOSTILE} é漢\ud83d"
    fill_store(where, sample_transcript(tool_message(99, "read", "/a", text), calls=0))
    command = [str(FOLDMARK), "recall", "latest", "h0", "--store", where]
    done = subprocess.run(command, capture_output=True, check=True, env=environment())
    assert done.stdout == text.encode("utf-8", "surrogatepass")
    assert json_of("recall", "latest", "h0", "--store", where)["content"] == text


@pytest.mark.parametrize("handle", ["h9999", "hxyz", "7", "", "h" + "f" * 40, "h-1"])
def test_what_is_no_handle_is_refused(where: str, handle: str):
    fill_store(where, sample_transcript(calls=2))
    assert "session ses_shop has no handle" in refusal("recall", "latest", handle, "--store", where)
    assert "no message" in refusal("revert", "latest", handle, "--store", where)
    assert "no message" in refusal("fork", "latest", "--at", handle, "--store", where)


# --- undo, revert, fork --------------------------------------------------------------------


def test_what_is_undone_can_be_redone(where: str):
    compacted_store(where)
    view = json_of("show", "latest", "--store", where)["messages"]
    told = json_of("undo", "latest", "--store", where)
    assert set(told) == {"id", "act", "before", "after"}
    assert (told["act"]["number"], told["act"]["state"]) == (2, "undone")
    assert told["before"] < told["after"]
    assert json_of("show", "latest", "--store", where)["messages"] != view
    again = json_of("undo", "latest", "--redo", "--store", where)
    assert (again["before"], again["after"]) == (told["after"], told["before"])
    assert json_of("show", "latest", "--store", where)["messages"] == view
    assert "nothing to redo" in refusal("undo", "latest", "--redo", "--store", where)
    output = output_of("undo", "latest", "--operation", "1", "--store", where)
    assert "Operation 1 (prune) was undone" in output
    assert "is undone" in refusal("undo", "latest", "--operation", "1", "--store", where)


def test_a_session_goes_back_to_a_message(where: str):
    compacted_store(where)
    view = json_of("show", "latest", "--store", where)["messages"]
    told = json_of("revert", "latest", "h5", "--store", where)
    assert (told["act"]["kind"], told["act"]["number"]) == ("revert", 3)
    assert len(json_of("show", "latest", "--store", where)["messages"]) == 11
    output_of("undo", "latest", "--store", where)
    assert json_of("show", "latest", "--store", where)["messages"] == view
    assert "Reverted to h5" in output_of("revert", "latest", "h5", "--store", where)


def test_a_fork_begins_as_the_session_is_or_was(where: str):
    compacted_store(where)
    whole = json_of("fork", "ses_live", "--as", "twin", "--store", where)
    assert set(whole) == {"id", "from", "messages", "tokens"}
    assert (whole["id"], whole["from"]) == ("twin", "ses_live")
    views = [json_of("show", name, "--store", where)["messages"] for name in ("twin", "ses_live")]
    assert views[0] == views[1]
    early = json_of("fork", "ses_live", "--at", "h5", "--store", where)
    assert early["messages"] == 6
    assert early["id"].startswith("ses_")
    assert "already exists" in refusal("fork", "ses_live", "--as", "twin", "--store", where)
    for name in ("latest", ""):
        assert "cannot be a session id" in refusal(
            "fork", "ses_live", "--as", name, "--store", where
        )
    assert "Forked ses_live as third" in output_of(
        "fork", "ses_live", "--as", "third", "--store", where
    )


def test_one_who_writes_is_named_and_readers_are_not_kept_waiting(where: str):
    compacted_store(where)
    with foldmark.open(where, session="ses_live") as writing:
        writing.user("I am at it")
        holder = writing.info.holder
        for command in ("undo", "revert"):
            more = ("h1",) if command == "revert" else ()
            code, output, errors = run_cli(
                command, "latest", *more, "--store", where, FOLDMARK_WAIT_SECONDS="0.2"
            )
            assert (code, output, errors.count("\n")) == (2, "", 1)
            assert f"is being written by process {os.getpid()}" in errors
        for command in (
            ("show", "latest"),
            ("search", "latest", "order"),
            ("recall", "latest", "h1"),
            ("events", "latest"),
            ("export", "latest"),
            ("sessions",),
        ):
            assert output_of(*command, "--store", where)
        assert writing.info.holder == holder
        assert "I am at it" in output_of("show", "latest", "--store", where)


# --- events --------------------------------------------------------------------------------


def test_events_are_told_line_by_line(where: str):
    compacted_store(where)
    output = output_of("events", "latest", "--json", "--store", where)
    events = [json.loads(line) for line in output.splitlines()]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert set(events[0]) == {"number", "session", "kind", "at", "data"}
    (pruned,) = [event for event in events if event["kind"] == "session.pruned"]
    after = output_of("events", "latest", "--after", pruned["number"] - 1, "--store", where)
    assert len(after.splitlines()) == len(events) - pruned["number"] + 1
    first = after.splitlines()[0]
    assert first.split()[0] == str(pruned["number"])
    assert f"session.pruned      act=1 parts={pruned['data']['parts']}" in first
    assert output_of("events", "latest", "--after", len(events), "--store", where) == ""
    for number in ("-1", "x", "9" * 30):
        assert refusal("events", "latest", "--after", number, "--store", where)


def test_events_are_followed_until_an_interrupt(where: str):
    compacted_store(where, steps=8)
    command = [FOLDMARK, "events", "ses_live", "--follow", "--json", "--store", where]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert json.loads(program.stdout.readline())["number"] == 1
        with foldmark.open(where, session="ses_live") as writing:
            said = writing.user("Are you there?")
        while json.loads(program.stdout.readline())["data"].get("message") != said.id:
            pass
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=20) == 130
        assert b"Traceback" not in program.stderr.read()


# --- what others wrote ---------------------------------------------------------------------


def hostile(where: str) -> str:
    said = Message(info=UserInfo(id=f"m{HOSTILE}"), parts=(TextPart(text=f"order {HOSTILE}"),))
    made = sample_transcript(
        said, tool_message(99, HOSTILE, HOSTILE, f"order {HOSTILE}\n" * 50), calls=2
    )
    return fill_store(
        where, replace(made, info=replace(made.info, id=f"a{HOSTILE}", title=HOSTILE))
    )


@pytest.mark.parametrize(
    "command",
    [
        ("sessions",),
        ("show", "latest"),
        ("show", "latest", "--all", "--full"),
        ("search", "latest", "order"),
        ("search", "latest", f"order {HOSTILE}"),
        ("events", "latest"),
        ("gc", "--older-than", "0", "--dry-run"),
        ("fork", "latest"),
    ],
)
def test_what_others_wrote_is_never_a_command(where: str, command: tuple[str, ...]):
    hostile(where)
    code, output, errors = run_cli(*command, "--store", where)
    assert (code, errors) == (0, "")
    assert not STEERING.search(output)
    if command[0] != "events":
        assert "[red]x[/red]" in output.replace("\n", "")
    if command[0] != "fork":
        code, output, errors = run_cli(*command, "--json", "--store", where)
        assert (code, errors) == (0, "")
        assert not STEERING.search(output)


@pytest.mark.parametrize("columns", [30, 80, 120])
@pytest.mark.parametrize(
    "command",
    [
        ("sessions",),
        ("show", "latest"),
        ("show", "latest", "--all"),
        ("show", "latest", "--diff", "1"),
        ("search", "latest", "order"),
    ],
)
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, command: tuple[str, ...], columns: int):
    where = compacted_store(str(tmp_path / "a.db"))
    output = output_of(*command, "--store", where, COLUMNS=str(columns))
    assert max(map(cell_len, output.splitlines())) <= columns


def test_a_reader_that_goes_away_is_no_reason_to_complain(tmp_path: Path):
    where = compacted_store(str(tmp_path / "a.db"))
    for command in ("show --full", "events", "export", "recall", "sessions"):
        name, *more = command.split()
        session_id = () if name == "sessions" else ("latest",)
        handle = ("h1",) if name == "recall" else ()
        with subprocess.Popen(
            [FOLDMARK, name, *session_id, *handle, *more, "--store", where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.close()
            assert program.stderr.read() == b""
