"""Where the tokens of a log are: by what they are, by tool, by file.

All is told in full size, as if nothing were hidden. Sizes come from the log.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from foldmark.log.log import Entry, Log
from foldmark.log.tool_targets import Target, target
from foldmark.model.messages import Failed, FilePart, ReasoningPart, SessionInfo, ToolPart
from foldmark.model.values import Frozen, encode
from foldmark.tokens.counters import Counter as TokenCounter
from foldmark.tokens.sizes import MESSAGE_OVERHEAD, Size

Kind = Literal["user", "assistant", "reasoning", "tool_input", "tool_output", "file"]


class Kinds(Frozen):
    """Tokens by what they are; a message's own wrapping counts for who sent it."""

    user: int = 0
    assistant: int = 0
    reasoning: int = 0
    tool_input: int = 0
    tool_output: int = 0
    file: int = 0


class Fixed(Frozen):
    """What stands before the log in every request, as far as the transcript tells."""

    system: int = 0
    tools: int = 0


class Touched(Frozen):
    """The calls and outputs of tools that were about one file."""

    file: str
    tokens: int
    reads: int
    writes: int


class TokenUsage(Frozen):
    """The tokens of a whole log, nothing hidden; `fixed` is no part of the log or of the total."""

    total: int
    by_kind: Kinds
    by_tool: dict[str, int]  # a tool's calls and results, the largest first
    by_file: tuple[Touched, ...]  # the largest first
    fixed: Fixed


def entry_tokens(entry: Entry) -> int:
    """What one message costs in full."""
    return overhead(entry) + sum([size.total for size in entry.sizes])


def overhead(entry: Entry) -> int:
    """What the wrapping of a message costs; results travel in a message of their own."""
    said = any(size.fixed for size in entry.sizes)
    has_results = any(isinstance(part, ToolPart) for part in entry.message.parts)
    return MESSAGE_OVERHEAD * (said + has_results)


def fixed_tokens(info: SessionInfo | None, count: TokenCounter) -> Fixed:
    """The tokens of the system prompt and the definitions of tools, where they are told."""
    origin = info.origin if info else None
    if not origin:
        return Fixed()
    return Fixed(
        system=count(origin.system) if origin.system else 0,
        tools=count(encode(origin.tools).decode()) if origin.tools else 0,
    )


def spent(log: Log, info: SessionInfo | None = None) -> TokenUsage:
    """Where the tokens of a log are."""
    tally = _Tally(log.count)
    for entry in log.entries.values():
        tally.take(entry)
    return TokenUsage(
        total=tally.kinds.total(),
        by_kind=Kinds(**tally.kinds),
        by_tool=dict(tally.tools.most_common()),
        by_file=_largest_first(tally.files.values()),
        fixed=fixed_tokens(info, log.count),
    )


def files_together(found: Iterable[Touched]) -> tuple[Touched, ...]:
    """Files of several logs, each once, the largest first."""
    files: dict[str, Touched] = {}
    for touched in found:
        files[touched.file] = _added(files.get(touched.file), touched)
    return _largest_first(files.values())


class _Tally:
    """Takes message by message."""

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self.kinds: Counter[Kind] = Counter()
        self.tools: Counter[str] = Counter()
        self.files: dict[str, Touched] = {}

    def take(self, entry: Entry) -> None:
        who: Kind = "user" if entry.message.is_user else "assistant"
        self.kinds[who] += overhead(entry)
        for part, size in zip(entry.message.parts, entry.sizes, strict=True):
            match part:
                case ToolPart():
                    self._take_tool(part, size)
                case ReasoningPart():
                    self.kinds["reasoning"] += size.fixed
                case FilePart():
                    self.kinds["file"] += size.fixed
                case _:
                    self.kinds[who] += size.fixed

    def _take_tool(self, part: ToolPart, size: Size) -> None:
        # An error cannot be pruned: its size is told together with its call's.
        error = self._count(part.state.error) if isinstance(part.state, Failed) else 0
        output = size.body + size.attached + error
        self.kinds["tool_output"] += output
        self.kinds["tool_input"] += size.total - output
        self.tools[part.tool] += size.total
        about = target(part.tool, part.state.input or {})
        if about.files:
            self._take_files(about, size.total)

    def _take_files(self, about: Target, tokens: int) -> None:
        """A call that is about several files counts for each of them with its share."""
        share, rest = divmod(tokens, len(about.files))
        for place, file in enumerate(about.files):
            touched = Touched(
                file=file,
                tokens=share + (rest if place == 0 else 0),
                reads=about.act == "read",
                writes=about.act == "write",
            )
            self.files[file] = _added(self.files.get(file), touched)


def _added(held: Touched | None, more: Touched) -> Touched:
    return Touched(
        file=more.file,
        tokens=more.tokens + (held.tokens if held else 0),
        reads=more.reads + (held.reads if held else 0),
        writes=more.writes + (held.writes if held else 0),
    )


def _largest_first(files: Iterable[Touched]) -> tuple[Touched, ...]:
    return tuple(sorted(files, key=lambda touched: (-touched.tokens, touched.file)))
