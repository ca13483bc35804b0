"""The digest: a summary of folded history that is made without a model.

A ledger of what was asked, planned, decided, changed and run, and under it the lines of the
history that cover most of what is likely to be referred to again (`coverage`). The same messages
always give the same text, and it takes no more than its room. What is quoted is data: it is listed
or indented, so that nothing in it can pass for a heading.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from msgspec.structs import replace

from foldmark.compaction.situation import Situation
from foldmark.log.log import Entry, Log, handle
from foldmark.model.messages import AnyPart, Completed, Failed, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Frozen, Json
from foldmark.summary.redaction import masked, masked_value
from foldmark.tokens.counters import Counter

from .ledger import decisions, file_accounts, plan_items, runs, tool_parts
from .passages import (
    NOWHERE,
    Group,
    Passage,
    clean,
    ended,
    passages,
    prose,
    shortened,
    without_bullet,
)
from .previous import (
    ALSO,
    BEFORE,
    BEGINNING,
    DECISIONS,
    EARLIER,
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
from .references import references
from .requests import asked, request_lines, rule_lines
from .selection import (
    Candidate,
    Covered,
    Mention,
    Rooms,
    explains,
    focused,
    in_order,
    says_more,
    weight,
)

# --- A message of the log with its secrets masked, for those who quote from it ---


def masked_entry(entry: Entry) -> Entry:
    """The same entry where nothing in it is secret, else one with notes in those places."""
    parts = tuple(_masked_part(part) for part in entry.message.parts)
    if all(new is old for new, old in zip(parts, entry.message.parts, strict=True)):
        return entry
    return replace(entry, message=replace(entry.message, parts=parts))


def _masked_part(part: AnyPart) -> AnyPart:
    match part:
        case TextPart() | ReasoningPart():
            text = masked(part.text)
            return part if text == part.text else replace(part, text=text)
        case ToolPart():
            return _masked_call(part)
        case _:
            return part


def _masked_call(part: ToolPart) -> ToolPart:
    state = part.state
    given = _masked_values(state.input or {})
    if given != (state.input or {}):
        state = replace(state, input=given)
    match state:
        case Completed(output=output) if (text := masked(output)) != output:
            state = replace(state, output=text)
        case Failed(error=error) if (text := masked(error)) != error:
            state = replace(state, error=text)
        case _:
            pass
    return part if state is part.state else replace(part, state=state)


def _masked_values(held: Json) -> Json:
    return {key: _masked_value(value, key) for key, value in held.items()}


def _masked_value(held: object, name: str = "") -> object:
    match held:
        case str():
            return masked_value(name, held)
        case dict():
            return _masked_values(cast("Json", held))
        case list():
            return [_masked_value(value) for value in cast("list[object]", held)]
        case _:
            return held


SHORTEST = "[Folded.]"
_LEAST_ROOM = 60  # tokens below which there is no room for sections
_REQUESTS_SHARE, _PLAN_SHARE = 4, 10  # of the room, one in so many
_ENOUGH = 0.8  # of the room, that is filled
# What entries are worth whatever they name, against about 0.1 for a name that may come again.
_CHANGED, _READ, _FAILING, _MENDED, _RAN, _DECIDED = 0.5, 0.05, 0.5, 0.25, 0.05, 0.25
_SAID_BEFORE = 0.05
_OLD_AGE = 40_000  # characters that what was folded before lies back, at least
# Of the room: what the ledger takes before all else, and what bare names take at most.
_LEDGER_SHARE, _NAMES_SHARE = 0.16, 0.14
_NEWEST_RUNS, _MOST_ALSO = 4, 12
_ROUNDS, _MORE, _FULL, _LAST_TRIES, _PIECE = 3, 1.25, 0.98, 8, 1_500
_MOST_NAMES, _MOST_ALIKE = 2_000, 6
_NUMBER = re.compile(r"\d+")
# Characters of outputs that are read in full, and of each older one: before masking, and after.
_NEAR, _MARGIN, _ENDS = 1_200_000, 8_000, 800


class Slot(Frozen, gc=False):
    """Where a candidate would stand."""

    section: str
    ordinal: int


def digest(  # noqa: PLR0913 - what it is made of, and what is wished of it
    log: Log,
    places: Sequence[int],
    room: int,
    *,
    shown: Iterable[str] = (),
    previous: str = "",
    mask: bool = True,
    focus: str = "",
) -> str:
    """A summary of the messages at these places, within so many tokens.

    `shown` is what the view shows beside it, which it does not repeat; `previous` is the summary
    that it replaces, and carries on; `focus` says what it shall look at most.
    """
    if room < _LEAST_ROOM:
        short = f"[{len(places)} messages folded.]"
        return short if log.count(short) <= room else SHORTEST
    hide: Callable[[str], str] = masked if mask else str
    held = [log.entries[place] for place in places if place in log.entries]
    entries = _readable(held, mask=mask)
    beside = [clean(text) for text in shown]
    before = carried(hide(previous))
    first = _beginning(len(places), again=bool(previous.strip()))
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
    if focus:  # which may be told of in words alone
        draft.add_prose(entries)
        draft.candidates = focused(draft.candidates, focus)
    text = _filled(draft, beside, top(_REQUESTS_SHARE), room)
    if log.count(text) >= room * _ENOUGH:
        return text
    # Hardly anything was referred to: then plain words say best what it was about.
    if not focus:
        draft.add_prose(entries)
    return _filled(draft, beside, top(_REQUESTS_SHARE // 2), room)


def _beginning(messages: int, *, again: bool) -> str:
    more = ", and of what was folded before them" if again else ""
    told = f"{messages} messages{more}"
    return f"{BEGINNING}{told}; recall a handle, such as h1f, for the whole of it.]"


def _readable(entries: Sequence[Entry], *, mask: bool) -> list[Entry]:
    """The messages as they may be quoted, without the middles of long outputs that are old."""
    hide: Callable[[Entry], Entry] = masked_entry if mask else _same
    room, found = _NEAR, list[Entry]()
    for entry in reversed(entries):
        room -= sum(len(ended(part)) for part in entry.message.parts)
        # What is cut off is far from what is left: no half of a secret stays without its mask.
        found.append(hide(entry) if room > 0 else shortened(hide(shortened(entry, _MARGIN)), _ENDS))
    return found[::-1]


def _same(entry: Entry) -> Entry:
    return entry


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
    aim = float(room - count(top)) * _MORE
    best = top
    for _ in range(_ROUNDS):
        rooms = Rooms(all=aim, bare=room * _NAMES_SHARE)
        covered = _covered(draft, (top, *beside))
        order = in_order(draft.candidates, covered, rooms, draft.first(room * _LEDGER_SHARE))
        best, used = _longest(draft, top, order, room)
        if used < len(order) or not order or _size(best, count) >= room * _FULL:
            break
        aim *= 2  # all of it fits
    return best if count(best) <= room else _cut(best, room, count)


def _longest(draft: "Draft", top: str, order: Sequence[int], room: int) -> tuple[str, int]:
    """The text with the most of the first candidates that fits, and how many were looked at."""
    best, fits, over = top, 0, len(order) + 1
    while over - fits > 1:
        tried = (fits + over) // 2 if over <= len(order) else len(order)
        text = draft.written(top, set(order[:tried]))
        if _size(text, draft.count) <= room:
            best, fits = text, tried
        else:
            over = tried
    taken = set(order[:fits])
    for place in order[fits : fits + _LAST_TRIES]:  # a shorter one may fill the end
        head = draft.candidates[place].head
        if head is None or head in taken:
            text = draft.written(top, taken | {place})
            if _size(text, draft.count) <= room:
                best, taken = text, taken | {place}
    return best, fits


def _size(text: str, count: Counter) -> int:
    return max(_exact(text, count), count(text))


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
                covered.add(draft.parts_of(names), explained=explains(line, names))
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
        self._failing: list[int] = []
        self._ran: list[int] = []
        self._changed: list[int] = []
        held = [*before.passages, *passages(entries)]
        self.weights = _weights(held)
        first, last = (calls[0][0], calls[-1][0]) if calls else (0, 0)
        self._first, self._span = first, max(1, last - first)
        self._add_files(calls, before)
        self._add_runs(log, calls, before)
        for noted in [*before.decisions, *decisions(entries)]:
            self._add(DECISIONS, noted.text, noted.ordinal, bonus=_DECIDED, quoted=noted.text)
        if any(passage.group == BEFORE for passage in before.passages):
            self._heads[BEFORE] = len(self.candidates)
            self._add(NOTES, EARLIER, NOWHERE, bonus=0.0, quoted="")
        self._add_passages(held)
        self._add_names()

    def first(self, room: float) -> list[int]:
        """What is told before all else: what fails, what ran last and what was changed."""
        found: dict[int, None] = {}
        newest = sorted((*self._failing, *self._ran))[-_NEWEST_RUNS:]
        half = room / 2  # for what fails, so that there is room for what was changed
        for places, least in ((self._failing, half), (newest, 0.0), (self._changed, 0.0)):
            for place in reversed(places):
                tokens = self.candidates[place].tokens
                if place not in found and room - tokens >= least:
                    found[place] = None
                    room -= tokens
        return list(found)

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
            if account.changes:
                self._changed.append(len(self.candidates))
            self._add(FILES, account.line(), account.ordinal, bonus=bonus, quoted="")

    def _add_runs(self, log: Log, calls: Sequence[tuple[int, ToolPart]], before: Carried) -> None:
        for command, run in runs(log, calls, before.runs).items():
            worth = _FAILING if run.failed else _MENDED if run.failures else _RAN
            self._heads["run", command] = len(self.candidates)
            (self._failing if run.failed else self._ran).append(len(self.candidates))
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
                explains=explains(quoted, references(quoted)),
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
        for passage in _of_many_kinds(list(newest.values())):
            head = self._heads.get(passage.group)
            if head is not None and passage.text in self.candidates[head].text:
                continue  # its head says it already
            if passage.source != "previous" and not says_more(passage.text, passage.names):
                continue  # nothing but names, which are candidates by themselves
            self._slots.append(Slot(section=NOTES, ordinal=passage.ordinal))
            self.candidates.append(
                Candidate(
                    text=passage.text,
                    tokens=self.count(passage.text) + (0.5 if head is not None else 2.0),
                    names=self.parts_of(passage.names),
                    explains=explains(passage.text, passage.names),
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
        # Counters may take short texts for cheaper than they are in a list.
        alone = [self.count(name) + 0.5 for name in likely]
        dearer = max(1.0, _exact(",\n".join(likely), self.count) / max(1.0, sum(alone)))
        for name, tokens in zip(likely, alone, strict=True):
            self._slots.append(Slot(section=NAMES, ordinal=NOWHERE))
            names, cost = self.parts_of((name,)), tokens * dearer
            self.candidates.append(Candidate(text=name, tokens=cost, names=names, bare=True))

    # --- writing ---

    def written(self, top: str, taken: set[int]) -> str:
        """The text of the digest with these candidates in their places."""
        under: dict[int, list[str]] = {}
        listed: dict[str, list[int]] = {}
        for place in sorted(taken):
            held = self.candidates[place]
            if held.bare:
                continue
            if held.head is not None:
                under.setdefault(held.head, []).append(held.text)
            else:
                listed.setdefault(self._slots[place].section, []).append(place)
        also = self._bare_names(taken)
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

    def _bare_names(self, taken: set[int]) -> dict[int | None, list[str]]:
        """The names that no line has, by the heads under which they stand."""
        held = [self.candidates[place] for place in sorted(taken)]
        named = {name for each in held if not each.bare for name in each.names}
        also: dict[int | None, list[str]] = {}
        for each in held:
            if each.bare and each.text not in named:
                head = self._heads.get(self._home.get(each.text, ("said", "")))
                full = head is not None and len(also.get(head, ())) >= _MOST_ALSO
                also.setdefault(None if full or head not in taken else head, []).append(each.text)
        return also

    def _told(self, section: str, place: int) -> str:
        text, ordinal = self.candidates[place].text, self._slots[place].ordinal
        if section not in (DECISIONS, NOTES):
            return text
        bare = without_bullet(text)
        return bare if ordinal == NOWHERE else f"{bare} ({handle(ordinal)})"


def _of_many_kinds(held: Sequence[Passage]) -> list[Passage]:
    """The passages without all but the newest of those that differ in their numbers only."""
    alike: dict[tuple[Group, str], int] = {}
    kept: list[Passage] = []
    for passage in reversed(held):
        kind = (passage.group, _NUMBER.sub("0", passage.text))
        alike[kind] = alike.get(kind, 0) + 1
        if alike[kind] <= _MOST_ALIKE:
            kept.append(passage)
    return kept[::-1]


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


def digest_of(situation: Situation, tokens: int) -> str:
    """The digest of what is folded, in so many tokens."""
    return digest(
        situation.log,
        situation.places,
        tokens,
        shown=situation.beside,
        previous=situation.previous,
        mask=situation.request.viewer.policy.compact.mask,
        focus=situation.request.instructions,
    )
