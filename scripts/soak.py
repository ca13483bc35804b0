"""Run the very long tests in parts, each under an hour: `make soak`, or `make soak PART=sharing`.

Finished parts are noted in `.soak/` with their commit, so that an interrupted run can resume.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DONE = ROOT / ".soak"
ADK_PYTHON = str(ROOT / ".venv-adk" / "bin" / "python")
SHARING = [
    "tests/adapters/langchain/test_sharing.py",
    "tests/adapters/openai_agents/test_sharing.py",
    "tests/adapters/pydantic_ai/test_sharing.py",
    "tests/system/test_shared_sessions.py",
]


class Part(NamedTuple):
    """One part: its arguments for pytest, the variables it sets, and how often it runs."""

    arguments: list[str]
    variables: dict[str, str]
    rounds: int = 1
    python: str = sys.executable


FULL, MANY = {"FOLDMARK_EFFORT": "full"}, {"FOLDMARK_EXAMPLES": "2000"}
PARTS = {
    "sharing": Part(SHARING, FULL, rounds=50),
    "sharing-adk": Part(["tests/adapters/adk/test_sharing.py"], FULL, 50, ADK_PYTHON),
    "kills": Part(["tests/system"], FULL | {"FOLDMARK_KILLS": "1000"}),
    "invariants": Part(["tests/compaction", "tests/session", "tests/fitting"], MANY),
    "formats": Part(["tests/wire", "tests/transcripts", "tests/contracts"], MANY),
    "adapters": Part(["tests/adapters"], MANY),
    "quick": Part(["-m", "not long"], {}, rounds=5),
}


def main(names: list[str]) -> None:
    """Run the parts that are left, or the ones named."""
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"no part {unknown[0]!r}; the parts are: {', '.join(PARTS)}")
    for name in names or PARTS:
        stamp = DONE / f"{name}-{commit()}"
        if not names and stamp.exists():
            print(f"{name}: done before on this commit")
            continue
        run_part(name)
        DONE.mkdir(exist_ok=True)
        stamp.write_text(f"{time.ctime()}\n")


def run_part(name: str) -> None:
    part = PARTS[name]
    command = [part.python, "-m", "pytest", "-n", "2", "--dist", "worksteal", *part.arguments]
    for number in range(1, part.rounds + 1):
        print(f"{name}: round {number} of {part.rounds}", flush=True)
        result = subprocess.run(command, cwd=ROOT, env=os.environ | part.variables, check=False)
        if result.returncode:
            sys.exit(f"{name}: round {number} failed")


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
