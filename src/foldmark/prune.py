"""Which old tool outputs to hide, and why each is hidden or kept. Decides; changes nothing."""

from collections.abc import Iterator
from typing import Literal

from .log import Log, Tool, handle
from .policy import PruneRules
from .targets import Target
from .values import Frozen

Verdict = Literal["prune", "keep"]


class Decision(Frozen, gc=False, kw_only=False):
    """What becomes of one tool output, and why."""

    verdict: Verdict
    output: Tool
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
    """The figures of one plan; `active` and `stop` are ordinals of parts."""

    unread: int  # the message from which on the model has not been shown them
    active: int  # from here on, they belong to the last turns
    stop: int  # before this, they are behind a summary, or a part that was pruned before
    protect: int
    minimum: int | None
    why_active: str
    why_newest: str
    why_older: str


class Pruner:
    """Plans prunes of one log, again and again, and looks at what may have changed only."""

    def __init__(self, log: Log, rules: PruneRules) -> None:
        """Take the log and the rules."""
        self._log = log
        self._rules = rules
        self._settled = 0  # outputs before this ordinal are pruned, or stay for good
        self._start = 0
        self._restored: int = 0

    def plan(self, *, start: int = 0, usable: int = 0, explain: bool = True) -> Prune:
        """What to prune; `start` is where the view begins, `usable` the room that it has.

        To tell why outputs are kept takes a look at all of them; loops do without.
        """
        if not self._rules.on:
            return _nothing(self._log, "pruning is off", explain=explain)
        if start < self._start or self._log.restored != self._restored or explain:
            self._settled = 0
        self._start, self._restored = start, self._log.restored
        bounds = _bounds(self._log, self._rules, start, usable)
        walk = _Walk(self._log, self._rules, bounds)
        decisions = list(walk.decisions(since=self._settled, explain=explain))
        # The last message may still change: its calls are never settled.
        self._settled = min(walk.settled, _ordinal_at(self._log, max(0, len(self._log) - 1)))
        return _committed(decisions, bounds.minimum)


def prune_plan(
    log: Log, rules: PruneRules, *, start: int = 0, usable: int = 0, explain: bool = True
) -> Prune:
    """What to prune in a log, planned once."""
    return Pruner(log, rules).plan(start=start, usable=usable, explain=explain)


def _nothing(log: Log, why: str, *, explain: bool) -> Prune:
    kept = (Decision("keep", tool, why) for tool in reversed(log.tools.values()))
    return Prune(prune=(), keep=tuple(kept) if explain else (), tokens=0)


def _committed(decisions: list[Decision], minimum: int | None) -> Prune:
    """The decisions, or, where they would free too little, all outputs kept."""
    pruned = tuple(decision for decision in decisions if decision.verdict == "prune")
    freed = sum(decision.tokens for decision in pruned)
    if minimum is None or freed > minimum:
        kept = tuple(decision for decision in decisions if decision.verdict == "keep")
        return Prune(prune=pruned, keep=kept, tokens=freed)
    why = f"pruning would free {freed:,} tokens, not more than the minimum {minimum:,}"
    kept = (
        Decision("keep", held.output, why) if held.verdict == "prune" else held
        for held in decisions
    )
    return Prune(prune=(), keep=tuple(kept), tokens=0)


def _bounds(log: Log, rules: PruneRules, start: int, usable: int) -> Bounds:
    protect, minimum = rules.protect, rules.minimum
    if rules.scale is not None and usable:
        protect = min(protect, int(usable * rules.scale))
        minimum = None if minimum is None else min(minimum, protect // 2)
    turn = _turn_start(log, rules.turns)
    active = _ordinal_at(log, turn)
    if rules.inside_turns:
        active = max(active, _newest(log, protect))
    whole, size = active == _ordinal_at(log, turn), f"{protect:,} tokens"
    return Bounds(
        unread=_newest_answer(log) if rules.keep_unread else len(log),
        active=active,
        stop=_stop(log, rules, start, turn),
        protect=protect,
        minimum=minimum,
        why_active=f"in the last {rules.turns} turns" if whole else f"the newest {size}",
        why_newest=f"among the newest {size} of outputs",
        why_older=f"older than the newest {size} of outputs",
    )


def _turn_start(log: Log, turns: int) -> int:
    """Where the last so many turns begin."""
    if turns <= 0:
        return len(log)
    return log.users[-turns] if turns <= len(log.users) else 0


def _ordinal_at(log: Log, place: int) -> int:
    if place < len(log.entries):
        return log.entries[place].ordinal
    last = log.entries[-1] if log.entries else None
    return last.ordinal + len(last.sizes) if last else 0


def _newest_answer(log: Log) -> int:
    """Where the newest answer stands: its results are shown with the next request only."""
    for place in range(len(log) - 1, -1, -1):
        if not log.entries[place].message.is_user:
            return place
    return len(log)


def _newest(log: Log, tokens: int) -> int:
    """Where the newest outputs begin that have so many tokens together."""
    edge = _ordinal_at(log, len(log))
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
    stop = _ordinal_at(log, start)
    if rules.stop_at_pruned:
        for tool in reversed(log.calls):
            if tool.ordinal < stop:
                break
            if tool.index < turn and _is_boundary(log, rules, tool):
                return tool.ordinal
    return stop


def _is_boundary(log: Log, rules: PruneRules, tool: Tool) -> bool:
    return tool.ordinal in log.marks and tool.part.tool not in rules.protected_tools


class _Walk:
    """Goes from the newest output to the oldest, and decides on each."""

    def __init__(self, log: Log, rules: PruneRules, bounds: Bounds) -> None:
        self._log = log
        self._rules = rules
        self._bounds = bounds
        self._total = 0
        self.settled = _ordinal_at(log, len(log))
        self._by_length: dict[int, list[Tool]] = {}

    def decisions(self, *, since: int, explain: bool) -> Iterator[Decision]:
        stop = max(since, self._bounds.stop)
        for tool in reversed(self._log.tools.values()):
            if tool.ordinal >= stop:
                why = self._for_good(tool) or self._decided(tool)
            elif explain:
                why = "behind a summary or an earlier prune"
            else:
                return
            if isinstance(why, Decision):
                yield why
            elif explain:
                yield Decision("keep", tool, why)

    def _for_good(self, tool: Tool) -> str | None:
        """Why an output stays, whatever comes."""
        rules = self._rules
        if tool.part.tool in rules.protected_tools:
            return "of a protected tool"
        if tool.tokens <= rules.keep_small and rules.keep_small:
            return "no longer than its placeholder"
        if tool.failed and tool.tokens <= rules.keep_errors:
            return "the output of a failure"
        return None

    def _decided(self, tool: Tool) -> Decision | str:
        """The decision to prune an output, or why it is kept for now."""
        bounds = self._bounds
        self.settled = tool.ordinal
        if tool.ordinal >= bounds.active:
            why = bounds.why_active
        elif tool.index >= bounds.unread:
            why = "not shown to the model yet"
        elif needless := self._needless(tool):
            return needless
        else:
            self._total += tool.tokens + (tool.attached if self._rules.attachments else 0)
            if self._total > bounds.protect:
                return Decision("prune", tool, bounds.why_older)
            why = bounds.why_newest
        if self._rules.duplicated:
            self._by_length.setdefault(len(tool.state.output), []).append(tool)
        return why

    def _needless(self, tool: Tool) -> Decision | None:
        """The decision to prune what a later output has made needless."""
        if self._rules.superseded and tool.target.act == "read":
            found = superseding(self._log, tool)
            if found is not None:
                return found
        output = tool.state.output
        for later in self._by_length.get(len(output), ()):
            if later.part.tool == tool.part.tool and later.state.output == output:
                return Decision("prune", tool, "the same as {other}", other=later.ordinal)
        return None


def superseding(log: Log, tool: Tool) -> Decision | None:
    """The decision to prune a read whose file was written since, or read again as far."""
    about = tool.target
    for ordinal, later in reversed(log.touched.get(about.files[0], ())):
        if ordinal <= tool.ordinal:
            return None
        if _replaces(later, about):
            verb = "written" if later.act == "write" else "read again"
            why = f"{{about}} was {verb} at {{other}}"
            return Decision("prune", tool, why, other=ordinal)
    return None


def _replaces(later: Target, earlier: Target) -> bool:
    return later.act == "write" or later.span.covers(earlier.span)
