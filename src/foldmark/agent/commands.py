"""What a shell command consists of, as far as permission rules need to know it.

Split so that no command goes unseen: where it is not plain what would run, that is said, and
nothing is guessed. It runs nothing and expands nothing.
"""

import re
from functools import lru_cache

from foldmark.values import Frozen

_ENDS = ";&|\n()"
_BLANKS = (" ", "\t")
# Redirections that write to no file: to another descriptor, and to nowhere.
_HARMLESS = re.compile(r">(?:&\d|>? ?/dev/null)(?=[\s;&|)]|$)")
_LOOSE = re.compile(r"[;&|\n(){}`'\"]")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_LEADING = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{"}
    | {"time", "exec", "command", "builtin", "nohup"}
)
# Commands that run another, which stands somewhere in their arguments.
_RUNNERS = frozenset(
    {"sudo", "doas", "su", "env", "xargs", "nice", "ionice", "timeout", "stdbuf", "setsid"}
    | {"eval", "find", "parallel", "watch", "busybox", "strace", "unshare", "chroot", "ssh"}
    | {"sh", "bash", "dash", "zsh", "ksh"}
)
_UNCLEAR = re.compile(r"[$`*?\[]")
_SETS = re.compile(r"[^\s]*[=\[$`*?]")  # of the first word: what sets a variable, or is expanded
_MOST_WORDS = 64


class Simple(Frozen):
    """One command of several: as it is written, and the other forms that it may be known by."""

    text: str
    forms: tuple[str, ...]  # what runs, without quotes, folders and what stands before it
    perhaps: tuple[str, ...]  # what it may run besides
    clear: bool  # whether it is plain which program runs
    bare: bool  # whether it begins with that, and nothing is set before


class Compound(Frozen):
    """A command, taken apart."""

    commands: tuple[Simple, ...]
    plain: bool  # no substitution, file written, here-document, group, or open quote
    substitutes: bool  # some of it is the output of other commands
    within: tuple[str, ...]  # whatever could be a command inside quotes and substitutions


@lru_cache(maxsize=256)
def compound(text: str) -> Compound:
    """The simple commands of a compound one."""
    scan = _Scan(text)
    loose = tuple(filter(None, (piece.strip() for piece in _LOOSE.split(text))))
    return Compound(
        commands=tuple(_simple(piece) for piece in scan.pieces) or (_simple(""),),
        plain=scan.plain,
        substitutes=scan.substitutes,
        within=tuple(dict.fromkeys(form for piece in loose for form in _simple(piece).forms)),
    )


class _Scan:
    """One pass over a command, in which quotes count as for a shell."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._piece = ""
        self._fresh = True  # a word would begin here
        self.pieces: list[str] = []
        self.plain = all(ch.isprintable() or ch in "\n\t" for ch in text)
        self.substitutes = False
        at = 0
        while at < len(text):
            at = self._next(at)
        self._end()

    def _next(self, at: int) -> int:
        """Take what begins here, and where it ends."""
        ch = self._text[at]
        if ch == "\\":
            return self._escaped(at)
        if ch in "'\"":
            end = self._closing(at + 1) if ch == '"' else self._text.find("'", at + 1)
            return self._quoted(at, end)
        if ch == "#" and self._fresh:
            end = self._text.find("\n", at)
            return end if end >= 0 else len(self._text)
        if ch in "$`<>" or self._text.startswith("&>", at):
            return self._special(at)
        if ch in _ENDS:
            self.plain = self.plain and ch not in "()"
            self._end()
            return at + 1
        return self._take(at, at + 1)

    def _take(self, at: int, end: int) -> int:
        self._piece += self._text[at:end]
        self._fresh = self._text[at:end] in _BLANKS
        return end

    def _end(self) -> None:
        if self._piece.strip():
            self.pieces.append(self._piece.strip())
        self._piece, self._fresh = "", True

    def _escaped(self, at: int) -> int:
        if self._text[at + 1 : at + 2] == "\n":  # the line goes on, and the shell sees neither
            return at + 2
        return self._take(at, at + 2)

    def _closing(self, at: int) -> int:
        """Where a double quote ends; what is substituted in it is substituted."""
        while at < len(self._text) and self._text[at] != '"':
            if self._text[at] == "\\":
                at += 1
            elif self._text[at] == "`" or self._text.startswith("$(", at):
                self._substituted()
            at += 1
        return at if at < len(self._text) else -1

    def _quoted(self, at: int, end: int) -> int:
        if end < 0:
            self.plain = False
            end = len(self._text)
        return self._take(at, end + 1)

    def _substituted(self) -> None:
        self.substitutes, self.plain = True, False

    def _special(self, at: int) -> int:
        text = self._text
        if text[at] == "`" or text.startswith(("$(", "<(", ">("), at):
            self._substituted()
            self._end()  # what follows is a command of its own
            return at + (1 if text[at] == "`" else 2)
        if found := _HARMLESS.match(text, at):
            return self._take(at, found.end())
        if text[at] in ">&" or text.startswith(("<<", "<>", "$'", '$"', "${"), at):
            self.plain = False
        return self._take(at, at + (2 if text.startswith(("&>", ">&", ">|", "<&"), at) else 1))


def _simple(text: str) -> Simple:
    bare = re.sub(r"['\"\\]", "", text)
    words = bare.split()[:_MOST_WORDS]
    while words and (words[0] in _LEADING or _ASSIGNED.match(words[0])):
        words = words[1:]
    name = words[0].rpartition("/")[2] if words else ""
    rest = words
    while rest and (rest[0].rpartition("/")[2] in _RUNNERS or rest[0][0] == "-"):
        rest = rest[1:]
    runs = name in _RUNNERS
    forms = (text, bare, " ".join(words), " ".join((name, *words[1:])), " ".join(rest))
    perhaps = (" ".join(words[at:]) for at in range(1, len(words))) if runs else ()
    return Simple(
        text=text,
        forms=tuple(dict.fromkeys(filter(None, forms))),
        perhaps=tuple(perhaps),
        clear=not _UNCLEAR.search(words[0] if words else ""),
        bare=not _SETS.match(text),
    )
