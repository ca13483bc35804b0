"""Write the lines of each package into docs/design.md.

    .venv/bin/python scripts/package_sizes.py

The table of packages there is in reading order; this fills in its figures. A test says whether
they are up to date.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "foldmark"
PAGE = ROOT / "docs" / "design.md"
CORE = ("model", "tokens", "policy", "log", "compaction")
_ROW = re.compile(r"^\| `([\w./]+)` \|(.*)\| *[\d,]+ \|$", re.MULTILINE)
_TOTALS = re.compile(
    r"^\*\*[\d,]+ lines\*\* in \d+ modules, [\d,]+ of them in the core\b", re.MULTILINE
)


def package_lines(name: str) -> int:
    """The lines of a package, or of a module at the root."""
    path = PACKAGE / name.rstrip("/")
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def all_names() -> set[str]:
    """The packages and root modules of the project, as the table names them."""
    folders = {f"{path.name}/" for path in PACKAGE.iterdir() if any(path.glob("*.py"))}
    return folders | {path.name for path in PACKAGE.glob("*.py")}


def page_with_sizes(text: str) -> str:
    """The design page with today's figures."""
    modules = list(PACKAGE.rglob("*.py"))
    total = sum(map(package_lines, all_names()))
    core = sum(package_lines(name) for name in CORE)
    text = _ROW.sub(lambda row: f"| `{row[1]}` |{row[2]}| {package_lines(row[1]):,} |", text)
    return _TOTALS.sub(
        f"**{total:,} lines** in {len(modules)} modules, {core:,} of them in the core", text
    )


def listed_names(text: str) -> list[str]:
    """The packages and modules that the table lists, in its order."""
    return [row[1] for row in _ROW.finditer(text)]


if __name__ == "__main__":
    PAGE.write_text(page_with_sizes(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
