"""The digest: a summary of folded messages that is made without a model.

It has a ledger of requests, plans, decisions, changes and commands, and the lines that cover most
of the references likely to be needed again (`selection`). The same messages always give the same
text, which never exceeds its budget. Quoted text is listed or indented, so that it cannot imitate
a heading.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from msgspec.structs import replace

from foldmark.compaction.situation import Situation
from foldmark.log.log import Entry, Log, handle
from foldmark.model.messages import AnyPart, Completed, Failed, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Frozen, Json
from foldmark.summary.redaction import mask_field, mask_secrets
from foldmark.tokens.counters import Counter

from .ledger import decisions, file_accounts, plan_items, runs, tool_parts
from .passages import (
    NOWHERE,
    Group,
    Passage,
    clean,
    outcome_text,
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
    OldSummary,
    read_summary,
)
from .references import references
from .requests import request_lines, rule_lines, user_requests
from .selection import (
    Budgets,
    Candidate,
    Coverage,
    Mention,
    boost_focus,
    explains,
    says_more,
    selection_order,
    weight,
)

# --- masked messages ---


def masked_entry(entry: Entry) -> Entry:
    """Return the entry with its secrets masked, or the same entry if it has none."""
    parts = tuple(_masked_part(part) for part in entry.message.parts)
    if all(new is old for new, old in zip(parts, entry.message.parts, strict=True)):
        return entry
    return replace(entry, message=replace(entry.message, parts=parts))


def _masked_part(part: AnyPart) -> AnyPart:
    match part:
        case TextPart() | ReasoningPart():
            text = mask_secrets(part.text)
            return part if text == part.text else replace(part, text=text)
        case ToolPart():
            return _masked_call(part)
        case _:
            return part


def _masked_call(part: ToolPart) -> ToolPart:
    state = part.state
    masked_input = _masked_values(state.input or {})
    if masked_input != (state.input or {}):
        state = replace(state, input=masked_input)
    match state:
        case Completed(output=output) if (text := mask_secrets(output)) != output:
            state = replace(state, output=text)
        case Failed(error=error) if (text := mask_secrets(error)) != error:
            state = replace(state, error=text)
        case _:
            pass
    return part if state is part.state else replace(part, state=state)


def _masked_values(values: Json) -> Json:
    return {key: _masked_value(value, key) for key, value in values.items()}


def _masked_value(value: object, name: str = "") -> object:
    match value:
        case str():
            return mask_field(name, value)
        case dict():
            return _masked_values(cast("Json", value))
        case list():
            return [_masked_value(item) for item in cast("list[object]", value)]
        case _:
            return value


SHORTEST = "[Folded.]"
_MIN_BUDGET = 60  # tokens below which there are no sections
_REQUESTS_SHARE, _PLAN_SHARE = 4, 10  # the budget is divided by these
_ENOUGH = 0.8  # share of the budget that counts as full
# The worth of entries whatever they name; a name that may be needed again is worth about 0.1.
_CHANGED, _READ, _FAILING, _MENDED, _RAN, _DECIDED = 0.5, 0.05, 0.5, 0.25, 0.05, 0.25
_SAID_BEFORE = 0.05
_OLD_AGE = 40_000  # characters; the minimum age of what was folded before
# Shares of the budget: for the ledger, before all else, and for bare names, at most.
_LEDGER_SHARE, _NAMES_SHARE = 0.16, 0.14
_NEWEST_RUNS, _MAX_ALSO = 4, 12
_ROUNDS, _MORE, _FULL, _LAST_TRIES, _PIECE = 3, 1.25, 0.98, 8, 1_500
_MAX_NAMES, _MAX_ALIKE = 2_000, 6
_NUMBER = re.compile(r"\d+")
# Characters of outputs that are read in full, and of each older output before and after masking.
_NEAR, _MARGIN, _ENDS = 1_200_000, 8_000, 800

ToolCalls = Sequence[tuple[int, ToolPart]]  # with their ordinals


class Slot(Frozen, gc=False):
    """The section and ordinal of a candidate."""

    section: str
    ordinal: int


def digest(  # noqa: PLR0913 - content and options
    log: Log,
    indexes: Sequence[int],
    budget: int,
    *,
    visible: Iterable[str] = (),
    previous: str = "",
    mask: bool = True,
    focus: str = "",
) -> str:
    """Return a summary of the messages at these indexes, within a budget of tokens.

    Text in `visible` is in the view anyway and not repeated. `previous` is the summary that this
    one replaces and continues. `focus` names the subject to prefer.
    """
    if budget < _MIN_BUDGET:
        short = f"[{len(indexes)} messages folded.]"
        return short if log.count(short) <= budget else SHORTEST
    hide: Callable[[str], str] = mask_secrets if mask else str
    originals = [log.entries[index] for index in indexes if index in log.entries]
    entries = _readable_entries(originals, mask=mask)
    beside = [clean(text) for text in visible]
    before = read_summary(hide(previous))
    first = _beginning(len(indexes), again=bool(previous.strip()))
    calls = list(tool_parts(entries))
    requests = user_requests(log, indexes, before.requests, hide)
    items = plan_items(calls)
    plan = _within(items if items is not None else before.plan, budget // _PLAN_SHARE, log.count)

    def top(share: int) -> str:
        request_section = request_lines(requests, budget // share, log.count, "\n".join(beside))
        near = "\n".join((*request_section, *beside))
        rules = rule_lines(log, indexes, before.rules, hide, near)
        rules = _within(reversed(rules), budget // _PLAN_SHARE, log.count)[::-1]
        lists = [(RULES, rules), (PLAN, plan)]
        listed = [(name, [f"- {item}" for item in originals]) for name, originals in lists]
        return _sections([(REQUESTS, request_section), *listed], first)

    draft = Draft(log, entries, calls, before)
    if focus:  # it may occur in prose only
        draft.add_prose(entries)
        draft.candidates = boost_focus(draft.candidates, focus)
    text = _fill(draft, beside, top(_REQUESTS_SHARE), budget)
    if log.count(text) >= budget * _ENOUGH:
        return text
    # There are few references: fill the budget with prose.
    if not focus:
        draft.add_prose(entries)
    return _fill(draft, beside, top(_REQUESTS_SHARE // 2), budget)


def _beginning(messages: int, *, again: bool) -> str:
    more = ", and of what was folded before them" if again else ""
    subject = f"{messages} messages{more}"
    return f"{BEGINNING}{subject}; recall a handle, such as h1f, for the whole of it.]"


def _readable_entries(entries: Sequence[Entry], *, mask: bool) -> list[Entry]:
    """The messages to quote from, masked, and old ones without the middle of long outputs."""
    hide: Callable[[Entry], Entry] = masked_entry if mask else _same
    budget, readable = _NEAR, list[Entry]()
    for entry in reversed(entries):
        budget -= sum(len(outcome_text(part)) for part in entry.message.parts)
        # Mask with a margin before cutting, so that no half of a secret is left unmasked.
        near = budget > 0
        readable.append(hide(entry) if near else shortened(hide(shortened(entry, _MARGIN)), _ENDS))
    return readable[::-1]


def _same(entry: Entry) -> Entry:
    return entry


def _within(items: Iterable[str], budget: int, count: Counter) -> list[str]:
    fitting: list[str] = []
    for item in items:
        budget -= count(item) + 2
        if budget < 0:
            break
        fitting.append(item)
    return fitting


def _fill(draft: "Draft", beside: Sequence[str], top: str, budget: int) -> str:
    """The text with as many candidates as fit; the sum of their tokens is only an estimate."""
    count = draft.count
    target = float(budget - count(top)) * _MORE
    best = top
    for _ in range(_ROUNDS):
        budgets = Budgets(all=target, bare=budget * _NAMES_SHARE)
        coverage = _coverage(draft, (top, *beside))
        first = draft.first(budget * _LEDGER_SHARE)
        order = selection_order(draft.candidates, coverage, budgets, first)
        best, used = _longest(draft, top, order, budget)
        if used < len(order) or not order or _size(best, count) >= budget * _FULL:
            break
        target *= 2  # everything fits
    return best if count(best) <= budget else _cut(best, budget, count)


def _longest(draft: "Draft", top: str, order: Sequence[int], budget: int) -> tuple[str, int]:
    """The longest text of the first candidates that fits, and their number."""
    best, fits, over = top, 0, len(order) + 1
    while over - fits > 1:
        length = (fits + over) // 2 if over <= len(order) else len(order)
        text = draft.write(top, set(order[:length]))
        if _size(text, draft.count) <= budget:
            best, fits = text, length
        else:
            over = length
    chosen = set(order[:fits])
    for index in order[fits : fits + _LAST_TRIES]:  # a shorter one may still fit
        head = draft.candidates[index].head
        if head is None or head in chosen:
            text = draft.write(top, chosen | {index})
            if _size(text, draft.count) <= budget:
                best, chosen = text, chosen | {index}
    return best, fits


def _size(text: str, count: Counter) -> int:
    return max(_exact(text, count), count(text))


def _exact(text: str, count: Counter) -> int:
    """The tokens of a text, counted in pieces because counters may only sample a long text."""
    total, piece, length = 0, list[str](), 0
    for line in text.split("\n"):
        piece.append(line)
        length += len(line) + 1
        if length > _PIECE:
            total += count("\n".join(piece)) + 1
            piece, length = [], 0
    return total + count("\n".join(piece))


def _cut(text: str, budget: int, count: Counter) -> str:
    lines = text.split("\n")
    while len(lines) > 1 and count("\n".join(lines)) > budget:
        lines.pop()
    kept_text = "\n".join(lines)
    return kept_text if count(kept_text) <= budget else SHORTEST


def _coverage(draft: "Draft", beside: Sequence[str]) -> Coverage:
    coverage = Coverage(draft.weights)
    for text in beside:
        for line in text.split("\n"):
            if names := references(line):
                coverage.add(draft.parts_of(names), explained=explains(line, names))
    return coverage


def _sections(sections: Iterable[tuple[str, Sequence[str]]], first: str) -> str:
    pieces = ["\n".join((f"## {name}", *lines)) for name, lines in sections if lines]
    return "\n\n".join((first, *pieces))


class Draft:
    """All candidates for a digest, and their slots."""

    def __init__(
        self, log: Log, entries: Sequence[Entry], calls: ToolCalls, before: OldSummary
    ) -> None:
        """Collect candidates from the folded messages, their calls and the summary before."""
        self.count = log.count
        self.candidates: list[Candidate] = []
        self._slots: list[Slot] = []
        self._heads: dict[Group, int] = {}
        self._home: dict[str, Group] = {}  # the group in which a name was last seen
        self._failing: list[int] = []
        self._ran: list[int] = []
        self._changed: list[int] = []
        all_passages = [*before.passages, *passages(entries)]
        self.weights = _weights(all_passages)
        first, last = (calls[0][0], calls[-1][0]) if calls else (0, 0)
        self._first, self._span = first, max(1, last - first)
        self._add_files(calls, before)
        self._add_runs(log, calls, before)
        for line in [*before.decisions, *decisions(entries)]:
            self._add(DECISIONS, line.text, line.ordinal, bonus=_DECIDED, quoted=line.text)
        if any(passage.group == BEFORE for passage in before.passages):
            self._heads[BEFORE] = len(self.candidates)
            self._add(NOTES, EARLIER, NOWHERE, bonus=0.0, quoted="")
        self._add_passages(all_passages)
        self._add_names()

    def first(self, budget: float) -> list[int]:
        """The candidates that come first: failing commands, the last commands, changed files."""
        chosen: dict[int, None] = {}
        newest = sorted((*self._failing, *self._ran))[-_NEWEST_RUNS:]
        half = budget / 2  # for failing commands, so that changed files have the rest
        for indexes, min_left in ((self._failing, half), (newest, 0.0), (self._changed, 0.0)):
            for index in reversed(indexes):
                tokens = self.candidates[index].tokens
                if index not in chosen and budget - tokens >= min_left:
                    chosen[index] = None
                    budget -= tokens
        return list(chosen)

    def parts_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names and the known endings of paths among them, which are named with them."""
        parts: dict[str, None] = {}
        for name in names:
            parts[name] = None
            at = name.find("/") if "/" in name else -1
            while at >= 0:
                if (end := name[at + 1 :]) in self.weights:
                    parts[end] = None
                at = name.find("/", at + 1)
        return tuple(parts)

    def _add_files(self, calls: ToolCalls, before: OldSummary) -> None:
        for path, account in file_accounts(calls, before.files).items():
            bonus = (_CHANGED if account.changes else _READ) * self._fresh(account.ordinal)
            self._heads["file", path] = len(self.candidates)
            if account.changes:
                self._changed.append(len(self.candidates))
            self._add(FILES, account.line(), account.ordinal, bonus=bonus, quoted="")

    def _add_runs(self, log: Log, calls: ToolCalls, before: OldSummary) -> None:
        for command, run in runs(log, calls, before.runs).items():
            worth = _FAILING if run.failed else _MENDED if run.failures else _RAN
            self._heads["run", command] = len(self.candidates)
            (self._failing if run.failed else self._ran).append(len(self.candidates))
            bonus = worth * self._fresh(run.ordinal)
            self._add(RUNS, run.line(), run.ordinal, bonus=bonus, quoted=run.command)

    def _fresh(self, ordinal: int) -> float:
        """The freshness of a call, from 1/3 (oldest) to 1 (newest)."""
        return max(1 / 3, (1 + 2 * (ordinal - self._first) / self._span) / 3)

    def _add(self, section: str, text: str, ordinal: int, *, bonus: float, quoted: str) -> None:
        """Add a candidate; only its quoted text can explain a name."""
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

    def _add_passages(self, all_passages: Iterable[Passage]) -> None:
        newest: dict[str, Passage] = {}
        for passage in all_passages:
            newest[passage.text] = passage
            for name in passage.names:
                self._home[name] = passage.group
        newest.pop("", None)  # names without a line
        for passage in _varied(list(newest.values())):
            head = self._heads.get(passage.group)
            if head is not None and passage.text in self.candidates[head].text:
                continue  # already in its head
            if passage.source != "previous" and not says_more(passage.text, passage.names):
                continue  # names only, which are candidates of their own
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
        """Add the lines without references."""
        candidates, worth = prose(entries, self.count)
        self.weights |= worth
        for passage, candidate in candidates:
            head = self._heads.get(passage.group)
            self._slots.append(Slot(section=NOTES, ordinal=passage.ordinal))
            self.candidates.append(replace(candidate, head=head))

    def _add_names(self) -> None:
        weights = self.weights
        likely = sorted(weights, key=lambda name: -weights[name])[:_MAX_NAMES]
        # A counter may give a short text fewer tokens than it has in a list.
        alone = [self.count(name) + 0.5 for name in likely]
        dearer = max(1.0, _exact(",\n".join(likely), self.count) / max(1.0, sum(alone)))
        for name, tokens in zip(likely, alone, strict=True):
            self._slots.append(Slot(section=NAMES, ordinal=NOWHERE))
            names, cost = self.parts_of((name,)), tokens * dearer
            self.candidates.append(Candidate(text=name, tokens=cost, names=names, bare=True))

    # --- writing ---

    def write(self, top: str, chosen: set[int]) -> str:
        """The text of the digest with these candidates."""
        under: dict[int, list[str]] = {}
        listed: dict[str, list[int]] = {}
        for index in sorted(chosen):
            candidate = self.candidates[index]
            if candidate.bare:
                continue
            if candidate.head is not None:
                under.setdefault(candidate.head, []).append(candidate.text)
            else:
                listed.setdefault(self._slots[index].section, []).append(index)
        also = self._bare_names(chosen)
        sections: list[tuple[str, list[str]]] = []
        for section in (DECISIONS, FILES, RUNS, NOTES):
            lines: list[str] = []
            for index in listed.get(section, ()):
                lines.append(f"- {self._entry_text(section, index)}")
                lines += (f"  {text}" for text in under.get(index, ()))
                if index in also:
                    lines.append(f"  {ALSO}{', '.join(also[index])}")
            sections.append((section, lines))
        unplaced = also.get(None, [])
        sections.append((NAMES, [f"- {', '.join(unplaced)}"] if unplaced else []))
        return _sections(sections, top)

    def _bare_names(self, chosen: set[int]) -> dict[int | None, list[str]]:
        """The chosen names that no chosen line has, by the head under which they are listed."""
        candidates = [self.candidates[index] for index in sorted(chosen)]
        names = {name for candidate in candidates if not candidate.bare for name in candidate.names}
        also: dict[int | None, list[str]] = {}
        for candidate in candidates:
            if candidate.bare and candidate.text not in names:
                head = self._heads.get(self._home.get(candidate.text, ("said", "")))
                full = head is not None and len(also.get(head, ())) >= _MAX_ALSO
                home = None if full or head not in chosen else head
                also.setdefault(home, []).append(candidate.text)
        return also

    def _entry_text(self, section: str, index: int) -> str:
        text, ordinal = self.candidates[index].text, self._slots[index].ordinal
        if section not in (DECISIONS, NOTES):
            return text
        bare = without_bullet(text)
        return bare if ordinal == NOWHERE else f"{bare} ({handle(ordinal)})"


def _varied(items: Sequence[Passage]) -> list[Passage]:
    """The passages, keeping only the newest of those that differ only in numbers."""
    alike: dict[tuple[Group, str], int] = {}
    varied: list[Passage] = []
    for passage in reversed(items):
        kind = (passage.group, _NUMBER.sub("0", passage.text))
        alike[kind] = alike.get(kind, 0) + 1
        if alike[kind] <= _MAX_ALIKE:
            varied.append(passage)
    return varied[::-1]


def _weights(all_passages: Sequence[Passage]) -> dict[str, float]:
    """The likelihood that each reference is needed again."""
    table: dict[str, list[int]] = {}
    end = all_passages[-1].at if all_passages else 0
    for passage in all_passages:
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


def situation_digest(situation: Situation, tokens: int) -> str:
    """The digest of the folded messages, within a number of tokens."""
    return digest(
        situation.log,
        situation.indexes,
        tokens,
        visible=situation.beside,
        previous=situation.previous,
        mask=situation.request.viewer.policy.compact.mask,
        focus=situation.request.instructions,
    )
