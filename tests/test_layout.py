"""The layers, the sizes, and what the package shows."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import foldmark

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "foldmark"
# A group may import its own packages and those before it; edges import all but each other.
LAYERS = (
    {"errors", "files", "refusals", "raised"},
    {"model"},
    {"tokens", "policy", "presets"},
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
# Imports that point the wrong way until their modules are rewritten.
PENDING = {"compaction/compact.py", "log/view.py"}


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


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports, relative ones made absolute."""
    names: set[str] = set()
    package = ("foldmark", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1] if node.level else ()
            names.add(".".join((*home, *((node.module,) if node.module else ()))))
    return names


@pytest.mark.parametrize("path", sources("src"), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_layer_imports_only_what_lies_below_it(path: Path) -> None:
    if path == PACKAGE / "__init__.py" or str(path.relative_to(PACKAGE)) in PENDING:
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
