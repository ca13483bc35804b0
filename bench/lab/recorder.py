"""How what was said and done in a made-up session becomes messages, with ids, times and usage.

The clock goes on by itself as things take their time. Knows nothing of the plot.
"""

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    ModelRef,
    PatchPart,
    Path,
    Pending,
    ReasoningPart,
    Running,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
)
from foldmark.model.values import Json
from foldmark.session.message_builder import MessageBuilder

from .shop.calls import Call
from .shop.project import ROOT
from .usage import NONE, PLACEHOLDER, Meter, Output, Pruner, cost

START = 1_767_348_000_000  # 2 January 2026, 10:00 UTC
AGENT, COMPACTION = "build", "compaction"
_ABORTED: Json = {"name": "MessageAbortedError", "data": {"message": "The user stopped this."}}
_REFUSED: Json = {
    "name": "APIError",
    "data": {"message": "The service is overloaded.", "statusCode": 529, "isRetryable": True},
}


class Recorder:
    """Messages as they come, and what a provider measures of them."""

    def __init__(self, rng: Random, model: ModelRef, window: int) -> None:
        """Take the model that answers, and its window."""
        self._rng = rng
        self._model = model
        self._ids = MessageBuilder("", lambda: self.now, rng.randbytes)
        self.now = START
        self.session = self._ids.make_id("ses")
        self.messages: list[Message] = []
        self.meter = Meter(writes=model.provider_id == "anthropic")
        self._pruner = Pruner(window)
        self._snapshot = self.hash()

    def wait(self, least: int, most: int) -> Time:
        """Let some milliseconds go by, and tell from when to when."""
        start = self.now
        self.now += self._rng.randint(least, most)
        return Time(start=start, end=self.now)

    def hash(self) -> str:
        """The name of a state of the project's folder."""
        return f"{self._rng.getrandbits(160):040x}"

    def picture(self) -> FilePart:
        """A tiny picture."""
        return FilePart(mime="image/png", url=_picture(self._rng), filename="screen.png")

    def user(self, *parts: AnyPart) -> str:
        """Record a message of the user, and give its id."""
        self.wait(50, 200)
        info = UserInfo(
            id=self._ids.make_id("msg"),
            session_id=self.session,
            time=Time(created=self.now),
            agent=AGENT,
            model=self._model,
        )
        self.meter.take(parts)
        self._append(info, parts)
        return info.id

    def step(
        self,
        parent: str,
        *,
        thought: str = "",
        text: str = "",
        calls: Sequence[Call] = (),
        summary: bool = False,
    ) -> None:
        """Record an answer: its thinking, its words and its calls, which make it a middle one."""
        info = self._begun(parent, COMPACTION if summary else AGENT)
        parts = [StepStartPart(snapshot=self._snapshot), *self._spoken(thought, text)]
        parts += self._ran(calls)
        tokens, sizes = self.meter.step(parts)
        self._pruner.take(len(self.messages), parts, sizes)
        changed = tuple(path for call in calls for path in call.changed)
        if changed:
            self._snapshot = self.hash()
        finish = "tool-calls" if calls else "stop"
        price = cost(tokens)
        parts.append(
            StepFinishPart(reason=finish, snapshot=self._snapshot, cost=price, tokens=tokens)
        )
        if changed:
            parts.append(PatchPart(hash=self._snapshot, files=changed))
        info = replace(info, finish=finish, tokens=tokens, cost=price)
        self._append(replace(info, summary=True) if summary else info, parts)

    def aborted(self, parent: str, text: str, call: Call, *, begun: bool) -> None:
        """Record an answer that the user stopped while a call was running, or not yet begun."""
        info = self._begun(parent, AGENT)
        parts = [StepStartPart(snapshot=self._snapshot), *self._spoken("", text)]
        if begun:
            state = Running(
                input=call.input, title=call.title, time=Time(start=self.wait(500, 9_000).start)
            )
        else:
            state = Pending(input={}, raw=msgspec.json.encode(call.input).decode()[:-9])
        parts.append(ToolPart(tool=call.tool, call_id=self._call_id(), state=state))
        self.meter.take(parts)
        self._append(replace(info, error=_ABORTED), parts)

    def refused(self, parent: str) -> None:
        """Record an answer that never came."""
        info = self._begun(parent, AGENT)
        self.wait(200, 2_000)
        self._append(replace(info, error=_REFUSED), ())

    def pivoted(self, context: int) -> None:
        """Go on with what a pivot has left."""
        self.meter.restart(context)
        self._pruner.forget()

    def prune(self, before: int) -> None:
        """Mark old outputs before a place as OpenCode does after a turn, if there are enough."""
        hidden = self._pruner.hidden(before)
        for output in hidden:
            self._hide(output)
        if hidden:
            freed = sum(output.tokens - PLACEHOLDER for output in hidden)
            self.meter.restart(self.meter.context - freed)

    def _begun(self, parent: str, agent: str) -> AssistantInfo:
        self.wait(20, 90)
        return AssistantInfo(
            id=self._ids.make_id("msg"),
            session_id=self.session,
            time=Time(created=self.now),
            parent_id=parent,
            provider_id=self._model.provider_id,
            model_id=self._model.model_id,
            mode=agent,
            agent=agent,
            path=Path(cwd=ROOT, root=ROOT),
            cost=0,
            tokens=NONE,
        )

    def _append(self, info: UserInfo | AssistantInfo, parts: Iterable[AnyPart]) -> None:
        if isinstance(info, AssistantInfo) and info.time:
            info = replace(info, time=replace(info.time, completed=self.now))
        stamped = [
            replace(part, id=self._ids.make_id("prt"), session_id=self.session, message_id=info.id)
            for part in parts
        ]
        self.messages.append(Message(info=info, parts=tuple(stamped)))
        self.wait(5, 30)

    def _spoken(self, thought: str, text: str) -> list[AnyPart]:
        spoken: list[AnyPart] = []
        if thought:
            signature = b64encode(self._rng.randbytes(96)).decode()
            metadata = {self._model.provider_id: {"signature": signature}}
            spoken.append(
                ReasoningPart(text=thought, time=self.wait(900, 9_000), metadata=metadata)
            )
        if text:
            spoken.append(TextPart(text=text, time=self.wait(400, 3_000)))
        return spoken

    def _ran(self, calls: Sequence[Call]) -> list[ToolPart]:
        """The parts of calls that begin almost together; the longest sets the clock."""
        begun = self.now
        parts: list[ToolPart] = []
        for place, call in enumerate(calls):
            start = begun + 2 * place
            time = Time(start=start, end=start + self._rng.randint(*call.took))
            self.now = max(self.now, int(time.end or 0))
            parts.append(
                ToolPart(tool=call.tool, call_id=self._call_id(), state=self._ended(call, time))
            )
        return parts

    def _ended(self, call: Call, time: Time) -> Completed | Failed:
        if call.error is not None:
            return Failed(input=call.input, error=call.error, time=time)
        state = Completed(
            input=call.input,
            title=call.title,
            output=call.output,
            metadata=call.metadata,
            time=time,
        )
        return replace(state, attachments=(self.picture(),)) if call.picture else state

    def _call_id(self) -> str:
        return f"toolu_{self._rng.getrandbits(96):024x}"

    def _hide(self, output: Output) -> None:
        message = self.messages[output.message]
        parts = list(message.parts)
        part = parts[output.part]
        if isinstance(part, ToolPart) and part.state.time:
            time = replace(part.state.time, compacted=self.now)
            parts[output.part] = replace(part, state=replace(part.state, time=time))
        self.messages[output.message] = replace(message, parts=tuple(parts))


def _picture(rng: Random) -> str:
    """A data URL of a valid PNG, eight pixels wide and high, in shades of grey."""
    side = 8
    rows = b"".join(b"\0" + rng.randbytes(side) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    # Stored, not compressed: how well zlib compresses depends on its version.
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in chunks:
        data += struct.pack(">I", len(body)) + name + body
        data += struct.pack(">I", zlib.crc32(name + body))
    return f"data:image/png;base64,{b64encode(data).decode()}"
