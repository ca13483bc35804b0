"""`foldmark undo`, `revert` and `fork`: a session as it was before."""

import sys
from dataclasses import dataclass
from typing import Annotated

from rich.text import Text

from foldmark.agent.file_changes import tree_after, tree_before
from foldmark.errors import BadInput
from foldmark.model.operations import Operation
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import Restored

from ..groups import argument, flag, option
from ..layout import answer, words
from ..options import SessionName, StoreOptions, new_name
from ..text import number, plain
from .diff import FolderOptions, folder_of, message_named, restored_lines, taken_snapshots
from .show import operation_json

FILES_STAY = (
    "Files stay as they are: undo is for the view. revert --files takes files to a message."
)

Place = Annotated[str, argument("MESSAGE", "The id of a message, or the handle of its part.")]


@dataclass(frozen=True, kw_only=True)
class UndoOptions:
    """Which operation is undone or redone."""

    act: int | None = option("--act N", "This one, not the latest.", min=1)
    redo: bool = flag("--redo", "Put in force again what was undone.")


@dataclass(frozen=True, kw_only=True)
class RevertOptions(FolderOptions):
    """Whether files go back as well."""

    files: bool = flag(
        "--files",
        "Take the files of its folder back, too: to before your message was answered, or to after "
        "an answer.",
    )


@dataclass(frozen=True, kw_only=True)
class ForkOptions:
    """Where a fork begins, and its id."""

    at: str | None = option("--at MESSAGE", "Begin as the session was at this message.")
    name: str | None = option("--as NEW", "The id of the fork; a new one if none.")


def undo(session: SessionName, *, undoing: UndoOptions, options: StoreOptions) -> None:
    """Take back the latest prune, pivot or revert; or with --redo, put it in force again.

    Example: foldmark undo latest --act 3
    """
    with options.session(session) as (opened, _, _):
        before = opened.view().tokens
        done = (opened.redo if undoing.redo else opened.undo)(undoing.act)
        outcome = "is in force again" if undoing.redo else "was undone"
        text = f"Act {done.number}, a {done.kind}, {outcome}"
        tell_operation(opened, done, before, text, json=options.json)
        if done.kind == "revert" and not options.json:
            sys.stderr.write(f"{FILES_STAY}\n")


def revert(
    session: SessionName, message: Place, *, reverting: RevertOptions, options: StoreOptions
) -> None:
    """Go back to a message: what came after it is hidden, what was folded since is shown.

    With --files, the folder's files are again what the view tells: after a message of yours as
    they were before it was answered, after an answer as they were when it had been given.

    Example: foldmark revert latest h3f --files
    """
    if reverting.folder is not None and not reverting.files:
        raise BadInput("--folder is for the files that go back; give --files, too")
    with options.session(session) as (opened, kept, row):
        before = opened.view().tokens
        restored: Restored | None = None
        if reverting.files:
            # Found first: what is wrong with it is told before anything is changed.
            name = message_named(kept, row, message)
            messages = opened.export(reverted=False).messages
            asks = any(held.id == name and held.is_user for held in messages)
            # The files as the view will tell them: what answered the message is hidden.
            tree = (tree_before if asks else tree_after)(opened, name)
            restored = taken_snapshots(opened, folder_of(opened, reverting.folder)).restore(tree)
        done = opened.revert(message)
        text = f"Went back to {plain(message)}, which is act {done.number}"
        tell_operation(opened, done, before, text, json=options.json, restored=restored)


def tell_operation(
    session: Session,
    done: Operation,
    before: int,
    text: str,
    *,
    json: bool = False,
    restored: Restored | None = None,
) -> None:
    """Print what an operation, or taking one back, did to a view and to files."""
    after = session.view().tokens
    value: dict[str, object] = {
        "id": session.id,
        "act": operation_json(done),
        "before": before,
        "after": after,
    }
    lines = [Text(f"{text}: {before:,} → {number(after, 'token')}.")]
    if restored is not None:
        value["files"] = restored
        lines += [Text(f"  {line}") for line in restored_lines(restored)]
    answer(value, Text("\n").join(lines), json=json)


def fork(session: SessionName, *, forking: ForkOptions, options: StoreOptions) -> None:
    """Make a new session that begins as another one is, or was at a message.

    Example: foldmark fork latest --at h3f --as another-way
    """
    name = new_name(forking.name)
    with (
        options.session(session) as (opened, _, row),
        opened.fork(forking.at, session=name) as made,
    ):
        info = made.info
    figures = {"id": info.id, "from": row.id, "messages": info.places, "tokens": info.tokens}
    text = f"{number(info.places, 'message')}, {number(info.tokens, 'token')}"
    line = words(f"Forked {row.id} as {info.id}: {text}.", most=1_000)
    answer(figures, line, json=options.json)
