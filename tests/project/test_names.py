"""Names that a reader must decode stay rare."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "foldmark"
# Participles that say what happened to a thing, not what it is.
VAGUE = {
    *("held", "told", "said", "made", "found", "given"),
    *("kept", "taken", "asked", "shown", "wanted", "known"),
}
MAX_PER_THOUSAND = 3


def assigned_names(tree: ast.AST) -> Iterator[str]:
    """Every variable, argument and attribute that a module assigns."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def test_few_names_are_bare_participles() -> None:
    names = [
        name.strip("_")
        for path in PACKAGE.rglob("*.py")
        for name in assigned_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(names) > 10_000
    vague = [name for name in names if name in VAGUE]
    assert len(vague) <= MAX_PER_THOUSAND * len(names) / 1_000, sorted(vague)


def test_class_names_are_nouns() -> None:
    classes = {
        node.name.strip("_").lower()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert not classes & VAGUE
