"""What a shell command consists of, as far as permission rules need to know it.

Split so that no command goes unseen: where it is not plain what would run, that is said, and
nothing is guessed. It runs nothing and expands nothing.
"""

import re
from functools import lru_cache

from foldmark.values import Frozen

LONGEST = 20_000  # characters of a command that is looked into
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
    {"trap", "coproc", "flock", "script", "taskset", "chrt", "runuser", "pkexec", "fakeroot"}
    | {"sudo", "doas", "su", "env", "xargs", "nice", "ionice", "timeout", "stdbuf", "setsid"}
    | {"eval", "find", "parallel", "watch", "busybox", "strace", "unshare", "chroot", "ssh"}
    | {"sh", "bash", "dash", "zsh", "ksh"}
)
_UNCLEAR = re.compile(r"[$`*?\[{]")
_SETS = re.compile(r"[^\s]*[=\[$`*?]")  # of the first word: what sets a variable, or is expanded
_EXPANDED = re.compile(r"[$`{]")
_GIVEN = "$()"  # what a substituted command gives
_MOST_WORDS = 64


class Simple(Frozen):
    """One command of several: as it is written, and the other forms that it may be known by."""

    text: str
    forms: tuple[str, ...]  # what runs, without quotes, folders and what stands before it
    perhaps: tuple[str, ...]  # what it may run besides
    begins: tuple[str, ...]  # how these begin that a shell makes others of, by expansion
    clear: bool  # whether it is plain which program runs
    bare: bool  # whether it begins with that, and nothing is set before


class Compound(Frozen):
    """A command, taken apart."""

    commands: tuple[Simple, ...]
    plain: bool  # no substitution, file written, here-document, group, or open quote
    substitutes: bool  # some of it is the output of other commands
    within: tuple[str, ...]  # whatever could be a command inside quotes and substitutions


def compound(text: str) -> Compound:
    """The simple commands of a compound one; one that is too long is taken for unclear."""
    if len(text) > LONGEST:
        unknown = Simple(text=text, forms=(), perhaps=(), begins=(), clear=False, bare=False)
        return Compound(commands=(unknown,), plain=False, substitutes=False, within=())
    return _taken_apart(text)


@lru_cache(maxsize=256)
def _taken_apart(text: str) -> Compound:
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
        self._piece: list[str] = []
        self._fresh = True  # a word would begin here
        self._begun = False  # this piece goes on with a command in which others were substituted
        self._open: list[str] = []  # brackets
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
            return self._ending(at, ch)
        return self._take(at, at + 1)

    def _ending(self, at: int, ch: str) -> int:
        self.plain = self.plain and ch not in "()"
        if ch == ")":
            self._closed()
        else:
            self._end()
        if ch == "(":
            self._open.append(ch)
        return at + 1

    def _take(self, at: int, end: int) -> int:
        taken = self._text[at:end]
        self._piece.append(taken)
        self._fresh = taken in _BLANKS
        return end

    def _end(self) -> None:
        if piece := "".join(self._piece).strip():
            self.pieces.append(piece)
        self._piece, self._fresh, self._begun = [], True, False

    def _closed(self) -> None:
        self._end()
        self._begun = bool(self._open) and self._open.pop() != "("

    def _opened(self, sign: str) -> None:
        """Begin a command of its own; in the outer one, a sign stands for what it gives."""
        if not self._begun or "".join(self._piece).strip():
            self._piece.append(_GIVEN)
        self._end()
        self._open.append(sign)

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
            if text[at] == "`" and "`" in self._open[-1:]:
                self._closed()
            else:
                self._opened(text[at])
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
    runs = name in _RUNNERS or name.startswith("-")  # as in: exec -a name command
    forms = (text, bare, " ".join(words), " ".join((name, *words[1:])), " ".join(rest))
    perhaps = tuple(" ".join(words[at:]) for at in range(1, len(words))) if runs else ()
    expanded = ((form, _EXPANDED.search(form)) for form in (*forms, *perhaps))
    return Simple(
        text=text,
        forms=tuple(dict.fromkeys(filter(None, forms))),
        perhaps=perhaps,
        begins=tuple(form[: found.start()] for form, found in expanded if found),
        clear=not _UNCLEAR.search(words[0] if words else ""),
        bare=not _SETS.match(text),
    )
