"""The answers of the MCP server for one session: search, recall, plan and inspect.

Each answer is text with recorded content between fences, as data. It is read-only: it takes no
lease and writes no index. It does not know files or the protocol.
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
from foldmark.files import printable
from foldmark.log.log import handle, ordinal_of, part_text
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.session.reader import search
from foldmark.session.state import SessionState
from foldmark.store.loading import Slice
from foldmark.store.search import words
from foldmark.summary.prompting import fence_record
from foldmark.tokens.budget import exceeds, usable
from foldmark.tokens.limits import DEFAULT_LIMIT, Limit

MAX_CHARACTERS = 20_000  # per answer
_MAX_ROWS, _MAX_REASONS, _MAX_COMPACTIONS, _MAX_NAMES = 10, 5, 6, 20
_LINE, _NAME, _SNIPPET, _LABEL = 200, 100, 300, 120


# --- arguments of the tools; clients see the schemas, models read the descriptions ---

SessionArgument = Annotated[
    Annotated[str, Meta(max_length=300)] | None,
    Meta(
        description="One of the sessions that `inspect` lists. If left out: the newest; of one "
        "file with several, the longest."
    ),
]


class ToolArguments(Frozen, forbid_unknown_fields=True):
    """The arguments of `inspect`, and those that all tools have."""

    session: SessionArgument = None


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
        int, Meta(description="How many characters to give.", ge=1, le=MAX_CHARACTERS)
    ] = MAX_CHARACTERS


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


# --- answers ---


class SessionReader:
    """Answers the tool calls about one session."""

    def __init__(self, state: SessionState) -> None:
        """Read this session."""
        self._state = state
        self.label = ""  # the client's name for the session if that is not its id
        self._cached_figures: tuple[int, Inspection] | None = None  # version, figures

    @property
    def name(self) -> str:
        """The session's name in quotes, as a transcript may contain any name."""
        return f'"{line(self.label or self._state.id, _NAME)}"'

    def search_text(self, args: SearchArguments) -> str:
        """The matches of a search, best first."""
        if not words(args.query):
            raise BadInput("the query has no word to look for: give letters or digits")
        hits = search(self._state, args.query, args.most + 1)  # one more shows if there are more
        where = f"session {self.name} ({self._state.store.row(self._state.key).places:,} messages)"
        if not hits:
            hint = "Try fewer, or their beginnings, or another `session`."
            return f"Nothing in {where} holds all of these words. {hint}"
        lines = [
            f"{hit.handle} {hit.state} {line(hit.tool or hit.kind, _LABEL)}, "
            f"message {hit.place + 1}: {line(hit.snippet, _SNIPPET)}"
            for hit in hits[: args.most]
        ]
        count = f"the first {len(lines)} of more" if len(hits) > args.most else f"all {len(hits)}"
        head = f"Found in {where}, {count}. `recall` with a handle gives the whole text."
        return _answer(head, lines)

    def recall_text(self, args: RecallArguments) -> str:
        """A page of the text of a handle."""
        # Python accepts digits of other scripts as numbers.
        ordinal = ordinal_of(args.handle)
        store, key = self._state.store, self._state.key
        location = None if ordinal is None else store.message_with_part(key, ordinal)
        if location is None or ordinal is None:
            name = line(args.handle, _LABEL)
            raise BadInput(f"{name!r} is no handle of session {self.name}; `search` gives handles")
        with self._state.report_damage():
            text = part_text(location.message.parts[ordinal - location.ordinal])
        text = text.encode("utf-8", "replace").decode()  # no message can contain a lone surrogate
        if args.start > len(text):
            raise BadInput(f"`start` is {args.start}, but the text has {len(text)} characters")
        end = min(args.start + args.length, len(text))
        head = (
            f"{args.handle.strip().lower()} of session {self.name}, message {location.index + 1}: "
            f"characters {args.start:,} to {end:,} of {len(text):,}."
        )
        if end < len(text):
            head += f" Next page: start={end}."
        return f"{head}\n{fence_record([text[args.start : end]])}"

    # --- the plan ---

    def plan_text(self, args: PlanArguments) -> str:
        """What prune and compact would do in a context window, and why."""
        with self._state.lock:
            log = self._state.refresh().log
            model = (args.model or self._state.settings.model or newest_model(log) or "").strip()
            limit = self._limit(model, args)
            window = limit or DEFAULT_LIMIT
            budget = usable(self._state.policy, window, model)
            viewer = Viewer(log, self._state.policy, model=model, usable=budget)
            plan = session_plan(viewer, window, model=model)
            is_full = exceeds(self._state.policy, plan.tokens, window, model)
        assumed = "" if limit else " (assumed, as no model tells it; give `window`)"
        to_hide = plan.prune.prune
        largest = "; the largest are below" if len(to_hide) > _MAX_ROWS else ""
        head = (
            f"The next request of session {self.name}, with system prompt and tools as far as they "
            f"were measured: {plan.tokens:,} of {plan.usable:,} usable tokens "
            f"({round(plan.pressure * 100)} %) in a window of {window.context:,}{assumed}. "
            f"{_verdict(plan, is_full=is_full)}\n"
            f"Prune would hide {len(to_hide):,} tool outputs ({plan.prune.tokens:,} tokens)"
            f"{largest}.\nA compaction now would fold {len(plan.fold.head):,} messages."
        )
        return _answer(head, [*_prune_lines(to_hide), *_keep_lines(plan.prune.keep)])

    def _limit(self, model: str, args: PlanArguments) -> Limit | None:
        """The limits to plan for; None if they are unknown."""
        window = args.window or (None if args.model else self._state.settings.window)
        settings = replace(self._state.settings, model=model or None, window=window)
        try:
            return settings.limit()
        except UnknownModel as error:
            if not args.model:
                return None
            hint = f" Did you mean {', '.join(error.nearest)}?" if error.nearest else ""
            cause = f"no limits are known for the model {line(model)!r}.{hint} Give `window`"
            raise BadInput(cause) from None

    # --- figures ---

    def inspect_text(self, sessions: Sequence[str], *, unreadable_lines: int) -> str:
        """Figures of the session, in full and as the model sees it, and the names of all."""
        figures, listed = self._figures(), sessions[:_MAX_NAMES]
        compactions = figures.compactions[-_MAX_COMPACTIONS:]
        head = (
            f"Session {self.name}: {figures.log:,} messages, {figures.tokens.total:,} tokens in "
            f"full; shown: {figures.view.messages:,} messages, {figures.view.tokens:,} tokens. "
            f"{figures.requests:,} requests of the user, {figures.tool_calls:,} tool calls. "
            f"{len(compactions)} compactions told, {figures.pruned:,} outputs pruned."
        )
        if unreadable_lines:
            head += f" Lines of the transcript that could not be read: {unreadable_lines:,}."
        if len(listed) < len(sessions):
            head += f" {len(listed)} of {len(sessions):,} sessions are listed."
        lines = [f"title: {line(figures.title)}"] if figures.title else []
        lines.append(f"format: {line(figures.format, _LABEL)}")
        lines += [f"model {line(name)}" for name in figures.models[:_MAX_ROWS]]
        lines += _token_lines(figures)
        lines += [_compaction_line(compaction) for compaction in compactions]
        lines += [f"session {line(name, 300)}" for name in listed]
        return _answer(f"{head} Figures are tokens.", lines)

    def _figures(self) -> Inspection:
        """The figures of the whole log, cached until it changes."""
        with self._state.lock, self._state.report_damage():
            part = Slice(everything=True)
            row = self._state.store.row(self._state.key)
            if self._cached_figures is None or self._cached_figures[0] != row.version:
                loaded = self._state.store.load(
                    self._state.key, part, estimate=self._state.policy.estimate
                )
                viewer = self._state.viewer_of(self._state.build_log(loaded))
                self._cached_figures = loaded.row.version, inspection(viewer, loaded.row.info)
            return self._cached_figures[1]


def line(text: str, limit: int = _LINE) -> str:
    """One line of an untrusted text, truncated, without characters that cannot be printed."""
    whole = printable(" ".join(text[: limit * 4].split()))
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def _answer(head: str, lines: Sequence[str]) -> str:
    """A heading, and recorded lines as data."""
    return "\n".join([head, fence_record(["\n".join(lines)])] if lines else [head])


def _join_labels(*labels: str) -> str:
    """The non-empty labels."""
    return " ".join(filter(None, (line(label, _LABEL) for label in labels)))


def _verdict(plan: Plan, *, is_full: bool) -> str:
    if not is_full:
        remaining = max(0, plan.usable - plan.tokens)
        return f"It fits: {remaining:,} tokens are left before it must be made smaller."
    if not plan.overflow:
        return "It is too full, but compaction by itself is off."
    if plan.prune_is_enough:
        return "It overflows; hiding old tool outputs is enough."
    return "It overflows; old messages must be folded into a summary."


def _prune_lines(decisions: Iterable[Decision]) -> list[str]:
    largest = sorted(decisions, key=lambda one: -one.tokens)[:_MAX_ROWS]
    return [
        f"prune {_join_labels(handle(one.ordinal), one.tool, one.output.target.label)}: "
        f"{one.tokens:,} tokens; {line(one.reason)}"
        for one in largest
    ]


def _keep_lines(decisions: Iterable[Decision]) -> list[str]:
    return [
        f"keep {outputs:,} outputs, {tokens:,} tokens: {line(reason)}"
        for reason, outputs, tokens in by_reason(decisions)[:_MAX_REASONS]
    ]


def _token_lines(figures: Inspection) -> list[str]:
    """Tokens by kind, tool and file, and of the largest parts."""
    tokens = figures.tokens
    lines = [f"kind {name}: {count:,}" for name, count in asdict(tokens.by_kind).items() if count]
    tools = list(tokens.by_tool.items())[:_MAX_ROWS]
    lines += [f"tool {line(name, _LABEL)}: {count:,}" for name, count in tools]
    lines += [f"file {line(entry.file)}: {entry.tokens:,}" for entry in tokens.by_file[:_MAX_ROWS]]
    for entry in figures.largest[:_MAX_ROWS]:
        labels = _join_labels(entry.handle, entry.state, entry.name, entry.target)
        lines.append(f"part {labels}: {entry.tokens:,}")
    wasted = {"repeated": figures.duplicated.tokens, "superseded": figures.superseded.tokens}
    return lines + [f"{name}: {count:,}" for name, count in wasted.items() if count]


def _compaction_line(compaction: RecordedCompaction) -> str:
    names = ", ".join(map(line, compaction.lost.largest if compaction.lost else ()))
    losses = f"; no longer named: {names}" if names else ""
    change = f"{compaction.before:,} to {compaction.after:,}, {compaction.hidden.messages} hidden"
    return f"compaction at message {compaction.message}: {change}{losses}"
