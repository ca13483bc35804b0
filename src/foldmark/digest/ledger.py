"""What was asked, changed, run, decided and planned: a ledger computed from folded messages.

Each account is read from the messages and can be read back from its own lines, so that what one
digest told is carried on by the next. What is worth its place is decided elsewhere (`coverage`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from foldmark.log.log import Entry, Log, handle
from foldmark.log.tool_targets import Span
from foldmark.model.messages import AssistantInfo, Completed, Failed, TextPart, ToolPart
from foldmark.model.values import Frozen, Json

from .passages import (
    LONGEST_PATH,
    about,
    clean,
    command_of,
    command_text,
    ended,
    is_command,
    lines,
    one_line,
    whole_sentences,
)

# --- How commands came out, and the one line of an output that tells it ---

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


LONGEST_CHANGE, LONGEST_DECISION = 90, 320
_MOST_SPANS = 5
_MOST_LOOKED_AT, _SHORTEST_DECISION = 20_000, 20
_PLANS = re.compile(r"todo|plan", re.IGNORECASE)
_ITEM_KEYS = ("content", "step", "text", "title", "task", "description")
_DONE, _BEGUN = ("completed", "done", "complete"), ("in_progress", "in-progress", "doing", "active")
DECIDED = re.compile(
    r"\b(?:decided|decision|because|instead of|rather than|won't|will not|root cause|turns out"
    r"|the (?:real |actual )?(?:problem|issue|bug|cause|reason) (?:is|was)|did ?n[o']t work"
    r"|does ?n[o']t work|not possible|workaround|trade-?off|we (?:should|must|need to)"
    r"|important(?:ly)?:|note:)",
    re.IGNORECASE,
)


class FileAccount(Frozen):
    """What was done to a file."""

    path: str
    reads: tuple[str, ...] = ()  # spans of lines, as they are written
    changes: int = 0
    last: str = ""  # the first line of the last change
    ordinal: int = 0
    name: str = ""  # the handle of the last call

    def line(self) -> str:
        """The account on one line."""
        read = f"read {', '.join(self.reads)}" if self.reads else ""
        times = f" {self.changes} times" if self.changes > 1 else ""
        changed = f"changed{times}" if self.changes else ""
        told = "; ".join(filter(None, (read, changed)))
        last = f": {self.last}" if self.last else ""
        return f"{self.path} — {told} ({self.name}){last}"


class Run(Frozen):
    """A command, how often it failed, and how it came out last."""

    command: str
    failures: int
    failed: bool
    told: str
    ordinal: int
    name: str

    def line(self) -> str:
        """The account on one line."""
        told = f" → {self.told}" if self.told else ""
        return f"{self.state} ({self.name}): {self.command}{told}"

    @property
    def state(self) -> str:
        """How it came out, in words."""
        times = f" {self.failures} times" if self.failures > 1 else ""
        if self.failed:
            return f"failed{times}"
        return f"failed{times}, then ok" if self.failures else "ok"


class Noted(Frozen):
    """A line of the assistant that tells a decision or a reason."""

    text: str
    ordinal: int


def tool_parts(entries: Iterable[Entry]) -> Iterator[tuple[int, ToolPart]]:
    """The calls of these messages, with their ordinals."""
    for entry in entries:
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, ToolPart):
                yield entry.ordinal + offset, part


# --- files -----------------------------------------------------------------------------------


def file_accounts(
    calls: Iterable[tuple[int, ToolPart]], before: Iterable[FileAccount] = ()
) -> dict[str, FileAccount]:
    """What was done to each file, in the order in which they were last touched."""
    found = {account.path: account for account in before}
    for ordinal, part in calls:
        held = about(part)
        ended = outcome(part) if held.files else None
        if ended is None or (ended.failed and (held.act == "write" or is_command(part))):
            continue
        for file in held.files:
            path = one_line(file, LONGEST_PATH)
            account = found.pop(path, FileAccount(path=path))
            found[path] = _touched(account, part, ordinal, held.span)
    return found


def _touched(account: FileAccount, part: ToolPart, ordinal: int, span: Span) -> FileAccount:
    name = handle(ordinal)
    if about(part).act == "write":
        last = _changed_line(part) or account.last
        return replace(account, changes=account.changes + 1, last=last, ordinal=ordinal, name=name)
    text = "all" if span == Span() else f"{span.first}-{span.last or ''}"
    reads = tuple(held for held in account.reads if held != text)
    return replace(account, reads=(*reads, text)[-_MOST_SPANS:], ordinal=ordinal, name=name)


def _changed_line(part: ToolPart) -> str:
    """The first line that an edit put in, if it says something."""
    given = part.state.input or {}
    keys = ("new_string", "newString", "new_str", "content", "patchText", "patch", "input")
    text = next((held for key in keys if isinstance(held := given.get(key), str) and held), "")
    for line in lines(text[:4_000]):
        if len(line) > 8 and not line.startswith(("***", "@@", "---", "+++")):
            return one_line(line, LONGEST_CHANGE)
    return ""


# --- commands --------------------------------------------------------------------------------


def runs(
    log: Log, calls: Iterable[tuple[int, ToolPart]], before: Iterable[Run] = ()
) -> dict[str, Run]:
    """The commands, each once, in the order in which they last ran."""
    found = {run.command: run for run in before}
    for ordinal, part in calls:
        if about(part).files and not is_command(part):
            continue  # it has its account as a file
        command = command_of(part)
        tool = log.calls.get(ordinal)
        ended = outcome(part, failed=tool is not None and tool.failed)
        if ended is None or (about(part).files and not ended.failed):
            continue
        earlier = found.pop(command, None)
        found[command] = Run(
            command=command,
            failures=(earlier.failures if earlier else 0) + ended.failed,
            failed=ended.failed,
            told=ended.told,
            ordinal=ordinal,
            name=handle(ordinal),
        )
    return found


# --- decisions and plans ---------------------------------------------------------------------


def decisions(entries: Iterable[Entry]) -> list[Noted]:
    """The lines of the assistant's texts that tell what was decided, and why."""
    found: dict[str, Noted] = {}
    for entry in entries:
        info = entry.message.info
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, TextPart) and isinstance(info, AssistantInfo) and not info.summary:
                for told in _decided(part.text):
                    found[told] = Noted(text=told, ordinal=entry.ordinal + offset)
    return list(found.values())


def _decided(text: str) -> Iterator[str]:
    for line in clean(text[:_MOST_LOOKED_AT]).split("\n"):
        bare = line.strip(" \t-*#>|")
        if len(bare) >= _SHORTEST_DECISION and DECIDED.search(bare):
            yield _from_its_reason(bare)


def _from_its_reason(line: str) -> str:
    """A line, or the end of one that tells late what was decided."""
    found = DECIDED.search(line)
    if found is None or found.end() < LONGEST_DECISION:
        return whole_sentences(line, LONGEST_DECISION)
    _, _, before = line[: found.start()].rpartition(". ")
    return f"… {whole_sentences(before + line[found.start() :], LONGEST_DECISION)}"


def plan_items(calls: Sequence[tuple[int, ToolPart]]) -> list[str] | None:
    """The newest state of the agent's list of things to do; None where it keeps none."""
    for _, part in reversed(calls):
        if _PLANS.search(part.tool):
            for held in (part.state.input or {}).values():
                if found := [item for each in _list(held) if (item := _item(each))]:
                    return found
    return None


def _list(held: object) -> list[object]:
    return cast("list[object]", held) if isinstance(held, list) else []


def _item(held: object) -> str:
    given = cast("Json", held) if isinstance(held, dict) else {}
    text = next((given[key] for key in _ITEM_KEYS if isinstance(given.get(key), str)), "")
    state = given.get("status", given.get("state", ""))
    mark = "x" if state in _DONE or given.get("done") is True else "~" if state in _BEGUN else " "
    return f"[{mark}] {one_line(text, 160)}" if text else ""
