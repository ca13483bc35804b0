"""Recognize errors that say a request was too long, and the window that they state.

One table lists these refusals, another lists similar errors with other causes (rate limits,
quotas, the output parameter). Each row has an example message of its provider. This module only
reads error messages: it does not know HTTP clients or models, or how to react to a refusal.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import cast

import msgspec

_MAX_DEPTH = 8  # of errors inside errors


class Refusal(msgspec.Struct, frozen=True):
    """One wording of one provider: a lower-case pattern, and an example that it matches."""

    provider: str
    pattern: str
    example: str


# A number in a pattern is written <limit> if it is the window, and <n> if it is any other.
# The formatter is off so that each row keeps its pattern above its example.
# fmt: off
REFUSALS = (
    Refusal("openai",
            r"context length is <limit> tokens\. however, your messages resulted in <n> tokens",
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 130005 tokens. Please reduce the length of the messages."),
    Refusal("openai", r"input tokens exceed the configured limit of <limit> tokens"
            r"(?:\. your messages resulted in <n> tokens)?",
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
            "289650 tokens. Please reduce the length of the messages."),
    Refusal("openai responses", r"input exceeds the context window of this model",
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again."),
    Refusal("openai code", r"context[_ ]length[_ ]exceeded", "context_length_exceeded"),
    Refusal("azure", r"context length is <limit> tokens, however you requested <n> tokens",
            "This model's maximum context length is 8191 tokens, however you requested 8238 tokens "
            "(8238 in your prompt; 0 for the completion)."),
    Refusal("deepseek", r"context length is <limit> tokens\. however, you requested <n> tokens",
            "This model's maximum context length is 65536 tokens. However, you requested 66343 "
            "tokens (62247 in the messages, 4096 in the completion)."),
    Refusal("openrouter",
            r"context length is <limit> tokens\. however, you requested about <n> tokens",
            "This endpoint's maximum context length is 131072 tokens. However, you requested about "
            "141607 tokens (10535 of text input, 131072 in the output)."),
    Refusal("anthropic", r"prompt is too long(?:: <n> tokens > <limit> maximum)?",
            "prompt is too long: 214676 tokens > 200000 maximum"),
    Refusal("anthropic", r"input length and .?max_tokens.? exceed context limit"
            r"(?:: <n> \+ <n> > <limit>)?",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
            "input length or `max_tokens` and try again"),
    Refusal("anthropic", r"request size exceeds model context window",
            "Request size exceeds model context window"),
    Refusal("anthropic code", r"\brequest_too_large\b",
            '{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'),
    Refusal("bedrock", r"input is too long for requested model",
            "ValidationException: Input is too long for requested model."),
    Refusal("bedrock nova", r"number of input tokens exceeds maximum length",
            "Input Tokens Exceeded: Number of input tokens exceeds maximum length."),
    Refusal("gemini", r"input token count(?: \(<n>\))? exceeds the maximum number of tokens"
            r" allowed(?: \(<limit>\))?",
            "The input token count (1200293) exceeds the maximum number of tokens allowed "
            "(1048576)."),
    Refusal("vertex", r"input token count is <n> but model only supports up to <limit>",
            "Unable to submit request because the input token count is 32825 but model only "
            "supports up to 32768. Reduce the input token count and try again."),
    Refusal("xai", r"maximum prompt length is <limit> but the request contains <n> tokens",
            "This model's maximum prompt length is 131072 but the request contains 136973 tokens."),
    Refusal("xai code", r"\binput_too_large\b"
            r"(?:\] current message \(<n> tokens\) exceeds budget \(<limit> tokens\))?",
            "Failed to start sampling: [input_too_large] Current message (1149677 tokens) exceeds "
            "budget (975424 tokens)"),
    Refusal("groq", r"reduce the length of the messages or completion",
            "Please reduce the length of the messages or completion."),
    Refusal("cerebras", r"messages or completion\. current length is <n> while limit is <limit>",
            "Please reduce the length of the messages or completion. Current length is 42328 while "
            "limit is 40000"),
    # A bare 413 can only be about size. A bare 400 can be any bad request (gateways also answer
    # so to temporary faults); compacting for it would hide history, so it is not in this table.
    Refusal("cerebras", r"\b413 status code \(no body\)", "413 status code (no body)"),
    Refusal("http", r"\b(?:request entity|payload) too large", "413 Request Entity Too Large"),
    Refusal("mistral", r"prompt contains <n> tokens.{0,40} too large for model"
            r" with <limit> maximum context length",
            "Prompt contains 40687 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length"),
    Refusal("cohere", r"too many tokens: size limit exceeded by <n> tokens"
            r"(?:\..{0,60} the limit for this model is <limit> tokens)?",
            "too many tokens: size limit exceeded by 19296 tokens. Try using shorter or fewer "
            "inputs. The limit for this model is 132000 tokens."),
    Refusal("together", r"input \(<n> tokens\) is longer than the model.{1,3}s context length"
            r" \(<limit> tokens\)",
            "The input (61709 tokens) is longer than the model's context length (40960 tokens)."),
    Refusal("sglang", r"requested token count exceeds the model.{1,3}s maximum context length"
            r" of <limit> tokens(?:\. you requested a total of <n> tokens)?",
            "Requested token count exceeds the model's maximum context length of 202752 tokens. "
            "You requested a total of 202941 tokens: 170941 tokens from the input messages"),
    Refusal("sglang", r"input length \(?<n>(?: tokens\))? exceeds the maximum allowed"
            r" (?:input )?length (?:of |\()<limit> tokens",
            "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."),
    Refusal("fireworks", r"prompt is too long: <n>, model maximum context length: <limit>",
            "The prompt is too long: 40177, model maximum context length: 32767"),
    Refusal("github copilot", r"prompt token count of <n> exceeds the limit of <limit>",
            "prompt token count of 146270 exceeds the limit of 128000"),
    Refusal("github copilot code", r"model_max_prompt_tokens_exceeded",
            "model_max_prompt_tokens_exceeded"),
    Refusal("lm studio", r"tokens to keep from the initial prompt is greater than the context"
            r" length(?: \(n_keep: <n> ?>= n_ctx: <limit>\))?",
            "The number of tokens to keep from the initial prompt is greater than the context "
            "length (n_keep: 13055>= n_ctx: 4096)."),
    Refusal("llama.cpp", r"request(?: \(<n> tokens\))? exceeds the available context size"
            r"(?: \(<limit> tokens\))?",
            "request (4031 tokens) exceeds the available context size (2048 tokens), try "
            "increasing it"),
    Refusal("llama.cpp code", r"exceed_context_size_error"
            r"(?:\W{1,9}n_prompt_tokens\W{1,6}<n>\W{1,9}n_ctx\W{1,6}<limit>)?",
            '"type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192'),
    Refusal("ollama", r"prompt too long; exceeded (?:max )?context length",
            "prompt too long; exceeded max context length by 100918 tokens"),
    Refusal("ollama", r"input length exceeds the context length",
            "the input length exceeds the context length"),
    Refusal("vllm", r"is too large: <n>\. this model.{1,3}s maximum context length is <limit>"
            r" tokens and your request has <n> input tokens",
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum "
            "context length is 65536 tokens and your request has 57879 input tokens"),
    Refusal("vllm", r"context length is <limit> tokens\. however, you requested <n> output tokens"
            r".{0,80} for a total of (?:at least )?<n> tokens",
            "This model's maximum context length is 262144 tokens. However, you requested 128000 "
            "output tokens and your prompt contains at least 134145 input tokens, for a total of "
            "at least 262145 tokens."),
    Refusal("vllm", r"prompt \(length <n>\) is longer than the maximum model length of <limit>",
            "The decoder prompt (length 12324) is longer than the maximum model length of 8192."),
    Refusal("tgi", r"inputs.? tokens \+ .?max_new_tokens.? must be <= <limit>"
            r"(?:\. given: <n> .?inputs.? tokens and <n>)?",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: "
            "3474 `inputs` tokens and 60 `max_new_tokens`"),
    # The 2013 is MiniMax's own code for invalid parameters, not a number of tokens.
    Refusal("minimax", r"context window exceeds limit",
            "invalid params, context window exceeds limit (2013)"),
    Refusal("kimi", r"exceeded model token limit(?:: <limit> \(requested: <n>\))?",
            "Your request exceeded model token limit: 262144 (requested: 269030)"),
    Refusal("zhipu", r"\bprompt exceeds max length", "1261: Prompt exceeds max length"),
    Refusal("z.ai", r"model_context_window_exceeded", "model_context_window_exceeded"),
    Refusal("qwen", r"range of input length should be \[<n>, <limit>\]",
            "InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"),
    Refusal("ds4", r"prompt has <n> tokens?, but the configured context size is <limit> tokens?",
            "prompt has 12,000 tokens, but the configured context size is 8,192 tokens"),
)

# Errors about tokens and limits that waiting, paying or a smaller max_tokens resolves.
THROTTLES = (
    Refusal("openai", r"tokens per (?:min|hour|day)",
            "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit "
            "30000, Used 14567, Requested 24754. Please try again in 18.642s."),
    # Groq sends this with status 413; the limit is per minute and account, not the window.
    Refusal("groq", r"on tokens per minute \(tpm\): limit <limit>",
            "Request too large for model `llama-3.3-70b-versatile` on tokens per minute (TPM): "
            "Limit 6000, Requested 14810, please reduce your message size and try again."),
    # Not after a dash or slash: `x-ratelimit-…` headers and links to a page on rate limits.
    Refusal("anthropic", r"(?<![-/\w])rate[ _-]?limit",
            "This request would exceed your organization's rate limit of 30,000 input tokens per "
            "minute. Please reduce the prompt length or the maximum tokens requested."),
    Refusal("azure", r"exceeded (?:the )?token rate limit of your current",
            "Requests to the ChatCompletions_Create Operation have exceeded token rate limit of "
            "your current OpenAI S0 pricing tier. Please retry after 60 seconds."),
    Refusal("bedrock", r"\bthrottl(?:ed|ing)",
            "ThrottlingException: Too many tokens, please wait before trying again."),
    Refusal("bedrock", r"too many tokens(?: per day)?, please wait",
            "Too many tokens per day, please wait before trying again."),
    Refusal("http", r"\btoo many requests\b", "429 Too many requests: too many tokens"),
    Refusal("http", r"(?:^|\bstatus |\bcode:? )429\b", "Error code: 429 - too many input tokens"),
    Refusal("gemini", r"\bquota exceeded\b|\bexceeded your current quota\b|insufficient_quota",
            "Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 0"),
    Refusal("gemini", r"resource_exhausted|resource (?:has been )?exhausted",
            "RESOURCE_EXHAUSTED: Resource has been exhausted (e.g. check quota)."),
    Refusal("openai output", r"supports at most <n> completion tokens",
            "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, "
            "whereas you provided 8192."),
    Refusal("anthropic output", r"the maximum allowed number of output tokens",
            "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens for "
            "claude-opus-4-20250514"),
    Refusal("bedrock output", r"maximum tokens you requested exceeds? the model limit",
            "The maximum tokens you requested exceeds the model limit of 4096."),
    Refusal("cohere output", r"max tokens must be less than or equal to <n>",
            "too many tokens: max tokens must be less than or equal to 4096, the maximum output "
            "for this model - received 8192."),
)
# fmt: on

# Error classes of libraries that recognize such refusals themselves.
OVERFLOW_ERRORS = frozenset(
    {
        "ContextOverflowError",
        "ContextWindowExceededError",
        "LLMContextWindowExceedError",
        "ModelContextWindowExceededError",
    }
)

# All messages above are shorter; longer ones contain an echo of the request.
READ_CHARS = 8_000

# Bounded like every repetition in the tables, so that no text can make a search slow.
_NUMBER = r"\d{1,3}(?:[,_]\d{3}){1,4}|\d{1,12}"


def is_context_overflow(
    error: str | BaseException, *, status: int | None = None, code: str | None = None
) -> bool:
    """Whether the provider refused because the context was too long, and not for its rate.

    An error is looked through with all that caused it; its status and code are taken from it.
    """
    if isinstance(error, str):
        return _is_overflow(error, status, code)
    return any(
        any(kind.__name__ in OVERFLOW_ERRORS for kind in type(one).__mro__)
        or _is_overflow(error_text(one), status or error_status(one), code or error_code(one))
        for one in errors_within(error)
    )


def _is_overflow(message: str, status: int | None, code: str | None) -> bool:
    for text in (code or "", message):  # the provider's code takes precedence over its message
        if status == 429 or matches(THROTTLES, text):
            return False
        if matches(REFUSALS, text):
            return True
    return status == 413


def stated_window(error: str | BaseException) -> int | None:
    """The limit in tokens that a refusal states, if any."""
    messages = (error,) if isinstance(error, str) else map(error_text, errors_within(error))
    return next(filter(None, map(_stated_limit, messages)), None)


def _stated_limit(message: str) -> int | None:
    if matches(THROTTLES, message):
        return None
    results = (_compiled(row.pattern).search(_text(message)) for row in REFUSALS)
    limits = (match.groupdict().get("limit") for match in results if match)
    return next((int(limit.replace(",", "")) for limit in limits if limit), None)


def matches(rows: Iterable[Refusal], message: str) -> bool:
    """Whether one of these rows matches the message."""
    text = _text(message)
    return any(_compiled(row.pattern).search(text) for row in rows)


def _text(message: str) -> str:
    """The start of the message in lower case on one line, as terminals and logs wrap lines."""
    return " ".join(message[:READ_CHARS].lower().split())


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern with its numbers expanded; compiled at first use to keep the import fast."""
    spelled = pattern.replace("<limit>", f"(?P<limit>{_NUMBER})").replace("<n>", f"(?:{_NUMBER})")
    return re.compile(spelled, re.ASCII)


# --- errors of clients and frameworks: often wrapped, sometimes twice or in groups -----------


def errors_within(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes, and the members of error groups, recursively."""
    waiting: list[tuple[BaseException, int]] = [(error, 0)]
    while waiting:
        one, depth = waiting.pop()
        yield one
        if depth >= _MAX_DEPTH:
            continue
        inner = [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            inner += cast("BaseExceptionGroup[BaseException]", one).exceptions
        waiting += [(cause, depth + 1) for cause in inner if cause is not None]


def error_text(error: BaseException) -> str:
    """The text of an error, with the response body that carries the provider's message."""
    body = getattr(error, "body", None)
    if body is None:  # an error of a plain HTTP client
        with suppress(Exception):  # an unread stream has no text
            body = getattr(getattr(error, "response", None), "text", None)
    return f"{error} {body}" if body else str(error)


def error_status(error: BaseException) -> int | None:
    """The HTTP status of an error, under the attribute names that clients use."""
    values = (getattr(error, name, None) for name in ("status_code", "status", "code"))
    numbers = (value for value in values if isinstance(value, int) and not isinstance(value, bool))
    return next(numbers, None)


def error_code(error: BaseException) -> str | None:
    """The provider's own code for an error, such as `context_length_exceeded`."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else None
