"""Messages as importers make them: ids and times come from the transcript."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    CompactionPart,
    Message,
    Number,
    TextPart,
    Time,
    Tokens,
    UserInfo,
    finish_of,
)
from foldmark.model.values import Json

_LATEST = 2**53


def moment(stamp: object) -> int | None:
    """Milliseconds since 1970 for a time as transcripts write it: ISO 8601, seconds, or these."""
    if isinstance(stamp, str):
        return _iso(stamp)
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 < stamp < _LATEST:
        # Seconds until the year 5138; milliseconds from 1973 on.
        return int(stamp * 1000) if stamp < 10**11 else int(stamp)
    return None


def _iso(stamp: str) -> int | None:
    try:
        when = datetime.fromisoformat(stamp)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def user_message(
    id: str, parts: Iterable[AnyPart], at: Number | None, *, wire: Json | None = None
) -> Message:
    """A message of the user."""
    info = UserInfo(id=id, time=_created(at), wire=wire or UNSET)
    return Message(info=info, parts=tuple(parts))


def assistant_message(
    id: str,
    parts: Iterable[AnyPart],
    at: Number | None,
    *,
    model: tuple[str, str] = ("", ""),
    tokens: Tokens | None = None,
    finish: str = "",
) -> Message:
    """An answer of a model, by the names of its provider and its own."""
    held = tuple(parts)
    info = AssistantInfo(
        id=id,
        time=_created(at),
        provider_id=model[0] or UNSET,
        model_id=model[1] or UNSET,
        tokens=tokens or UNSET,
        finish=finish or finish_of(held),
    )
    return Message(info=info, parts=held)


def with_info(message: Message, **fields: Any) -> Message:
    """A message of which more is said: its cost, an error, what its wire kept."""
    return replace(message, info=replace(message.info, **fields))


def note(text: str) -> TextPart:
    """A text that the program put into the context, not the user."""
    return TextPart(text=text, synthetic=True)


def folded(
    id: str,
    summary: Iterable[AnyPart],
    at: Number | None,
    *,
    auto: bool,
    tail: str | None = None,
    wire: Json | None = None,
) -> tuple[Message, Message]:
    """A recorded compaction as a pivot: its marker, and its summary."""
    marker = Message(
        info=UserInfo(id=f"{id}-marker", time=_created(at), wire=wire or UNSET),
        parts=(CompactionPart(auto=auto, tail_start_id=tail or UNSET),),
    )
    info = AssistantInfo(
        id=f"{id}-summary",
        parent_id=marker.id,
        time=_created(at),
        summary=True,
        finish="stop",
    )
    return marker, Message(info=info, parts=tuple(summary))


def _created(at: Number | None) -> Time | UnsetType:
    return UNSET if at is None else Time(created=at)
