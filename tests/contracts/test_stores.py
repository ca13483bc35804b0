"""Contract of every store engine: content comes back, views match, damage is reported.

Each test runs on SQLite and on PostgreSQL.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldmark.errors import BadInput, StoreError
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
from foldmark.store.encoding import key_at
from foldmark.store.schema import VERSION
from foldmark.store.store import Store
from foldmark.tokens.counters import COUNTERS, counter
from foldmark.transcripts.read import read_transcript
from tests.support.effort import examples
from tests.support.session_strategies import sessions
from tests.support.store_engines import set_version
from tests.support.stored_sessions import bytes_of, exported, fill, opened, plain, store_log

HALF = "\ud83d"  # half of a surrogate pair
ODD_TEXTS = (
    *("", " ", "\0", f"half {HALF} of a pair", HALF * 3_000, "\ue000", "\ue000extra", "\ue001"),
    *("\ue0011f", 'say "\ue0011f', 'say "\ue001abc', '"\ue0011f"', '\\"\ue0011f', "\\ue0011f"),
    *("\ue001" * 3_000, "x" * 2_047, "x" * 2_048, "x" * 2_049, "é" * 1_023 + "xx", "日" * 2_048),
    *('"' * 2_048, "\\" * 2_049, '\\"' * 1_500, "\0" * 400, "[Old tool result content cleared]"),
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
FIELDS = {"type", "text", "id", "time", "synthetic", "ignored", "metadata", "sessionID"}
numbers = count()
on_each_store = settings(
    max_examples=examples(60, 120), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def new_name() -> str:
    """A session id that no other example uses."""
    return f"s{next(numbers)}"


def odd_part(kind: int, text: str, data: Json) -> Json:
    """A text, a reasoning part, an unknown part, a pruned call or a pending call."""
    pruned = {"status": "completed", "input": data, "output": text, "time": {"compacted": 7.5}}
    pending = {"status": "pending", "input": data, "raw": text, "time": None}
    parts: list[Json] = [
        {"type": "text", "text": text, **data},
        {"type": "reasoning", "text": text, "metadata": data},
        {"type": "never-seen", "body": text, "more": data},
        {"type": "tool", "tool": text, "callID": "same", "state": pruned},
        {"type": "tool", "tool": "t", "callID": "same", "state": pending},
    ]
    return parts[kind]


@st.composite
def odd_messages(draw: st.DrawFn) -> Any:
    """A message as other programs might write it: odd texts, unknown fields, repeated ids."""
    role = draw(st.sampled_from(("user", "assistant")))
    parts: list[Any] = []
    for kind in draw(st.lists(st.integers(0, 4), max_size=3)):
        data = {k: v for k, v in draw(odd_objects).items() if k not in {*FIELDS, "messageID"}}
        parts.append(odd_part(kind, draw(odd_texts), data))
    name = draw(st.sampled_from(("same", "m1", "m\0", HALF, "", '"', "\ue0011f")))
    info = {"id": name, "role": role, "odd": draw(odd_json)}
    return {"info": info, "parts": parts, "unknown": draw(odd_json)}


def user(name: str, text: str) -> Message:
    return Message(info=UserInfo(id=name), parts=(TextPart(text=text),))


def marker(name: str, **fields: Any) -> Message:
    return Message(info=UserInfo(id=name), parts=(CompactionPart(**fields),))


def summary(text: str) -> Message:
    info = AssistantInfo(id="sum", parent_id="mark", summary=True, finish="stop")
    return Message(info=info, parts=(TextPart(text=text),))


def as_json(messages: list[Message]) -> Any:
    return plain(Transcript(info=SessionInfo(id="s"), messages=tuple(messages)))


def store_transcript(where: str, transcript: Transcript) -> None:
    with Store.open(where, durable=False) as store:
        log = Log(counter("classes"), transcript.messages)
        store_log(store, transcript.info, log, estimate="classes", extra=transcript.extra)


def check_round_trip(where: str, messages: list[Any]) -> None:
    """A transcript that is stored and exported is the same JSON value."""
    name = new_name()
    data = {"info": {"id": name, "title": 'a "\ue0011f'}, "messages": messages, "\ue000extra": [1]}
    encoded = json.dumps(data).encode()
    store_transcript(where, decode_transcript(encoded))
    assert exported(where, name) == json.loads(encoded)


# --- content ---------------------------------------------------------------------------------


@on_each_store
@given(messages=st.lists(odd_messages(), max_size=4))
def test_odd_transcripts_come_back(where: str, messages: list[Any]) -> None:
    check_round_trip(where, messages)


@on_each_store
@given(messages=sessions())
def test_sessions_come_back(where: str, messages: list[Message]) -> None:
    name = new_name()
    fill(where, messages, name)
    assert exported(where, name)["messages"] == as_json(messages)["messages"]


def test_text_in_messages_calls_and_results_comes_back(where: str) -> None:
    for text in ODD_TEXTS:
        name = new_name()
        with opened(where, name) as session:
            session.user(text)
            session.record([ToolPart(tool="t", call_id="c", state=Pending(input={"k": text}))])
            session.result("c", text, metadata={text or "empty": text})
            before = plain(session.export())["messages"]
            assert [session.recall(handle) for handle in ("h0", "h1")] == [text, text]
            session.compact(f"So it was: {text}")
        assert exported(where, name)["messages"][:2] == before
        assert before[0]["parts"][0]["text"] == text
        assert before[1]["parts"][0]["state"]["metadata"] == {text or "empty": text}


def test_five_megabytes_come_back(where: str) -> None:
    text = "".join(f"{number * number % 9973} " for number in range(1_100_000))
    assert len(text) > 5_000_000
    message = {"info": {"id": "m", "role": "user"}, "parts": [{"type": "text", "text": text}]}
    check_round_trip(where, [message])


def test_real_transcripts_come_back(where: str, corpus: Path) -> None:
    paths = sorted((corpus / "opencode").glob("*.json"))
    assert len(paths) == 2
    for path in paths:
        transcript = read_transcript(path)
        store_transcript(where, transcript)
        assert exported(where, transcript.info.id) == json.loads(path.read_bytes())


# --- views -----------------------------------------------------------------------------------


def with_undone_pivots(messages: list[Message], undone: set[int]) -> list[Message]:
    """The messages with some of their pivots marked as undone, by number."""
    pivots = count()
    return [
        marker(message.id, auto=True, tail_start_id=part.tail_start_id, undone=1_700_000)
        if isinstance(part := next(iter(message.parts), None), CompactionPart)
        and next(pivots) in undone
        else message
        for message in messages
    ]


def check_view(where: str, messages: list[Message], policy: Policy) -> None:
    """The part of a session that a store loads is enough for the view of the whole log."""
    name = new_name()
    fill(where, messages, name, policy.estimate)
    with opened(where, name, policy=policy, window=8_000, output=1_000) as session:
        log = Log(counter(policy.estimate), messages)
        view, expected = session.view(), Viewer(log, policy, usable=session.usable).view()
        assert bytes_of(view) == bytes_of(expected)
        assert (view.indexes, view.tokens) == (expected.indexes, expected.tokens)
        assert plain(session.export())["messages"] == as_json(messages)["messages"]


@on_each_store
@given(
    messages=sessions(max_size=30),
    policy=st.sampled_from(list(PRESETS.values())),
    undone=st.sets(st.integers(0, 2), max_size=2),
)
def test_a_store_shows_what_the_whole_log_shows(
    where: str, messages: list[Message], policy: Policy, undone: set[int]
) -> None:
    check_view(where, with_undone_pivots(messages, undone), policy)


@pytest.mark.parametrize("tail", ["", "m1", "gone", "m\0", '"', "h2"])
def test_tails_are_found_by_any_id_or_not_at_all(where: str, tail: str) -> None:
    messages = [
        *(user(name, f"words of {name!r}") for name in ("m0", "m1", "m\0", '"', "m4")),
        marker("mark", **({"tail_start_id": tail} if tail else {})),
        summary("All tests pass."),
        user("m7", "Go on"),
    ]
    for policy in PRESETS.values():
        check_view(where, messages, policy)


@pytest.mark.parametrize("at", [1, 1_700_000_000_000, 1.5, 2**63, -4])
def test_the_time_of_an_undone_pivot_comes_back(where: str, at: float) -> None:
    messages = [
        user("m0", "Go"),
        marker("mark", undone=at),
        summary("Done."),
        marker("other", undone=at),
    ]
    fill(where, messages)
    assert exported(where) == as_json(messages)
    with opened(where, "s") as session:
        assert session.view().indexes == (0,)


@pytest.mark.parametrize("at", [1, 7.25, 2**53 + 1, 2**63, 2**64 - 1, 1e300, -3])
def test_prune_marks_of_any_time_come_back(where: str, at: float) -> None:
    def read(output: str, **times: Any) -> ToolPart:
        state = Completed(output=output, time=Time(start=1, **times))
        return ToolPart(tool="read", call_id="c", state=state)

    parts = (read("a", compacted=at), read("b"), read("c", compacted=5))
    messages = [Message(info=AssistantInfo(id="m", finish="stop"), parts=parts)]
    fill(where, messages)
    assert exported(where) == as_json(messages)


# --- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimate", COUNTERS)
def test_stored_counts_are_those_of_the_sessions_counter(where: str, estimate: str) -> None:
    """A writer with another counter does not mix its counts into the session."""
    other = next(name for name in COUNTERS if name != estimate)
    with opened(where, "s", estimate=estimate) as session:
        session.user("Überall 日本 words and_words")
    for used in (other, estimate):
        with opened(where, "s", estimate=used) as session:
            session.record([ToolPart(tool="t", call_id=used, state=Pending(input={"a": "b c d"}))])
            session.result(used, "All the unit tests, 1234567890\n" * 20)
            session.queue()
            session.compact(f"The summary of {used}: " + "x" * 100)
            session.record("A last word, as counted by anyone")
    with Store.open(where) as store:
        row = store.resolve("s")
        sizes = store.engine.read(
            "SELECT fixed, body, attached FROM parts WHERE session = ? ORDER BY ordinal", (row.key,)
        )
    with opened(where, "s", estimate=estimate) as session:
        log = Log(counter(estimate), session.export().messages)
    counted = [size for entry in log.entries.values() for size in entry.sizes]
    assert sizes == [(size.fixed, size.body, size.attached) for size in counted]
    assert row.tokens == sum(size.total for size in counted)
    assert (row.estimate, row.parts, row.places) == (estimate, log.parts, len(log))


def test_another_policy_counts_by_its_own_estimate(where: str) -> None:
    messages = [user("m0", "Überall 日本"), user("m1", "words_and-words 123456 " * 30)]
    fill(where, messages, estimate=FOLDMARK.estimate)
    counts: set[int] = set()
    for policy in PRESETS.values():
        with opened(where, "s", policy=policy) as session:
            log = Log(counter(policy.estimate), messages)
            assert session.view().tokens == Viewer(log, policy).view().tokens
            counts.add(session.view().tokens)
    assert len(counts) > 1


# --- stores that cannot be used as they are --------------------------------------------------


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_a_store_of_another_version_is_refused_and_left_alone(where: str, version: int) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
    set_version(where, version)
    before = Path(where).read_bytes() if Path(where).is_file() else b""
    expected = rf"another Foldmark \(schema {version}, this one needs {VERSION}\)"
    with pytest.raises(StoreError, match=expected):
        Store.open(where, wait=1)
    assert (Path(where).read_bytes() if Path(where).is_file() else b"") == before
    set_version(where, VERSION)
    assert len(exported(where)["messages"]) == 1


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE messages SET data = ?", b"\1\xff"),
        ("UPDATE messages SET data = ?", b"\7"),
        ("UPDATE messages SET data = ?", b""),
        ("UPDATE messages SET data = ?", b'\0{"info":1}'),
        ("DELETE FROM parts", None),
        ("UPDATE acts SET memory = ?", b"\1"),
        ("UPDATE sessions SET info = ?", b"\2"),
    ],
)
def test_damaged_rows_are_reported(where: str, statement: str, value: bytes | None) -> None:
    for name in ("s", "other"):
        with opened(where, name) as session:
            session.user("Hello " * 1_000)
            session.record("Hello to you " * 30)
            session.compact("Folded.")
            session.user("More")
    with Store.open(where) as store:
        key = store.resolve("s").key
        keys = (key_at(key, 0), key_at(key + 1, 0)) if "messages" in statement else (key, key + 1)
        column = "session" if "parts" in statement or "acts" in statement else "key"
        values = () if value is None else (value,)
        store.engine.run(f"{statement} WHERE {column} >= ? AND {column} < ?", (*values, *keys))
    problems = 0
    for policy in ("foldmark", "opencode", "codelet"):
        try:
            with opened(where, "s", policy=policy) as session:
                session.export()
                session.view(before=1)
                session.search("hello")
        except (StoreError, BadInput):
            problems += 1
    assert problems
    if "sessions" not in statement:  # the list of sessions cannot be read, either
        assert len(exported(where, "other")["messages"]) == 5
