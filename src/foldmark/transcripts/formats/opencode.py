"""OpenCode: what `opencode export` writes, and what Foldmark writes itself."""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import Message, SessionInfo, Transcript, decode_transcript
from foldmark.transcripts.build import ConversationBuilder, FormatReader, SessionReverted
from foldmark.transcripts.source import Head, Record


class OpenCode(FormatReader):
    """Reads one file in our own form: there is nothing to translate."""

    name = "opencode"
    about = "`opencode export`, and Foldmark's own"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        info = head.field("info") if {"info", "messages"} <= set(head.fields) else None
        # Others have these two keys as well; only here the first names a session by its id.
        return isinstance(info, dict) and "id" in info

    def decode(self, record: Record) -> Transcript:
        """A whole session."""
        return decode_transcript(record.data)

    def read(self, record: Transcript) -> None:
        """Tell its messages as they are, and its reverts after what they hide."""
        info, messages = replace(record.info, revert=UNSET, reverted=UNSET), record.messages
        conversation = ConversationBuilder(self, info, record.extra)
        conversation.open()
        self.tally.messages += len(messages)
        ends = {gap.stop: gap.start for gap in _hidden_ranges(record.info, messages)}
        for place, message in enumerate(messages, 1):
            self.tally.count_calls(message.parts)
            self.emit(conversation, message)
            if place in ends:
                first = ends[place]
                self.emit(
                    conversation, SessionReverted(message=messages[first - 1].id if first else None)
                )


def _hidden_ranges(info: SessionInfo, messages: Sequence[Message]) -> list[range]:
    """The places of messages that reverts hide, as session info names them, in their order."""
    size = len(messages)
    found = [range(first, end) for first, end in info.reverted or () if 0 <= first < end < size]
    if info.revert:
        ids = [message.id for message in messages]
        if info.revert.message_id in ids:
            found.append(range(ids.index(info.revert.message_id), size))
    return found
