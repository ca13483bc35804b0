"""Token counters, and the sizes of parts."""

import base64
from hashlib import sha512
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadPolicy
from foldmark.model.messages import Completed, FilePart, TextPart, ToolPart
from foldmark.tokens.counters import by_classes, ceil4, correction, counter, round4, utf16_length
from foldmark.tokens.sizes import part_size


def test_length_is_counted_in_utf16_units() -> None:
    assert utf16_length("a😀日") == 4
    assert round4("😀" * 4) == 2
    assert ceil4("é" * 4) == 1
    assert utf16_length("\ud800") == 1


@pytest.mark.parametrize(
    ("text", "per_token"),
    [
        ("Sessions outgrow the window; nothing that was said may be lost. " * 40, (3.6, 5.6)),
        ('{"id": 17, "name": "alpha", "tags": ["x", "y"], "ok": true}\n' * 40, (2.2, 3.9)),
        ("def load(path):\n    with open(path) as file:\n        return 1\n" * 40, (3.0, 5.0)),
        ("2026-01-02T03:04:05.678Z WARN id=9f8e7d6c took 12345ms\n" * 40, (1.6, 3.0)),
        (base64.b64encode(sha512(b"x").digest() * 50).decode(), (1.2, 1.9)),
        ("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能" * 20, (0.8, 1.7)),
    ],
    ids=["prose", "json", "code", "log", "base64", "chinese"],
)  # fmt: skip
def test_each_class_of_text_has_its_own_density(text: str, per_token: tuple[float, float]) -> None:
    assert per_token[0] <= len(text) / by_classes(text) <= per_token[1]


def test_a_long_text_is_estimated_from_samples() -> None:
    block = "error: cannot open file 'x.py' (code 17)\n" + "all is well and fine here\n" * 3
    short, long = block * 20, block * 20_000
    assert by_classes(long) / by_classes(short) == pytest.approx(1000, rel=0.1)


@given(st.text())
def test_no_text_breaks_a_counter(text: str) -> None:
    for count in (round4, ceil4, by_classes):
        assert 0 <= count(text) <= 2 * len(text) + 1


def test_an_image_has_the_tokens_of_its_tiles_and_not_of_its_base64() -> None:
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (64).to_bytes(4, "big") * 2
    url = "data:image/png;base64," + base64.b64encode(header + bytes(3_000_000)).decode()
    part = FilePart(mime="image/png", url=url)
    assert part_size(part, by_classes).fixed < 1_000
    state = Completed(input={}, output="", attachments=(part,))
    assert part_size(ToolPart(tool="shot", state=state), by_classes).body < 1_000


def test_ignored_text_has_no_tokens() -> None:
    assert part_size(TextPart(text="hello", ignored=True), by_classes).fixed == 0


def test_an_implausible_correction_is_ignored() -> None:
    assert correction(120, 100) == pytest.approx(1.2)
    assert correction(80, 100) == correction(11, 49_198) == correction(10_000, 100) == 1.0
    assert correction(0, 100) == correction(100, 0) == 1.0


def test_an_unknown_counter_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(BadPolicy, match="classes, round4"):
        counter("magic")


def test_tiktoken_counts_exactly_with_any_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"abab": 257}
    own = tiktoken.Encoding("own", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={})

    def encoding(name: str) -> object:
        if name != "own":
            raise ValueError(f"Unknown encoding {name}")
        return own

    monkeypatch.setattr(tiktoken, "get_encoding", encoding)
    assert counter("tiktoken:own")("abab ab <|endoftext|>") == 1 + 1 + 1 + 1 + 13
    with pytest.raises(BadPolicy, match="the encoding 'theirs'"):
        counter("tiktoken:theirs")
