"""The ledger of a digest: files, commands, decisions and plans of the folded messages.

Each account is computed from messages and can be parsed from its own lines (`previous`), so that
the next digest continues it. `selection` decides which accounts are shown.
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
    is_command,
    lines,
    one_line,
    outcome_text,
    whole_sentences,
)

# --- the outcome of commands, and the line of an output that shows it ---

LONGEST_RESULT = 140
_MAX_LINES = 400  # lines at the end of an output that are searched for it
_MAX_CHARACTERS = 60_000  # characters of these lines
_STATUS = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code|status code)\W{1,3}(-?\d{1,3})\b",
    re.IGNORECASE,
)
# In order of precedence: the first pattern that matches any line selects it.
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
# The last lines of test runners, compilers and linters after a failure; not within a sentence.
_BAD_END = re.compile(
    r"(?i:^[-=\s✖✗✘❌>|:]*(?:(?:tests?|test (?:files|suites?)|suites?|found|summary)\b:?\s+)?"
    r"(?:\d+ [a-z ]+[,;|]\s*)*[1-9]\d* (?:tests? |of \d+ )?"
    r"(?:failed|failing|failures?|errors?)(?=\s*(?:[,;|.()=]|in\b|generated|found|\d|$)))"
    r"|^(?:test result: )?FAILED\b(?=[.\s]*(?:$|\(|\S*[/:.]\S|\d))"
    r"|^(?:--- )?FAIL(?:$|:?\s+\S*[/:.]\S)|^--- FAIL: "
    r"|^make(?:\[\d+\])?: \*\*\* |^(?:\W*)BUILD FAILED\b|^error: could not compile\b"
)
_GOOD_END = re.compile(r"^[=\s]*\d+ passed\b(?!.*\b[1-9]\d* (?:failed|errors?)\b)")
_END = 15  # lines that are searched for such an end
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_PARTS = re.compile(r"\|\|?|&&|;|\n")
_SEEKS = re.compile(r"\s*(?:git +grep|e?grep|fgrep|rg|ag|ack|find|fd|which|pgrep)\b")
# Commands that show other texts: a failure that is mentioned in a file is no failure.
_SHOWS = re.compile(
    r"\s*(?:git|gh|cat|bat|less|more|head|tail|sed|awk|nl|jq|echo|printf|diff|ls|curl)\b"
)
_NO_HITS = "no hits"
_NOTHING = re.compile(r"\W*(?:no|0) (?:output|matches|hits|files|results)\b.{0,20}", re.IGNORECASE)

# A line without content: white space, rulers, a lone tag.
_EMPTY = re.compile(r"[\W_]*(?:</?[A-Za-z][\w-]*>|[A-Za-z]\w*:)?[\W_]*$")


class CallOutcome(Frozen, gc=False):
    """Whether a call failed, and the line of its output that shows it."""

    failed: bool
    line: str


def outcome(part: ToolPart, *, failed: bool = False) -> CallOutcome | None:
    """The outcome of a call, or None while it runs."""
    if not isinstance(part.state, Completed | Failed):
        return None
    text = clean(outcome_text(part)[-_MAX_CHARACTERS:])
    lines = [line.strip() for line in text.split("\n")[-_MAX_LINES:] if not _EMPTY.match(line)]
    code = status(text)
    failed = failed or isinstance(part.state, Failed) or code not in (0, None)
    if failed and _has_no_hits(part, lines):
        return CallOutcome(failed=False, line=_NO_HITS)
    if not failed and _is_judged_by_its_end(part, code):
        failed = _ends_badly(lines)
    text = _failure_line(lines) if failed else _result_line(lines)
    return CallOutcome(failed=failed, line=one_line(text, LONGEST_RESULT))


def _steps(part: ToolPart) -> list[str]:
    """The commands that a call runs in sequence; quoted text is not split."""
    return [step for step in _PARTS.split(_QUOTED.sub("''", command_text(part))) if step.strip()]


def _has_no_hits(part: ToolPart, lines: list[str]) -> bool:
    """Whether a call was a search without hits."""
    steps = _steps(part)
    if not steps or not _SEEKS.match(steps[-1]):
        return False
    return all(_STATUS.search(line) or _NOTHING.fullmatch(line) for line in lines)


def _is_judged_by_its_end(part: ToolPart, code: int | None) -> bool:
    """Whether only the output can show if a command failed: its status is unknown or of a pipe."""
    if not is_command(part):
        return False
    metadata = part.state.metadata if isinstance(part.state, Completed) else None
    is_known = code is not None or any(key in (metadata or {}) for key in ("exit", "exit_code"))
    if is_known and len(_steps(part)) < 2:
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
    """The exit status at the start or the end of an output, or None."""
    match = _STATUS.search(text[:200]) or _STATUS.search(text[-200:])
    return int(match.group(1)) if match else None


def _failure_line(lines: list[str]) -> str:
    for pattern in _FAILURES:
        for line in reversed(lines):
            if pattern.search(line):
                return line
    return lines[-1] if lines else ""


def _result_line(lines: list[str]) -> str:
    return next((line for line in reversed(lines[-20:]) if _RESULTS.search(line)), "")


LONGEST_CHANGE, LONGEST_DECISION = 90, 320
_MAX_SPANS = 5
_MAX_DECISION_TEXT, _MIN_DECISION = 20_000, 20
_PLANS = re.compile(r"todo|plan", re.IGNORECASE)
_ITEM_KEYS = ("content", "step", "text", "title", "task", "description")
_DONE, _DOING = ("completed", "done", "complete"), ("in_progress", "in-progress", "doing", "active")
DECIDED = re.compile(
    r"\b(?:decided|decision|because|instead of|rather than|won't|will not|root cause|turns out"
    r"|the (?:real |actual )?(?:problem|issue|bug|cause|reason) (?:is|was)|did ?n[o']t work"
    r"|does ?n[o']t work|not possible|workaround|trade-?off|we (?:should|must|need to)"
    r"|important(?:ly)?:|note:)",
    re.IGNORECASE,
)


class FileAccount(Frozen):
    """The reads and changes of a file."""

    path: str
    reads: tuple[str, ...] = ()  # spans of lines, as text
    changes: int = 0
    last: str = ""  # the first line of the last change
    ordinal: int = 0
    name: str = ""  # the handle of the last call

    def line(self) -> str:
        """The account on one line."""
        reads = f"read {', '.join(self.reads)}" if self.reads else ""
        times = f" {self.changes} times" if self.changes > 1 else ""
        changes = f"changed{times}" if self.changes else ""
        summary = "; ".join(filter(None, (reads, changes)))
        last = f": {self.last}" if self.last else ""
        return f"{self.path} — {summary} ({self.name}){last}"


class Run(Frozen):
    """A command, how often it failed, and its last outcome."""

    command: str
    failures: int
    failed: bool
    result: str
    ordinal: int
    name: str

    def line(self) -> str:
        """The account on one line."""
        result = f" → {self.result}" if self.result else ""
        return f"{self.state} ({self.name}): {self.command}{result}"

    @property
    def state(self) -> str:
        """The outcome as text."""
        times = f" {self.failures} times" if self.failures > 1 else ""
        if self.failed:
            return f"failed{times}"
        return f"failed{times}, then ok" if self.failures else "ok"


class DecisionLine(Frozen):
    """A line of the assistant with a decision or a reason."""

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
    """The account of each file, in the order of their last use."""
    accounts = {account.path: account for account in before}
    for ordinal, part in calls:
        subject = about(part)
        result = outcome(part) if subject.files else None
        if result is None or (result.failed and (subject.access == "write" or is_command(part))):
            continue
        for file in subject.files:
            path = one_line(file, LONGEST_PATH)
            account = accounts.pop(path, FileAccount(path=path))
            accounts[path] = _updated_account(account, part, ordinal, subject.span)
    return accounts


def _updated_account(account: FileAccount, part: ToolPart, ordinal: int, span: Span) -> FileAccount:
    name = handle(ordinal)
    if about(part).access == "write":
        last = _changed_line(part) or account.last
        return replace(account, changes=account.changes + 1, last=last, ordinal=ordinal, name=name)
    text = "all" if span == Span() else f"{span.first}-{span.last or ''}"
    reads = tuple(each for each in account.reads if each != text)
    return replace(account, reads=(*reads, text)[-_MAX_SPANS:], ordinal=ordinal, name=name)


def _changed_line(part: ToolPart) -> str:
    """The first meaningful line that an edit inserted."""
    fields = part.state.input or {}
    keys = ("new_string", "newString", "new_str", "content", "patchText", "patch", "input")
    text = next((value for key in keys if isinstance(value := fields.get(key), str) and value), "")
    for line in lines(text[:4_000]):
        if len(line) > 8 and not line.startswith(("***", "@@", "---", "+++")):
            return one_line(line, LONGEST_CHANGE)
    return ""


# --- commands --------------------------------------------------------------------------------


def runs(
    log: Log, calls: Iterable[tuple[int, ToolPart]], before: Iterable[Run] = ()
) -> dict[str, Run]:
    """The commands, each once, in the order of their last run."""
    by_command = {run.command: run for run in before}
    for ordinal, part in calls:
        if about(part).files and not is_command(part):
            continue  # it is in the account of its file
        command = command_of(part)
        tool = log.calls.get(ordinal)
        result = outcome(part, failed=tool is not None and tool.failed)
        if result is None or (about(part).files and not result.failed):
            continue
        earlier = by_command.pop(command, None)
        by_command[command] = Run(
            command=command,
            failures=(earlier.failures if earlier else 0) + result.failed,
            failed=result.failed,
            result=result.line,
            ordinal=ordinal,
            name=handle(ordinal),
        )
    return by_command


# --- decisions and plans ---------------------------------------------------------------------


def decisions(entries: Iterable[Entry]) -> list[DecisionLine]:
    """The lines of the assistant with decisions and their reasons."""
    by_text: dict[str, DecisionLine] = {}
    for entry in entries:
        info = entry.message.info
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, TextPart) and isinstance(info, AssistantInfo) and not info.summary:
                for line in _decision_lines(part.text):
                    by_text[line] = DecisionLine(text=line, ordinal=entry.ordinal + offset)
    return list(by_text.values())


def _decision_lines(text: str) -> Iterator[str]:
    for line in clean(text[:_MAX_DECISION_TEXT]).split("\n"):
        bare = line.strip(" \t-*#>|")
        if len(bare) >= _MIN_DECISION and DECIDED.search(bare):
            yield _decision_text(bare)


def _decision_text(line: str) -> str:
    """The start of a line, or the part from its decision on if that comes late."""
    match = DECIDED.search(line)
    if match is None or match.end() < LONGEST_DECISION:
        return whole_sentences(line, LONGEST_DECISION)
    _, _, before = line[: match.start()].rpartition(". ")
    return f"… {whole_sentences(before + line[match.start() :], LONGEST_DECISION)}"


def plan_items(calls: Sequence[tuple[int, ToolPart]]) -> list[str] | None:
    """The items of the agent's newest to-do list, or None if it keeps none."""
    for _, part in reversed(calls):
        if _PLANS.search(part.tool):
            for value in (part.state.input or {}).values():
                if items := [item for each in _list(value) if (item := _item(each))]:
                    return items
    return None


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _item(value: object) -> str:
    fields = cast("Json", value) if isinstance(value, dict) else {}
    text = next((fields[key] for key in _ITEM_KEYS if isinstance(fields.get(key), str)), "")
    state = fields.get("status", fields.get("state", ""))
    mark = "x" if state in _DONE or fields.get("done") is True else "~" if state in _DOING else " "
    return f"[{mark}] {one_line(text, 160)}" if text else ""
