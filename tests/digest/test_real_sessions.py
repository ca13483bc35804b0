"""Digests of real sessions stay within their budget and keep more than a tail of that size."""

from pathlib import Path

import foldmark
from foldmark.analysis.needs import messages_text, needs, retention
from foldmark.digest.digest import digest
from foldmark.log.log import Log
from foldmark.tokens.counters import by_classes
from tests.support.corpus import FOREIGN

SMALL = 700_000  # bytes; the larger ones are for the benchmark
BUDGET = 1_500


def test_a_digest_names_more_needed_references_than_a_tail_of_the_same_size(
    corpus: Path,
) -> None:
    ours = tails = needed = 0
    for path in sorted(corpus.glob("*/*.json*")):
        if path.stat().st_size > SMALL or path.parent.name in FOREIGN:
            continue
        messages = foldmark.read_transcript(path).messages
        cut = len(messages) // 2
        before = messages_text(messages[:cut])
        required = needs(before, messages[cut:])
        text = digest(Log(by_classes, messages[:cut]), range(cut), BUDGET)
        assert by_classes(text) <= BUDGET, path.name
        tail = before[-len(before) * BUDGET // max(BUDGET, by_classes(before)) :]
        needed += len(required)
        ours += retention(required, text).named
        tails += retention(required, tail).named
    assert needed > 50
    assert ours > tails * 1.3
