"""JSON with something wrong in it, and whether what is read of it can be kept and shown."""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.importers.format import Format, Step
from foldmark.importers.reading import Sessions
from foldmark.log import Log
from foldmark.messages import decode_message
from foldmark.presets import preset
from foldmark.tokens import counter
from foldmark.values import encode
from foldmark.view import Viewer

_leaves = st.none() | st.booleans() | st.integers(-3, 10**6) | st.floats(-9, 9) | st.text(max_size=6)
anything = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@st.composite
def spoilt(draw: st.DrawFn, value: Any) -> Any:
    """The same JSON with something at one place in it gone, or replaced."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 3)):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = draw(st.sampled_from(list(keys)))
        changed = value.copy()
        if draw(st.integers(0, 4)):
            changed[key] = draw(spoilt(value[key]))
        else:
            del changed[key]
        return changed
    return draw(anything)


@st.composite
def spoilt_records(draw: st.DrawFn, records: list[Any]) -> list[Any]:
    """Records of which some are spoilt, lost, or told twice."""
    found = [
        draw(st.just(record) | spoilt(record))
        for record in records
        for _ in range(draw(st.sampled_from((1, 1, 1, 1, 0, 2))))
    ]
    return found + draw(st.lists(anything, max_size=1))


def taken(format: Format, records: Iterable[Any]) -> Sessions:
    """What an importer says of records; those that it refuses are left out."""
    importer = format.importer("/tmp/somewhere/told.jsonl")  # noqa: S108 - a name, no file
    sessions = Sessions(format.name)
    steps: list[Step] = []
    for number, record in enumerate(records, 1):
        try:
            steps = list(importer.take(importer.decode(encode(record)), number))
        except BadInput:
            continue
        for step in steps:
            sessions.take(step)
    for step in importer.end():
        sessions.take(step)
    return sessions


def check_sessions(sessions: Sessions) -> None:
    """All messages can be kept as JSON, have ids of their own, and can be shown."""
    for transcript in sessions.transcripts():
        messages = transcript.messages
        assert len({message.id for message in messages}) == len(messages)
        assert [decode_message(encode(message)) for message in messages] == list(messages)
        Viewer(Log(counter("classes"), messages), preset("foldmark")).view()
