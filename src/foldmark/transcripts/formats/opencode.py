"""OpenCode: the format of `opencode export`, which is also Foldmark's own."""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import Message, SessionInfo, Transcript, decode_transcript

from ..build import ConversationBuilder, FormatReader, SessionReverted
from ..source import Head, Record


class OpenCode(FormatReader):
    """Reads a file in our own format, without any translation."""

    name = "opencode"
    about = "`opencode export`, and Foldmark's own"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        info = head.field("info") if {"info", "messages"} <= set(head.fields) else None
        # Other formats have these two fields as well, but no session id in `info`.
        return isinstance(info, dict) and "id" in info

    def decode(self, record: Record) -> Transcript:
        """Return the session."""
        return decode_transcript(record.data)

    def read(self, record: Transcript) -> None:
        """Emit the messages unchanged, and each revert after the messages that it hides."""
        info, messages = replace(record.info, revert=UNSET, reverted=UNSET), record.messages
        conversation = ConversationBuilder(self, info, record.extra)
        conversation.open()
        self.tally.messages += len(messages)
        ends = {gap.stop: gap.start for gap in _hidden_ranges(record.info, messages)}
        for number, message in enumerate(messages, 1):
            self.tally.count_calls(message.parts)
            self.emit(conversation, message)
            if number in ends:
                first = ends[number]
                last_id = messages[first - 1].id if first else None
                self.emit(conversation, SessionReverted(message=last_id))


def _hidden_ranges(info: SessionInfo, messages: Sequence[Message]) -> list[range]:
    """The indexes of messages that the session's reverts hide, in order."""
    size = len(messages)
    ranges = [range(first, end) for first, end in info.reverted or () if 0 <= first < end < size]
    if info.revert:
        ids = [message.id for message in messages]
        if info.revert.message_id in ids:
            ranges.append(range(ids.index(info.revert.message_id), size))
    return ranges
