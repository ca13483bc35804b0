"""Damaged records, and checks of the sessions that are read from them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, cast

from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Message, Transcript, decode_message
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.format import Format
from foldmark.transcripts.read import SessionCollector
from foldmark.transcripts.source import Record

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    3.5,
    10**18,
    "",
    "x",
    "\ud800",
    [],
    {},
    [None],
    [{}],
    {"type": "text"},
    [{"type": "text", "text": "hi"}],
    [{"type": "message", "role": "user", "content": "hi"}],
)


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    names: Sequence[Any] = ()
    if isinstance(value, dict):
        names = list(cast("dict[str, Any]", value))
    elif isinstance(value, list):
        names = range(min(len(cast("list[Any]", value)), 6))
    for name in names:
        yield (*above, name)
        yield from _places(value[name], (*above, name))


@st.composite
def damaged(draw: st.DrawFn, record: Any) -> Any:
    """A record with fields removed or replaced."""
    value = deepcopy(record)
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.sampled_from([(), *_places(value)]))
        if not index:
            continue
        holder = value
        for name in index[:-1]:
            holder = holder[name]
        if draw(st.booleans()):
            holder[index[-1]] = deepcopy(draw(st.sampled_from(ODD)))
        else:
            del holder[index[-1]]
    return value


def damaged_lines(records: Sequence[Any]) -> st.SearchStrategy[list[Any]]:
    """Some of these records, damaged, in any order."""
    sample = st.sampled_from(list(records)).flatmap(damaged)
    return st.lists(sample | st.sampled_from(ODD), max_size=12)


def read_leniently(format: Format, records: Sequence[Any]) -> list[Transcript]:
    """The sessions of the readable records; others must raise BadInput and nothing else."""
    importer = format("kept.jsonl")
    sessions = SessionCollector(format.name)
    for line, record in enumerate(records, 1):
        with suppress(BadInput):
            data = json.dumps(record).encode()
            for step in importer.steps_of(Record(line=line, data=data)):
                sessions.add(step)
    for step in importer.final_steps():
        sessions.add(step)
    return sessions.transcripts()


def assert_acceptable(messages: Sequence[Message]) -> None:
    """Check that messages can be stored, read back and viewed."""
    for message in messages:
        assert decode_message(encode(message)) == message
    Viewer(Log(counter(FOLDMARK.estimate), messages), FOLDMARK).view()
