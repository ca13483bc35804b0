"""Runs the benchmarks and writes RESULTS.md: `make bench`, or `python -m bench NAME …` for some."""

import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import core, estimates, loop, peers, quality, snapshots, start, store, transcripts

RESULTS = Path(__file__).with_name("RESULTS.md")
Table = tuple[str, str, tuple[str, ...], Callable[[], Iterator[tuple[str, ...]]]]

TABLES: dict[str, Table] = {
    "pass": (
        "A first pass, and a later step",
        ("A generated session of 10 000 messages: decoding, counting, planning the prune and "
        "building the view, against `msgspec.json.decode` (untyped, and into our own types) plus "
        "counting alone. Wanted: at most 2 times the former. A step is 10 new messages: decode, "
        "count, plan, prune, view. Wanted: under 1/500 of the first pass."),
        ("session", "JSON", "decode", "decode, typed", "count", "first pass", "÷ (decode + count)",
         "÷ (typed + count)", "a step", "step ÷ first pass"),
        core.first_pass_and_step,
    ),
    "flat": (
        "Steps do not grow with the session",
        ("The same 40 messages after a pivot, with 100 to 100 000 messages before it, then steps "
        "of 10 messages. Wanted: within 1.5 times."),
        ("messages before the pivot", "a step", "÷ that of 100"),
        core.flat_steps,
    ),
    "loop": (
        "A step of an agent, without its model and its tools",
        (f"One run of {loop.STEPS:,} steps over a window of {loop.WINDOW:,} tokens, in each step "
        f"one call with an output of 290 tokens. CPU of {loop.NEAR} steps from the 10th on, and of "
        "the last: a usual one (the median), and the mean, which has prunes and pivots in it. "
        "Processes of git are told apart. Wanted: flat, and under 5 ms."),
        ("", "usual, 10th", "usual, 5 000th", "mean, 10th", "mean, 5 000th", "5 000th ÷ 10th",
         "git, 10th", "git, 5 000th", "prunes and pivots"),
        loop.steps,
    ),
    "snapshots": (
        "A snapshot of a folder",
        ("CPU of this process and of git: the first snapshot, and the usual one (the median of "
        f"{snapshots.TIMES}) after nothing, one file or one new file changed. Wanted: the first "
        "takes seconds, each later one under 100 ms."),
        ("files", "first, elapsed", "first", "nothing changed", "one edited", "one new"),
        snapshots.taking,
    ),
    "open": (
        "Opening a session",
        ("A session of 100 messages and one of 100 000, both with a view of 40 messages: opening "
        "the store, loading, building the view. Wanted: within 2 times, and under 1/50 of reading "
        "it all."),
        ("engine", "100 messages", "100 000 messages", "ratio", "reading it all", "opening ÷ that"),
        store.opening,
    ),
    "mark": (
        "Marking outputs as pruned",
        ("One prune, all in one transaction, against one transaction of one row that waits for "
        "the disk. Wanted: the marks under 5 times that."),
        ("engine", "parts", "prune, all included", "the marks alone", "one small transaction",
         "ratio"),
        store.marking,
    ),
    "append": (
        "Appending messages, one per transaction",
        ("Against bare sqlite3 inserting the same JSON into one indexed table. Ours also counts "
        "tokens, compresses texts, indexes words, writes events and checks the lease. "
        "Wanted: at least 70 % of the bare speed."),
        ("", "a message", "bare sqlite3", "Foldmark", "of the bare speed", "by medians"),
        store.appending,
    ),
    "search": (
        "Searching folded output",
        "Everything is behind a pivot. The number of hits told is in brackets.",
        ("engine", "JSON", "store", "order", "the order was refunded", "zebra", "def test",
         "timeo"),
        store.searching,
    ),
    "size": (
        "The size of a store",
        ("Every record of every JSON transcript of the corpus, each stored whole, with token "
        "counts and the index of words. Wanted: well under half of the files."),
        ("engine", "files", "store", "of the files"),
        store.sizes,
    ),
    "read": (
        "Reading transcripts, and taking them into a store",
        ("The largest transcripts of the corpus against bare `json.loads` on their lines: reading "
        "as messages, writing them into a new SQLite store (each commit on the disk), and the same "
        "file again, compared message by message. Best of 9 rounds. Wanted: reading under 2 times, "
        "with the store under 4."),
        ("file", "size", "json.loads", "read", "÷ loads", "into a store", "÷ loads",
         "again ÷ loads"),
        transcripts.reading,
    ),
    "folder": (
        "A folder of transcripts",
        "`foldmark import` of all corpus files into one SQLite store, and once more.",
        ("", "files", "size", "sessions", "time", "speed"),
        transcripts.folder,
    ),
    "import": (
        "Importing",
        "CPU time of a whole interpreter. Wanted: under 0.1 s for `import foldmark`.",
        ("", "whole process", "above a bare one"),
        start.imports,
    ),
    "estimates": (
        "Estimates against a real vocabulary",
        ("All longer texts of 30 real transcripts in 15 formats, against o200k. A quarter of the "
        "length falls short where it matters: listings, logs, base64."),
        ("estimator", "error of the total", "mean error, weighted", "worst file, under",
         "worst file, over"),
        estimates.estimates,
    ),
    "quality": (
        "What a view still has of what is needed",
        ("Long recorded sessions, each cut at 5 places and folded; the references that the next 40 "
        "calls need of what came before: named / explained, the mean over cuts (over all "
        "references). Wanted at 5 000 tokens: 0.90 / 0.65; twice the recorded summaries."),
        ("view", *(f"{size:,} tokens" for size in quality.SIZES)),
        quality.quality,
    ),
    "peers": (
        "Against what others do in the same place",
        ("A session of 10 messages a turn, results of 2 000 characters, 40 000 tokens to be kept; "
        "each peer in an environment of its own, with its own counter, on the whole history; no "
        "model is asked. Best of 3; a step of ours is the median of 200, the mean has the folds "
        "in it. Growth: 1 is linear. Their later step has what their own loop carries on: those "
        "that replace the history have a short one. Wanted at 10 000: `fit` before all, a step "
        "under 1/100 of the best."),
        peers.HEAD,
        peers.rows,
    ),
}  # fmt: skip


def main(names: list[str]) -> None:
    pieces = [
        "# Results",
        (
            "Written by `make bench`. CPU time, best or median of several rounds, rivals in turns "
            f"in one run; Python {platform.python_version()} on a shared machine with two cores: "
            "trust the ratios."
        ),
    ]
    for name in names or TABLES:
        title, text, head, rows = TABLES[name]
        print(f"{title} …", flush=True)
        lines = [head, tuple("---" for _ in head), *rows()]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        print(table, flush=True)
        pieces += [f"## {title}", text, table]
    if not names:
        RESULTS.write_text("\n\n".join(pieces) + "\n")


main(sys.argv[1:])
