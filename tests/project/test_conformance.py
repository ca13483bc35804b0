"""That docs/conformance.md is true: code can be imported, tests exist, rows are whole."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from foldmark.policy import PRESETS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "foldmark"
PAGE = ROOT / "docs" / "conformance.md"
HEADER = "| rule | preset | code | test |"
NOTHING = "—"
NAMES = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    line: int
    rule: str
    preset: str
    code: str
    test: str

    @property
    def is_later(self) -> bool:
        return self.preset == "later"


def lines() -> list[str]:
    return PAGE.read_text(encoding="utf-8").splitlines()


def rows() -> list[Row]:
    """The rows of all tables, without their two lines of heading."""
    found: list[Row] = []
    for number, line in enumerate(lines(), 1):
        if line.startswith("|") and line != HEADER and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 4, f"line {number} has {len(cells)} cells"
            found.append(Row(number, *cells))
    return found


def named(cell: str) -> list[str]:
    """The names in a cell, which must hold nothing else."""
    assert re.fullmatch(r"`[^`]+`(, `[^`]+`)*", cell), f"not a list of names: {cell}"
    return NAMES.findall(cell)


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def imported(name: str) -> object:
    module, *path = name.split(".")
    while (PACKAGE / module.replace(".", "/")).is_dir():
        module = f"{module}.{path.pop(0)}"
    held: object = import_module(f"foldmark.{module}")
    for attribute in path:
        held = getattr(held, attribute)
    return held


DONE = [row for row in rows() if not row.is_later]


def test_there_is_a_table_for_each_document_and_every_table_is_whole() -> None:
    text = lines()
    sections = [line for line in text if line.startswith("## Spec")]
    assert [line[3:11] for line in sections] == [f"Spec 00{number}" for number in range(5)]
    starts = [index for index, line in enumerate(text) if line == HEADER]
    assert len(starts) == 5
    for start in starts:
        assert text[start - 1] == ""
        assert text[start + 1] == "|---|---|---|---|"
        assert text[start + 2].startswith("| ")


def test_no_rule_of_a_document_is_listed_twice() -> None:
    section = ""
    seen: set[tuple[str, str]] = set()
    for line in lines():
        if line.startswith("## "):
            section = line
        if line.startswith("| ") and line != HEADER:
            rule = line.split("|")[1].strip()
            assert (section, rule) not in seen
            seen.add((section, rule))
    assert len(seen) == len(rows()) > 100


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"line {row.line}")
def test_a_rule_is_done_with_code_and_test_or_later_with_neither(row: Row) -> None:
    assert row.rule
    if row.is_later:
        assert row.code == row.test == NOTHING
    else:
        assert NOTHING not in (row.code, row.test)
        assert row.preset == "all" or set(named(row.preset)) <= set(PRESETS)


@pytest.mark.parametrize("name", sorted({name for row in DONE for name in named(row.code)}))
def test_named_code_can_be_imported(name: str) -> None:
    module, _, attribute = name.partition(".")
    assert module
    assert attribute
    assert imported(name) is not None


@pytest.mark.parametrize("name", sorted({name for row in DONE for name in named(row.test)}))
def test_named_tests_exist(name: str) -> None:
    file, _, function = name.partition("::")
    assert function.startswith("test_")
    assert function in functions(file)


def test_every_preset_has_a_rule_of_its_own() -> None:
    mentioned = {name for row in DONE if row.preset != "all" for name in named(row.preset)}
    assert mentioned == set(PRESETS)
