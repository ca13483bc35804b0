"""`foldmark plan`: what prune and compact would do to a session now, and why."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.inspection import by_reason, newest_model
from foldmark.compaction.plan import Plan, session_plan, tokens_used
from foldmark.compaction.prune import Decision
from foldmark.errors import BadInput
from foldmark.files import harmless
from foldmark.log.log import handle
from foldmark.log.render import message_text
from foldmark.log.view import Viewer
from foldmark.model.messages import SessionInfo
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
from ..options import (
    AsJson,
    File,
    ModelOptions,
    ReadOptions,
    fraction_or_tokens,
    policy_named,
)
from ..text import number, within

_MOST_ROWS, _FIRST_WORDS = 15, 120


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """What the policy's rules are changed to."""

    reserved: int | None = option("--reserved", "Tokens to keep free in the window.")
    threshold: float | None = option(
        "--threshold X",
        "Compact from here on: a fraction of the window, like 0.8, or tokens.",
        parser=fraction_or_tokens,
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
    limit = narrowed(name, models.window) if models.window else _limits(name, file)
    viewer = Viewer(log, policy, model=name, usable=usable(policy, limit, name))
    report = PlanReport.made(viewer, limit, transcript.info, model=name)
    answer(report.as_json(), *report.pieces(), json=json)


def _limits(model: str, file: str) -> Limit:
    if not model:
        cause = "no message names a model; give --model PROVIDER:NAME or --window N"
        raise BadInput(cause, source=harmless(file))
    return model_limits(model)


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """A plan with what it was made for, and the tokens that pruning alone would leave."""

    plan: Plan
    viewer: Viewer
    info: SessionInfo
    model: str
    limit: Limit
    pruned_tokens: int

    @classmethod
    def made(cls, viewer: Viewer, limit: Limit, info: SessionInfo, *, model: str) -> "PlanReport":
        """The plan for a session as it is now."""
        plan = session_plan(viewer, limit, model=model, explain=True)
        after = _tokens_after(viewer, plan) if plan.prune.prune else plan.tokens
        return cls(
            plan=plan, viewer=viewer, info=info, model=model, limit=limit, pruned_tokens=after
        )

    @property
    def pruned_pressure(self) -> float:
        """How full the window would be after pruning alone."""
        return pressure(self.pruned_tokens, self.plan.usable) if self.limit.context else 0.0

    def as_json(self) -> Json:
        """The plan as `--json` prints it."""
        plan, policy, after = self.plan, self.viewer.policy, self.pruned_tokens
        return {
            "policy": policy.name,
            "model": self.model or None,
            "window": self.limit.context,
            "overflow": plan.overflow,
            "usable": plan.usable,
            "tokens": plan.tokens,
            "pressure": plan.pressure,
            "freed": plan.prune.tokens,
            "after_prune": {
                "tokens": after,
                "pressure": self.pruned_pressure,
                "overflow": is_overflow(policy, after, self.limit, self.model),
            },
            "auto": policy.auto,
            "folded": len(plan.fold.head) if plan.fold else 0,
            "prune": [_decision(held) for held in plan.prune.prune],
            "keep": [_decision(held) for held in plan.prune.keep],
            "tail_start": plan.tail_start,
        }

    def pieces(self) -> Iterator[RenderableType]:
        """The whole report, piece by piece."""
        window = number(self.limit.context, "token") if self.limit.context else "without limit"
        yield titled(
            self.info.title or "",
            [
                ("policy", self.viewer.policy.name),
                ("model", self.model or "not named"),
                ("window", window),
            ],
        )
        yield section("How full the window is", *self._fill())
        yield from self._prune()
        yield self._compaction()

    def _prune(self) -> Iterator[RenderableType]:
        prune = self.plan.prune
        if prune.prune:
            yield section(
                f"Prune would hide {number(len(prune.prune), 'old tool output')} "
                f"({number(prune.tokens, 'token')})",
                listing("handle tool about tokens reason", self._pruned()),
                self._after_prune(),
                note="The model sees one line in place of each; its handle recalls it "
                "from the log.",
            )
        else:
            yield section("Prune would hide nothing")
        if prune.keep:
            rows = ((outputs, tokens, reason) for reason, outputs, tokens in by_reason(prune.keep))
            yield section(
                f"{number(len(prune.keep), 'tool output')} would stay in full, and why",
                listing("outputs tokens reason", rows),
            )

    def _fill(self) -> Iterator[RenderableType]:
        plan, policy = self.plan, self.viewer.policy
        if not self.limit.context:
            yield Text(f"{number(plan.tokens, 'token')} used; this model has no limit.")
            return
        yield gauge(plan.pressure)
        yield Text(f"{plan.tokens:,} used of {number(plan.usable, 'usable token')}")
        if plan.overflow:
            text = "It overflows: the session must be made smaller before the next request."
            yield Text(text, style="bold red")
        elif exceeds(policy, plan.tokens, self.limit, self.model):
            text = "It is too full, but automatic compaction is off: compact it by hand."
            yield Text(text, style="bold yellow")
        elif not plan.tokens:
            yield Text("No answer has reported its tokens yet, and this policy estimates none.")
        else:
            left = number(plan.usable - plan.tokens, "token")
            yield Text(f"It fits: {left} are left before it must be compacted.", style="green")

    def _pruned(self) -> Iterator[Row]:
        decisions = sorted(self.plan.prune.prune, key=lambda held: -held.tokens)
        for held in decisions[:_MOST_ROWS]:
            about = held.output.target.label
            reason = held.reason.replace(about, "its file", 1) if about else held.reason
            shown = within(about, self.info.directory or "")
            yield handle(held.ordinal), held.tool, shown, count(held.tokens, "yellow"), reason
        if rest := decisions[_MOST_ROWS:]:
            tokens = sum(held.tokens for held in rest)
            yield words("…", QUIET), "", "", count(tokens, QUIET), f"and {len(rest):,} more"

    def _after_prune(self) -> Text:
        left = f"That would leave {number(self.pruned_tokens, 'token')}"
        if not self.limit.context:
            return Text(f"{left}.")
        share = pressure_text(self.pruned_pressure)
        policy = self.viewer.policy
        too_full = exceeds(policy, self.pruned_tokens, self.limit, self.model)
        verdict = "still too many." if too_full else "it fits, without a summary."
        text = f"{left} ({share} of what is usable): {verdict}"
        return Text(text, style=pressure_colour(self.pruned_pressure))

    def _compaction(self) -> RenderableType:
        plan, log = self.plan, self.viewer.log
        title = "A compaction now would fold nothing"
        if plan.fold and plan.fold.head:
            folded = number(len(plan.fold.head), "message")
            title = f"A compaction now would fold {folded} into one summary"
        note = "The model sees the summary in their place; the log keeps every message."
        place = log.place(plan.tail_start) if plan.tail_start else None
        if place is None:
            text = Text("No message would be kept word for word after it.")
            return section(title, text, note=note)
        message = log.entries[place].message
        who = "user" if message.is_user else "assistant"
        first = words(message_text(message) or "(calls tools)", most=_FIRST_WORDS)
        kept = f"Kept word for word: from message {place + 1} of {len(log)} on, which begins so:"
        return section(title, Text(kept), Text.assemble((f"{who}: ", QUIET), first), note=note)


def _tokens_after(viewer: Viewer, made: Plan) -> int:
    """What the session would have once the plan's outputs are hidden: tried, and taken back."""
    log, before, measured = viewer.log, viewer.tokens, viewer.log.measured
    log.mark(made.prune.ordinals, at=1)
    freed, tokens = before - viewer.tokens, tokens_used(viewer)
    log.unmark(made.prune.ordinals)
    log.measured = measured  # marks make the log forget it
    # A policy that only measures knows nothing until the next answer.
    return tokens if viewer.policy.window.preflight else max(0, made.tokens - freed)


def _decision(held: Decision) -> Json:
    return {
        "part": held.part,
        "handle": handle(held.ordinal),
        "tool": held.tool,
        "tokens": held.tokens,
        "reason": held.reason,
    }
