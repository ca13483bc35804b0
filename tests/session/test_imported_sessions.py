"""Imports: a session that is imported in pieces equals one that is imported at once."""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bench.lab.generate import generate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from foldmark.log.log import Log
from foldmark.log.marks import with_parts
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Message,
    Number,
    Pending,
    Running,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
)
from foldmark.policy import FOLDMARK, OPENCODE
from foldmark.store.importing import SessionImport
from foldmark.store.store import Store
from foldmark.tokens.counters import counter
from foldmark.transcripts.build import (
    FormatReader,
    OutputsPruned,
    SessionOpened,
    SessionReverted,
    Step,
    assistant_message,
    user_message,
)
from foldmark.transcripts.read import SessionCollector
from foldmark.wire.codec import ReadResult
from foldmark.wire.pairing import LateResult, settle_call
from tests.support.session_strategies import sessions
from tests.support.store_engines import new_database
from tests.support.stored_sessions import bytes_of, opened, plain, work
from tests.support.stored_transcripts import stored_state

COUNT = counter(FOLDMARK.estimate)
few = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


# --- any steps -----------------------------------------------------------------------------


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Texts, calls, results late and early, prunes, pivots and reverts in any order."""
    result: list[Step] = []
    names: list[str] = []
    calls: list[str] = []
    for number, kind in enumerate(draw(st.lists(st.integers(0, 11), max_size=30))):
        name = f"m{number}"
        if kind <= 2:
            result.append(user_message(name, (TextPart(text=f"Always do {name}"),), number + 1))
        elif kind <= 6:
            parts = draw(calling(number))
            calls += [part.call_id or "" for part in parts if isinstance(part, ToolPart)]
            result.append(assistant_message(name, parts, number + 1))
        elif kind == 7 and calls:
            answer = ReadResult(call_id=draw(st.sampled_from(calls)), output=f"late {name}\n" * 20)
            result.append(LateResult(result=answer, key="test", at=number + 1))
        elif kind == 8 and calls:
            chosen = draw(st.lists(st.sampled_from(calls), max_size=4))
            result.append(
                OutputsPruned(calls=(*chosen, "unknown"), at=draw(st.sampled_from((None, 77))))
            )
        elif kind == 9:
            tail = draw(st.sampled_from([None, "gone", *names[-6:]]))
            result += folded(name, tail)
            names.append(f"{name}-summary")
            continue
        else:
            result.append(
                SessionReverted(message=draw(st.sampled_from([None, "gone", *names[-8:]])))
            )
            result.append(user_message(name, (TextPart(text=f"Rather {name}"),), None))
        if isinstance(result[-1], Message):
            names.append(name)
    return result


def folded(name: str, tail: str | None) -> list[Step]:
    """The messages of a compaction, as a format reads it."""
    reader = FormatReader("test")
    reader.conversation.add_compaction(
        name, (TextPart(text=f"So far {name}"),), None, auto=True, tail=tail
    )
    return [step for step in reader.final_steps() if isinstance(step, Message)]


@st.composite
def calling(draw: st.DrawFn, number: int) -> tuple[AnyPart, ...]:
    """A text, and calls with or without results."""
    parts: list[AnyPart] = [TextPart(text=f"I say {number}")]
    for offset, ended in enumerate(draw(st.lists(st.booleans(), max_size=3))):
        value: dict[str, Any] = {"filePath": f"{number}.py"}
        output = f"line {number} {offset}\n" * 30
        state = Completed(input=value, output=output) if ended else Pending(input=value)
        parts.append(ToolPart(tool="read", call_id=f"c{number}-{offset}", state=state))
    return tuple(parts)


def fill(store: Store, name: str, told_steps: Iterable[Step]) -> None:
    """Import a session from its beginning, new or not."""
    with store.engine.writing():
        row = store.find(name) or store.insert_session(SessionInfo(id=name), FOLDMARK.estimate)
        entry = SessionImport(store.engine, row, COUNT)
        for step in told_steps:
            match step:
                case Message():
                    entry.add(step)
                case LateResult(result=answer):
                    entry.add_result(
                        answer.call_id,
                        lambda part, late=step: settle_call(part, late.result, late.key, late.at),
                    )
                case OutputsPruned():
                    entry.prune(step.calls, step.at)
                case SessionReverted():
                    entry.revert(step.message)
                case SessionOpened():
                    pass
        entry.finish()


def collected(told_steps: Iterable[Step]) -> list[Message]:
    """The messages of the same steps, without a store."""
    together = SessionCollector("opencode")
    together.add(SessionOpened(info=SessionInfo(id="s")))
    for step in told_steps:
        together.add(step)
    return list(together.transcripts()[0].messages)


def grows(where: str, told_steps: Sequence[Step], cuts: Iterable[float]) -> None:
    ends = sorted({int(cut * len(told_steps)) for cut in cuts})
    pieces, once = uuid4().hex, uuid4().hex
    with Store.open(where, durable=False) as store:
        for end in (*ends, len(told_steps), len(told_steps)):
            fill(store, pieces, told_steps[:end])
        fill(store, once, told_steps)
    results, expected = stored_state(where, pieces), stored_state(where, once)
    for each in (results, expected):
        each["export"]["info"] = each["row"] = None
    assert results == expected
    with opened(where, once, policy=OPENCODE) as session:
        log = Log(counter(OPENCODE.estimate), collected(told_steps))
        assert bytes_of(session.view()) == bytes_of(
            Viewer(log, OPENCODE, usable=session.usable).view()
        )
        assert list(session.export(reverted=False).messages) == collected(told_steps)


cuts = st.lists(st.floats(0, 1), max_size=3)


@given(steps(), cuts)
def test_any_steps_can_be_imported_in_pieces_into_a_file(
    made: list[Step], cuts: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        grows(str(Path(folder) / "store.db"), made, cuts)


@few
@given(steps(), cuts)
def test_any_steps_can_be_imported_in_pieces_into_postgres(
    address: str, made: list[Step], cuts: list[float]
) -> None:
    grows(address, made, cuts)


# --- repeated exports ----------------------------------------------------------------------


@st.composite
def exports(draw: st.DrawFn) -> list[list[Message]]:
    """A session, after some of its earlier states."""
    whole = draw(sessions())
    ends = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=3)))
    return [*(_earlier(whole[:end], draw) for end in ends), whole]


def _earlier(messages: list[Message], draw: st.DrawFn) -> list[Message]:
    """An earlier state: nothing pruned yet, and the last message incomplete."""
    if draw(st.booleans()):
        messages = [with_parts(message, lambda _, part: _unpruned(part)) for message in messages]
    if messages and draw(st.booleans()):
        last = messages[-1]
        remaining = last.parts[: draw(st.integers(0, len(last.parts)))]
        parts = tuple(_waiting(part) if draw(st.booleans()) else part for part in remaining)
        messages = [*messages[:-1], replace(last, parts=parts)]
        if isinstance(last.info, AssistantInfo) and draw(st.booleans()):
            unfinished = replace(last.info, finish=UNSET)
            messages[-1] = replace(messages[-1], info=unfinished)
    return messages


def _unpruned(part: AnyPart) -> AnyPart:
    if isinstance(part, ToolPart) and isinstance(part.state, Completed) and part.state.time:
        time = replace(part.state.time, compacted=UNSET)
        return replace(part, state=replace(part.state, time=time))
    return part


def _waiting(part: AnyPart) -> AnyPart:
    return replace(part, state=Running()) if isinstance(part, ToolPart) else part


def is_the_same_at_last(where: str, told_exports: list[list[Message]]) -> None:
    """Check that imports of earlier states do not change the result."""
    pieces, once = uuid4().hex, uuid4().hex
    with Store.open(where, durable=False) as store:
        for messages in (*told_exports, told_exports[-1]):
            fill(store, pieces, messages)
        fill(store, once, told_exports[-1])
    results, expected = stored_state(where, pieces), stored_state(where, once)
    for each in (results, expected):
        each["export"]["info"] = each["row"] = None
        # Marks may belong to one operation or to several.
        operations: list[Any] = each.pop("acts")
        each["pivots"] = [operation for operation in operations if operation[0] == "pivot"]
        marks: list[dict[int, Number]] = [one[-1] for one in operations if one[-1]]
        each["marks"] = sorted(mark for entry in marks for mark in entry.items())
        each["past"] = replace(each["past"], marks={})
    assert results == expected
    messages = told_exports[-1]
    assert results["export"]["messages"] == as_json(messages)


def as_json(messages: list[Message]) -> Any:
    return plain(Transcript(info=SessionInfo(id="s"), messages=tuple(messages)))["messages"]


@given(exports())
def test_repeated_exports_can_be_imported_into_a_file(made: list[list[Message]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        is_the_same_at_last(str(Path(folder) / "store.db"), made)


@few
@given(exports())
def test_repeated_exports_can_be_imported_into_postgres(
    address: str, made: list[list[Message]]
) -> None:
    is_the_same_at_last(address, made)


# --- single cases --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 5])
def test_imports_in_batches_and_message_by_message_are_equal(
    where: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session too large for memory each message is written, and requests are read again."""
    result = generate(seed, messages=250, pivots=True, window=30_000).messages
    with Store.open(where, durable=False) as store:
        fill(store, "held", result)
        monkeypatch.setattr("foldmark.store.importing._MAX_BATCH_BYTES", 0)
        fill(store, "read", result)
        assert len(store.operations(store.resolve("read").key, "pivot")) > 2
    entry, read = stored_state(where, "held"), stored_state(where, "read")
    entry["export"]["info"] = read["export"]["info"] = None
    entry["row"], read["row"] = entry["row"][1:], read["row"][1:]
    assert entry == read


def test_an_export_with_an_undone_pivot_is_imported_unchanged(where: str) -> None:
    with opened(where, "a") as session:
        work(session)
        session.compact("Folded.")
        session.user("Go on")
        session.undo()
        result = session.export(reverted=False).messages
    with Store.open(where, durable=False) as store:
        fill(store, "b", result)
    before = stored_state(where, "b")
    with Store.open(where, durable=False) as store:
        fill(store, "b", result)
    assert stored_state(where, "b") == before
    assert [operation[0] for operation in before["acts"]] == ["pivot"]
    with opened(where, "b") as session:
        assert session.export(reverted=False).messages == result
        session.redo()
        assert session.view().pivot is not None
