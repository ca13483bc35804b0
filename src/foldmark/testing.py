"""A scripted model, for tests of programs that use Foldmark.

It gives the replies of its script and records the requests. It uses no network, and no clock
except the event loop's.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal

from msgspec.structs import replace

from .model.messages import Pending, ReasoningPart, TextPart, Tokens, ToolPart
from .model.prompt_messages import Call, Media, Reasoning, Result, Text
from .model.values import encode
from .summary.fallback import declared_tokens
from .summary.prompting import SECTIONS
from .summary.protocol import (
    CallDelta,
    DeltaHandler,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    StepReply,
    StreamDelta,
    TextDelta,
    TextHandler,
    text_only,
)
from .tokens.counters import counter
from .tokens.media import media_tokens
from .tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size

# A part of a reply: text, `call(…)` or `thought(…)`.
ReplyPart = str | TextPart | ReasoningPart | ToolPart
# One or more parts, a complete reply, a failure, or an exception to raise.
ReplyValue = ReplyPart | Sequence[ReplyPart] | ModelReply | StepReply | ModelFailure | Exception
# A value, or a function that computes it from the request.
ScriptedReply = ReplyValue | Callable[[ModelRequest], ReplyValue]

_DELTA_LENGTH = 16  # characters of text per streamed delta
_count = counter("classes")


def call(tool: str, /, **arguments: Any) -> ToolPart:
    """A tool call with these arguments; each reply that contains it gives it a new id."""
    return ToolPart(tool=tool, state=Pending(input=arguments))


def thought(text: str) -> ReasoningPart:
    """Reasoning with this text."""
    return ReasoningPart(text=text)


def plausible_reply(request: ModelRequest) -> str:
    """A valid summary, or a title if the request asks for one."""
    if request.purpose == "title":
        return "Work by a script"
    return "\n".join(f"## {name}\n- as the script has it" for name in SECTIONS)


class ScriptedModel:
    """A model that gives the replies of a script, in order; `requests` lists what it received.

    After the last reply it repeats that reply, or fails if `repeat` is False. `delay` is the time
    of each reply in seconds. `step` and `ask` advance through the script independently. If the
    script calls tools, `summaries` is set or `step` was called, the script is for steps only and
    `ask` returns `summaries`, by default a valid summary or title.

    With `measured`, replies report estimated tokens. A request larger than `window` fails.

    >>> from foldmark.testing import ScriptedModel, call
    >>> model = ScriptedModel(call("read", path="app.py"), ["Fixing it.", call("ls")], "Done.")
    >>> model.name
    'scripted:model'
    """

    def __init__(
        self,
        *replies: ScriptedReply,
        name: str = "scripted:model",
        repeat: bool = True,
        delay: float = 0.0,
        summaries: ScriptedReply | None = None,
        measured: bool = False,
        window: int | None = None,
    ) -> None:
        self._replies = replies
        self._name = name
        self._repeat = repeat
        self._delay = delay
        self._summaries = summaries
        self._measured = measured
        self._window = window
        self._steps_only = summaries is not None or any(_is_for_steps(reply) for reply in replies)
        self._next_index = {"ask": 0, "step": 0}
        self.requests: list[ModelRequest] = []  # of both kinds, oldest first

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        """Return the next reply of the script, and stream its text."""
        value = self._next(request, "ask")
        outcome = await self._deliver(request, value, text_only(on_text))
        if isinstance(outcome, ModelFailure):
            return outcome
        if isinstance(value, ModelReply):
            return replace(value, tokens=outcome.tokens)
        return outcome.reply()

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply | ModelFailure:
        """Return the next reply of the script, and stream its text, reasoning and tool calls."""
        return await self._deliver(request, self._next(request, "step"), on_delta)

    def _next(self, request: ModelRequest, kind: Literal["ask", "step"]) -> ReplyValue:
        # Advance before any await, so that parallel requests get different replies.
        self.requests.append(request)
        self._steps_only |= kind == "step"
        if self._steps_only and kind == "ask":
            reply = plausible_reply if self._summaries is None else self._summaries
        else:
            index = self._next_index[kind]
            self._next_index[kind] += 1
            if self._repeat and self._replies:
                index = min(index, len(self._replies) - 1)
            if index >= len(self._replies):
                return ModelFailure(cause="unavailable", message="the script has no more replies")
            reply = self._replies[index]
        return reply(request) if callable(reply) else reply

    async def _deliver(
        self, request: ModelRequest, value: ReplyValue, on_delta: DeltaHandler
    ) -> StepReply | ModelFailure:
        used = request_tokens(request) if self._measured or self._window is not None else 0
        if self._window is not None and used > self._window:
            message = f"the request has {used} tokens, but the window only {self._window}"
            value = ModelFailure(cause="overflow", message=message)
        if isinstance(value, ModelFailure | Exception):
            await asyncio.sleep(self._delay)
            if isinstance(value, Exception):
                raise value
            return value
        reply = _with_call_ids(_step_reply(value), request, len(self.requests))
        if self._measured and reply.tokens is None:
            output = sum(part_size(part, _count).total for part in reply.parts)
            reply = replace(reply, tokens=Tokens(input=used, output=output, total=used + output))
        deltas = list(_deltas(reply))
        for delta in deltas:
            await asyncio.sleep(self._delay / len(deltas))
            on_delta(delta)
        if not deltas:
            await asyncio.sleep(self._delay)
        return reply


def _is_for_steps(reply: ScriptedReply) -> bool:
    return not (isinstance(reply, str | ModelReply | ModelFailure | Exception) or callable(reply))


# --- replies -------------------------------------------------------------------------------


def _step_reply(value: ReplyPart | Sequence[ReplyPart] | ModelReply | StepReply) -> StepReply:
    match value:
        case StepReply():
            return value
        case ModelReply():
            parts = (TextPart(text=value.text),) if value.text else ()
            return StepReply(parts=parts, finish=value.finish, tokens=value.tokens, cost=value.cost)
        case str() | TextPart() | ReasoningPart() | ToolPart():
            items: Sequence[ReplyPart] = (value,)
        case _:
            items = value
    parts = tuple(TextPart(text=item) if isinstance(item, str) else item for item in items)
    has_calls = any(isinstance(part, ToolPart) for part in parts)
    return StepReply(parts=parts, finish="tool-calls" if has_calls else "stop")


def _with_call_ids(reply: StepReply, request: ModelRequest, number: int) -> StepReply:
    """Return the reply with ids on its calls, hashed from the request: unique in a session."""
    if all(part.call_id for part in reply.calls):
        return reply
    digest = blake2b(encode(request.messages), digest_size=8).hexdigest()
    parts = tuple(
        replace(part, call_id=f"call_{digest}_{number}_{offset}")
        if isinstance(part, ToolPart) and not part.call_id
        else part
        for offset, part in enumerate(reply.parts)
    )
    return replace(reply, parts=parts)


def _deltas(reply: StepReply) -> Iterable[StreamDelta]:
    for part in reply.parts:
        if isinstance(part, ToolPart):
            yield CallDelta(call_id=part.call_id or "", tool=part.tool)
            continue
        kind = "text" if isinstance(part, TextPart) else "reasoning"
        for start in range(0, len(part.text), _DELTA_LENGTH):
            yield TextDelta(text=part.text[start : start + _DELTA_LENGTH], kind=kind)


# --- tokens --------------------------------------------------------------------------------


def request_tokens(request: ModelRequest) -> int:
    """The estimated tokens of a request: system prompt, tools and messages."""
    overhead = MESSAGE_OVERHEAD * len(request.messages)
    blocks = (block for message in request.messages for block in message.content)
    fixed = declared_tokens(request.system, request.tools, _count)
    return fixed + overhead + sum(map(_block_tokens, blocks))


def _block_tokens(block: Text | Media | Reasoning | Call | Result) -> int:
    match block:
        case Text() | Reasoning():
            return _count(block.text)
        case Media():
            return media_tokens(block.data, block.media_type)
        case Call():
            return CALL_OVERHEAD + (_count(encode(block.input).decode()) if block.input else 0)
        case Result():
            return _count(block.output.value) + sum(map(_block_tokens, block.attachments))
