"""`foldmark compact`: make a transcript fit a window, and show where each token went."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs
from rich.console import RenderableType
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.files import printable
from foldmark.log.log import handle
from foldmark.model.values import Json, encode
from foldmark.providers.models import model_named
from foldmark.session.in_memory import FitGoal, FitReport, fit_transcript
from foldmark.session.settings import DIGEST
from foldmark.summary.fallback import ModelUsage
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.budget import pressure
from foldmark.transcripts.write_api import own_wire, wire_view
from foldmark.wire.codec import WIRES, codec_named

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
    labeled,
    listing,
    quote_lines,
    report_head,
    safe_text,
    section,
    write_file,
    write_json,
)
from ..options import BASE_URL, AsJson, File, ModelOptions, ReadOptions, policy_named
from ..progress import model_progress
from ..text import number, strip_folder

_MIN_TARGET = 50
_MOST_ROWS, _SUMMARY_LINES = 8, 12
_HOW = {
    "prefix": "in one more message of the session's own request",
    "serial": "from the session as text",
    "chunks": "from notes on each part of the session",
    "tight": "from the digest, because the session was too long",
}
# The parts of a view, in the order of the view.
_SHARES = {
    "words": ("the user's messages", "cyan"),
    "summary": ("the summary", "magenta"),
    "digest": ("the digest", "magenta"),
    "kept": ("kept verbatim", "green"),
    "placeholders": ("pruned: one line each", "yellow"),
    "notes": ("notes between messages", "white"),
}
_ORIGINS = {
    "kept": ("kept verbatim", "green"),
    "pruned": ("pruned", "yellow"),
    "folded": ("summarized", "magenta"),
}


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The target size, and how to summarize and write the messages."""

    target: int | None = option(
        "--target TOKENS",
        "Limit for the messages in tokens, not counting a system prompt.",
        min=_MIN_TARGET,
    )
    summarizer: str = option(
        "--summarizer NAME",
        "Summarizer: `digest` (no model, no cost) or PROVIDER:MODEL.",
        default=DIGEST,
    )
    base_url: str | None = option(*BASE_URL)
    api: str | None = option(
        "--api NAME",
        f"API format of the messages: {', '.join(WIRES)} (default: the transcript's own).",
    )
    instructions: str = option(
        "--instructions TEXT", "Tell the summarizer what to focus on.", default=""
    )
    output: str | None = option(
        "-o --output FILE",
        "Write the messages to a file that only you can read; - writes to standard output.",
        show_default=False,
    )
    force: bool = flag(*FORCE)


def compact(
    file: File, *, models: ModelOptions, fit: FitOptions, json: AsJson = False, reading: ReadOptions
) -> None:
    """Make a session fit a window, and show where each token went. The file is not changed.

    Prunes old tool outputs if that is enough; otherwise it also summarizes the older messages.

    Example: foldmark compact session.jsonl --window 64000 --output messages.json
    """
    if fit.target is not None and models.window is not None and fit.target > models.window:
        sizes = f"--target {fit.target} is more than --window {models.window}"
        raise BadInput(f"{sizes}; give a smaller target")
    if fit.output is not None:
        _check_output(fit.output, file, force=fit.force, json=json)
    wire = None if fit.api is None else codec_named(fit.api).name
    goal = FitGoal(
        policy=policy_named(models.policy),
        window=models.window,
        target=fit.target,
        model=models.model,
        instructions=fit.instructions,
        summarizer=_summarizer(fit.summarizer, fit.base_url),
    )
    transcript, log = reading.open(file, goal.policy)
    with model_progress(goal.summarizer.name if goal.summarizer else None) as delta:
        report = fit_transcript(transcript, log, goal, file=printable(file), delta=delta)
    _answer(report, wire or own_wire(transcript, report.model), fit.output, json=json)


def _check_output(output: str, file: str, *, force: bool, json: bool) -> None:
    """Raises BadInput before any work is done if the output cannot be written."""
    if output == STANDARD_OUTPUT:
        if json:
            raise BadInput("--json includes the messages already; leave out --output -")
        return
    check_output(output, force=force)
    source, target = Path(file), Path(output)
    # Check now: at the time of writing, a model may have been paid for.
    if not os.access(target.parent, os.W_OK | os.X_OK):
        cause = "its folder does not exist or is not writable; choose another folder"
        raise BadInput(cause, source=printable(output))
    if source.exists() and target.exists() and source.samefile(target):
        raise BadInput(
            "this is the transcript itself; choose another file", source=printable(output)
        )


def _summarizer(name: str, base_url: str | None) -> Summarizer | None:
    """The model that summarizes, or None for a digest."""
    if name != DIGEST:
        if ":" not in name:
            raise BadInput(f"--summarizer {name!r} is unknown; give {DIGEST} or PROVIDER:MODEL")
        return model_named(name, base_url=base_url)
    if base_url:
        raise BadInput("--base-url needs a model that summarizes; add --summarizer PROVIDER:MODEL")
    return None


def _answer(report: FitReport, wire: str, output: str | None, *, json: bool) -> None:
    messages = wire_view(report.viewer.view().messages, report.info, wire)
    if output == STANDARD_OUTPUT:
        write_json(encode(messages))
        return
    if output is not None:
        write_file(output, encode(messages))
    value: Json = _as_json(report) | {"wire": wire, "out": output, "messages": messages}
    amount = number(len(messages), f"{wire} message")
    end = Text(f"Write the {amount} with --output FILE, or print all as JSON with --json.", QUIET)
    if output is not None:
        end = safe_text(f"Wrote {amount} to {output}.", "green", limit=1_000)
    answer(value, *_pieces(report, wire), end, json=json)


def _as_json(report: FitReport) -> Json:
    outcome, usage, summarizer = report.outcome, report.usage, report.goal.summarizer
    entries, last = report.viewer.log.entries, outcome.summaries[-1] if outcome.summaries else None
    return {
        "policy": report.goal.policy.name,
        "model": report.model or None,
        "window": report.limit.context or None,
        "usable": report.usable,
        "target": report.goal.target,
        "wire": "",
        "fixed": report.fixed,
        "used": report.used,
        "before": structs.asdict(outcome.before),
        "after": structs.asdict(outcome.after),
        "pressure": pressure(outcome.after.tokens + report.fixed, report.usable),
        "summary": report.summary,
        "how": last.how if last else None,
        "summarizer": summarizer.name if summarizer else DIGEST,
        "calls": usage.calls,
        "spent": usage.tokens,
        "cost": usage.cost,
        "flaws": list(usage.flaws),
        "pruned": [
            {
                "part": tool.part.id or handle(tool.ordinal),
                "handle": handle(tool.ordinal),
                "tool": tool.part.tool,
                "tokens": tool.tokens + tool.attached,
            }
            for tool in map(report.viewer.log.calls.__getitem__, outcome.pruned)
        ],
        "folded": [
            {"message": entries[index].message.id, "number": index + 1}
            for index in report.folded_indexes
        ],
        "tail_start": last.fold.tail_start if last else None,
        "tokens": {"before": report.fates, "after": report.shares},
    }


# --- the report ----------------------------------------------------------------------------


def _pieces(report: FitReport, wire: str) -> Iterator[RenderableType]:
    yield report_head(report.info.title or "", _head(report, wire))
    yield from _result(report)
    if report.outcome.pruned:
        yield _pruned(report)
    if report.outcome.summaries:
        yield _folded(report)
        yield section("How the summary was made", facts(_how(report)))
        yield section("The summary starts with", *quote_lines(report.summary or "", _SUMMARY_LINES))


def _head(report: FitReport, wire: str) -> Iterator[tuple[str, str]]:
    limit = report.limit.context
    yield "policy", report.goal.policy.name
    yield "model", report.model or "unknown"
    window = f"{number(limit, 'token')}, {report.usable:,} of them usable"
    yield "window", window if limit else "no limit"
    if report.goal.target is not None:
        yield "target", number(report.goal.target, "token")
    yield "API format", wire
    if report.fixed:
        tokens = number(report.fixed, "token")
        yield "fixed", f"{tokens} of system prompt and tools in each request"


def _result(report: FitReport) -> Iterator[RenderableType]:
    """The size before and after, and where each token went."""
    outcome, limit = report.outcome, report.limit.context
    before, after = outcome.before, outcome.after
    full = pressure(after.tokens + report.fixed, report.usable)
    fill = gauge(full) if limit else Text("This model has no limit.")
    now = bars(labeled(report.shares, _SHARES), after.tokens)
    if not outcome.pruned and not outcome.summaries:
        text = f"{number(after.tokens, 'token')} in {number(after.messages, 'message')}"
        yield section("It fits already: nothing was changed", fill, Text(text))
        yield section("What the view consists of", now)
        return
    text = f"{number(before.messages, 'message')} before, {after.messages:,} in the view now"
    pieces: list[RenderableType] = [fill, Text(text)]
    if report.used > before.tokens + report.fixed:
        # A transcript may lack parts of the requests, which explains an overflow.
        used = number(report.used, "token")
        more = f"According to the provider, a request had {used} before."
        pieces.append(Text(more, style=QUIET))
    yield section(f"From {before.tokens:,} to {number(after.tokens, 'token')}", *pieces)
    yield section(
        "Where each token went",
        Text("before", style=QUIET),
        bars(labeled(report.fates, _ORIGINS), before.tokens),
        Text("in the view now", style=QUIET),
        now,
        note="The model sees the view; the transcript keeps everything.",
    )


def _pruned(report: FitReport) -> RenderableType:
    calls = report.viewer.log.calls
    pruned = (calls[ordinal] for ordinal in report.outcome.pruned)
    tools = sorted(pruned, key=lambda tool: -tool.tokens)
    folder = report.info.directory or ""
    rows: list[Row] = []
    for tool in tools[:_MOST_ROWS]:
        about, tokens = strip_folder(tool.target.label, folder), count(tool.tokens, "yellow")
        rows.append((handle(tool.ordinal), tool.part.tool, about, tokens))
    if rest := tools[_MOST_ROWS:]:
        more = Text(f"and {len(rest):,} more", style=QUIET)
        rows.append((safe_text("…", QUIET), "", more, sum(tool.tokens for tool in rest)))
    title = f"Pruned: {number(len(tools), 'old tool output')}"
    table = listing("handle tool about tokens", rows)
    return section(title, table, note="The model sees one line in place of each.")


def _folded(report: FitReport) -> RenderableType:
    viewer, log = report.viewer, report.viewer.log
    inside = set(report.folded_indexes)
    requests = [request for request in log.requests.all if request.index in inside]
    fold = report.outcome.summaries[-1].fold
    tail = [index for index in fold.tail_indexes if index in viewer.cells]
    tail_text = "no recent messages kept verbatim"
    if tail:
        tail_text = f"{number(len(tail), 'recent message')} kept verbatim, from {tail[0] + 1:,} on"
    what = f"{number(len(inside), 'message')} with {number(len(requests), 'user request')}"
    rows: list[Row] = []
    if (rest := len(requests) - _MOST_ROWS) > 0:
        rows.append((safe_text("…", QUIET), "", Text(f"{rest:,} earlier ones", style=QUIET)))
    for request in requests[-_MOST_ROWS:]:
        state = "answered" if log.requests.is_answered(request, len(log)) else "open"
        rows.append((request.index + 1, state, request.text[:400]))
    table = [listing("message request about", rows)] if rows else []
    return section(f"Summarized: {what}; {tail_text}", *table)


def _how(report: FitReport) -> Iterator[tuple[str, RenderableType]]:
    how, usage, summarizer = report.outcome.summaries[-1].how, report.usage, report.goal.summarizer
    if how != DIGEST:
        yield "by", f"{summarizer.name if summarizer else DIGEST}, {_HOW[how]}"
        if report.shares.digest:
            yield "with", "the digest, so that names and outcomes are exact"
    elif summarizer is None:
        yield "by", "the digest: no model was called, nothing was sent anywhere"
    else:
        failed = f"the digest: {summarizer.name} wrote no usable summary"
        yield "by", safe_text(failed, "bold yellow")
    if usage.calls:
        yield "usage", _usage(usage)
    yield from (("problem", safe_text(flaw, "yellow")) for flaw in usage.flaws)


def _usage(usage: ModelUsage) -> str:
    parts = [number(usage.calls, "call")]
    if (tokens := usage.tokens) is not None:
        cached = int(tokens.cache.read or 0) if tokens.cache else 0
        parts.append(f"{number(int(tokens.input or 0), 'token')} in")
        parts += [f"{number(cached, 'token')} from the cache"] if cached else []
        parts.append(f"{number(int(tokens.output or 0), 'token')} out")
    return ", ".join([*parts, f"${usage.cost:,.4f}"] if usage.cost else parts)
