"""Changes as a patch that `git apply` takes: git writes it, so names, modes and bytes are right.

Which trees are compared is told elsewhere; so is where the patch goes.
"""

from foldmark.errors import BadInput
from foldmark.io.snapshot_git import Git, git_program, shadow_repository
from foldmark.io.snapshot_reading import checked_tree
from foldmark.io.snapshots import Snapshots

_HOW = (
    *("diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
# A program needs all of a file that is no text; a person would only see signs.
_FOR_PROGRAMS = ("-c", "core.quotePath=true", *_HOW, "--binary")
_FOR_PEOPLE = ("-c", "core.quotePath=false", *_HOW)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def patch(snapshots: Snapshots, old: str, new: str, *, for_people: bool = False) -> bytes:
    """How one tree becomes another; for people, files that are no text are only named."""
    program = git_program(snapshots.folder)
    if program is None:
        raise BadInput("git is not installed; without it there are no snapshots of files")
    git = Git(program, shadow_repository(snapshots.home), snapshots.folder)
    how = _FOR_PEOPLE if for_people else _FOR_PROGRAMS
    return git.output(*how, checked_tree(git, old), checked_tree(git, new))


def shown_name(name: str) -> str:
    """The name of a file as git writes it: in quotes and with escapes, where it has odd signs."""
    shown = "".join(map(_shown, name))
    return name if shown == name else f'"{shown}"'


def _shown(sign: str) -> str:
    if sign in _ESCAPES:
        return _ESCAPES[sign]
    if sign.isprintable():
        return sign
    return "".join(f"\\{byte:03o}" for byte in sign.encode("utf-8", "surrogateescape"))
