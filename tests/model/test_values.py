"""Values preserve unknown fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.model.messages import (
    Message,
    TextPart,
    ToolPart,
    Transcript,
    decode_message,
    decode_transcript,
)
from foldmark.model.values import EXTRA, OTHER, Extra, Other, encode, from_plain, to_plain

scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8))
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
unknown = st.dictionaries(
    st.sampled_from(("zz", "x", EXTRA, OTHER, "\ue000", "日")), plain, max_size=3
)


@st.composite
def json_messages(draw: st.DrawFn) -> dict[str, Any]:
    """A message as a later version of a program might write it, with more fields everywhere."""
    part: dict[str, Any] = draw(
        st.sampled_from(
            (
                {"type": "text", "text": "a", "synthetic": None, "time": {"start": 1.5}},
                {"type": "novelty", "what": [1, {"a": None}]},
                {"type": "file", "mime": "image/png", "url": "x", "filename": ""},
                {
                    "type": "tool",
                    "tool": "read",
                    "callID": "c",
                    "state": {"status": "completed", "output": "", "input": {"a": None}},
                },
                {"type": "compaction", "auto": False, "tail_start_id": "m"},
            )
        )
    )
    role = draw(st.sampled_from(("user", "assistant")))
    info: dict[str, Any] = {"id": "m", "role": role, "time": {"created": 1} | draw(unknown)}
    if role == "assistant":
        info |= {"summary": False, "cost": 0, "tokens": {"cache": {"read": 0}} | draw(unknown)}
    return {"info": info | draw(unknown), "parts": [part | draw(unknown)]} | draw(unknown)


@given(json_messages())
def test_any_json_message_survives_unchanged(data: dict[str, Any]) -> None:
    text = json.dumps(data).encode()
    assert json.loads(encode(decode_message(text))) == data
    assert json.loads(encode(decode_message(json.dumps(data, ensure_ascii=False).encode()))) == data
    assert to_plain(from_plain(data, Message)) == data


def test_unknown_fields_and_nulls_are_kept_in_extra() -> None:
    message = decode_message(b'{"info":{"id":"m","role":"user","agent":null,"new":1},"parts":[]}')
    assert message.info.extra == {"agent": None, "new": 1}
    assert not message.info.agent


def test_a_part_of_an_unknown_kind_is_kept_unchanged() -> None:
    data = {"info": {"id": "m", "role": "user"}, "parts": [{"type": "hologram", "x": 1}]}
    message = from_plain(data, Message)
    assert message.parts == (Other(data=Extra(type="hologram", x=1)),)


def test_a_key_that_looks_like_ours_is_ordinary_data() -> None:
    info = {"id": "m", "role": "user", EXTRA: {"id": "other"}}
    data: dict[str, Any] = {"info": info, "parts": []}
    for text in (json.dumps(data), json.dumps(data, ensure_ascii=False)):
        message = decode_message(text.encode())
        assert message.id == "m"
        assert json.loads(encode(message)) == data


def test_falsy_values_are_not_dropped() -> None:
    data = {
        "info": {"id": "", "role": "assistant", "summary": False, "cost": 0, "finish": ""},
        "parts": [{"type": "text", "text": "", "synthetic": False}],
    }
    assert to_plain(from_plain(data, Message)) == data


def test_a_whole_session_is_decoded_and_encoded() -> None:
    data: dict[str, Any] = {"info": {"id": "s", "new": [1]}, "messages": [], "also": None}
    transcript = decode_transcript(json.dumps(data).encode())
    assert isinstance(transcript, Transcript)
    assert json.loads(encode(transcript)) == data


@pytest.mark.parametrize(
    ("text", "location", "cause"),
    [
        (b"", "line 1", "truncated"),
        (b'{"info":\n{"id":', "line 2", "truncated"),
        (b'{"info":\n\n nope}', "line 3", "malformed"),
        (b"[]", None, "Expected `object`, got `array`"),
        (b'{"info":{"id":"s"}}', None, "messages"),
        (b'{"info":{"id":"s"},"messages":[{"info":{"id":3,"role":"user"},"parts":[]}]}',
         "$.messages[0].info.id", "Expected `str`, got `int`"),
        (b'{"info":{"id":"s"},"messages":[{"info":{"id":"m","role":"wizard"},"parts":[]}]}',
         "$.messages[0].info.role", "wizard"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b'{"info":{"id":"\xff"}}', "byte", "UTF-8"),
    ],
)  # fmt: skip
def test_bad_json_is_refused_with_its_location(
    text: bytes, location: str | None, cause: str
) -> None:
    with pytest.raises(BadInput) as caught:
        decode_transcript(text)
    assert cause in caught.value.cause
    assert (caught.value.location is None) == (location is None)
    assert (caught.value.location or "").startswith(location or "")


def test_values_are_frozen() -> None:
    part = TextPart(text="a")
    with pytest.raises(AttributeError):
        part.text = "b"  # pyright: ignore[reportAttributeAccessIssue]


def test_real_exports_lose_nothing(corpus: Any) -> None:
    files = sorted((corpus / "opencode").glob("*.json"))
    assert files
    for file in files:
        text = file.read_bytes()
        transcript = decode_transcript(text)
        assert json.loads(encode(transcript)) == json.loads(text)
        parts = [part for message in transcript.messages for part in message.parts]
        times = [part.state.time for part in parts if isinstance(part, ToolPart)]
        assert sum(bool(time and time.compacted) for time in times) == text.count(b'"compacted":')


def test_half_a_surrogate_pair_as_javascript_writes_it_is_kept() -> None:
    text = rb'{"info":{"id":"m","role":"user"},"parts":[{"type":"text","text":"cut \ud83d"}]}'
    message = decode_message(text)
    assert message.parts == (TextPart(text="cut \ud83d"),)
    assert json.loads(encode(message)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (rb'{"info":{"id":"a"},"messages":["\ud800"]}', "half of a character"),
        (rb'{"info":{"id":"\ud800"},"messages":[],"n":NaN}', "malformed"),
        (b'{"info":{"id":"a"},"messages":[],"n":1e400}', "out of range"),
        (b'{"info":{"id":"a"},"messages":[{"info":{"id":"m","role":"user"},"parts":[null]}]}',
         "Expected `object`, got `null`"),
        (b'{"info":{"id":"a"},"messages":[{"info":{"id":"m","role":"user"},"parts":[{"type":5}]}]}',
         "type"),
    ],
)  # fmt: skip
def test_odd_json_is_refused_with_a_plain_message(text: bytes, cause: str) -> None:
    with pytest.raises(BadInput) as caught:
        decode_transcript(text)
    message = str(caught.value)
    assert cause in message
    assert "Extra" not in message
    assert "\n" not in message
