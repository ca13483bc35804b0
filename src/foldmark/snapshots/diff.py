"""Read trees and compare two of them. Writes nothing and does not look at the folder."""

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
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # built into git
_TREE = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_CHANGES: dict[str, Change] = {"A": "added", "D": "deleted"}


class FileChange(NamedTuple):
    """A path that differs between two trees; a missing side has no blob."""

    path: bytes
    change: Change
    mode: str  # mode in the new tree
    old: str | None
    new: str | None
    lines: tuple[int, int] | None = None  # added and deleted; None for binary files


def check_trees(git: Git, *trees: str) -> None:
    """Raise BadInput for a tree that is invalid or not stored on this machine."""
    for tree in trees:
        if not _TREE.fullmatch(tree) or not git.has_tree(tree):
            raise BadInput(
                f"the snapshot {tree[:40]!r} is not on this machine; "
                "run diff and restore where it was taken"
            )


def diff_trees(git: Git, old: str, new: str, *patterns: str) -> list[FileChange]:
    """The changed paths between two trees, of all paths or some patterns, with line counts."""
    if old == new:
        return []
    check_trees(git, old, new)
    file_changes: list[FileChange] = []
    lines: dict[bytes, tuple[int, int] | None] = {}
    output = git.output(*_DIFF, "-z", "--raw", "--numstat", old, new, "--", *patterns)
    fields = iter(output.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            _, mode, before, after, letter = field.decode().split(" ")
            change = _CHANGES.get(letter, "changed")
            file_changes.append(
                FileChange(
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
    return [change._replace(lines=lines.get(change.path)) for change in file_changes]


def blobs(git: Git, names: Iterable[str | None], max_bytes: int | None = None) -> dict[str, bytes]:
    """The contents of blobs by name; blobs of more bytes are left out."""
    requests = [f"{name}\n".encode() for name in dict.fromkeys(names) if name]
    if max_bytes is not None and requests:
        output = git.output("cat-file", "--batch-check", payload=b"".join(requests)).decode()
        rows = (line.split(" ") for line in output.splitlines())
        requests = [f"{name}\n".encode() for name, _, size in rows if int(size) <= max_bytes]
    data = git.output("cat-file", "--batch", payload=b"".join(requests)) if requests else b""
    contents: dict[str, bytes] = {}
    position = 0
    while position < len(data):
        start = data.index(b"\n", position) + 1
        name, _, size = data[position : start - 1].decode().split(" ")
        position = start + int(size) + 1
        contents[name] = data[start : position - 1]
    return contents


def file_diff(change: FileChange, name: str, contents: dict[str, bytes]) -> FileDiff:
    """The diff of one file; texts that are too large are empty, but their lines are counted."""
    binary = change.lines is None
    added, deleted = change.lines or (0, 0)
    return FileDiff(
        file=name,
        before="" if binary else contents.get(change.old or "", b"").decode(errors="replace"),
        after="" if binary else contents.get(change.new or "", b"").decode(errors="replace"),
        additions=added,
        deletions=deleted,
        change=change.change,
        binary=binary,
    )
