"""Answers of a scripted model on the four wires: whole, and as the events of a stream."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """A call of a tool; without a name one that is declared, without arguments such as it takes."""

    tool: str = ""
    given: Json | None = None


class Thought(NamedTuple):
    """Some thinking, signed."""

    text: str


class Cut(NamedTuple):
    """A stream breaks here, in the middle of what is said last before it."""


Bit = str | Call | Thought | Cut


class Said(NamedTuple):
    """What is said in one answer."""

    number: int
    bits: tuple[Bit, ...]
    tokens: int  # of the request
    body: Json

    @property
    def spoken(self) -> list[tuple[int, str | Call | Thought]]:
        """What is said, numbered."""
        return list(enumerate(bit for bit in self.bits if not isinstance(bit, Cut)))

    @property
    def calls(self) -> bool:
        """Whether anything is called."""
        return any(isinstance(bit, Call) for bit in self.bits)

    @property
    def made(self) -> int:
        """The tokens of the answer."""
        return 1 + sum(len(_text(bit)) for _, bit in self.spoken) // 4

    def id(self, place: int) -> str:
        """The id of a call, or of an item."""
        return f"{self.number}_{place}"


class Answer(NamedTuple):
    """The whole response, and the same as events, named where the wire names them."""

    whole: Json
    streamed: list[Json]
    named: bool = False
    end: str = ""
    is_cut: bool = False

    def events(self) -> list[str]:
        """The pieces of a stream."""
        lines = [
            (f"event: {event['type']}\n" if self.named else "") + f"data: {json.dumps(event)}\n\n"
            for event in self.streamed
        ]
        return lines if self.is_cut else [*lines, self.end]


def signature(text: str) -> str:
    """How a provider signs what its model thought."""
    return b64encode(f"signed {len(text)} {text[:8]}".encode()).decode()


def _text(bit: Bit) -> str:
    return bit if isinstance(bit, str) else json.dumps(bit)


def _halves(text: str) -> tuple[str, str]:
    middle = (len(text) + 1) // 2
    return text[:middle], text[middle:]


def _cut(said: Said, events: list[tuple[int, Json]]) -> tuple[list[Json], bool]:
    """Events by the number of the bit that they tell, until the middle of what is said last."""
    if not any(isinstance(bit, Cut) for bit in said.bits):
        return [event for _, event in events], False
    last = len(said.spoken) - 1
    kept = [event for number, event in events if number < last]
    within = [event for number, event in events if number == last]
    return kept + within[: (len(within) + 1) // 2], True


# --- openai chat -----------------------------------------------------------------------------


def _chat(said: Said) -> Answer:
    head: Json = {"id": f"chatcmpl-{said.number}", "created": 1, "model": said.body["model"]}
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    deltas: list[tuple[int, Json]] = [(-1, {"role": "assistant", "content": None})]
    calls: list[Json] = []
    for place, bit in said.spoken:
        name = "reasoning_content" if isinstance(bit, Thought) else "content"
        if isinstance(bit, Call):
            call = {"id": f"call_{said.id(place)}", "type": "function"}
            function = {"name": bit.tool, "arguments": json.dumps(bit.given)}
            index, (first, rest) = {"index": len(calls)}, _halves(function["arguments"])
            begun: Json = {**index, **call, "function": {**function, "arguments": ""}}
            deltas.append((place, {"tool_calls": [begun]}))
            for half in (first, rest):
                more = {**index, "function": {"arguments": half}}
                deltas += [(place, {"tool_calls": [more]})]
            calls.append({**call, "function": function})
        else:
            text = bit.text if isinstance(bit, Thought) else bit
            message[name] = (message.get(name) or "") + text
            deltas += [(place, {name: half}) for half in _halves(text)]
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    usage = {
        "prompt_tokens": said.tokens,
        "completion_tokens": said.made,
        "total_tokens": said.tokens + said.made,
    }
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    events = [(place, _chunk(head, delta, None)) for place, delta in deltas]
    events.append((len(said.bits), _chunk(head, {}, finish)))
    asked: Json = said.body.get("stream_options") or {}
    if asked.get("include_usage"):
        last: Json = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        events.append((len(said.bits), last))
    streamed, is_cut = _cut(said, events)
    return Answer(whole, streamed, end="data: [DONE]\n\n", is_cut=is_cut)


def _chunk(head: Json, delta: Json, finish: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {**head, "object": "chat.completion.chunk", "choices": [choice]}


# --- openai responses ------------------------------------------------------------------------


def _responses(said: Said) -> Answer:
    head: Json = {
        "id": f"resp_{said.number}",
        "object": "response",
        "created_at": 1,
        "model": said.body["model"],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": said.body.get("tools") or [],
        "error": None,
        "incomplete_details": None,
    }
    items = [_item(said, place, bit) for place, bit in said.spoken]
    usage = {
        "input_tokens": said.tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": said.made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": said.tokens + said.made,
    }
    whole = {**head, "status": "completed", "output": items, "usage": usage}
    begun: Json = {**head, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[int, Json]] = [(-1, {"type": "response.created", "response": begun})]
    for place, item in enumerate(items):
        events += [(place, event) for event in _item_events(place, item)]
    events.append((len(said.bits), {"type": "response.completed", "response": whole}))
    streamed, is_cut = _cut(said, events)
    numbered = [{**event, "sequence_number": at} for at, event in enumerate(streamed)]
    return Answer(whole, numbered, named=True, is_cut=is_cut)


def _item(said: Said, place: int, bit: str | Call | Thought) -> Json:
    if isinstance(bit, Thought):
        summary = [{"type": "summary_text", "text": bit.text}]
        item: Json = {"type": "reasoning", "id": f"rs_{said.id(place)}", "summary": summary}
        return {**item, "encrypted_content": signature(bit.text)}
    done = {"status": "completed"}
    if isinstance(bit, Call):
        named = {"id": f"fc_{said.id(place)}", "call_id": f"call_{said.id(place)}"}
        given = json.dumps(bit.given)
        return {"type": "function_call", **named, "name": bit.tool, "arguments": given, **done}
    text: Json = {"type": "output_text", "text": bit, "annotations": []}
    message: Json = {"type": "message", "id": f"msg_{said.id(place)}", "role": "assistant"}
    return {**message, "content": [text], **done}


def _item_events(place: int, item: Json) -> Iterator[Json]:
    at: Json = {"output_index": place, "item_id": item["id"]}
    begun: Json = {**item, **_EMPTY[item["type"]]}
    yield {"type": "response.output_item.added", "output_index": place, "item": begun}
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
    yield {"type": "response.output_item.done", "output_index": place, "item": item}


# --- anthropic -------------------------------------------------------------------------------


def _anthropic(said: Said) -> Answer:
    blocks = [_block(said, place, bit) for place, bit in said.spoken]
    usage = {
        "input_tokens": said.tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": said.made,
    }
    head: Json = {"id": f"msg_{said.number}", "type": "message", "role": "assistant"}
    head["model"] = said.body["model"]
    ending: Json = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    whole = {**head, "content": blocks, **ending, "usage": usage}
    first: Json = {**head, "content": [], "stop_reason": None, "stop_sequence": None}
    first["usage"] = {**usage, "output_tokens": 1}
    events: list[tuple[int, Json]] = [(-1, {"type": "message_start", "message": first})]
    events.append((-1, {"type": "ping"}))
    for place, block in enumerate(blocks):
        events += [(place, {**event, "index": place}) for event in _block_events(block)]
    last = {"type": "message_delta", "delta": ending, "usage": usage}
    events += [(len(said.bits), last), (len(said.bits), {"type": "message_stop"})]
    streamed, is_cut = _cut(said, events)
    return Answer(whole, streamed, named=True, is_cut=is_cut)


def _block(said: Said, place: int, bit: str | Call | Thought) -> Json:
    match bit:
        case Thought():
            return {"type": "thinking", "thinking": bit.text, "signature": signature(bit.text)}
        case Call():
            call_id = f"toolu_{said.id(place)}"
            return {"type": "tool_use", "id": call_id, "name": bit.tool, "input": bit.given}
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


def _gemini(said: Said) -> Answer:
    parts = [_part(said, place, bit) for place, bit in said.spoken]
    usage = {
        "promptTokenCount": said.tokens,
        "candidatesTokenCount": said.made,
        "totalTokenCount": said.tokens + said.made,
    }
    head: Json = {"modelVersion": "gemini-x", "responseId": f"r{said.number}"}
    whole = _generated(head, parts, usage, {"finishReason": "STOP"})
    events: list[tuple[int, Json]] = []
    for place, part in enumerate(parts):
        halves = _halves(part["text"]) if "text" in part else ()
        pieces = [{**part, "text": half} for half in halves] or [part]
        events += [(place, _generated(head, [piece], usage, {})) for piece in pieces]
    last = _generated(head, [{"text": ""}], usage, {"finishReason": "STOP"})
    streamed, is_cut = _cut(said, [*events, (len(said.bits), last)])
    return Answer(whole, streamed, is_cut=is_cut)


def _generated(head: Json, parts: list[Json], usage: Json, more: Json) -> Json:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
    return {**head, "candidates": [candidate], "usageMetadata": usage}


def _part(said: Said, place: int, bit: str | Call | Thought) -> Json:
    if isinstance(bit, Thought):
        return {"text": bit.text, "thought": True}
    if not isinstance(bit, Call):
        return {"text": bit}
    # Some models name their calls, and some do not.
    named = {"id": f"fc{said.id(place)}"} if said.number % 2 else {}
    part: Json = {"functionCall": {**named, "name": bit.tool, "args": bit.given}}
    is_first = not any(isinstance(held, Call) for _, held in said.spoken[:place])
    return {**part, "thoughtSignature": signature(said.id(place))} if is_first else part


ANSWERS: dict[str, Callable[[Said], Answer]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
