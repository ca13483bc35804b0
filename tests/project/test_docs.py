"""What the documentation says is true: its code runs, its commands exist, its tables are whole."""

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
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK, PRESETS, Policy
from foldmark.session.settings import Settings, load_settings
from tests.support.cli_program import printed
from tests.support.markdown_pages import blocks, check_arguments, commands, run_page
from tests.support.stored_transcripts import Lines, write

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# Pages that need more than a folder, with the test that runs their Python.
ELSEWHERE = {
    "README.md": "test_readme.py",
    "own-loops.md": "test_docs_own_loops.py",
    "langchain.md": "test_langchain_pages.py",
    "pydantic-ai.md": "test_pydantic_ai_pages.py",
    "openai-agents.md": "test_openai_agents.py",
    "adk.md": "test_adk_pages.py",
}
# Its commands are examples of other people's files.
CLI = "cli.md"
# What blocks are written in; `text` and nothing are for pictures and outputs.
LANGUAGES = {"python", "sh", "toml", "json", "text", ""}
GROUPS = ("window", "prune", "tail", "view", "compact")
MAKEFILE = (ROOT / "Makefile").read_text()


EVERY_PAGE = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, with a transcript of OpenCode's and one of Claude Code's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write_private(tmp_path / "session.json", encode(generate(messages=200)))
    lines = Lines()
    lines.user("Why is the wheel slow? Never touch the main branch.")
    for day in range(9):
        lines.step(str(day), f"day {day}: tooth {day} of the wheel is worn\n" * 60)
    lines.compact("The wheel is slow, as some of its teeth are worn.")
    lines.answer("m99", "I mend the worn teeth.")
    lines.user("Which tooth was it?")
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
    """A value of a policy or a setting, as a table tells it."""
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


def told(value: Any) -> str:
    """The same, with a dash for nothing."""
    return cell(value) or "\N{EN DASH}"


def rules() -> dict[str, list[Any]]:
    """Every rule, with its value in each preset."""
    found = {"estimate": [policy.estimate for policy in PRESETS.values()]}
    for group in GROUPS:
        for field in fields(getattr(FOLDMARK, group)):
            held = [getattr(getattr(policy, group), field.name) for policy in PRESETS.values()]
            found[f"{group}.{field.name}"] = held
    return found


def test_every_setting_is_told_with_its_default() -> None:
    usual = Settings()
    table = [row for row in rows("policies.md") if len(row) == 3]
    settings = [row for row in table if hasattr(usual, row[0].strip("`"))]
    held = {row[0].strip("`"): row[1] for row in settings}
    assert held == {field.name: told(getattr(usual, field.name)) for field in fields(Settings)}
    assert all(row[2].endswith(".") for row in settings)


def test_every_rule_is_told_with_its_value() -> None:
    groups = {field.name for field in fields(Policy)} - {"name", "auto", "estimate"}
    assert groups == set(GROUPS)
    held = {row[0].strip("`"): row[1] for row in rows("policies.md") if len(row) == 3}
    wanted = {name: told(values[0]) for name, values in rules().items() if "." in name}
    assert {name: value for name, value in held.items() if "." in name} == wanted


def test_what_differs_between_presets_is_told() -> None:
    table = [row for row in rows("policies.md") if len(row) == 1 + len(PRESETS)]
    assert table[0] == ["rule", *(f"`{name}`" for name in PRESETS)]
    wanted = [
        [f"`{name}`", *map(told, values)]
        for name, values in rules().items()
        if any(value != values[0] for value in values)
    ]
    assert table[1:] == wanted
    named = [row[0].strip("`") for row in rows("policies.md") if len(row) == 2]
    assert named == ["preset", *PRESETS]


def test_every_class_of_an_adapter_that_is_told_of_exists() -> None:
    adapters = (ROOT / "src" / "foldmark" / "adapters").rglob("*.py")
    made = {
        name
        for path in adapters
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    }
    told = {name for path in PAGES for name in re.findall(r"\bFoldmark[A-Z]\w+", path.read_text())}
    assert len(told) >= 3
    assert told - {"FoldmarkError"} <= made


def test_every_extra_that_is_told_of_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    texts = [path.read_text() for path in [*PAGES, ROOT / "README.md"]]
    asked = {
        name
        for text in texts
        for held in re.findall(r"foldmark\[([\w,-]+)\]", text)
        for name in held.split(",")
    }
    assert asked <= extras
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


def test_the_page_of_the_command_line_has_every_option_that_help_tells() -> None:
    page = cli_page()
    sections = dict(
        re.findall(r"^### ([\w-]+) \{.*?\}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    )
    assert len(sections) > 15
    for name, section in sections.items():
        help_text = printed(name, "--help")
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_text)) - {"--help"}
        assert options <= set(re.findall(r"--[a-z][a-z-]+", section)), name


def test_the_site_builds_and_has_every_page(tmp_path: Path) -> None:
    """Strictly: a link or an anchor that leads nowhere, or a page outside the menu, fails."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # quietly, it would not fail
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for path in PAGES:
        page = (tmp_path / f"{path.stem}.html").read_text()
        assert not re.findall(r"<p>(?:(?!</p>).)*<div", page, re.DOTALL), "a block in a paragraph"
    assert "\ndocs: $(READY)" in MAKEFILE
    # Nothing is fetched from elsewhere when a page is read.
    index = (tmp_path / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:css|js|woff2?)', index)
