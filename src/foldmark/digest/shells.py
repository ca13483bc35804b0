"""What a shell command reads or writes, where that is plain to see: one file, one simple command.

Agents without tools for files read and write them so. What is not plain is no guess of ours: it
stays a command.
"""

import re
from functools import lru_cache

from foldmark.log.tool_targets import Span, Target

_FILE = r"['\"]?(?P<file>[^\s|;&<>'\"*?$`(){}]+)['\"]?"
_LINES = r"sed +-n +['\"]?(?P<{0}>\d+),(?P<{1}>\d+)p['\"]?"
_CUT = rf"(?: *\| *(?:{_LINES.format('a', 'b')}|(?:head|tail|cat|nl)(?: +-\w+)*(?: +\d+)?))*"
_READ = re.compile(
    rf"(?:{_LINES.format('first', 'last')}|(?:cat|nl|bat|less|head|tail)(?: +-\w+)*(?: +\d+(?= ))?)"
    rf" +{_FILE}(?: +2>\S+)?{_CUT} *"
)
_WRITE = re.compile(
    rf"(?:cat|tee)(?: +-a)? *(?:>>?)? *{_FILE} *<<"
    rf"|(?:cat|tee) *<<-? *['\"]?\w+['\"]? *>>? *{_FILE.replace('file', 'other')} *(?:\n|$)"
)
_IN_PLACE = re.compile(rf"sed +-i\S*(?: +-e)? +(?:'[^']*'|\"[^\"]*\") +{_FILE} *")
_FOLDER_FIRST = re.compile(r"^cd [^\s;&|]+ *(?:&&|;) *")
_LONGEST = 400  # characters of a command that can be plain


def without_folder(command: str) -> str:
    """A command without the folder it runs in, which is the same in most of them."""
    return _FOLDER_FIRST.sub("", command.strip())


@lru_cache(maxsize=4096)
def shell_target(command: str) -> Target | None:
    """The file that a command reads or writes; None where that is not plain."""
    bare = without_folder(command)
    if found := _WRITE.match(bare):
        return _target("write", found["file"] or found["other"])
    if len(bare) > _LONGEST:
        return None
    if found := _IN_PLACE.fullmatch(bare):
        return _target("write", found["file"])
    if not (found := _READ.fullmatch(bare)):
        return None
    first, last = found["first"] or found["a"], found["last"] or found["b"]
    span = Span(first=int(first), last=int(last)) if first else Span()
    return _target("read", found["file"], span)


def _target(act: str, file: str, span: Span = Span()) -> Target:  # noqa: B008 - it is frozen
    return Target(act="write" if act == "write" else "read", files=(file,), about=file, span=span)
