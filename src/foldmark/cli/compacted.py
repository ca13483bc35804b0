"""A session that was made to fit, as a report: what was done, and where each token went."""

from collections.abc import Iterator
from itertools import islice

from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.log.log import handle
from foldmark.log.user_requests import UserRequest
from foldmark.session.means import DIGEST
from foldmark.summary.ladder import ModelUsage
from foldmark.tokens.budget import pressure

from .fitting import Compacted
from .tables import (
    QUIET,
    About,
    Row,
    bars,
    count,
    facts,
    gauge,
    listing,
    pressure_colour,
    section,
    words,
)
from .text import harmless_line, number, within

_MOST_ROWS, _SUMMARY_LINES, _LONGEST_LINE = 8, 12, 400
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


def report(made: Compacted, out: str | None = None) -> Iterator[RenderableType]:
    """The whole report, piece by piece."""
    yield _head(made)
    yield _result(made)
    yield _went(made)
    if made.fitted.pruned:
        yield _pruned(made)
    if made.fitted.folded:
        yield _folded(made)
        yield _made(made)
        yield _summary(made)
    yield _where(made, out)


def _head(made: Compacted) -> RenderableType:
    limit = made.limit.context
    window = f"{number(limit, 'token')}, {made.usable:,} of them usable" if limit else "no limit"
    rows = [
        ("policy", made.goal.policy.name),
        ("model", made.model or "not named"),
        ("window", window),
        ("wire", made.wire),
    ]
    if made.goal.target is not None:
        rows.insert(3, ("target", number(made.goal.target, "token")))
    if made.fixed:
        beside = f"{number(made.fixed, 'token')} of system prompt and tools in each request"
        rows.append(("beside", beside))
    title = words(made.info.title or "a session without a title", "bold")
    return Group(title, facts((name, words(told)) for name, told in rows))


# --- before and after ----------------------------------------------------------------------


def _result(made: Compacted) -> RenderableType:
    fitted = made.fitted
    before, after = fitted.before, fitted.after
    if not fitted.pruned and not fitted.folded:
        told = f"{number(after.tokens, 'token')} in {number(after.messages, 'message')}"
        return section("It fits already: nothing was done", _gauge(made), Text(told))
    title = f"From {before.tokens:,} to {number(after.tokens, 'token')}"
    told = f"{number(before.messages, 'message')} before, {after.messages:,} in the view now"
    pieces: list[RenderableType] = [_gauge(made), Text(told)]
    if made.used > before.tokens + made.fixed:
        # A transcript may not have all that was sent: then this is why it was too full.
        more = f"By what a provider measured, a request had {number(made.used, 'token')} before."
        pieces.append(Text(more, style=QUIET))
    return section(title, *pieces)


def _gauge(made: Compacted) -> RenderableType:
    if not made.limit.context:
        return Text("This model has no limit.")
    return gauge(pressure(made.fitted.after.tokens + made.fixed, made.usable))


def _went(made: Compacted) -> RenderableType:
    """Where each token went: what became of those before, and of what those now are."""
    before, after = made.fitted.before.tokens, made.fitted.after.tokens
    now = _rows(made.shares, _SHARES)
    if not made.fitted.pruned and not made.fitted.folded:
        return section("What the view is made of", bars(now, after))
    return section(
        "Where each token went",
        Text("before", style=QUIET),
        bars(_rows(made.gone, _GONE), before),
        Text("in the view now", style=QUIET),
        bars(now, after),
        note="The model is shown the second; the transcript keeps all of the first.",
    )


def _rows(held: object, names: dict[str, tuple[str, str]]) -> list[tuple[str, int, str]]:
    rows = [(label, int(getattr(held, name)), colour) for name, (label, colour) in names.items()]
    return [row for row in rows if row[1]]


# --- what was pruned and folded ------------------------------------------------------------


def _pruned(made: Compacted) -> RenderableType:
    calls = made.viewer.log.calls
    tools = sorted((calls[held] for held in made.fitted.pruned), key=lambda tool: -tool.tokens)
    folder = made.info.directory or ""
    rows: list[Row] = [
        (
            Text(handle(tool.ordinal), style="cyan"),
            words(tool.part.tool, most=16),
            About(within(tool.target.label, folder)),
            count(tool.tokens, "yellow"),
        )
        for tool in tools[:_MOST_ROWS]
    ]
    if rest := tools[_MOST_ROWS:]:
        more = Text(f"and {len(rest):,} more", style=QUIET)
        rows.append((Text("…", style=QUIET), Text(), more, count(sum(t.tokens for t in rest))))
    title = f"Pruned: {number(len(tools), 'old tool output')}"
    table = listing(("handle", "tool", "about", "tokens"), rows)
    return section(title, table, note="One line stands for each; no summary was needed.")


def _folded(made: Compacted) -> RenderableType:
    places = made.folded_places
    log, fold = made.viewer.log, made.fitted.folded[-1].fold
    inside = set(places)
    asked = [request for request in log.requests.all if request.index in inside]
    tail = [place for place in fold.tail_places if place in made.viewer.cells]
    kept = "no message was kept word for word"
    if tail:
        kept = f"kept word for word: {number(len(tail), 'message')}, from {tail[0] + 1:,} on"
    said = number(len(asked), "request")
    title = f"Folded: {number(len(places), 'message')} with {said}; {kept}"
    if not asked:
        return section(title)
    rows = [_request(made, request) for request in asked[-_MOST_ROWS:]]
    if len(asked) > _MOST_ROWS:
        more = Text(f"{len(asked) - _MOST_ROWS:,} earlier ones", style=QUIET)
        rows.insert(0, (Text("…", style=QUIET), Text(), more))
    return section(title, listing(("message", "request", "about"), rows))


def _request(made: Compacted, request: UserRequest) -> Row:
    log = made.viewer.log
    answered = log.requests.answered(request, len(log))
    state = Text("answered", style="green") if answered else Text("open", style="bold yellow")
    return Text(f"{request.index + 1:,}", justify="right"), state, About(request.text[:400])


# --- the summary ---------------------------------------------------------------------------


def _made(made: Compacted) -> RenderableType:
    how, spent = made.fitted.folded[-1].how, made.spent
    model = made.goal.summarizer.name if made.goal.summarizer else DIGEST
    rows: list[tuple[str, RenderableType]] = []
    if how != DIGEST:
        rows.append(("by", words(f"{model}, {_HOW[how]}")))
        if made.shares.digest:
            rows.append(("beside it", words("the digest, so that names and outcomes are exact")))
    elif made.goal.summarizer is None:
        rows.append(("by", words("the digest: no model was asked, nothing was sent anywhere")))
    else:
        failed = f"the digest: {model} gave no summary that could be used"
        rows.append(("by", words(failed, "bold yellow")))
    if spent.calls:
        rows.append(("took", words(_took(spent))))
    rows += [("on the way", words(flaw, "yellow")) for flaw in spent.flaws]
    return section("How the summary was made", facts(rows))


def _took(spent: ModelUsage) -> str:
    parts = [number(spent.calls, "call")]
    if spent.tokens is not None:
        cache = spent.tokens.cache or None
        read = int(cache.read or 0) if cache else 0
        parts.append(f"{number(int(spent.tokens.input or 0), 'token')} in")
        if read:
            parts.append(f"{number(read, 'token')} from the cache")
        parts.append(f"{number(int(spent.tokens.output or 0), 'token')} out")
    if spent.cost:
        parts.append(f"${spent.cost:,.4f}")
    return ", ".join(parts)


def _summary(made: Compacted) -> RenderableType:
    return section("The summary begins so", *quoted(made.summary or "", _SUMMARY_LINES))


def quoted(text: str, most: int) -> Iterator[RenderableType]:
    """The first lines of a text that no one here wrote, each on one line of the terminal."""
    lines = text.splitlines()
    for line in islice(lines, most):
        yield _quote(harmless_line(line[:_LONGEST_LINE]))
    if len(lines) > most:
        yield _quote(f"… {number(len(lines) - most, 'line')} more")


def _quote(line: str) -> Text:
    text = Text.assemble(("│ ", "cyan"), (line, QUIET))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _where(made: Compacted, out: str | None) -> RenderableType:
    messages = number(len(made.messages()), f"{made.wire} message")
    colour = pressure_colour(0)
    if out is None:
        told = f"--output FILE writes the {messages}; --json prints them with all figures."
        return Text(told, style=QUIET)
    return words(f"Wrote {messages} to {out}.", colour, most=1_000)
