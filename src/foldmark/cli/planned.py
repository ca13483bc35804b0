"""A plan as a report that explains itself to who never saw one."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.compaction.plan import Plan
from foldmark.compaction.prune import Decision, by_reason
from foldmark.log.log import Log, handle
from foldmark.log.render import message_text
from foldmark.model.messages import SessionInfo
from foldmark.policy import Policy
from foldmark.tokens.budget import exceeds, pressure
from foldmark.tokens.limits import Limit

from .tables import (
    QUIET,
    About,
    Row,
    count,
    facts,
    gauge,
    listing,
    pressure_colour,
    pressure_text,
    section,
    words,
)
from .text import number, within

MOST_ROWS = 15
_FIRST_WORDS = 120


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan with what it was made for, and the tokens that pruning alone would leave."""

    plan: Plan
    log: Log
    info: SessionInfo
    policy: Policy
    model: str
    limit: Limit
    pruned_tokens: int

    @property
    def pruned_pressure(self) -> float:
        """How full the window would be after pruning alone."""
        return pressure(self.pruned_tokens, self.plan.usable) if self.limit.context else 0.0


def report(made: Planned, *, most_rows: int = MOST_ROWS) -> Iterator[RenderableType]:
    """The whole report, piece by piece."""
    yield _head(made)
    yield fill(made)
    yield from prune_sections(made, most_rows)
    yield _compaction(made)


def _head(made: Planned) -> RenderableType:
    window = f"{number(made.limit.context, 'token')}" if made.limit.context else "without limit"
    head = facts(
        [
            ("policy", words(made.policy.name)),
            ("model", words(made.model or "not named")),
            ("window", words(window)),
        ]
    )
    return Group(words(made.info.title or "a session without a title", "bold"), head)


def fill(made: Planned) -> RenderableType:
    """How full the window is, and what follows from that."""
    plan = made.plan
    if not made.limit.context:
        return section(
            "How full the window is",
            Text(f"{number(plan.tokens, 'token')} used; this model has no limit."),
        )
    used = Text(f"{plan.tokens:,} used of {number(plan.usable, 'usable token')}")
    return section("How full the window is", gauge(plan.pressure), used, _consequence(made))


def _consequence(made: Planned) -> Text:
    plan = made.plan
    if plan.overflow:
        text = "It overflows: the session must be made smaller before the next request."
        return Text(text, style="bold red")
    if exceeds(made.policy, plan.tokens, made.limit, made.model):
        text = "It is too full, but automatic compaction is off: compact it by hand."
        return Text(text, style="bold yellow")
    if not plan.tokens:
        return Text("No answer has reported its tokens yet, and this policy estimates none.")
    left = number(plan.usable - plan.tokens, "token")
    return Text(f"It fits: {left} are left before it must be compacted.", style="green")


# --- prune ---------------------------------------------------------------------------------


def prune_sections(made: Planned, most_rows: int) -> Iterator[RenderableType]:
    """What would be hidden, what it leaves, and why the rest stays."""
    prune = made.plan.prune
    if prune.prune:
        yield section(
            f"Prune would hide {number(len(prune.prune), 'old tool output')} "
            f"({number(prune.tokens, 'token')})",
            _pruned(made, most_rows),
            _after_prune(made),
            note="The model sees one line in place of each; its handle recalls it from the log.",
        )
    else:
        yield section("Prune would hide nothing")
    if prune.keep:
        yield section(
            f"{number(len(prune.keep), 'tool output')} would stay in full, and why",
            listing(("outputs", "tokens", "reason"), _kept(prune.keep)),
        )


def _pruned(made: Planned, most_rows: int) -> RenderableType:
    decisions = sorted(made.plan.prune.prune, key=lambda held: -held.tokens)
    rows = [_prune_row(made, held) for held in decisions[:most_rows]]
    rest = decisions[most_rows:]
    if rest:
        tokens = sum(held.tokens for held in rest)
        more = Text(f"and {len(rest):,} more", style=QUIET)
        rows.append((Text("…", style=QUIET), Text(), Text(), count(tokens, QUIET), more))
    return listing(("handle", "tool", "about", "tokens", "reason"), rows)


def _prune_row(made: Planned, held: Decision) -> Row:
    folder = made.info.directory or ""
    about = held.output.target.label
    return (
        Text(handle(held.ordinal), style="cyan"),
        words(held.tool, most=16),
        About(within(about, folder)),
        count(held.tokens, "yellow"),
        words(held.reason.replace(about, "its file", 1) if about else held.reason, QUIET),
    )


def _after_prune(made: Planned) -> Text:
    if not made.limit.context:
        return Text(f"That would leave {number(made.pruned_tokens, 'token')}.")
    share = pressure_text(made.pruned_pressure)
    left = f"That would leave {number(made.pruned_tokens, 'token')} ({share} of what is usable)"
    too_full = exceeds(made.policy, made.pruned_tokens, made.limit, made.model)
    verdict = "still too many." if too_full else "it fits, without a summary."
    return Text(f"{left}: {verdict}", style=pressure_colour(made.pruned_pressure))


def _kept(decisions: tuple[Decision, ...]) -> Iterator[Row]:
    for held in by_reason(decisions):
        yield count(held.outputs), count(held.tokens), words(held.reason)


# --- compact -------------------------------------------------------------------------------


def _compaction(made: Planned) -> RenderableType:
    plan, log = made.plan, made.log
    head = plan.fold.head if plan.fold else ()
    folded = number(len(head), "message")
    title = "A compaction now would fold nothing"
    if head:
        title = f"A compaction now would fold {folded} into one summary"
    note = "The model sees the summary in their place; the log keeps every message."
    place = log.place(plan.tail_start) if plan.tail_start else None
    if place is None:
        return section(title, Text("No message would be kept word for word after it."), note=note)
    message = log.entries[place].message
    who = "user" if message.is_user else "assistant"
    return section(
        title,
        Text(f"Kept word for word: from message {place + 1} of {len(log)} on, which begins so:"),
        Text.assemble(
            (f"{who}: ", QUIET), words(message_text(message) or "(calls tools)", most=_FIRST_WORDS)
        ),
        note=note,
    )
