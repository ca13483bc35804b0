"""What others do in the same place: the cut of each peer, in an environment of its own, and ours.

Each peer's own functions are called as its loop calls them, on the whole history, with its own
counter of tokens. What is converted, copied or asked of a model is not timed.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from math import log10
from pathlib import Path
from typing import NamedTuple

from bench.measure import millis

from . import ours
from .environments import NotInstalled, Requirement, environment
from .synthetic import session, step

SIZES = (1_000, 10_000, 100_000)
INSIDE = Path(__file__).with_name("inside")
QUIET = {
    "AGNO_TELEMETRY": "false",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENHANDS_SUPPRESS_BANNER": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
Row = tuple[str, ...]


class Peer(NamedTuple):
    """A peer's cut: where it is installed from, the script that calls it, and how it is set."""

    name: str
    needs: Requirement
    script: str
    called: str
    cut: str = "cut"


class Measured(NamedTuple):
    """Seconds of one cut, and of a later step of its own loop."""

    seconds: float
    later: float
    rounds: int = 3


_LANGCHAIN = Requirement("langchain", "1.4.7")
PEERS = (
    Peer("LangChain summarization", _LANGCHAIN, "cut_langchain",
         "the cut of `SummarizationMiddleware`, keep 40 000 tokens", "summarization"),
    Peer("LangChain ClearToolUses", _LANGCHAIN, "cut_langchain",
         "`ContextEditingMiddleware`, at 40 000 tokens, keep 75 results", "clear-tool-uses"),
    Peer("langmem", Requirement("langmem", "0.0.30"), "cut_langmem",
         "`summarize_messages` up to the model, 40 000 tokens"),
    Peer("pydantic-ai-harness", Requirement("pydantic-ai-harness", "0.62.0"), "cut_harness",
         "`ClearToolResults`, at 40 000 tokens, keep 75 pairs"),
    Peer("summarization-pydantic-ai", Requirement("summarization-pydantic-ai", "0.1.11"),
         "cut_summarization", "`plan_compression`, keep 40 000 tokens"),
    Peer("agno", Requirement("agno", "3.1.10"), "cut_agno",
         "`Compaction`: `should_compact`, `plan`; keep 40 000 tokens, at 80 000"),
    Peer("agent-framework", Requirement("agent-framework-core", "1.23.0"), "cut_agent_framework",
         "`SelectiveToolCallCompactionStrategy`, keep 75 groups"),
    Peer("OpenHands SDK", Requirement("openhands-sdk", "1.58.0", (3, 12)), "cut_openhands",
         "`View.from_events` with one condensation, keep 170 events"),
    Peer("Haystack", Requirement("haystack-ai", "3.4.0"), "cut_haystack",
         "`ToolResultPruningCompactor` in its hook, window 100 000, to 0.4 of it"),
)  # fmt: skip
HEAD = (
    "",
    "version",
    "what is called",
    *(f"{size:,}" for size in SIZES),
    "growth to 10 000",
    "growth to 100 000",
    "its later step, 10 000",
    "best peer ÷ this, at each size",
)


def rows() -> Iterator[Row]:
    """A row for each peer, then ours."""
    best = [float("inf")] * len(SIZES)
    with tempfile.TemporaryDirectory() as folder:
        _write_sessions(Path(folder))
        for peer in PEERS:
            try:
                found = [_measured(peer, Path(folder), size) for size in SIZES]
            except NotInstalled as why:
                yield (peer.name, peer.needs.version, f"skipped: {why}", *[""] * 7)
                continue
            times = [one.seconds for one in found]
            best = [min(pair) for pair in zip(best, times, strict=True)]
            called = peer.called if found[-1].rounds == 3 else f"{peer.called}; 100 000 once"
            yield _row(peer.name, peer.needs.version, called, times, found[1].later)
    yield from _our_rows(best)


def _our_rows(best: list[float]) -> Iterator[Row]:
    jobs = (
        ("**`foldmark.fit`**", f"`fit(messages, window={ours.WINDOW:,})`", ours.fitted),
        ("**a step, in memory**", "`Log`, `Viewer`: a call, its result, the view", ours.in_memory),
        ("**a step, stored**", "`record`, `result`, `messages`; SQLite", ours.stored),
    )
    for name, called, job in jobs:
        found = [job(size) for size in SIZES]
        if any(one is None for one in found):
            yield (name, "", "skipped: it is not there yet", *[""] * 7)
            continue
        timed = [one for one in found if one is not None]
        times = [one.seconds for one in timed]
        row = _row(name, "", called, times, timed[1].later)
        later = f"{row[-2]}, mean {millis(timed[1].mean)}"
        yield (*row[:-2], later, " · ".join(map(_ratio, best, times)))


def _ratio(best: float, ours: float) -> str:
    ratio = best / ours
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def _row(name: str, version: str, called: str, times: list[float], later: float) -> Row:
    growth = [f"{log10(b / a):.2f}" for a, b in pairwise(times)]
    return (name, version, called, *map(millis, times), *growth, millis(later), "")


def _write_sessions(folder: Path) -> None:
    for size in SIZES:
        (folder / f"{size}.json").write_text(json.dumps(session(size)))
    later = [message for number in range(20) for message in step(ours.NEW + number)]
    (folder / "later.json").write_text(json.dumps(later))


def _measured(peer: Peer, folder: Path, size: int) -> Measured:
    """What a peer's script tells of itself; it is run by the peer's own Python."""
    script = INSIDE / f"{peer.script}.py"
    command = [environment(peer.needs), script, peer.cut, folder / f"{size}.json"]
    done = subprocess.run(
        [*map(str, command), str(folder / "later.json")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **QUIET},
    )
    if done.returncode:
        raise NotInstalled(f"it failed: {(done.stderr.splitlines() or ['no word'])[-1][:160]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Measured(told["seconds"], told["later"], told["rounds"])
