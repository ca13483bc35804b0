"""Streamed steps of four providers: reasoning, text and two parallel calls."""

import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Completed, Message, TextPart, ToolPart, UserInfo
from foldmark.model.prompt_messages import PromptMessage
from foldmark.policy import FOLDMARK
from foldmark.summary.protocol import StepReply
from foldmark.tokens.counters import counter
from tests.support.provider_server import (
    Sent,
    anthropic_block,
    anthropic_message,
    anthropic_text,
    chat_completion,
    gemini_reply,
    stream,
)

Json = dict[str, Any]
READ, LIST = '{"path": "parser.py"}', '{"path":"tests"}'
SIGNED = "c2lnbmVk"  # Gemini's signatures are base64


# --- Anthropic ------------------------------------------------------------------------------------


def _use(index: int, name: str, *pieces: str) -> Iterator[Json]:
    block: Json = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return anthropic_block(index, block, *deltas)


def anthropic_events(arguments: str = READ) -> Iterator[Json]:
    thinking = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "The parser "},
        {"type": "thinking_delta", "thinking": "first."},
        {"type": "signature_delta", "signature": "sig-1"},
    )
    return anthropic_message(
        "tool_use",
        thinking,
        anthropic_block(1, {"type": "redacted_thinking", "data": "hidden-1"}),
        anthropic_text(2, "I look ", "at both."),
        _use(3, "read", arguments[:6], arguments[6:]),
        _use(4, "ls", LIST),
    )


def anthropic_step(arguments: str = READ, cut: int = 0) -> Sent:
    return stream(anthropic_events(arguments), named=True, cut=cut)


# --- OpenAI's chat completions --------------------------------------------------------------------


def _call(index: int, name: str | None, arguments: str, call_id: str | None) -> Json:
    function: Json = {"arguments": arguments, **({"name": name} if name else {})}
    call: Json = {"index": index, "type": "function", "function": function}
    if call_id is not None:
        call["id"] = call_id
    if name == "read":
        call["extra_content"] = {"google": {"thought_signature": SIGNED}}
    return {"tool_calls": [call]}


def chat_events(arguments: str = READ, ids: tuple[str, str] = ("c_a", "c_b")) -> Iterator[Json]:
    thoughts, texts = ("The parser ", "first."), ("I look ", "at both.")
    deltas: list[Json] = [
        *({"role": "assistant", "reasoning_content": thought} for thought in thoughts),
        *({"content": text} for text in texts),
        _call(0, "read", arguments[:6], ids[0]),
        _call(1, "ls", "", ids[1]),
        _call(0, None, arguments[6:], None),
        _call(1, None, LIST, None),
    ]
    return chat_completion(deltas, "tool_calls")


def chat_step(arguments: str = READ, cut: int = 0, ids: tuple[str, str] = ("c_a", "c_b")) -> Sent:
    return stream(chat_events(arguments, ids), end="data: [DONE]\n\n", cut=cut)


# --- OpenAI's responses ---------------------------------------------------------------------------


def _response(status: str, usage: Json | None = None) -> Json:
    fixed: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5"}
    fixed |= {"error": None, "tools": [], "incomplete_details": None, "tool_choice": "auto"}
    return {**fixed, "status": status, "output": [], "usage": usage, "parallel_tool_calls": True}


def _item(kind: str, index: int, item: Json) -> Json:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def _thinking() -> Iterator[Json]:
    item: Json = {"id": "rs_1", "type": "reasoning", "summary": []}
    yield _item("added", 0, item)
    at = {"item_id": "rs_1", "output_index": 0}
    texts = ("The parser first.", "Then the tests.")
    for index, text in enumerate(texts):
        part = {"type": "summary_text", "text": ""}
        here = {**at, "summary_index": index}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": part}
        for piece in (text[:9], text[9:]):
            yield {"type": "response.reasoning_summary_text.delta", **here, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": text}
    summary = [{"type": "summary_text", "text": text} for text in texts]
    yield _item("done", 0, {**item, "summary": summary, "encrypted_content": "enc-1"})


def _message() -> Iterator[Json]:
    item: Json = {"id": "msg_1", "type": "message", "role": "assistant", "phase": "commentary"}
    yield _item("added", 1, {**item, "status": "in_progress", "content": []})
    here = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    part: Json = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **here, "part": part}
    for piece in ("I look ", "at both."):
        yield {"type": "response.output_text.delta", **here, "delta": piece, "logprobs": []}
    whole = {**part, "text": "I look at both."}
    yield {"type": "response.output_text.done", **here, "text": whole["text"], "logprobs": []}
    yield _item("done", 1, {**item, "status": "completed", "content": [whole]})


def _function(index: int, name: str, arguments: str) -> Iterator[Json]:
    item: Json = {"id": f"fc_{index}", "type": "function_call", "call_id": f"call_{index}"}
    item |= {"name": name, "arguments": "", "status": "in_progress"}
    yield _item("added", index, item)
    here = {"item_id": f"fc_{index}", "output_index": index}
    yield {"type": "response.function_call_arguments.delta", **here, "delta": arguments}
    yield {"type": "response.function_call_arguments.done", **here, "arguments": arguments}
    yield _item("done", index, {**item, "arguments": arguments, "status": "completed"})


def responses_events(arguments: str = READ) -> Iterator[Json]:
    events = [
        {"type": "response.created", "response": _response("in_progress")},
        *_thinking(),
        *_message(),
        *_function(2, "read", arguments),
        *_function(3, "ls", LIST),
    ]
    usage: Json = {"input_tokens": 132, "output_tokens": 7, "total_tokens": 139}
    usage["input_tokens_details"] = {"cached_tokens": 100}
    usage["output_tokens_details"] = {"reasoning_tokens": 3}
    events.append({"type": "response.completed", "response": _response("completed", usage)})
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def responses_step(arguments: str = READ, cut: int = 0) -> Sent:
    return stream(responses_events(arguments), named=True, cut=cut)


# --- Gemini ---------------------------------------------------------------------------------------


def gemini_step(cut: int = 0) -> Sent:
    calls: list[Json] = [
        {"functionCall": {"name": "read", "args": json.loads(READ)}, "thoughtSignature": SIGNED},
        {"functionCall": {"name": "ls", "args": json.loads(LIST)}},
    ]
    thoughts = ([{"text": text, "thought": True}] for text in ("The parser ", "first."))
    texts = ([{"text": text}] for text in ("I look ", "at both."))
    return stream(gemini_reply(*thoughts, *texts, calls), cut=cut)


# --- the view after a step ------------------------------------------------------------------------


def view_after(step: StepReply) -> tuple[PromptMessage, ...]:
    """The view of a session with this step, after its calls have ended."""
    user = Message(info=UserInfo(id="msg_a"), parts=(TextPart(text="Fix it"),))
    parts = tuple(_with_result(part) if isinstance(part, ToolPart) else part for part in step.parts)
    answer = Message(info=AssistantInfo(id="msg_b"), parts=parts)
    return Viewer(Log(counter("classes"), (user, answer)), FOLDMARK).view().messages


def _with_result(part: ToolPart) -> ToolPart:
    state = Completed(input=part.state.input, output=f"of {part.tool}")
    return ToolPart(tool=part.tool, call_id=part.call_id, state=state, metadata=part.metadata)


# --- a server that goes silent --------------------------------------------------------------------


class Hanging:
    """A server that starts a reply and goes silent; `left` is set when its client disconnects."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.left = threading.Event()


@contextmanager
def hanging(body: str) -> Generator[Hanging]:
    """A server that sends only this much of a stream."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        state = Hanging(f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread = threading.Thread(target=_hang, args=(listening, body, state))
        thread.start()
        try:
            yield state
        finally:
            thread.join()


def _hang(listening: socket.socket, body: str, state: Hanging) -> None:
    caller, _ = listening.accept()
    with caller:
        caller.settimeout(20)
        caller.recv(1 << 20)
        head = (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000000\r\n\r\n"
        )
        caller.sendall((head + body).encode())
        while caller.recv(1 << 20):
            pass
        state.left.set()
