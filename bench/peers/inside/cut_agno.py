"""agno: whether Compaction would fold, and where; later steps replay the fold."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

from typing import Any

from agno.compaction import Compaction
from agno.compaction.types import CompactionRecord
from agno.models.message import Message
from agno.utils.log import set_log_level_to_error
from timing import Cut, report

set_log_level_to_error()
# The kept tail is at most half of the threshold: 80 000 lets it be 40 000.
COMPACTION = Compaction(compact_at_tokens=80_000, uncompacted_tokens=40_000)
record: list[CompactionRecord | None] = [None]  # what its loop stores beside the messages


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [Message(**message) for message in messages]


def cut(messages: list[Any]) -> tuple[list[Any], int | None]:
    """The steps of its agent's apply_compaction, up to the model's call."""
    shown = COMPACTION.apply_record(messages, record[0]) if record[0] else messages
    if not COMPACTION.should_compact(shown):
        return shown, None
    boundary = COMPACTION.plan(messages, record[0])
    return (shown if boundary is None else messages[boundary:]), boundary


def carried(messages: list[Any], outcome: tuple[list[Any], int | None]) -> list[Any]:
    boundary = outcome[1]
    if boundary is not None:
        first = messages[boundary].id
        record[0] = CompactionRecord(boundary, "All went well.", first_kept_message_id=first)
    return messages


report({"cut": Cut(history, cut, lambda outcome: len(outcome[0]), carried=carried)})
