"""`foldmark events`: what happened to a session, event by event."""

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated

import typer

from foldmark.model.events import Event
from foldmark.model.values import encode
from foldmark.session.session import Session

from .opening import opened_session
from .options import SessionName, StorePlace
from .text import escaped, plain

EXAMPLE = "Example: foldmark events latest --follow --json"

_AT_ONCE = 1_000
_MOST_TEXT = 300

After = Annotated[
    int, typer.Option("--after", metavar="N", min=0, max=2**62, help="Only those after this one.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on as they come, until Ctrl-C.")]
AsLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def events(
    session: SessionName,
    *,
    after: After = 0,
    follow: Follow = False,
    store: StorePlace = None,
    json: AsLines = False,
) -> None:
    """Tell what happened to a session, whoever did it: one line per event, oldest first."""
    with opened_session(store, session) as (opened, _, _):
        found: Iterable[Event] = opened.follow(after) if follow else _all(opened, after)
        for event in found:
            line = escaped(encode(event).decode()) if json else _line(event)
            sys.stdout.write(f"{line}\n")
            if follow:
                sys.stdout.flush()


def _all(session: Session, after: int) -> Iterator[Event]:
    while found := session.events(after, _AT_ONCE):
        yield from found
        after = found[-1].number


def _line(event: Event) -> str:
    at = datetime.fromtimestamp(event.at / 1000).astimezone()
    told = " ".join(f"{name}={_told(value)}" for name, value in event.data.items())
    line = f"{event.number:>6}  {at:%m-%d %H:%M:%S}  {plain(event.kind):<18}  {told}"
    return line.rstrip()


def _told(value: object) -> str:
    return plain(value if isinstance(value, str) else encode(value).decode(), most=_MOST_TEXT)
