"""The two messages of a pivot: the marker that queues it, the summary that completes it."""

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
    """Where and when a message is made: ids and time come from outside."""

    session: str
    message: str
    part: str
    at: Number
    path: Path | None = None


def marker_message(  # noqa: PLR0913 - each is a field of a marker
    made: MessageIds,
    *,
    auto: bool,
    overflow: bool = False,
    tail_start: str | None = None,
    user_text_budget: int | None = None,
    agent: str | None = None,
    model: ModelRef | None = None,
) -> Message:
    """A user message that queues a compaction."""
    part = CompactionPart(
        id=made.part,
        session_id=made.session,
        message_id=made.message,
        auto=auto,
        overflow=True if overflow else UNSET,
        tail_start_id=tail_start or UNSET,
        words=UNSET if user_text_budget is None else user_text_budget,
    )
    info = UserInfo(
        id=made.message,
        session_id=made.session,
        time=Time(created=made.at),
        agent=agent or UNSET,
        model=model or UNSET,
    )
    return Message(info=info, parts=(part,))


def summary_message(
    made: MessageIds,
    text: str,
    *,
    marker: str,
    model: ModelRef | None = None,
    tokens: Tokens | None = None,
    cost: Number = 0,
) -> Message:
    """The assistant message that completes a marker's pivot."""
    info = AssistantInfo(
        id=made.message,
        session_id=made.session,
        parent_id=marker,
        time=Time(created=made.at, completed=made.at),
        agent=AGENT,
        mode=AGENT,
        summary=True,
        finish="stop",
        provider_id=model.provider_id if model else UNSET,
        model_id=model.model_id if model else UNSET,
        tokens=tokens or UNSET,
        cost=cost,
        path=made.path or UNSET,
    )
    part = TextPart(id=made.part, session_id=made.session, message_id=made.message, text=text)
    return Message(info=info, parts=(part,))


def append_pivot(
    log: Log, text: str, *, tail_start: str | None, user_text_budget: int | None = None
) -> None:
    """Fold a log that is in memory only; the ids are made of its length."""
    number = len(log)
    marker, summary = (
        MessageIds(
            session="", message=f"msg_{kind}_{number}", part=f"prt_{kind}_{number}", at=number
        )
        for kind in ("marker", "summary")
    )
    log.append(
        marker_message(marker, auto=True, tail_start=tail_start, user_text_budget=user_text_budget)
    )
    log.append(summary_message(summary, text, marker=marker.message))
