"""`foldmark undo`, `revert` and `fork`: a session as it was before."""

import sys
from typing import Annotated

import typer
from rich.text import Text

from foldmark.agent.file_changes import tree_after, tree_before
from foldmark.errors import BadInput
from foldmark.model.operations import Operation
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import Restored

from .opening import new_name, opened_session
from .options import AsJson, SessionName, StorePlace
from .run_changes import OfFolder, folder_of, message_named, restored_lines, taken_snapshots
from .show import act_json
from .tables import show, show_json, words
from .text import number, plain

UNDO_EXAMPLE = "Example: foldmark undo latest --act 3"
REVERT_EXAMPLE = "Example: foldmark revert latest h3f --files"
FILES_STAY = (
    "Files stay as they are: undo is for the view. revert --files takes files to a message."
)
FORK_EXAMPLE = "Example: foldmark fork latest --at h3f --as another-way"

ActNumber = Annotated[
    int | None, typer.Option("--act", min=1, metavar="N", help="This one, not the latest.")
]
Redo = Annotated[bool, typer.Option("--redo", help="Put in force again what was undone.")]
Place = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="The id of a message, or the handle of its part.")
]
Files = Annotated[
    bool,
    typer.Option(
        "--files",
        help="Take the files of its folder back, too: to before your message was answered, or to "
        "after an answer.",
    ),
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
        tell_act(opened, done, before, f"Act {done.number}, a {done.kind}, {outcome}", json=json)
        if done.kind == "revert" and not json:
            sys.stderr.write(f"{FILES_STAY}\n")


def revert(
    session: SessionName,
    message: Place,
    *,
    files: Files = False,
    folder: OfFolder = None,
    store: StorePlace = None,
    json: AsJson = False,
) -> None:
    """Go back to a message: what came after it is hidden, what was folded since is shown.

    With --files, the folder's files are again what the view tells: after a message of yours as
    they were before it was answered, after an answer as they were when it had been given.
    """
    if folder is not None and not files:
        raise BadInput("--folder is for the files that go back; give --files, too")
    with opened_session(store, session) as (opened, kept, row):
        before = opened.view().tokens
        restored: Restored | None = None
        if files:
            # Found first: what is wrong with it is told before anything is changed.
            tree = tree_at(opened, message_named(kept, row, message))
            restored = taken_snapshots(opened, folder_of(opened, folder)).restore(tree)
        done = opened.revert(message)
        told = f"Went back to {plain(message)}, which is act {done.number}"
        tell_act(opened, done, before, told, json=json, restored=restored)


def tree_at(session: Session, message_id: str) -> str:
    """The files as a view that ends with a message tells them: what answered it is hidden."""
    messages = session.export(reverted=False).messages
    asks = any(held.id == message_id and held.is_user for held in messages)
    return (tree_before if asks else tree_after)(session, message_id)


def tell_act(
    session: Session,
    act: Operation,
    before: int,
    told: str,
    *,
    json: bool = False,
    restored: Restored | None = None,
) -> None:
    """Print what an act, or taking one back, did to a view and to files."""
    after = session.view().tokens
    if json:
        figures = {"id": session.id, "act": act_json(act), "before": before, "after": after}
        show_json(figures if restored is None else figures | {"files": restored})
        return
    lines = [Text(f"{told}: {before:,} → {number(after, 'token')}.")]
    if restored is not None:
        lines += [Text(f"  {line}") for line in restored_lines(restored)]
    show(Text("\n").join(lines))


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
