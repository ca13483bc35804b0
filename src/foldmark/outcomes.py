"""How commands came out, and the one line of an output that tells it.

Told by what a call says of itself, and else by what programs commonly print at their end.
"""

import re

from .messages import Completed, Failed, ToolPart
from .passages import clean, ended, one_line
from .values import Frozen

LONGEST_TOLD = 140
_LAST = 400  # lines of an output in which the telling one is looked for
_STATUS = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code|status code)\W{1,3}(-?\d{1,3})\b",
    re.IGNORECASE,
)
# The first of these that any line is like tells most.
_FAILURES = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?:E\s+)?[\w.]*(?:Error|Exception|Panic|Failure)\b\s*:",
        r"^\s*(?:error(?:\[\w+\])?|fatal|panic|ERR!?|npm ERR!|✗|--- FAIL|FAIL(?:ED)?)\b[: ]",
        r"\berror(?: TS\d+| CS\d+|\[\w+\])?: ",
        r"(?i)\b(?:no such file|not found|permission denied|cannot|can't|unable to|undefined)\b",
        r"(?i)\b(?:error|failed|failure|assert\w*)\b",
    )
)
_RESULTS = re.compile(
    r"\b\d+ (?:passed|failed|tests?|errors?|warnings?|files? changed|problems?)\b"
    r"|\btest result: |\b(?:all|tests?|build|compil\w+) (?:checks |tests )?(?:passed|ok)\b"
    r"|^(?:ok|PASS|Finished|Done|Success\w*)\b",
    re.IGNORECASE,
)


# A line that says nothing: white space, rules, a tag alone.
_EMPTY = re.compile(r"[\W_]*(?:</?[\w-]+>[\W_]*|\w+:\s*)*$")


class Outcome(Frozen, gc=False):
    """Whether a call failed, and the line that tells it."""

    failed: bool
    told: str


def outcome(part: ToolPart, *, failed: bool = False) -> Outcome | None:
    """How a call came out; None while it runs."""
    if not isinstance(part.state, Completed | Failed):
        return None
    text = clean(ended(part)[-60_000:])
    failed = failed or isinstance(part.state, Failed) or status(text) not in (0, None)
    lines = [line.strip() for line in text.split("\n")[-_LAST:] if not _EMPTY.match(line)]
    told = _telling(lines) if failed else _result(lines)
    return Outcome(failed=failed, told=one_line(told, LONGEST_TOLD))


def status(text: str) -> int | None:
    """The exit status that an output tells at its beginning or end, if it does."""
    found = _STATUS.search(text[:200]) or _STATUS.search(text[-200:])
    return int(found.group(1)) if found else None


def _telling(lines: list[str]) -> str:
    for pattern in _FAILURES:
        for line in reversed(lines):
            if pattern.search(line):
                return line
    return lines[-1] if lines else ""


def _result(lines: list[str]) -> str:
    return next((line for line in reversed(lines[-20:]) if _RESULTS.search(line)), "")
