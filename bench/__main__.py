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
        ("A generated session of 10,000 messages: decoding, counting, planning a prune and "
        "building the view, compared with `msgspec.json.decode` (untyped, and into our types) "
        "plus counting alone. Goal: at most 2 times the former. A step adds 10 messages: "
        "decode, count, plan, prune, view. Goal: under 1/500 of the first pass."),
        ("session", "JSON", "decode", "decode, typed", "count", "first pass", "÷ (decode + count)",
         "÷ (typed + count)", "a step", "step ÷ first pass"),
        core.first_pass_and_step,
    ),
    "flat": (
        "Steps do not grow with the session",
        ("The same 40 messages after a compaction, with 100 to 100,000 messages before it, "
        "then steps of 10 messages. Goal: within 1.5 times."),
        ("messages before the compaction", "a step", "÷ that of 100"),
        core.flat_steps,
    ),
    "loop": (
        "A step of the agent, without model and tools",
        (f"One run of {loop.STEPS:,} steps with a window of {loop.WINDOW:,} tokens; each step has "
        f"one call with an output of 290 tokens. CPU of {loop.NEAR} steps from the 10th on, and of "
        "the last: the median, and the mean, which includes prunes and compactions. Git processes "
        "are listed separately. Goal: flat, and under 5 ms."),
        ("", "median, 10th", "median, 5,000th", "mean, 10th", "mean, 5,000th", "5,000th ÷ 10th",
         "git, 10th", "git, 5,000th", "prunes and compactions"),
        loop.steps,
    ),
    "snapshots": (
        "Snapshots of a folder",
        ("CPU of this process and of git: the first snapshot, and the median of "
        f"{snapshots.TIMES} later ones with no change, one edited file or one new file. Goal: the "
        "first takes seconds, each later one under 100 ms."),
        ("files", "first, elapsed", "first", "nothing changed", "one edited", "one new"),
        snapshots.taking,
    ),
    "open": (
        "Opening a session",
        ("A session of 100 messages and one of 100,000, both with a view of 40 messages: "
        "opening the store, loading, building the view. Goal: within 2 times, and under 1/50 "
        "of reading everything."),
        ("engine", "100 messages", "100,000 messages", "ratio", "reading everything",
         "opening ÷ that"),
        store.opening,
    ),
    "mark": (
        "Hiding outputs",
        ("One prune in one transaction, compared with a transaction of one row that is flushed "
        "to disk. Goal: the marks under 5 times that."),
        ("engine", "parts", "whole prune", "marks alone", "one small transaction",
         "ratio"),
        store.marking,
    ),
    "append": (
        "Appending messages, one per transaction",
        ("Compared with bare sqlite3 inserting the same JSON into one indexed table. Foldmark "
        "also counts tokens, compresses texts, indexes words, writes events and checks the "
        "lease. Goal: at least 70 % of the bare speed."),
        ("", "a message", "bare sqlite3", "Foldmark", "of the bare speed", "by medians"),
        store.appending,
    ),
    "search": (
        "Searching hidden messages",
        "Everything is behind a compaction. The number of hits is in parentheses.",
        ("engine", "JSON", "store", "order", "the order was refunded", "zebra", "def test",
         "timeo"),
        store.searching,
    ),
    "size": (
        "The size of a store",
        ("Every record of every JSON transcript of the corpus, stored whole, with token counts "
        "and the word index. Goal: well under half of the files."),
        ("engine", "files", "store", "of the files"),
        store.sizes,
    ),
    "read": (
        "Reading and importing transcripts",
        ("The largest transcripts of the corpus, compared with bare `json.loads` on their "
        "lines: reading them as messages, importing them into a new SQLite store (each commit "
        "flushed to disk), and importing the same file again. Best of 9 rounds. Goal: reading "
        "under 2 times, importing under 4 times."),
        ("file", "size", "json.loads", "read", "÷ loads", "into a store", "÷ loads",
         "again ÷ loads"),
        transcripts.reading,
    ),
    "folder": (
        "A folder of transcripts",
        "`foldmark import` of all corpus files into one SQLite store, and again.",
        ("", "files", "size", "sessions", "time", "speed"),
        transcripts.folder,
    ),
    "import": (
        "Import time",
        "CPU time of a whole interpreter. Goal: under 0.1 s for `import foldmark`.",
        ("", "whole process", "above a bare one"),
        start.imports,
    ),
    "estimates": (
        "Token estimates",
        ("All longer texts of 30 real transcripts in 15 formats, compared with the o200k "
        "vocabulary. A quarter of the length falls short for listings, logs and base64."),
        ("estimator", "error of the total", "mean error, weighted", "worst file, under",
         "worst file, over"),
        estimates.estimates,
    ),
    "quality": (
        "What a view still contains of what is needed later",
        ("Long recorded sessions, each cut at 5 points and compacted; the share of references "
        "needed by the next 40 calls that the view names / explains, as the mean over cuts "
        "(over all references). Goal at 5,000 tokens: 0.90 / 0.65, and twice the recorded "
        "summaries."),
        ("view", *(f"{size:,} tokens" for size in quality.SIZES)),
        quality.quality,
    ),
    "peers": (
        "Compared with other tools",
        ("A session of 10 messages per turn with results of 2,000 characters, of which 40,000 "
        "tokens are to be kept; each tool in an environment of its own, with its own counter, "
        "on the whole history; no model is called. Best of 3; our step is the median of 200, "
        "its mean includes compactions. Growth: 1 is linear. A later step is what the tool "
        "does on the next message in its own loop; tools that replace the history have a "
        "short one. Goal at 10,000: `fit` faster than all, a step under 1/100 of the best."),
        peers.HEAD,
        peers.rows,
    ),
}  # fmt: skip


def main(names: list[str]) -> None:
    pieces = [
        "# Results",
        (
            "Written by `make bench`. CPU time, best or median of several rounds, alternatives in "
            f"turn in one run; Python {platform.python_version()} on a shared machine with two "
            "cores: trust the ratios."
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
