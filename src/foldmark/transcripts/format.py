"""The transcript formats: a list of all, lookup by name, and recognition by a file's content.

Other packages add formats with an entry point in the group `foldmark.formats`.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name

from foldmark.errors import BadInput

from .build import FormatReader
from .source import Head, UnrecognizedFormat

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
    """All formats: built-in ones, then those of other packages."""
    own: list[Format] = [resolve_name(f"{__package__}.formats.{name}") for name in _OWN]
    return (*own, *_installed({format.name for format in own}))


def _installed(names: set[str]) -> Iterator[Format]:
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            format = entry.load()
        except Exception as error:
            raise BadInput(f"cannot load the format {entry.name!r}: {error}") from error
        if not isinstance(format, type) or not issubclass(format, FormatReader):
            raise BadInput(f"the format {entry.name!r} is not a FormatReader: {entry.value}")
        if format.name in names:
            raise BadInput(f"{entry.value} has the name of another format: {format.name!r}")
        names.add(format.name)
        yield format


def format_named(name: str) -> Format:
    """The format of this name; raises BadInput if there is none."""
    for format in formats():
        if format.name == name:
            return format
    near = get_close_matches(name, [format.name for format in formats()], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BadInput(f"unknown format {name!r}.{hint} Formats: {_names(formats())}")


def recognize_format(head: Head) -> Format:
    """The format of a file with this head; raises BadInput if none or several recognize it."""
    matches = [format for format in formats() if format.recognizes(head)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        choices = _names(matches, " or ")
        raise BadInput(f"it can be {choices}; choose with --format NAME, or format=… in Python")
    raise UnrecognizedFormat(
        f"not a known transcript format; if it is one of these, give --format NAME: "
        f"{_names(formats())}"
    )


def _names(formats: Sequence[Format], separator: str = ", ") -> str:
    return separator.join(format.name for format in formats)
