"""Text for people: counts, times, errors, and untrusted text that is safe to print."""

import re

from foldmark.errors import FoldmarkError, NoSession, UnknownModel

# Terminal control sequences: with parameters, with a text and its terminator, and short ones.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x9d])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# In JSON these occur only inside strings, where an escape is equivalent.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

_BASE_URL = re.compile(r"\bbase_url(=…)?")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def plain(text: str, *, limit: int = 200) -> str:
    """One line of untrusted text, at most `limit` characters, without control sequences."""
    line = " ".join(harmless_line(text[: limit * 4]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def harmless_line(text: str) -> str:
    """A line without control sequences, with its spaces unchanged."""
    line = _ESCAPES.sub("", text).expandtabs(4)
    return "".join(ch if ch.isprintable() else " " for ch in line)


def harmless_text(text: str) -> str:
    """Lines without control sequences; line ends and tabs stay."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(harmless_line, line.split("\t"))) for line in lines)


def strip_folder(text: str, folder: str) -> str:
    """The text with all paths inside a folder made relative to it."""
    return text.replace(folder.rstrip("/") + "/", "") if folder.strip("/") else text


def escape_json(json: str) -> str:
    """JSON with control characters written as escapes."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


def percent(part: float, whole: float) -> str:
    """A share as a percentage."""
    share = 100 * part / whole if whole else 0
    return "<1 %" if 0 < share < 1 else f"{share:.0f} %"


def number(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ago(seconds: float) -> str:
    """The time since an event, in one unit."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return "just now"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min ago"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h ago"
    return f"{whole // _DAY:,} days ago"


def duration(seconds: float) -> str:
    """A time span, in at most two units."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{number(whole // _DAY, 'day')} {whole % _DAY // _HOUR} h"


_NAME_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote_file_name(name: str) -> str:
    """A file name as git prints it: quoted and escaped if it has special characters."""
    text = "".join(map(_quote_character, name))
    return name if text == name else f'"{text}"'


def _quote_character(character: str) -> str:
    if character in _NAME_ESCAPES:
        return _NAME_ESCAPES[character]
    if character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def error_line(error: FoldmarkError) -> str:
    """The message of an error, in terms of command-line options."""
    if isinstance(error, UnknownModel):
        hint = f" Did you mean {', '.join(error.nearest)}?" if error.nearest else ""
        return (
            f"no limits are known for the model {error.model!r}.{hint} "
            "Set the size of its context window in tokens: --window N"
        )
    if isinstance(error, NoSession):
        return f"{error}" if error.nearest else f"{error}; list them with: foldmark sessions"
    text = str(error).replace(", or pass api_key=… in Python", "").replace(" in Python", "")
    return _BASE_URL.sub(lambda match: "--base-url" + (" URL" if match[1] else ""), text)
