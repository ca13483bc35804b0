"""Entire's compact transcripts: `transcript.jsonl` of a checkpoint, one message a line.

Facts of this format: it is made of another program's transcript, without its thinking; a call has
its result beside it; an answer may be spread over several lines that share an id and repeat what
was measured. No line names the session.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    Completed,
    Pending,
    SessionInfo,
    TextPart,
    Time,
    Tokens,
    ToolPart,
    finish_of,
)
from foldmark.model.values import Json, encode
from foldmark.transcripts.build import (
    Opened,
    Step,
    Tally,
    assistant_message,
    moment,
    user_message,
    with_info,
)
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.codec import as_number

_NAME = "entire-compact"


class Result(Struct, gc=False):
    """What came of a call; what is told of files beside it is for the screen."""

    output: Any = ""
    status: str | UnsetType = UNSET


class Block(Struct, gc=False):
    """A text, or a call; the user's have no type."""

    type: str = "text"
    text: str = ""
    id: str | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    input: Any = None
    result: Result | UnsetType | None = UNSET


class Line(Struct, gc=False):
    """A message, or a piece of an answer."""

    v: int
    type: str
    content: list[Block]
    cli_version: str | UnsetType = UNSET
    ts: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    input_tokens: Any = UNSET
    output_tokens: Any = UNSET


_decode = decoder(Line)


class EntireCompact:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name: it is the session's."""
        self.decode = _decode
        self.tally = Tally()
        self._session = Path(name).stem
        self._woven = Woven(_NAME, self.tally)
        self._ids: set[str] = set()
        self._is_open = False

    def take(self, record: Line, line: int) -> Iterator[Step]:
        """What a line says."""
        del line
        if record.type not in ("user", "assistant"):
            return
        at = moment(record.ts)
        parts = tuple([_part(block, at) for block in record.content])
        if not self._is_open:
            self._is_open = True
            time = UNSET if at is None else Time(created=at, updated=at)
            yield Opened(info=SessionInfo(id=self._session, version=record.cli_version, time=time))
        self.tally.messages += 1
        if record.type == "assistant":
            yield from self._answered(record, parts, at)
        else:
            named = record.content[0].id if record.content else None
            yield from self._woven.add(user_message(self._id(named), parts, at))

    def end(self) -> Iterator[Step]:
        """What is held."""
        yield from self._woven.flush()

    def _answered(self, record: Line, parts: tuple[AnyPart, ...], at: int | None) -> Iterator[Step]:
        last = self._woven.last
        if last is not None and not last.is_user and last.id == record.id:
            whole = last.parts + parts
            self._woven.extend(with_info(replace(last, parts=whole), finish=finish_of(whole)))
            return
        given, made = as_number(record.input_tokens), as_number(record.output_tokens)
        tokens = Tokens(input=given, output=made) if given or made else None
        yield from self._woven.add(assistant_message(self._id(record.id), parts, at, tokens=tokens))

    def _id(self, given: str | UnsetType | None) -> str:
        """An id once only: an answer may go on after something came between."""
        name = given or self._session
        if name in self._ids or name == self._session:
            name = f"{name}-{self.tally.messages}"
        self._ids.add(name)
        return name


def _part(block: Block, at: int | None) -> AnyPart:
    if block.type != "tool_use":
        return TextPart(text=block.text)
    if block.name is UNSET:
        raise BadInput("the field 'name' is missing in a call")
    state = Pending(input=_input(block.input))
    if block.result:
        state = _ended(state, block.result, at)
    return ToolPart(tool=block.name, call_id=block.id or UNSET, state=state)


def _input(given: object) -> Json:
    if isinstance(given, dict):
        return cast("Json", given)
    return {} if given is None else {"input": given}


def _ended(state: Pending, result: Result, at: int | None) -> Completed:
    output = result.output
    return Completed(
        input=state.input,
        output=output if isinstance(output, str) else encode(output).decode(),
        time=UNSET if at is None else Time(end=at),
        metadata={"is_error": True} if result.status == "error" else UNSET,
    )


def _recognises(head: Head) -> bool:
    return any(
        {"v", "agent", "cli_version", "content"} <= line.keys()
        and line.get("type") in ("user", "assistant")
        for line in head.lines
    )


FORMAT = Format(
    name=_NAME,
    about="Entire's compact transcripts, transcript.jsonl",
    recognises=_recognises,
    importer=EntireCompact,
)
