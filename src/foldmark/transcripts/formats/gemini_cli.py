"""Gemini CLI: `~/.gemini/tmp/<project>/chats`, and what `/chat save` writes.

Facts of this format: an older session is one document; a newer one is lines, in which a message is
written again with all that is added to it, `$rewindTo` takes a message and all after it back, and
`$set` tells of the session, or puts another history in the place of all messages: one that was
folded, or in which results were masked. `/chat save` writes the bare contents of the API.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.model.messages import SessionInfo, TextPart, Time
from foldmark.model.values import Json
from foldmark.transcripts.build import folded, moment, with_info
from foldmark.transcripts.format import Format, Opened, Pruned, Reverted, Step, Tally, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.gemini_parts import KINDS
from foldmark.wire.lists import read_list

from .gemini_records import WIRE, Built, Patch, Record, Said, built, is_content, is_shown

_NAME = "gemini-cli"
_MOST_HELD = 8  # messages that may still be written again
_LOOKED_AT = 8  # contents by which a history is recognised
_HEADER = {"sessionId", "projectHash"}

_decode = cast("Callable[[bytes], Record | list[Json]]", decoder(cast("Any", Record | list[Json])))


class GeminiCli:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for a history that names no session."""
        self.decode = _decode
        self.tally = Tally()
        self._name = Path(name).stem
        self._info = SessionInfo(id=self._name)
        self._opened: SessionInfo | None = None
        self._woven = Woven(WIRE.key, self.tally)
        self._held: dict[str, Built] = {}
        # The records of the history as it stands: their messages, and the newest after each.
        self._told: dict[str, tuple[str | None, str | None]] = {}
        self._last: str | None = None
        self._ids: set[str] = set()
        self._answered: set[str] = set()
        self._masked: set[str] = set()
        self._folds = self._histories = 0

    def take(self, record: Record | list[Json], line: int) -> Iterator[Step]:
        """What a line or a document says."""
        del line
        if isinstance(record, list):
            yield from self._contents(record)
        elif record.history or record.contents:
            told = record.system_instruction or None
            yield from self._contents(record.history or record.contents or [], told)
        elif record.rewind:
            yield from self._rewound(record.rewind)
        elif record.id and record.type:
            if is_shown(record):
                yield from self._said(built(record, record.id))
        elif record.patch:
            yield from self._patched(record.patch)
        elif record.session_id:
            yield from self._began(record, record.session_id)

    def end(self) -> Iterator[Step]:
        """What is held."""
        yield from self._settled()
        yield from self._woven.flush()
        if self._opened is not None:
            yield from self._open()

    # --- the session ---

    def _open(self) -> Iterator[Step]:
        if self._opened != self._info:
            self._opened = self._info
            yield Opened(info=self._info)

    def _began(self, record: Record, session: str) -> Iterator[Step]:
        history = _all(record.messages, session)
        created, updated = moment(record.start_time), moment(record.last_updated)
        if self._opened is None:
            self._info = SessionInfo(
                id=session,
                project_id=record.project_hash or UNSET,
                title=record.summary or UNSET,
                time=Time(created=created or UNSET, updated=updated or created or UNSET),
            )
            yield from self._open()
        for held in history:
            yield from self._said(held)

    def _patched(self, patch: Patch) -> Iterator[Step]:
        history = _all(patch.messages, self._info.id)
        if updated := moment(patch.last_updated):
            time = replace(self._info.time or Time(), updated=updated)
            self._info = replace(self._info, time=time)
        if patch.summary:
            self._info = replace(self._info, title=patch.summary)
            yield from self._open()
        if patch.messages is not UNSET:
            yield from self._replaced(history)

    def _contents(self, contents: list[Json], system: Json | None = None) -> Iterator[Step]:
        """Bare contents, which are written back as they came; with the prompt of a request."""
        read = read_list(WIRE, contents)
        origin = read.origin
        if system is not None:
            texts = [part.text for part in WIRE.read(system).parts if isinstance(part, TextPart)]
            origin = replace(
                origin, system="\n\n".join(texts), wire={WIRE.name: {"system": system}}
            )
        self._histories += 1
        name = self._name if self._histories == 1 else f"{self._name}-{self._histories}"
        self._info = SessionInfo(id=name, origin=origin)
        yield from self._open()
        self.tally.messages += len(contents)
        parts = [part for content in contents for part in content.get("parts") or ()]
        kinds = Counter(KINDS.get(field) for part in parts for field in part)
        self.tally.calls += kinds["call"]
        self.tally.results += kinds["result"]
        yield from read.messages

    # --- messages ---

    def _said(self, new: Built) -> Iterator[Step]:
        if self._opened is None:
            yield from self._open()
        name = new.message.id
        if name in self._held and new.masked:
            yield from self._settled()  # as it was before
        if name in self._told:
            yield from self._answers(new)
            return
        self.tally.messages += name not in self._held
        self._held[name] = new
        if len(self._held) > _MOST_HELD:
            yield from self._settle(next(iter(self._held)))

    def _settled(self) -> Iterator[Step]:
        for name in tuple(self._held):
            yield from self._settle(name)

    def _settle(self, name: str) -> Iterator[Step]:
        """Hand on a message that will not be written again."""
        held = self._held.pop(name)
        if held.message.parts or not held.answers:
            # One that was folded or taken back may be told again.
            self._last = name if name not in self._ids else f"{name}-{len(self._ids) + 1}"
            self._ids.add(self._last)
            yield from self._woven.add(with_info(held.message, id=self._last))
        self._told[name] = (self._last, self._last)
        self._answered -= held.calls
        self._masked -= held.calls
        yield from self._answers(held)

    def _answers(self, held: Built) -> Iterator[Step]:
        """Results, once only: they are told with the call, and as a message of their own."""
        masked = held.masked & self._answered - self._masked
        for answer in held.answers:
            if answer.call_id not in self._answered:
                self._answered.add(answer.call_id)
                yield from self._woven.answer(answer, held.at)
        if masked:
            self._masked |= masked
            yield from self._woven.flush()
            yield Pruned(calls=tuple(sorted(masked)), at=held.at)

    # --- another history ---

    def _rewound(self, name: str) -> Iterator[Step]:
        """All from this message on is taken back; all there is, where it is not known."""
        yield from self._settled()
        told = list(self._told)
        if told:
            yield from self._reverted(told.index(name) if name in told else 0)

    def _reverted(self, count: int) -> Iterator[Step]:
        """Only the first records still stand."""
        yield from self._woven.flush()
        self._told = dict(list(self._told.items())[:count])
        self._last = next(reversed(self._told.values()), (None, None))[1]
        yield Reverted(message=self._last)

    def _replaced(self, history: list[Built]) -> Iterator[Step]:
        """A history in the place of the one that was told."""
        yield from self._settled()
        told, names = list(self._told), [held.message.id for held in history]
        pairs = zip(told, names, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rest = history
        if same < len(told):
            later = set(told[same:])
            tail = next((place for place, name in enumerate(names) if name in later), len(names))
            if tail < len(names) or any(held.is_snapshot for held in history[same:]):
                yield from self._folded(history[:tail], names[tail:])
                rest = history[tail:]
            else:
                yield from self._reverted(same)
        for held in rest:
            yield from self._said(held)

    def _folded(self, head: list[Built], tail: list[str]) -> Iterator[Step]:
        """What now stands before the tail stands for all that was before it."""
        yield from self._woven.flush()
        self._folds += 1
        self.tally.messages += sum(held.message.id not in self._told for held in head)
        pivot = folded(
            f"{self._info.id}-fold-{self._folds}",
            [text for held in head for text in held.texts],
            head[-1].at if head else None,
            auto=True,
            tail=self._told[tail[0]][0] if tail else None,
        )
        last = self._last = pivot[1].id
        places = {held.message.id: last for held in head}
        places |= {name: self._told[name][0] or last for name in tail if name in self._told}
        self._told = {name: (place, last) for name, place in places.items()}
        yield from pivot


def _all(messages: list[Said] | UnsetType | None, session: str) -> list[Built]:
    """What the model sees of a whole history."""
    return [
        built(said, said.id or f"{session}-{number}")
        for number, said in enumerate(messages or (), 1)
        if is_shown(said)
    ]


def _recognises(head: Head) -> bool:
    if any(fields.keys() >= _HEADER for fields in (head.fields, *head.lines)):
        return True
    name = next((name for name in ("history", "contents") if name in head.fields), "")
    history = head.field(name) if name else None
    if isinstance(history, list):
        items = cast("list[object]", history)[:_LOOKED_AT]
    else:
        items = [head.item(place) for place in range(min(len(head.items), _LOOKED_AT))]
    return bool(items) and all(is_content(item) for item in items)


FORMAT = Format(
    name=_NAME,
    about="Gemini CLI, ~/.gemini/tmp, and its /chat save",
    recognises=_recognises,
    importer=GeminiCli,
)
