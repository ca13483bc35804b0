"""What the codecs share: names that fit, outputs in pieces, and plain JSON of what is at hand."""

import json
import re
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.wire.codec import CHARS, FILE, KEPT, Names, Pieces, texts_of
from foldmark.wire.plain import plain, plain_objects

from .wires import NOTES, any_json

fitting = re.compile(r"[a-zA-Z0-9_.-]{1,40}")


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_are_made_to_fit_and_stay_different(one: str, other: str) -> None:
    names = Names(longest=40, also=".")
    assert fitting.fullmatch(names.tool(one))
    assert names.call_id(one) == names.tool(one) == Names(longest=40, also=".").tool(one)
    assert not fitting.fullmatch(one) or names.tool(one) == one
    if one != other:
        assert names.tool(one) != names.tool(other)


@given(st.lists(st.text(max_size=4) | st.none(), max_size=5), st.text(max_size=4))
def test_a_text_is_parted_as_it_was_joined(texts: list[str | None], other: str) -> None:
    pieces = Pieces()
    for text in texts:
        if text is None:
            pieces.add_other({"type": "x"})
        else:
            pieces.add_text(text, {})
    said = [text for text in texts if text is not None]
    assert texts_of(pieces.text, pieces.outline) == said
    parted = texts_of(other, pieces.outline)
    assert parted is None or "\n".join(parted) == other


@given(
    st.text(max_size=5),
    any_json((CHARS, FILE, KEPT), ("", "a"))
    | st.lists(st.dictionaries(st.sampled_from((CHARS, FILE, KEPT, *NOTES[:2])), st.integers())),
)
def test_any_outline_fits_or_does_not(text: str, outline: Any) -> None:
    found = texts_of(text, outline)
    assert found is None or "\n".join(found) == text


@given(any_json(("a", "b"), ("", "x")))
def test_json_is_plain_already(value: Any) -> None:
    assert plain(value) == value
    assert json.dumps(plain(value)) == json.dumps(value)


def test_what_programs_have_at_hand_becomes_plain() -> None:
    content = types.Content(role="user", parts=[types.Part(text="a")])
    expected = {"role": "user", "parts": [{"text": "a"}]}
    assert plain([content, (content,)]) == [expected, [expected]]
    assert plain_objects(iter([content])) == [expected]
    assert plain(types.FinishReason.STOP) == "STOP"
    assert type(plain(types.FinishReason.STOP)) is str
    assert plain({"data": b"\xff\xfe"}) == {"data": "__4="}


@pytest.mark.parametrize("value", [{1: 2}, {"a": {3}}, object(), [object()], types.Content, 1j])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        plain(value)


def test_what_is_nested_without_an_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadInput, match="nested too deeply"):
        plain(endless)
