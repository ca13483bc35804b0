"""What counts as a reference, and what is needed of a past."""

import pytest

from foldmark.analysis.needs import kept, needs
from foldmark.digest.references import references
from foldmark.model.messages import AssistantInfo, Completed, Message, TextPart, ToolPart


@pytest.mark.parametrize(
    "text",
    [
        "src/mill/wheel.py",
        "/var/log/mill",
        "./run.sh",
        "~/notes/plan.md",
        "wheel_test.go",
        "package.json",
        "turn_the_wheel",
        "__init__",
        "turnWheel",
        "WheelHouse",
        "HTTPError",
        "MAX_SPEED",
        "--dry-run",
        "3f2a91c",
        "9b2c1f00-7a5e-4d1c-9f3e-0a1b2c3d4e5f",
        "https://mill.example/wheels?id=3",
    ],
)
def test_a_reference_is_found_among_words(text: str) -> None:
    assert references(f"see ({text}), please") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "the water wheel turns",
        "24/7 or 1/2",
        "12345678",
        "e.g. this",
        "ok - done",
        "README",
        "x" * 999,
    ],
)
def test_plain_words_and_numbers_are_none(text: str) -> None:
    assert references(text) == []


def test_a_name_is_found_beside_its_line_and_its_test() -> None:
    found = references("tests/test_mill.py::TestWheel::test_turns failed at wheel.py:12")
    assert found == ["tests/test_mill.py", "TestWheel", "test_turns", "wheel.py"]


def said(name: str, text: str = "", **given: str) -> Message:
    state = Completed(input=given, output="done")
    parts = (TextPart(text=text), ToolPart(tool="edit_file", state=state))
    return Message(info=AssistantInfo(id=name), parts=parts)


def test_needed_is_what_was_shown_before_and_not_again_since() -> None:
    before = "the old gear lives in old_gear\nnew_gear turns"
    after = [
        said("a", "look at new_gear", path="new_gear"),
        said("b", old_key="old_gear"),
        said("c", path="unseen_gear old_gear"),
    ]
    assert [need.reference for need in needs(before, after)] == ["old_gear"]
    assert needs(before, after, calls=1) == []


def test_a_bare_name_is_named_and_a_line_with_its_words_explains_it() -> None:
    wanted = needs("the old gear lives in old_gear", [said("a", path="old_gear")])
    assert kept(wanted, "names: old_gear").explained == 0
    assert kept(wanted, "names: old_gear").named == 1
    assert kept(wanted, "- the old gear is old_gear now").explained == 1
    assert kept(wanted, "the old gear\nold_gear").explained == 0
    assert kept(wanted, "nothing").named == 0
