"""Which requests the providers refuse, and with which message: rules for pairs, roles and length.

These are the rules of the APIs for messages in any accepted form; `provider_types` has the stricter
rules for requests that Foldmark writes.
"""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import cast

from tests.support.api_answers import Json, signature

CHARS = 4  # characters per token


def prompt_tokens(body: Json) -> int:
    """The tokens of a request, including the system prompt and the tools."""
    names = (
        "messages",
        "input",
        "contents",
        "system",
        "instructions",
        "systemInstruction",
        "tools",
    )
    inputs = [body[name] for name in names if name in body]
    return len(json.dumps(inputs, ensure_ascii=False)) // CHARS


def tool_schemas(wire: str, body: Json) -> dict[str, Json]:
    """The tools that a request declares, with their input schemas."""
    schemas: dict[str, Json] = {}
    for tool in _listed(body, "tools"):
        match wire:
            case "openai-chat":
                schemas[tool["function"]["name"]] = tool["function"].get("parameters") or {}
            case "openai-responses":
                schemas[tool["name"]] = tool.get("parameters") or {}
            case "anthropic":
                schemas[tool["name"]] = tool.get("input_schema") or {}
            case _:
                for one in _listed(tool, "functionDeclarations"):
                    schema = one.get("parameters") or one.get("parametersJsonSchema")
                    schemas[one["name"]] = schema or {}
    return schemas


def too_long(wire: str, used: int, limit: int) -> str:
    """The provider's message for a request that is too long."""
    return {
        "openai-chat": f"This model's maximum context length is {limit} tokens. However, your "
        f"messages resulted in {used} tokens. Please reduce the length of the messages.",
        "openai-responses": "Your input exceeds the context window of this model. Please adjust "
        "your input and try again.",
        "anthropic": f"prompt is too long: {used} tokens > {limit} maximum",
        "gemini": f"The input token count ({used}) exceeds the maximum number of tokens allowed "
        f"({limit}).",
    }[wire]


def refusal(wire: str, message: str, *, overflow: bool = False) -> Json:
    """The body of a provider's response to a bad request."""
    if wire == "anthropic":
        error: Json = {"type": "invalid_request_error", "message": message}
        return {"type": "error", "error": error, "request_id": "req_1"}
    if wire == "gemini":
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    code = "context_length_exceeded" if overflow else None
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def flaw(wire: str, body: Json) -> str:
    """What is wrong with a request; "" if its provider would accept it."""
    try:
        return next(_RULES[wire](body), "")
    except (KeyError, TypeError, AttributeError) as error:
        return f"malformed: {error!r}"


def _listed(fields: Json, name: str) -> list[Json]:
    return cast("list[Json]", fields.get(name) or [])


# --- the rules -------------------------------------------------------------------------------


def _chat(body: Json) -> Iterator[str]:
    waiting: list[str] = []
    if not body["messages"]:
        yield "messages must not be empty"
    for index, message in enumerate(_listed(body, "messages")):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"messages[{index}]: 'tool' must follow a message with its 'tool_calls'"
            waiting = [name for name in waiting if name != message["tool_call_id"]]
            continue
        if waiting:
            yield f"tool_call_ids did not have response messages: {', '.join(waiting)}"
        waiting = [call["id"] for call in _listed(message, "tool_calls")]
        for wrong in _chat_message(message):
            yield f"messages[{index}]: {wrong}"
    if waiting:
        yield f"tool_call_ids did not have response messages: {', '.join(waiting)}"


def _chat_message(message: Json) -> Iterator[str]:
    calls = _listed(message, "tool_calls")
    if message["role"] == "assistant" and not calls and not message.get("content"):
        yield "an assistant message must not be empty"
    if len({call["id"] for call in calls}) < len(calls):
        yield "an id is used twice"
    for call in calls:
        if call["type"] == "function" and not _is_object(call["function"]["arguments"]):
            yield "arguments are not a JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _responses(body: Json) -> Iterator[str]:
    if not body["input"]:
        yield "input must not be empty"
    if body.get("previous_response_id"):
        yield "Previous response not found: nothing is stored here"
    items = _listed(body, "input") if isinstance(body["input"], list) else []
    calls: list[str] = []
    outputs: list[str] = []
    for item in items:
        if _kind(item).endswith("_call_output"):
            outputs.append(item["call_id"])
            if item["call_id"] not in calls:
                yield f"No tool call found for function call output with call_id {item['call_id']}."
        elif _kind(item).endswith("_call") and "call_id" in item:
            calls.append(item["call_id"])
    for name in calls:
        if name not in outputs:
            yield f"No tool output found for function call {name}."
    ids = [item["id"] for item in items if item.get("id")]
    if any(len(set(names)) < len(names) for names in (calls, outputs, ids)):
        yield "Duplicate item found."
    yield from _thoughts(items)


def _kind(item: Json) -> str:
    return item.get("type", "message")


def _thoughts(items: list[Json]) -> Iterator[str]:
    for item, after in pairwise([*items, {"type": ""}]):
        if _kind(item) != "reasoning":
            continue
        if not _kind(after) or _kind(after).endswith("_call_output"):
            yield f"Item {item.get('id')} of type 'reasoning' lacks its following item."
        text = "".join(block["text"] for block in _listed(item, "summary"))
        if item.get("encrypted_content") != signature(text):
            yield f"Item {item.get('id')}: the encrypted content could not be verified."


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _anthropic(body: Json) -> Iterator[str]:
    waiting: list[str] = []
    used: list[str] = []
    messages = _listed(body, "messages")
    if not messages or messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    for index, message in enumerate(messages):
        blocks = _blocks(message)
        for wrong in (*_answers(blocks, waiting), *_words(blocks)):
            yield f"messages.{index}: {wrong}"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        used += waiting
    if waiting:
        yield f"`tool_use` ids were found without `tool_result` blocks after them: {waiting}"
    if len(set(used)) < len(used):
        yield "`tool_use` ids must be unique"
    if json.dumps(body).count('"cache_control"') > 4:
        yield "A maximum of 4 blocks with cache_control may be provided."


def _answers(blocks: list[Json], waiting: list[str]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    for name in results:
        if name not in waiting:
            yield f"unexpected `tool_use_id` found in `tool_result` blocks: {name}"
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        yield "`tool_result` blocks must come first"
    if missing := [name for name in waiting if name not in results]:
        yield f"`tool_use` ids were found without `tool_result` blocks before: {missing}"
    if len(set(results)) < len(results):
        yield "each `tool_use` must have a single result"


def _words(blocks: list[Json]) -> Iterator[str]:
    if not blocks:
        yield "all messages must have non-empty content"
    for block in blocks:
        if block["type"] == "text" and not block["text"].strip():
            yield "text content blocks must contain non-whitespace text"
        if block["type"] == "thinking" and block["signature"] != signature(block["thinking"]):
            yield "Invalid `signature` in `thinking` block"


def _gemini(body: Json) -> Iterator[str]:
    calls: list[str] = []
    contents = _listed(body, "contents")
    if not contents:
        yield "contents is not specified"
    for index, content in enumerate(contents):
        parts = _listed(content, "parts")
        if not parts:
            yield f"contents[{index}].parts must not be empty."
        answers = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if sorted(answers) != sorted(calls):
            yield (
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        called = [part for part in parts if "functionCall" in part]
        calls = [part["functionCall"]["name"] for part in called]
        if called and (index == 0 or contents[index - 1].get("role") == "model"):
            yield "A function call turn must come after a user turn or a function response turn."
        if any(not part for part in parts):
            yield f"contents[{index}].parts: required oneof field 'data' must be initialized"
    if calls:
        yield "the last function call turn has no function response turn"
    yield from _unsigned(body)


def _unsigned(body: Json) -> Iterator[str]:
    """In the current turn, the first call of each reply must be signed."""
    contents = _listed(body, "contents")
    user_turns = [
        index
        for index, content in enumerate(contents)
        if content.get("role") == "user" and any("text" in part for part in content["parts"])
    ]
    for content in contents[user_turns[-1] if user_turns else 0 :]:
        called = [part for part in content["parts"] if "functionCall" in part]
        if called and not called[0].get("thoughtSignature"):
            name = called[0]["functionCall"]["name"]
            yield f"Function call {name} is missing a thought_signature in functionCall parts."


_RULES: dict[str, Callable[[Json], Iterator[str]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
