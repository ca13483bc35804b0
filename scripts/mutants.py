"""Count how many seeded mutants of some packages their tests kill.

    .venv/bin/python scripts/mutants.py --count 100 log compaction store
    .venv/bin/python scripts/mutants.py --tree ../old --like . log compaction store

A mutant changes one comparison, boolean, constant or sign. It is killed if a test in
`tests/PACKAGE` or its contract suite fails. With `--like`, only files with the same sites in both
trees are used, so that two versions of the tests can be compared on the same mutants.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
WORKERS, SECONDS = 2, 300
# Contract suites that test a package besides its own folder.
CONTRACTS = {
    "adapters": "test_adapters.py",
    "cli": "test_commands.py",
    "store": "test_stores.py",
    "transcripts": "test_formats.py",
    "wire": "test_api_formats.py",
}


class Mutant(NamedTuple):
    """One change: its file, the number of its site, and its package."""

    file: str
    site: int
    package: str


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every place that can be mutated, with the name of its kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, type(node.ops[0]).__name__
        elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPS:
            yield node, type(node.op).__name__
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            yield node, repr(node.value)


def mutated(source: str, site: int) -> str:
    """The source with one site changed."""
    tree = ast.parse(source)
    node = [node for node, _ in sites(tree)][site]
    if isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()  # pyright: ignore[reportArgumentType, reportCallIssue]
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = SWAPS[type(node.op)]()  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else int(str(node.value)) + 1
    return ast.unparse(tree)


def kinds(tree: Path, file: str) -> list[str]:
    """The kinds of the sites of a file; none if it does not exist."""
    path = tree / "src" / "foldmark" / file
    return [kind for _, kind in sites(ast.parse(path.read_text()))] if path.exists() else []


def sample(
    tree: Path, like: Path | None, packages: list[str], count: int, seed: int
) -> list[Mutant]:
    """So many mutants, drawn by a seed."""
    root = tree / "src" / "foldmark"
    found: list[Mutant] = []
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            file = str(path.relative_to(root))
            if like is None or kinds(tree, file) == kinds(like, file):
                found += [Mutant(file, site, package) for site in range(len(kinds(tree, file)))]
    return random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - no secret


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Whether a test of the mutant's package fails in a copy of the tree."""
    path = copy / "src" / "foldmark" / mutant.file
    source = path.read_text()
    path.write_text(mutated(source, mutant.site))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0"]
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    contract = Path("tests", "contracts", CONTRACTS.get(mutant.package, "none"))
    tests = [f"tests/{mutant.package}", *([str(contract)] if (copy / contract).exists() else [])]
    try:
        run = subprocess.run(
            [*command, "-m", "not long", *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(source)
    return run.returncode == 1


def main() -> None:
    """Run the mutants, two at a time, each in a copy of the tree."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("packages", nargs="+")
    options.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    options.add_argument("--like", type=Path)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--seed", type=int, default=15)
    chosen = options.parse_args()
    mutants = sample(chosen.tree.resolve(), chosen.like, chosen.packages, chosen.count, chosen.seed)
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        for number in range(WORKERS):
            copy = Path(folder) / f"tree{number}"
            ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".hypothesis")
            shutil.copytree(chosen.tree, copy, ignore=ignored)
            copies.put(copy)

        def judge(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                killed = is_killed(mutant, copy)
            finally:
                copies.put(copy)
            print(
                f"{'killed  ' if killed else 'survived'} {mutant.file} site {mutant.site}",
                flush=True,
            )
            return killed

        results = list(pool.map(judge, mutants))
    print(f"{sum(results)} of {len(results)} mutants killed")


if __name__ == "__main__":
    main()
