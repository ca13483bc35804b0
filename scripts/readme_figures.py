"""Write the README's table of figures from bench/RESULTS.md.

    .venv/bin/python scripts/readme_figures.py

Every figure is read from the results; nothing is measured here. A test keeps the README equal.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "RESULTS.md"
START, END = "<!-- figures: scripts/readme_figures.py -->\n", "<!-- end of figures -->"
PEERS = "Compared with other tools"
VIEWS = "What a view still contains of what is needed later"


def table(results: str, title: str) -> tuple[list[str], dict[str, list[str]]]:
    """The heading of a table of the results, and its rows by their first cell."""
    section = results.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ]
    if not rows:
        sys.exit(f"{RESULTS} has no table {title!r}")
    return rows[0], {row[0].strip("*` ").replace("`", ""): row for row in rows[1:]}


def figures(results: str) -> str:
    """The README's rows: what is measured, Foldmark's figure, and a named alternative's."""
    heading, peers = table(results, PEERS)
    _, views = table(results, VIEWS)
    small, middle, later = (
        heading.index(name) for name in ("1,000", "10,000", "its later step, 10 000")
    )
    ours, step = peers["foldmark.fit"], peers["a step, stored"]
    named = peers["LangChain summarization"], peers["summarization-pydantic-ai"]
    clearing = peers["LangChain ClearToolUses"]

    def first(cell: str) -> str:
        return cell.partition(",")[0]

    def named_share(row: list[str]) -> str:
        cell = next(cell for cell in row[1:] if "/" in cell)
        return f"{float(re.split(r'[ /]', cell)[0]):.0%}"

    rows = [
        ("", "Foldmark", "alternative"),
        (
            "Shorten a list of 10,000 messages",
            f"`fit`: {ours[middle]}",
            f"LangChain's summarization, without its model call: {named[0][middle]}",
        ),
        (
            "Shorten a list of 1,000 messages",
            f"`fit`: {ours[small]}",
            f"summarization-pydantic-ai: **{named[1][small]}**, faster than ours",
        ),
        (
            (
                "Add a reply and a tool output to a session of 10,000 messages, "
                "and get the next request"
            ),
            f"{first(step[later])}, stored on disk",
            f"LangChain's ClearToolUses, over the whole list: {first(clearing[later])}",
        ),
        (
            (
                "After a compaction: share of the paths, names and values used in the next 40 "
                "calls that the context still names"
            ),
            f"{named_share(views['ours at their sizes'])}, without a model",
            (
                f"5 recorded Claude Code summaries of the same length: "
                f"{named_share(views['5 recorded Claude Code summaries'])}"
            ),
        ),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---|---|---|", *lines[1:]]) + "\n"


def renewed(readme: str, results: str) -> str:
    """The README with its figures renewed."""
    before, _, rest = readme.partition(START)
    after = rest.partition(END)[2]
    if not rest or not after:
        sys.exit(f"{README} has no lines {START.strip()} and {END}")
    return f"{before}{START}{figures(results)}{END}{after}"


def main() -> None:
    """Renew the table in the README."""
    text = renewed(README.read_text(encoding="utf-8"), RESULTS.read_text(encoding="utf-8"))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
