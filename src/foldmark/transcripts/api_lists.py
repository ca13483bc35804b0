"""Lists of a wire's messages in files: what the formats for plain lists share.

A file is one list, or one object that holds it (the body of a request, perhaps with the response
beside it), or lines of these, a session each; or lines of messages, all of one session. What one
list says is written back the same by its codec.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    Message,
    Origin,
    SessionInfo,
    TextPart,
    Time,
    ToolPart,
    finish_of,
    has_result,
)
from foldmark.model.values import Extra, Frozen, Json, parsed
from foldmark.wire.codec import JOINED, Read, Wire, objects, options
from foldmark.wire.formats import decode_reply
from foldmark.wire.lists import Decoded, read_list

from .build import Opened, Step, Tally, assistant_message, moment, user_message, with_info
from .formats.litellm import named_model
from .woven import Woven

_TITLES = ("title", "instance_id", "task_id", "id")


class Shape(Frozen):
    """How a wire's requests are made."""

    wire: Wire
    field: str  # that holds the messages
    prompt: str = ""  # that holds the system prompt, where it is no message


class Lists:
    """Reads one file."""

    def __init__(self, name: str, shape: Shape) -> None:
        """Take the file's name, which names the sessions, and how requests are made."""
        self.tally = Tally()
        self._shape = shape
        self._stem = Path(name).stem
        self._sessions = 0
        self._single: _Single | None = None

    def decode(self, data: bytes) -> object:
        """A list, a request, or a message."""
        return parsed(data)

    def take(self, record: object, line: int) -> Iterator[Step]:
        """What it says."""
        del line
        if isinstance(record, list):
            yield from self._listed(objects(cast("object", record), "the list"), {})
            return
        if not isinstance(record, dict):
            raise BadInput("neither a list of messages, nor a request, nor a message")
        body = cast("Json", record)
        held = body.get(self._shape.field)
        if isinstance(held, str) and self._shape.prompt:
            held = [{"role": "user", "content": held}]  # a request may be a mere text
        if held is not None and "role" not in body:
            yield from self._listed(objects(held, f"'{self._shape.field}'"), body)
        else:
            if self._single is None:
                self._single = _Single(self._shape.wire, self._named(), self.tally)
            yield from self._single.take(body)

    def end(self) -> Iterator[Step]:
        """What is held."""
        single, self._single = self._single, None
        if single is not None:
            yield from single.end()

    def _named(self) -> str:
        self._sessions += 1
        return self._stem if self._sessions == 1 else f"{self._stem}-{self._sessions}"

    def _listed(self, messages: list[Json], body: Json) -> Iterator[Step]:
        shape = self._shape
        told = told_list(shape.wire, messages, self.tally)
        answer = self._answer(body, len(messages))
        at = moment(body.get("timestamp") or body.get("created"))
        origin = with_prompt(told.origin, shape.wire.name, body.get(shape.prompt))
        read = {shape.field, "tools"}
        read |= {"response"} if answer else set()
        read |= {shape.prompt} if origin is not told.origin else set()
        rest = {name: held for name, held in body.items() if name not in read}
        info = SessionInfo(
            id=self._named(),
            title=_title(body) or UNSET,
            time=UNSET if at is None else Time(created=at, updated=at),
            origin=replace(
                origin,
                tools=body.get("tools") or options(body, "kwargs").get("tools") or UNSET,
            ),
        )
        yield from self.end()  # messages on lines before it
        yield Opened(info=info, extra=Extra({shape.wire.name: rest}) if rest else UNSET)
        yield from by_model(told.messages, body.get("model"), shape.wire.provider)
        yield from answer

    def _answer(self, body: Json, place: int) -> list[Message]:
        """The answer, where the response is recorded beside its request."""
        response = options(body, "response")
        if not response or not self._shape.wire.recognises_reply(response):
            return []
        reply = decode_reply(response, self._shape.wire.name)
        cost = body.get("cost")
        is_price = isinstance(cost, int | float) and not isinstance(cost, bool)
        told: Json = {"id": f"msg_{place + 1:06d}", "cost": cost if is_price else UNSET}
        provider, model = named_model(response.get("model"))
        if provider:
            told |= {"provider_id": provider, "model_id": model}
        self.tally.messages += 1
        return counted([with_info(reply, **told)], self.tally)


def by_model(messages: Sequence[Message], name: object, provider: str) -> Iterator[Message]:
    """Messages, the answers among them by the model that a request names."""
    named, model = named_model(name)
    for message in messages:
        if model and not message.is_user:
            yield with_info(message, provider_id=named or provider, model_id=model)
        else:
            yield message


class _Single:
    """Messages line by line, all of one session."""

    def __init__(self, wire: Wire, session: str, tally: Tally) -> None:
        self._wire = wire
        self._session = session
        self._tally = tally
        self._woven = Woven(wire.key, tally)
        self._prompts: list[Json] = []
        self._texts: list[str] = []
        self._is_open = False
        self._count = 0
        self._is_answering = False  # whether the last line is of an answer of the model

    def take(self, line: Json) -> Iterator[Step]:
        read = self._wire.read(line)
        self._tally.messages += 1
        if read.role == "system" and not self._is_open:
            self._prompts.append(line)
            self._texts += [part.text for part in read.parts if isinstance(part, TextPart)]
            return
        yield from self._opened()
        for answer in read.answers:
            yield from self._woven.answer(answer, None)
        last = self._woven.last
        if read.joins and self._is_answering and last is not None:
            parts = last.parts + read.parts
            self._woven.extend(with_info(replace(last, parts=parts), finish=finish_of(parts)))
        elif read.parts or not read.answers:
            yield from self._woven.add(self._message(read))
        self._is_answering = read.role == "assistant"

    def end(self) -> Iterator[Step]:
        yield from self._opened()
        yield from self._woven.flush()

    def _opened(self) -> Iterator[Step]:
        if not self._is_open:
            self._is_open = True
            origin = Origin(system="\n\n".join(self._texts), wire={self._wire.name: self._prompts})
            yield Opened(
                info=SessionInfo(id=self._session, origin=origin if self._prompts else UNSET)
            )

    def _message(self, read: Read) -> Message:
        self._count += 1
        name = f"msg_{self._count:06d}"
        wire: Json = {self._wire.key: read.rest} if read.rest else {}
        if read.answers:
            wire[JOINED] = True
        if read.role != "assistant":
            return user_message(name, read.parts, None, wire=wire)
        return with_info(assistant_message(name, read.parts, None), wire=wire or UNSET)


# --- whole lists ---------------------------------------------------------------------------


def told_list(wire: Wire, messages: Sequence[Json], tally: Tally) -> Decoded:
    """A list as our messages, counted; answers are told to have ended."""
    told = read_list(wire, messages)
    tally.messages += len(messages)
    ended = [
        message if message.is_user else with_info(message, finish=finish_of(message.parts))
        for message in told.messages
    ]
    return replace(told, messages=tuple(counted(ended, tally)))


def counted(messages: list[Message], tally: Tally) -> list[Message]:
    """The same messages, their calls and results counted."""
    for message in messages:
        calls = [part for part in message.parts if isinstance(part, ToolPart)]
        tally.calls += len(calls)
        tally.results += sum(has_result(part) for part in calls)
    return messages


def with_prompt(origin: Origin, wire: str, prompt: object) -> Origin:
    """What is said of a session's origin, with a system prompt that stood beside its messages."""
    if isinstance(prompt, str) and prompt:
        return replace(origin, system=prompt)
    if not isinstance(prompt, list) or not prompt:
        return origin
    blocks = cast("list[object]", prompt)
    texts = [cast("Json", block).get("text") for block in blocks if isinstance(block, dict)]
    text = "\n\n".join(text for text in texts if isinstance(text, str))
    return replace(origin, system=text, wire={**(origin.wire or {}), wire: {"system": blocks}})


def _title(body: Json) -> str:
    found = (body.get(name) for name in _TITLES)
    return next((held for held in found if isinstance(held, str) and held), "")
