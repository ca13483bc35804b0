"""Which old tool outputs to hide, and why each is hidden or kept. Decides; changes nothing."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Literal

from foldmark.log.log import CompletedCall, Log, handle
from foldmark.log.tool_targets import Target
from foldmark.model.values import Frozen
from foldmark.policy import PruneRules

Verdict = Literal["prune", "keep"]
TOUCHES = 64  # of a file, that are looked at to find what superseded a read


class Decision(Frozen, gc=False, kw_only=False):
    """What becomes of one tool output, and why."""

    verdict: Verdict
    output: CompletedCall
    why: str  # a sentence in which {other} and {about} may stand
    other: int = 0  # the ordinal of the output that makes this one needless

    @property
    def ordinal(self) -> int:
        """The part's place among all parts."""
        return self.output.ordinal

    @property
    def part(self) -> str:
        """The part's id, or its handle where it has none."""
        return self.output.part.id or handle(self.output.ordinal)

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self.output.part.tool

    @property
    def tokens(self) -> int:
        """What the output costs in full."""
        return self.output.tokens + self.output.attached

    @property
    def reason(self) -> str:
        """Why it is pruned or kept, in a sentence."""
        why = self.why.replace("{other}", handle(self.other))
        return why.replace("{about}", self.output.target.label)


class Alike(Frozen):
    """Outputs of which the same becomes, for one reason."""

    reason: str
    outputs: int
    tokens: int


def by_reason(decisions: Iterable[Decision]) -> list[Alike]:
    """The reasons, each with its outputs and tokens; the heaviest first."""
    grouped: dict[str, list[int]] = {}
    for held in decisions:
        grouped.setdefault(held.reason, []).append(held.tokens)
    found = [
        Alike(reason=reason, outputs=len(tokens), tokens=sum(tokens))
        for reason, tokens in grouped.items()
    ]
    return sorted(found, key=lambda held: -held.tokens)


class Prune(Frozen):
    """The outputs to hide and to keep, newest first, and the tokens that this frees."""

    prune: tuple[Decision, ...]
    keep: tuple[Decision, ...]
    tokens: int

    @property
    def ordinals(self) -> list[int]:
        """The parts to mark."""
        return [decision.ordinal for decision in self.prune]


class Bounds(Frozen):
    """The figures of one plan; places are ordinals of parts."""

    unread: int  # from here on, the model has not been shown them
    active: int  # from here on, they belong to the last turns
    stop: int  # before this, they are behind a summary, or a part that was pruned before
    protect: int
    minimum: int | None
    why_active: str
    why_newest: str
    why_older: str


class Pruner:
    """Plans prunes of one log, again and again, and looks at outputs that may still go only."""

    def __init__(self, log: Log, rules: PruneRules) -> None:
        """Take the log and the rules."""
        self._log = log
        self._rules = rules
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._taken = 0  # of all calls, how many were looked at
        self._open: list[
            CompletedCall
        ] = []  # of these, the outputs that may still go, oldest first
        self._last: list[
            CompletedCall
        ] = []  # the calls of the last message, which may still change
        self._alike: dict[int, list[CompletedCall]] = {}  # by the hash of their outputs
        self._restored: int = self._log.restored
        self._start = 0

    def plan(self, *, start: int = 0, usable: int = 0, explain: bool = True) -> Prune:
        """What to prune; `start` is where the view begins, `usable` the room that it has.

        To tell why outputs are kept takes a look at all of them; loops do without.
        """
        if not self._rules.on:
            kept = self._kept("pruning is off", start=start) if explain else ()
            return Prune(prune=(), keep=kept, tokens=0)
        self._catch_up(start)
        bounds = _bounds(self._log, self._rules, start, usable)
        pruned = tuple(self._pruned(bounds))
        freed = sum(decision.tokens for decision in pruned)
        if bounds.minimum is None or freed > bounds.minimum:
            kept = self._kept(bounds, pruned, start=start) if explain else ()
            return Prune(prune=pruned, keep=kept, tokens=freed)
        why = f"pruning would free {freed:,} tokens, not more than the minimum {bounds.minimum:,}"
        kept = self._kept(bounds, pruned, start=start, spared=why) if explain else ()
        return Prune(prune=(), keep=kept, tokens=0)

    def _catch_up(self, start: int) -> None:
        log = self._log
        if log.restored != self._restored or start < self._start:
            self._begin_anew()
        if start > self._start:
            self._start = start
            del self._open[: bisect_left(self._open, log.ordinal_at(start), key=_ordinal)]
        self._open = [tool for tool in self._open if tool.ordinal not in log.marks]
        calls, last = log.calls, len(log) - 1
        while self._taken < len(calls) and calls[self._taken].index < last:
            tool = calls[self._taken]
            self._taken += 1
            if self._rules.duplicated:
                self._alike.setdefault(hash(tool.state.output), []).append(tool)
            seen = tool.index >= self._start and tool.ordinal not in log.marks
            if seen and not self._for_good(tool):
                self._open.append(tool)
        self._last = calls[self._taken :]

    def _pruned(self, bounds: Bounds) -> Iterator[Decision]:
        """The outputs to hide, from the newest to the oldest."""
        total = 0
        for tool in self._between(bounds.stop, min(bounds.active, bounds.unread)):
            needless = self._needless(tool)
            if needless is not None:
                yield needless
                continue
            total += tool.tokens + (tool.attached if self._rules.attachments else 0)
            if total > bounds.protect:
                yield Decision("prune", tool, bounds.why_older)

    def _between(self, first: int, end: int) -> Iterator[CompletedCall]:
        """The outputs that may go with ordinals in this range, the newest first."""
        for tool in reversed(self._last):
            unpruned = tool.ordinal in self._log.tools
            if first <= tool.ordinal < end and unpruned and not self._for_good(tool):
                yield tool
        low = bisect_left(self._open, first, key=_ordinal)
        high = bisect_left(self._open, end, key=_ordinal)
        yield from reversed(self._open[low:high])

    def _needless(self, tool: CompletedCall) -> Decision | None:
        """The decision to prune what a later output has made needless."""
        if self._rules.superseded and tool.target.act == "read":
            found = superseding(self._log, tool)
            if found is not None:
                return found
        if self._rules.duplicated:
            alike = self._alike.get(hash(tool.state.output), [])
            for later in chain(reversed(self._last), reversed(alike)):
                if later.ordinal <= tool.ordinal:
                    break
                if _is_alike(later, tool, self._log):
                    return Decision("prune", tool, "the same as {other}", other=later.ordinal)
        return None

    def _for_good(self, tool: CompletedCall) -> str | None:
        """Why an output stays, whatever comes."""
        rules = self._rules
        if tool.part.tool in rules.protected_tools:
            return "of a protected tool"
        if tool.tokens <= rules.keep_small and rules.keep_small:
            return "no longer than its placeholder"
        if tool.failed and tool.tokens <= rules.keep_errors:
            return "the output of a failure"
        return None

    def _kept(
        self,
        why: Bounds | str,
        pruned: tuple[Decision, ...] = (),
        *,
        start: int = 0,
        spared: str = "",
    ) -> tuple[Decision, ...]:
        """The outputs of the view that stay, the newest first, each with its reason."""
        going = {decision.ordinal for decision in pruned}
        first = self._log.ordinal_at(start)
        kept: list[Decision] = []
        for tool in reversed(self._log.tools.values()):
            if tool.ordinal < first:
                break
            if tool.ordinal not in going:
                reason = why if isinstance(why, str) else self._why_kept(tool, why)
                kept.append(Decision("keep", tool, reason))
            elif spared:
                kept.append(Decision("keep", tool, spared))
        return tuple(kept)

    def _why_kept(self, tool: CompletedCall, bounds: Bounds) -> str:
        if tool.ordinal < bounds.stop:
            return "behind a summary or an earlier prune"
        if why := self._for_good(tool):
            return why
        if tool.ordinal >= bounds.active:
            return bounds.why_active
        return "not shown to the model yet" if tool.ordinal >= bounds.unread else bounds.why_newest


def prune_plan(
    log: Log, rules: PruneRules, *, start: int = 0, usable: int = 0, explain: bool = True
) -> Prune:
    """What to prune in a log, planned once."""
    return Pruner(log, rules).plan(start=start, usable=usable, explain=explain)


def _bounds(log: Log, rules: PruneRules, start: int, usable: int) -> Bounds:
    protect, minimum = rules.protect, rules.minimum
    if rules.scale is not None and usable:
        protect = min(protect, int(usable * rules.scale))
        minimum = None if minimum is None else min(minimum, protect // 2)
    turn = _turn_start(log, rules.turns)
    active = log.ordinal_at(turn)
    if rules.inside_turns:
        active = max(active, _newest(log, protect))
    whole, size = active == log.ordinal_at(turn), f"{protect:,} tokens"
    return Bounds(
        unread=log.ordinal_at(_newest_answer(log) if rules.keep_unread else len(log)),
        active=active,
        stop=_stop(log, rules, start, turn),
        protect=protect,
        minimum=minimum,
        why_active=f"in the last {rules.turns} turns" + ("" if whole else f", newest {size}"),
        why_newest=f"among the protected {size} before the last turns",
        why_older=f"older than the protected {size}",
    )


def _turn_start(log: Log, turns: int) -> int:
    """Where the last so many turns begin."""
    if turns <= 0:
        return len(log)
    return log.users[-turns] if turns <= len(log.users) else 0


def _newest_answer(log: Log) -> int:
    """Where the newest answer stands: its results are shown with the next request only."""
    for entry in reversed(log.entries.values()):
        if not entry.message.is_user:
            return entry.index
    return len(log)


def _newest(log: Log, tokens: int) -> int:
    """Where the newest outputs begin that have so many tokens together."""
    edge = log.parts
    for tool in reversed(log.tools.values()):
        tokens -= tool.tokens
        if tokens < 0:
            break
        edge = tool.ordinal
    return edge


def _stop(log: Log, rules: PruneRules, start: int, turn: int) -> int:
    """Before which part nothing is looked at."""
    for place in reversed(log.summaries if rules.stop_at_summary else ()):
        if place < turn:
            start = max(start, place + 1)
            break
    stop = log.ordinal_at(start)
    if rules.stop_at_pruned:
        for tool in reversed(log.calls):
            if tool.ordinal < stop:
                break
            if tool.index < turn and _is_boundary(log, rules, tool):
                return tool.ordinal
    return stop


def _is_boundary(log: Log, rules: PruneRules, tool: CompletedCall) -> bool:
    return tool.ordinal in log.marks and tool.part.tool not in rules.protected_tools


def superseding(log: Log, tool: CompletedCall) -> Decision | None:
    """The decision to prune a read whose file was written since, or read again as far."""
    about = tool.target
    # Only the newest are looked at: a file read in a thousand pieces must not cost a million.
    for ordinal, later in islice(reversed(log.touched.get(about.files[0], [])), TOUCHES):
        if ordinal <= tool.ordinal:
            return None
        if _replaces(later, about):
            verb = "written" if later.act == "write" else "read again"
            why = f"{{about}} was {verb} at {{other}}"
            return Decision("prune", tool, why, other=ordinal)
    return None


def _replaces(later: Target, earlier: Target) -> bool:
    return later.act == "write" or later.span.covers(earlier.span)


def _is_alike(later: CompletedCall, earlier: CompletedCall, log: Log) -> bool:
    return (
        later.part.tool == earlier.part.tool
        and later.ordinal not in log.marks
        and later.state.output == earlier.state.output
    )


def _ordinal(tool: CompletedCall) -> int:
    return tool.ordinal
