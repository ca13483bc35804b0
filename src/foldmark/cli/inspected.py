"""The report of an inspection below its head: files, parts, waste, growth, and what was folded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.analysis.growth import Growth, RecordedCompaction, RecordedPrune
from foldmark.analysis.inspection import Inspection, Piece
from foldmark.analysis.replay import Rehearsal
from foldmark.analysis.waste import Group as Repeated
from foldmark.analysis.waste import Stale
from foldmark.log.view import Viewer

from .plots import GrowthPlot
from .rehearsed import rehearsed_section
from .tables import QUIET, About, Row, count, facts, listing, section, words
from .text import number, within

_STATES = {"shown": "", "pruned": "yellow", "folded": "magenta"}
_MOST_FILES, _MOST_NEEDLESS, _MOST_FOLDED = 10, 5, 6
_LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A file's figures, and one of its sessions with its own, by its number."""

    figures: Inspection
    viewer: Viewer
    own: Inspection
    number: int
    grown: Growth


def report(found: Inspected, rehearsed: Rehearsal) -> Iterator[RenderableType]:
    """The whole report, piece by piece."""
    figures = found.figures
    yield from _files(figures)
    yield _largest(figures)
    yield from _needless(figures)
    yield from _growth(found)
    yield from _compactions(figures)
    yield from _prunes(figures)
    yield rehearsed_section(rehearsed, _which(found))


def _which(found: Inspected) -> str:
    """The session that growth is told of."""
    return f"session {found.number}" if found.figures.sessions > 1 else "the session"


# --- where the tokens are ------------------------------------------------------------------


def _files(figures: Inspection) -> Iterator[RenderableType]:
    files = figures.tokens.by_file
    if not files:
        return
    rows: list[Row] = [
        (
            About(within(held.file, figures.directory)),
            count(held.reads),
            count(held.writes),
            count(held.tokens),
        )
        for held in files[:_MOST_FILES]
    ]
    if rest := files[_MOST_FILES:]:
        reads, writes = sum(held.reads for held in rest), sum(held.writes for held in rest)
        tokens = sum(held.tokens for held in rest)
        others = Text(f"… {number(len(rest), 'other')}")
        rows.append((others, count(reads), count(writes), count(tokens)))
    table = listing(("about", "reads", "writes", "tokens"), rows)
    yield section("Tokens by file", table, note="the calls and outputs that were about it")


def _largest(figures: Inspection) -> RenderableType:
    if not figures.largest:
        return Text("Nothing in this session has any tokens.", style=QUIET)
    rows = (_piece(piece, figures.directory) for piece in figures.largest)
    columns = ("handle", "what", "about", "tokens", "state")
    return section("The largest parts", _numbered(figures, columns, rows, figures.largest))


def _piece(piece: Piece, folder: str) -> Row:
    return (
        Text(piece.handle, style="cyan"),
        words(piece.name, most=16),
        About(within(piece.target, folder)),
        count(piece.tokens),
        Text(piece.state, style=_STATES[piece.state]),
    )


def _numbered(
    figures: Inspection,
    columns: Sequence[str],
    rows: Iterable[Row],
    told: Iterable[Piece | Repeated | Stale],
) -> RenderableType:
    """A table; where there are several sessions, with the number of each row's."""
    if figures.sessions == 1:
        return listing(columns, rows)
    numbered = ((count(one.session), *row) for one, row in zip(told, rows, strict=False))
    return listing(("session", *columns), numbered)


# --- what is needless ----------------------------------------------------------------------


def _needless(figures: Inspection) -> Iterator[RenderableType]:
    twice, stale, folder = figures.duplicated, figures.superseded, figures.directory
    if not twice.outputs and not stale.outputs:
        yield Text("No tool output is repeated, and none was made stale by a later one.", QUIET)
    if twice.outputs:
        shown = twice.largest[:_MOST_NEEDLESS]
        rows = (_repeated(held, folder) for held in shown)
        columns = ("handle", "what", "about", "times", "tokens")
        yield section(
            f"{number(twice.outputs, 'repeated output')} ({number(twice.tokens, 'token')})",
            _numbered(figures, columns, rows, shown),
            note="the same, word for word, as another one of the same tool",
        )
    if stale.outputs:
        held = stale.largest[:_MOST_NEEDLESS]
        rows = (_stale(one, folder) for one in held)
        columns = ("handle", "about", "tokens", "since then")
        yield section(
            f"{number(stale.outputs, 'superseded output')} ({number(stale.tokens, 'token')})",
            _numbered(figures, columns, rows, held),
            note="read, and stale since: the file was written, or read again as far",
        )


def _repeated(held: Repeated, folder: str) -> Row:
    return (
        Text(held.handle, style="cyan"),
        words(held.tool, most=16),
        About(within(held.target, folder)),
        count(held.times),
        count(held.tokens),
    )


def _stale(held: Stale, folder: str) -> Row:
    return (
        Text(held.handle, style="cyan"),
        About(within(held.target, folder)),
        count(held.tokens),
        words(held.reason.rpartition(" was ")[2], QUIET),
    )


# --- how it grew, and what was folded ------------------------------------------------------


def _growth(found: Inspected) -> Iterator[RenderableType]:
    grown = found.grown
    if len(grown.points) > 1:
        plot = GrowthPlot(
            grown.points,
            pivots=[held.message for held in grown.compactions],
            prunes=[held.message or len(found.viewer.log) for held in grown.prunes],
        )
        several = found.figures.sessions
        note = f"the longest of {several:,}; another one: --pick N" if several > 1 else ""
        yield section(f"How {_which(found)} grew", plot, note=note)


def _compactions(figures: Inspection) -> Iterator[RenderableType]:
    held = figures.compactions
    if not held:
        yield Text("No pivots: no messages were folded into a summary yet.", style=QUIET)
        return
    pieces = [_compaction(figures, one) for one in held[:_MOST_FOLDED]]
    pieces = [piece for one in pieces for piece in (Text(), one)][1:]  # a line between them
    if len(held) > _MOST_FOLDED:
        pieces.append(Text(f"… and {len(held) - _MOST_FOLDED:,} more; --json tells all", QUIET))
    note = "where earlier messages were folded into a summary"
    yield section("Recorded compactions", *pieces, note=note)


def _compaction(figures: Inspection, held: RecordedCompaction) -> RenderableType:
    where = f"session {held.session}, " if figures.sessions > 1 else ""
    title = f"{where}message {held.message:,}: {_change(held.before, held.after)}"
    rows = ((name, words(told, most=400)) for name, told in _told(held, figures.directory) if told)
    return Group(Text(title, style="magenta"), facts(rows))


def _told(held: RecordedCompaction, folder: str) -> Iterator[tuple[str, str]]:
    kept = f"; kept word for word: from message {held.tail:,} on" if held.tail else ""
    yield "summary", f"{number(held.summary, 'token')}{kept}"
    gone = held.hidden
    outputs = number(gone.outputs, "tool output")
    yield "hid", f"{number(gone.messages, 'message')}, {outputs}, {number(gone.tokens, 'token')}"
    yield "lost", _lost(held, folder)
    if held.measured_before and held.measured_after:
        yield "measured", f"{_change(held.measured_before, held.measured_after)} of input"
    yield "cost", _cost(held)
    if held.input is None:
        yield "recorded", ", ".join(_figures(held))


def _lost(held: RecordedCompaction, folder: str) -> str:
    lost = held.lost
    if lost is None:
        return "not known: only its provider can read the summary"
    parts: list[str] = []
    if lost.files:
        names = ", ".join(_short(within(name, folder)) for name in lost.largest[:3])
        more = ", …" if lost.files > 3 else ""
        parts.append(f"the names of {number(lost.files, 'file')} ({names}{more})")
    if lost.requests:
        parts.append(f"the words of {number(lost.requests, 'request')}")
    return " and ".join(parts) or "no file's name, and no request's words"


def _short(path: str) -> str:
    """A path by its end, where it is long."""
    ends = path.replace("\\", "/").rsplit("/", 2)
    return path if len(path) <= _LONGEST_NAME or len(ends) < 3 else f"…/{ends[1]}/{ends[2]}"


def _cost(held: RecordedCompaction) -> str:
    """What making the summary took."""
    parts = [f"{tokens:,} tokens {way}" for tokens, way in _ways(held) if tokens is not None]
    return ", ".join([*parts, f"${held.cost:,.4f}"] if held.cost else parts)


def _ways(held: RecordedCompaction) -> tuple[tuple[int | None, str], ...]:
    return (held.input, "in"), (held.output, "out")


def _figures(held: RecordedCompaction) -> Iterator[str]:
    """What the transcript itself says in figures, and what set it off."""
    for name, told in held.told.items():
        if isinstance(told, int | float) and not isinstance(told, bool):
            yield f"{name} {told:,}"
        elif name == "trigger":
            yield f"{name} {told}"


def _prunes(figures: Inspection) -> Iterator[RenderableType]:
    held = figures.prunes
    if not held:
        return
    lines = [_pruning(figures, one) for one in held[:_MOST_FOLDED]]
    if len(held) > _MOST_FOLDED:
        lines.append(Text(f"… and {len(held) - _MOST_FOLDED:,} more; --json tells all", QUIET))
    yield section("Recorded prunes", *lines, note="where old tool outputs were hidden")


def _pruning(figures: Inspection, held: RecordedPrune) -> RenderableType:
    where = f"session {held.session}, " if figures.sessions > 1 else ""
    outputs = f"{number(held.outputs, 'output')} of {number(held.tokens, 'token')}"
    change = _change(held.before, held.after)
    when = f"before message {held.message:,}" if held.message else "after the last message"
    title = Text(f"{where}{when}: ", style="yellow")
    return title.append(f"{outputs}; the view went {change}", style="default")


def _change(before: int, after: int) -> str:
    return f"from {before:,} to {number(after, 'token')}"
