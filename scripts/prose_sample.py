"""Draw docstrings, error messages and help texts at random, to read them without their context.

    .venv/bin/python scripts/prose_sample.py              # fifty of them
    .venv/bin/python scripts/prose_sample.py 20 7         # twenty, with another seed

The same seed draws the same lines from the same tree.
"""

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "foldmark"
COUNT, SEED = 50, 15
MIN_WORDS = 3  # shorter texts are names, not prose
HELP = ("option", "flag", "argument", "Option", "Argument")


def texts(path: Path) -> Iterator[tuple[int, str, str]]:
    """Each text of a module for people: its line, its kind, and its words."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node):
                yield getattr(node, "lineno", 1), "docstring", docstring
        elif isinstance(node, ast.Raise) and node.exc is not None:
            yield from ((node.lineno, "error", text) for text in _strings(node.exc))
        elif isinstance(node, ast.Call) and _name(node.func) in HELP:
            yield from ((node.lineno, "help", text) for text in _strings(node))


def _strings(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.JoinedStr):
            yield ast.unparse(child)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def sample(count: int, seed: int) -> list[str]:
    """So many texts with their places, drawn by a seed."""
    lines = [
        f"{path.relative_to(PACKAGE)}:{line} ({kind})\n    {text.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, kind, text in texts(path)
        if len(text.split()) >= MIN_WORDS
    ]
    return random.Random(seed).sample(lines, count)  # noqa: S311 - a sample, not a secret


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    print("\n".join(sample(*(numbers + [COUNT, SEED][len(numbers) :]))))
