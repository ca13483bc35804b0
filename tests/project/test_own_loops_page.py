"""The page on own loops, and the examples: all of it runs, in a window that it would not fit."""

import re
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldmark
from tests.support.api_server import WireServer, wire_server, working
from tests.support.client_loops import REFUSED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-loops.md").read_text()
TICKETS, *BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BEFORE = [block for block in BLOCKS if "foldmark" not in block]
AFTER = [block for block in BLOCKS if "import foldmark  # new" in block]
OTHERS = [block for block in BLOCKS if block not in BEFORE and block not in AFTER]
EXAMPLES = sorted((ROOT / "examples" / "own_loops").glob("*.py"))
WINDOW, STEPS = 6_000, 12


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    """A server that the clients find by their variables, and a folder in which the tool lies."""
    (tmp_path / "tickets.py").write_text(TICKETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "tickets", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with wire_server(window=WINDOW, script=working(STEPS)) as held:
        settings = {"FOLDMARK_WINDOW": str(WINDOW), "FOLDMARK_SUMMARIZER": "digest"}
        for name, value in {**held.environment, **settings}.items():
            monkeypatch.setenv(name, value)
        yield held


def run(block: str) -> None:
    """Run a block of the page in a namespace of its own; what it leaves open is closed."""
    space: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(block, "own-loops.md", "exec"), space)  # noqa: S102 - our own page
    finally:
        for name in {"client", "session"} & set(space):
            space[name].close()


def lines(block: str) -> Counter[str]:
    return Counter(line.strip() for line in block.splitlines() if line.strip())


def test_the_page_shows_each_client_before_and_after() -> None:
    assert len(BEFORE) == len(AFTER) == 4
    assert len(OTHERS) == 7
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(("before", "after"), list(zip(BEFORE, AFTER, strict=True)))
def test_four_lines_change_two_are_new_and_each_is_marked(before: str, after: str) -> None:
    more = lines(after) - lines(before)
    assert len(more) == 6
    marks = [line.rpartition("  # ")[2] for line in after.splitlines() if line.strip() in more]
    assert sorted(marks) == ["1", "2", "3", "4", "new", "new"]


@pytest.mark.parametrize("block", BEFORE)
def test_before_a_small_window_is_too_small(server: WireServer, block: str) -> None:
    with pytest.raises(REFUSED):
        run(block)
    assert server.overflows == len(server.flaws) == 1
    server.window, server.answers = 0, 0
    run(block)
    assert server.answers == STEPS + 1


@pytest.mark.parametrize("block", AFTER)
def test_after_it_is_not(
    server: WireServer, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(block)
    assert server.flaws == []
    assert server.answers == STEPS + 1
    assert "All of it is done" in capsys.readouterr().out
    with foldmark.open("agent.db", session="latest") as session:
        assert session.operations()


@pytest.mark.parametrize("block", OTHERS)
def test_streams_and_async_forms_run(server: WireServer, block: str) -> None:
    run(block)
    assert server.flaws == []
    # The loop that shows what to do with a refusal declares no tools, and asks once.
    assert server.answers == (1 if "except BadRequestError" in block else STEPS + 1)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_works_and_goes_on_when_it_is_asked_again(
    server: WireServer,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.window = 3_000  # smaller than the session believes
    for number in (1, 2):
        for name in range(1, 30):
            Path(f"item {name}").write_text(f"ticket {name} is open\n" * 100)
        monkeypatch.setattr(sys, "argv", [path.name, "How many", "tickets?"])
        runpy.run_path(str(path), run_name="__main__")
        assert "All of it is done" in capsys.readouterr().out
        assert server.answers == number * (STEPS + 1)
    assert server.overflows == len(server.flaws) > 0
    with foldmark.open("agent.db", session="files") as session:
        asked = [message for message in session.export().messages if message.is_user]
        assert str(asked).count("How many tickets?") >= 2
