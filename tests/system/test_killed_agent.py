"""A run that is killed at any moment goes on: no call without a result, no file forgotten.

A real process (`agentwork`) lets an agent work in one session and one folder, is killed, and is
started again as `foldmark run --continue` does. FOLDMARK_KILLS says how often.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from foldmark.files import UNFINISHED
from foldmark.model.messages import Completed, Failed, StepStartPart, TextPart, ToolPart
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.testing import ScriptedModel
from tests.support.effort import kills
from tests.support.folder_contents import contents
from tests.support.killed_agent import DONE, REQUEST, agent_of, begun, begun_tasks, expected, opened
from tests.support.tool_calls import session_diff

ROOT = Path(__file__).parents[2]
KILLS = min(kills(5, 50), 1_000)
CHECKED = "Checked."
MOST_LINES = 20  # that a process tells before it is killed
EACH = 3  # kills after which the session is continued and looked at here
Line = dict[str, Any]


class Worker:
    """A process that waits for the word to begin, and can be killed."""

    def __init__(self, root: Path, mark: str) -> None:
        self.mark = mark
        self._lines: list[Line] = []
        arguments = (root / "agent.db", root / "service", root / "stop")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_agent", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "AGENTWORK": mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is read here is not missing later
        )

    def ready(self) -> None:
        assert self._process.stdout is not None
        assert "ready" in json.loads(self._process.stdout.readline())

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def hear(self, count: int) -> None:
        """Wait until it has told so many lines: then it has done as much on any machine."""
        assert self._process.stdout is not None
        for _ in range(count):
            self._lines.append(json.loads(self._process.stdout.readline()))

    def killed(self) -> list[Line]:
        """End it; all that it told."""
        self._process.kill()
        return self.told()

    def told(self) -> list[Line]:
        """Wait for its end; all that it told."""
        rest, _ = self._process.communicate(timeout=120)
        return self._lines + [json.loads(line) for line in rest.splitlines()]

    @property
    def code(self) -> int | None:
        return self._process.returncode


def living(mark: str) -> list[str]:
    """The processes that a worker started and that are still there."""
    sign, results = f"AGENTWORK={mark}\0".encode(), list[str]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if sign in (process / "environ").read_bytes() + b"\0":
                results.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # it has ended meanwhile, or is not ours
            continue
    return results


def nobody_left(mark: str) -> None:
    """What a dead process started ends by itself, and soon: it was all but done."""
    until = time.monotonic() + 30
    while left := living(mark):
        assert time.monotonic() < until, left
        time.sleep(0.01)


class Ledger:
    """What was told, and must be there."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.calls: list[str] = []

    def take(self, lines: list[Line]) -> None:
        self.steps += [line["step"] for line in lines if "step" in line]
        self.calls += [line["call"] for line in lines if "call" in line]

    def look(self, session: Session) -> None:
        """Every answer that was told of is there once, every result as it was given."""
        messages = session.export().messages
        known = set(self.steps)
        assert [message.id for message in messages if message.id in known] == self.steps
        parts = [part for message in messages for part in message.parts]
        states = {part.call_id: part.state for part in parts if isinstance(part, ToolPart)}
        assert all(isinstance(states[name], Completed) for name in self.calls)
        spoken = [
            part.text
            for message in messages
            if message.is_user
            for part in message.parts
            if isinstance(part, TextPart) and not part.synthetic
        ]
        assert spoken in ([], [REQUEST])
        assert bool(spoken) or not self.steps


def texts(root: Path) -> dict[str, str]:
    """The files of the folder, without those that a process did not live to put in their place."""
    results = contents(root / "service")
    return {name: data.decode() for name, data in results.items() if UNFINISHED not in name}


def look_after(root: Path, before: dict[str, str]) -> None:
    """Continue a session that was left, and look whether anything of it or its files is lost."""
    agent = agent_of(root / "service", ScriptedModel(CHECKED))
    with opened(str(root / "agent.db"), wait_seconds=10) as session:
        if LoopSupport(session).newest() is None:
            return
        assert agent.run(session=session).text == CHECKED
        assert session.open_calls() == []
        messages = session.export().messages
        parts = [part for message in messages for part in message.parts]
        calls = [part for part in parts if isinstance(part, ToolPart)]
        assert all(isinstance(part.state, Completed | Failed) for part in calls)
        snapshots = agent.snapshots.of(session)
        assert snapshots is not None
        now = texts(root)
        diffs = {diff.file: (diff.before, diff.after) for diff in session_diff(snapshots, session)}
        changed = {name for name in before | now if before.get(name) != now.get(name)}
        assert diffs == {name: (before.get(name, ""), now.get(name, "")) for name in changed}
        steps = [part for part in parts if isinstance(part, StepStartPart)]
        restored = snapshots.restore(steps[0].snapshot or "")
        assert texts(root) == before
        snapshots.restore(restored.before)
        assert texts(root) == now


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def test_a_run_that_is_killed_again_and_again_goes_on_and_loses_nothing(
    root: Path, seed: int
) -> None:
    before = begun(root / "service")
    chance, ledger = Random(seed), Ledger()  # noqa: S311 - no secrets here
    doomed = Worker(root, f"{seed}.0")
    try:
        for number in range(1, KILLS + 1):
            following = Worker(root, f"{seed}.{number}")  # Python starts meanwhile
            try:
                doomed.ready()
                doomed.go()
                doomed.hear(0 if number % 4 == 0 else chance.randrange(MOST_LINES))
                time.sleep(chance.uniform(0, 0.1))  # somewhere between two lines
                ledger.take(doomed.killed())
                assert doomed.code == -signal.SIGKILL
                nobody_left(doomed.mark)
                with opened(str(root / "agent.db"), wait_seconds=10) as session:
                    ledger.look(session)
                if number % EACH == 0:
                    look_after(root, before)
            finally:
                doomed.killed()
                doomed = following
        (root / "stop").touch()
        doomed.ready()
        doomed.go()
        lines = doomed.told()
        assert lines[-1] == {"ended": "stop", "text": DONE}
        ledger.take(lines)
    finally:
        doomed.killed()
    with opened(str(root / "agent.db")) as session:
        ledger.look(session)
        assert session.open_calls() == []
        assert "pivot" in {act.kind for act in session.operations()} or KILLS < 20
        tasks = begun_tasks(session)
    assert sorted(set(tasks)) == list(range(max(tasks) + 1))  # none was left out
    assert texts(root) == expected(tasks, before)
    look_after(root, before)
