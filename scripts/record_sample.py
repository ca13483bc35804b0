"""Record the sample of `foldmark demo`: the real agent works on a small service, by a script.

    python scripts/record_sample.py

The words and the choice of calls are in `sample/turns.py`, the service is in `sample/service`. What
the tools answer is real: files read, tests run, edits made. Ids, times, durations and paths of this
machine are normalized, so that a second recording is the same, byte for byte.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.demo.demonstration import SAMPLE, compress
from foldmark.model.values import encode
from foldmark.session.loop_support import LoopSupport
from foldmark.testing import ScriptedModel
from sample.turns import TURNS

HERE = Path(__file__).parent
FOLDER = "/home/dev/orders-service"
MODEL = ("anthropic", "claude-sonnet-4-5")
START, SECONDS = 1_767_600_000_000, 9  # when the session begins, and what a step takes
_IDS = re.compile(r"\b(?:ses|msg|prt)_[0-9A-Za-z]{10,}\b|\bcall_[0-9a-f]{16}_\d+_\d+\b")
_NUMBERS = re.compile(r"(?<![0-9A-Fa-f_])[0-9a-f]{12}(?![0-9A-Fa-f_])")  # of orders, random
# What tells of this machine or of this moment in the outputs of tools.
_NORMAL = (
    (re.compile(r"(Ran \d+ tests?) in [0-9.]+s"), r"\1 in 0.042s"),
    (re.compile(r'"(?!/home/dev)[^" ]*/lib/python3\.\d+/'), '"/usr/lib/python3.12/'),
    (re.compile(r"index [0-9a-f]{7,}\.\.[0-9a-f]{7,}"), "index 0000000..0000000"),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "orders-service")
        prepare(folder)
        transcript = record(folder, Path(place, "sample.db"))
    data = normalize(transcript, str(folder))
    SAMPLE.write_bytes(compress(data))
    messages = len(msgspec.json.decode(data)["messages"])
    print(f"{messages} messages, {len(data):,} bytes, {SAMPLE.stat().st_size:,} compressed")


def prepare(folder: Path) -> None:
    """The service as it is before the session: committed, with times that differ by file."""
    shutil.copytree(
        HERE / "sample" / "service", folder, ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / ".gitignore").write_text("__pycache__/\n")
    for seconds, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, (1_767_000_000 + seconds, 1_767_000_000 + seconds))
    git = ["git", "-c", "user.name=dev", "-c", "user.email=dev@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Serve orders"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


def record(folder: Path, store: Path) -> bytes:
    """All turns, taken by the agent; the session as it is exported."""
    steps = [step for _, steps in TURNS for step in steps]
    name = ":".join(MODEL)
    model = ScriptedModel(*steps, name=name, repeat=False)
    tools = workspace_tools(folder)
    agent = Agent(model, tools=tools, folder=folder, permissions={"shell": "allow"}, titles=False)
    os.environ["XDG_DATA_HOME"] = str(store.parent / "data")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Whole: what is compacted is the demonstration's own business.
    with foldmark.open(store, model=name, window=1_000_000, auto=False) as session:
        LoopSupport(session).describe(title="Fix totals and pages of the orders service")
        for said, _ in TURNS:
            ended = agent.run(said, session)
            if ended.ending != "stop":
                raise SystemExit(f"the turn was not finished: {ended}")
        return encode(session.export())


def normalize(data: bytes, folder: str) -> bytes:
    """The session without anything of this machine or of this moment."""
    text = data.decode().replace(folder, FOLDER)
    for pattern, new in _NORMAL:
        text = pattern.sub(new, text)
    names: dict[str, str] = {}
    numbers = count(1)

    def renamed(found: re.Match[str]) -> str:
        kind = found[0].partition("_")[0] if "_" in found[0] else "order"
        number = names.setdefault(found[0], f"{next(numbers):04d}")
        return f"{kind}_{number}" if kind != "order" else f"{int(number):012x}"

    text = _IDS.sub(renamed, text)
    text = _NUMBERS.sub(renamed, text)
    document: Any = msgspec.json.decode(text)
    document["info"]["directory"] = FOLDER
    clock = (START + step * SECONDS * 1_000 for step in count())
    return msgspec.json.encode(_timed(_plain(document), clock))


def _plain(document: Any) -> Any:
    """The document without trees of snapshots, which no other machine has."""
    document["info"].pop("summary", None)
    for message in document["messages"]:
        message["parts"] = [
            part for part in message["parts"] if part["type"] not in ("snapshot", "patch")
        ]
        for part in message["parts"]:
            part.pop("snapshot", None)
    return document


def _timed(value: Any, clock: Iterator[int]) -> Any:
    """Times of our own in place of those of the recording."""
    if isinstance(value, list):
        return [_timed(held, clock) for held in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    timed: dict[str, Any] = {}
    for key, held in cast("dict[str, Any]", value).items():
        timed[key] = {name: next(clock) for name in held} if key == "time" else _timed(held, clock)
    return timed


if __name__ == "__main__":
    main()
