"""The digest: a summary of folded history that is made without a model.

A ledger of what was asked, planned, decided, changed and run, and under it the lines of the
history that cover most of what is likely to be referred to again (`coverage`). The same messages
always give the same text, and it takes no more than its room. What is quoted is data: it is listed
or indented, so that nothing in it can pass for a heading.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from .asked import asked, request_lines, rule_lines
from .carried import (
    ALSO,
    BEGINNING,
    DECISIONS,
    FILES,
    NAMES,
    NOTES,
    PLAN,
    REQUESTS,
    RULES,
    RUNS,
    Carried,
    carried,
)
from .coverage import Candidate, Covered, Mention, chosen, explains, weight
from .ledger import decisions, file_accounts, plan_items, runs, tool_parts
from .log import Entry, Log, handle
from .masking import masked_entry
from .messages import ToolPart
from .passages import Group, Passage, clean, passages
from .prose import prose
from .references import references
from .secrets import masked
from .tokens import Counter
from .values import Frozen

SHORTEST = "[Folded.]"
_LEAST_ROOM = 60  # tokens below which there is no room for sections
_REQUESTS_SHARE, _PLAN_SHARE = 4, 10  # of the room, one in so many
_ENOUGH = 0.8  # of the room, that is filled
# What entries are worth whatever they name, against about 0.1 for a name that may come again.
_CHANGED, _READ, _FAILING, _MENDED, _RAN, _DECIDED = 0.5, 0.05, 0.5, 0.25, 0.05, 0.25
_SAID_BEFORE = 0.05
_OLD_AGE = 40_000  # characters that what was folded before lies back, at least
_ROUNDS, _SLACK, _PIECE = 8, 50, 1_500
_MOST_NAMES = 4_000


class Slot(Frozen, gc=False):
    """Where a candidate would stand."""

    section: str
    ordinal: int
    is_name: bool = False


def digest(
    log: Log,
    places: Sequence[int],
    room: int,
    *,
    shown: Iterable[str] = (),
    previous: str = "",
    mask: bool = True,
) -> str:
    """A summary of the messages at these places, within so many tokens.

    `shown` is what the view shows beside it, which it does not repeat; `previous` is the summary
    that it replaces, and carries on.
    """
    first = (
        f"{BEGINNING}{len(places)} messages; recall a handle, such as h1f, for the whole of it.]"
    )
    if room < _LEAST_ROOM:
        short = f"[{len(places)} messages folded.]"
        return short if log.count(short) <= room else SHORTEST
    hide: Callable[[str], str] = masked if mask else str
    held = [log.entries[place] for place in places if place in log.entries]
    entries = [masked_entry(entry) for entry in held] if mask else held
    beside = [clean(text) for text in shown]
    before = carried(hide(previous))
    calls = list(tool_parts(entries))
    requests = asked(log, places, before.requests, hide)
    items = plan_items(calls)
    plan = _within(items if items is not None else before.plan, room // _PLAN_SHARE, log.count)

    def top(share: int) -> str:
        told = request_lines(requests, room // share, log.count, "\n".join(beside))
        near = "\n".join((*told, *beside))
        rules = rule_lines(log, places, before.rules, hide, near)
        rules = _within(reversed(rules), room // _PLAN_SHARE, log.count)[::-1]
        lists = [(RULES, rules), (PLAN, plan)]
        listed = [(name, [f"- {item}" for item in held]) for name, held in lists]
        return _sections([(REQUESTS, told), *listed], first)

    draft = Draft(log, entries, calls, before)
    text = _filled(draft, beside, top(_REQUESTS_SHARE), room)
    if log.count(text) >= room * _ENOUGH:
        return text
    # Hardly anything was referred to: then plain words say best what it was about.
    draft.add_prose(entries)
    return _filled(draft, beside, top(_REQUESTS_SHARE // 2), room)


def _within(items: Iterable[str], room: int, count: Counter) -> list[str]:
    kept: list[str] = []
    for item in items:
        room -= count(item) + 2
        if room < 0:
            break
        kept.append(item)
    return kept


def _filled(draft: "Draft", beside: Sequence[str], top: str, room: int) -> str:
    """The text with as many candidates as fit; the sum of their tokens only says about how many."""
    count = draft.count
    aim = float(room - count(top))
    best, most = top, 0
    for _ in range(_ROUNDS):
        taken = chosen(draft.candidates, _covered(draft, (top, *beside)), aim)
        text = draft.written(top, taken)
        exact = _exact(text, count)
        size = max(exact, count(text))
        if size <= room and exact > most:
            best, most = text, exact
        if 0 <= room - size <= room // _SLACK or not taken:
            break
        aim = min(aim - (size - room) * 1.2, aim * 0.97) if size > room else aim + room - size
    return best if count(best) <= room else _cut(best, room, count)


def _exact(text: str, count: Counter) -> int:
    """The tokens of a text piece by piece: of a long one, counters may look at samples only."""
    total, piece, length = 0, list[str](), 0
    for line in text.split("\n"):
        piece.append(line)
        length += len(line) + 1
        if length > _PIECE:
            total += count("\n".join(piece)) + 1
            piece, length = [], 0
    return total + count("\n".join(piece))


def _cut(text: str, room: int, count: Counter) -> str:
    lines = text.split("\n")
    while len(lines) > 1 and count("\n".join(lines)) > room:
        lines.pop()
    held = "\n".join(lines)
    return held if count(held) <= room else SHORTEST


def _covered(draft: "Draft", beside: Sequence[str]) -> Covered:
    covered = Covered(draft.weights)
    for text in beside:
        for line in text.split("\n"):
            if names := references(line):
                covered.add(draft.parts_of(names), explained=explains(line))
    return covered


def _sections(sections: Iterable[tuple[str, Sequence[str]]], first: str) -> str:
    pieces = ["\n".join((f"## {name}", *lines)) for name, lines in sections if lines]
    return "\n\n".join((first, *pieces))


class Draft:
    """All that a digest could hold, and where each of it would stand."""

    def __init__(
        self,
        log: Log,
        entries: Sequence[Entry],
        calls: Sequence[tuple[int, ToolPart]],
        before: Carried,
    ) -> None:
        """Take the folded messages, their calls, and what an earlier digest told."""
        self.count = log.count
        self.candidates: list[Candidate] = []
        self._slots: list[Slot] = []
        self._heads: dict[Group, int] = {}
        self._home: dict[str, Group] = {}  # where a name was last
        held = [*before.passages, *passages(entries)]
        self.weights = _weights(held)
        first, last = (calls[0][0], calls[-1][0]) if calls else (0, 0)
        self._first, self._span = first, max(1, last - first)
        self._add_files(calls, before)
        self._add_runs(log, calls, before)
        for noted in [*before.decisions, *decisions(entries)]:
            self._add(DECISIONS, noted.text, noted.ordinal, bonus=_DECIDED, quoted=noted.text)
        self._add_passages(held)
        self._add_names()

    def parts_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names, and those that a path ends with: who names the one names the other."""
        found: dict[str, None] = {}
        for name in names:
            found[name] = None
            at = name.find("/") if "/" in name else -1
            while at >= 0:
                if (end := name[at + 1 :]) in self.weights:
                    found[end] = None
                at = name.find("/", at + 1)
        return tuple(found)

    def _add_files(self, calls: Sequence[tuple[int, ToolPart]], before: Carried) -> None:
        for path, account in file_accounts(calls, before.files).items():
            bonus = (_CHANGED if account.changes else _READ) * self._fresh(account.ordinal)
            self._heads["file", path] = len(self.candidates)
            self._add(FILES, account.line(), account.ordinal, bonus=bonus, quoted="")

    def _add_runs(self, log: Log, calls: Sequence[tuple[int, ToolPart]], before: Carried) -> None:
        for command, run in runs(log, calls, before.runs).items():
            worth = _FAILING if run.failed else _MENDED if run.failures else _RAN
            self._heads["run", command] = len(self.candidates)
            bonus = worth * self._fresh(run.ordinal)
            self._add(RUNS, run.line(), run.ordinal, bonus=bonus, quoted=run.command)

    def _fresh(self, ordinal: int) -> float:
        """How new a call is, from a third to one."""
        return max(1 / 3, (1 + 2 * (ordinal - self._first) / self._span) / 3)

    def _add(self, section: str, text: str, ordinal: int, *, bonus: float, quoted: str) -> None:
        """Add an entry; only what it quotes explains, not our own words around it."""
        self._slots.append(Slot(section=section, ordinal=ordinal))
        self.candidates.append(
            Candidate(
                text=text,
                tokens=self.count(text) + 1.5,
                names=self.parts_of(references(text)),
                explains=explains(quoted),
                bonus=bonus,
            )
        )

    def _add_passages(self, held: Iterable[Passage]) -> None:
        newest: dict[str, Passage] = {}
        for passage in held:
            newest[passage.text] = passage
            for name in passage.names:
                self._home[name] = passage.group
        newest.pop("", None)  # names without a line
        for passage in newest.values():
            head = self._heads.get(passage.group)
            if head is not None and passage.text in self.candidates[head].text:
                continue  # its head says it already
            self._slots.append(Slot(section=NOTES, ordinal=passage.ordinal))
            self.candidates.append(
                Candidate(
                    text=passage.text,
                    tokens=self.count(passage.text) + (0.5 if head is not None else 2.0),
                    names=self.parts_of(passage.names),
                    explains=explains(passage.text),
                    bonus=_SAID_BEFORE if passage.source == "previous" else 0.0,
                    head=head,
                )
            )

    def add_prose(self, entries: Sequence[Entry]) -> None:
        """Add the lines that refer to nothing."""
        found, worth = prose(entries, self.count)
        self.weights |= worth
        for passage, candidate in found:
            head = self._heads.get(passage.group)
            self._slots.append(Slot(section=NOTES, ordinal=passage.ordinal))
            self.candidates.append(replace(candidate, head=head))

    def _add_names(self) -> None:
        weights = self.weights
        likely = sorted(weights, key=lambda name: -weights[name])[:_MOST_NAMES]
        for name in likely:
            self._slots.append(Slot(section=NAMES, ordinal=0, is_name=True))
            names = self.parts_of((name,))
            self.candidates.append(Candidate(text=name, tokens=self.count(name) + 0.5, names=names))

    # --- writing ---

    def written(self, top: str, taken: set[int]) -> str:
        """The text of the digest with these candidates in their places."""
        under: dict[int, list[str]] = {}
        also: dict[int | None, list[str]] = {}
        listed: dict[str, list[int]] = {}
        for place in sorted(taken):
            held, slot = self.candidates[place], self._slots[place]
            if slot.is_name:
                head = self._heads.get(self._home.get(held.text, ("said", "")))
                also.setdefault(head if head in taken else None, []).append(held.text)
            elif held.head is not None:
                under.setdefault(held.head, []).append(held.text)
            else:
                listed.setdefault(slot.section, []).append(place)
        sections: list[tuple[str, list[str]]] = []
        for section in (DECISIONS, FILES, RUNS, NOTES):
            lines: list[str] = []
            for place in listed.get(section, ()):
                lines.append(f"- {self._told(section, place)}")
                lines += (f"  {text}" for text in under.get(place, ()))
                if place in also:
                    lines.append(f"  {ALSO}{', '.join(also[place])}")
            sections.append((section, lines))
        rest = also.get(None, [])
        sections.append((NAMES, [f"- {', '.join(rest)}"] if rest else []))
        return _sections(sections, top)

    def _told(self, section: str, place: int) -> str:
        text = self.candidates[place].text
        if section in (DECISIONS, NOTES):
            return f"{text} ({handle(self._slots[place].ordinal)})"
        return text


def _weights(held: Sequence[Passage]) -> dict[str, float]:
    """How likely each reference is needed again."""
    table: dict[str, list[int]] = {}
    end = held[-1].at if held else 0
    for passage in held:
        user, call = passage.source == "user", passage.source == "input"
        for name in passage.names:
            row = table.get(name)
            if row is None:
                table[name] = [1, passage.at, user, call]
            else:
                row[0] += 1
                row[1] = passage.at
                row[2] |= user
                row[3] |= call
    return {
        name: weight(
            name,
            Mention(
                times=times,
                age=end - at + (0 if at else _OLD_AGE),
                by_user=bool(user),
                in_calls=bool(call),
            ),
        )
        for name, (times, at, user, call) in table.items()
    }
