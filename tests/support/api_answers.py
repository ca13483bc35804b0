"""Replies of a scripted model in the four API formats: complete, and as events of a stream."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """A tool call; the server fills in a declared tool and arguments if they are missing."""

    tool: str = ""
    arguments: Json | None = None


class Thought(NamedTuple):
    """Signed reasoning."""

    text: str


class Cut(NamedTuple):
    """The stream breaks off here, in the middle of the last piece before it."""


Bit = str | Call | Thought | Cut


class Reply(NamedTuple):
    """The content of one reply."""

    number: int
    bits: tuple[Bit, ...]
    tokens: int  # of the request
    body: Json

    @property
    def pieces(self) -> list[tuple[int, str | Call | Thought]]:
        """The pieces of the reply, numbered."""
        return list(enumerate(bit for bit in self.bits if not isinstance(bit, Cut)))

    @property
    def calls(self) -> bool:
        """Whether any tool is called."""
        return any(isinstance(bit, Call) for bit in self.bits)

    @property
    def output_tokens(self) -> int:
        """The tokens of the reply."""
        return 1 + sum(len(_text(bit)) for _, bit in self.pieces) // 4

    def id(self, index: int) -> str:
        """The id of a call or an item."""
        return f"{self.number}_{index}"


class Answer(NamedTuple):
    """The complete response, and its events, with names if the API names them."""

    whole: Json
    streamed: list[Json]
    has_names: bool = False
    end: str = ""
    is_cut: bool = False

    def events(self) -> list[str]:
        """The server-sent events of a stream."""
        lines = [
            (f"event: {event['type']}\n" if self.has_names else "")
            + f"data: {json.dumps(event)}\n\n"
            for event in self.streamed
        ]
        return lines if self.is_cut else [*lines, self.end]


def signature(text: str) -> str:
    """The provider's signature of a thought."""
    return b64encode(f"signed {len(text)} {text[:8]}".encode()).decode()


def _text(bit: Bit) -> str:
    return bit if isinstance(bit, str) else json.dumps(bit)


def _halves(text: str) -> tuple[str, str]:
    middle = (len(text) + 1) // 2
    return text[:middle], text[middle:]


def _cut(reply: Reply, events: list[tuple[int, Json]]) -> tuple[list[Json], bool]:
    """The events up to a cut: those of the last piece only in part."""
    if not any(isinstance(bit, Cut) for bit in reply.bits):
        return [event for _, event in events], False
    last = len(reply.pieces) - 1
    before = [event for number, event in events if number < last]
    within = [event for number, event in events if number == last]
    return before + within[: (len(within) + 1) // 2], True


# --- openai chat -----------------------------------------------------------------------------


def _chat(reply: Reply) -> Answer:
    head: Json = {"id": f"chatcmpl-{reply.number}", "created": 1, "model": reply.body["model"]}
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    deltas: list[tuple[int, Json]] = [(-1, {"role": "assistant", "content": None})]
    calls: list[Json] = []
    for index, bit in reply.pieces:
        name = "reasoning_content" if isinstance(bit, Thought) else "content"
        if isinstance(bit, Call):
            call = {"id": f"call_{reply.id(index)}", "type": "function"}
            function = {"name": bit.tool, "arguments": json.dumps(bit.arguments)}
            at = {"index": len(calls)}
            start: Json = {**at, **call, "function": {**function, "arguments": ""}}
            deltas.append((index, {"tool_calls": [start]}))
            halves = [{"arguments": half} for half in _halves(function["arguments"])]
            deltas += [(index, {"tool_calls": [{**at, "function": half}]}) for half in halves]
            calls.append({**call, "function": function})
        else:
            text = bit.text if isinstance(bit, Thought) else bit
            message[name] = (message.get(name) or "") + text
            deltas += [(index, {name: half}) for half in _halves(text)]
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    usage = {
        "prompt_tokens": reply.tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.tokens + reply.output_tokens,
    }
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    events = [(index, _chunk(head, delta, None)) for index, delta in deltas]
    events.append((len(reply.bits), _chunk(head, {}, finish)))
    options: Json = reply.body.get("stream_options") or {}
    if options.get("include_usage"):
        last: Json = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        events.append((len(reply.bits), last))
    streamed, is_cut = _cut(reply, events)
    return Answer(whole, streamed, end="data: [DONE]\n\n", is_cut=is_cut)


def _chunk(head: Json, delta: Json, finish: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {**head, "object": "chat.completion.chunk", "choices": [choice]}


# --- openai responses ------------------------------------------------------------------------


def _responses(reply: Reply) -> Answer:
    head: Json = {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": 1,
        "model": reply.body["model"],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": reply.body.get("tools") or [],
        "error": None,
        "incomplete_details": None,
    }
    items = [_item(reply, index, bit) for index, bit in reply.pieces]
    usage = {
        "input_tokens": reply.tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.tokens + reply.output_tokens,
    }
    whole = {**head, "status": "completed", "output": items, "usage": usage}
    start: Json = {**head, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[int, Json]] = [(-1, {"type": "response.created", "response": start})]
    for index, item in enumerate(items):
        events += [(index, event) for event in _item_events(index, item)]
    events.append((len(reply.bits), {"type": "response.completed", "response": whole}))
    streamed, is_cut = _cut(reply, events)
    numbered = [{**event, "sequence_number": at} for at, event in enumerate(streamed)]
    return Answer(whole, numbered, has_names=True, is_cut=is_cut)


def _item(reply: Reply, index: int, bit: str | Call | Thought) -> Json:
    if isinstance(bit, Thought):
        summary = [{"type": "summary_text", "text": bit.text}]
        item: Json = {"type": "reasoning", "id": f"rs_{reply.id(index)}", "summary": summary}
        return {**item, "encrypted_content": signature(bit.text)}
    status = {"status": "completed"}
    if isinstance(bit, Call):
        identity = {"id": f"fc_{reply.id(index)}", "call_id": f"call_{reply.id(index)}"}
        call = {"type": "function_call", **identity, "name": bit.tool}
        return {**call, "arguments": json.dumps(bit.arguments), **status}
    text: Json = {"type": "output_text", "text": bit, "annotations": []}
    message: Json = {"type": "message", "id": f"msg_{reply.id(index)}", "role": "assistant"}
    return {**message, "content": [text], **status}


def _item_events(index: int, item: Json) -> Iterator[Json]:
    at: Json = {"output_index": index, "item_id": item["id"]}
    start: Json = {**item, **_EMPTY[item["type"]]}
    yield {"type": "response.output_item.added", "output_index": index, "item": start}
    match item["type"]:
        case "message":
            at |= {"content_index": 0}
            part: Json = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **at, "part": part}
            kind, text = "response.output_text.delta", item["content"][0]["text"]
            at |= {"logprobs": []}
        case "reasoning":
            at |= {"summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            yield {"type": "response.reasoning_summary_part.added", **at, "part": part}
            text = item["summary"][0]["text"]
            kind = "response.reasoning_summary_text.delta"
        case _:
            kind, text = "response.function_call_arguments.delta", item["arguments"]
    for half in _halves(text):
        yield {"type": kind, **at, "delta": half}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


# --- anthropic -------------------------------------------------------------------------------


def _anthropic(reply: Reply) -> Answer:
    blocks = [_block(reply, index, bit) for index, bit in reply.pieces]
    usage = {
        "input_tokens": reply.tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": reply.output_tokens,
    }
    head: Json = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant"}
    head["model"] = reply.body["model"]
    ending: Json = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    whole = {**head, "content": blocks, **ending, "usage": usage}
    first: Json = {**head, "content": [], "stop_reason": None, "stop_sequence": None}
    first["usage"] = {**usage, "output_tokens": 1}
    events: list[tuple[int, Json]] = [(-1, {"type": "message_start", "message": first})]
    events.append((-1, {"type": "ping"}))
    for index, block in enumerate(blocks):
        events += [(index, {**event, "index": index}) for event in _block_events(block)]
    last = {"type": "message_delta", "delta": ending, "usage": usage}
    events += [(len(reply.bits), last), (len(reply.bits), {"type": "message_stop"})]
    streamed, is_cut = _cut(reply, events)
    return Answer(whole, streamed, has_names=True, is_cut=is_cut)


def _block(reply: Reply, index: int, bit: str | Call | Thought) -> Json:
    match bit:
        case Thought():
            return {"type": "thinking", "thinking": bit.text, "signature": signature(bit.text)}
        case Call():
            call_id = f"toolu_{reply.id(index)}"
            return {"type": "tool_use", "id": call_id, "name": bit.tool, "input": bit.arguments}
        case _:
            return {"type": "text", "text": bit}


_EMPTY: dict[str, Json] = {
    "text": {"text": ""},
    "tool_use": {"input": {}},
    "thinking": {"thinking": "", "signature": ""},
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
    "reasoning": {"summary": [], "encrypted_content": ""},
}


def _block_events(block: Json) -> Iterator[Json]:
    yield {"type": "content_block_start", "content_block": {**block, **_EMPTY[block["type"]]}}
    match block["type"]:
        case "text":
            kind, name, text = "text_delta", "text", block["text"]
        case "tool_use":
            kind, name, text = "input_json_delta", "partial_json", json.dumps(block["input"])
        case _:
            kind, name, text = "thinking_delta", "thinking", block["thinking"]
    for half in _halves(text):
        yield {"type": "content_block_delta", "delta": {"type": kind, name: half}}
    if "signature" in block:
        signed = {"type": "signature_delta", "signature": block["signature"]}
        yield {"type": "content_block_delta", "delta": signed}
    yield {"type": "content_block_stop"}


# --- gemini ----------------------------------------------------------------------------------


def _gemini(reply: Reply) -> Answer:
    parts = [_part(reply, index, bit) for index, bit in reply.pieces]
    usage = {
        "promptTokenCount": reply.tokens,
        "candidatesTokenCount": reply.output_tokens,
        "totalTokenCount": reply.tokens + reply.output_tokens,
    }
    head: Json = {"modelVersion": "gemini-x", "responseId": f"r{reply.number}"}
    whole = _generated(head, parts, usage, {"finishReason": "STOP"})
    events: list[tuple[int, Json]] = []
    for index, part in enumerate(parts):
        halves = _halves(part["text"]) if "text" in part else ()
        pieces = [{**part, "text": half} for half in halves] or [part]
        events += [(index, _generated(head, [piece], usage, {})) for piece in pieces]
    last = _generated(head, [{"text": ""}], usage, {"finishReason": "STOP"})
    streamed, is_cut = _cut(reply, [*events, (len(reply.bits), last)])
    return Answer(whole, streamed, is_cut=is_cut)


def _generated(head: Json, parts: list[Json], usage: Json, more: Json) -> Json:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
    return {**head, "candidates": [candidate], "usageMetadata": usage}


def _part(reply: Reply, index: int, bit: str | Call | Thought) -> Json:
    if isinstance(bit, Thought):
        return {"text": bit.text, "thought": True}
    if not isinstance(bit, Call):
        return {"text": bit}
    # Some models give ids to their calls, and some do not.
    identity = {"id": f"fc{reply.id(index)}"} if reply.number % 2 else {}
    part: Json = {"functionCall": {**identity, "name": bit.tool, "args": bit.arguments}}
    is_first = not any(isinstance(piece, Call) for _, piece in reply.pieces[:index])
    return {**part, "thoughtSignature": signature(reply.id(index))} if is_first else part


ANSWERS: dict[str, Callable[[Reply], Answer]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
