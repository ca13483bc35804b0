"""`foldmark plan`: what prune and compact would do to a session now, and why."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.inspection import by_reason, newest_model
from foldmark.analysis.plan import Plan, session_plan
from foldmark.compaction.prune import Decision
from foldmark.errors import BadInput
from foldmark.files import harmless
from foldmark.log.log import handle
from foldmark.log.render import message_text
from foldmark.log.view import Viewer
from foldmark.model.values import Json
from foldmark.tokens.budget import exceeds, is_overflow, pressure, usable
from foldmark.tokens.limits import Limit, model_limits, narrowed

from ..groups import option
from ..layout import (
    QUIET,
    Row,
    answer,
    count,
    gauge,
    listing,
    pressure_colour,
    pressure_text,
    section,
    titled,
    words,
)
from ..options import AsJson, File, ModelOptions, ReadOptions, policy_named
from ..text import number, within

_MOST_ROWS, _FIRST_WORDS = 15, 120
_RECALL = "The model sees one line in place of each; its handle recalls it from the log."


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """What the policy's rules are changed to."""

    reserved: int | None = option("--reserved", "Tokens to keep free in the window.")
    threshold: float | None = option(
        "--threshold X",
        "Compact from here on: a fraction of the window, like 0.8, or tokens.",
    )
    auto: bool | None = option("--auto/--no-auto", "Compact by itself on overflow, or never.")
    prune: bool | None = option("--prune/--no-prune", "Prune, or never.")


def plan(
    file: File,
    *,
    json: AsJson = False,
    models: ModelOptions,
    rules: RuleOptions,
    reading: ReadOptions,
) -> None:
    """Show what prune and compact would do to a session now, and why. Nothing is changed.

    Example: foldmark plan session.json --model anthropic:claude-sonnet-4-5
    """
    policy = policy_named(models.policy).adjusted(**vars(rules))
    transcript, log = reading.open(file, policy)
    name = models.model or newest_model(log) or ""
    if not name and not models.window:
        cause = "no message names a model; give --model PROVIDER:NAME or --window N"
        raise BadInput(cause, source=harmless(file))
    limit = narrowed(name, models.window) if models.window else model_limits(name)
    viewer = Viewer(log, policy, model=name, usable=usable(policy, limit, name))
    report = PlanReport(viewer, limit, name, session_plan(viewer, limit, model=name))
    info = transcript.info
    pieces = report.pieces(info.title or "", info.directory or "")
    answer(report.as_json(), *(() if json else pieces), json=json)


class PlanReport:
    """A plan with what it was made for."""

    def __init__(self, viewer: Viewer, limit: Limit, model: str, plan: Plan) -> None:
        """Take the plan for a session as it is now."""
        self._viewer, self._policy, self._log = viewer, viewer.policy, viewer.log
        self._limit, self._model, self._plan = limit, model, plan
        self._left = plan.pruned_tokens
        self._left_pressure = pressure(self._left, plan.usable) if limit.context else 0.0

    def as_json(self) -> Json:
        """The plan as `--json` prints it."""
        plan, policy = self._plan, self._policy
        return {
            "policy": policy.name,
            "model": self._model or None,
            "window": self._limit.context,
            **{name: getattr(plan, name) for name in ("overflow", "usable", "tokens", "pressure")},
            "freed": plan.prune.tokens,
            "after_prune": {
                "tokens": self._left,
                "pressure": self._left_pressure,
                "overflow": is_overflow(policy, self._left, self._limit, self._model),
            },
            "auto": policy.auto,
            "folded": len(plan.fold.head),
            "prune": [_decision(held) for held in plan.prune.prune],
            "keep": [_decision(held) for held in plan.prune.keep],
            "tail_start": plan.tail_start,
        }

    def pieces(self, title: str, folder: str) -> Iterator[RenderableType]:
        """The whole report, piece by piece."""
        limit, prune = self._limit.context, self._plan.prune
        yield titled(
            title,
            [
                ("policy", self._policy.name),
                ("model", self._model or "not named"),
                ("window", number(limit, "token") if limit else "without limit"),
            ],
        )
        yield section("How full the window is", *self._fill())
        if prune.prune:
            hidden = f"{number(len(prune.prune), 'old tool output')}"
            head = f"Prune would hide {hidden} ({number(prune.tokens, 'token')})"
            table = listing("handle tool about tokens reason", self._pruned(folder))
            yield section(head, table, self._after_prune(), note=_RECALL)
        else:
            yield section("Prune would hide nothing")
        if prune.keep:
            rows = ((outputs, tokens, reason) for reason, outputs, tokens in by_reason(prune.keep))
            head = f"{number(len(prune.keep), 'tool output')} would stay in full, and why"
            yield section(head, listing("outputs tokens reason", rows))
        yield self._compaction()

    def _exceeds(self, tokens: int) -> bool:
        return exceeds(self._policy, tokens, self._limit, self._model)

    def _fill(self) -> Iterator[RenderableType]:
        plan = self._plan
        if not self._limit.context:
            yield Text(f"{number(plan.tokens, 'token')} used; this model has no limit.")
            return
        yield gauge(plan.pressure)
        yield Text(f"{plan.tokens:,} used of {number(plan.usable, 'usable token')}")
        if plan.overflow:
            text = "It overflows: the session must be made smaller before the next request."
            yield Text(text, style="bold red")
        elif self._exceeds(plan.tokens):
            text = "It is too full, but automatic compaction is off: compact it by hand."
            yield Text(text, style="bold yellow")
        elif not plan.tokens:
            yield Text("No answer has reported its tokens yet, and this policy estimates none.")
        else:
            left = number(plan.usable - plan.tokens, "token")
            yield Text(f"It fits: {left} are left before it must be compacted.", style="green")

    def _pruned(self, folder: str) -> Iterator[Row]:
        decisions = sorted(self._plan.prune.prune, key=lambda held: -held.tokens)
        for held in decisions[:_MOST_ROWS]:
            about = held.output.target.label
            reason = held.reason.replace(about, "its file", 1) if about else held.reason
            tokens = count(held.tokens, "yellow")
            yield handle(held.ordinal), held.tool, within(about, folder), tokens, reason
        if rest := decisions[_MOST_ROWS:]:
            tokens = count(sum(held.tokens for held in rest), QUIET)
            yield words("…", QUIET), "", "", tokens, f"and {len(rest):,} more"

    def _after_prune(self) -> Text:
        left = f"That would leave {number(self._left, 'token')}"
        if not self._limit.context:
            return Text(f"{left}.")
        verdict = "still too many" if self._exceeds(self._left) else "it fits, without a summary"
        text = f"{left} ({pressure_text(self._left_pressure)} of what is usable): {verdict}."
        return Text(text, style=pressure_colour(self._left_pressure))

    def _compaction(self) -> RenderableType:
        plan, log = self._plan, self._log
        head = plan.fold.head
        what = f"{number(len(head), 'message')} into one summary" if head else "nothing"
        kept = [Text("No message would be kept word for word after it.")]
        place = log.place(plan.tail_start) if plan.tail_start else None
        if place is not None:
            message = log.entries[place].message
            who = "user" if message.is_user else "assistant"
            first = words(message_text(message) or "(calls tools)", most=_FIRST_WORDS)
            where = f"from message {place + 1} of {len(log)} on"
            kept = [Text(f"Kept word for word: {where}, which begins so:")]
            kept.append(Text.assemble((f"{who}: ", QUIET), first))
        note = "The model sees the summary in their place; the log keeps every message."
        return section(f"A compaction now would fold {what}", *kept, note=note)


def _decision(held: Decision) -> Json:
    return {
        "part": held.part,
        "handle": handle(held.ordinal),
        "tool": held.tool,
        "tokens": held.tokens,
        "reason": held.reason,
    }
