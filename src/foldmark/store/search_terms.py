"""The words by which messages are found: the same on every engine, as we split texts ourselves.

What is searched for is split by the same rule, so that it is data and never a query's syntax.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from foldmark.log.log import part_text
from foldmark.model.messages import (
    AnyPart,
    Completed,
    Failed,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.model.values import Json, to_plain

# A word is letters and digits; of Chinese, Japanese and Korean, each character is one.
_SIGNS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_SIGNS}]|[^\W_{_SIGNS}]+")
_LONGEST = 64
# What colours a terminal's output is no word, and must not stick to one.
_ESCAPE = "\x1b"
_STEERING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DATA = re.compile(r"data:[\w.+-]+/[\w.+-]+[;,]")
# Names and figures of ours and of providers, by which nobody looks for a message.
_NOT_WORDS = frozenset(
    {
        *("id", "sessionID", "messageID", "parentID", "callID", "providerID", "modelID"),
        *("type", "role", "status", "mode", "agent", "hash", "snapshot", "signature", "mime"),
        *("reasoningEncryptedContent", "itemId", "finish", "reason"),
    }
)


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    if _ESCAPE in text:
        text = _STEERING.sub(" ", text)
    return [word[:_LONGEST] for word in _WORD.findall(text.lower())]


def message_words(message: Message) -> set[str]:
    """All words by which a message can be found: those of its parts, which are what is found."""
    return set(words("\n".join([searched_text(part) for part in message.parts])))


def searched_text(part: AnyPart) -> str:
    """What is searched of a part: what it says, and what a tool was asked."""
    if isinstance(part, TextPart | ReasoningPart):
        return part.text
    if isinstance(part, ToolPart):
        asked = "\n".join(strings([part.tool, part.state.input or {}, part.state.title or ""]))
        given = part_text(part) if isinstance(part.state, Completed | Failed) else ""
        return f"{given}\n{asked}"
    return "\n".join(strings(to_plain(part)))


def strings(value: Any) -> Iterator[str]:
    """The texts in plain JSON that a person or a model might look for."""
    match value:
        case str():
            if not is_data(value):
                yield value
        case dict():
            for key, item in cast("Json", value).items():
                if key not in _NOT_WORDS:
                    yield from strings(item)
        case list():
            for item in cast("list[Any]", value):
                yield from strings(item)
        case _:
            pass


def is_data(text: str) -> bool:
    """Whether a text is a file as a data URL, in which nobody looks for words."""
    return _DATA.match(text) is not None


def column(text: str | None) -> str | None:
    """A text as every engine can hold it in a column, to be read again by `from_column`."""
    if text is None or (text == clean(text) and not text.startswith('"')):
        return text
    return json.dumps(text)


def from_column(text: str | None) -> str | None:
    """The text that was put into a column."""
    return json.loads(text) if text is not None and text.startswith('"') else text


def clean(text: str) -> str:
    """A text as every engine can hold it in a column: without what UTF-8 or SQL does not know."""
    if text.isprintable():
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
