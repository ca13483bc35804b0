"""Text for people: figures in words, and transcripts made harmless to print."""

import re

from foldmark.errors import FoldmarkError, NoSession, UnknownModel

# Sequences that steer a terminal: with parameters, with a text up to its end, and short ones.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x9d])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Within JSON these stand in strings only, where an escape means the same.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

_BASE_URL = re.compile(r"\bbase_url(=…)?")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def plain(text: str, *, most: int = 200) -> str:
    """One line of a text that no one here wrote, without anything that steers a terminal."""
    line = " ".join(harmless_line(text[: most * 4]).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def harmless_line(text: str) -> str:
    """The same, with its spaces as they are."""
    line = _ESCAPES.sub("", text).expandtabs(4)
    return "".join(ch if ch.isprintable() else " " for ch in line)


def harmless_text(text: str) -> str:
    """A text of lines without anything that steers a terminal but ends of lines and tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(harmless_line, line.split("\t"))) for line in lines)


def within(text: str, folder: str) -> str:
    """A text in which the paths inside a folder stand without it."""
    return text.replace(folder.rstrip("/") + "/", "") if folder.strip("/") else text


def escaped(json: str) -> str:
    """JSON with the characters that steer a terminal written as escapes."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


def percent(part: float, whole: float) -> str:
    """A share of a whole."""
    share = 100 * part / whole if whole else 0
    return "<1 %" if 0 < share < 1 else f"{share:.0f} %"


def number(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ago(seconds: float) -> str:
    """How long ago something was, in the one unit that matters."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return "just now"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min ago"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h ago"
    return f"{whole // _DAY:,} days ago"


def duration(seconds: float) -> str:
    """A time in the two units that matter."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{number(whole // _DAY, 'day')} {whole % _DAY // _HOUR} h"


_NAME_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def shown_name(name: str) -> str:
    """The name of a file as git writes it: in quotes and with escapes, where it has odd signs."""
    shown = "".join(map(_shown_sign, name))
    return name if shown == name else f'"{shown}"'


def _shown_sign(sign: str) -> str:
    if sign in _NAME_ESCAPES:
        return _NAME_ESCAPES[sign]
    if sign.isprintable():
        return sign
    return "".join(f"\\{byte:03o}" for byte in sign.encode("utf-8", "surrogateescape"))


def error_line(error: FoldmarkError) -> str:
    """What went wrong, as who types commands would say it."""
    if isinstance(error, UnknownModel):
        hint = f" Did you mean {', '.join(error.nearest)}?" if error.nearest else ""
        return (
            f"no limits are known for the model {error.model!r}.{hint} "
            "Say how many tokens its window has: --window N"
        )
    if isinstance(error, NoSession):
        return f"{error}" if error.nearest else f"{error}; foldmark sessions lists them"
    return _BASE_URL.sub(lambda found: "--base-url" + (" URL" if found[1] else ""), str(error))
