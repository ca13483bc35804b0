"""What trees hold, and how two of them differ. Nothing is written here, and no folder looked at."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from foldmark.errors import BadInput
from foldmark.model.operations import Change, FileDiff

from .git import Git

_DIFF = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")
PATCH = (*_DIFF, "-p", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
LINK = "120000"
EXECUTABLE = "100755"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # which git knows without keeping it
_TREE = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_CHANGES: dict[str, Change] = {"A": "added", "D": "deleted"}


class Changed(NamedTuple):
    """A path that two trees have otherwise; the blob of a side on which it is not is None."""

    path: bytes
    change: Change
    mode: str  # in the new tree
    old: str | None
    new: str | None
    lines: tuple[int, int] | None = None  # added and deleted; None where it is no text


def check_trees(git: Git, *trees: str) -> None:
    """Raise BadInput for a tree that is none, or another machine's."""
    for tree in trees:
        if not _TREE.fullmatch(tree) or not git.has_tree(tree):
            raise BadInput(
                f"the snapshot {tree[:40]!r} is not kept here; "
                "diff and restore work where it was taken"
            )


def changes(git: Git, old: str, new: str, *patterns: str) -> list[Changed]:
    """How two trees differ, in paths of some patterns or in all, with lines counted."""
    if old == new:
        return []
    check_trees(git, old, new)
    found: list[Changed] = []
    lines: dict[bytes, tuple[int, int] | None] = {}
    told = git.output(*_DIFF, "-z", "--raw", "--numstat", old, new, "--", *patterns)
    fields = iter(told.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            _, mode, before, after, letter = field.decode().split(" ")
            change = _CHANGES.get(letter, "changed")
            found.append(
                Changed(
                    path=next(fields),
                    change=change,
                    mode=mode,
                    old=None if change == "added" else before,
                    new=None if change == "deleted" else after,
                )
            )
        elif field:
            added, deleted, path = field.split(b"\t", 2)
            lines[path] = None if added == b"-" else (int(added), int(deleted))
    return [change._replace(lines=lines.get(change.path)) for change in found]


def blobs(git: Git, names: Iterable[str | None], most_bytes: int | None = None) -> dict[str, bytes]:
    """The contents of blobs by their names, without those of more bytes."""
    wanted = [f"{name}\n" for name in dict.fromkeys(names) if name]
    if most_bytes is not None and wanted:
        told = git.output("cat-file", "--batch-check", given="".join(wanted).encode()).decode()
        rows = (line.split(" ") for line in told.splitlines())
        wanted = [f"{name}\n" for name, _, size in rows if int(size) <= most_bytes]
    data = git.output("cat-file", "--batch", given="".join(wanted).encode()) if wanted else b""
    found: dict[str, bytes] = {}
    place = 0
    while place < len(data):
        start = data.index(b"\n", place) + 1
        name, _, size = data[place : start - 1].decode().split(" ")
        place = start + int(size) + 1
        found[name] = data[start : place - 1]
    return found


def file_diff(change: Changed, name: str, held: dict[str, bytes]) -> FileDiff:
    """A change as it is told; texts that are too large are left empty, their lines are counted."""
    binary = change.lines is None
    added, deleted = change.lines or (0, 0)
    return FileDiff(
        file=name,
        before="" if binary else held.get(change.old or "", b"").decode(errors="replace"),
        after="" if binary else held.get(change.new or "", b"").decode(errors="replace"),
        additions=added,
        deletions=deleted,
        change=change.change,
        binary=binary,
    )
