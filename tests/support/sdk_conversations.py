"""A short talk with each provider, in the objects of its own SDK: what its API sends back."""

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


class Talk(Frozen):
    """Two answers of a model: one that calls two tools, and one in words."""

    calling: Any
    ending: Any
    message: Any  # the first answer without its response
    results: list[Json]  # what the program sends back for the calls
    ids: tuple[str, str]


def _completion(message: Json, finish: str) -> ChatCompletion:
    return ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-x",
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 7,
                "total_tokens": 107,
                "prompt_tokens_details": {"cached_tokens": 60},
            },
        }
    )


def _chat() -> Talk:
    calls = [
        {
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"path":"{path}"}}'},
        }
        for place, path in enumerate(PATHS)
    ]
    details = [{"type": "reasoning.encrypted", "data": SIGNED["openai-chat"]}]
    calling = _completion(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": calls,
            "reasoning_details": details,
        },
        "tool_calls",
    )
    return Talk(
        calling=calling,
        ending=_completion({"role": "assistant", "content": "Both are fine."}, "stop"),
        message=calling.choices[0].message,
        results=[
            {"role": "tool", "tool_call_id": f"call_{place}", "content": f"of {path}"}
            for place, path in enumerate(PATHS)
        ],
        ids=("call_0", "call_1"),
    )


def _response(*output: Json) -> Response:
    return Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "gpt-x",
            "output": list(output),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 3},
                "total_tokens": 107,
            },
        }
    )


def _responses() -> Talk:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": SIGNED["openai-responses"],
    }
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{place}",
            "call_id": f"call_{place}",
            "name": "read",
            "arguments": f'{{"path":"{path}"}}',
            "status": "completed",
        }
        for place, path in enumerate(PATHS)
    ]
    text: Json = {"type": "output_text", "text": "Both are fine.", "annotations": []}
    said: Json = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    calling = _response(thought, *calls)
    return Talk(
        calling=calling,
        ending=_response(said),
        message=calling.output,
        results=[
            {"type": "function_call_output", "call_id": f"call_{place}", "output": f"of {path}"}
            for place, path in enumerate(PATHS)
        ],
        ids=("call_0", "call_1"),
    )


def _message(stop: str, *content: Json) -> AnthropicMessage:
    return AnthropicMessage.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": list(content),
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 40,
                "output_tokens": 7,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 0,
            },
        }
    )


def _anthropic() -> Talk:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": SIGNED["anthropic"]}
    uses = [
        {"type": "tool_use", "id": f"toolu_{place}", "name": "read", "input": {"path": path}}
        for place, path in enumerate(PATHS)
    ]
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": f"toolu_{place}", "content": f"of {path}"}
        for place, path in enumerate(PATHS)
    ]
    return Talk(
        calling=_message("tool_use", thought, *uses),
        ending=_message("end_turn", {"type": "text", "text": "Both are fine."}),
        message={"role": "assistant", "content": [thought, *uses]},
        results=[{"role": "user", "content": results}],
        ids=("toolu_0", "toolu_1"),
    )


def _generated(*parts: Json) -> types.GenerateContentResponse:
    content = {"role": "model", "parts": list(parts)}
    return types.GenerateContentResponse.model_validate(
        {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "modelVersion": "gemini-x",
            "usageMetadata": {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 60,
                "candidatesTokenCount": 4,
                "thoughtsTokenCount": 3,
                "totalTokenCount": 107,
            },
        }
    )


def _gemini() -> Talk:
    calls: list[Json] = [{"functionCall": {"name": "read", "args": {"path": p}}} for p in PATHS]
    calls[0]["thoughtSignature"] = SIGNED["gemini"]
    answers = [
        {"functionResponse": {"name": "read", "response": {"output": f"of {path}"}}}
        for path in PATHS
    ]
    calling = _generated(*calls)
    candidates = calling.candidates
    assert candidates
    return Talk(
        calling=calling,
        ending=_generated({"text": "Both are fine."}),
        message=candidates[0].content,
        results=[{"role": "user", "parts": answers}],
        ids=("call_read_1", "call_read_2"),
    )


TALKS = {
    "openai-chat": _chat(),
    "openai-responses": _responses(),
    "anthropic": _anthropic(),
    "gemini": _gemini(),
}
