"""The two messages of a pivot: the marker that queues it, and the summary that completes it."""

from msgspec import UNSET

from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    CompactionPart,
    Message,
    ModelRef,
    Number,
    Path,
    TextPart,
    Time,
    Tokens,
    UserInfo,
)
from foldmark.model.values import Frozen

AGENT = "compaction"


class MessageIds(Frozen):
    """The ids, time and folders for a new message of a pivot; they come from the caller."""

    session: str
    message: str
    part: str
    at: Number
    path: Path | None = None


def marker_message(  # noqa: PLR0913 - each is a field of a marker
    ids: MessageIds,
    *,
    auto: bool,
    overflow: bool = False,
    tail_start: str | None = None,
    user_text: int | None = None,
    agent: str | None = None,
    model: ModelRef | None = None,
) -> Message:
    """A marker: a user message that queues a compaction."""
    part = CompactionPart(
        id=ids.part,
        session_id=ids.session,
        message_id=ids.message,
        auto=auto,
        overflow=True if overflow else UNSET,
        tail_start_id=tail_start or UNSET,
        words=UNSET if user_text is None else user_text,
    )
    info = UserInfo(
        id=ids.message,
        session_id=ids.session,
        time=Time(created=ids.at),
        agent=agent or UNSET,
        model=model or UNSET,
    )
    return Message(info=info, parts=(part,))


def summary_message(
    ids: MessageIds,
    text: str,
    *,
    marker: str,
    model: ModelRef | None = None,
    tokens: Tokens | None = None,
    cost: Number = 0,
) -> Message:
    """A summary: an assistant message that completes the pivot of a marker."""
    info = AssistantInfo(
        id=ids.message,
        session_id=ids.session,
        parent_id=marker,
        time=Time(created=ids.at, completed=ids.at),
        agent=AGENT,
        mode=AGENT,
        summary=True,
        finish="stop",
        provider_id=model.provider_id if model else UNSET,
        model_id=model.model_id if model else UNSET,
        tokens=tokens or UNSET,
        cost=cost,
        path=ids.path or UNSET,
    )
    part = TextPart(id=ids.part, session_id=ids.session, message_id=ids.message, text=text)
    return Message(info=info, parts=(part,))


def append_pivot(
    log: Log, text: str, *, tail_start: str | None, user_text: int | None = None
) -> None:
    """Append a pivot to a log in memory; its ids are made from the log's length."""
    number = len(log)
    marker, summary = (
        MessageIds(session="", message=f"msg_{name}", part=f"prt_{name}", at=number)
        for name in (f"marker_{number}", f"summary_{number}")
    )
    log.append(marker_message(marker, auto=True, tail_start=tail_start, user_text=user_text))
    log.append(summary_message(summary, text, marker=marker.message))
