"""What is put into a store comes out of it: every message, mark and pivot, on each engine."""

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    CompactionPart,
    Completed,
    Message,
    Pending,
    SessionInfo,
    TextPart,
    Time,
    ToolPart,
    Transcript,
    UserInfo,
    decode_transcript,
)
from foldmark.model.values import Json
from foldmark.policy import FOLDMARK, PRESETS, Policy
from foldmark.store.store import Store
from foldmark.tokens.counters import COUNTERS, counter
from foldmark.transcripts.read import read_transcript
from tests.support.session_strategies import sessions
from tests.support.store_engines import new_database
from tests.support.stored_sessions import bytes_of, exported, fill, opened, plain, store_log

HALF = "\ud83d"
ODD_TEXTS = (
    "",
    " ",
    "\0",
    f"half {HALF} of a pair",
    HALF * 3_000,
    "\ue000",
    "\ue000extra",
    "\ue001",
    "\ue0011f",
    'say "\ue0011f',
    'say "\ue001abc',
    '"\ue0011f"',
    '\\"\ue0011f',
    "\\ue0011f",
    "\ue001" * 3_000,
    "x" * 2_047,
    "x" * 2_048,
    "x" * 2_049,
    "é" * 1_023 + "xx",
    "日" * 2_048,
    '"' * 2_048,
    "\\" * 2_049,
    '\\"' * 1_500,
    "\0" * 400,
    "[Old tool result content cleared]",
    "data:image/png;base64,AAAA",
)
odd_texts = st.sampled_from(ODD_TEXTS) | st.text(
    st.sampled_from('"\\{}[],:\ue000\ue001af0\0é日\ud83d\ude00\n'), max_size=12
)
odd_keys = st.sampled_from(("\ue0011f", "\ue000extra", "\ue000other", "", 'a"\ue0011f', "\0", HALF))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from((0, -1, 2**53 + 1, 1.5, -0.0, 1e308, 5e-324, 1e22))
    | odd_texts
)
odd_json = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_keys, inner, max_size=3),
    max_leaves=8,
)
odd_objects = st.dictionaries(st.text(max_size=4) | odd_keys, odd_json, max_size=3)


def odd_part(kind: int, text: str, data: Json) -> Json:
    """Words, a thought, what we do not know, a call that was pruned, one that waits."""
    pruned = {"status": "completed", "input": data, "output": text, "time": {"compacted": 7.5}}
    waits = {"status": "pending", "input": data, "raw": text, "time": None}
    parts: list[Json] = [
        {"type": "text", "text": text, **data},
        {"type": "reasoning", "text": text, "metadata": data},
        {"type": "never-seen", "body": text, "more": data},
        {"type": "tool", "tool": text, "callID": "same", "state": pruned},
        {"type": "tool", "tool": "t", "callID": "same", "state": waits},
    ]
    return parts[kind]


KNOWN = {"type", "text", "id", "time", "synthetic", "ignored", "metadata", "sessionID", "messageID"}


@st.composite
def odd_messages(draw: st.DrawFn) -> Any:
    """A message as others might write it: odd texts, unknown fields and parts, repeated ids."""
    role = draw(st.sampled_from(("user", "assistant")))
    parts: list[Any] = []
    for kind in draw(st.lists(st.integers(0, 4), max_size=3)):
        data = {k: v for k, v in draw(odd_objects).items() if k not in KNOWN}
        parts.append(odd_part(kind, draw(odd_texts), data))
    name = draw(st.sampled_from(("same", "m1", "m\0", HALF, "", '"', "\ue0011f")))
    info = {"id": name, "role": role, "odd": draw(odd_json)}
    return {"info": info, "parts": parts, "unknown": draw(odd_json)}


@contextmanager
def file() -> Generator[str]:
    """A new store in a file, for one example."""
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "store.db")


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


few = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
some = settings(max_examples=60)
_names = iter(f"s{number}" for number in range(10**9))


def comes_back(where: str, messages: list[Any]) -> None:
    """Filled and exported, a transcript is the same JSON value."""
    name = next(_names)
    data = {"info": {"id": name, "title": 'a "\ue0011f'}, "messages": messages, "\ue000extra": [1]}
    written = json.dumps(data).encode()
    transcript = decode_transcript(written)
    store = Store.open(where, durable=False)
    try:
        log = Log(counter("classes"), transcript.messages)
        store_log(store, transcript.info, log, estimate="classes", extra=transcript.extra)
    finally:
        store.close()
    assert exported(where, name) == json.loads(written)


@some
@given(st.lists(odd_messages(), max_size=4))
def test_odd_transcripts_come_back_from_a_file(messages: list[Any]) -> None:
    with file() as where:
        comes_back(where, messages)


@few
@given(st.lists(odd_messages(), max_size=4))
def test_odd_transcripts_come_back_from_postgres(address: str, messages: list[Any]) -> None:
    comes_back(address, messages)


def as_json(messages: list[Message]) -> Any:
    return plain(Transcript(info=SessionInfo(id="s"), messages=tuple(messages)))


@some
@given(sessions())
def test_sessions_come_back_from_a_file(messages: list[Message]) -> None:
    with file() as where:
        fill(where, messages)
        assert exported(where) == as_json(messages)


@few
@given(sessions())
def test_sessions_come_back_from_postgres(address: str, messages: list[Message]) -> None:
    name = next(_names)
    fill(address, messages, name)
    assert exported(address, name)["messages"] == as_json(messages)["messages"]


def test_what_is_said_comes_back(where: str) -> None:
    """The same by the way of a session: said, answered, given back by a tool."""
    for text in ODD_TEXTS:
        name = next(_names)
        with opened(where, name) as session:
            session.user(text)
            session.record([ToolPart(tool="t", call_id="c", state=Pending(input={"k": text}))])
            session.result("c", text, metadata={text or "empty": text})
            told = plain(session.export())
            assert [session.recall(handle) for handle in ("h0", "h1")] == [text, text]
            session.compact(f"So it was: {text}")
        again = exported(where, name)
        assert again["messages"][:2] == told["messages"]
        assert told["messages"][0]["parts"][0]["text"] == text
        assert told["messages"][1]["parts"][0]["state"]["metadata"] == {text or "empty": text}


def test_five_megabytes_come_back(where: str) -> None:
    text = "".join(f"{number * number % 9973} " for number in range(1_100_000))
    assert len(text) > 5_000_000
    comes_back(
        where, [{"info": {"id": "m", "role": "user"}, "parts": [{"type": "text", "text": text}]}]
    )


def test_real_transcripts_come_back(where: str, corpus: Path) -> None:
    paths = sorted((corpus / "opencode").glob("*.json"))
    assert len(paths) == 2
    for path in paths:
        transcript = read_transcript(path)
        store = Store.open(where, durable=False)
        log = Log(counter("classes"), transcript.messages)
        store_log(store, transcript.info, log, estimate="classes")
        store.close()
        assert exported(where, transcript.info.id) == json.loads(path.read_bytes())


# --- the view --------------------------------------------------------------------------------


def marked_undone(messages: list[Message], undone: set[int]) -> list[Message]:
    """Some pivots were taken back before."""
    markers = [
        place
        for place, message in enumerate(messages)
        if any(isinstance(part, CompactionPart) for part in message.parts)
    ]
    taken = {place for number, place in enumerate(markers) if number in undone}
    parts = {place: messages[place].parts[0] for place in taken}
    return [
        Message(
            info=message.info,
            parts=(CompactionPart(auto=True, tail_start_id=held.tail_start_id, undone=1_700_000),),
        )
        if isinstance(held := parts.get(place), CompactionPart)
        else message
        for place, message in enumerate(messages)
    ]


def shows_the_same(where: str, messages: list[Message], policy: Policy, name: str) -> None:
    """What a store loads for a view is enough for it."""
    fill(where, messages, name, policy.estimate)
    with opened(where, name, policy=policy, window=8_000, output=1_000) as session:
        log = Log(counter(policy.estimate), messages)
        expected = Viewer(log, policy, usable=session.usable).view()
        assert bytes_of(session.view()) == bytes_of(expected)
        assert (session.view().indexes, session.view().tokens) == (
            expected.indexes,
            expected.tokens,
        )
        assert plain(session.export())["messages"] == as_json(messages)["messages"]


policies = st.sampled_from(list(PRESETS.values()))
undone = st.sets(st.integers(0, 2), max_size=2)


@settings(max_examples=120)
@given(sessions(most=30), policies, undone)
def test_a_file_shows_what_the_whole_log_shows(
    messages: list[Message], policy: Policy, undone: set[int]
) -> None:
    with file() as where:
        shows_the_same(where, marked_undone(messages, undone), policy, "s")


@few
@given(sessions(most=30), policies, undone)
def test_postgres_shows_what_the_whole_log_shows(
    address: str, messages: list[Message], policy: Policy, undone: set[int]
) -> None:
    shows_the_same(address, marked_undone(messages, undone), policy, next(_names))


@pytest.mark.parametrize("tail", ["", "m1", "gone", "m\0", '"', "h2"])
def test_tails_are_found_by_any_name_or_not_at_all(where: str, tail: str) -> None:
    def told(name: str, text: str) -> Message:
        return Message(info=UserInfo(id=name), parts=(TextPart(text=text),))

    summary = AssistantInfo(id="sum", parent_id="mark", summary=True, finish="stop")
    part = CompactionPart(tail_start_id=tail) if tail else CompactionPart()
    messages = [
        *(told(name, f"words of {name!r}") for name in ("m0", "m1", "m\0", '"', "m4")),
        Message(info=UserInfo(id="mark"), parts=(part,)),
        Message(info=summary, parts=(TextPart(text="All is well."),)),
        told("m7", "Go on"),
    ]
    for policy in PRESETS.values():
        shows_the_same(where, messages, policy, next(_names))


@pytest.mark.parametrize("at", [1, 1_700_000_000_000, 1.5, 2**63, -4])
def test_when_a_pivot_was_taken_back_is_kept(where: str, at: float) -> None:
    summary = AssistantInfo(id="sum", parent_id="mark", summary=True, finish="stop")
    messages = [
        Message(info=UserInfo(id="m0"), parts=(TextPart(text="Go"),)),
        Message(info=UserInfo(id="mark"), parts=(CompactionPart(undone=at),)),
        Message(info=summary, parts=(TextPart(text="Well."),)),
        Message(info=UserInfo(id="other"), parts=(CompactionPart(undone=at),)),
    ]
    fill(where, messages)
    assert exported(where) == as_json(messages)
    with opened(where, "s") as session:
        assert session.view().indexes == (0,)


@pytest.mark.parametrize("at", [1, 7.25, 2**53 + 1, 2**63, 2**64 - 1, 1e300, -3])
def test_marks_of_any_time_are_kept(where: str, at: float) -> None:
    def read(output: str, at: float | None) -> ToolPart:
        time = Time(start=1) if at is None else Time(start=1, compacted=at)
        return ToolPart(tool="read", call_id="c", state=Completed(output=output, time=time))

    info = AssistantInfo(id="m", finish="stop")
    messages = [Message(info=info, parts=(read("a", at), read("b", None), read("c", 5)))]
    fill(where, messages)
    assert exported(where) == as_json(messages)


# --- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimate", COUNTERS)
def test_stored_counts_are_what_counting_gives(where: str, estimate: str) -> None:
    """Whoever counts by another estimate while writing does not mix the two."""
    other = next(name for name in COUNTERS if name != estimate)
    with opened(where, "s", estimate=estimate) as session:
        session.user("Überall 日本 words and_words")
    for used in (other, estimate):
        with opened(where, "s", estimate=used) as session:
            session.record([ToolPart(tool="t", call_id=used, state=Pending(input={"a": "b c d"}))])
            session.result(used, "All the king's horses, 1234567890\n" * 20)
            session.queue()
            session.compact(f"The summary of {used}: " + "x" * 100)
            session.record("A last word, as counted by anyone")
    store = Store.open(where)
    row = store.resolve("s")
    sized = store.engine.read(
        "SELECT fixed, body, attached FROM parts WHERE session = ? ORDER BY ordinal", (row.key,)
    )
    store.close()
    with opened(where, "s", estimate=estimate) as session:
        log = Log(counter(estimate), session.export().messages)
    counted = [size for entry in log.entries.values() for size in entry.sizes]
    assert sized == [(size.fixed, size.body, size.attached) for size in counted]
    assert row.tokens == sum(size.total for size in counted)
    assert (row.estimate, row.parts, row.places) == (estimate, log.parts, len(log))


def test_another_policy_counts_by_its_own_estimate(where: str) -> None:
    texts = ["Überall 日本", "words_and-words 123456 " * 30]
    messages = [
        Message(info=UserInfo(id=f"m{n}"), parts=(TextPart(text=text),))
        for n, text in enumerate(texts)
    ]
    fill(where, messages, estimate=FOLDMARK.estimate)
    found: set[int] = set()
    for policy in PRESETS.values():
        with opened(where, "s", policy=policy) as session:
            log = Log(counter(policy.estimate), messages)
            assert session.view().tokens == Viewer(log, policy).view().tokens
            found.add(session.view().tokens)
    assert len(found) > 1
