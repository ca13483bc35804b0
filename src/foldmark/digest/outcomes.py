"""How commands came out, and the one line of an output that tells it.

Told by what a call says of itself, and else by what programs commonly print at their end. A search
that found nothing came out well, whatever its status.
"""

import re

from foldmark.model.messages import Completed, Failed, ToolPart
from foldmark.model.values import Frozen

from .passages import clean, command_text, ended, is_command, one_line

LONGEST_TOLD = 140
_LAST = 400  # lines of an output in which the telling one is looked for
_MOST = 60_000  # characters of them
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
# What the programs that check others print last, where something is wrong; not within a sentence.
_BAD_END = re.compile(
    r"(?i:^[-=\s✖✗✘❌>|:]*(?:(?:tests?|test (?:files|suites?)|suites?|found|summary)\b:?\s+)?"
    r"(?:\d+ [a-z ]+[,;|]\s*)*[1-9]\d* (?:tests? |of \d+ )?"
    r"(?:failed|failing|failures?|errors?)(?=\s*(?:[,;|.()=]|in\b|generated|found|\d|$)))"
    r"|^(?:test result: )?FAILED\b(?=[.\s]*(?:$|\(|\S*[/:.]\S|\d))"
    r"|^(?:--- )?FAIL(?:$|:?\s+\S*[/:.]\S)|^--- FAIL: "
    r"|^make(?:\[\d+\])?: \*\*\* |^(?:\W*)BUILD FAILED\b|^error: could not compile\b"
)
_GOOD_END = re.compile(r"^[=\s]*\d+ passed\b(?!.*\b[1-9]\d* (?:failed|errors?)\b)")
_END = 15  # lines in which such an end is looked for
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_PARTS = re.compile(r"\|\|?|&&|;|\n")
_SEEKS = re.compile(r"\s*(?:git +grep|e?grep|fgrep|rg|ag|ack|find|fd|which|pgrep)\b")
# What shows the words of others: that a file tells of failures is no failure.
_SHOWS = re.compile(
    r"\s*(?:git|gh|cat|bat|less|more|head|tail|sed|awk|nl|jq|echo|printf|diff|ls|curl)\b"
)
_NO_HITS = "no hits"
_NOTHING = re.compile(r"\W*(?:no|0) (?:output|matches|hits|files|results)\b.{0,20}", re.IGNORECASE)

# A line that says nothing: white space, rules, a tag alone.
_EMPTY = re.compile(r"[\W_]*(?:</?[A-Za-z][\w-]*>|[A-Za-z]\w*:)?[\W_]*$")


class Outcome(Frozen, gc=False):
    """Whether a call failed, and the line that tells it."""

    failed: bool
    told: str


def outcome(part: ToolPart, *, failed: bool = False) -> Outcome | None:
    """How a call came out; None while it runs."""
    if not isinstance(part.state, Completed | Failed):
        return None
    text = clean(ended(part)[-_MOST:])
    lines = [line.strip() for line in text.split("\n")[-_LAST:] if not _EMPTY.match(line)]
    code = status(text)
    failed = failed or isinstance(part.state, Failed) or code not in (0, None)
    if failed and _found_nothing(part, lines):
        return Outcome(failed=False, told=_NO_HITS)
    if not failed and _is_judged_by_its_end(part, code):
        failed = _ends_badly(lines)
    told = _telling(lines) if failed else _result(lines)
    return Outcome(failed=failed, told=one_line(told, LONGEST_TOLD))


def _steps(part: ToolPart) -> list[str]:
    """The commands that a call runs one after the other; what is quoted is none."""
    return [step for step in _PARTS.split(_QUOTED.sub("''", command_text(part))) if step.strip()]


def _found_nothing(part: ToolPart, lines: list[str]) -> bool:
    """Whether a call was a search that gave nothing but, perhaps, its status."""
    steps = _steps(part)
    if not steps or not _SEEKS.match(steps[-1]):
        return False
    return all(_STATUS.search(line) or _NOTHING.fullmatch(line) for line in lines)


def _is_judged_by_its_end(part: ToolPart, code: int | None) -> bool:
    """Whether a command ran something, and its own status is not known: a pipe hides it, too."""
    if not is_command(part):
        return False
    told = part.state.metadata if isinstance(part.state, Completed) else None
    known = code is not None or any(key in (told or {}) for key in ("exit", "exit_code"))
    if known and len(_steps(part)) < 2:
        return False
    return not all(_SEEKS.match(step) or _SHOWS.match(step) for step in _steps(part))


def _ends_badly(lines: list[str]) -> bool:
    for line in reversed(lines[-_END:]):
        if _BAD_END.search(line):
            return True
        if _GOOD_END.search(line):
            return False
    return False


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
