"""Decide which old tool outputs to hide, and why; nothing is changed here."""

from collections.abc import Callable, Iterator
from typing import Literal

from foldmark.log.log import CompletedCall, Log, handle
from foldmark.log.view import Viewer, view_start
from foldmark.model.values import Frozen
from foldmark.policy import PruneRules

Verdict = Literal["prune", "keep"]
MAX_ACCESSES = 64  # per file, the newest that are compared with an older read


class Decision(Frozen, gc=False, kw_only=False):
    """Whether one tool output is pruned or kept, and why."""

    verdict: Verdict
    output: CompletedCall
    why: str  # a sentence with the optional fields {other} and {about}
    other: int = 0  # the ordinal of the call that makes this output redundant

    @property
    def ordinal(self) -> int:
        """The ordinal of the part."""
        return self.output.ordinal

    @property
    def part(self) -> str:
        """The part's id, or its handle if it has none."""
        return self.output.part.id or handle(self.output.ordinal)

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self.output.part.tool

    @property
    def tokens(self) -> int:
        """The tokens of the full output."""
        return self.output.tokens + self.output.attached

    @property
    def reason(self) -> str:
        """Why the output is pruned or kept, as a sentence."""
        why = self.why.replace("{other}", handle(self.other))
        return why.replace("{about}", self.output.target.label)


class Prune(Frozen):
    """The outputs to hide and to keep, newest first, and the tokens that pruning frees."""

    prune: tuple[Decision, ...]
    keep: tuple[Decision, ...]
    tokens: int

    @property
    def ordinals(self) -> list[int]:
        """The ordinals of the parts to mark."""
        return [decision.ordinal for decision in self.prune]


class Bounds(Frozen):
    """The limits of one plan; the first three are ordinals of parts."""

    unread: int  # from here on, outputs were not sent to the model yet
    active: int  # from here on, outputs belong to the last turns
    stop: int  # before this, outputs are behind a summary or an earlier prune
    protect: int
    minimum: int | None
    why_active: str
    why_newest: str
    why_older: str


class NewerCalls:
    """The files that newer calls accessed, and their outputs, to find redundant older outputs.

    Calls are added from the newest to the oldest.
    """

    def __init__(self) -> None:
        """Start without any call."""
        self._accesses: dict[str, list[CompletedCall]] = {}  # by file, newest first
        self._outputs: dict[tuple[str, str], int] = {}  # by tool and text: the newest ordinal

    def add(self, call: CompletedCall, *, is_pruned: bool) -> None:
        """Add a call; a pruned output does not make an older one redundant."""
        for file in () if call.failed else call.target.files:
            accesses = self._accesses.setdefault(file, [])
            # Limits the comparisons for a file that is read in a thousand pieces.
            if len(accesses) < MAX_ACCESSES:
                accesses.append(call)
        if not is_pruned:
            self._outputs.setdefault((call.part.tool, call.state.output), call.ordinal)

    def superseding(self, call: CompletedCall) -> "Decision | None":
        """The decision to prune a read whose file was written or read again later, if it was."""
        target = call.target
        if target.access != "read":
            return None
        for later in self._accesses.get(target.files[0], ()):
            if later.target.access == "write" or later.target.span.covers(target.span):
                verb = "written" if later.target.access == "write" else "read again"
                why = f"{{about}} was {verb} at {{other}}"
                return Decision("prune", call, why, other=later.ordinal)
        return None

    def repeating(self, call: CompletedCall) -> "Decision | None":
        """The decision to prune an output that a newer call of the same tool repeats, if any."""
        other = self._outputs.get((call.part.tool, call.state.output))
        return None if other is None else Decision("prune", call, "the same as {other}", other)


def view_prune(viewer: Viewer, usable: int, *, explain: bool = True) -> Prune:
    """The prune plan for a view under its own policy."""
    start = view_start(viewer.log, viewer.policy.view)
    rules = viewer.policy.prune
    return prune_plan(viewer.log, rules, start=start, usable=usable, explain=explain)


def tokens_after(viewer: Viewer, prune: Prune, used: Callable[[], int]) -> int:
    """The tokens of the next request after a prune, which is applied to the log and undone."""
    log, now, before, measured = viewer.log, used(), viewer.tokens, viewer.log.measured
    log.mark(prune.ordinals, at=1)
    after, freed = used(), before - viewer.tokens
    log.unmark(prune.ordinals)
    log.measured = measured  # marking resets it
    # Without estimates, nothing is measured until the next reply.
    return after if viewer.policy.window.preflight else max(0, now - freed)


def prune_plan(
    log: Log, rules: PruneRules, *, start: int = 0, usable: int = 0, explain: bool = True
) -> Prune:
    """The outputs to prune in a view that starts at index `start` and may have `usable` tokens.

    One pass from the newest output to the oldest. Without `explain`, `keep` stays empty.
    """
    first = log.ordinal_at(start)
    if not rules.on:
        calls = (call for call in reversed(log.calls.values()) if call.ordinal >= first)
        visible = [call for call in calls if explain and call.ordinal not in log.marks]
        keep = tuple(Decision("keep", call, "pruning is off") for call in visible)
        return Prune(prune=(), keep=keep, tokens=0)
    bounds = _bounds(log, rules, start, usable)
    decisions = list(_decisions(log, rules, bounds, first if explain else bounds.stop))
    prune = tuple(decision for decision in decisions if decision.verdict == "prune")
    freed = sum(decision.tokens for decision in prune)
    if bounds.minimum is not None and freed <= bounds.minimum:
        why = f"pruning would free {freed:,} tokens, not more than the minimum {bounds.minimum:,}"
        spared = {one.ordinal: Decision("keep", one.output, why) for one in prune}
        decisions = [spared.get(decision.ordinal, decision) for decision in decisions]
        prune, freed = (), 0
    keep = tuple(decision for decision in decisions if explain and decision.verdict == "keep")
    return Prune(prune=prune, keep=keep, tokens=freed)


def _decisions(log: Log, rules: PruneRules, bounds: Bounds, first: int) -> Iterator[Decision]:
    """The decision for each visible output, from the newest back to the ordinal `first`."""
    newer = NewerCalls()
    total = 0
    for call in reversed(log.calls.values()):
        if call.ordinal < first:
            return
        is_pruned = call.ordinal in log.marks
        if not is_pruned:
            decision = _must_keep(call, rules, bounds) or _redundant(call, rules, newer)
            if decision is None:
                total += call.tokens + (call.attached if rules.attachments else 0)
                verdict = "prune" if total > bounds.protect else "keep"
                why = bounds.why_older if verdict == "prune" else bounds.why_newest
                decision = Decision(verdict, call, why)
            yield decision
        newer.add(call, is_pruned=is_pruned)


def _must_keep(call: CompletedCall, rules: PruneRules, bounds: Bounds) -> Decision | None:
    """The decision to keep an output regardless of its size, if there is a reason."""
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


def _redundant(call: CompletedCall, rules: PruneRules, newer: NewerCalls) -> Decision | None:
    """The decision to prune an output that a newer call made redundant, if one did."""
    decision = newer.superseding(call) if rules.superseded else None
    return newer.repeating(call) if decision is None and rules.duplicated else decision


def _bounds(log: Log, rules: PruneRules, start: int, usable: int) -> Bounds:
    protect, minimum = rules.protect, rules.minimum
    if rules.scale is not None and usable:
        protect = min(protect, int(usable * rules.scale))
        minimum = None if minimum is None else min(minimum, protect // 2)
    turn = len(log)  # index at which the last turns start
    if rules.turns > 0:
        turn = log.users[-rules.turns] if rules.turns <= len(log.users) else 0
    active = log.ordinal_at(turn)
    if rules.inside_turns:
        active = max(active, _newest_outputs(log, protect))
    entries = reversed(log.entries.values())
    answers = (entry.index for entry in entries if not entry.message.is_user)
    whole, size = active == log.ordinal_at(turn), f"{protect:,} tokens"
    return Bounds(
        # The results of the newest reply are sent with the next request.
        unread=log.ordinal_at(next(answers, len(log)) if rules.keep_unread else len(log)),
        active=active,
        stop=_stop(log, rules, start, turn),
        protect=protect,
        minimum=minimum,
        why_active=f"in the last {rules.turns} turns" + ("" if whole else f", newest {size}"),
        why_newest=f"among the protected {size} before the last turns",
        why_older=f"older than the protected {size}",
    )


def _newest_outputs(log: Log, tokens: int) -> int:
    """The ordinal from which the visible outputs have at most this many tokens together."""
    edge = log.parts
    for call in reversed(log.calls.values()):
        if call.ordinal not in log.marks:
            tokens -= call.tokens
            if tokens < 0:
                break
            edge = call.ordinal
    return edge


def _stop(log: Log, rules: PruneRules, start: int, turn: int) -> int:
    """The ordinal at which the scan stops."""
    for index in reversed(log.summaries if rules.stop_at_summary else ()):
        if index < turn:
            start = max(start, index + 1)
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
