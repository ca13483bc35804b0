"""Codex: `~/.codex/sessions/<date>/rollout-<time>-<session>.jsonl`, one event a line.

Facts of this format: `response_item` lines are items of the Responses API, several of which are
one answer; `event_msg` lines repeat them for the screen, but also tell what a step took and what
the user took back. After `compacted` the agent sees the history that this line holds, or in old
versions the newest prompts: they stand here once more, after the pivot.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    Message,
    Origin,
    SessionInfo,
    TextPart,
    Time,
    Tokens,
    finish_of,
)
from foldmark.transcripts.build import assistant_message, folded, moment, user_message, with_info
from foldmark.transcripts.format import Format, Opened, Reverted, Step, Tally
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.model import Read, as_number, objects, options, without
from foldmark.wire.openai_responses import OpenAIResponses

from .codex_lines import (
    KINDS,
    Compacted,
    Event,
    Item,
    Line,
    Meta,
    Prompt,
    Prompts,
    Told,
    Turn,
    Usage,
    all_by_program,
    decode_line,
    summary_parts,
    text_of,
    told_apart,
    words_of,
)

_NAME = "codex"
_PROVIDER = "openai"
_SEALED = ("compaction", "compaction_summary", "context_compaction")
_UNSENT = "ghost_snapshot"  # an item of the program's own, which the model is not shown
_wire = OpenAIResponses()


class Codex:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for a file that names no session."""
        self.decode = decode_line
        self.tally = Tally()
        self._name = Path(name).stem
        self._info = SessionInfo(id=self._name)
        self._is_open = False
        self._woven = Woven(_wire.key, self.tally)
        self._prompts = Prompts()
        self._usage = Usage()
        self._model = (_PROVIDER, "")
        self._effort = ""
        self._last: str | None = None  # the newest message's id
        self._answer: Message | None = None  # begun by its first item
        self._more: list[AnyPart] = []  # what its further items say

    def take(self, record: Line, line: int) -> Iterable[Step]:
        """What a line says."""
        if self._is_open:
            return self._taken(record, line)
        self._info = self._told(record)
        steps = [Opened(info=self._info), *self._taken(record, line)]
        self._is_open = True  # not before: of a line that cannot be read nothing is told
        return steps

    def end(self) -> Iterator[Step]:
        """What is held."""
        yield from self._answered()
        yield from self._woven.flush()

    def _taken(self, record: Line, line: int) -> Iterable[Step]:
        # Most lines say nothing yet, and cost no more than that.
        if isinstance(record, Item):
            return self._item(record, f"{self._info.id}-{line}")
        if isinstance(record, Event):
            return self._event(record.payload)
        if isinstance(record, Compacted):
            return self._folded(record, f"{self._info.id}-{line}")
        if isinstance(record, Turn):
            self._model = (self._model[0], text_of(record.payload.get("model")))
            self._effort = text_of(record.payload.get("effort"))
        return ()  # a further description of a session is of the one that this goes on with

    def _told(self, record: Line) -> SessionInfo:
        told = record.payload if isinstance(record, Meta) else {}
        system = text_of(options(told, "base_instructions").get("text"))
        tools = told.get("dynamic_tools")
        at = moment(getattr(record, "timestamp", None))
        self._model = (text_of(told.get("model_provider")) or _PROVIDER, "")
        origin = Origin(system=system or UNSET, tools=tools or UNSET)
        return SessionInfo(
            id=text_of(told.get("id")) or self._name,
            parent_id=text_of(told.get("forked_from_id")) or UNSET,
            directory=text_of(told.get("cwd")) or UNSET,
            version=text_of(told.get("cli_version")) or UNSET,
            time=UNSET if at is None else Time(created=at, updated=at),
            origin=origin if system or tools else UNSET,
        )

    # --- items ---

    def _item(self, record: Item, name: str) -> Iterable[Step]:
        kind = record.payload.get("type")
        if kind == _UNSENT:
            return ()
        read = _wire.read(record.payload)
        if kind == "message":
            self.tally.messages += 1
        if read.role != "assistant":
            return self._heard(read, name, moment(record.timestamp))
        if self._answer is None:
            self._begin(read, name, moment(record.timestamp))
        else:
            self._more += read.parts
        return ()

    def _heard(self, read: Read, name: str, at: int | None) -> Iterator[Step]:
        yield from self._answered()
        for answer in read.answers:
            yield from self._woven.answer(answer, at)
        if not read.answers:
            yield from self._said(self._woven, read, name, at)

    def _begin(self, read: Read, name: str, at: int | None) -> None:
        tokens = self._usage.begun()
        message = assistant_message(name, read.parts, at, model=self._model, tokens=tokens)
        self._answer = with_info(message, variant=self._effort or UNSET)
        self._last = name

    def _answered(self) -> Iterator[Step]:
        """An answer is whole once something else comes."""
        if (answer := self._answer) is not None:
            if self._more:
                parts = (*answer.parts, *self._more)
                answer = with_info(replace(answer, parts=parts), finish=finish_of(parts))
            self._answer, self._more = None, []
            yield from self._woven.add(answer)

    def _said(
        self, woven: Woven, read: Read, name: str, at: int | None, *, again: bool = False
    ) -> Iterator[Step]:
        """A message of the user, or of the program in their place."""
        parts = told_apart(read)
        if words := words_of(parts):
            self._prompts.add(Prompt(before=self._last, text=words))
        self._usage.forget()
        self._last = name
        wire = {_wire.key: read.rest} if read.rest else None
        parts = all_by_program(parts) if again else parts
        yield from woven.add(user_message(name, parts, at, wire=wire))

    # --- events ---

    def _event(self, told: Told) -> Iterable[Step]:
        if told.type == "token_count":
            tokens = self._usage.ended(told.info)
            return () if tokens is None else self._measured(tokens)
        if told.type == "thread_rolled_back":
            first = self._prompts.taken_back(as_number(told.num_turns))
            return () if first is None else self._taken_back(first)
        if told.type == "thread_name_updated":
            self._info = replace(self._info, title=text_of(told.thread_name) or UNSET)
            return (Opened(info=self._info),)
        return ()

    def _measured(self, tokens: Tokens) -> Iterator[Step]:
        yield from self._answered()  # the step is over
        last = self._woven.last
        if last is not None and last.id == self._last:
            self._woven.extend(with_info(last, tokens=tokens))

    def _taken_back(self, first: Prompt) -> Iterator[Step]:
        yield from self.end()
        yield Reverted(message=first.before)
        self._last = first.before

    # --- compactions ---

    def _folded(self, record: Compacted, name: str) -> Iterator[Step]:
        told = record.payload
        at = moment(record.timestamp)
        text = text_of(told.get("message"))
        history = told.get("replacement_history")
        kept: list[Read] = []
        sealed: list[Read] = []
        for item in objects([] if history is None else history, "'replacement_history'"):
            found = sealed if item.get("type") in _SEALED else kept
            found.append(_wire.read(item))
        prompts = self._prompts.cleared()
        if history is None:
            texts = (TextPart(text=prompt.text) for prompt in prompts)
            kept = [Read(role="user", parts=(part,)) for part in texts]
        rest = without(told, "message", "replacement_history")
        pivot = folded(
            name,
            summary_parts(text, tuple(part for read in sealed for part in read.parts)),
            at,
            auto=True,  # it is not told
            wire={_NAME: rest} if rest else None,
        )
        yield from self.end()
        yield from pivot
        self._last = pivot[1].id
        # Where the summary is a text, it stands among the messages as well.
        kept = [read for read in kept if not text or not words_of(read.parts).endswith(text)]
        yield from self._again(kept, name, at)

    def _again(self, kept: list[Read], name: str, at: int | None) -> Iterator[Step]:
        """What the agent went on to see of what was folded; all of it was counted before."""
        woven = Woven(_wire.key, Tally())
        for number, read in enumerate(kept, 1):
            place = f"{name}-{number}"
            for answer in read.answers:
                yield from woven.answer(answer, at)
            if read.role == "assistant":
                self._last = place
                yield from woven.add(assistant_message(place, read.parts, at, model=self._model))
            elif not read.answers:
                yield from self._said(woven, read, place, at, again=True)
        yield from woven.flush()
        self._usage.forget()


def _recognises(head: Head) -> bool:
    return any(
        line.get("type") in KINDS and isinstance(line.get("payload"), dict) for line in head.lines
    )


FORMAT = Format(
    name=_NAME,
    about="Codex, ~/.codex/sessions",
    recognises=_recognises,
    importer=Codex,
)
