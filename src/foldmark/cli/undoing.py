"""`foldmark undo`, `revert` and `fork`: a session as it was before."""

from typing import Annotated

import typer
from rich.text import Text

from foldmark.acts import Act
from foldmark.session.session import Session

from .opening import new_name, opened_session
from .options import AsJson, SessionName, StorePlace
from .show import act_json
from .tables import show, show_json, words
from .text import number, plain

UNDO_EXAMPLE = "Example: foldmark undo latest --act 3"
REVERT_EXAMPLE = "Example: foldmark revert latest h3f"
FORK_EXAMPLE = "Example: foldmark fork latest --at h3f --as another-way"

ActNumber = Annotated[
    int | None, typer.Option("--act", min=1, metavar="N", help="This one, not the latest.")
]
Redo = Annotated[bool, typer.Option("--redo", help="Put in force again what was undone.")]
Place = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="The id of a message, or the handle of its part.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="MESSAGE", help="Begin as the session was at this message."),
]
NewName = Annotated[
    str | None, typer.Option("--as", metavar="NEW", help="The id of the fork; a new one if none.")
]


def undo(
    session: SessionName,
    *,
    act: ActNumber = None,
    redo: Redo = False,
    store: StorePlace = None,
    json: AsJson = False,
) -> None:
    """Take back the latest prune, pivot or revert; or with --redo, put it in force again."""
    with opened_session(store, session) as (opened, _, _):
        before = opened.view().tokens
        done = opened.redo(act) if redo else opened.undo(act)
        outcome = "is in force again" if redo else "was undone"
        _tell(opened, done, before, f"Act {done.number}, a {done.kind}, {outcome}", json=json)


def revert(
    session: SessionName, message: Place, *, store: StorePlace = None, json: AsJson = False
) -> None:
    """Go back to a message: what came after it is hidden, what was folded since is shown."""
    with opened_session(store, session) as (opened, _, _):
        before = opened.view().tokens
        done = opened.revert(message)
        told = f"Went back to {plain(message)}, which is act {done.number}"
        _tell(opened, done, before, told, json=json)


def _tell(session: Session, act: Act, before: int, told: str, *, json: bool) -> None:
    after = session.view().tokens
    if json:
        show_json({"id": session.id, "act": act_json(act), "before": before, "after": after})
    else:
        show(Text(f"{told}: {before:,} → {number(after, 'token')}."))


def fork(
    session: SessionName,
    *,
    at: At = None,
    name: NewName = None,
    store: StorePlace = None,
    json: AsJson = False,
) -> None:
    """Make a new session that begins as another one is, or was at a message."""
    new_name(name)
    with opened_session(store, session) as (opened, _, row), opened.fork(at, session=name) as made:
        info = made.info
    figures = {"id": info.id, "from": row.id, "messages": info.places, "tokens": info.tokens}
    if json:
        show_json(figures)
    else:
        told = f"{number(info.places, 'message')}, {number(info.tokens, 'token')}"
        show(words(f"Forked {row.id} as {info.id}: {told}.", most=1_000))
