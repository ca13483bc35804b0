"""A short conversation with each provider, in the objects of its own SDK."""

from typing import Any

from anthropic.types import Message as AnthropicMessage
from google.genai import types
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from foldmark.model.values import Frozen

Json = dict[str, Any]
SIGNED = {
    "openai-chat": "cmVhc29uaW5nX2RldGFpbHM=",
    "openai-responses": "gAAAAABlbmNyeXB0ZWQ=",
    "anthropic": "RXJzaWduYXR1cmU=",
    "gemini": "dGhvdWdodFNpZ25hdHVyZQ==",
}
PATHS = ("a.py", "b.py")
CALL_IDS = ("call_0", "call_1")
ARGUMENTS = [f'{{"path":"{path}"}}' for path in PATHS]


class Talk(Frozen):
    """Two replies of a model: one that calls two tools, and one of text."""

    calling: Any
    ending: Any
    message: Any  # the first reply without its response
    results: list[Json]  # what the program sends back for the calls
    ids: tuple[str, str]


def _completion(finish: str, **message: Any) -> ChatCompletion:
    usage: Json = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    usage["prompt_tokens_details"] = {"cached_tokens": 60}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-x"}
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    return ChatCompletion.model_validate({**head, "choices": [choice], "usage": usage})


def _chat() -> Talk:
    functions = [{"name": "read", "arguments": arguments} for arguments in ARGUMENTS]
    pairs = zip(CALL_IDS, functions, strict=True)
    calls = [{"id": name, "type": "function", "function": function} for name, function in pairs]
    details = [{"type": "reasoning.encrypted", "data": SIGNED["openai-chat"]}]
    calling = _completion("tool_calls", content=None, tool_calls=calls, reasoning_details=details)
    return Talk(
        calling=calling,
        ending=_completion("stop", content="Both are fine."),
        message=calling.choices[0].message,
        results=[
            {"role": "tool", "tool_call_id": name, "content": f"of {path}"}
            for name, path in zip(CALL_IDS, PATHS, strict=True)
        ],
        ids=CALL_IDS,
    )


def _response(*output: Json) -> Response:
    usage: Json = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
    usage["input_tokens_details"] = {"cached_tokens": 60, "cache_write_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": 3}
    head: Json = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed"}
    settings: Json = {"model": "gpt-x", "parallel_tool_calls": True, "tool_choice": "auto"}
    body = {**head, **settings, "tools": [], "output": list(output), "usage": usage}
    return Response.model_validate(body)


def _responses() -> Talk:
    reasoning: Json = {"type": "reasoning", "id": "rs_1"}
    reasoning["summary"] = [{"type": "summary_text", "text": "Hm."}]
    reasoning["encrypted_content"] = SIGNED["openai-responses"]
    call = {"type": "function_call", "name": "read", "status": "completed"}
    calls = [
        {**call, "id": f"fc_{number}", "call_id": CALL_IDS[number], "arguments": arguments}
        for number, arguments in enumerate(ARGUMENTS)
    ]
    text: Json = {"type": "output_text", "text": "Both are fine.", "annotations": []}
    message: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    calling = _response(reasoning, *calls)
    return Talk(
        calling=calling,
        ending=_response({**message, "content": [text]}),
        message=calling.output,
        results=[
            {"type": "function_call_output", "call_id": name, "output": f"of {path}"}
            for name, path in zip(CALL_IDS, PATHS, strict=True)
        ],
        ids=CALL_IDS,
    )


def _message(stop: str, *content: Json) -> AnthropicMessage:
    usage = {"input_tokens": 40, "output_tokens": 7}
    usage |= {"cache_read_input_tokens": 60, "cache_creation_input_tokens": 0}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    end = {"stop_reason": stop, "stop_sequence": None, "usage": usage}
    return AnthropicMessage.model_validate({**head, "content": list(content), **end})


def _anthropic() -> Talk:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": SIGNED["anthropic"]}
    ids = ("toolu_0", "toolu_1")
    pairs = tuple(zip(ids, PATHS, strict=True))
    uses = [
        {"type": "tool_use", "id": name, "name": "read", "input": {"path": path}}
        for name, path in pairs
    ]
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": name, "content": f"of {path}"}
        for name, path in pairs
    ]
    return Talk(
        calling=_message("tool_use", thinking, *uses),
        ending=_message("end_turn", {"type": "text", "text": "Both are fine."}),
        message={"role": "assistant", "content": [thinking, *uses]},
        results=[{"role": "user", "content": results}],
        ids=ids,
    )


def _generated(*parts: Json) -> types.GenerateContentResponse:
    content = {"role": "model", "parts": list(parts)}
    usage = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 4}
    usage |= {"thoughtsTokenCount": 3, "totalTokenCount": 107}
    candidates = [{"content": content, "finishReason": "STOP", "index": 0}]
    return types.GenerateContentResponse.model_validate(
        {"candidates": candidates, "modelVersion": "gemini-x", "usageMetadata": usage}
    )


def _gemini() -> Talk:
    calls: list[Json] = [{"functionCall": {"name": "read", "args": {"path": p}}} for p in PATHS]
    calls[0]["thoughtSignature"] = SIGNED["gemini"]
    results = [
        {"functionResponse": {"name": "read", "response": {"output": f"of {path}"}}}
        for path in PATHS
    ]
    calling = _generated(*calls)
    assert calling.candidates
    return Talk(
        calling=calling,
        ending=_generated({"text": "Both are fine."}),
        message=calling.candidates[0].content,
        results=[{"role": "user", "parts": results}],
        ids=("call_read_1", "call_read_2"),
    )


TALKS = {
    "openai-chat": _chat(),
    "openai-responses": _responses(),
    "anthropic": _anthropic(),
    "gemini": _gemini(),
}
