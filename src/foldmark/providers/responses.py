"""Read pydantic-ai's replies: the pieces of a stream, the final parts, or a failure.

Data that a provider needs back goes into a part's metadata, where the codec of its API format, or
`requests` if there is none, reads it. Providers word "too long" and "too many requests"
differently: `refusals` recognizes the first and pydantic-ai the second. This module sends nothing.
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
    CallDelta,
    Cause,
    DeltaHandler,
    Finish,
    ModelFailure,
    StepReply,
    TextDelta,
)
from foldmark.wire.codec import ARGUMENTS, arguments_object, codec_metadata, compact_json
from foldmark.wire.exactness import difference_note
from foldmark.wire.openai_chat import REASONING_FIELDS, SOURCES
from foldmark.wire.openai_items import read_item

from .driver import error_line

_REDACTED = ("redacted_thinking", "redacted_content")  # pydantic-ai's ids
_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_call": "tool-calls"}
_CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (ModelContextWindowExceededError, "overflow"),
    (ModelQuotaExceededError, "unavailable"),  # sent as a rate limit, but waiting does not help
    (ModelRateLimitError, "throttled"),
    (ModelOverloadedError, "throttled"),
    (ModelAuthenticationError, "unavailable"),
    (ModelNotFoundError, "unavailable"),
    (ModelRequestTimeout, "timeout"),
    (ModelTimeoutError, "timeout"),
    (TimeoutError, "timeout"),
)
_NO_FINISH_REASON = ("xai",)  # providers whose finish reason pydantic-ai drops
# OpenAI: "Please try again in 18.642s."; Gemini: "Please retry in 37.1s", "retryDelay": "37s".
_WAIT = re.compile(
    r"(?:try again in |retry in |retryDelay\W{1,5})(\d{1,6}(?:\.\d{1,9})?) ?(ms|s)\b"
)
_MAX_SEARCHED = 8_000  # characters of an error that are searched
_MAX_LENGTH = 300  # characters of an error that are reported


def forward_delta(event: object, on_delta: DeltaHandler, seen_calls: set[int]) -> None:
    """Pass the piece of a stream event to `on_delta`; each call once, by its index."""
    match event:
        case PartStartEvent(index=index, part=theirs.ToolCallPart() as call):
            if index not in seen_calls:
                seen_calls.add(index)
                on_delta(CallDelta(call_id=call.tool_call_id, tool=call.tool_name))
        case (
            PartStartEvent(part=theirs.TextPart(content=text))
            | PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text))
        ) if text:
            on_delta(TextDelta(text=text, kind="text"))
        case (
            PartStartEvent(part=theirs.ThinkingPart(content=text))
            | PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text))
        ) if text:
            on_delta(TextDelta(text=text, kind="reasoning"))
        case _:
            pass


def step_reply(
    response: ModelResponse, wire: str, *, reports_finish: bool
) -> StepReply | ModelFailure:
    """The model's reply; `wire` is an API format, or a provider without a codec."""
    if reports_finish and (refusal := _truncation(response)) is not None:
        return refusal
    parts = _parts(response, wire)
    finish: Finish = _FINISH.get(response.finish_reason or "stop", "other")
    if finish == "stop" and any(isinstance(part, ToolPart) for part in parts):
        finish = "tool-calls"  # two of the four API formats report `stop` for calls
    return StepReply(
        parts=tuple(parts),
        finish=finish,
        tokens=measured_tokens(response),
        cost=_cost(response),
    )


def _parts(response: ModelResponse, wire: str) -> list[TextPart | ReasoningPart | ToolPart]:
    """The text, reasoning and call parts; tools that the provider ran itself are left out."""
    parts: list[TextPart | ReasoningPart | ToolPart] = []
    for part in response.parts:
        match part:
            case theirs.TextPart():
                parts.append(TextPart(text=part.content, metadata=_metadata(part, wire)))
            case theirs.ThinkingPart():
                parts.append(_reasoning(part, wire))
            case theirs.ToolCallPart():
                parts.append(_call(part, wire))
            case _:
                pass
    return [part for part in parts if isinstance(part, ToolPart) or part.text or part.metadata]


# --- provider data of a part ---------------------------------------------------------------

_Part = theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart


def _metadata(part: _Part, wire: str) -> Json | UnsetType:
    """The data that a provider needs back with a part, under the key of its codec."""
    details = part.provider_details or {}
    own: Json = {}
    match wire, part:
        case "openai-responses", theirs.TextPart():
            own = {"itemId": part.id, "phase": details.get("phase")}
        case "openai-responses", theirs.ThinkingPart():
            # Every part of a summary has the item's id; only the first has the encrypted content.
            own = {"itemId": part.id, "reasoningEncryptedContent": part.signature}
        case "openai-responses", theirs.ToolCallPart():
            own = {"itemId": part.id, ARGUMENTS: _unusual_arguments(part)}
        case "anthropic", theirs.ThinkingPart():
            own = {"redactedData" if part.id in _REDACTED else "signature": part.signature}
        case "openai-chat", theirs.ThinkingPart():
            own = {SOURCES: [part.id] if part.id in REASONING_FIELDS else None}
        case "openai-chat", theirs.ToolCallPart():
            own = _chat_call(part)
        case "google", _:
            own = _signature(part, details.get("thought_signature"))
        case _, theirs.ThinkingPart():
            own = {"id": part.id, "signature": part.signature, "details": details}
        case _:
            pass
    key = "openai" if wire == "openai-responses" else wire
    return codec_metadata(key, {name: value for name, value in own.items() if value})


def _signature(part: _Part, signature: str | None) -> Json:
    if signature and isinstance(part, theirs.TextPart) and not part.content.strip():
        # A signature without text must be sent back, so it must stay in the view.
        return {BLOCK: {"text": part.content, "thoughtSignature": signature}}
    return {"thoughtSignature": signature}


def _reasoning(part: theirs.ThinkingPart, wire: str) -> ReasoningPart:
    raw = cast("list[str]", (part.provider_details or {}).get("raw_content") or [])
    if wire != "openai-responses" or not raw or part.content:
        return ReasoningPart(text=part.content, metadata=_metadata(part, wire))
    item = {
        "type": "reasoning",
        "summary": [],  # raw reasoning is not a summary
        "content": [{"type": "reasoning_text", "text": text} for text in raw],
    }
    ids = {"id": part.id, "encrypted_content": part.signature}
    converted = read_item(item | {name: value for name, value in ids.items() if value})
    return cast("ReasoningPart", converted.parts[0])


# --- calls ---------------------------------------------------------------------------------


def _call(part: theirs.ToolCallPart, wire: str) -> ToolPart:
    arguments = _input(part)
    raw = part.args.strip() if arguments is None and isinstance(part.args, str) else ""
    return ToolPart(
        tool=part.tool_name,
        call_id=part.tool_call_id,
        state=Pending(input=arguments or {}, raw=raw or UNSET),
        metadata=_metadata(part, wire),
    )


def _input(part: theirs.ToolCallPart) -> Json | None:
    """The input of a call, or None if the arguments are not a JSON object."""
    return arguments_object(part.args) if isinstance(part.args, str) else dict(part.args or {})


def _unusual_arguments(part: theirs.ToolCallPart) -> str | None:
    """The arguments as written by the model if compact JSON would differ, else None."""
    arguments = _input(part)
    is_odd = isinstance(part.args, str) and arguments and compact_json(arguments) != part.args
    return str(part.args) if is_odd else None


def _chat_call(part: theirs.ToolCallPart) -> Json:
    arguments = compact_json(_input(part) or {})
    function = {"name": part.tool_name, "arguments": arguments}
    usual: Json = {"id": part.tool_call_id, "type": "function", "function": function}
    extra = (part.provider_details or {}).get("extra_content")
    raw = {**usual, "function": {**function, "arguments": _unusual_arguments(part) or arguments}}
    return difference_note(usual, raw | ({"extra_content": extra} if extra else {}), "id")


# --- finish reasons and failures -----------------------------------------------------------


def _truncation(response: ModelResponse) -> ModelFailure | None:
    """The failure for a reply without a finish reason."""
    if response.finish_reason != "stop" or response.provider_name in _NO_FINISH_REASON:
        is_broken = response.finish_reason is None
    else:  # pydantic-ai reports `stop` for a stream that just ends
        is_broken = not (response.provider_details or {}).get("finish_reason")
    if not is_broken:
        return None
    return ModelFailure(cause="failed", message="the reply was cut off before its end")


def model_failure(error: Exception) -> ModelFailure:
    """The failure for an error."""
    if isinstance(error, ExceptionGroup):  # of several models tried in turn
        return model_failure(cast("ExceptionGroup[Exception]", error).exceptions[-1])
    if not isinstance(error, ModelAPIError):
        return ModelFailure(cause=_kind(error), message=error_line(error))
    return ModelFailure(
        cause="overflow" if _is_overflow(error) else _kind(error),
        message=_line(error),
        retry_after=error.retry_after or _stated_wait(error),
    )


def _kind(error: Exception) -> Cause:
    for kind, cause in _CAUSES:
        if isinstance(error, kind):
            return cause
    return "throttled" if isinstance(error, ModelAPIError) and _is_busy(error) else "failed"


def _is_busy(error: ModelAPIError) -> bool:
    """Whether an error means overload without its status: gateways say so in the text only."""
    text = f"{error.body}"
    rates = (row for row in THROTTLES if not row.provider.endswith(" output"))
    return "overloaded" in text.lower() or matches(rates, text)


def _is_overflow(error: ModelAPIError) -> bool:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    codes = (error.provider_error_code, error.provider_error_type)
    text = f"{_error_text(error)} {error.body or ''}"
    return any(is_context_overflow(text, status=status, code=code) for code in codes)


def _stated_wait(error: ModelAPIError) -> float | None:
    """The wait in seconds that an error's text states, used if no header does."""
    match = _WAIT.search(f"{error.body}"[:_MAX_SEARCHED])
    return float(match[1]) * (0.001 if match[2] == "ms" else 1) if match else None


def _line(error: ModelAPIError) -> str:
    """The status and the provider's message."""
    text = " ".join(_error_text(error).split()) or type(error).__name__
    status = f"{error.status_code} " if isinstance(error, ModelHTTPError) else ""
    return f"{status}{text}"[:_MAX_LENGTH]


def _error_text(error: ModelAPIError) -> str:
    """The innermost message in an error's body, or pydantic-ai's message."""
    body = error.body
    while isinstance(body, dict):
        fields = cast("dict[str, object]", body)
        body = fields.get("message") or fields.get("error")
    return body if isinstance(body, str) and body else error.message


def measured_tokens(response: ModelResponse) -> Tokens | None:
    """The measured usage; `input` excludes cached tokens."""
    usage = response.usage
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    cache_read, cache_write = usage.cache_read_tokens, usage.cache_write_tokens
    return Tokens(
        input=max(usage.input_tokens - cache_read - cache_write, 0),
        output=usage.output_tokens,
        reasoning=usage.output_reasoning_tokens,
        total=usage.total_tokens,
        cache=Cache(read=cache_read, write=cache_write),
    )


def _cost(response: ModelResponse) -> float | None:
    """The price of a reply in dollars, or None if it is unknown."""
    try:
        return float(response.usage.cost or response.cost().total_price)
    except Exception:  # noqa: BLE001 - the reply matters more than its price
        return None
