"""A real HTTP server that replies like providers, and the models that use it.

Each reply is sent once, in order, and the last one again and again. All requests are recorded.
"""

import json
import socket
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any, NamedTuple

from foldmark.providers.models import model_named
from foldmark.summary.protocol import Model

Json = dict[str, Any]
FIRST, REST = "The tests ", "pass."


class Sent(NamedTuple):
    """A reply of the server; if `cut`, it ends before its content length.

    With status 0, the connection is closed without a reply.
    """

    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "application/json"
    cut: bool = False


class Provider:
    """The server's address, its replies, and the requests and connections so far."""

    def __init__(self, *replies: Sent) -> None:
        self.replies = replies
        self.requests: list[Json] = []
        self.connections = 0
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.url = ""

    def next(self, path: str, body: Json) -> Sent:
        with self.lock:
            self.requests.append(body)
            self.paths.append(path)
            return self.replies[min(len(self.requests), len(self.replies)) - 1]


@contextmanager
def provider(*replies: Sent) -> Generator[Provider]:
    """A server with these replies."""
    state = Provider(*replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as providers keep them

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            sent = state.next(self.path, json.loads(self.rfile.read(size)))
            if not sent.status:
                self.close_connection = True
                return
            data = sent.body.encode()
            self.send_response(sent.status)
            self.send_header("content-type", sent.kind)
            self.send_header("content-length", str(len(data) + 1000 * sent.cut))
            for name, value in sent.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = sent.cut

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def get_request(self) -> tuple[socket.socket, Any]:
            state.connections += 1
            return super().get_request()

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def stream(events: Iterator[Json], *, named: bool = False, end: str = "", cut: int = 0) -> Sent:
    """Events as a provider streams them, without the last `cut` ones."""
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    lines = lines[: len(lines) - cut] if cut else [*lines, end]
    return Sent(200, "".join(lines), kind="text/event-stream", cut=bool(cut))


# --- replies in the format of each API -------------------------------------------------------


def anthropic_block(index: int, block: Json, *deltas: Json) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": index, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def anthropic_message(stop: str, *blocks: Iterator[Json]) -> Iterator[Json]:
    """An Anthropic message with 120 cached tokens."""
    usage = {"input_tokens": 12, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
    start: Json = {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **start}}
    yield from chain(*blocks)
    end = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {**usage, "output_tokens": 7}}
    yield {"type": "message_stop"}


def anthropic_text(index: int, *texts: str) -> Iterator[Json]:
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return anthropic_block(index, {"type": "text", "text": ""}, *deltas)


def anthropic_stream(*, stop: str = "end_turn", cut: int = 0) -> Sent:
    return stream(anthropic_message(stop, anthropic_text(0, FIRST, REST)), named=True, cut=cut)


def chunk(delta: Json, finish: str | None = None, *, model: str = "gpt-4o") -> Json:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat_completion(deltas: Iterable[Json], finish: str | None) -> Iterator[Json]:
    """An OpenAI chat completion with 100 cached tokens."""
    yield from map(chunk, deltas)
    yield chunk({}, finish)
    usage: Json = {"prompt_tokens": 132, "completion_tokens": 7, "total_tokens": 139}
    usage["prompt_tokens_details"] = {"cached_tokens": 100}
    usage["completion_tokens_details"] = {"reasoning_tokens": 3}
    yield {**chunk({}), "choices": [], "usage": usage}


def chat_stream(*, calls: bool = False, finish: str | None = "stop", cut: int = 0) -> Sent:
    deltas: list[Json] = [{"role": "assistant", "content": text} for text in (FIRST, REST)]
    function = {"name": "bash", "arguments": "{}"}
    call = {"index": 0, "id": "t1", "type": "function", "function": function}
    deltas += [{"tool_calls": [call]}] if calls else []
    return stream(chat_completion(deltas, finish), end="data: [DONE]\n\n", cut=cut)


def gemini_reply(*chunks: list[Json]) -> Iterator[Json]:
    """A Gemini reply with 100 cached tokens."""
    usage = {"promptTokenCount": 132, "candidatesTokenCount": 4, "thoughtsTokenCount": 3}
    for number, parts in enumerate(chunks, 1):
        more = {"finishReason": "STOP"} if number == len(chunks) else {}
        yield {
            "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}],
            "usageMetadata": {**usage, "totalTokenCount": 139, "cachedContentTokenCount": 100},
            "modelVersion": "gemini-2.5-flash",
        }


def gemini_stream(*, cut: int = 0) -> Sent:
    return stream(gemini_reply([{"text": FIRST}], [{"text": REST}]), cut=cut)


# --- models that use the server --------------------------------------------------------------


def anthropic(url: str) -> Model:
    return model_named("anthropic:claude-sonnet-4-6", base_url=url, api_key="k")


def chat(url: str) -> Model:
    return model_named("openai:gpt-4o", base_url=f"{url}/v1", api_key="k")


def responses(url: str) -> Model:
    return model_named("openai-responses:gpt-5", base_url=f"{url}/v1", api_key="k")


def gemini(url: str) -> Model:
    return model_named("google-gla:gemini-2.5-flash", base_url=url, api_key="k")
