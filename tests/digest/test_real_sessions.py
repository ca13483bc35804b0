"""Real sessions are digested within their room, and more of what is needed stays than in a tail."""

from pathlib import Path

import foldmark
from foldmark.analysis.needs import retention, needs, messages_text
from foldmark.digest.digest import digest
from foldmark.log.log import Log
from foldmark.tokens.counters import by_classes
from tests.support.corpus import FOREIGN

SMALL = 700_000  # bytes; the larger ones are for the benchmark
ROOM = 1_500


def test_real_sessions_keep_more_of_what_is_needed_than_a_tail_of_the_same_size(
    corpus: Path,
) -> None:
    ours = tails = needed = 0
    for path in sorted(corpus.glob("*/*.json*")):
        if path.stat().st_size > SMALL or path.parent.name in FOREIGN:
            continue
        messages = foldmark.read_transcript(path).messages
        cut = len(messages) // 2
        before = messages_text(messages[:cut])
        wanted = needs(before, messages[cut:])
        text = digest(Log(by_classes, messages[:cut]), range(cut), ROOM)
        assert by_classes(text) <= ROOM, path.name
        tail = before[-len(before) * ROOM // max(ROOM, by_classes(before)) :]
        needed += len(wanted)
        ours += retention(wanted, text).named
        tails += retention(wanted, tail).named
    assert needed > 50
    assert ours > tails * 1.3
