"""`foldmark undo`, `revert` and `fork`: return a session to an earlier state."""

import sys
from dataclasses import dataclass
from typing import Annotated

from rich.text import Text

from foldmark.agent.file_changes import tree_after, tree_before
from foldmark.errors import BadInput
from foldmark.model.operations import Operation
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import RestoreResult

from ..groups import argument, flag, option
from ..layout import answer, safe_text
from ..options import SessionName, StoreOptions, check_new_id
from ..text import number, plain
from .diff import FolderOptions, open_snapshots, resolve_message, restore_report, session_folder
from .show import operation_json, operation_label

FILES_STAY = "Files are unchanged: undo affects the view only. revert --files also restores files."

MessageName = Annotated[str, argument("MESSAGE", "Id of a message, or handle of a part of it.")]


@dataclass(frozen=True, kw_only=True)
class UndoOptions:
    """The operation to undo or redo."""

    operation: int | None = option(
        "--operation N", "Operation to undo (default: the latest).", min=1
    )
    redo: bool = flag("--redo", "Redo an undone operation instead.")


@dataclass(frozen=True, kw_only=True)
class RevertOptions(FolderOptions):
    """Whether to restore files as well."""

    files: bool = flag(
        "--files",
        "Also restore the session's files: to before the reply to a user message, or to after a "
        "reply.",
    )


@dataclass(frozen=True, kw_only=True)
class ForkOptions:
    """The start of a fork, and its id."""

    at: str | None = option("--at MESSAGE", "Fork the session as it was at this message.")
    name: str | None = option("--as ID", "Id of the fork (default: a new one).")


def undo(session: SessionName, *, undoing: UndoOptions, options: StoreOptions) -> None:
    """Undo the latest prune, compaction or revert, or redo it with --redo.

    Example: foldmark undo latest --operation 3
    """
    with options.session(session) as (opened, _, _):
        before = opened.view().tokens
        operation = (opened.redo if undoing.redo else opened.undo)(undoing.operation)
        outcome = "was redone" if undoing.redo else "was undone"
        text = f"{operation_label(operation)} {outcome}"
        print_operation(opened, operation, before, text, json=options.json)
        if operation.kind == "revert" and not options.json:
            sys.stderr.write(f"{FILES_STAY}\n")


def revert(
    session: SessionName, message: MessageName, *, reverting: RevertOptions, options: StoreOptions
) -> None:
    """Return to a message: later messages are hidden, and later compactions have no effect.

    With --files, the files also return to that state: to before the reply if the message is yours,
    or to after it if the message is a reply.

    Example: foldmark revert latest h3f --files
    """
    if reverting.folder is not None and not reverting.files:
        raise BadInput("--dir is for the files to restore; add --files")
    with options.session(session) as (opened, store, row):
        before = opened.view().tokens
        restored: RestoreResult | None = None
        if reverting.files:
            # Restore files first: errors must come before anything is changed.
            name = resolve_message(store, row, message)
            messages = opened.export(reverted=False).messages
            is_request = any(one.id == name and one.is_user for one in messages)
            # The reply to a request is hidden, so the files must be those before it.
            tree = (tree_before if is_request else tree_after)(opened, name)
            folder = session_folder(opened, reverting.folder)
            restored = open_snapshots(opened, folder).restore(tree)
        operation = opened.revert(message)
        text = f"Reverted to {plain(message)} (operation {operation.number})"
        print_operation(opened, operation, before, text, json=options.json, restored=restored)


def print_operation(
    session: Session,
    operation: Operation,
    before: int,
    text: str,
    *,
    json: bool = False,
    restored: RestoreResult | None = None,
) -> None:
    """Print what an operation, or its undo, did to the view and to files."""
    after = session.view().tokens
    value: dict[str, object] = {
        "id": session.id,
        "act": operation_json(operation),
        "before": before,
        "after": after,
    }
    lines = [Text(f"{text}: {before:,} → {number(after, 'token')}.")]
    if restored is not None:
        value["files"] = restored
        lines += [Text(f"  {line}") for line in restore_report(restored)]
    answer(value, Text("\n").join(lines), json=json)


def fork(session: SessionName, *, forking: ForkOptions, options: StoreOptions) -> None:
    """Create a new session from another one, as it is or as it was at a message.

    Example: foldmark fork latest --at h3f --as another-way
    """
    name = check_new_id(forking.name)
    with (
        options.session(session) as (opened, _, row),
        opened.fork(forking.at, session=name) as forked,
    ):
        info = forked.info
    figures = {"id": info.id, "from": row.id, "messages": info.places, "tokens": info.tokens}
    text = f"{number(info.places, 'message')}, {number(info.tokens, 'token')}"
    line = safe_text(f"Forked {row.id} as {info.id}: {text}.", limit=1_000)
    answer(figures, line, json=options.json)
