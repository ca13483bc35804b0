"""What the codecs share: acceptable names, and plain JSON of SDK objects."""

import json
import re
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.wire.codec import NameFitter
from foldmark.wire.plain import plain, plain_objects
from tests.support.api_lists import any_json

fitting = re.compile(r"[a-zA-Z0-9_.-]{1,40}")


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_are_made_acceptable_and_stay_distinct(one: str, other: str) -> None:
    names = NameFitter(max_length=40, extra=".")
    assert fitting.fullmatch(names.fit(one))
    assert names.fit(one) == NameFitter(max_length=40, extra=".").fit(one)
    assert not fitting.fullmatch(one) or names.fit(one) == one
    if one != other:
        assert names.fit(one) != names.fit(other)


@given(any_json(("a", "b"), ("", "x")))
def test_plain_json_is_unchanged(value: Any) -> None:
    assert plain(value) == value
    assert json.dumps(plain(value)) == json.dumps(value)


def test_sdk_objects_become_plain_json() -> None:
    content = types.Content(role="user", parts=[types.Part(text="a")])
    expected = {"role": "user", "parts": [{"text": "a"}]}
    assert plain([content, (content,)]) == [expected, [expected]]
    assert plain_objects(iter([content])) == [expected]
    assert plain(types.FinishReason.STOP) == "STOP"
    assert type(plain(types.FinishReason.STOP)) is str
    assert plain({"data": b"\xff\xfe"}) == {"data": "__4="}


@pytest.mark.parametrize("value", [{1: 2}, {"a": {3}}, object(), [object()], types.Content, 1j])
def test_a_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        plain(value)


def test_a_recursive_value_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadInput, match="nested too deeply"):
        plain(endless)
