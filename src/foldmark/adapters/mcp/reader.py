"""One session as the MCP server tells it: searched, recalled, planned and inspected.

Each answer is text in which what was recorded stands between fences, as data. Only reads: it takes
no lease and writes no index. It knows nothing of files or of the protocol.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict, replace

from foldmark.analysis.history import RecordedCompaction
from foldmark.analysis.inspection import Inspection, by_reason, inspection, newest_model
from foldmark.analysis.plan import Plan, session_plan
from foldmark.compaction.prune import Decision
from foldmark.errors import BadInput, UnknownModel
from foldmark.files import harmless
from foldmark.log.log import handle, ordinal_of, part_text
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.session.reader import search
from foldmark.session.state import SessionState
from foldmark.store.loading import Slice
from foldmark.store.search import words
from foldmark.summary.prompting import fenced
from foldmark.tokens.budget import exceeds, usable
from foldmark.tokens.limits import USUAL_LIMIT, Limit

MOST_CHARACTERS = 20_000  # of a text in one answer
_MOST_ROWS, _MOST_REASONS, _MOST_PIVOTS, _MOST_NAMES = 10, 5, 6, 20
_LINE, _NAME, _SNIPPET, _LABEL = 200, 100, 300, 120


# --- what the tools take: also the schemas that a client is told, in sentences for a model ---

NamedSession = Annotated[
    Annotated[str, Meta(max_length=300)] | None,
    Meta(
        description="One of the sessions that `inspect` lists. If left out: the newest; of one "
        "file with several, the longest."
    ),
]


class ToolArguments(Frozen, forbid_unknown_fields=True):
    """The arguments of a tool, and all that `inspect` takes."""

    session: NamedSession = None


class SearchArguments(ToolArguments):
    """The arguments of `search`."""

    query: Annotated[
        str,
        Meta(
            description="Words that must all be there, in any order; each may be the beginning of "
            "a longer one. No operators, no patterns.",
            min_length=1,
            max_length=1_000,
        ),
    ]
    most: Annotated[int, Meta(description="How many hits to give.", ge=1, le=50)] = 20


class RecallArguments(ToolArguments):
    """The arguments of `recall`."""

    handle: Annotated[
        str,
        Meta(
            description="As hits and placeholders tell it, like h3f.", min_length=1, max_length=64
        ),
    ]
    start: Annotated[
        int, Meta(description="The character to begin with; a page tells the next.", ge=0, le=2**53)
    ] = 0
    length: Annotated[
        int, Meta(description="How many characters to give.", ge=1, le=MOST_CHARACTERS)
    ] = MOST_CHARACTERS


class PlanArguments(ToolArguments):
    """The arguments of `plan`."""

    window: Annotated[
        Annotated[int, Meta(ge=1, le=2**53)] | None,
        Meta(description="The context window in tokens, from 1; else the model's own."),
    ] = None
    model: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(description="As provider:name; else the newest model of the session."),
    ] = None


# --- what they answer ---


class SessionReader:
    """What the tools answer of one session."""

    def __init__(self, state: SessionState) -> None:
        """Take the session, which is only read."""
        self._state = state
        self.called = ""  # by the client, where that is not its id
        self._known: tuple[int, Inspection] | None = None  # the figures, by the version they are of

    @property
    def name(self) -> str:
        """What the client calls it, quoted: a transcript may have chosen it."""
        return f'"{line(self.called or self._state.id, _NAME)}"'

    def hits(self, asked: SearchArguments) -> str:
        """Where words were said, best first."""
        if not words(asked.query):
            raise BadInput("the query has no word to look for: give letters or digits")
        hits = search(self._state, asked.query, asked.most + 1)  # whether there are more
        where = f"session {self.name} ({self._state.store.row(self._state.key).places:,} messages)"
        if not hits:
            hint = "Try fewer, or their beginnings, or another `session`."
            return f"Nothing in {where} holds all of these words. {hint}"
        lines = [
            f"{hit.handle} {hit.state} {line(hit.tool or hit.kind, _LABEL)}, "
            f"message {hit.place + 1}: {line(hit.snippet, _SNIPPET)}"
            for hit in hits[: asked.most]
        ]
        count = f"the first {len(lines)} of more" if len(hits) > asked.most else f"all {len(hits)}"
        head = f"Found in {where}, {count}. `recall` with a handle gives the whole text."
        return _answer(head, lines)

    def page(self, asked: RecallArguments) -> str:
        """The text behind a handle, from a character on."""
        # Digits of other scripts are numbers to Python.
        ordinal = ordinal_of(asked.handle)
        held = None if ordinal is None else self._state.store.holding(self._state.key, ordinal)
        if held is None or ordinal is None:
            name = line(asked.handle, _LABEL)
            raise BadInput(f"{name!r} is no handle of session {self.name}; `search` gives handles")
        with self._state.undamaged():
            text = part_text(held.message.parts[ordinal - held.ordinal])
        text = text.encode("utf-8", "replace").decode()  # no message can carry half a character
        if asked.start > len(text):
            raise BadInput(f"`start` is {asked.start}, but the text has {len(text)} characters")
        end = min(asked.start + asked.length, len(text))
        head = (
            f"{asked.handle.strip().lower()} of session {self.name}, message {held.index + 1}: "
            f"characters {asked.start:,} to {end:,} of {len(text):,}."
        )
        if end < len(text):
            head += f" Next page: start={end}."
        return f"{head}\n{fenced([text[asked.start : end]])}"

    # --- what would be done ---

    def plan_text(self, asked: PlanArguments) -> str:
        """What prune and compact would do in a window, and why."""
        with self._state.lock:
            log = self._state.fresh().log
            model = (asked.model or self._state.settings.model or newest_model(log) or "").strip()
            limit = self._limit(model, asked)
            window = limit or USUAL_LIMIT
            room = usable(self._state.policy, window, model)
            viewer = Viewer(log, self._state.policy, model=model, usable=room)
            made = session_plan(viewer, window, model=model)
            is_full = exceeds(self._state.policy, made.tokens, window, model)
        assumed = "" if limit else " (assumed, as no model tells it; give `window`)"
        hidden = made.prune.prune
        largest = "; the largest are below" if len(hidden) > _MOST_ROWS else ""
        head = (
            f"The next request of session {self.name}, with system prompt and tools as far as they "
            f"were measured: {made.tokens:,} of {made.usable:,} usable tokens "
            f"({round(made.pressure * 100)} %) in a window of {window.context:,}{assumed}. "
            f"{_verdict(made, is_full=is_full)}\n"
            f"Prune would hide {len(hidden):,} tool outputs ({made.prune.tokens:,} tokens)"
            f"{largest}.\nA compaction now would fold {len(made.fold.head):,} messages."
        )
        return _answer(head, [*_hidden_lines(hidden), *_kept_lines(made.prune.keep)])

    def _limit(self, model: str, asked: PlanArguments) -> Limit | None:
        """The window that is meant; None if nobody has named one."""
        window = asked.window or (None if asked.model else self._state.settings.window)
        settings = replace(self._state.settings, model=model or None, window=window)
        try:
            return settings.limit()
        except UnknownModel as error:
            if not asked.model:
                return None
            hint = f" Did you mean {', '.join(error.nearest)}?" if error.nearest else ""
            cause = f"no limits are known for the model {line(model)!r}.{hint} Give `window`"
            raise BadInput(cause) from None

    # --- figures ---

    def inspect_text(self, sessions: Sequence[str], *, left_out: int) -> str:
        """The session in figures: in full and as the model is shown it; and the names of all."""
        figures, listed = self._figures(), sessions[:_MOST_NAMES]
        compactions = figures.compactions[-_MOST_PIVOTS:]
        head = (
            f"Session {self.name}: {figures.log:,} messages, {figures.tokens.total:,} tokens in "
            f"full; shown: {figures.view.messages:,} messages, {figures.view.tokens:,} tokens. "
            f"{figures.requests:,} requests of the user, {figures.tool_calls:,} tool calls. "
            f"{len(compactions)} compactions told, {figures.pruned:,} outputs pruned."
        )
        if left_out:
            head += f" Lines of the transcript that could not be read: {left_out:,}."
        if len(listed) < len(sessions):
            head += f" {len(listed)} of {len(sessions):,} sessions are listed."
        lines = [f"title: {line(figures.title)}"] if figures.title else []
        lines.append(f"format: {line(figures.format, _LABEL)}")
        lines += [f"model {line(name)}" for name in figures.models[:_MOST_ROWS]]
        lines += _token_lines(figures)
        lines += [_pivot_line(held) for held in compactions]
        lines += [f"session {line(name, 300)}" for name in listed]
        return _answer(f"{head} Figures are tokens.", lines)

    def _figures(self) -> Inspection:
        """The figures of the whole log; made anew only where it has changed."""
        with self._state.lock, self._state.undamaged():
            part = Slice(everything=True)
            row = self._state.store.row(self._state.key)
            if self._known is None or self._known[0] != row.version:
                loaded = self._state.store.load(
                    self._state.key, part, estimate=self._state.policy.estimate
                )
                viewer = self._state.viewing(self._state.built(loaded))
                self._known = loaded.row.version, inspection(viewer, loaded.row.info)
            return self._known[1]


def line(text: str, most: int = _LINE) -> str:
    """One line of a text that nobody here wrote, cut, without what cannot be printed or sent."""
    whole = harmless(" ".join(text[: most * 4].split()))
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def _answer(head: str, quoted: Sequence[str]) -> str:
    """A head of our own words, and lines that were recorded, as data."""
    return "\n".join([head, fenced(["\n".join(quoted)])] if quoted else [head])


def _labelled(*labels: str) -> str:
    """Those of the labels that say something."""
    return " ".join(filter(None, (line(label, _LABEL) for label in labels)))


def _verdict(made: Plan, *, is_full: bool) -> str:
    if not is_full:
        left = max(0, made.usable - made.tokens)
        return f"It fits: {left:,} tokens are left before it must be made smaller."
    if not made.overflow:
        return "It is too full, but compaction by itself is off."
    if made.prune_is_enough:
        return "It overflows; hiding old tool outputs is enough."
    return "It overflows; old messages must be folded into a summary."


def _hidden_lines(decisions: Iterable[Decision]) -> list[str]:
    largest = sorted(decisions, key=lambda held: -held.tokens)[:_MOST_ROWS]
    return [
        f"prune {_labelled(handle(held.ordinal), held.tool, held.output.target.label)}: "
        f"{held.tokens:,} tokens; {line(held.reason)}"
        for held in largest
    ]


def _kept_lines(decisions: Iterable[Decision]) -> list[str]:
    return [
        f"keep {outputs:,} outputs, {tokens:,} tokens: {line(reason)}"
        for reason, outputs, tokens in by_reason(decisions)[:_MOST_REASONS]
    ]


def _token_lines(figures: Inspection) -> list[str]:
    """Where the tokens are: by kind, tool and file, and in the largest parts."""
    tokens = figures.tokens
    lines = [f"kind {name}: {count:,}" for name, count in asdict(tokens.by_kind).items() if count]
    tools = list(tokens.by_tool.items())[:_MOST_ROWS]
    lines += [f"tool {line(name, _LABEL)}: {count:,}" for name, count in tools]
    lines += [f"file {line(held.file)}: {held.tokens:,}" for held in tokens.by_file[:_MOST_ROWS]]
    for held in figures.largest[:_MOST_ROWS]:
        labels = _labelled(held.handle, held.state, held.name, held.target)
        lines.append(f"part {labels}: {held.tokens:,}")
    wasted = {"repeated": figures.duplicated.tokens, "superseded": figures.superseded.tokens}
    return lines + [f"{name}: {count:,}" for name, count in wasted.items() if count]


def _pivot_line(held: RecordedCompaction) -> str:
    names = ", ".join(map(line, held.lost.largest if held.lost else ()))
    gone = f"; no longer named: {names}" if names else ""
    change = f"{held.before:,} to {held.after:,}, {held.hidden.messages} hidden"
    return f"compaction at message {held.message}: {change}{gone}"
