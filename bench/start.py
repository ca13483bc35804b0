"""How long `import foldmark` takes, beside a bare interpreter and beside msgspec."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

from .measure import millis

JOBS = {
    "python, nothing imported": "pass",
    "import msgspec": "import msgspec",
    "import foldmark": "import foldmark",
    "import foldmark, all names used": (
        "import foldmark\nfor name in foldmark.__all__: getattr(foldmark, name)"
    ),
}


def imports(rounds: int = 9) -> Iterator[tuple[str, ...]]:
    """Each import in an interpreter of its own, in turns; bytecode is cached, as installed."""
    times: dict[str, list[float]] = {name: [] for name in JOBS}
    for _ in range(rounds):
        for name, code in JOBS.items():
            times[name].append(_cpu(code))
    bare = min(times["python, nothing imported"])
    for name, found in times.items():
        yield name, millis(min(found)), millis(max(0.0, min(found) - bare))


def _cpu(code: str) -> float:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=clean)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
