"""How a folder is remembered after a scan by git: which names are there, and which are ignored.

Git has looked a moment ago, and things may have changed since. Only what is known to have been
there before that is remembered; the rest will be new to the next look, which then asks git again.
"""

import os
from collections.abc import Container, Iterable
from typing import Literal, NamedTuple

from .git import Git, zero_ended
from .looking import RULES, Memory, Odd, Signature, is_settled, signature_of, signed
from .scanning import Rules
from .trees import Trees

MOST_FILES = 2_000  # that are held; with more of them, git is the quicker one
_MOST_NAMES = 10_000  # that are there, held or not
_NEVER: Signature = (-1, -1, -1, -1, -1)  # how no file is
Standing = Literal["folder", "fit", "unfit"]  # fit to be held, by what it is


class Earlier(NamedTuple):
    """What was known before git scanned."""

    moment: int  # when it began, in nanoseconds
    listed: dict[bytes, Standing]  # what was there then and is not held, as far as it was seen
    memory: Memory | None


def listed_before(rules: Rules, memory: Memory | None) -> dict[bytes, Standing]:
    """What is there that is not held, in the folders that are remembered."""
    found: dict[bytes, Standing] = {}
    for folder in memory.folders if memory else ():
        try:
            with os.scandir(os.fsencode(rules.folder) + b"/" + folder) as entries:
                found.update(_standings(rules, folder, entries, memory.files if memory else ()))
        except OSError:
            continue
    return found


def _standings(
    rules: Rules, folder: bytes, entries: Iterable[os.DirEntry[bytes]], held: Container[bytes]
) -> Iterable[tuple[bytes, Standing]]:
    for entry in entries:
        path = folder + b"/" + entry.name if folder else entry.name
        if path not in held and rules.may_hold(path):
            yield path, _standing(rules, path, entry)


def _standing(rules: Rules, path: bytes, entry: os.DirEntry[bytes]) -> Standing:
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "fit" if rules.is_holdable(path, entry.stat(follow_symlinks=False)) else "unfit"


def remembered(git: Git, rules: Rules, trees: Trees, earlier: Earlier) -> Memory | None:
    """The folder as it is after a scan that gave the tree which is held; None where it is odd."""
    try:
        old = earlier.memory
        if old is not None:
            made = _Survey(git, rules, trees, earlier, _verdicts(old)).memory
            if _rules_of(made) == _rules_of(old):
                return made
        return _Survey(git, rules, trees, earlier, {}).memory
    except (Odd, OSError):
        return None


def _verdicts(memory: Memory) -> dict[bytes, bool]:
    """Which untracked folders are ignored, by what is remembered."""
    return {
        folder + b"/" + name if folder else name: kind == "shut"
        for folder, names in memory.folders.items()
        for name, kind in names.items()
        if kind in {"open", "shut"}
    }


def _rules_of(memory: Memory) -> dict[bytes, Signature | None]:
    """What says which files are ignored, and how that is."""
    files = memory.files.items()
    tracked = {path: held for path, held in files if path.rpartition(b"/")[2] == RULES}
    # One that may have changed again is like no other, not even itself.
    if None in tracked.values() or _NEVER in memory.watched.values():
        return {b"": (memory.looks, id(memory), 0, 0, 0)}
    return {**tracked, **memory.watched}


class _Survey:
    """One walk through a folder, level by level."""

    def __init__(
        self, git: Git, rules: Rules, trees: Trees, earlier: Earlier, verdicts: dict[bytes, bool]
    ) -> None:
        self._git = git
        self._rules = rules
        self._trees = trees
        self._earlier = earlier
        self._verdicts = verdicts
        self._folder = os.fsencode(rules.folder)
        self._names = 0
        self.memory = Memory(rules, trees.name or "")
        self.memory.files.update(dict.fromkeys(trees.paths()))
        self._watch_project()
        level = [b""]
        while level:
            level = self._looked_through(level)

    def _watch_project(self) -> None:
        place = os.fsencode(self._rules.excluding)
        signature = signed(place)
        odd = os.path.islink(place)  # noqa: PTH114 - what it leads to may change unseen
        if odd or (signature and not is_settled(signature, self._earlier.moment)):
            signature = _NEVER
        self.memory.watched[place] = signature

    def _looked_through(self, level: list[bytes]) -> list[bytes]:
        """Remember what is in some folders; those in them that are to be looked into as well."""
        inner: list[bytes] = []
        untracked: list[bytes] = []
        for folder in level:
            self._look_into(folder, inner, untracked)
        ignored = self._ignored(untracked)
        for path in untracked:
            above, _, name = path.rpartition(b"/")
            self.memory.folders[above][name] = "shut" if path in ignored else "open"
        return inner + [path for path in untracked if path not in ignored]

    def _look_into(self, folder: bytes, inner: list[bytes], untracked: list[bytes]) -> None:
        place = self._folder + b"/" + folder
        is_quiet = is_settled(signature_of(os.lstat(place)), self._earlier.moment)
        names = self.memory.folders[folder] = {}
        with os.scandir(place) as entries:
            for entry in entries:
                self._names += 1
                path = folder + b"/" + entry.name if folder else entry.name
                if path in self.memory.files:
                    self._note_file(path, entry)
                elif self._trees.has_folder(path):
                    if not entry.is_dir(follow_symlinks=False):
                        raise Odd
                    names[entry.name] = "open"
                    inner.append(path)
                elif entry.name == b".git":
                    names[entry.name] = "shut" if entry.is_dir(follow_symlinks=False) else "ignored"
                elif self._rules.may_hold(path):
                    self._note_other(path, entry, untracked, is_quiet=is_quiet)
        if self._names > _MOST_NAMES:
            raise Odd

    def _note_file(self, path: bytes, entry: os.DirEntry[bytes]) -> None:
        signature = signature_of(entry.stat(follow_symlinks=False))
        if is_settled(signature, self._earlier.moment):
            self.memory.files[path] = signature

    def _note_other(
        self, path: bytes, entry: os.DirEntry[bytes], untracked: list[bytes], *, is_quiet: bool
    ) -> None:
        """Remember a name that is not held, if it was there when git looked."""
        now, before = _standing(self._rules, path, entry), self._earlier.listed.get(path)
        if not is_quiet and (before is None or (before == "folder") != (now == "folder")):
            return
        if now == "folder":
            untracked.append(path)
            return
        settled = is_settled(signature_of(entry.stat(follow_symlinks=False)), self._earlier.moment)
        above, _, name = path.rpartition(b"/")
        # Git saw it, and would have held it: so it is ignored.
        is_ignored = now == "fit" and (settled or before == "fit")
        self.memory.folders[above][name] = "ignored" if is_ignored else "unfit"
        if name == RULES:
            signature = signature_of(entry.stat(follow_symlinks=False))
            self.memory.watched[self._folder + b"/" + path] = signature if settled else _NEVER

    def _ignored(self, folders: list[bytes]) -> set[bytes]:
        """Which of these folders are ignored; git is asked where it is not known."""
        found = {path for path in folders if self._verdicts.get(path)}
        unknown = [path for path in folders if path not in self._verdicts]
        if unknown:
            own = self._rules.excluding
            # Git was told of this file when it scanned, and has to be told again.
            more = ("-c", f"core.excludesFile={own}") if os.path.isfile(own) else ()  # noqa: PTH113
            ask = (*more, "check-ignore", "--no-index", "-z", "--stdin")
            given = zero_ended(b"./" + path for path in unknown)
            told = self._git.output(*ask, given=given, fine=(0, 1))
            found.update(path.removeprefix(b"./") for path in told.split(b"\0") if path)
        return found
