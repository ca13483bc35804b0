"""The layers, the sizes, and what the package shows."""

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from scripts.package_sizes import (
    CORE,
    PAGE,
    all_names,
    listed_names,
    package_lines,
    page_with_sizes,
)

import foldmark

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "foldmark"
# A group may import its own packages and those before it; edges import all but each other.
LAYERS = (
    {"errors", "files", "refusals"},
    {"model"},
    {"tokens", "policy"},
    {"log"},
    {"compaction"},
    {"summary", "digest", "analysis"},
    {"wire"},
    {"fitting"},
    {"store", "providers", "snapshots"},
    {"session"},
    {"agent", "testing"},
)
EDGES = {"transcripts", "adapters", "clients", "demo", "cli"}
MAY_IMPORT_EDGES = {"cli": EDGES, "clients": {"transcripts"}}
PURE_LAYERS = set[str]().union(*LAYERS[1:8])  # all before the store: no clock, chance or I/O
CORE_MAY_IMPORT = {"msgspec", "foldmark", "tiktoken"}
PURE = ("time", "random", "os", "sys", "logging", "socket", "subprocess", "datetime", "secrets")
LONGEST_FILE, LONGEST_FUNCTION = 600, 60
MOST_LINES, MOST_CORE_LINES = 43_500, 4_600  # may only become smaller
# A module that only one other imports belongs to that one, unless it is an idea of its own.
SMALL_MODULE = 60
SMALL_ON_PURPOSE: dict[str, str] = {}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def package(path: Path) -> str:
    """The package of a file, or its own name where it lies at the root."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer(name: str) -> int:
    """The place of a package among the layers; edges come last."""
    if name in EDGES:
        return len(LAYERS)
    return next(number for number, names in enumerate(LAYERS) if name in names)


def dotted(path: Path) -> str:
    """The name of a module."""
    parts = ("foldmark", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in sources("src")}


@cache
def imported(path: Path) -> frozenset[str]:
    """Full names of the modules that a file imports, relative ones made absolute."""
    names: set[str] = set()
    package = ("foldmark", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1] if node.level else ()
            full = ".".join((*home, *((node.module,) if node.module else ())))
            inside = {f"{full}.{alias.name}" for alias in node.names} & MODULES.keys()
            names |= inside or {full}
    return frozenset(names)


@pytest.mark.parametrize("path", sources("src"), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_layer_imports_only_what_lies_below_it(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # the first shows names of all layers
    own = package(path)
    for name in imported(path):
        home, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if home != "foldmark" or other in ("", own):
            continue
        if own in EDGES and other in EDGES:
            assert other in MAY_IMPORT_EDGES.get(own, ()), f"{path} imports another edge, {name}"
        assert layer(other) <= layer(own), f"{path} imports {name}"


@pytest.mark.parametrize(
    "path",
    [path for path in sources("src") if package(path) in PURE_LAYERS],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_core_is_pure_and_needs_msgspec_alone(path: Path) -> None:
    for name in imported(path):
        top = name.partition(".")[0]
        assert top in CORE_MAY_IMPORT or top in sys.stdlib_module_names, f"{path} imports {name}"
        assert top not in PURE, f"{path} imports {name}: clock, chance and the world come in"


@pytest.mark.parametrize(
    "path",
    sources("src", "tests", "bench", "scripts"),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, (
                f"{path}:{node.lineno} {node.name} has {length} lines"
            )


def test_no_class_name_is_defined_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sources("src"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_a_small_module_with_one_importer_is_part_of_that_importer() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in MODULES.items():
        for other in imported(path) - {name}:
            importers[other].add(name)
    small = {
        name
        for name, path in MODULES.items()
        if path.name != "__init__.py"
        and len(importers[name]) == 1
        and len(path.read_text().splitlines()) < SMALL_MODULE
    }
    assert small == SMALL_ON_PURPOSE.keys()


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = {name: set(imported(path)) & (MODULES.keys() - {name}) for name, path in MODULES.items()}
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    assert left == {}


def test_the_package_stays_within_its_size() -> None:
    assert sum(map(package_lines, all_names())) <= MOST_LINES
    assert sum(map(package_lines, CORE)) <= MOST_CORE_LINES


def test_the_design_page_lists_every_package_with_its_size() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(listed_names(text)) == sorted(all_names() - {"__init__.py"})
    assert page_with_sizes(text) == text, "run: .venv/bin/python scripts/package_sizes.py"


def test_what_is_shown_is_what_is_there() -> None:
    assert sorted(foldmark.__all__) == sorted(foldmark._HOMES)  # pyright: ignore[reportPrivateUsage]
    assert len(foldmark.__all__) <= 25
    for name in foldmark.__all__:
        assert getattr(foldmark, name) is not None
    assert set(foldmark.__all__) <= set(dir(foldmark))
    with pytest.raises(AttributeError, match="nothing_such"):
        foldmark.nothing_such  # noqa: B018


def test_importing_the_package_brings_in_nothing_but_msgspec_and_zstd() -> None:
    code = (
        "import sys; before = set(sys.modules); import foldmark\n"
        "for name in foldmark.__all__: getattr(foldmark, name)\n"
        "print(*sorted({n.partition('.')[0] for n in set(sys.modules) - before}))"
    )
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean
    )
    foreign = set(run.stdout.split()) - sys.stdlib_module_names - {"foldmark"}
    # typing_extensions comes with some versions of msgspec; backports is zstd.
    assert foreign <= {"msgspec", "typing_extensions", "backports"}


def test_the_version_is_told_once() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert declared[1] == foldmark.__version__
