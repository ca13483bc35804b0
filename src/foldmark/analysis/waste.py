"""Tool outputs that are needless: repeated word for word, or made stale by a later call.

What is needless is told by the rules that pruning has, whether or not a policy follows them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest

from foldmark.compaction.prune import Decision, NewerCalls
from foldmark.log.log import CompletedCall, Log, handle
from foldmark.model.values import Frozen

LARGEST = 10


class Group(Frozen):
    """An output that came several times from the same tool, told by its newest."""

    session: int
    handle: str
    tool: str
    target: str
    times: int
    tokens: int  # of all but one


class Repeats(Frozen):
    """The outputs that are the same as another one of their tool."""

    outputs: int = 0  # all but one of each
    tokens: int = 0
    largest: tuple[Group, ...] = ()


class Stale(Frozen):
    """A read whose file was written since, or read again as far."""

    session: int
    handle: str
    tool: str
    target: str
    tokens: int
    by: str  # the handle of the call that made it stale
    reason: str


class Superseded(Frozen):
    """The outputs that later calls have made stale."""

    outputs: int = 0
    tokens: int = 0
    largest: tuple[Stale, ...] = ()


def repeats(log: Log, session: int = 1) -> Repeats:
    """The outputs of a log that stand there more than once."""
    times: Counter[tuple[str, str]] = Counter()
    newest: dict[tuple[str, str], CompletedCall] = {}
    for tool in log.calls.values():
        if tool.tokens:
            key = (tool.part.tool, tool.state.output)
            times[key] += 1
            newest[key] = tool
    groups = [_group(tool, times[key], session) for key, tool in newest.items() if times[key] > 1]
    return Repeats(
        outputs=sum(group.times - 1 for group in groups),
        tokens=sum(group.tokens for group in groups),
        largest=tuple(nlargest(LARGEST, groups, key=_group_tokens)),
    )


def superseded(log: Log, session: int = 1) -> Superseded:
    """The outputs of a log whose files were read again or written since."""
    stale = list(_stale(log, session))[::-1]
    return Superseded(
        outputs=len(stale),
        tokens=sum(one.tokens for one in stale),
        largest=tuple(nlargest(LARGEST, stale, key=_stale_tokens)),
    )


def _group(tool: CompletedCall, times: int, session: int) -> Group:
    return Group(
        session=session,
        handle=handle(tool.ordinal),
        tool=tool.part.tool,
        target=tool.target.label,
        times=times,
        tokens=tool.tokens * (times - 1),
    )


def _stale(log: Log, session: int) -> Iterator[Stale]:
    """Stale reads, the newest first."""
    newer = NewerCalls()
    for call in reversed(log.calls.values()):
        found = newer.superseding(call) if call.tokens else None
        if found is not None:
            yield Stale(
                session=session,
                handle=handle(call.ordinal),
                tool=call.part.tool,
                target=call.target.label,
                tokens=found.tokens,
                by=handle(found.other),
                reason=found.reason,
            )
        newer.add(call, is_pruned=False)


def _group_tokens(group: Group) -> int:
    return group.tokens


def _stale_tokens(stale: Stale) -> int:
    return stale.tokens


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
