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
from foldmark.model.messages import AssistantInfo, TextPart, ToolPart
from foldmark.model.values import Frozen, Json

from .outcomes import outcome
from .passages import (
    LONGEST_PATH,
    about,
    clean,
    command_of,
    is_command,
    lines,
    one_line,
    whole_sentences,
)

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
