"""`foldmark plan`: what prune and compact would do to a session now, and why."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.inspection import by_reason, newest_model
from foldmark.analysis.plan import Plan, session_plan
from foldmark.compaction.prune import Decision
from foldmark.errors import BadInput
from foldmark.files import printable
from foldmark.log.log import handle
from foldmark.log.render import message_text
from foldmark.log.view import Viewer
from foldmark.model.values import Json
from foldmark.tokens.budget import exceeds, is_overflow, pressure, usable
from foldmark.tokens.limits import Limit, limits_with_window, model_limits

from ..groups import option
from ..layout import (
    QUIET,
    Row,
    answer,
    count,
    gauge,
    listing,
    pressure_color,
    pressure_text,
    report_head,
    safe_text,
    section,
)
from ..options import AsJson, File, ModelOptions, ReadOptions, policy_named
from ..text import number, strip_folder

_MOST_ROWS, _FIRST_WORDS = 15, 120
_RECALL = "The model sees one line in place of each; the handle in it recalls the output."


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Changes to the rules of the policy."""

    reserved: int | None = option("--reserved TOKENS", "Tokens to keep free in the window.")
    threshold: float | None = option(
        "--threshold X",
        "Usage at which to compact: a fraction of the window, such as 0.8, or a number of tokens.",
    )
    auto: bool | None = option("--auto/--no-auto", "Compact automatically on overflow, or never.")
    prune: bool | None = option("--prune/--no-prune", "Prune old tool outputs, or never.")


def plan(
    file: File,
    *,
    models: ModelOptions,
    rules: RuleOptions,
    reading: ReadOptions,
    json: AsJson = False,
) -> None:
    """Show what prune and compact would do to a session now, and why. Nothing is changed.

    Example: foldmark plan session.json --model anthropic:claude-sonnet-4-5
    """
    policy = policy_named(models.policy).adjusted(**vars(rules))
    transcript, log = reading.open(file, policy)
    name = models.model or newest_model(log) or ""
    if not name and not models.window:
        cause = "no message names a model; give --model PROVIDER:NAME or --window N"
        raise BadInput(cause, source=printable(file))
    limit = limits_with_window(name, models.window) if models.window else model_limits(name)
    viewer = Viewer(log, policy, model=name, usable=usable(policy, limit, name))
    report = PlanReport(viewer, limit, name, session_plan(viewer, limit, model=name))
    info = transcript.info
    pieces = report.pieces(info.title or "", info.directory or "")
    answer(report.as_json(), *(() if json else pieces), json=json)


class PlanReport:
    """A plan and the model it was made for."""

    def __init__(self, viewer: Viewer, limit: Limit, model: str, plan: Plan) -> None:
        """Take the plan for the current session."""
        self._viewer, self._policy, self._log = viewer, viewer.policy, viewer.log
        self._limit, self._model, self._plan = limit, model, plan
        self._tokens_after_prune = plan.pruned_tokens
        after_prune = pressure(plan.pruned_tokens, plan.usable) if limit.context else 0.0
        self._pressure_after_prune = after_prune

    def as_json(self) -> Json:
        """The plan as `--json` prints it."""
        plan, policy, tokens = self._plan, self._policy, self._tokens_after_prune
        return {
            "policy": policy.name,
            "model": self._model or None,
            "window": self._limit.context,
            **{name: getattr(plan, name) for name in ("overflow", "usable", "tokens", "pressure")},
            "freed": plan.prune.tokens,
            "after_prune": {
                "tokens": tokens,
                "pressure": self._pressure_after_prune,
                "overflow": is_overflow(policy, self._tokens_after_prune, self._limit, self._model),
            },
            "auto": policy.auto,
            "folded": len(plan.fold.head),
            "prune": [_decision(decision) for decision in plan.prune.prune],
            "keep": [_decision(decision) for decision in plan.prune.keep],
            "tail_start": plan.tail_start,
        }

    def pieces(self, title: str, folder: str) -> Iterator[RenderableType]:
        """The parts of the report."""
        limit, prune = self._limit.context, self._plan.prune
        yield report_head(
            title,
            [
                ("policy", self._policy.name),
                ("model", self._model or "unknown"),
                ("window", number(limit, "token") if limit else "no limit"),
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
            head = f"{number(len(prune.keep), 'tool output')} would stay, and why"
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
            text = "It overflows: the session must shrink before the next request."
            yield Text(text, style="bold red")
        elif self._exceeds(plan.tokens):
            text = "It is too full, but automatic compaction is off: compact it manually."
            yield Text(text, style="bold yellow")
        elif not plan.tokens:
            yield Text("No reply has reported its tokens yet, and this policy does not estimate.")
        else:
            left = number(plan.usable - plan.tokens, "token")
            yield Text(f"It fits: {left} left before a compaction.", style="green")

    def _pruned(self, folder: str) -> Iterator[Row]:
        decisions = sorted(self._plan.prune.prune, key=lambda decision: -decision.tokens)
        for decision in decisions[:_MOST_ROWS]:
            about = decision.output.target.label
            reason = decision.reason.replace(about, "its file", 1) if about else decision.reason
            tokens = count(decision.tokens, "yellow")
            subject = strip_folder(about, folder)
            yield handle(decision.ordinal), decision.tool, subject, tokens, reason
        if rest := decisions[_MOST_ROWS:]:
            tokens = count(sum(decision.tokens for decision in rest), QUIET)
            yield safe_text("…", QUIET), "", "", tokens, f"and {len(rest):,} more"

    def _after_prune(self) -> Text:
        text = f"That would leave {number(self._tokens_after_prune, 'token')}"
        if not self._limit.context:
            return Text(f"{text}.")
        is_too_full = self._exceeds(self._tokens_after_prune)
        verdict = "still too many" if is_too_full else "it fits, without a summary"
        usage = self._pressure_after_prune
        text = f"{text} ({pressure_text(usage)} of the usable tokens): {verdict}."
        return Text(text, style=pressure_color(usage))

    def _compaction(self) -> RenderableType:
        plan, log = self._plan, self._log
        head = plan.fold.head
        what = number(len(head), "message") if head else "nothing"
        tail = [Text("No recent messages would be kept verbatim.")]
        index = log.index_of(plan.tail_start) if plan.tail_start else None
        if index is not None:
            message = log.entries[index].message
            who = "user" if message.is_user else "assistant"
            first = safe_text(message_text(message) or "(calls tools)", limit=_FIRST_WORDS)
            where = f"from message {index + 1} of {len(log)} on"
            tail = [Text(f"Recent messages kept verbatim: {where}, which starts with:")]
            tail.append(Text.assemble((f"{who}: ", QUIET), first))
        note = "The model sees the summary in their place; the log keeps every message."
        return section(f"Compact would summarize {what}", *tail, note=note)


def _decision(decision: Decision) -> Json:
    return {
        "part": decision.part,
        "handle": handle(decision.ordinal),
        "tool": decision.tool,
        "tokens": decision.tokens,
        "reason": decision.reason,
    }
