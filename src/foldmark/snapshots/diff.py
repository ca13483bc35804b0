"""What trees hold, and how two of them differ. Nothing is written here, and no folder looked at."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from foldmark.errors import BadInput
from foldmark.model.file_diffs import Change, FileDiff

from .git import Git, GitFailed

_HOW = (
    *("diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
# A program needs all of a file that is no text; a person would only see signs.
_FOR_PROGRAMS = ("-c", "core.quotePath=true", *_HOW, "--binary")
_FOR_PEOPLE = ("-c", "core.quotePath=false", *_HOW)

LINK = "120000"
EXECUTABLE = "100755"
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


def checked_tree(git: Git, tree: str) -> str:
    """A tree that is kept; BadInput where it is none, or another machine's."""
    if _TREE.fullmatch(tree):
        try:
            kind = git.output("cat-file", "-t", tree)
        except GitFailed:
            kind = b""
        if kind.strip() == b"tree":
            return tree
    raise BadInput(
        f"the snapshot {tree[:40]!r} is not kept here; diff and restore work where it was taken"
    )


def changes(git: Git, old: str, new: str) -> list[Changed]:
    """How two trees differ, with lines counted."""
    told = _between(git, old, new).split(b"\0")
    found: list[Changed] = []
    lines: dict[bytes, tuple[int, int] | None] = {}
    fields = iter(told)
    for field in fields:
        if field.startswith(b":"):
            found.append(_changed(field.decode(), next(fields)))
        elif field:
            added, deleted, path = field.split(b"\t", 2)
            lines[path] = None if added == b"-" else (int(added), int(deleted))
    return [change._replace(lines=lines.get(change.path)) for change in found]


def _between(git: Git, old: str, new: str) -> bytes:
    if old == new:
        return b""
    if not _TREE.fullmatch(old) or not _TREE.fullmatch(new):
        checked_tree(git, old)
        checked_tree(git, new)
    how = ("-r", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--raw", "--numstat")
    try:
        return git.output("diff-tree", *how, old, new)
    except GitFailed:
        checked_tree(git, old)
        checked_tree(git, new)
        raise


def _changed(record: str, path: bytes) -> Changed:
    _, mode, old, new, letter = record[1:].split(" ")
    change = _CHANGES.get(letter, "changed")
    return Changed(
        path=path,
        change=change,
        mode=mode,
        old=None if change == "added" else old,
        new=None if change == "deleted" else new,
    )


def blobs(git: Git, names: Iterable[str | None], most_bytes: int | None = None) -> dict[str, bytes]:
    """The contents of blobs by their names, without those of more bytes."""
    wanted = [name for name in dict.fromkeys(names) if name]
    if most_bytes is not None and wanted:
        told = git.output("cat-file", "--batch-check", given=_lines(wanted)).decode().splitlines()
        sizes = (line.split(" ") for line in told)
        wanted = [fields[0] for fields in sizes if int(fields[2]) <= most_bytes]
    if not wanted:
        return {}
    data = git.output("cat-file", "--batch", given=_lines(wanted))
    found: dict[str, bytes] = {}
    place = 0
    for name in wanted:
        end = data.index(b"\n", place)
        size = int(data[place:end].split(b" ")[2])
        found[name] = data[end + 1 : end + 1 + size]
        place = end + size + 2
    return found


def _lines(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def entries(git: Git, tree: str) -> list[tuple[str, str, bytes]]:
    """The mode, blob and path of every file of a tree."""
    found: list[tuple[str, str, bytes]] = []
    for record in git.output("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0"):
        if record:
            told, _, path = record.partition(b"\t")
            mode, _, blob = told.decode().split(" ")
            found.append((mode, blob, path))
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


def patch(git: Git, old: str, new: str, *, for_people: bool) -> bytes:
    """How one tree becomes another: git writes it, so that `git apply` takes it."""
    how = _FOR_PEOPLE if for_people else _FOR_PROGRAMS
    return git.output(*how, checked_tree(git, old), checked_tree(git, new))
