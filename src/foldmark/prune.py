"""Which old tool outputs to hide, and why each is hidden or kept. Decides; changes nothing."""

from collections.abc import Iterator
from typing import Literal

from .log import Log, Tool, handle
from .policy import PruneRules
from .targets import Target
from .values import Frozen

Verdict = Literal["prune", "keep"]
_LIKENESS = 64  # characters at either end by which equal outputs are looked up


class Decision(Frozen, gc=False):
    """What becomes of one tool output, and why."""

    verdict: Verdict
    ordinal: int
    part: str
    tool: str
    tokens: int
    reason: str


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


def prune_plan(
    log: Log, rules: PruneRules, *, start: int = 0, usable: int = 0, explain: bool = False
) -> Prune:
    """What to prune in a log; `start` is where its view begins, `usable` the room it has."""
    if not rules.on:
        kept = (_decision("keep", tool, "pruning is off") for tool in log.tools.values())
        return Prune(prune=(), keep=tuple(kept) if explain else (), tokens=0)
    bounds = _bounds(log, rules, start, usable)
    decisions = list(_Walk(log, rules, bounds).decisions(explain=explain))
    pruned = tuple(decision for decision in decisions if decision.verdict == "prune")
    kept = tuple(decision for decision in decisions if decision.verdict == "keep")
    freed = sum(decision.tokens for decision in pruned)
    if bounds.minimum is not None and freed <= bounds.minimum:
        reason = f"pruning would free {freed} tokens, not more than the minimum {bounds.minimum}"
        spared = [_decision("keep", log.tools[held.ordinal], reason) for held in pruned]
        kept = tuple(sorted([*kept, *spared], key=lambda held: -held.ordinal))
        return Prune(prune=(), keep=kept, tokens=0)
    return Prune(prune=pruned, keep=kept, tokens=freed)


def _bounds(log: Log, rules: PruneRules, start: int, usable: int) -> Bounds:
    protect, minimum = rules.protect, rules.minimum
    if rules.scale is not None and usable:
        protect = min(protect, int(usable * rules.scale))
        minimum = None if minimum is None else min(minimum, protect // 2)
    turn = _turn_start(log, rules.turns)
    active = _ordinal_at(log, turn)
    if rules.inside_turns:
        active = max(active, _newest(log, protect))
    return Bounds(
        unread=log.calls[-1].index if rules.keep_unread and log.calls else len(log),
        active=active,
        stop=_stop(log, rules, start, turn),
        protect=protect,
        minimum=minimum,
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
    for place in reversed(log.summaries):
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
        self._alike: dict[tuple[str, int, str, str], list[Tool]] = {}

    def decisions(self, *, explain: bool) -> Iterator[Decision]:
        for tool in reversed(self._log.tools.values()):
            if tool.ordinal < self._bounds.stop:
                if not explain:
                    return
                yield _decision("keep", tool, "behind a summary or an earlier prune")
                continue
            yield self._decided(tool)

    def _decided(self, tool: Tool) -> Decision:
        rules, bounds = self._rules, self._bounds
        stays = self._stays(tool)
        if stays is not None:
            self._remember(tool)
            return _decision("keep", tool, stays)
        goes = self._goes_first(tool)
        if goes is not None:
            return _decision("prune", tool, goes)
        if tool.tokens <= rules.keep_errors and _failed(tool):
            return _decision("keep", tool, "the output of a failure")
        self._total += tool.tokens
        if self._total > bounds.protect:
            reason = f"older than the newest {bounds.protect} tokens of outputs"
            return _decision("prune", tool, reason)
        self._remember(tool)
        reason = f"among the newest {bounds.protect} tokens of outputs"
        return _decision("keep", tool, reason)

    def _stays(self, tool: Tool) -> str | None:
        rules, bounds = self._rules, self._bounds
        if tool.ordinal >= bounds.active:
            return f"in the last {rules.turns} turns"
        if tool.part.tool in rules.protected_tools:
            return f"{tool.part.tool} is a protected tool"
        if tool.index >= bounds.unread:
            return "not shown to the model yet"
        if tool.tokens <= rules.keep_small and rules.keep_small:
            return "no longer than its placeholder"
        return None

    def _goes_first(self, tool: Tool) -> str | None:
        if self._rules.superseded and (later := superseding(self._log, tool)):
            return later
        if self._rules.duplicated:
            for other in self._alike.get(_likeness(tool), ()):
                if other.state.output == tool.state.output:
                    return f"the same as {handle(other.ordinal)}"
        return None

    def _remember(self, tool: Tool) -> None:
        if self._rules.duplicated:
            self._alike.setdefault(_likeness(tool), []).append(tool)


def superseding(log: Log, tool: Tool) -> str | None:
    """Why a read is out of date: its file was written since, or read again as far or farther."""
    about = log.target(tool)
    if about.act != "read":
        return None
    for ordinal, later in reversed(log.touched.get(about.files[0], ())):
        if ordinal <= tool.ordinal:
            return None
        if _replaces(later, about):
            verb = "written" if later.act == "write" else "read again"
            return f"{about.label} was {verb} at {handle(ordinal)}"
    return None


def _replaces(later: Target, earlier: Target) -> bool:
    return later.act == "write" or later.span.covers(earlier.span)


def _failed(tool: Tool) -> bool:
    metadata = tool.state.metadata or {}
    status = metadata.get("exit", metadata.get("exit_code", 0))
    return bool(status) or bool(metadata.get("isError") or metadata.get("is_error"))


def _likeness(tool: Tool) -> tuple[str, int, str, str]:
    output = tool.state.output
    return tool.part.tool, len(output), output[:_LIKENESS], output[-_LIKENESS:]


def _decision(verdict: Verdict, tool: Tool, reason: str) -> Decision:
    return Decision(
        verdict=verdict,
        ordinal=tool.ordinal,
        part=tool.part.id or handle(tool.ordinal),
        tool=tool.part.tool,
        tokens=tool.tokens,
        reason=reason,
    )
