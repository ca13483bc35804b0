"""How long things take: CPU time, the best of several rounds, rivals taking turns in each round."""

import gc
from collections.abc import Callable, Mapping
from time import process_time

Job = Callable[[], object]


def seconds(job: Job) -> float:
    """CPU seconds of one run."""
    gc.collect()
    start = process_time()
    job()
    return process_time() - start


def best(jobs: Mapping[str, Job], rounds: int = 7) -> dict[str, float]:
    """The best time of each job; they take turns, so that a busy moment hits all alike."""
    times = {name: [seconds(job)] for name, job in jobs.items()}
    for _ in range(rounds - 1):
        for name, job in jobs.items():
            times[name].append(seconds(job))
    return {name: min(found) for name, found in times.items()}


def millis(time: float) -> str:
    """Seconds as milliseconds, with as many digits as matter."""
    return f"{time * 1000:,.0f} ms" if time >= 0.1 else f"{time * 1000:.3g} ms"
