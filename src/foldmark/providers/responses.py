"""What came back through pydantic-ai: pieces as they come, the parts in the end, or a failure.

What a provider wants back of a part is put into the part's metadata, where our codec of its wire
looks for it, or `requests` where there is no codec. Each provider has its own words for "too long"
and "too much": the first are told by `refusals`, the second by pydantic-ai. This module sends
nothing and tries nothing again.
"""

import re
from typing import cast

from msgspec import UNSET, UnsetType
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelTimeoutError,
)
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartStartEvent

from foldmark.model.messages import (
    BLOCK,
    Cache,
    Pending,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Json
from foldmark.refusals import THROTTLES, is_context_overflow, matches
from foldmark.summary.protocol import (
    Calling,
    Cause,
    Finish,
    ModelFailure,
    Stepped,
    Tell,
    Words,
)
from foldmark.wire.codec import ARGUMENTS, arguments_object, compact, kept
from foldmark.wire.exactness import raw_unless
from foldmark.wire.openai_chat import THOUGHTS, UNDER
from foldmark.wire.openai_items import read_item

from .driver import error_line

_REDACTED = ("redacted_thinking", "redacted_content")  # how the library marks it
_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_call": "tool-calls"}
_CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (ModelContextWindowExceededError, "overflow"),
    (ModelQuotaExceededError, "unavailable"),  # sent as a rate limit, but no wait will help
    (ModelRateLimitError, "throttled"),
    (ModelOverloadedError, "throttled"),
    (ModelAuthenticationError, "unavailable"),
    (ModelNotFoundError, "unavailable"),
    (ModelRequestTimeout, "timeout"),
    (ModelTimeoutError, "timeout"),
    (TimeoutError, "timeout"),
)
_SILENT = ("xai",)  # whose own word for how an answer ended the library does not keep
# OpenAI: "Please try again in 18.642s."; Gemini: "Please retry in 37.1s", "retryDelay": "37s".
_WAIT = re.compile(
    r"(?:try again in |retry in |retryDelay\W{1,5})(\d{1,6}(?:\.\d{1,9})?) ?(ms|s)\b"
)
_READ = 8_000  # characters of an error that are looked through
_LONGEST = 300  # characters of an error that are told


def report(event: object, tell: Tell, called: set[int]) -> None:
    """Tell the piece of an answer that an event brings; each call once, by its place."""
    match event:
        case PartStartEvent(index=place, part=theirs.ToolCallPart() as call):
            if place not in called:
                called.add(place)
                tell(Calling(call_id=call.tool_call_id, tool=call.tool_name))
        case (
            PartStartEvent(part=theirs.TextPart(content=text))
            | PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text))
        ) if text:
            tell(Words(text=text, kind="text"))
        case (
            PartStartEvent(part=theirs.ThinkingPart(content=text))
            | PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text))
        ) if text:
            tell(Words(text=text, kind="reasoning"))
        case _:
            pass


def stepped(
    response: ModelResponse, wire: str, *, says_how_it_ends: bool
) -> Stepped | ModelFailure:
    """What a model answered; `wire` is a wire's name, or a provider's where we have no codec."""
    if says_how_it_ends and (refusal := _broken_off(response)) is not None:
        return refusal
    parts = _parts(response, wire)
    finish: Finish = _FINISH.get(response.finish_reason or "stop", "other")
    if finish == "stop" and any(isinstance(part, ToolPart) for part in parts):
        finish = "tool-calls"  # two of the four wires say that they stopped, and call
    return Stepped(
        parts=tuple(parts),
        finish=finish,
        tokens=measured_tokens(response),
        cost=_told_cost(response),
    )


def _parts(response: ModelResponse, wire: str) -> list[TextPart | ReasoningPart | ToolPart]:
    """The parts that are ours; what a provider ran by itself nobody asked for."""
    parts: list[TextPart | ReasoningPart | ToolPart] = []
    for part in response.parts:
        match part:
            case theirs.TextPart():
                parts.append(TextPart(text=part.content, metadata=_metadata(part, wire)))
            case theirs.ThinkingPart():
                parts.append(_thought(part, wire))
            case theirs.ToolCallPart():
                parts.append(_call(part, wire))
            case _:
                pass
    return [part for part in parts if isinstance(part, ToolPart) or part.text or part.metadata]


# --- what goes back with a part ------------------------------------------------------------

_Part = theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart


def _metadata(part: _Part, wire: str) -> Json | UnsetType:
    """What the provider wants back of a part, under the key of its codec."""
    details = part.provider_details or {}
    own: Json = {}
    match wire, part:
        case "openai-responses", theirs.TextPart():
            own = {"itemId": part.id, "phase": details.get("phase")}
        case "openai-responses", theirs.ThinkingPart():
            # A text of an item's summary; each has the item's id, the first what is encrypted.
            own = {"itemId": part.id, "reasoningEncryptedContent": part.signature}
        case "openai-responses", theirs.ToolCallPart():
            own = {"itemId": part.id, ARGUMENTS: _odd_arguments(part)}
        case "anthropic", theirs.ThinkingPart():
            own = {"redactedData" if part.id in _REDACTED else "signature": part.signature}
        case "openai-chat", theirs.ThinkingPart():
            own = {UNDER: [part.id] if part.id in THOUGHTS else None}
        case "openai-chat", theirs.ToolCallPart():
            own = _chat_call(part)
        case "google", _:
            own = _signed(part, details.get("thought_signature"))
        case _, theirs.ThinkingPart():
            own = {"id": part.id, "signature": part.signature, "details": details}
        case _:
            pass
    key = "openai" if wire == "openai-responses" else wire
    return kept(key, {name: value for name, value in own.items() if value})


def _signed(part: _Part, signature: str | None) -> Json:
    if signature and isinstance(part, theirs.TextPart) and not part.content.strip():
        # A signature may come with no words at all: it must go back, so it must be shown.
        return {BLOCK: {"text": part.content, "thoughtSignature": signature}}
    return {"thoughtSignature": signature}


def _thought(part: theirs.ThinkingPart, wire: str) -> ReasoningPart:
    raw = cast("list[str]", (part.provider_details or {}).get("raw_content") or [])
    if wire != "openai-responses" or not raw or part.content:
        return ReasoningPart(text=part.content, metadata=_metadata(part, wire))
    item = {
        "type": "reasoning",
        "summary": [],  # the thinking itself is no summary of it
        "content": [{"type": "reasoning_text", "text": text} for text in raw],
    }
    named = {"id": part.id, "encrypted_content": part.signature}
    read = read_item(item | {name: value for name, value in named.items() if value})
    return cast("ReasoningPart", read.parts[0])


# --- calls ---------------------------------------------------------------------------------


def _call(part: theirs.ToolCallPart, wire: str) -> ToolPart:
    given = _input(part)
    raw = part.args.strip() if given is None and isinstance(part.args, str) else ""
    return ToolPart(
        tool=part.tool_name,
        call_id=part.tool_call_id,
        state=Pending(input=given or {}, raw=raw or UNSET),
        metadata=_metadata(part, wire),
    )


def _input(part: theirs.ToolCallPart) -> Json | None:
    """The input of a call; None where what was written is no object in JSON."""
    return arguments_object(part.args) if isinstance(part.args, str) else dict(part.args or {})


def _odd_arguments(part: theirs.ToolCallPart) -> str | None:
    """Arguments as the model wrote them, where compact JSON would not give them again."""
    given = _input(part)
    is_odd = isinstance(part.args, str) and given and compact(given) != part.args
    return str(part.args) if is_odd else None


def _chat_call(part: theirs.ToolCallPart) -> Json:
    arguments = compact(_input(part) or {})
    function = {"name": part.tool_name, "arguments": arguments}
    usual: Json = {"id": part.tool_call_id, "type": "function", "function": function}
    extra = (part.provider_details or {}).get("extra_content")
    raw = {**usual, "function": {**function, "arguments": _odd_arguments(part) or arguments}}
    return raw_unless(usual, raw | ({"extra_content": extra} if extra else {}), "id")


# --- how it ended, and failures ------------------------------------------------------------


def _broken_off(response: ModelResponse) -> ModelFailure | None:
    """The refusal of an answer of which nobody said how it ended."""
    if response.finish_reason != "stop" or response.provider_name in _SILENT:
        is_broken = response.finish_reason is None
    else:  # of a stream that just stops, the library says `stop`
        is_broken = not (response.provider_details or {}).get("finish_reason")
    if not is_broken:
        return None
    return ModelFailure(cause="failed", message="the answer broke off before its end")


def refused(error: Exception) -> ModelFailure:
    """Why there is no answer."""
    if isinstance(error, ExceptionGroup):  # of models that were tried one after the other
        return refused(cast("ExceptionGroup[Exception]", error).exceptions[-1])
    if not isinstance(error, ModelAPIError):
        return ModelFailure(cause=_kind(error), message=error_line(error))
    return ModelFailure(
        cause="overflow" if _is_overflow(error) else _kind(error),
        message=_line(error),
        retry_after=error.retry_after or _told_wait(error),
    )


def _kind(error: Exception) -> Cause:
    for kind, cause in _CAUSES:
        if isinstance(error, kind):
            return cause
    return "throttled" if isinstance(error, ModelAPIError) and _is_busy(error) else "failed"


def _is_busy(error: ModelAPIError) -> bool:
    """Whether it says so in words alone, as gateways do, or under another status, as Groq does."""
    text = f"{error.body}"
    rates = (row for row in THROTTLES if not row.provider.endswith(" output"))
    return "overloaded" in text.lower() or matches(rates, text)


def _is_overflow(error: ModelAPIError) -> bool:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    codes = (error.provider_error_code, error.provider_error_type)
    text = f"{_said(error)} {error.body or ''}"
    return any(is_context_overflow(text, status=status, code=code) for code in codes)


def _told_wait(error: ModelAPIError) -> float | None:
    """The seconds to wait that the words of an error state, where no header does."""
    told = _WAIT.search(f"{error.body}"[:_READ])
    return float(told[1]) * (0.001 if told[2] == "ms" else 1) if told else None


def _line(error: ModelAPIError) -> str:
    """The status and the provider's own words."""
    said = " ".join(_said(error).split()) or type(error).__name__
    status = f"{error.status_code} " if isinstance(error, ModelHTTPError) else ""
    return f"{status}{said}"[:_LONGEST]


def _said(error: ModelAPIError) -> str:
    """The message inside an error's body, however deep; else what the library makes of it."""
    body = error.body
    while isinstance(body, dict):
        fields = cast("dict[str, object]", body)
        body = fields.get("message") or fields.get("error")
    return body if isinstance(body, str) and body else error.message


def measured_tokens(response: ModelResponse) -> Tokens | None:
    """What was measured; here the input is told without what was cached."""
    usage = response.usage
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    return Tokens(
        input=max(usage.input_tokens - read - write, 0),
        output=usage.output_tokens,
        reasoning=usage.output_reasoning_tokens,
        total=usage.total_tokens,
        cache=Cache(read=read, write=write),
    )


def _told_cost(response: ModelResponse) -> float | None:
    """The price of an answer in dollars, where it is known."""
    try:
        return float(response.usage.cost or response.cost().total_price)
    except Exception:  # noqa: BLE001 - a price is no reason to lose an answer
        return None
