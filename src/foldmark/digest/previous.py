"""What an earlier summary told, read back so that the next digest can carry it on.

The lines of our own digest are parsed into the accounts they were written from. The text of a
model, or of anybody, is lines that were said before all else.
"""

import re
from collections.abc import Iterator

from foldmark.log.log import ordinal_of
from foldmark.model.values import Frozen

from .ledger import FileAccount, Noted, Run
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
BEFORE: Group = ("said", "before")  # where its lines belong
_FENCES = ("```", "~~~")
_ANSWERED, _OPEN, _FOLLOWED = "answered", "open", "open, then a newer one"
_LONGEST_SAID = 320  # characters of a line that somebody wrote with care
_SHORT = re.compile(r"\[(?:\d+ messages f|F)olded\.\]")
_FILE = re.compile(
    r"(?P<path>.+) — (?:read (?P<reads>[^;:()]+?))?(?:; )?"
    r"(?:changed(?: (?P<changes>\d+) times)?(?P<changed>))?"
    r" ?\((?P<name>h[0-9a-f]+)\)(?:: (?P<last>.*))?"
)
_RUN = re.compile(
    r"(?P<state>ok|failed(?: (?P<times>\d+) times)?(?P<then>, then ok)?) "
    r"\((?P<name>h[0-9a-f]+)\): (?P<command>.*?)(?: → (?P<told>.*))?"
)
_REQUEST = re.compile(
    rf"(?P<state>{_FOLLOWED}|{_OPEN}|{_ANSWERED}) \((?P<name>h[0-9a-f]+)\): (?P<text>.*)", re.DOTALL
)
_NOTED = re.compile(r"(?P<text>.*?)(?: \((?P<name>h[0-9a-f]+)\))?")


class OldRequest(Frozen):
    """A request of the user, as an earlier digest told it."""

    ordinal: int
    answered: bool
    text: str
    followed: bool = False  # by a newer one, before it was answered

    @property
    def is_open(self) -> bool:
        """Whether it is what there is to do."""
        return not self.answered and not self.followed

    @property
    def state(self) -> str:
        """How it stands, in words."""
        return _ANSWERED if self.answered else _FOLLOWED if self.followed else _OPEN


class Carried(Frozen):
    """What an earlier summary told."""

    requests: tuple[OldRequest, ...] = ()
    rules: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    decisions: tuple[Noted, ...] = ()
    files: tuple[FileAccount, ...] = ()
    runs: tuple[Run, ...] = ()
    passages: tuple[Passage, ...] = ()


def carried(previous: str) -> Carried:
    """What an earlier summary told; lines of no account of ours are passages."""
    found = _Found()
    for section, entry in _entries(previous):
        match section:
            case "Requests":
                found.request(entry)
            case "Standing instructions":
                found.rules.append(entry[0])
            case "Plan":
                found.plan.append(entry[0])
            case "Decisions and reasons":
                found.decision(entry)
            case "Files":
                found.file(entry)
            case "Commands and searches":
                found.run(entry)
            case "Also named":
                found.name(SAID, entry[0], 0)
            case _:
                found.free(entry)
    return Carried(
        requests=tuple(found.requests),
        rules=tuple(found.rules),
        plan=tuple(found.plan),
        decisions=tuple(found.decisions),
        files=tuple(found.files),
        runs=tuple(found.runs),
        passages=tuple(found.passages),
    )


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """The entries of each section: a line that begins with a dash, and those indented under it."""
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


class _Found:
    """Accounts as they are read."""

    def __init__(self) -> None:
        self.requests: list[OldRequest] = []
        self.rules: list[str] = []
        self.plan: list[str] = []
        self.decisions: list[Noted] = []
        self.files: list[FileAccount] = []
        self.runs: list[Run] = []
        self.passages: list[Passage] = []

    def request(self, entry: list[str]) -> None:
        told = _REQUEST.fullmatch("\n".join(entry))
        if told is None:
            self.free(entry)
            return
        ordinal = ordinal_of(told["name"]) or 0
        self.requests.append(
            OldRequest(
                ordinal=ordinal,
                answered=told["state"] == _ANSWERED,
                text=told["text"],
                followed=told["state"] == _FOLLOWED,
            )
        )

    def decision(self, entry: list[str]) -> None:
        if told := _NOTED.fullmatch(entry[0]):
            ordinal = ordinal_of(told["name"] or "") or 0
            self.decisions.append(Noted(text=told["text"], ordinal=ordinal))

    def file(self, entry: list[str]) -> None:
        told = _FILE.fullmatch(entry[0])
        if told is None:
            self.free(entry)
            return
        account = FileAccount(
            path=told["path"],
            reads=tuple((told["reads"] or "").split(", ")) if told["reads"] else (),
            changes=int(told["changes"] or 1) if told["changed"] is not None else 0,
            last=told["last"] or "",
            ordinal=ordinal_of(told["name"]) or 0,
            name=told["name"],
        )
        self.files.append(account)
        self._under(("file", account.path), account.ordinal, entry)

    def run(self, entry: list[str]) -> None:
        told = _RUN.fullmatch(entry[0])
        if told is None:
            self.free(entry)
            return
        failed = told["state"] != "ok"
        run = Run(
            command=told["command"],
            failures=int(told["times"] or 1) if failed else 0,
            failed=failed and not told["then"],
            told=told["told"] or "",
            ordinal=ordinal_of(told["name"]) or 0,
            name=told["name"],
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
        """Note names of which no line is known."""
        self._add("", tuple(dict.fromkeys(references(text))), group, ordinal)

    def free(self, entry: list[str]) -> None:
        """Note lines that are no account of ours; a handle may stand at their end."""
        for text in entry:
            told = _NOTED.fullmatch(text)
            if told and told["name"]:
                self._passages(SAID, told["text"], ordinal_of(told["name"]) or 0)
            elif text != EARLIER and not text.lstrip().startswith(_FENCES):
                self._passages(BEFORE, text, NOWHERE)

    def _passages(self, group: Group, text: str, ordinal: int) -> None:
        longest = _LONGEST_SAID if group == BEFORE else LONGEST_LINE
        for line in lines(text, longest):
            self._add(line, tuple(dict.fromkeys(references(line))), group, ordinal)

    def _add(self, text: str, names: tuple[str, ...], group: Group, ordinal: int) -> None:
        self.passages.append(
            Passage(text=text, names=names, group=group, source="previous", ordinal=ordinal, at=0)
        )
