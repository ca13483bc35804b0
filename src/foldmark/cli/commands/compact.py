"""`foldmark compact`: a transcript made to fit a window, and where each token of it went."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs
from rich.console import RenderableType
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.files import harmless
from foldmark.log.log import handle
from foldmark.model.values import Json, encode
from foldmark.providers.models import model_named
from foldmark.session.in_memory import FitGoal, FitReport, fit_transcript
from foldmark.session.settings import DIGEST
from foldmark.summary.ladder import ModelUsage
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.budget import pressure
from foldmark.transcripts.write_wires import own_wire, wire_view
from foldmark.wire.codec import WIRES, wire_named

from ..groups import flag, option
from ..layout import (
    FORCE,
    QUIET,
    STANDARD_OUTPUT,
    Row,
    answer,
    bars,
    check_output,
    count,
    facts,
    gauge,
    labelled,
    listing,
    quoted,
    section,
    titled,
    words,
    write_file,
    write_json,
)
from ..options import BASE_URL, AsJson, File, ModelOptions, ReadOptions, policy_named
from ..progress import waiting
from ..text import number, within

_LEAST_TARGET = 50
_MOST_ROWS, _SUMMARY_LINES = 8, 12
_HOW = {
    "prefix": "in the session's own request, with one message more",
    "serial": "from the record as text",
    "chunks": "from notes on each part of the record",
    "tight": "from the digest, as the record was too long",
}
# What a view is made of, in the order of the view.
_SHARES = {
    "words": ("the user's own words", "cyan"),
    "summary": ("the summary", "magenta"),
    "digest": ("the digest", "magenta"),
    "kept": ("kept word for word", "green"),
    "placeholders": ("pruned: one line each", "yellow"),
    "notes": ("notes between messages", "white"),
}
_GONE = {
    "kept": ("kept word for word", "green"),
    "pruned": ("pruned", "yellow"),
    "folded": ("folded", "magenta"),
}


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What the messages shall fit into, and how they are summarized and written."""

    target: int | None = option(
        "--target",
        "Tokens that the messages shall have at most, beside a system prompt.",
        min=_LEAST_TARGET,
    )
    summarizer: str = option(
        "--summarizer NAME",
        "Summarizer: digest, which asks nobody and costs nothing, or PROVIDER:MODEL.",
        default=DIGEST,
    )
    base_url: str | None = option(*BASE_URL)
    wire: str | None = option(
        "--wire NAME", f"One of {', '.join(WIRES)}; the transcript's own unless given."
    )
    instructions: str = option(
        "--instructions TEXT", "What the summary shall look at most.", default=""
    )
    output: str | None = option(
        "-o --output FILE",
        "Write the messages to a file that only you may read; - is standard output.",
        show_default=False,
    )
    force: bool = flag(*FORCE)


def compact(
    file: File,
    *,
    models: ModelOptions,
    fit: FitOptions,
    json: AsJson = False,
    reading: ReadOptions,
) -> None:
    """Make a session fit a window, and show where each token went. The file is not changed.

    Old tool outputs are pruned where that is enough; else the older part is folded into a summary.

    Example: foldmark compact session.jsonl --window 64000 --output messages.json
    """
    if fit.target is not None and models.window is not None and fit.target > models.window:
        raise BadInput(
            f"--target {fit.target} is more than --window {models.window} holds; "
            "give a smaller target"
        )
    if fit.output is not None:
        _check_output(fit.output, file, force=fit.force, json=json)
    wire = None if fit.wire is None else wire_named(fit.wire).name
    goal = FitGoal(
        policy=policy_named(models.policy),
        window=models.window,
        target=fit.target,
        model=models.model,
        instructions=fit.instructions,
        summarizer=_summarizer(fit.summarizer, fit.base_url),
    )
    transcript, log = reading.open(file, goal.policy)
    with waiting(goal.summarizer.name if goal.summarizer else None) as delta:
        report = fit_transcript(transcript, log, goal, file=harmless(file), delta=delta)
    _answer(report, wire or own_wire(transcript, report.model), fit.output, json=json)


def _check_output(output: str, file: str, *, force: bool, json: bool) -> None:
    """Refuse, before any work is done, what could not be written in the end."""
    if output == STANDARD_OUTPUT:
        if json:
            raise BadInput("--json and --output - both print; --json has the messages, too")
        return
    check_output(output, force=force)
    here, there = Path(file), Path(output)
    # A model may have been paid by the time of writing.
    if not os.access(there.parent, os.W_OK | os.X_OK):
        raise BadInput("its folder is not there, or not yours to write", source=harmless(output))
    if here.exists() and there.exists() and here.samefile(there):
        raise BadInput("this is the transcript itself; give another file", source=harmless(output))


def _summarizer(name: str, base_url: str | None) -> Summarizer | None:
    """The model that summarizes; None for a digest, which needs none."""
    if name != DIGEST:
        if ":" not in name:
            raise BadInput(f"--summarizer is {DIGEST} or PROVIDER:MODEL, not {name!r}")
        return model_named(name, base_url=base_url)
    if base_url:
        raise BadInput("--base-url is for a model that summarises; give --summarizer, too")
    return None


def _answer(report: FitReport, wire: str, output: str | None, *, json: bool) -> None:
    messages = wire_view(report.viewer.view().messages, report.info, wire)
    if output == STANDARD_OUTPUT:
        write_json(encode(messages))
        return
    if output is not None:
        write_file(output, encode(messages))
    value: Json = _as_json(report) | {"wire": wire, "out": output, "messages": messages}
    told = number(len(messages), f"{wire} message")
    end = Text(f"--output FILE writes the {told}; --json prints them with all figures.", QUIET)
    if output is not None:
        end = words(f"Wrote {told} to {output}.", "green", most=1_000)
    answer(value, *_pieces(report, wire), end, json=json)


def _as_json(report: FitReport) -> Json:
    fitted, spent, summarizer = report.fitted, report.spent, report.goal.summarizer
    entries, last = report.viewer.log.entries, fitted.folded[-1] if fitted.folded else None
    return {
        "policy": report.goal.policy.name,
        "model": report.model or None,
        "window": report.limit.context or None,
        "usable": report.usable,
        "target": report.goal.target,
        "wire": "",
        "fixed": report.fixed,
        "used": report.used,
        "before": structs.asdict(fitted.before),
        "after": structs.asdict(fitted.after),
        "pressure": pressure(fitted.after.tokens + report.fixed, report.usable),
        "summary": report.summary,
        "how": last.how if last else None,
        "summarizer": summarizer.name if summarizer else DIGEST,
        "calls": spent.calls,
        "spent": spent.tokens,
        "cost": spent.cost,
        "flaws": list(spent.flaws),
        "pruned": [
            {
                "part": tool.part.id or handle(tool.ordinal),
                "handle": handle(tool.ordinal),
                "tool": tool.part.tool,
                "tokens": tool.tokens + tool.attached,
            }
            for tool in map(report.viewer.log.calls.__getitem__, fitted.pruned)
        ],
        "folded": [
            {"message": entries[place].message.id, "number": place + 1}
            for place in report.folded_places
        ],
        "tail_start": last.fold.tail_start if last else None,
        "tokens": {"before": report.gone, "after": report.shares},
    }


# --- the report ----------------------------------------------------------------------------


def _pieces(report: FitReport, wire: str) -> Iterator[RenderableType]:
    yield titled(report.info.title or "", _head(report, wire))
    yield from _result(report)
    if report.fitted.pruned:
        yield _pruned(report)
    if report.fitted.folded:
        yield _folded(report)
        yield section("How the summary was made", facts(_how(report)))
        yield section("The summary begins so", *quoted(report.summary or "", _SUMMARY_LINES))


def _head(report: FitReport, wire: str) -> Iterator[tuple[str, str]]:
    limit = report.limit.context
    yield "policy", report.goal.policy.name
    yield "model", report.model or "not named"
    window = f"{number(limit, 'token')}, {report.usable:,} of them usable"
    yield "window", window if limit else "no limit"
    if report.goal.target is not None:
        yield "target", number(report.goal.target, "token")
    yield "wire", wire
    if report.fixed:
        tokens = number(report.fixed, "token")
        yield "beside", f"{tokens} of system prompt and tools in each request"


def _result(report: FitReport) -> Iterator[RenderableType]:
    """Before and after, and where each token went."""
    fitted, limit = report.fitted, report.limit.context
    before, after = fitted.before, fitted.after
    full = pressure(after.tokens + report.fixed, report.usable)
    fill = gauge(full) if limit else Text("This model has no limit.")
    now = bars(labelled(report.shares, _SHARES), after.tokens)
    if not fitted.pruned and not fitted.folded:
        text = f"{number(after.tokens, 'token')} in {number(after.messages, 'message')}"
        yield section("It fits already: nothing was done", fill, Text(text))
        yield section("What the view is made of", now)
        return
    text = f"{number(before.messages, 'message')} before, {after.messages:,} in the view now"
    pieces: list[RenderableType] = [fill, Text(text)]
    if report.used > before.tokens + report.fixed:
        # A transcript may not have all that was sent: then this is why it was too full.
        used = number(report.used, "token")
        more = f"By what a provider measured, a request had {used} before."
        pieces.append(Text(more, style=QUIET))
    yield section(f"From {before.tokens:,} to {number(after.tokens, 'token')}", *pieces)
    yield section(
        "Where each token went",
        Text("before", style=QUIET),
        bars(labelled(report.gone, _GONE), before.tokens),
        Text("in the view now", style=QUIET),
        now,
        note="The model is shown the second; the transcript keeps all of the first.",
    )


def _pruned(report: FitReport) -> RenderableType:
    calls = report.viewer.log.calls
    tools = sorted((calls[held] for held in report.fitted.pruned), key=lambda tool: -tool.tokens)
    folder = report.info.directory or ""
    rows: list[Row] = []
    for tool in tools[:_MOST_ROWS]:
        about, tokens = within(tool.target.label, folder), count(tool.tokens, "yellow")
        rows.append((handle(tool.ordinal), tool.part.tool, about, tokens))
    if rest := tools[_MOST_ROWS:]:
        more = Text(f"and {len(rest):,} more", style=QUIET)
        rows.append((words("…", QUIET), "", more, sum(tool.tokens for tool in rest)))
    title = f"Pruned: {number(len(tools), 'old tool output')}"
    table = listing("handle tool about tokens", rows)
    return section(title, table, note="One line stands for each; no summary was needed.")


def _folded(report: FitReport) -> RenderableType:
    viewer, log = report.viewer, report.viewer.log
    inside = set(report.folded_places)
    asked = [request for request in log.requests.all if request.index in inside]
    last = report.fitted.folded[-1].fold
    tail = [place for place in last.tail_places if place in viewer.cells]
    kept = "no message was kept word for word"
    if tail:
        kept = f"kept word for word: {number(len(tail), 'message')}, from {tail[0] + 1:,} on"
    what = f"{number(len(inside), 'message')} with {number(len(asked), 'request')}"
    rows: list[Row] = []
    if (rest := len(asked) - _MOST_ROWS) > 0:
        rows.append((words("…", QUIET), "", Text(f"{rest:,} earlier ones", style=QUIET)))
    for request in asked[-_MOST_ROWS:]:
        state = "answered" if log.requests.answered(request, len(log)) else "open"
        rows.append((request.index + 1, state, request.text[:400]))
    table = [listing("message request about", rows)] if rows else []
    return section(f"Folded: {what}; {kept}", *table)


def _how(report: FitReport) -> Iterator[tuple[str, RenderableType]]:
    how, spent, summarizer = report.fitted.folded[-1].how, report.spent, report.goal.summarizer
    if how != DIGEST:
        yield "by", f"{summarizer.name if summarizer else DIGEST}, {_HOW[how]}"
        if report.shares.digest:
            yield "beside it", "the digest, so that names and outcomes are exact"
    elif summarizer is None:
        yield "by", "the digest: no model was asked, nothing was sent anywhere"
    else:
        failed = f"the digest: {summarizer.name} gave no summary that could be used"
        yield "by", words(failed, "bold yellow")
    if spent.calls:
        yield "took", _took(spent)
    yield from (("on the way", words(flaw, "yellow")) for flaw in spent.flaws)


def _took(spent: ModelUsage) -> str:
    parts = [number(spent.calls, "call")]
    if (tokens := spent.tokens) is not None:
        read = int(tokens.cache.read or 0) if tokens.cache else 0
        parts.append(f"{number(int(tokens.input or 0), 'token')} in")
        parts += [f"{number(read, 'token')} from the cache"] if read else []
        parts.append(f"{number(int(tokens.output or 0), 'token')} out")
    return ", ".join([*parts, f"${spent.cost:,.4f}"] if spent.cost else parts)
