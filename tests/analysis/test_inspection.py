import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from foldmark.analysis.inspection import Inspection, inspected_together, inspection, newest_model
from foldmark.log.log import Log, handle
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    Completed,
    FilePart,
    Message,
    ModelRef,
    Origin,
    SessionInfo,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import read_transcript
from tests.support.sample_sessions import (
    answer,
    asked,
    logged,
    pivot,
    ran,
    read,
    session,
    user,
    wrote,
)
from tests.support.session_strategies import sessions

PUMP = SessionInfo(id="s", title="Pump", directory="/pump")


def figures(messages: list[Message], *, pruned: tuple[int, ...] = ()) -> Inspection:
    log = Log(counter("classes"), messages)
    log.mark(pruned, at=1)
    return inspection(Viewer(log, FOLDMARK), PUMP)


def test_calls_without_a_result_are_no_results():
    found = figures(session())
    assert (found.messages, found.requests) == (3, 1)
    assert (found.tool_calls, found.tool_results) == (3, 2)


def test_title_models_and_duration_are_told():
    found = figures(session())
    assert (found.format, found.title, found.directory) == ("opencode", "Pump", "/pump")
    assert found.models == ("acme:large",)
    assert found.seconds == 60


def test_kinds_sum_to_the_total_and_tools_to_their_two_kinds():
    tokens = figures(session()).tokens
    kinds = tokens.by_kind
    assert tokens.total == sum(msgspec.structs.asdict(kinds).values())
    assert sum(tokens.by_tool.values()) == kinds.tool_input + kinds.tool_output
    assert list(tokens.by_tool) == ["read", "bash"]
    assert min(kinds.user, kinds.assistant, kinds.reasoning, kinds.tool_input) > 0


def test_an_error_is_an_output_though_it_cannot_be_pruned():
    count = counter("classes")
    expected = count("def valve(): ...\n" * 90) + count("stuck " * 50)
    assert figures(session()).tokens.by_kind.tool_output == expected


def test_a_view_that_hides_nothing_costs_what_the_log_costs():
    found = figures(session())
    assert found.view.tokens == found.tokens.total
    assert found.view.messages == found.messages


def test_pruning_shrinks_the_view_and_not_the_total():
    before, after = figures(session()), figures(session(), pruned=(3,))
    assert (before.pruned, after.pruned) == (0, 1)
    assert after.tokens == before.tokens
    assert after.view.tokens < before.view.tokens


def test_the_largest_parts_come_first_with_their_state():
    found = figures(session(), pruned=(3,))
    sizes = [piece.tokens for piece in found.largest]
    assert sizes == sorted(sizes, reverse=True)
    first = found.largest[0]
    assert (first.handle, first.name, first.target) == (handle(3), "read", "/pump/valve.py")
    assert first.state == "pruned"
    assert {piece.state for piece in found.largest[1:]} == {"shown"}
    assert {piece.name for piece in found.largest} == {
        "read",
        "bash",
        "user",
        "assistant",
        "reasoning",
    }


def test_no_more_than_ten_parts_are_named():
    many = [user(f"m{i}", TextPart(text="word " * (3 * i + 1))) for i in range(30)]
    assert [piece.handle for piece in figures(many).largest] == [
        handle(ordinal) for ordinal in range(29, 19, -1)
    ]


def test_a_pivot_is_told_by_its_places_and_what_it_folded_is_so_named():
    found = figures([*session(), *pivot("k1", TextPart(text="The valve was mended."), tail="m3")])
    assert found.pivots == 1
    assert [(fold.message, fold.tail) for fold in found.compactions] == [(4, 3)]
    assert found.compactions[0].summary == counter("classes")("The valve was mended.")
    assert found.largest[0].state == "folded"
    assert found.models == ("acme:large",)


def test_files_are_a_kind_of_their_own():
    picture = FilePart(mime="application/pdf", url="file:///plan.pdf", filename="plan.pdf")
    found = figures([user("m1", TextPart(text="See this"), picture)])
    assert found.tokens.by_kind.file > 0
    assert found.largest[0].target == "plan.pdf"


def test_an_empty_session_has_figures_too():
    found = figures([])
    assert (found.messages, found.tokens.total, found.view.tokens) == (0, 0, 0)
    assert found.seconds is None
    assert found.largest == ()


def test_the_newest_model_is_the_last_that_a_message_names():
    chosen = UserInfo(id="m9", model=ModelRef(provider_id="acme", model_id="huge"))
    messages = session()
    assert newest_model(Log(len, messages)) == "acme:large"
    assert newest_model(Log(len, [*messages, Message(info=chosen, parts=())])) == "acme:huge"
    assert newest_model(Log(len)) is None


def test_the_figures_are_one_json_object_with_the_documented_keys():
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(figures(session())))
    documented = {"format", "messages", "tool_calls", "tool_results", "pivots", "pruned"}
    assert documented | {"tokens", "view"} <= set(plain)
    assert set(plain["tokens"]) >= {"total", "by_kind", "by_tool"}
    assert set(plain["view"]) == {"messages", "tokens"}
    assert set(plain["tokens"]["by_kind"]) == {
        "user",
        "assistant",
        "reasoning",
        "tool_input",
        "tool_output",
        "file",
    }


# --- files, and what is in every request ---------------------------------------------------


def test_a_file_has_the_tokens_of_all_calls_about_it_and_how_often_it_was_touched():
    work = answer(
        "a", read("/pump/a.py", "x\n" * 500), wrote("/pump/a.py"), read("/pump/b.py", "y")
    )
    files = figures([work, answer("b", read("/pump/a.py", "z"))]).tokens.by_file
    assert [(held.file, held.reads, held.writes) for held in files] == [
        ("/pump/a.py", 2, 1),
        ("/pump/b.py", 1, 0),
    ]
    assert files[0].tokens > files[1].tokens > 0


def test_a_patch_of_two_files_counts_for_each_with_its_share():
    patch = "*** Update File: a.py\n+x\n*** Add File: b.py\n+y\n"
    part = ToolPart(tool="apply_patch", state=Completed(input={"patch": patch}, output="Done."))
    tokens = figures([answer("a", part)]).tokens
    assert {(held.file, held.writes) for held in tokens.by_file} == {("a.py", 1), ("b.py", 1)}
    assert sum(held.tokens for held in tokens.by_file) == tokens.by_tool["apply_patch"]


def test_what_is_in_every_request_is_told_beside_the_log_and_not_in_its_total():
    origin = Origin(format="codex", system="You mend pumps. " * 20, tools=[{"name": "turn"}])
    viewer = Viewer(logged(*session()), FOLDMARK)
    found = inspection(viewer, SessionInfo(id="s", origin=origin))
    assert found.format == "codex"
    assert found.tokens.fixed.system > found.tokens.fixed.tools > 0
    assert found.tokens.total == inspection(viewer).tokens.total


# --- several sessions ----------------------------------------------------------------------


def test_several_sessions_are_summed_and_their_parts_name_the_session():
    logs = (
        logged(*session()),
        logged(asked("m1", "Why?"), answer("m2", read("/pump/valve.py", "long\n" * 900))),
    )
    one, two = (
        inspection(Viewer(log, FOLDMARK), PUMP, session=number)
        for number, log in enumerate(logs, 1)
    )
    both = inspected_together([one, two])
    assert (both.sessions, both.log, both.tool_calls) == (2, 5, 4)
    assert both.tokens.total == one.tokens.total + two.tokens.total
    assert both.view.tokens == one.view.tokens + two.view.tokens
    assert [(held.file, held.reads) for held in both.tokens.by_file] == [("/pump/valve.py", 2)]
    assert [piece.session for piece in both.largest[:2]] == [2, 1]
    assert (both.directory, both.seconds) == ("/pump", 60)
    assert len(both.largest) == len(one.largest) + len(two.largest)


def test_the_same_output_in_two_sessions_is_no_repeat():
    held = [inspection(Viewer(logged(answer("a", ran("ls", "a b c"))), FOLDMARK)) for _ in "ab"]
    assert inspected_together(held).duplicated.outputs == 0


# --- any session ---------------------------------------------------------------------------


@given(sessions())
def test_kinds_sum_to_the_total_and_no_waste_exceeds_it(messages: list[Message]):
    found = figures(messages)
    kinds = found.tokens.by_kind
    tools = kinds.tool_input + kinds.tool_output
    assert found.tokens.total == sum(msgspec.structs.asdict(kinds).values())
    assert sum(found.tokens.by_tool.values()) == tools
    assert sum(held.tokens for held in found.tokens.by_file) <= tools
    assert found.duplicated.tokens <= kinds.tool_output
    assert found.superseded.tokens <= kinds.tool_output
    assert len(found.compactions) == found.pivots
    assert sum(held.outputs for held in found.prunes) == found.pruned


@pytest.mark.parametrize("name", PRESETS)
def test_real_exports_have_the_counts_that_their_json_has(corpus: Path, name: str):
    paths = sorted((corpus / "opencode").glob("*.json"))
    assert paths
    for path in paths:
        plain = json.loads(path.read_bytes())
        parts = [part for message in plain["messages"] for part in message["parts"]]
        states = [part["state"] for part in parts if part["type"] == "tool"]
        policy = PRESETS[name]
        transcript = read_transcript(path)
        log = Log(counter(policy.estimate), transcript.messages)
        found = inspection(Viewer(log, policy), transcript.info)
        assert found.messages == len(plain["messages"])
        assert found.tool_calls == len(states)
        assert found.tool_results == sum(s["status"] in {"completed", "error"} for s in states)
        assert found.pruned == sum("compacted" in s.get("time", {}) for s in states)
        assert found.tokens.total == sum(msgspec.structs.asdict(found.tokens.by_kind).values())
        assert found.view.tokens <= found.tokens.total
