"""A model without a provider, for tests of programs that use Foldmark.

It answers what it was told to answer and keeps what it was asked. It knows no network and no
clock but that of the event loop it is asked in.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal

from msgspec.structs import replace

from .model.messages import Pending, ReasoningPart, TextPart, Tokens, ToolPart
from .model.prompt_messages import Call, Media, Reasoning, Result, Text
from .model.values import encode
from .summary.ladder import declared_tokens
from .summary.prompting import SECTIONS
from .summary.protocol import (
    Calling,
    Delta,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Piece,
    Stepped,
    Tell,
    Words,
    words_to,
)
from .tokens.counters import counter
from .tokens.media import media_tokens
from .tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size

# What an answer is made of: words, `call(…)` and `thought(…)`.
Bit = str | TextPart | ReasoningPart | ToolPart
# A bit, several of them, a whole outcome, an exception to raise, or a function of the ask.
Said = Bit | Sequence[Bit] | ModelReply | Stepped | ModelFailure | Exception
Reply = Said | Callable[[ModelRequest], Said]

_PIECE = 16  # characters of an answer that are told at a time
_count = counter("classes")


def call(tool: str, /, **given: Any) -> ToolPart:
    """A call of a tool with this input; its id is made when it is answered, a new one each time."""
    return ToolPart(tool=tool, state=Pending(input=given))


def thought(text: str) -> ReasoningPart:
    """Some thinking."""
    return ReasoningPart(text=text)


def plausible(ask: ModelRequest) -> str:
    """What a model could say that is asked for a summary, or for a title."""
    if ask.purpose == "title":
        return "Work by a script"
    return "\n".join(f"## {name}\n- as the script has it" for name in SECTIONS)


class ScriptedModel:
    """A model that answers by a script, in its order.

    With `repeat`, the last reply is given again and again; without it, whoever asks once more
    than there are replies is refused. `delay` is the seconds that each answer takes. Steps and
    asks each have their own place in the script. Where `summaries` are given, or the model has
    stepped, or the script calls tools, it is for steps alone, and asks are answered by `summaries`.

    With `measured`, tokens are told by estimate. What has more than `window` of them is refused.

    >>> from foldmark.testing import ScriptedModel, call
    >>> model = ScriptedModel(call("read", path="mill.py"), ["I mend it.", call("ls")], "Done.")
    >>> model.name
    'scripted:model'
    """

    def __init__(
        self,
        *replies: Reply,
        name: str = "scripted:model",
        repeat: bool = True,
        delay: float = 0.0,
        summaries: Reply | None = None,
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
        self._steps_only = summaries is not None or any(_is_for_steps(held) for held in replies)
        self._taken = {"ask": 0, "step": 0}  # replies of the script
        self.asks: list[ModelRequest] = []  # all that it was asked, steps as well, the oldest first

    @property
    def name(self) -> str:
        """Which model it says it is."""
        return self._name

    async def ask(self, ask: ModelRequest, delta: Delta) -> Outcome:
        """What the script says next, its text told in pieces."""
        said = self._next(ask, "ask")
        outcome = await self._told(ask, said, words_to(delta))
        if isinstance(outcome, ModelFailure):
            return outcome
        if isinstance(said, ModelReply):
            return replace(said, tokens=outcome.tokens)
        return outcome.reply()

    async def step(self, ask: ModelRequest, tell: Tell) -> Stepped | ModelFailure:
        """What the script says next: words and thoughts in pieces, each call when it begins."""
        return await self._told(ask, self._next(ask, "step"), tell)

    def _next(self, ask: ModelRequest, kind: Literal["ask", "step"]) -> Said:
        """Taken at once, so that asks of the same time get replies of their own."""
        self.asks.append(ask)
        self._steps_only |= kind == "step"
        if self._steps_only and kind == "ask":
            reply = plausible if self._summaries is None else self._summaries
        else:
            place = self._taken[kind]
            self._taken[kind] += 1
            if self._repeat and self._replies:
                place = min(place, len(self._replies) - 1)
            if place >= len(self._replies):
                return ModelFailure(cause="unavailable", message="the script has no more replies")
            reply = self._replies[place]
        return reply(ask) if callable(reply) else reply

    async def _told(self, ask: ModelRequest, said: Said, tell: Tell) -> Stepped | ModelFailure:
        given = asked_tokens(ask) if self._measured or self._window is not None else 0
        if self._window is not None and given > self._window:
            told = f"the request has {given} tokens, and the window has {self._window}"
            said = ModelFailure(cause="overflow", message=told)
        if isinstance(said, ModelFailure | Exception):
            await asyncio.sleep(self._delay)
            if isinstance(said, Exception):
                raise said
            return said
        answer = _named(_stepped(said), ask, len(self.asks))
        if self._measured and answer.tokens is None:
            made = sum(part_size(part, _count).total for part in answer.parts)
            answer = replace(answer, tokens=Tokens(input=given, output=made, total=given + made))
        pieces = list(_pieces(answer))
        for piece in pieces:
            await asyncio.sleep(self._delay / len(pieces))
            tell(piece)
        if not pieces:
            await asyncio.sleep(self._delay)
        return answer


def _is_for_steps(reply: Reply) -> bool:
    return not (isinstance(reply, str | ModelReply | ModelFailure | Exception) or callable(reply))


# --- answers -------------------------------------------------------------------------------


def _stepped(said: Bit | Sequence[Bit] | ModelReply | Stepped) -> Stepped:
    match said:
        case Stepped():
            return said
        case ModelReply():
            parts = (TextPart(text=said.text),) if said.text else ()
            return Stepped(parts=parts, finish=said.finish, tokens=said.tokens, cost=said.cost)
        case str() | TextPart() | ReasoningPart() | ToolPart():
            bits: Sequence[Bit] = (said,)
        case _:
            bits = said
    parts = tuple(TextPart(text=bit) if isinstance(bit, str) else bit for bit in bits)
    calls = any(isinstance(part, ToolPart) for part in parts)
    return Stepped(parts=parts, finish="tool-calls" if calls else "stop")


def _named(answer: Stepped, ask: ModelRequest, place: int) -> Stepped:
    """An answer whose calls have ids: of what was asked, so that no two in a session are equal."""
    if all(part.call_id for part in answer.calls):
        return answer
    digest = blake2b(encode(ask.messages), digest_size=8).hexdigest()
    parts = tuple(
        replace(part, call_id=f"call_{digest}_{place}_{offset}")
        if isinstance(part, ToolPart) and not part.call_id
        else part
        for offset, part in enumerate(answer.parts)
    )
    return replace(answer, parts=parts)


def _pieces(answer: Stepped) -> Iterable[Piece]:
    for part in answer.parts:
        if isinstance(part, ToolPart):
            yield Calling(call_id=part.call_id or "", tool=part.tool)
            continue
        kind = "text" if isinstance(part, TextPart) else "reasoning"
        for start in range(0, len(part.text), _PIECE):
            yield Words(text=part.text[start : start + _PIECE], kind=kind)


# --- tokens --------------------------------------------------------------------------------


def asked_tokens(ask: ModelRequest) -> int:
    """The tokens of a request by estimate: system prompt, tools and messages."""
    wrapping = MESSAGE_OVERHEAD * len(ask.messages)
    blocks = (block for message in ask.messages for block in message.content)
    fixed = declared_tokens(ask.system, ask.tools, _count)
    return fixed + wrapping + sum(map(_block_tokens, blocks))


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
