"""The documentation is true: its code runs, its commands exist, its tables are complete."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from bench.lab.generate import generate
from msgspec.structs import fields
from scripts.cli_docs import PAGE, cli_page

from foldmark.files import write_private
from foldmark.model.events import KINDS
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK, PRESETS, Policy
from foldmark.session.settings import Settings, load_settings
from tests.support.cli_program import output_of
from tests.support.markdown_pages import blocks, check_arguments, commands, run_page
from tests.support.stored_transcripts import Lines, write

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# Pages that need more than a folder, with the test that runs their Python.
ELSEWHERE = {
    "README.md": "project/test_readme.py",
    "own-loops.md": "project/test_own_loops_page.py",
    "langchain.md": "contracts/test_adapter_pages.py",
    "pydantic-ai.md": "contracts/test_adapter_pages.py",
    "openai-agents.md": "contracts/test_adapter_pages.py",
    "adk.md": "contracts/test_adapter_pages.py",
}
# Its commands name files of the reader.
CLI = "cli.md"
# Languages of blocks; `text` and none are for pictures and outputs.
LANGUAGES = {"python", "sh", "toml", "json", "text", ""}
GROUPS = ("window", "prune", "tail", "view", "compact")
MAKEFILE = (ROOT / "Makefile").read_text()


EVERY_PAGE = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a transcript of OpenCode and one of Claude Code."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write_private(tmp_path / "session.json", encode(generate(messages=200)))
    lines = Lines()
    lines.user("Why is the build slow? Never touch the main branch.")
    for day in range(9):
        lines.step(str(day), f"day {day}: target {day} was compiled twice\n" * 60)
    lines.compact("The build is slow because some targets are compiled twice.")
    lines.answer("m99", "I fix the duplicate targets.")
    lines.user("Which target was it?")
    write(tmp_path / "claude.jsonl", lines.all)
    return tmp_path


# --- code ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [path for path in PAGES if path.name not in {*ELSEWHERE, CLI}],
    ids=lambda path: path.name,
)
def test_the_code_of_a_page_runs(path: Path, folder: Path) -> None:
    run_page(path, folder)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_that_needs_more_is_run_by_its_own_test(page: str) -> None:
    assert any(path.name == page for path in [*PAGES, ROOT / "README.md"])
    test = (ROOT / "tests" / ELSEWHERE[page]).read_text()
    assert f'"{page}"' in test
    assert "run_page(" in test or "exec(" in test


@EVERY_PAGE
def test_the_commands_of_a_page_exist_and_take_these_arguments(path: Path) -> None:
    for block in blocks(path):
        for arguments in commands(block.code) if block.language == "sh" else []:
            check_arguments(arguments)


@EVERY_PAGE
def test_blocks_are_of_kinds_that_are_tested(path: Path) -> None:
    """A fragment that need not run could be untrue."""
    text = path.read_text()
    assert {block.language for block in blocks(path)} <= LANGUAGES
    assert text.count("```") == 2 * len(blocks(path))


@EVERY_PAGE
def test_data_in_a_page_is_well_formed(path: Path, tmp_path: Path) -> None:
    for block in blocks(path):
        if block.language == "json":
            json.loads(block.code)
        elif block.language == "toml":
            (tmp_path / "foldmark.toml").write_text(block.code)
            assert (
                load_settings(tmp_path, {"FOLDMARK_CONFIG": str(tmp_path / "foldmark.toml")})
                != Settings()
            )


def test_a_page_that_says_what_is_not_so_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text\n\n```python\nx = 1\n```\n\n```python\nprint(x + 1)  # -> 3\n```\n")
    with pytest.raises(AssertionError, match=r"page.md: line 8 on: '3' is not printed in '2"):
        run_page(page, tmp_path)
    page.write_text("```sh\nfoldmark show nobody --store none.db\n```\n")
    with pytest.raises(AssertionError, match="foldmark show nobody"):
        run_page(page, tmp_path)
    page.write_text("```sh\nclaude mcp add foldmark -- foldmark mcp --nowhere\n```\n")
    with pytest.raises(Exception, match="--nowhere"):
        run_page(page, tmp_path)


# --- tables ----------------------------------------------------------------------------------


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of all tables of a page."""
    lines = (DOCS / page).read_text().splitlines()
    cells = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in cells]


def cell(value: Any) -> str:
    """A value of a policy or a setting, as the tables write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}" if isinstance(value, int) else f"{value:g}"
        case str():
            return f"`{value}`"
        case tuple():
            return ", ".join(f"`{item}`" for item in value)  # pyright: ignore[reportUnknownVariableType]
        case _:
            return ""


def cell_or_dash(value: Any) -> str:
    """The same, with a dash for no value."""
    return cell(value) or "\N{EN DASH}"


def rules() -> dict[str, list[Any]]:
    """Every rule, with its value in each preset."""
    values = {"estimate": [policy.estimate for policy in PRESETS.values()]}
    for group in GROUPS:
        for field in fields(getattr(FOLDMARK, group)):
            values[f"{group}.{field.name}"] = [
                getattr(getattr(policy, group), field.name) for policy in PRESETS.values()
            ]
    return values


def test_every_setting_is_listed_with_its_default() -> None:
    defaults = Settings()
    table = [row for row in rows("settings.md") if len(row) == 3 and row[0] != "setting"]
    listed = {row[0].strip("`"): row[1] for row in table}
    assert listed == {
        field.name: cell_or_dash(getattr(defaults, field.name)) for field in fields(Settings)
    }
    assert all(row[2].endswith(".") for row in table)


def test_every_rule_is_listed_with_its_value() -> None:
    groups = {field.name for field in fields(Policy)} - {"name", "auto", "estimate"}
    assert groups == set(GROUPS)
    listed = {row[0].strip("`"): row[1] for row in rows("policies.md") if len(row) == 3}
    expected = {name: cell_or_dash(values[0]) for name, values in rules().items() if "." in name}
    assert {name: value for name, value in listed.items() if "." in name} == expected


def test_every_difference_between_presets_is_listed() -> None:
    table = [row for row in rows("policies.md") if len(row) == 1 + len(PRESETS)]
    assert table[0] == ["rule", *(f"`{name}`" for name in PRESETS)]
    expected = [
        [f"`{name}`", *map(cell_or_dash, values)]
        for name, values in rules().items()
        if any(value != values[0] for value in values)
    ]
    assert table[1:] == expected
    presets = [row[0].strip("`") for row in rows("policies.md") if len(row) == 2]
    assert presets == ["preset", *PRESETS]


def test_every_event_is_listed() -> None:
    listed = [row[0].strip("`") for row in rows("events.md") if row[0] != "kind"]
    assert sorted(listed) == sorted(KINDS)


def test_every_adapter_class_in_the_pages_exists() -> None:
    adapters = (ROOT / "src" / "foldmark" / "adapters").rglob("*.py")
    classes = {
        name
        for path in adapters
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    }
    mentioned = {
        name for path in PAGES for name in re.findall(r"\bFoldmark[A-Z]\w+", path.read_text())
    }
    assert len(mentioned) >= 3
    assert mentioned - {"FoldmarkError"} <= classes


def test_every_extra_in_the_pages_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    texts = [path.read_text() for path in [*PAGES, ROOT / "README.md"]]
    mentioned = {
        name
        for text in texts
        for names in re.findall(r"(?:foldmark|\.)\[([\w,-]+)\]", text)
        for name in names.split(",")
    }
    assert mentioned <= extras
    listed = {
        name
        for row in rows("index.md")
        if len(row) == 2
        for name in re.findall(r"`([\w-]+)`", row[0])
    }
    assert listed == extras - {"dev", "dev-adk", "docs"}


# --- the command line, and the site ------------------------------------------------------------


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert PAGE.read_text() == cli_page(), "run: .venv/bin/python scripts/cli_docs.py"


def test_the_page_of_the_command_line_has_every_option_of_the_help() -> None:
    page = cli_page()
    sections = dict(
        re.findall(r"^### ([\w-]+) \{.*?\}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    )
    assert len(sections) > 15
    for name, section in sections.items():
        help_text = output_of(name, "--help")
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_text)) - {"--help"}
        assert options <= set(re.findall(r"--[a-z][a-z-]+", section)), name


def test_the_site_builds_and_has_every_page(tmp_path: Path) -> None:
    """A broken link or anchor, or a page outside the menu, fails the strict build."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # --quiet would not fail
    build = subprocess.run(
        [*command, "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    for path in PAGES:
        page = (tmp_path / f"{path.stem}.html").read_text()
        assert not re.findall(r"<p>(?:(?!</p>).)*<div", page, re.DOTALL), "a block in a paragraph"
    assert "\ndocs: $(READY)" in MAKEFILE
    # Pages load nothing from other hosts.
    index = (tmp_path / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:css|js|woff2?)', index)
