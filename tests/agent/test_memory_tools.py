"""Recall and search over a real session, folded and pruned; and skills."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.agent.function_tools import toolset
from foldmark.agent.tool import Tool, ToolOutput
from foldmark.agent.tools.memory import PAGE, memory_tools
from foldmark.agent.tools.skills import skill_tool
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.model.messages import FilePart
from foldmark.tokens.counters import counter
from tests.support.stored_sessions import opened, step, work
from tests.support.tool_calls import context_of, run

PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture
def session(tmp_path: Path) -> Iterator[foldmark.Session]:
    with opened(str(tmp_path / "store.db"), "s") as opened_session:
        yield opened_session


def call(session: foldmark.Session, tool: str | Tool, /, **arguments: Any) -> ToolOutput:
    chosen = toolset(memory_tools())[tool] if isinstance(tool, str) else tool
    return run(chosen, context_of(session, Path.cwd()), **arguments)


def test_what_was_folded_is_found_and_read_again(session: foldmark.Session) -> None:
    work(session, words=("zebra", "lynx"))
    session.prune()
    session.compact("All about a lion.")
    told = call(session, "search", query="zebra line 4").text
    assert "folded" in told
    handle = told.split("\n")[0].split()[0]
    output = call(session, "recall", handle=handle)
    assert output.text == session.recall(handle)
    assert output.text.startswith("line 4 of a zebra")


def test_a_find_tells_its_handle_kind_and_state(session: foldmark.Session) -> None:
    session.user("Mind the walrus")
    step(session, "c1", "a walrus sleeps")
    lines = call(session, "search", query="walrus").text.split("\n")
    assert lines == [
        "h2 (tool read, shown): a walrus sleeps read a.py",
        "h0 (text, shown): Mind the walrus",
    ]
    assert len(call(session, "search", query="walrus", most=1).text.split("\n")) == 1
    assert call(session, "search", query="okapi").text == "nothing found"
    assert call(session, "search", query="'; DROP TABLE --").text == "nothing found"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"line {number} of the log\n" for number in range(9_000)),
        "日本語" * 20_000,
        "QUJD" * 30_000,
        "x" * 100_000,
        " " * 60_000,
        "\n".join("é\0\x1b[31m" for _ in range(10_000)),
    ],
)
def test_a_huge_output_is_read_page_by_page_and_nothing_is_missed(
    session: foldmark.Session, text: str
) -> None:
    step(session, "c1", text)
    session.record("Done.")
    handle, pages, offset = "h1", "", 0
    while True:
        told = call(session, "recall", handle=handle, offset=offset).text
        page, _, note = told.rpartition("\n[characters ")
        assert note
        assert counter("classes")(page) <= PAGE * 1.01
        pages += page
        match = re.search(r"offset=(\d+)\]$", told)
        if match is None:
            break
        offset = int(match[1])
    assert pages == text


def test_a_part_of_what_is_behind_a_handle(session: foldmark.Session) -> None:
    step(session, "c1", "0123456789")
    told = call(session, "recall", handle="h1", offset=2, length=3).text
    assert told == "234\n[characters 2 to 4 of 10; the next page: handle='h1', offset=5]"
    told = call(session, "recall", handle="h1", offset=8, length=30).text
    assert told == "89\n[characters 8 to 9 of 10]"
    assert call(session, "recall", handle=" H1 ").text == "0123456789"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"handle": "h99"}, "session s has no handle"),
        ({"handle": "../etc/passwd"}, "no handle"),
        ({"handle": ""}, "no handle"),
        ({"handle": "h1", "offset": 10}, "only 10 characters"),
        ({"handle": "h1", "offset": -1}, "at least 0"),
        ({"handle": "h1", "length": 0}, "at least 1"),
        ({}, "'handle' is missing"),
    ],
)
def test_what_cannot_be_recalled_is_told_in_one_line(
    session: foldmark.Session, arguments: dict[str, Any], words: str
) -> None:
    step(session, "c1", "0123456789")
    output = call(session, "recall", **arguments)
    assert output.error
    assert words in output.text
    assert "\n" not in output.text


def test_an_image_is_recalled_as_an_image(session: foldmark.Session) -> None:
    session.user([FilePart(mime="image/png", url=PNG, filename="a.png")])
    output = call(session, "recall", handle="h0")
    assert [(file.mime, file.url) for file in output.files] == [("image/png", PNG)]
    assert "iVBOR" not in output.text


def test_an_empty_output_is_recalled_as_such(session: foldmark.Session) -> None:
    step(session, "c1", "")
    assert call(session, "recall", handle="h1").text == "[it is empty]"


# --- skills --------------------------------------------------------------------------------


def put(home: Path, name: str, text: str) -> Path:
    (home / name).mkdir(parents=True)
    (home / name / "SKILL.md").write_text(text)
    return home / name


def test_without_skills_there_is_no_tool(tmp_path: Path) -> None:
    assert skill_tool(tmp_path) is None
    (tmp_path / ".foldmark" / "skills" / "empty").mkdir(parents=True)
    assert skill_tool(tmp_path) is None
    assert "skill" not in toolset(workspace_tools(tmp_path))


def test_skills_are_listed_by_what_they_say_of_themselves(tmp_path: Path) -> None:
    home = tmp_path / ".foldmark" / "skills"
    put(home, "release", "---\nname: x\ndescription: How to release.\n---\n# Release\n")
    put(home, "folded", "---\ndescription: >\n  In two\n  lines.\nother: x\n---\nBody\n")
    put(home, "quoted", '---\r\ndescription: "In quotes"\r\n---\r\nBody\r\n')
    put(home, "plain", "\n# How to be plain\nBody\n")
    put(home, "long", "x" * 1_000)
    skill = toolset(workspace_tools(tmp_path))["skill"]
    lines = skill.description.split("\n")[1:]
    assert lines[0] == "- folded: In two lines."
    assert lines[1].startswith("- long: xxx")
    assert len(lines[1]) < 220
    assert lines[2:] == [
        "- plain: How to be plain",
        "- quoted: In quotes",
        "- release: How to release.",
    ]


def test_a_skill_is_read_as_it_is_now(session: foldmark.Session, tmp_path: Path) -> None:
    home = put(tmp_path / ".foldmark" / "skills", "release", "---\ndescription: d\n---\nDo it.\n")
    (home / "steps.md").touch()
    skill = skill_tool(tmp_path)
    assert skill is not None
    output = call(session, skill, name="release")
    assert output.text == "Do it.\n\nFiles beside it:\n.foldmark/skills/release/steps.md"
    (home / "SKILL.md").write_text("Do it now.")
    assert call(session, skill, name="release").text.startswith("Do it now.")
    assert "there are release" in call(session, skill, name="../release").text
    (home / "SKILL.md").unlink()
    assert "not there any more" in call(session, skill, name="release").text


def test_skills_of_the_folder_come_before_those_of_others(
    session: foldmark.Session, tmp_path: Path
) -> None:
    put(tmp_path / "others", "release", "theirs")
    put(tmp_path / "others", "test", "their test")
    put(tmp_path / "work" / ".foldmark" / "skills", "release", "ours")
    skill = skill_tool(tmp_path / "work", [tmp_path / "others"])
    assert skill is not None
    assert call(session, skill, name="release").text == "ours"
    assert call(session, skill, name="test").text == "their test"


def test_a_skill_that_leads_out_of_its_folder_is_none(tmp_path: Path) -> None:
    home = tmp_path / ".foldmark" / "skills"
    put(tmp_path / "outside", "secret", "secret")
    home.mkdir(parents=True)
    (home / "linked").symlink_to(tmp_path / "outside" / "secret")
    (home / "half").mkdir()
    (home / "half" / "SKILL.md").symlink_to(tmp_path / "outside" / "secret" / "SKILL.md")
    (home / "od\nd").mkdir()
    (home / "od\nd" / "SKILL.md").write_text("x")
    assert skill_tool(tmp_path) is None
