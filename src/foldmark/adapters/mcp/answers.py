"""What the tools of the MCP server take and give, each as one value, and each answer as text.

The types are also the schemas that a client is told: their sentences are written for a model.
Nothing here knows where a session lies, or the protocol.
"""

from typing import Annotated, Literal

from msgspec import Meta

from foldmark.files import harmless
from foldmark.model.values import Frozen
from foldmark.summary.prompting import fenced

State = Literal["shown", "pruned", "folded", "reverted"]
MOST_CHARACTERS = 20_000  # of a text in one answer
MOST_HITS = 50
_LINE, _NAME = 200, 100

SessionName = Annotated[
    str | None,
    Meta(
        description="One of the sessions that `inspect` lists. If left out: the newest; of one "
        "file with several, the longest.",
        extra_json_schema={"maxLength": 300},
    ),
]


class Asked(Frozen, forbid_unknown_fields=True):
    """The arguments of a tool."""

    session: SessionName = None

    def __post_init__(self) -> None:
        """Refuse a name that can be none: Meta cannot bound a text that may also be null."""
        if self.session is not None and len(self.session) > 300:
            raise ValueError("`session` has more than 300 characters")


class Search(Asked):
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
    most: Annotated[int, Meta(description="How many hits to give.", ge=1, le=MOST_HITS)] = 20


class Recall(Asked):
    """The arguments of `recall`."""

    handle: Annotated[
        str,
        Meta(
            description="As hits and placeholders tell it, like h3f.", min_length=1, max_length=64
        ),
    ]
    start: Annotated[
        int, Meta(description="The character to begin with; `next` of a page.", ge=0, le=2**53)
    ] = 0
    length: Annotated[
        int, Meta(description="How many characters to give.", ge=1, le=MOST_CHARACTERS)
    ] = MOST_CHARACTERS


class Plan(Asked):
    """The arguments of `plan`."""

    window: Annotated[
        int | None,
        Meta(
            description="The context window in tokens, from 1; else the model's own.",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    model: Annotated[
        str | None,
        Meta(
            description="As provider:name; else the newest model of the session.",
            extra_json_schema={"maxLength": 200},
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what no model has."""
        super().__post_init__()
        if self.window is not None and not 1 <= self.window <= 2**53:
            raise ValueError("`window` is no number of tokens: give one from 1 on")
        if self.model is not None and not 0 < len(self.model) <= 200:
            raise ValueError("`model` is no name of a model: give it as provider:name")


class Inspect(Asked):
    """The arguments of `inspect`."""


# --- answers -------------------------------------------------------------------------------


class Hit(Frozen):
    """A place where the words were said."""

    handle: str  # for `recall`
    state: State
    kind: str
    tool: str | None
    message: int  # its number in the session, from 1
    snippet: str


class Hits(Frozen):
    """What a search found; best first. Snippets are quoted data."""

    session: str
    messages: int
    hits: tuple[Hit, ...]
    more: bool  # whether `most` has left some out


class Page(Frozen):
    """A text of the session, or a piece of it. It is quoted data."""

    session: str
    handle: str
    kind: str
    tool: str | None
    about: str
    message: int
    start: int
    length: int
    total: int
    next: int | None  # where the next page starts; null at the end
    text: str


class Output(Frozen):
    """A tool output that would be pruned."""

    handle: str
    tool: str
    about: str
    tokens: int
    reason: str


class Kept(Frozen):
    """Tool outputs that would stay, for one reason."""

    outputs: int
    tokens: int
    reason: str


class Planned(Frozen):
    """What would be done to make the session fit."""

    session: str
    model: str | None
    window: int
    window_is_assumed: bool
    usable: int
    tokens: int
    percent: int
    overflow: bool
    verdict: str
    prune_outputs: int
    prune_tokens: int
    prune: tuple[Output, ...]  # the largest
    keep: tuple[Kept, ...]
    fold_messages: int
    keep_from_message: int | None


class File(Frozen):
    """The calls and outputs about one file."""

    file: str
    tokens: int
    reads: int
    writes: int


class Part(Frozen):
    """One of the largest parts."""

    handle: str
    what: str
    about: str
    tokens: int
    state: State


class Pivot(Frozen):
    """A compaction: where earlier messages were folded into a summary."""

    message: int
    tokens_before: int
    tokens_after: int
    hidden_messages: int
    files_no_longer_named: tuple[str, ...]


class Inspected(Frozen):
    """A session in figures: in full, and as the model is shown it."""

    session: str
    title: str
    format: str
    models: tuple[str, ...]
    messages: int
    requests: int
    tool_calls: int
    tokens: int
    shown_messages: int
    shown_tokens: int
    pruned: int
    by_kind: dict[str, int]
    by_tool: dict[str, int]
    by_file: tuple[File, ...]
    largest: tuple[Part, ...]
    pivots: tuple[Pivot, ...]
    repeated_tokens: int
    superseded_tokens: int
    lines_left_out: int
    sessions: tuple[str, ...]  # names for `session`, the newest first
    sessions_in_all: int


Answer = Hits | Page | Planned | Inspected


# --- the same as text ----------------------------------------------------------------------


def line(text: str, most: int = _LINE) -> str:
    """One line of a text that nobody here wrote, cut, without what cannot be printed or sent."""
    whole = harmless(" ".join(text[: most * 4].split()))
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def sendable(text: str) -> str:
    """A text without halves of characters, which no message can carry."""
    return text.encode("utf-8", "replace").decode()


def text_of(answer: Answer) -> str:
    """An answer for who reads no structured content; what was recorded stands in it as data."""
    match answer:
        case Hits():
            return _hits_text(answer)
        case Page():
            return _page_text(answer)
        case Planned():
            return _plan_text(answer)
        case Inspected():
            return _inspected_text(answer)


def _name(session: str) -> str:
    """A session's name where no fence stands around it: a transcript may have chosen it."""
    return f'"{line(session, _NAME)}"'


def _labelled(*labels: str) -> str:
    """Those of the labels that say something."""
    return " ".join(filter(None, labels))


def _quoted(lines: list[str]) -> str:
    return fenced(["\n".join(lines)])


def _hits_text(answer: Hits) -> str:
    where = f"session {_name(answer.session)} ({answer.messages:,} messages)"
    if not answer.hits:
        told = "Try fewer, or their beginnings, or another `session`."
        return f"Nothing in {where} holds all of these words. {told}"
    found = [
        f"{hit.handle} {hit.state} {hit.tool or hit.kind}, message {hit.message}: {hit.snippet}"
        for hit in answer.hits
    ]
    more = f"the first {len(found)} of more" if answer.more else f"all {len(found)}"
    head = f"Found in {where}, {more}. `recall` with a handle gives the whole text."
    return f"{head}\n{_quoted(found)}"


def _page_text(answer: Page) -> str:
    end = answer.start + answer.length
    what = f"{answer.handle} of session {_name(answer.session)}, message {answer.message}"
    head = f"{what}: characters {answer.start:,} to {end:,} of {answer.total:,}."
    if answer.next is not None:
        head += f" Next page: start={answer.next}."
    return f"{head}\n{fenced([answer.text])}"


def _plan_text(answer: Planned) -> str:
    assumed = " (assumed, as no model tells it; give `window`)" if answer.window_is_assumed else ""
    head = (
        f"The next request of session {_name(answer.session)}, with system prompt and tools as far "
        f"as they were measured: {answer.tokens:,} of {answer.usable:,} usable tokens "
        f"({answer.percent} %) in a window of {answer.window:,}{assumed}. {answer.verdict}"
    )
    largest = "; the largest are below" if answer.prune_outputs > len(answer.prune) else ""
    hidden = f"{answer.prune_outputs:,} tool outputs ({answer.prune_tokens:,} tokens)"
    lines = [
        f"Prune would hide {hidden}{largest}.",
        f"A compaction now would fold {answer.fold_messages:,} messages.",
    ]
    told = [
        f"prune {_labelled(held.handle, held.tool, held.about)}: {held.tokens:,} tokens; "
        f"{held.reason}"
        for held in answer.prune
    ]
    told += [
        f"keep {held.outputs:,} outputs, {held.tokens:,} tokens: {held.reason}"
        for held in answer.keep
    ]
    return "\n".join([head, *lines, _quoted(told)] if told else [head, *lines])


def _inspected_text(answer: Inspected) -> str:
    head = (
        f"Session {_name(answer.session)}: {answer.messages:,} messages, {answer.tokens:,} tokens "
        f"in full; shown: {answer.shown_messages:,} messages, {answer.shown_tokens:,} tokens. "
        f"{answer.requests:,} requests of the user, {answer.tool_calls:,} tool calls. "
        f"{len(answer.pivots)} compactions told, {answer.pruned:,} outputs pruned."
    )
    if answer.lines_left_out:
        head += f" Lines of the transcript that could not be read: {answer.lines_left_out:,}."
    if len(answer.sessions) < answer.sessions_in_all:
        head += f" {len(answer.sessions)} of {answer.sessions_in_all:,} sessions are listed."
    told = [f"title: {answer.title}", f"format: {answer.format}"]
    told += [f"model {name}" for name in answer.models]
    told += [f"kind {name}: {tokens:,}" for name, tokens in answer.by_kind.items() if tokens]
    told += [f"tool {name}: {tokens:,}" for name, tokens in answer.by_tool.items()]
    told += [f"file {held.file}: {held.tokens:,}" for held in answer.by_file]
    told += [
        f"part {_labelled(held.handle, held.state, held.what, held.about)}: {held.tokens:,}"
        for held in answer.largest
    ]
    told += [_pivot_line(held) for held in answer.pivots]
    told += [f"session {name}" for name in answer.sessions]
    return f"{head} Figures are tokens.\n{_quoted(told)}"


def _pivot_line(held: Pivot) -> str:
    change = f"{held.tokens_before:,} to {held.tokens_after:,}"
    lost = ", ".join(held.files_no_longer_named)
    gone = f"; no longer named: {lost}" if lost else ""
    return f"compaction at message {held.message}: {change}, {held.hidden_messages} hidden{gone}"
