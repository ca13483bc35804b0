"""Which old tool outputs to hide, and why each is hidden or kept. Decides; changes nothing."""

from collections.abc import Callable, Iterator
from typing import Literal

from foldmark.log.log import CompletedCall, Log, handle
from foldmark.log.view import Viewer, view_start
from foldmark.model.values import Frozen
from foldmark.policy import PruneRules

Verdict = Literal["prune", "keep"]
TOUCHES = 64  # newest accesses of a file that are looked at to find what superseded a read


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


class NewerCalls:
    """What calls say about older ones: which files they read or wrote, which outputs they repeat.

    Calls are added from the newest to the oldest.
    """

    def __init__(self) -> None:
        """Start without calls."""
        self._accesses: dict[str, list[CompletedCall]] = {}  # by file, the newest first
        self._outputs: dict[tuple[str, str], int] = {}  # by tool and text: the newest ordinal

    def add(self, call: CompletedCall, *, is_pruned: bool) -> None:
        """Note a call; a pruned output does not stand in for an older one."""
        for file in () if call.failed else call.target.files:
            accesses = self._accesses.setdefault(file, [])
            # A file that is read in a thousand pieces must not cost a million comparisons.
            if len(accesses) < TOUCHES:
                accesses.append(call)
        if not is_pruned:
            self._outputs.setdefault((call.part.tool, call.state.output), call.ordinal)

    def superseding(self, call: CompletedCall) -> "Decision | None":
        """The decision to prune a read whose file was written since, or read again as far."""
        about = call.target
        if about.access != "read":
            return None
        for later in self._accesses.get(about.files[0], ()):
            if later.target.access == "write" or later.target.span.covers(about.span):
                verb = "written" if later.target.access == "write" else "read again"
                why = f"{{about}} was {verb} at {{other}}"
                return Decision("prune", call, why, other=later.ordinal)
        return None

    def repeating(self, call: CompletedCall) -> "Decision | None":
        """The decision to prune an output that a newer call of the same tool repeats."""
        other = self._outputs.get((call.part.tool, call.state.output))
        return None if other is None else Decision("prune", call, "the same as {other}", other)


def view_prune(viewer: Viewer, usable: int, *, explain: bool = True) -> Prune:
    """What to prune of a view; `prune_plan` otherwise."""
    start = view_start(viewer.log, viewer.policy.view)
    rules = viewer.policy.prune
    return prune_plan(viewer.log, rules, start=start, usable=usable, explain=explain)


def tokens_after(viewer: Viewer, prune: Prune, used: Callable[[], int]) -> int:
    """The tokens that the next request uses after a prune: tried on the log, and taken back."""
    log, now, shown, measured = viewer.log, used(), viewer.tokens, viewer.log.measured
    log.mark(prune.ordinals, at=1)
    after, freed = used(), shown - viewer.tokens
    log.unmark(prune.ordinals)
    log.measured = measured  # marks make the log forget it
    # A policy that only measures knows nothing until the next answer.
    return after if viewer.policy.window.preflight else max(0, now - freed)


def prune_plan(
    log: Log, rules: PruneRules, *, start: int = 0, usable: int = 0, explain: bool = True
) -> Prune:
    """What to prune; `start` is where the view begins, `usable` the tokens that it may have.

    One pass from the newest output to the oldest. Without `explain`, no reasons to keep are given.
    """
    first = log.ordinal_at(start)
    if not rules.on:
        calls = (call for call in reversed(log.calls.values()) if call.ordinal >= first)
        shown = [call for call in calls if explain and call.ordinal not in log.marks]
        kept = tuple(Decision("keep", call, "pruning is off") for call in shown)
        return Prune(prune=(), keep=kept, tokens=0)
    bounds = _bounds(log, rules, start, usable)
    decisions = list(_decisions(log, rules, bounds, first if explain else bounds.stop))
    pruned = tuple(held for held in decisions if held.verdict == "prune")
    freed = sum(decision.tokens for decision in pruned)
    if bounds.minimum is not None and freed <= bounds.minimum:
        why = f"pruning would free {freed:,} tokens, not more than the minimum {bounds.minimum:,}"
        spared = {held.ordinal: Decision("keep", held.output, why) for held in pruned}
        decisions = [spared.get(held.ordinal, held) for held in decisions]
        pruned, freed = (), 0
    kept = tuple(held for held in decisions if explain and held.verdict == "keep")
    return Prune(prune=pruned, keep=kept, tokens=freed)


def _decisions(log: Log, rules: PruneRules, bounds: Bounds, first: int) -> Iterator[Decision]:
    """What becomes of each output that is shown, from the newest back to a part."""
    newer = NewerCalls()
    total = 0
    for call in reversed(log.calls.values()):
        if call.ordinal < first:
            return
        is_pruned = call.ordinal in log.marks
        if not is_pruned:
            decision = _kept(call, rules, bounds) or _needless(call, rules, newer)
            if decision is None:
                total += call.tokens + (call.attached if rules.attachments else 0)
                verdict = "prune" if total > bounds.protect else "keep"
                why = bounds.why_older if verdict == "prune" else bounds.why_newest
                decision = Decision(verdict, call, why)
            yield decision
        newer.add(call, is_pruned=is_pruned)


def _kept(call: CompletedCall, rules: PruneRules, bounds: Bounds) -> Decision | None:
    """The decision to keep an output whatever its size, if there is a reason."""
    why = ""
    if call.ordinal < bounds.stop:
        why = "behind a summary or an earlier prune"
    elif call.part.tool in rules.protected_tools:
        why = "of a protected tool"
    elif call.tokens <= rules.keep_small and rules.keep_small:
        why = "no longer than its placeholder"
    elif call.failed and call.tokens <= rules.keep_errors:
        why = "the output of a failure"
    elif call.ordinal >= bounds.active:
        why = bounds.why_active
    elif call.ordinal >= bounds.unread:
        why = "not shown to the model yet"
    return Decision("keep", call, why) if why else None


def _needless(call: CompletedCall, rules: PruneRules, newer: NewerCalls) -> Decision | None:
    """The decision to prune what a newer call has made needless."""
    found = newer.superseding(call) if rules.superseded else None
    return newer.repeating(call) if found is None and rules.duplicated else found


def _bounds(log: Log, rules: PruneRules, start: int, usable: int) -> Bounds:
    protect, minimum = rules.protect, rules.minimum
    if rules.scale is not None and usable:
        protect = min(protect, int(usable * rules.scale))
        minimum = None if minimum is None else min(minimum, protect // 2)
    turn = len(log)  # where the last turns begin
    if rules.turns > 0:
        turn = log.users[-rules.turns] if rules.turns <= len(log.users) else 0
    active = log.ordinal_at(turn)
    if rules.inside_turns:
        active = max(active, _newest(log, protect))
    entries = reversed(log.entries.values())
    answers = (entry.index for entry in entries if not entry.message.is_user)
    whole, size = active == log.ordinal_at(turn), f"{protect:,} tokens"
    return Bounds(
        # The results of the newest answer are shown with the next request only.
        unread=log.ordinal_at(next(answers, len(log)) if rules.keep_unread else len(log)),
        active=active,
        stop=_stop(log, rules, start, turn),
        protect=protect,
        minimum=minimum,
        why_active=f"in the last {rules.turns} turns" + ("" if whole else f", newest {size}"),
        why_newest=f"among the protected {size} before the last turns",
        why_older=f"older than the protected {size}",
    )


def _newest(log: Log, tokens: int) -> int:
    """Where the newest outputs begin that have so many tokens together."""
    edge = log.parts
    for call in reversed(log.calls.values()):
        if call.ordinal not in log.marks:
            tokens -= call.tokens
            if tokens < 0:
                break
            edge = call.ordinal
    return edge


def _stop(log: Log, rules: PruneRules, start: int, turn: int) -> int:
    """Before which part nothing is looked at."""
    for place in reversed(log.summaries if rules.stop_at_summary else ()):
        if place < turn:
            start = max(start, place + 1)
            break
    stop = log.ordinal_at(start)
    if rules.stop_at_pruned:
        for call in reversed(log.calls.values()):
            if call.ordinal < stop:
                break
            is_boundary = call.ordinal in log.marks and call.part.tool not in rules.protected_tools
            if call.index < turn and is_boundary:
                return call.ordinal
    return stop
