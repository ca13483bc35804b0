"""What the runs of agents on benchmarks have in common: a task, a prompt, how it ended."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, Origin, SessionInfo, TextPart
from foldmark.model.values import Extra, Json
from foldmark.transcripts.source import Head
from foldmark.wire.openai_chat import OpenAIChat

_FACTS = ("exit_status", "model_stats")  # small; what was handed in is an output already
_wire = OpenAIChat()
_items = msgspec.json.Decoder(list[msgspec.Raw])


class Names:
    """Names, of which each is given once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._given: dict[str, int] = {}

    def once(self, name: str) -> str:
        """A name, or one made of it where it was given before."""
        while (count := self._given.get(name, 0) + 1) > 1:
            self._given[name] = count
            name = f"{name}-{count}"
        self._given[name] = count
        return name


def prompted(messages: Iterable[tuple[object, object]]) -> list[str]:
    """The system prompts that lead a run, of roles and contents."""
    found: list[str] = []
    for role, content in messages:
        if role != "system":
            break
        parts = _wire.read({"role": role, "content": content}).parts
        found.append("\n".join(part.text for part in parts if isinstance(part, TextPart)))
    return found


def run_info(
    session: str,
    *,
    prompts: list[str],
    title: object,
    version: object,
    directory: object = None,
) -> SessionInfo:
    """What is said of a run."""
    return SessionInfo(
        id=session,
        title=_text(title),
        version=_text(version),
        directory=_text(directory),
        origin=Origin(system="\n\n".join(prompts)) if prompts else UNSET,
    )


def as_object(held: object) -> Json:
    """What may be an object, as one."""
    return cast("Json", held) if isinstance(held, dict) else {}


def facts(name: str, about: Json) -> Extra | UnsetType:
    """How a run ended and what it cost, under the name of its format."""
    found = {fact: about[fact] for fact in _FACTS if about.get(fact) is not None}
    return Extra({name: found}) if found else UNSET


def by_program(parts: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Texts that the program told, not the user."""
    return tuple(
        replace(part, synthetic=True) if isinstance(part, TextPart) else part for part in parts
    )


def first_of(head: Head, name: str) -> Json:
    """The first item of a list in a document; nothing of it is decoded beyond that item."""
    held: Any = head.fields.get(name)
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if isinstance(held, msgspec.Raw):
            held = _items.decode(held)[:1]
            held = [msgspec.json.decode(item) for item in held]
    return as_object(cast("list[object]", held)[0] if isinstance(held, list) and held else None)


def _text(held: object) -> str | UnsetType:
    return held if isinstance(held, str) and held else UNSET
