"""Damaged transcripts give BadInput or a valid session, and nothing else.

FOLDMARK_EXAMPLES=100000 tries harder.
"""

import random
from io import BytesIO
from pathlib import Path

import pytest

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Transcript, decode_message
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.format import formats, recognize_format
from foldmark.transcripts.read import Reading, SessionCollector
from foldmark.transcripts.source import Source
from foldmark.wire.codec import WIRES
from foldmark.wire.formats import request
from tests.support.effort import examples
from tests.support.transcript_fuzzer import material, spoiled
from tests.support.view_rules import assert_valid

EXAMPLES = examples(20, 100)
_count = counter(FOLDMARK.estimate)


def read(data: bytes, *, lenient: bool, format: str | None = None) -> list[Transcript]:
    source = Source(BytesIO(data), "spoiled", 2**24)
    rename = next((item for item in formats() if item.name == format), None)
    reading = Reading(source, rename or recognize_format(source.head), lenient=lenient)
    sessions = SessionCollector(reading.format.name)
    for step in reading.steps():
        sessions.add(step)
    return sessions.transcripts()


def assert_acceptable(transcript: Transcript) -> None:
    for message in transcript.messages:
        assert decode_message(encode(message)) == message
    view = Viewer(Log(_count, transcript.messages), FOLDMARK).view()
    assert_valid(view.messages)
    for wire in WIRES:
        request(view.messages, wire)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_transcripts_are_refused_or_valid(corpus: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance that can be had again
    names = [item.name for item in formats()]
    readable = 0
    for number in range(max(EXAMPLES * 3 // 8, 1)):
        data = spoiled(chance.choice(material(corpus)), chance)
        forced = chance.choice(names) if chance.random() < 0.1 else None
        try:
            sessions = read(data, lenient=chance.random() < 0.5, format=forced)
            for transcript in sessions:
                assert_acceptable(transcript)
        except BadInput:
            continue
        except Exception as error:
            # Keep the file for inspection.
            Path(f"/tmp/spoiled-{seed}-{number}").write_bytes(data)  # noqa: S108
            raise AssertionError(f"{type(error).__name__}: {error} ({forced})") from error
        readable += 1
    assert readable
