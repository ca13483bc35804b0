"""The figures of sessions, alone and combined."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from foldmark.analysis.inspection import Inspection, combined_inspection, inspection, newest_model
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
    bash_call,
    logged,
    pivot,
    read,
    session,
    user,
    user_text,
    write_call,
)
from tests.support.session_strategies import sessions

INFO = SessionInfo(id="s", title="Login", directory="/app")
LOGIN = "/app/login.py"
KINDS = {"user", "assistant", "reasoning", "tool_input", "tool_output", "file"}
count = counter("classes")


def figures(*messages: Message, pruned: tuple[int, ...] = (), number: int = 1) -> Inspection:
    log = logged(*messages)
    log.mark(pruned, at=1)
    return inspection(Viewer(log, FOLDMARK), INFO, session=number)


def test_messages_calls_results_and_facts_are_reported():
    report = figures(*session())
    assert (report.messages, report.requests) == (3, 1)
    assert (report.tool_calls, report.tool_results) == (3, 2)
    assert (report.format, report.title, report.directory) == ("opencode", "Login", "/app")
    assert (report.models, report.seconds) == (("acme:large",), 60)


def test_an_empty_session_has_figures_too():
    report = figures()
    assert (report.messages, report.tokens.total, report.view.tokens) == (0, 0, 0)
    assert (report.seconds, report.largest) == (None, ())


def test_tokens_are_reported_by_kind_and_by_tool():
    tokens = figures(*session()).tokens
    kinds = tokens.by_kind
    assert list(tokens.by_tool) == ["read", "bash"]
    assert min(kinds.user, kinds.assistant, kinds.reasoning, kinds.tool_input) > 0
    # An error is an output, although it cannot be pruned.
    assert kinds.tool_output == count("def login(): ...\n" * 90) + count("stuck " * 50)


def test_pruning_shrinks_the_view_and_not_the_total():
    before, after = figures(*session()), figures(*session(), pruned=(3,))
    assert before.view.tokens == before.tokens.total
    assert before.view.messages == before.messages
    assert (before.pruned, after.pruned) == (0, 1)
    assert after.tokens == before.tokens
    assert after.view.tokens < before.view.tokens


def test_the_largest_parts_come_first_with_their_state():
    largest = figures(*session(), pruned=(3,)).largest
    sizes = [part.tokens for part in largest]
    assert sizes == sorted(sizes, reverse=True)
    first = largest[0]
    assert (first.handle, first.name, first.target) == (handle(3), "read", LOGIN)
    assert first.state == "pruned"
    assert {part.state for part in largest[1:]} == {"shown"}
    names = {part.name for part in largest}
    assert names == {"read", "bash", "user", "assistant", "reasoning"}


def test_no_more_than_ten_parts_are_listed():
    many = [user(f"m{i}", TextPart(text="word " * (3 * i + 1))) for i in range(30)]
    handles = [part.handle for part in figures(*many).largest]
    assert handles == [handle(ordinal) for ordinal in range(29, 19, -1)]


def test_a_pivot_is_reported_and_the_parts_it_folded_are_marked():
    summary = TextPart(text="The login was fixed.")
    report = figures(*session(), *pivot("k1", summary, tail="m3"))
    assert report.pivots == 1
    (compaction,) = report.compactions
    assert (compaction.message, compaction.tail) == (4, 3)
    assert compaction.summary == count(summary.text)
    assert report.largest[0].state == "folded"
    assert report.models == ("acme:large",)


def test_files_are_a_kind_of_their_own():
    document = FilePart(mime="application/pdf", url="file:///plan.pdf", filename="plan.pdf")
    report = figures(user("m1", TextPart(text="See this"), document))
    assert report.tokens.by_kind.file > 0
    assert report.largest[0].target == "plan.pdf"


def test_the_newest_model_is_the_last_that_a_message_names():
    chosen = UserInfo(id="m9", model=ModelRef(provider_id="acme", model_id="huge"))
    assert newest_model(logged(*session())) == "acme:large"
    assert newest_model(logged(*session(), Message(info=chosen, parts=()))) == "acme:huge"
    assert newest_model(logged()) is None


def test_the_figures_are_one_json_object_with_the_documented_keys():
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(figures(*session())))
    documented = {"format", "messages", "tool_calls", "tool_results", "pivots", "pruned"}
    assert documented | {"tokens", "view"} <= set(plain)
    assert set(plain["tokens"]) >= {"total", "by_kind", "by_tool"}
    assert set(plain["view"]) == {"messages", "tokens"}
    assert set(plain["tokens"]["by_kind"]) == KINDS


# --- files, and the fixed part of requests -------------------------------------------------


def test_a_file_has_the_tokens_and_the_number_of_its_reads_and_writes():
    calls = read("/app/a.py", "x\n" * 500), write_call("/app/a.py"), read("/app/b.py", "y")
    work = answer("a", *calls), answer("b", read("/app/a.py", "z"))
    first, second = figures(*work).tokens.by_file
    assert (first.file, first.reads, first.writes) == ("/app/a.py", 2, 1)
    assert (second.file, second.reads, second.writes) == ("/app/b.py", 1, 0)
    assert first.tokens > second.tokens > 0


def test_a_patch_of_two_files_counts_for_each_with_its_share():
    patch = "*** Update File: a.py\n+x\n*** Add File: b.py\n+y\n"
    part = ToolPart(tool="apply_patch", state=Completed(input={"patch": patch}, output="Done."))
    tokens = figures(answer("a", part)).tokens
    assert {(file.file, file.writes) for file in tokens.by_file} == {("a.py", 1), ("b.py", 1)}
    assert sum(file.tokens for file in tokens.by_file) == tokens.by_tool["apply_patch"]


def test_the_system_prompt_and_the_tools_are_not_part_of_the_total():
    origin = Origin(format="codex", system="You fix bugs. " * 20, tools=[{"name": "run"}])
    viewer = Viewer(logged(*session()), FOLDMARK)
    report = inspection(viewer, SessionInfo(id="s", origin=origin))
    assert report.format == "codex"
    assert report.tokens.fixed.system > report.tokens.fixed.tools > 0
    assert report.tokens.total == inspection(viewer).tokens.total


# --- several sessions ----------------------------------------------------------------------


def test_several_sessions_are_summed_and_their_parts_name_the_session():
    one = figures(*session())
    work = user_text("m1", "Why?"), answer("m2", read(LOGIN, "long\n" * 900))
    two = figures(*work, number=2)
    both = combined_inspection([one, two])
    assert (both.sessions, both.log, both.tool_calls) == (2, 5, 4)
    assert both.tokens.total == one.tokens.total + two.tokens.total
    assert both.view.tokens == one.view.tokens + two.view.tokens
    assert [(file.file, file.reads) for file in both.tokens.by_file] == [(LOGIN, 2)]
    assert [part.session for part in both.largest[:2]] == [2, 1]
    assert (both.directory, both.seconds) == ("/app", 60)
    assert len(both.largest) == len(one.largest) + len(two.largest)


def test_the_same_output_in_two_sessions_is_not_a_repeat():
    each = figures(answer("a", bash_call("ls", "a b c")))
    assert combined_inspection([each, each]).duplicated.outputs == 0


# --- any session ---------------------------------------------------------------------------


@given(sessions())
def test_kinds_sum_to_the_total_and_no_waste_exceeds_it(messages: list[Message]):
    report = figures(*messages)
    kinds = report.tokens.by_kind
    tools = kinds.tool_input + kinds.tool_output
    assert report.tokens.total == sum(msgspec.structs.asdict(kinds).values())
    assert sum(report.tokens.by_tool.values()) == tools
    assert sum(file.tokens for file in report.tokens.by_file) <= tools
    assert report.duplicated.tokens <= kinds.tool_output
    assert report.superseded.tokens <= kinds.tool_output
    assert len(report.compactions) == report.pivots
    assert sum(prune.outputs for prune in report.prunes) == report.pruned


@pytest.mark.parametrize("name", PRESETS)
def test_real_exports_have_the_counts_of_their_json(corpus: Path, name: str):
    policy = PRESETS[name]
    paths = sorted((corpus / "opencode").glob("*.json"))
    assert paths
    for path in paths:
        plain = json.loads(path.read_bytes())
        parts = [part for message in plain["messages"] for part in message["parts"]]
        states = [part["state"] for part in parts if part["type"] == "tool"]
        transcript = read_transcript(path)
        log = Log(counter(policy.estimate), transcript.messages)
        report = inspection(Viewer(log, policy), transcript.info)
        assert report.messages == len(plain["messages"])
        assert report.tool_calls == len(states)
        assert report.tool_results == sum(s["status"] in {"completed", "error"} for s in states)
        assert report.pruned == sum("compacted" in s.get("time", {}) for s in states)
        assert report.tokens.total == sum(msgspec.structs.asdict(report.tokens.by_kind).values())
        assert report.view.tokens <= report.tokens.total
