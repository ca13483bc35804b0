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
# Each layer may import those before it. Core is flat at the top; edges do not import each other.
LAYERS = ("core", "wire", "io", "session", "agent")
EDGES = ("cli", "lab", "importers", "exporters", "adapters")
CORE_MAY_IMPORT = {"msgspec", "foldmark", "tiktoken"}
PURE = ("time", "random", "os", "sys", "logging", "socket", "subprocess", "datetime", "secrets")
LONGEST_FILE, LONGEST_FUNCTION = 600, 60


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def layer(path: Path) -> str:
    place = path.relative_to(PACKAGE).parts
    return place[0] if len(place) > 1 else "core"


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
    if path == PACKAGE / "__init__.py":
        return  # it shows names of all layers
    own = layer(path)
    for name in imported(path):
        home, _, rest = name.partition(".")
        if home != "foldmark":
            continue
        other = rest.partition(".")[0]
        other = other if (PACKAGE / other).is_dir() and other else "core"
        if own in LAYERS and other in LAYERS:
            assert LAYERS.index(other) <= LAYERS.index(own), f"{path} imports {name}"
        elif own in LAYERS:
            pytest.fail(f"{path} imports the edge {name}")
        elif own != "cli":
            assert other == own or other in LAYERS, f"{path} imports another edge, {name}"


@pytest.mark.parametrize(
    "path",
    sorted([*PACKAGE.glob("*.py"), *(PACKAGE / "wire").glob("*.py")]),
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
