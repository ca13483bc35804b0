"""What counts as a reference, and which references later calls need."""

import pytest

from foldmark.analysis.needs import needs, retention
from foldmark.digest.references import references
from foldmark.model.messages import AssistantInfo, Completed, Message, TextPart, ToolPart

REFERENCES = """\
src/app/login.py /var/log/app ./run.sh ~/notes/plan.md login_test.go package.json check_the_login
__init__ checkLogin LoginPage HTTPError MAX_RETRIES --dry-run 3f2a91c
9b2c1f00-7a5e-4d1c-9f3e-0a1b2c3d4e5f https://api.example/orders?id=3"""
PLAIN = ("the login test fails", "24/7 or 1/2", "12345678", "e.g. this", "ok - done", "README")


@pytest.mark.parametrize("reference", REFERENCES.split())
def test_a_reference_is_found_among_words(reference: str) -> None:
    assert references(f"see ({reference}), please") == [reference]


@pytest.mark.parametrize("text", [*PLAIN, "x" * 999])
def test_plain_words_and_numbers_are_not_references(text: str) -> None:
    assert references(text) == []


def test_a_name_is_found_beside_its_line_and_its_test() -> None:
    names = references("tests/test_app.py::TestLogin::test_retries failed at login.py:12")
    assert names == ["tests/test_app.py", "TestLogin", "test_retries", "login.py"]


def step(text: str = "", **arguments: str) -> Message:
    state = Completed(input=arguments, output="done")
    parts = (TextPart(text=text), ToolPart(tool="edit_file", state=state))
    return Message(info=AssistantInfo(id="a"), parts=parts)


def test_a_reference_is_needed_if_it_was_shown_before_and_not_again_since() -> None:
    before = "the old cache lives in old_cache\nnew_cache works"
    after = [
        step("look at new_cache", path="new_cache"),
        step(old_key="old_cache"),
        step(path="unseen_cache old_cache"),
    ]
    assert [need.reference for need in needs(before, after)] == ["old_cache"]
    assert needs(before, after, calls=1) == []


@pytest.mark.parametrize(
    ("view", "named", "explained"),
    [
        ("names: old_cache", 1, 0),
        ("- the old cache is old_cache now", 1, 1),
        ("the old cache\nold_cache", 1, 0),
        ("nothing", 0, 0),
    ],
)
def test_a_reference_is_explained_by_a_line_with_its_words(
    view: str, named: int, explained: int
) -> None:
    needed = needs("the old cache lives in old_cache", [step(path="old_cache")])
    result = retention(needed, view)
    assert (result.needed, result.named, result.explained) == (1, named, explained)
