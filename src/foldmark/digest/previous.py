"""Parses an earlier summary, so that the next digest can continue it.

The lines of a digest become the accounts from which they were written. Any other text, such as a
model's summary, becomes passages that are older than all messages.
"""

import re
from collections.abc import Iterator

from foldmark.log.log import ordinal_of
from foldmark.model.values import Frozen

from .ledger import DecisionLine, FileAccount, Run
from .passages import LONGEST_LINE, NOWHERE, Group, Passage, lines
from .references import references

REQUESTS, PLAN, DECISIONS, FILES = "Requests", "Plan", "Decisions and reasons", "Files"
RULES, RUNS, NOTES, NAMES = (
    "Standing instructions",
    "Commands and searches",
    "Notes",
    "Also named",
)
SECTIONS = (REQUESTS, RULES, PLAN, DECISIONS, FILES, RUNS, NOTES, NAMES)
BEGINNING = "[Digest of "
ALSO = "also: "
EARLIER = "An earlier summary told:"
SAID: Group = ("said", "said")
BEFORE: Group = ("said", "before")  # for lines of an earlier summary
_FENCES = ("```", "~~~")
_ANSWERED, _OPEN, _FOLLOWED = "answered", "open", "open, then a newer one"
_MAX_SUMMARY_LINE = 320  # characters of a line in a model's summary
_SHORT = re.compile(r"\[(?:\d+ messages f|F)olded\.\]")
_FILE = re.compile(
    r"(?P<path>.+) — (?:read (?P<reads>[^;:()]+?))?(?:; )?"
    r"(?:changed(?: (?P<changes>\d+) times)?(?P<changed>))?"
    r" ?\((?P<name>h[0-9a-f]+)\)(?:: (?P<last>.*))?"
)
_RUN = re.compile(
    r"(?P<state>ok|failed(?: (?P<times>\d+) times)?(?P<then>, then ok)?) "
    r"\((?P<name>h[0-9a-f]+)\): (?P<command>.*?)(?: → (?P<result>.*))?"
)
_REQUEST = re.compile(
    rf"(?P<state>{_FOLLOWED}|{_OPEN}|{_ANSWERED}) \((?P<name>h[0-9a-f]+)\): (?P<text>.*)", re.DOTALL
)
_NOTED = re.compile(r"(?P<text>.*?)(?: \((?P<name>h[0-9a-f]+)\))?")


class OldRequest(Frozen):
    """A request of the user, as an earlier digest recorded it."""

    ordinal: int
    answered: bool
    text: str
    followed: bool = False  # by a newer one, before it was answered

    @property
    def is_open(self) -> bool:
        """Whether it is the request being worked on."""
        return not self.answered and not self.followed

    @property
    def state(self) -> str:
        """The state as text."""
        return _ANSWERED if self.answered else _FOLLOWED if self.followed else _OPEN


class OldSummary(Frozen):
    """The content of an earlier summary."""

    requests: tuple[OldRequest, ...] = ()
    rules: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    decisions: tuple[DecisionLine, ...] = ()
    files: tuple[FileAccount, ...] = ()
    runs: tuple[Run, ...] = ()
    passages: tuple[Passage, ...] = ()


def read_summary(previous: str) -> OldSummary:
    """Parse an earlier summary; lines that are not accounts of a digest become passages."""
    reader = _SummaryReader()
    for section, entry in _entries(previous):
        match section:
            case "Requests":
                reader.request(entry)
            case "Standing instructions":
                reader.rules.append(entry[0])
            case "Plan":
                reader.plan.append(entry[0])
            case "Decisions and reasons":
                reader.decision(entry)
            case "Files":
                reader.file(entry)
            case "Commands and searches":
                reader.run(entry)
            case "Also named":
                reader.name(SAID, entry[0], 0)
            case _:
                reader.free(entry)
    return OldSummary(
        requests=tuple(reader.requests),
        rules=tuple(reader.rules),
        plan=tuple(reader.plan),
        decisions=tuple(reader.decisions),
        files=tuple(reader.files),
        runs=tuple(reader.runs),
        passages=tuple(reader.passages),
    )


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """The entries of each section: a line with a dash and the indented lines below it."""
    section, entry = "", list[str]()
    for line in text.split("\n"):
        if line.startswith("  ") and entry and section:
            entry.append(line[2:])
            continue
        if entry:
            yield section, entry
            entry = []
        if line.startswith("## ") and line[3:] in SECTIONS:
            section = line[3:]
        elif line.strip() and not (line.startswith(BEGINNING) or _SHORT.fullmatch(line)):
            section = section if line.startswith("- ") else ""
            entry = [line.removeprefix("- ") if section else line]
    if entry:
        yield section, entry


class _SummaryReader:
    """Collects the accounts of a summary."""

    def __init__(self) -> None:
        self.requests: list[OldRequest] = []
        self.rules: list[str] = []
        self.plan: list[str] = []
        self.decisions: list[DecisionLine] = []
        self.files: list[FileAccount] = []
        self.runs: list[Run] = []
        self.passages: list[Passage] = []

    def request(self, entry: list[str]) -> None:
        match = _REQUEST.fullmatch("\n".join(entry))
        if match is None:
            self.free(entry)
            return
        ordinal = ordinal_of(match["name"]) or 0
        self.requests.append(
            OldRequest(
                ordinal=ordinal,
                answered=match["state"] == _ANSWERED,
                text=match["text"],
                followed=match["state"] == _FOLLOWED,
            )
        )

    def decision(self, entry: list[str]) -> None:
        if match := _NOTED.fullmatch(entry[0]):
            ordinal = ordinal_of(match["name"] or "") or 0
            self.decisions.append(DecisionLine(text=match["text"], ordinal=ordinal))

    def file(self, entry: list[str]) -> None:
        match = _FILE.fullmatch(entry[0])
        if match is None:
            self.free(entry)
            return
        account = FileAccount(
            path=match["path"],
            reads=tuple((match["reads"] or "").split(", ")) if match["reads"] else (),
            changes=int(match["changes"] or 1) if match["changed"] is not None else 0,
            last=match["last"] or "",
            ordinal=ordinal_of(match["name"]) or 0,
            name=match["name"],
        )
        self.files.append(account)
        self._under(("file", account.path), account.ordinal, entry)

    def run(self, entry: list[str]) -> None:
        match = _RUN.fullmatch(entry[0])
        if match is None:
            self.free(entry)
            return
        failed = match["state"] != "ok"
        run = Run(
            command=match["command"],
            failures=int(match["times"] or 1) if failed else 0,
            failed=failed and not match["then"],
            result=match["result"] or "",
            ordinal=ordinal_of(match["name"]) or 0,
            name=match["name"],
        )
        self.runs.append(run)
        self._under(("run", run.command), run.ordinal, entry)

    def _under(self, group: Group, ordinal: int, entry: list[str]) -> None:
        for line in entry[1:]:
            if line.startswith(ALSO):
                self.name(group, line, ordinal)
            else:
                self._passages(group, line, ordinal)

    def name(self, group: Group, text: str, ordinal: int) -> None:
        """Add names without a line."""
        self._add("", tuple(dict.fromkeys(references(text))), group, ordinal)

    def free(self, entry: list[str]) -> None:
        """Add lines that are not accounts; they may end with a handle."""
        for text in entry:
            match = _NOTED.fullmatch(text)
            if match and match["name"]:
                self._passages(SAID, match["text"], ordinal_of(match["name"]) or 0)
            elif text != EARLIER and not text.lstrip().startswith(_FENCES):
                self._passages(BEFORE, text, NOWHERE)

    def _passages(self, group: Group, text: str, ordinal: int) -> None:
        longest = _MAX_SUMMARY_LINE if group == BEFORE else LONGEST_LINE
        for line in lines(text, longest):
            self._add(line, tuple(dict.fromkeys(references(line))), group, ordinal)

    def _add(self, text: str, names: tuple[str, ...], group: Group, ordinal: int) -> None:
        self.passages.append(
            Passage(text=text, names=names, group=group, source="previous", ordinal=ordinal, at=0)
        )
