"""Steps of four providers as they are streamed: thoughts, words, two calls at the same time."""

import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Completed, Message, TextPart, ToolPart, UserInfo
from foldmark.model.prompt_messages import PromptMessage
from foldmark.policy import FOLDMARK
from foldmark.summary.protocol import Stepped
from foldmark.tokens.counters import counter
from tests.support.provider_server import Sent, stream

Json = dict[str, Any]
READ, LIST = '{"path": "mill.py"}', '{"path":"wheels"}'
SIGNED = "c2lnbmVk"  # Gemini's signatures are base64


# --- Anthropic ------------------------------------------------------------------------------------


def _block(index: int, block: Json, *deltas: Json) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": index, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _use(index: int, name: str, *pieces: str) -> Iterator[Json]:
    block: Json = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return _block(index, block, *deltas)


def anthropic_events(arguments: str = READ) -> Iterator[Json]:
    usage = {"input_tokens": 12, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
    started: Json = {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **started}}
    yield from _block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "The mill "},
        {"type": "thinking_delta", "thinking": "first."},
        {"type": "signature_delta", "signature": "sig-1"},
    )
    yield from _block(1, {"type": "redacted_thinking", "data": "hidden-1"})
    words = [{"type": "text_delta", "text": text} for text in ("I look ", "at both.")]
    yield from _block(2, {"type": "text", "text": ""}, *words)
    yield from _use(3, "read", arguments[:6], arguments[6:])
    yield from _use(4, "ls", LIST)
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {**usage, "output_tokens": 7}}
    yield {"type": "message_stop"}


def anthropic_step(arguments: str = READ, cut: int = 0) -> Sent:
    return stream(anthropic_events(arguments), named=True, cut=cut)


# --- OpenAI's chat completions --------------------------------------------------------------------


def _chunk(delta: Json, finish: str | None = None) -> Json:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _called(index: int, name: str | None, arguments: str, call_id: str | None) -> Json:
    function: Json = {"arguments": arguments, **({"name": name} if name else {})}
    call: Json = {"index": index, "type": "function", "function": function}
    if call_id is not None:
        call["id"] = call_id
    if name == "read":
        call["extra_content"] = {"google": {"thought_signature": SIGNED}}
    return _chunk({"tool_calls": [call]})


def chat_events(arguments: str = READ, ids: tuple[str, str] = ("c_a", "c_b")) -> Iterator[Json]:
    for thought in ("The mill ", "first."):
        yield _chunk({"role": "assistant", "reasoning_content": thought})
    for words in ("I look ", "at both."):
        yield _chunk({"content": words})
    yield _called(0, "read", arguments[:6], ids[0])
    yield _called(1, "ls", "", ids[1])
    yield _called(0, None, arguments[6:], None)
    yield _called(1, None, LIST, None)
    yield _chunk({}, "tool_calls")
    usage: Json = {"prompt_tokens": 132, "completion_tokens": 7, "total_tokens": 139}
    usage["prompt_tokens_details"] = {"cached_tokens": 100}
    yield {**_chunk({}), "choices": [], "usage": usage}


def chat_step(arguments: str = READ, cut: int = 0, ids: tuple[str, str] = ("c_a", "c_b")) -> Sent:
    return stream(chat_events(arguments, ids), end="data: [DONE]\n\n", cut=cut)


# --- OpenAI's responses ---------------------------------------------------------------------------


def _response(status: str, usage: Json | None = None) -> Json:
    fixed: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5"}
    fixed |= {"error": None, "tools": [], "incomplete_details": None, "tool_choice": "auto"}
    return {**fixed, "status": status, "output": [], "usage": usage, "parallel_tool_calls": True}


def _item(kind: str, place: int, item: Json) -> Json:
    return {"type": f"response.output_item.{kind}", "output_index": place, "item": item}


def _thinking() -> Iterator[Json]:
    item: Json = {"id": "rs_1", "type": "reasoning", "summary": []}
    yield _item("added", 0, item)
    at = {"item_id": "rs_1", "output_index": 0}
    texts = ("The mill first.", "Then the wheels.")
    for place, text in enumerate(texts):
        part = {"type": "summary_text", "text": ""}
        here = {**at, "summary_index": place}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": part}
        for piece in (text[:9], text[9:]):
            yield {"type": "response.reasoning_summary_text.delta", **here, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": text}
    summary = [{"type": "summary_text", "text": text} for text in texts]
    yield _item("done", 0, {**item, "summary": summary, "encrypted_content": "enc-1"})


def _words() -> Iterator[Json]:
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


def _function(place: int, name: str, arguments: str) -> Iterator[Json]:
    item: Json = {"id": f"fc_{place}", "type": "function_call", "call_id": f"call_{place}"}
    item |= {"name": name, "arguments": "", "status": "in_progress"}
    yield _item("added", place, item)
    here = {"item_id": f"fc_{place}", "output_index": place}
    yield {"type": "response.function_call_arguments.delta", **here, "delta": arguments}
    yield {"type": "response.function_call_arguments.done", **here, "arguments": arguments}
    yield _item("done", place, {**item, "arguments": arguments, "status": "completed"})


def responses_events(arguments: str = READ) -> Iterator[Json]:
    events = [
        {"type": "response.created", "response": _response("in_progress")},
        *_thinking(),
        *_words(),
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


def gemini_events() -> Iterator[Json]:
    usage = {"promptTokenCount": 132, "candidatesTokenCount": 4, "thoughtsTokenCount": 3}
    read = {"name": "read", "args": json.loads(READ)}
    parts: list[list[Json]] = [
        [{"text": "The mill ", "thought": True}],
        [{"text": "first.", "thought": True}],
        [{"text": "I look "}],
        [{"text": "at both."}],
        [
            {"functionCall": read, "thoughtSignature": SIGNED},
            {"functionCall": {"name": "ls", "args": json.loads(LIST)}},
        ],
    ]
    for place, held in enumerate(parts):
        more = {"finishReason": "STOP"} if place + 1 == len(parts) else {}
        yield {
            "candidates": [{"content": {"role": "model", "parts": held}, "index": 0, **more}],
            "usageMetadata": {**usage, "totalTokenCount": 139, "cachedContentTokenCount": 100},
            "modelVersion": "gemini-2.5-flash",
        }


def gemini_step(cut: int = 0) -> Sent:
    return stream(gemini_events(), cut=cut)


# --- what is shown after a step -------------------------------------------------------------------


def shown_after(step: Stepped) -> tuple[PromptMessage, ...]:
    """The view of a session in which this step was answered and its calls have ended."""
    user = Message(info=UserInfo(id="msg_a"), parts=(TextPart(text="Mend it"),))
    parts = tuple(_ended(part) if isinstance(part, ToolPart) else part for part in step.parts)
    answer = Message(info=AssistantInfo(id="msg_b"), parts=parts)
    return Viewer(Log(counter("classes"), (user, answer)), FOLDMARK).view().messages


def _ended(part: ToolPart) -> ToolPart:
    state = Completed(input=part.state.input, output=f"of {part.tool}")
    return ToolPart(tool=part.tool, call_id=part.call_id, state=state, metadata=part.metadata)


# --- a server that counts its callers -------------------------------------------------------------


class Counting(ThreadingHTTPServer):
    """A server that keeps connections open, and counts them."""

    daemon_threads = True
    connections = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connections += 1
        return super().get_request()


@contextmanager
def counting(sent: Sent) -> Generator[tuple[str, Counting]]:
    """The address of a server with this one answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            data = sent.body.encode()
            self.send_response(sent.status)
            self.send_header("content-type", sent.kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with Counting(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server
        finally:
            server.shutdown()
            thread.join()


# --- a server that stops talking ------------------------------------------------------------------


class Hanging:
    """A server that begins to answer and goes silent, and knows when its caller has gone."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.left = threading.Event()


@contextmanager
def hanging(body: str) -> Generator[Hanging]:
    """A server that sends this much of a stream, and no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        held = Hanging(f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread = threading.Thread(target=_hang, args=(listening, body, held))
        thread.start()
        try:
            yield held
        finally:
            thread.join()


def _hang(listening: socket.socket, body: str, held: Hanging) -> None:
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
        held.left.set()
