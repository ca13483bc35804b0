"""OpenCode: what `opencode export` writes, and what Foldmark writes itself."""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.log.marks import hidden_ranges
from foldmark.model.messages import ToolPart, Transcript, decode_transcript, has_result
from foldmark.transcripts.build import Opened, Reverted, Step, Tally
from foldmark.transcripts.format import Format
from foldmark.transcripts.source import Head


class OpenCode:
    """Our own form: there is nothing to translate."""

    def __init__(self, name: str) -> None:
        """The session names itself."""
        del name
        self.tally = Tally()

    def decode(self, data: bytes) -> Transcript:
        """A whole session."""
        return decode_transcript(data)

    def take(self, record: Transcript, line: int) -> Iterator[Step]:
        """Its messages, as they are, and its reverts after what they hide."""
        del line
        info = replace(record.info, revert=UNSET, reverted=UNSET)
        yield Opened(info=info, extra=record.extra)
        self.tally.messages += len(record.messages)
        for message in record.messages:
            calls = [part for part in message.parts if isinstance(part, ToolPart)]
            self.tally.calls += len(calls)
            self.tally.results += sum(has_result(part) for part in calls)
        ends = {gap.stop: gap.start for gap in hidden_ranges(record.info, record.messages)}
        for place, message in enumerate(record.messages, 1):
            yield message
            if place in ends:
                first = ends[place]
                yield Reverted(message=record.messages[first - 1].id if first else None)

    def end(self) -> Iterator[Step]:
        """Nothing more."""
        return iter(())


def _recognises(head: Head) -> bool:
    info = head.field("info") if {"info", "messages"} <= set(head.fields) else None
    # Others have these two keys as well; only here the first names a session by its id.
    return isinstance(info, dict) and "id" in info


FORMAT = Format(
    name="opencode",
    about="`opencode export`, and Foldmark's own",
    recognises=_recognises,
    importer=OpenCode,
)
