"""Settings of Foldmark in pydantic-ai: they are looked at when the capability is made."""

from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.adapters.pydantic_ai import Foldmark
from foldmark.policy import FOLDMARK


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"window": -5}, "window is -5"),
        ({"policy": "nonsense"}, "policy: .*nonsense"),
        ({"windw": 5_000}, "did you mean 'window'"),
        ({"model": "nobody:knows-it"}, "no limits are known"),
        ({"summarizer": "gpt"}, "provider:model"),
        ({"store": "agent.db"}, "pass the store as the first argument"),
        ({"hooks": [object()]}, "has none of the methods"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(
    tmp_path: Path, wrong: Any, told: str
) -> None:
    with pytest.raises(foldmark.FoldmarkError, match=told) as raised:
        Foldmark(tmp_path / "agent.db", **wrong)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_settings_of_all_kinds_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDMARK_SUMMARIZER", "gpt")  # an object is given in its place
    more: Any = {"hooks": [], "fixed_tokens": 5, "tools": [], "system": "x", "summarizer": object()}
    Foldmark(tmp_path / "agent.db", policy=FOLDMARK, **more)
    assert not list(tmp_path.iterdir())
