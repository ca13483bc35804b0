"""Commands on one session of a store: looked at, searched, and taken back, on both engines."""

import json
import os
import signal

import pytest
from bench.lab.generate import generate
from msgspec.structs import replace

import foldmark
from foldmark.model.values import encode
from tests.support.cli_program import (
    HOSTILE,
    compacted_store,
    fill_store,
    json_of,
    output_of,
    refusal,
    run_cli,
    run_program,
    sample_transcript,
    tool_message,
)


@pytest.fixture
def live(store: str) -> str:
    """A store with a session that was pruned, compacted and continued."""
    return compacted_store(store)


def as_json(value: object) -> object:
    return json.loads(encode(value))


# --- show ----------------------------------------------------------------------------------


def test_show_prints_what_the_model_sees(live: str):
    report = json_of("show", "latest")
    assert set(report) == {"id", "title", "before", "tokens", "folded", "log", "acts", "messages"}
    with foldmark.open(live, session="ses_live") as opened:
        view = opened.view()
        assert report["messages"] == as_json(view.messages)
        assert report["tokens"] == view.tokens
        visible = set(view.indexes)
    assert report["folded"] == report["log"]["messages"] - len(visible) > 0
    acts = [(act["number"], act["kind"], act["state"]) for act in report["acts"]]
    assert acts == [(1, "prune", "done"), (2, "pivot", "done")]
    assert report["acts"][0]["before"] > report["acts"][0]["after"]
    output = output_of("show", "latest")
    act = report["acts"][1]
    for text in (
        f"{report['folded']} messages, replaced by the summary",
        f"{act['before']:,} → {act['after']:,}",
        "The orders load.",
        "And now the discounts?",
        '→ read {"filePath":"/shop/order_29.py"}',
    ):
        assert text in output


def test_long_texts_are_cut_without_full(live: str):
    cut = output_of("show", "latest")
    whole = output_of("show", "latest", "--full")
    assert cut.count("entry 29 of an order") == 12
    assert "… 289 lines more; --full shows all" in cut
    assert whole.count("entry 29 of an order") == 300
    assert "--full" not in whole


def test_the_view_before_an_operation_is_shown(live: str):
    before = json_of("show", "latest", "--before", "1")
    assert (before["before"], before["folded"]) == (1, 0)
    assert before["tokens"] == before["acts"][0]["before"]
    pruned = output_of("show", "latest", "--before", "2")
    assert "before operation 2" in pruned
    assert "recall h1]" in pruned


def test_a_diff_has_the_changes_of_one_operation_only(live: str):
    prune = json_of("show", "latest", "--diff", "1")
    assert set(prune) == {"id", "act", "before", "after", "changes"}
    assert (prune["before"], prune["after"]) == (prune["act"]["before"], prune["act"]["after"])
    assert {item["message"]["role"] for item in prune["changes"]} == {"tool"}
    pivot = json_of("show", "latest", "--diff", "2")
    assert (pivot["before"], pivot["after"]) == (pivot["act"]["before"], pivot["act"]["after"])
    added = [item["message"] for item in pivot["changes"] if item["change"] == "added"]
    assert "The orders load." in json.dumps(added)
    assert "discounts" not in json.dumps(added)
    output = output_of("show", "latest", "--diff", "1")
    assert "- tool" in output
    assert "+ tool" in output
    output_of("undo", "latest")
    undone = json_of("show", "latest", "--diff", "2")
    assert (undone["changes"], undone["act"]["state"]) == ([], "undone")
    assert "changes nothing" in output_of("show", "latest", "--diff", "2")


def test_the_diff_of_a_revert_takes_messages_out(live: str):
    output_of("revert", "latest", "h5")
    with foldmark.open(live, session="ses_live") as opened:
        opened.user("Do something else")
    changes = json_of("show", "latest", "--diff", "3")["changes"]
    assert "The orders load." in json.dumps([h for h in changes if h["change"] == "removed"])
    assert "entry 4" in json.dumps([h for h in changes if h["change"] == "added"])
    assert "something else" not in json.dumps(changes)


def test_a_diff_of_an_imported_operation_has_only_its_changes(store: str):
    fill_store(store, generate(3, messages=300, pivots=True, pruned=True, window=40_000))
    prune = json_of("show", "latest", "--diff", "1")
    assert {item["message"]["role"] for item in prune["changes"]} == {"tool"}
    pivot = json_of("show", "latest", "--diff", "2")
    assert pivot["before"] > pivot["after"]


def test_the_whole_log_has_numbers_handles_and_states(live: str):
    view = json_of("show", "latest")
    output_of("revert", "latest", "h3")
    report = json_of("show", "latest", "--all")["messages"]
    assert [item["place"] for item in report] == list(range(view["log"]["messages"]))
    assert [item["state"] for item in report] == ["shown"] * 4 + ["reverted"] * (len(report) - 4)
    assert report[1]["handles"] == ["h1"]
    output_of("undo", "latest")
    again = json_of("show", "latest", "--all")["messages"]
    assert [item["state"] for item in again].count("folded") == view["folded"]
    assert again[1]["pruned"] == ["h1"]
    output = output_of("show", "latest", "--all")
    assert again[1]["message"]["info"]["id"] in output
    assert "h1 → read" in output
    assert "summarized" in output


# --- names ---------------------------------------------------------------------------------


def test_a_session_is_found_by_an_unambiguous_prefix(store: str):
    transcript = sample_transcript(calls=2)
    names = ("ses_shop", "ses_shoper", "ses_bakery")
    fill_store(
        store, *(replace(transcript, info=replace(transcript.info, id=name)) for name in names)
    )
    assert json_of("show", "ses_b")["id"] == "ses_bakery"
    assert json_of("show", "ses_shop")["id"] == "ses_shop"
    assert json_of("show", "latest")["id"] == "ses_bakery"
    for wrong, near in (("ses_", "ses_bakery, ses_shop"), ("ses_bakry", "ses_bakery")):
        assert f"did you mean {near}" in refusal("show", wrong)
    assert refusal("show", "")


# --- search and recall ---------------------------------------------------------------------


def test_search_finds_visible_pruned_and_summarized_messages(live: str):
    report = json_of("search", "latest", "entry", "29")
    assert set(report) == {"id", "query", "found"}
    (hit,) = report["found"]
    assert set(hit) == {"handle", "message", "place", "kind", "tool", "snippet", "state"}
    assert (hit["tool"], hit["state"]) == ("read", "shown")
    states = {
        item["state"] for item in json_of("search", "latest", "order", "--limit", "99")["found"]
    }
    assert states >= {"shown", "folded"}
    output_of("undo", "latest")
    (hit,) = json_of("search", "latest", "entry 3 of", "--limit", "1")["found"]
    assert hit["state"] == "pruned"
    output = output_of("search", "latest", "entry 3 of", "--limit", "1")
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
def test_a_query_is_data(store: str, query: str):
    compacted_store(store, steps=8)
    assert json_of("search", "latest", query)["found"] == []
    assert "No matches in session ses_live" in output_of("search", "latest", query)
    assert json_of("search", "latest", "order")["found"]


def test_recall_prints_the_exact_bytes(store: str):
    text = f"first\r\nsecond\ttab {HOSTILE} é漢\ud83d"
    fill_store(store, sample_transcript(tool_message(99, "read", "/a", text), calls=0))
    assert run_cli("recall", "latest", "h0") == (0, text, "")
    assert json_of("recall", "latest", "h0")["content"] == text


# --- undo, revert, fork --------------------------------------------------------------------


def test_an_undone_operation_can_be_redone(live: str):
    view = json_of("show", "latest")["messages"]
    result = json_of("undo", "latest")
    assert set(result) == {"id", "act", "before", "after"}
    assert (result["act"]["number"], result["act"]["state"]) == (2, "undone")
    assert result["before"] < result["after"]
    assert json_of("show", "latest")["messages"] != view
    again = json_of("undo", "latest", "--redo")
    assert (again["before"], again["after"]) == (result["after"], result["before"])
    assert json_of("show", "latest")["messages"] == view
    output = output_of("undo", "latest", "--operation", "1")
    assert "Operation 1 (prune) was undone" in output
    assert "is undone" in refusal("undo", "latest", "--operation", "1")


def test_a_session_can_be_reverted_to_a_message(live: str):
    view = json_of("show", "latest")["messages"]
    result = json_of("revert", "latest", "h5")
    assert (result["act"]["kind"], result["act"]["number"]) == ("revert", 3)
    assert len(json_of("show", "latest")["messages"]) == 11
    output_of("undo", "latest")
    assert json_of("show", "latest")["messages"] == view
    assert "Reverted to h5" in output_of("revert", "latest", "h5")


def test_a_fork_starts_as_the_session_is_or_was(live: str):
    whole = json_of("fork", "ses_live", "--as", "twin")
    assert set(whole) == {"id", "from", "messages", "tokens"}
    assert (whole["id"], whole["from"]) == ("twin", "ses_live")
    views = [json_of("show", name)["messages"] for name in ("twin", "ses_live")]
    assert views[0] == views[1]
    early = json_of("fork", "ses_live", "--at", "h5")
    assert early["messages"] == 6
    assert early["id"].startswith("ses_")
    assert "Forked ses_live as third" in output_of("fork", "ses_live", "--as", "third")


def test_a_writer_is_named_and_readers_do_not_wait(live: str):
    with foldmark.open(live, session="ses_live") as writing:
        writing.user("I am at it")
        holder = writing.info.holder
        for command in ("undo", "revert"):
            more = ("h1",) if command == "revert" else ()
            code, output, errors = run_cli(command, "latest", *more, FOLDMARK_WAIT_SECONDS="0.2")
            assert (code, output, errors.count("\n")) == (2, "", 1)
            assert f"is being written by process {os.getpid()}" in errors
        reads = ("show latest", "search latest order", "recall latest h1", "events latest")
        for line in (*reads, "export latest", "sessions"):
            assert output_of(*line.split())
        assert writing.info.holder == holder
        assert "I am at it" in output_of("show", "latest")


# --- events --------------------------------------------------------------------------------


def test_events_are_printed_one_per_line(live: str):
    output = output_of("events", "latest", "--json")
    events = [json.loads(line) for line in output.splitlines()]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert set(events[0]) == {"number", "session", "kind", "at", "data"}
    (pruned,) = [event for event in events if event["kind"] == "session.pruned"]
    after = output_of("events", "latest", "--after", pruned["number"] - 1)
    assert len(after.splitlines()) == len(events) - pruned["number"] + 1
    first = after.splitlines()[0]
    assert first.split()[0] == str(pruned["number"])
    assert f"session.pruned      act=1 parts={pruned['data']['parts']}" in first
    assert output_of("events", "latest", "--after", len(events)) == ""


def test_events_are_followed_until_an_interrupt(store: str):
    compacted_store(store, steps=8)
    with run_program("events", "ses_live", "--follow", "--json") as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert json.loads(program.stdout.readline())["number"] == 1
        with foldmark.open(store, session="ses_live") as writing:
            message = writing.user("Are you there?")
        while json.loads(program.stdout.readline())["data"].get("message") != message.id:
            pass
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=20) == 130
        assert b"Traceback" not in program.stderr.read()
