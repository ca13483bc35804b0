"""Times one peer's cut inside its own environment, and prints what it found as JSON.

Knows nothing of the peers but this: a history is made from chat messages, a state for one call is
made from a history, a cut is that call, and a history goes on with what its loop keeps. It is run
by the Pythons of the peers, so it imports nothing but the standard library.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

LONG = 60.0  # seconds: what takes longer is run once
LATER = 20  # steps


class Cut(NamedTuple):
    """What a peer does, in four steps; the second is the one that is timed."""

    history: Callable[[list[dict[str, Any]]], list[Any]]  # its own types, of chat messages
    run: Callable[[Any], Any]  # the call, on a state
    kept: Callable[[Any], int]  # how many messages the outcome has
    state: Callable[[list[Any]], Any] = list  # what a call gets, and may change
    carried: Callable[[list[Any], Any], list[Any]] = lambda history, _outcome: history


def report(cuts: dict[str, Cut]) -> None:
    """Time the cut that the arguments name on the session that they name."""
    name, session, later = sys.argv[1:]
    cut = cuts[name]
    history = cut.history(json.loads(Path(session).read_text()))
    times: list[float] = []
    outcome = None
    while len(times) < 3 and not (times and times[0] > LONG):
        state = cut.state(history)
        seconds, outcome = _seconds(cut, state)
        times.append(seconds)
    found = {"seconds": min(times), "rounds": len(times), "kept": cut.kept(outcome)}
    new = json.loads(Path(later).read_text())[: LATER * 2 if times[0] < 1 else 6]
    found["later"] = _later(cut, cut.carried(history, outcome), new)
    print(json.dumps(found))


def _later(cut: Cut, history: list[Any], new: list[dict[str, Any]]) -> float:
    """The median of the steps after that, each with a call and its result more."""
    times: list[float] = []
    for start in range(0, len(new), 2):
        history = [*history, *cut.history(new[start : start + 2])]
        seconds, outcome = _seconds(cut, cut.state(history))
        history = cut.carried(history, outcome)
        times.append(seconds)
    return median(times)


def _seconds(cut: Cut, state: Any) -> tuple[float, Any]:
    gc.collect()
    start = process_time()
    outcome = cut.run(state)
    return process_time() - start, outcome
