"""`foldmark inspect`: where the tokens of a session are."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.inspection import Inspection, Piece, inspection
from foldmark.io.files import MOST_BYTES
from foldmark.view import Viewer

from .options import (
    DEFAULT_POLICY,
    AsJson,
    File,
    FormatName,
    Lenient,
    MaxSize,
    Pick,
    PolicyName,
    Wanted,
    opened,
    policy_named,
)
from .tables import QUIET, About, Row, bars, count, facts, listing, section, show, show_json, words
from .text import duration, number, within

EXAMPLE = "Example: foldmark inspect session.json --policy opencode"

_KINDS = {
    "user": ("the user's words", "cyan"),
    "assistant": ("the model's words", "green"),
    "reasoning": ("the model's thinking", "magenta"),
    "tool_input": ("tool calls", "blue"),
    "tool_output": ("tool outputs", "yellow"),
    "file": ("files", "white"),
}
_STATES = {"shown": "", "pruned": "yellow", "folded": "magenta"}
_MOST_TOOLS = 10


def inspect(
    file: File,
    *,
    json: AsJson = False,
    policy: PolicyName = DEFAULT_POLICY,
    format: FormatName = None,
    pick: Pick = None,
    lenient: Lenient = False,
    max_size: MaxSize = MOST_BYTES,
) -> None:
    """Show where the tokens of a session are: by kind, by tool, and in the largest parts."""
    rules = policy_named(policy)
    wanted = Wanted(format=format, pick=pick, lenient=lenient, max_size=max_size)
    transcript, log = opened(file, rules, wanted)
    figures = inspection(Viewer(log, rules), transcript.info)
    if json:
        show_json(figures)
    else:
        show(*overview(figures, policy), largest(figures), pivots(figures))


def overview(figures: Inspection, policy: str) -> Iterator[RenderableType]:
    """The head of the report, and the tokens by kind and by tool."""
    yield Group(words(figures.title or "a session without a title", "bold"), _head(figures, policy))
    if figures.tokens.total:
        yield section("Tokens by kind", _by_kind(figures))
    if figures.tokens.by_tool:
        yield section("Tokens by tool", _by_tool(figures), note="its calls and outputs together")


def _head(figures: Inspection, policy: str) -> RenderableType:
    lasted = f" over {duration(figures.seconds)}" if figures.seconds is not None else ""
    view = figures.view
    rows: list[tuple[str, RenderableType]] = [
        ("format", words(f"{figures.format} export")),
        ("model", words(", ".join(figures.models) or "not named")),
        (
            "messages",
            words(f"{figures.messages:,}{lasted}, with {number(figures.requests, 'request')}"),
        ),
        (
            "tools",
            words(
                f"{number(figures.tool_calls, 'call')}, {number(figures.tool_results, 'result')}, "
                f"{figures.pruned:,} pruned"
            ),
        ),
        ("log", words(f"{number(figures.tokens.total, 'token')} if all of it were shown")),
        (
            "view",
            words(
                f"{number(view.tokens, 'token')} in {number(view.messages, 'message')}: "
                "what a model sees"
            ),
        ),
        ("policy", words(policy)),
    ]
    return facts(rows)


def _by_kind(figures: Inspection) -> RenderableType:
    kinds = figures.tokens.by_kind
    rows = [(label, int(getattr(kinds, kind)), colour) for kind, (label, colour) in _KINDS.items()]
    rows.sort(key=lambda row: -row[1])
    return bars([row for row in rows if row[1]], figures.tokens.total)


def _by_tool(figures: Inspection) -> RenderableType:
    tools = list(figures.tokens.by_tool.items())
    rows = [(name, tokens, "blue") for name, tokens in tools[:_MOST_TOOLS]]
    rest = tools[_MOST_TOOLS:]
    if rest:
        tokens = sum(tokens for _, tokens in rest)
        rows.append((f"… {number(len(rest), 'other')}", tokens, "blue"))
    return bars(rows, figures.tokens.total)


def largest(figures: Inspection) -> RenderableType:
    """The largest parts."""
    if not figures.largest:
        return Text("Nothing in this session has any tokens.", style=QUIET)
    rows = (_row(piece, figures.directory) for piece in figures.largest)
    table = listing(("handle", "what", "about", "tokens", "state"), rows)
    return section("The largest parts", table)


def _row(piece: Piece, folder: str) -> Row:
    return (
        Text(piece.handle, style="cyan"),
        words(piece.name, most=16),
        About(within(piece.target, folder)),
        count(piece.tokens),
        Text(piece.state, style=_STATES[piece.state]),
    )


def pivots(figures: Inspection) -> RenderableType:
    """Where earlier messages were folded into a summary."""
    if not figures.folds:
        return Text("No pivots: no messages were folded into a summary yet.", style=QUIET)
    lines = [
        Text(
            f"message {fold.marker + 1}: folded into a summary of {number(fold.tokens, 'token')}"
            + (f", kept verbatim from message {fold.tail + 1} on" if fold.tail is not None else "")
        )
        for fold in figures.folds
    ]
    return section("Pivots", *lines, note="where earlier messages were folded into a summary")
