"""A step's answer through pydantic-ai: its pieces as they come, and its parts in the end.

What a provider wants back of a part is put into the part's metadata, where our codec of its wire
looks for it, or `model_messages` where there is no codec. This module sends nothing.
"""

from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

from msgspec import UNSET, UnsetType
from pydantic_ai import messages as theirs
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartStartEvent

from foldmark.model.messages import BLOCK, Pending, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Json
from foldmark.summary.protocol import ModelFailure
from foldmark.summary.steps import Calling, Stepped, Tell, Words
from foldmark.wire.codec import ARGUMENTS, arguments_object, compact
from foldmark.wire.openai_chat_parts import FIELDS, THOUGHTS, UNDER
from foldmark.wire.openai_items import ITEM

from .outcomes import broken_off, measured_tokens, told_cost, told_finish

ANTHROPIC, CHAT, RESPONSES, GOOGLE = "anthropic", "openai-chat", "openai-responses", "google"
_OPENAI = "openai"  # the key of the Responses codec
_SIGNATURE = "thoughtSignature"
_REDACTED = ("redacted_thinking", "redacted_content")  # how the library marks it


class Pieces:
    """Tells the pieces of one answer, and keeps the ids under which its calls were told."""

    def __init__(self, tell: Tell) -> None:
        """Say who is told."""
        self._tell = tell
        self._told: dict[int, str] = {}  # ids of calls, by their places in the answer
        self.begun = False  # whether anything of the answer has come

    @property
    def call_ids(self) -> tuple[str, ...]:
        """The ids of the calls, in the order of the answer."""
        return tuple(self._told[place] for place in sorted(self._told))

    def take(self, event: object) -> None:
        """The next event of a stream."""
        self.begun = True
        match event:
            case PartStartEvent(index=place, part=theirs.ToolCallPart() as call):
                self._call(place, call)
            case PartStartEvent(part=theirs.TextPart(content=text)):
                self._say(text, "text")
            case PartStartEvent(part=theirs.ThinkingPart(content=text)):
                self._say(text, "reasoning")
            case PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)):
                self._say(text, "text")
            case PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text)):
                self._say(text, "reasoning")
            case _:
                pass

    def _say(self, text: str | None, kind: Any) -> None:
        if text:
            self._tell(Words(text=text, kind=kind))

    def _call(self, place: int, call: theirs.ToolCallPart) -> None:
        if place in self._told:
            return
        named = call.tool_call_id
        if not named or named in self._told.values():
            named = f"call_{uuid4().hex[:24]}"  # some servers give none, or all the same
        self._told[place] = named
        self._tell(Calling(call_id=named, tool=call.tool_name))


def stepped(
    response: ModelResponse, wire: str, call_ids: Sequence[str], *, says_how_it_ends: bool
) -> Stepped | ModelFailure:
    """What a model answered; `wire` is a wire's name, or a provider's where we have no codec."""
    if says_how_it_ends and (refusal := broken_off(response)) is not None:
        return refusal
    parts = _parts(response, wire, call_ids)
    finish = told_finish(response)
    if finish == "stop" and any(isinstance(part, ToolPart) for part in parts):
        finish = "tool-calls"  # two of the four wires say that they stopped, and call
    return Stepped(
        parts=tuple(parts),
        finish=finish,
        tokens=measured_tokens(response),
        cost=told_cost(response),
    )


def _parts(
    response: ModelResponse, wire: str, call_ids: Sequence[str]
) -> list[TextPart | ReasoningPart | ToolPart]:
    """The parts that are ours; what a provider ran by itself nobody asked for."""
    calls = [part for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    named = list(call_ids) if len(call_ids) == len(calls) else [c.tool_call_id for c in calls]
    names = iter(named)
    found: list[TextPart | ReasoningPart | ToolPart] = []
    for part in response.parts:
        match part:
            case theirs.TextPart():
                said = _text(part, wire)
                found += [said] if said.text or said.metadata else []
            case theirs.ThinkingPart():
                thought = _thought(part, wire)
                found += [thought] if thought.text or thought.metadata else []
            case theirs.ToolCallPart():
                found.append(_call(part, wire, next(names)))
            case _:
                pass
    return found


def _kept(key: str, **fields: Any) -> Json | UnsetType:
    """Metadata with those fields that there are; absent where that is none."""
    own = {name: held for name, held in fields.items() if held}
    return {key: own} if own else UNSET


def _details(part: theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart) -> Json:
    return part.provider_details or {}


# --- texts ---------------------------------------------------------------------------------


def _text(part: theirs.TextPart, wire: str) -> TextPart:
    details = _details(part)
    if wire == RESPONSES:
        own = _kept(_OPENAI, itemId=part.id, phase=details.get("phase"))
        return TextPart(text=part.content, metadata=own)
    signature = details.get("thought_signature") if wire == GOOGLE else None
    if signature and not part.content.strip():
        # A signature may come with no words at all: it must go back, so it must be shown.
        block = {"text": part.content, _SIGNATURE: signature}
        return TextPart(text=part.content, metadata={GOOGLE: {BLOCK: block}})
    return TextPart(text=part.content, metadata=_kept(GOOGLE, thoughtSignature=signature))


# --- thoughts ------------------------------------------------------------------------------


def _thought(part: theirs.ThinkingPart, wire: str) -> ReasoningPart:
    text, details = part.content, _details(part)
    match wire:
        case "anthropic" if part.id in _REDACTED:
            own = _kept(ANTHROPIC, redactedData=part.signature)
        case "anthropic":
            own = _kept(ANTHROPIC, signature=part.signature)
        case "openai-chat":
            own = _kept(CHAT, **{UNDER: [part.id] if part.id in THOUGHTS else None})
        case "openai-responses":
            return _item_thought(part)
        case "google":
            own = _kept(GOOGLE, thoughtSignature=details.get("thought_signature"))
        case _:
            own = _kept(wire, id=part.id, signature=part.signature, details=details)
    return ReasoningPart(text=text, metadata=own)


def _item_thought(part: theirs.ThinkingPart) -> ReasoningPart:
    """A text of an item's summary; each has the item's id, the first what is encrypted."""
    raw = cast("list[str]", _details(part).get("raw_content") or [])
    if not raw or part.content:
        own = _kept(_OPENAI, itemId=part.id, reasoningEncryptedContent=part.signature)
        return ReasoningPart(text=part.content, metadata=own)
    fields: Json = {"summary": []}  # the thinking itself is no summary of it
    fields |= {"id": part.id} if part.id else {}
    fields |= {"encrypted_content": part.signature} if part.signature else {}
    fields["content"] = [{"type": "reasoning_text", "text": text} for text in raw]
    return ReasoningPart(text="\n\n".join(raw), metadata={_OPENAI: {ITEM: fields}})


# --- calls ---------------------------------------------------------------------------------


def _call(part: theirs.ToolCallPart, wire: str, call_id: str) -> ToolPart:
    given, raw = _input(part.args)
    # What compact JSON would not give again goes back as the model wrote it.
    written = part.args if isinstance(part.args, str) and given and not raw else ""
    written = written if written and compact(given) != written else ""
    return ToolPart(
        tool=part.tool_name,
        call_id=call_id,
        state=Pending(input=given, raw=raw or UNSET),
        metadata=_call_metadata(part, wire, written),
    )


def _input(args: str | dict[str, Any] | None) -> tuple[Json, str]:
    """The input of a call, and what was written where that is no object in JSON."""
    if not isinstance(args, str):
        return dict(args or {}), ""
    found = arguments_object(args)
    return ({}, args.strip()) if found is None else (found, "")


def _call_metadata(part: theirs.ToolCallPart, wire: str, written: str) -> Json | UnsetType:
    details = _details(part)
    match wire:
        case "openai-responses":
            return _kept(_OPENAI, **{"itemId": part.id, ARGUMENTS: written})
        case "openai-chat":
            extra = details.get("extra_content")
            fields = {"extra_content": extra} if extra else None
            return _kept(CHAT, **{FIELDS: fields, ARGUMENTS: written})
        case "google":
            return _kept(GOOGLE, thoughtSignature=details.get("thought_signature"))
        case _:
            return UNSET
