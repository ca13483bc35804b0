"""One session, looked at for the MCP server: searched, recalled, planned and inspected.

Only reads: it takes no lease and writes no index. It knows nothing of files or of the protocol.
"""

from collections.abc import Iterable

from msgspec.structs import asdict, replace

from foldmark.analysis.growth import RecordedCompaction
from foldmark.analysis.inspection import Inspection, inspection, newest_model
from foldmark.compaction.plan import Plan as SessionPlan
from foldmark.compaction.plan import session_plan
from foldmark.compaction.prune import Decision, by_reason
from foldmark.errors import BadInput, UnknownModel
from foldmark.log.log import handle, ordinal_of, part_text
from foldmark.log.tool_targets import target
from foldmark.log.view import Viewer
from foldmark.model.messages import AnyPart, FilePart, ToolPart, kind_of
from foldmark.session.reader import Looking
from foldmark.store.loading import Slice
from foldmark.store.search_terms import words
from foldmark.tokens.budget import exceeds, usable
from foldmark.tokens.limits import USUAL_LIMIT, Limit

from .answers import (
    File,
    Hit,
    Hits,
    Inspected,
    Kept,
    Output,
    Page,
    Part,
    Pivot,
    Plan,
    Planned,
    Recall,
    Search,
    line,
    sendable,
)

_MOST_ROWS, _MOST_REASONS, _MOST_PIVOTS = 10, 5, 6
_SNIPPET, _LABEL = 300, 120


class Look(Looking):
    """What the tools answer of one session."""

    called = ""  # by the client, where that is not its id
    known: tuple[int, Inspection] | None = None  # the figures, by the version they are of

    @property
    def name(self) -> str:
        """What the client calls it."""
        return line(self.called or self.id)

    def _index(self) -> None:
        """Nothing: what is not in the index is read."""

    # --- what was said ---

    def hits(self, asked: Search) -> Hits:
        """Where words were said."""
        if not words(asked.query):
            raise BadInput("the query has no word to look for: give letters or digits")
        found = self.search(asked.query, most=asked.most + 1)  # whether there are more
        return Hits(
            session=self.name,
            messages=self.info.places,
            hits=tuple(
                Hit(
                    handle=hit.handle,
                    state=hit.state,
                    kind=line(hit.kind, _LABEL),
                    tool=line(hit.tool, _LABEL) if hit.tool else None,
                    message=hit.place + 1,
                    snippet=line(hit.snippet, _SNIPPET),
                )
                for hit in found[: asked.most]
            ),
            more=len(found) > asked.most,
        )

    def page(self, asked: Recall) -> Page:
        """The text behind a handle, from a character on."""
        # Digits of other scripts are numbers to Python.
        ordinal = ordinal_of(asked.handle)
        held = None if ordinal is None else self._store.holding(self._key, ordinal)
        if held is None or ordinal is None:
            name = line(asked.handle, _LABEL)
            raise BadInput(f"{name!r} is no handle of session {self.name}; `search` gives handles")
        with self._undamaged():
            part = held.message.parts[ordinal - held.ordinal]
            text = sendable(part_text(part))
        if asked.start > len(text):
            raise BadInput(f"`start` is {asked.start}, but the text has {len(text)} characters")
        piece = text[asked.start : asked.start + asked.length]
        end = asked.start + len(piece)
        return Page(
            session=self.name,
            handle=asked.handle.strip().lower(),
            kind=line(kind_of(part), _LABEL),
            tool=line(part.tool, _LABEL) if isinstance(part, ToolPart) else None,
            about=line(_about(part)),
            message=held.place + 1,
            start=asked.start,
            length=len(piece),
            total=len(text),
            next=end if end < len(text) else None,
            text=piece,
        )

    # --- what would be done ---

    def planned(self, asked: Plan) -> Planned:
        """What prune and compact would do in a window, and why."""
        with self._lock:
            log = self._fresh().log
            model = (asked.model or self._settings.model or newest_model(log) or "").strip()
            limit, is_assumed = self._limit(model, asked)
            room = usable(self.policy, limit, model)
            viewer = Viewer(log, self.policy, model=model, usable=room)
            made = session_plan(viewer, limit, model=model)
            is_full = exceeds(self.policy, made.tokens, limit, model)
        kept_from = made.fold.tail_places[:1] if made.fold else ()
        return Planned(
            session=self.name,
            model=line(model) or None,
            window=limit.context,
            window_is_assumed=is_assumed,
            usable=made.usable,
            tokens=made.tokens,
            percent=round(made.pressure * 100),
            overflow=made.overflow,
            verdict=_verdict(made, is_full=is_full),
            prune_outputs=len(made.prune.prune),
            prune_tokens=made.prune.tokens,
            prune=_outputs(made.prune.prune),
            keep=_kept(made.prune.keep),
            fold_messages=len(made.fold.head) if made.fold else 0,
            keep_from_message=kept_from[0] + 1 if kept_from else None,
        )

    def _limit(self, model: str, asked: Plan) -> tuple[Limit, bool]:
        """The window that is meant, and whether nobody has named it."""
        window = asked.window or (None if asked.model else self._settings.window)
        settings = replace(self._settings, model=model or None, window=window)
        try:
            limit = settings.limit()
        except UnknownModel as error:
            if asked.model:
                hint = f" Did you mean {', '.join(error.nearest)}?" if error.nearest else ""
                told = f"no limits are known for the model {line(model)!r}.{hint} Give `window`"
                raise BadInput(told) from None
            limit = None
        return (USUAL_LIMIT, True) if limit is None else (limit, False)

    # --- figures ---

    def inspected(self, sessions: tuple[str, ...], *, in_all: int, left_out: int) -> Inspected:
        """The session in figures, beside the names of all."""
        figures = self._figures()
        return Inspected(
            session=self.name,
            title=line(figures.title),
            format=line(figures.format, _LABEL),
            models=tuple(line(name) for name in figures.models[:_MOST_ROWS]),
            messages=figures.log,
            requests=figures.requests,
            tool_calls=figures.tool_calls,
            tokens=figures.tokens.total,
            shown_messages=figures.view.messages,
            shown_tokens=figures.view.tokens,
            pruned=figures.pruned,
            by_kind=asdict(figures.tokens.by_kind),
            by_tool=_by_tool(figures.tokens.by_tool),
            by_file=_by_file(figures),
            largest=_largest(figures),
            pivots=tuple(_pivot(held) for held in figures.compactions[-_MOST_PIVOTS:]),
            repeated_tokens=figures.duplicated.tokens,
            superseded_tokens=figures.superseded.tokens,
            lines_left_out=left_out,
            sessions=sessions,
            sessions_in_all=in_all,
        )

    def _figures(self) -> Inspection:
        """The figures of the whole log; made anew only where it has changed."""
        with self._lock, self._undamaged():
            part = Slice(everything=True)
            row = self._store.row(self._key)
            if self.known is None or self.known[0] != row.version:
                loaded = self._store.load(self._key, part, estimate=self.policy.estimate)
                viewer = self._viewing(self._built(loaded))
                self.known = loaded.row.version, inspection(viewer, loaded.row.info)
            return self.known[1]


def _about(part: AnyPart) -> str:
    match part:
        case ToolPart():
            return target(part.tool, part.state.input or {}).label
        case FilePart():
            return part.filename or part.mime
        case _:
            return ""


def _verdict(made: SessionPlan, *, is_full: bool) -> str:
    if not is_full:
        left = max(0, made.usable - made.tokens)
        return f"It fits: {left:,} tokens are left before it must be made smaller."
    if not made.overflow:
        return "It is too full, but compaction by itself is off."
    if made.prune_is_enough:
        return "It overflows; hiding old tool outputs is enough."
    return "It overflows; old messages must be folded into a summary."


def _outputs(decisions: Iterable[Decision]) -> tuple[Output, ...]:
    largest = sorted(decisions, key=lambda held: -held.tokens)[:_MOST_ROWS]
    return tuple(
        Output(
            handle=handle(held.ordinal),
            tool=line(held.tool, _LABEL),
            about=line(held.output.target.label, _LABEL),
            tokens=held.tokens,
            reason=line(held.reason),
        )
        for held in largest
    )


def _kept(decisions: Iterable[Decision]) -> tuple[Kept, ...]:
    return tuple(
        Kept(outputs=held.outputs, tokens=held.tokens, reason=line(held.reason))
        for held in by_reason(decisions)[:_MOST_REASONS]
    )


def _by_tool(tools: dict[str, int]) -> dict[str, int]:
    return {line(name, _LABEL): tokens for name, tokens in list(tools.items())[:_MOST_ROWS]}


def _by_file(figures: Inspection) -> tuple[File, ...]:
    return tuple(
        File(file=line(held.file), tokens=held.tokens, reads=held.reads, writes=held.writes)
        for held in figures.tokens.by_file[:_MOST_ROWS]
    )


def _largest(figures: Inspection) -> tuple[Part, ...]:
    return tuple(
        Part(
            handle=held.handle,
            what=line(held.name, _LABEL),
            about=line(held.target, _LABEL),
            tokens=held.tokens,
            state=held.state,
        )
        for held in figures.largest[:_MOST_ROWS]
    )


def _pivot(held: RecordedCompaction) -> Pivot:
    lost = held.lost.largest if held.lost else ()
    return Pivot(
        message=held.message,
        tokens_before=held.before,
        tokens_after=held.after,
        hidden_messages=held.hidden.messages,
        files_no_longer_named=tuple(line(name) for name in lost),
    )
