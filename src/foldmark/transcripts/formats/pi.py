"""pi: `~/.pi/agent/sessions/<folder>/<time>_<session>.jsonl`, one entry a line.

Facts of this format: the first line tells the session; results are messages of their own. Since
version 2 entries form a tree, and the branch of the last one is in force: an entry that hangs on
an earlier one takes back what came between. What was taken back is not kept here: where such a
branch is taken up again, only what it shares with the newer one is there. A compaction names the
first entry that was kept, which need not be a message.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.model.messages import Message, SessionInfo, TextPart, Time
from foldmark.model.values import Frozen, Json
from foldmark.transcripts.build import folded, moment
from foldmark.transcripts.format import Format, Opened, Reverted, Step, Tally, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.model import Answer

from .pi_entries import NAME, Chosen, Line, Summary, chosen_after, read_entry, time_of

_MOST_ENTRIES = 20_000
_decode = decoder(Line)


class Pi:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for a file that names no session."""
        self.decode = _decode
        self.tally = Tally()
        self._name = Path(name).stem
        self._info = SessionInfo(id=self._name)
        self._is_open = False
        self._woven = Woven(NAME, self.tally)
        self._tree = _Tree()
        self._last: str | None = None  # the newest message's id
        self._chosen = Chosen()

    def take(self, record: Line, line: int) -> Iterator[Step]:
        """What an entry says."""
        if not self._is_open:
            self._info = self._told(record)
            yield Opened(info=self._info)
        if record.type != "message":
            self._chosen = chosen_after(self._chosen, record)
        if record.type != "session":
            yield from self._entry(record, line)
        self._is_open = True  # not before: of a line that cannot be read nothing is told

    def end(self) -> Iterator[Step]:
        """What is held."""
        yield from self._woven.flush()

    def _entry(self, record: Line, line: int) -> Iterator[Step]:
        name = record.id or f"{self._info.id}-{line}"
        held = read_entry(record, name, self._chosen)  # first of all: it may be unreadable
        if record.type == "message":
            self.tally.messages += 1
        if record.parent_id is not UNSET:
            yield from self._taken_back(record.parent_id)
        if isinstance(held, Message):
            self._last = held.id
            yield from self._woven.add(held)
        elif isinstance(held, Answer):
            yield from self._woven.answer(held, time_of(record))
        elif isinstance(held, Summary):
            yield from self._folded(record, name, held)
        else:
            yield from self._entitle(record)
        # In version 1 entries have no names, and are told by where they stand in the file.
        entry = record.id or str(line - 1)
        self._tree.add(entry, self._last, is_message=isinstance(held, Answer | Message))

    # --- the session ---

    def _told(self, record: Line) -> SessionInfo:
        is_header = record.type == "session"
        at = moment(record.timestamp)
        return SessionInfo(
            id=(record.id if is_header else "") or self._name,
            directory=record.cwd if isinstance(record.cwd, str) else UNSET,
            time=UNSET if at is None else Time(created=at, updated=at),
        )

    def _entitle(self, record: Line) -> Iterator[Step]:
        if record.type == "session_info" and isinstance(record.name, str):
            self._info = replace(self._info, title=record.name or UNSET)
            yield Opened(info=self._info)

    # --- what changes the past ---

    def _folded(self, record: Line, name: str, summary: Summary) -> Iterator[Step]:
        yield from self._woven.flush()
        pivot = folded(
            name,
            (TextPart(text=summary.text),),
            time_of(record),
            auto=False,  # it is not told
            tail=self._tree.message_from(summary.first_kept),
            wire={NAME: summary.told} if summary.told else None,
        )
        self._last = pivot[1].id
        yield from pivot

    def _taken_back(self, parent: str | None) -> Iterator[Step]:
        target = self._tree.gone_back_to(parent)
        if target is not UNSET and target != self._last:
            yield from self._woven.flush()
            yield Reverted(message=target)
            self._last = target


class _Place(Frozen, gc=False):
    """An entry in the tree."""

    parent: str | None
    message: str | None  # the newest message once the entry is told
    is_message: bool


class _Tree:
    """Which entries there are, and which of them lie on the branch in force."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._live: set[str] = set()
        self._leaf: str | None = None

    def add(self, entry: str, message: str | None, *, is_message: bool) -> None:
        """Put an entry at the end of the branch."""
        if entry in self._places:
            return  # a name is given once, or a branch could end in itself
        place = _Place(parent=self._leaf, message=message, is_message=is_message)
        self._places[entry] = place
        self._live.add(entry)
        self._leaf = entry
        if len(self._places) > _MOST_ENTRIES:
            oldest = next(iter(self._places))
            del self._places[oldest]
            self._live.discard(oldest)

    def gone_back_to(self, parent: str | None) -> str | UnsetType | None:
        """The message that is the last again; UNSET where the parent is not known."""
        found = parent
        while found is not None and found not in self._live:
            if found not in self._places:
                return UNSET  # its line was skipped, or it is too long ago
            found = self._places[found].parent
        while self._leaf is not None and self._leaf != found:
            self._live.discard(self._leaf)
            self._leaf = self._places[self._leaf].parent if self._leaf in self._places else None
        return None if found is None else self._places[found].message

    def message_from(self, entry: str) -> str | None:
        """The first message on the branch at an entry or after it."""
        is_there = False
        for name, place in self._places.items():
            is_there = is_there or name == entry
            if is_there and place.is_message and name in self._live:
                return place.message
        return None


def _recognises(head: Head) -> bool:
    first: Json = head.lines[0] if head.lines else {}
    is_header = first.get("type") == "session" and isinstance(first.get("id"), str)
    return is_header and isinstance(first.get("cwd"), str)


FORMAT = Format(
    name=NAME,
    about="pi, ~/.pi/agent/sessions",
    recognises=_recognises,
    importer=Pi,
)
