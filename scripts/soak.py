"""Run the very long tests in parts, each under an hour: `make soak`, or `make soak PART=sharing`.

Finished parts are noted in `.soak/` with their commit, so that an interrupted run can resume.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DONE = ROOT / ".soak"
PYTEST = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal"]
SHARING = [
    "tests/adapters/langchain/test_sharing.py",
    "tests/adapters/openai_agents/test_sharing.py",
    "tests/adapters/pydantic_ai/test_sharing.py",
    "tests/system/test_shared_sessions.py",
]
# Each part: its arguments for pytest, the variables it sets, and how often it runs.
PARTS: dict[str, tuple[list[str], dict[str, str], int]] = {
    "sharing": (SHARING, {"FOLDMARK_EFFORT": "full"}, 50),
    "kills": (["tests/system"], {"FOLDMARK_EFFORT": "full", "FOLDMARK_KILLS": "1000"}, 1),
    "invariants": (
        ["tests/compaction", "tests/session", "tests/fitting"],
        {"FOLDMARK_EXAMPLES": "2000"},
        1,
    ),
    "formats": (["tests/wire", "tests/transcripts"], {"FOLDMARK_EXAMPLES": "2000"}, 1),
    "adapters": (["tests/adapters"], {"FOLDMARK_EXAMPLES": "2000"}, 1),
    "quick": (["-m", "not long"], {}, 5),
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
    arguments, variables, rounds = PARTS[name]
    for number in range(1, rounds + 1):
        print(f"{name}: round {number} of {rounds}", flush=True)
        result = subprocess.run(
            [*PYTEST, *arguments], cwd=ROOT, env=os.environ | variables, check=False
        )
        if result.returncode:
            sys.exit(f"{name}: round {number} failed")


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
