"""The log: data derived from its messages, and marks beside them."""

from typing import Any

import pytest
from msgspec.structs import replace

from foldmark.compaction.fold import session_fold, tokens_used
from foldmark.compaction.pivot import append_pivot
from foldmark.log.log import Log, handle, ordinal_of, part_text
from foldmark.log.marks import marked_messages
from foldmark.log.tool_targets import Span, target
from foldmark.log.user_requests import Requests
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    TextPart,
    Time,
    Tokens,
    ToolPart,
    UserInfo,
)
from foldmark.model.prompt_messages import ToolMessage
from foldmark.policy import FOLDMARK, OPENCODE, Policy
from foldmark.tokens.counters import by_classes

ENDED = Time(start=1, end=2)
NOT_HANDLES = ("h\u0661", "", "h", "7", "7f3", "hx", "handle", "h-1", "h_1", "h1_0", "h 1", "h1.0")
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: b.py\n"


def user(text: str = "Fix it", number: int = 0) -> Message:
    return Message(info=UserInfo(id=f"u{number}"), parts=(TextPart(text=text),))


def call(state: Any, number: int = 0, **info: Any) -> Message:
    part = ToolPart(id=f"p{number}", tool="read", call_id=f"c{number}", state=state)
    return Message(info=AssistantInfo(id=f"a{number}", **info), parts=(TextPart(text="ok"), part))


def done(text: str = "out", time: Time = ENDED) -> Completed:
    return Completed(input={"filePath": "a.py"}, output=text, time=time)


def test_a_handle_leads_back_to_its_part() -> None:
    log = Log(by_classes, [user(), Message(info=UserInfo(id="e"), parts=()), call(done())])
    for ordinal in range(3):
        position = log.part_at(ordinal)
        assert position is not None
        assert position[0].ordinal + position[1] == ordinal
        assert ordinal_of(handle(ordinal)) == ordinal
    assert log.part_at(3) is log.part_at(-1) is None


@pytest.mark.parametrize("name", NOT_HANDLES)
def test_other_names_are_not_handles(name: str) -> None:
    assert ordinal_of(name) is None


def test_messages_may_repeat_their_ids() -> None:
    log = Log(by_classes, [user("one"), user("two"), call(done()), call(done())])
    assert log.index_of("u0") == 1
    assert log.index_of("u0", below=1) == 0
    assert list(log.calls) == [3, 5]
    log.mark([3], at=7)
    assert list(log.marks) == [3]


def test_imported_marks_are_marks_and_can_be_removed() -> None:
    def time() -> object:
        part = marked_messages(log)[1].parts[1]
        assert isinstance(part, ToolPart)
        return part.state.time

    log = Log(by_classes, [user(), call(done(time=replace(ENDED, compacted=9)))])
    (ordinal,) = log.calls
    assert log.marks == {ordinal: 9}
    assert marked_messages(log)[1] is log.entries[1].message
    log.unmark([ordinal])
    assert time() == ENDED
    log.mark([ordinal], at=11)
    assert time() == replace(ENDED, compacted=11)


def test_marking_unknown_ordinals_does_nothing() -> None:
    log = Log(by_classes, [user()])
    log.mark([0, 5, -1], at=1)
    log.unmark([0, 5])
    assert not log.marks


def test_requests_are_answered_by_a_finished_reply_only() -> None:
    requests = Requests()
    requests.add_message(0, 0, user("Fix it"))
    request = requests.all[0]
    for finish in ("tool-calls", "length"):
        requests.add_message(1, 1, call(done(), finish=finish))
        assert not requests.is_answered(request, 9)
    requests.add_message(2, 2, call(done(), finish="stop", error={"name": "APIError"}))
    assert not requests.is_answered(request, 9)
    requests.add_message(3, 3, call(done(), finish="stop"))
    assert requests.is_answered(request, 9)
    assert not requests.is_answered(request, 3)


@pytest.mark.parametrize(
    ("tool", "arguments", "access", "files", "label"),
    [
        ("read", {"filePath": "a.py"}, "read", ("a.py",), "a.py"),
        ("Read", {"file_path": "a.py"}, "read", ("a.py",), "a.py"),
        ("edit", {"filePath": "a.py", "oldString": "x"}, "write", ("a.py",), "a.py"),
        ("bash", {"command": "ls -l", "description": "list"}, "other", (), "ls -l"),
        ("grep", {"pattern": "def", "path": "src"}, "other", (), "def"),
        ("odd", {"n": 5, "what": "thing"}, "other", (), "thing"),
        ("odd", {"n": 5}, "other", (), ""),
        ("bash", {"command": "echo\x1b[31m\nred " + "x" * 200}, "other", (), None),
        ("apply_patch", {"patchText": PATCH}, "write", ("a.py", "b.py"), "a.py, b.py"),
    ],
)
def test_the_target_of_a_call_is_found_in_its_arguments(
    tool: str, arguments: dict[str, Any], access: str, files: tuple[str, ...], label: str | None
) -> None:
    result = target(tool, arguments)
    assert (result.access, result.files) == (access, files)
    assert result.label.isprintable()
    assert len(result.label) <= 80
    assert label is None or result.label == label


def test_a_span_covers_the_lines_within_it() -> None:
    assert Span().covers(Span(first=10, last=20))
    assert Span(first=5, last=30).covers(Span(first=10, last=20))
    assert not Span(first=5, last=15).covers(Span(first=10, last=20))
    assert not Span(first=5, last=15).covers(Span())
    lines = target("read", {"filePath": "a", "offset": 10, "limit": 20}).span
    assert lines == Span(first=10, last=30)
    assert target("read", {"filePath": "a", "offset": float("nan")}).span == Span()


def test_a_handle_recalls_hidden_content() -> None:
    log = Log(by_classes, [user("Fix it"), call(done("the whole output"))])
    name = handle(next(iter(log.calls)))
    log.mark(list(log.calls)[:1], at=1)
    entry, offset = log.part_at(ordinal_of(name) or 0) or (None, 0)
    assert entry is not None
    assert part_text(entry.message.parts[offset]) == "the whole output"
    assert log.part_at(ordinal_of("h0") or 0) == (log.entries[0], 0)
    assert log.part_at(ordinal_of("hff") or 0) is ordinal_of("nonsense") is None


def test_a_mark_needs_a_time_to_be_exported() -> None:
    log = Log(by_classes, [user(), call(done())])
    with pytest.raises(ValueError, match="milliseconds"):
        log.mark(list(log.calls)[:1], at=0)


@pytest.mark.parametrize("policy", [FOLDMARK, OPENCODE], ids=lambda policy: policy.name)
def test_a_tail_is_found_even_if_ids_repeat(policy: Policy) -> None:
    turns = [
        replace(message, info=replace(message.info, id="REDACTED"))
        for number in range(12)
        for message in (user(f"Fix {number}", number), call(done("x" * 4_000), finish="stop"))
    ]
    log = Log(by_classes, turns)
    viewer = Viewer(log, policy)
    fold = session_fold(viewer, 20_000)
    assert fold.start
    append_pivot(log, "Done.", tail_start=fold.tail_start)
    tail = [index for index in viewer.view().indexes if index < len(turns)]
    assert tail == list(range(fold.start, len(turns)))


def test_results_of_the_measured_reply_are_added_to_its_usage() -> None:
    measured = Tokens(input=50_000, output=10)
    answer = call(done("word " * 20_000), finish="tool-calls", tokens=measured)
    viewer = Viewer(Log(by_classes, [user(), answer]), FOLDMARK)
    assert tokens_used(viewer) >= 50_010 + by_classes("word " * 20_000)


def test_call_ids_are_unique_even_if_one_looks_renamed() -> None:
    names = ("c1_h3", "c1", "c1", "c1")
    parts = tuple(ToolPart(tool="read", call_id=name, state=done()) for name in names)
    message = Message(info=AssistantInfo(id="a"), parts=(TextPart(text="ok"), *parts))
    results = Viewer(Log(by_classes, [user(), message]), FOLDMARK).view().messages[-1]
    assert isinstance(results, ToolMessage)
    assert len({result.tool_call_id for result in results.content}) == 4
