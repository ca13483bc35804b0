"""The formats of transcripts: which there are, and which of them a file is of.

A format that is installed elsewhere is found by the entry point `foldmark.formats`.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name

from foldmark.errors import BadInput

from .build import FormatReader
from .source import Head, Unrecognised

ENTRY_POINTS = "foldmark.formats"


Format = type[FormatReader]

_OWN = (
    "opencode:OpenCode",
    "claude_code:ClaudeCode",
    "codex:Codex",
    "pi:Pi",
    "copilot_cli:CopilotCli",
    "gemini_cli:GeminiCli",
    "swe_agent:SweAgent",
    "mini_swe_agent:MiniSweAgent",
    "openhands:OpenHands",
    "claude_trace:ClaudeTrace",
    "api_lists:AnthropicLists",
    "api_lists:ResponsesLists",
    "api_lists:ChatLists",
    "aider:Aider",
)


@cache
def formats() -> tuple[Format, ...]:
    """All formats that are known, our own first."""
    own: list[Format] = [resolve_name(f"{__package__}.formats.{home}") for home in _OWN]
    return (*own, *_installed({format.name for format in own}))


def _installed(taken: set[str]) -> Iterator[Format]:
    for found in entry_points(group=ENTRY_POINTS):
        try:
            loaded = found.load()
        except Exception as error:
            raise BadInput(f"the format {found.name!r} cannot be loaded: {error}") from error
        if not isinstance(loaded, type) or not issubclass(loaded, FormatReader):
            loaded = None
        if loaded is None or loaded.name in taken:
            raise BadInput(f"{found.value} is no new format: {found.name!r}")
        taken.add(loaded.name)
        yield loaded


def format_named(name: str) -> Format:
    """The format of this name."""
    for format in formats():
        if format.name == name:
            return format
    near = get_close_matches(name, [held.name for held in formats()], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BadInput(f"there is no format {name!r}.{hint} There are: {_names(formats())}")


def recognised(head: Head) -> Format:
    """The one format that a file can be of; BadInput where there is none, or more than one."""
    found = [format for format in formats() if format.recognises(head)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(
            f"it can be of {_names(found, ' or ')}; say which: --format NAME, format=… in Python"
        )
    tried = _names(formats())
    cause = f"not a transcript of a format that is known; if it is one, give --format NAME: {tried}"
    raise Unrecognised(cause)


def _names(held: Sequence[Format], between: str = ", ") -> str:
    return between.join(format.name for format in held)
