"""What the README says is true: its code runs, its commands exist, its figures are measured."""

import json
import re
from pathlib import Path

import pytest
from scripts.demo_chart import ASSETS, THEMES, chart, report
from scripts.readme_figures import RESULTS, renewed

from tests.support.cli_program import output_of
from tests.support.corpus import FOREIGN, Json
from tests.support.markdown_pages import blocks, check_arguments, commands

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
MAX_WORDS = 700


def test_the_readme_is_short() -> None:
    assert len(TEXT.split()) <= MAX_WORDS


def test_python_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit, session = (block.code for block in blocks(README) if block.language == "python")
    assert len([line for line in fit.splitlines() if line.strip()]) <= 5
    namespace: dict[str, object] = {}
    exec(compile(fit, "README.md", "exec"), namespace)  # noqa: S102 - our own page
    assert namespace["request"] is namespace["messages"]
    exec(compile(session, "README.md", "exec"), namespace)  # noqa: S102 - our own page
    assert namespace["request"] == namespace["messages"]


def test_commands_in_the_readme_exist() -> None:
    written = [line for block in blocks(README) for line in commands(block.code)]
    inline = [
        arguments
        for code in re.findall(r"`(foldmark [^`]+)`", TEXT)
        for arguments in commands(code)
    ]
    assert len(written) == 1
    assert len(inline) == 2
    for arguments in [*written, *inline]:
        check_arguments(arguments)


def test_the_verbs_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    verbs = [
        verb
        for block in blocks(README)
        for verb in re.findall(r"^make (\S+)", block.code, re.MULTILINE)
    ]
    assert verbs == ["demo", "test"]
    for verb in verbs:
        assert f"\n{verb}: $(READY)" in makefile


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r'(?:\]\(|src="|srcset=")([^)"#]+)', TEXT)
    assert len(links) > 15
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_figures_are_those_of_the_benchmarks() -> None:
    text = renewed(TEXT, RESULTS.read_text(encoding="utf-8"))
    assert text == TEXT, "run: .venv/bin/python scripts/readme_figures.py"


def test_the_chart_is_what_the_demo_measures() -> None:
    measured = report()
    for theme, colors in THEMES.items():
        drawn = (ASSETS / f"demo-{theme}.svg").read_text(encoding="utf-8")
        assert drawn == chart(measured, colors), "run: .venv/bin/python scripts/demo_chart.py"


def test_the_problem_in_the_readme_is_that_of_the_corpus(corpus: Path) -> None:
    files = [path for path in sorted(corpus.glob("*/*")) if path.parent.name not in FOREIGN]
    usages = [_usage(path) for path in files]
    outputs = sum(usage["by_kind"]["tool_output"] for usage in usages)
    share = outputs / sum(usage["total"] for usage in usages)
    large = sum(usage["total"] > 200_000 for usage in usages)
    text = " ".join(TEXT.split())
    assert f"{len(files)} recorded agent transcripts of our tests, two thirds of all tokens" in text
    assert f"{large} of the {len(files)} are larger than 200,000 tokens" in text
    assert 0.65 < share < 0.69


def _usage(path: Path) -> Json:
    return json.loads(output_of("inspect", str(path), "--json"))["tokens"]
