"""A real HTTP server that answers as providers do, for tests of what is sent and what is read.

Each answer is given once, in its order, the last one again and again. What was asked is kept.
"""

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Json = dict[str, Any]
FIRST, REST = "The tests ", "pass."


class Sent(NamedTuple):
    """An answer of the server; one that is cut ends before what it promised.

    One with the status 0 is none at all: the connection is closed in its place.
    """

    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "application/json"
    cut: bool = False


class Provider:
    """The server: where it is, what it answers and what it was asked."""

    def __init__(self, *answers: Sent) -> None:
        self.answers = answers
        self.asked: list[Json] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.url = ""

    def next(self, path: str, body: Json) -> Sent:
        with self.lock:
            self.asked.append(body)
            self.paths.append(path)
            return self.answers[min(len(self.asked), len(self.answers)) - 1]


@contextmanager
def provider(*answers: Sent) -> Generator[Provider]:
    """A server with these answers."""
    held = Provider(*answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as providers keep them

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            sent = held.next(self.path, json.loads(self.rfile.read(size)))
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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        held.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield held
        finally:
            server.shutdown()
            thread.join()


def stream(events: Iterator[Json], *, named: bool = False, end: str = "", cut: int = 0) -> Sent:
    """Events as a provider streams them; where it is cut, so many of the last are missing."""
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    lines = lines[: len(lines) - cut] if cut else [*lines, end]
    return Sent(200, "".join(lines), kind="text/event-stream", cut=bool(cut))


def anthropic_events(*, stop: str = "end_turn") -> Iterator[Json]:
    """A message of Anthropic's, 120 tokens of it cached."""
    usage = {"input_tokens": 12, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
    started: Json = {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **started}}
    yield {"type": "content_block_start", "index": 0, "content_block": _text("")}
    for words in (FIRST, REST):
        delta = {"type": "text_delta", "text": words}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {**usage, "output_tokens": 7}}
    yield {"type": "message_stop"}


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


def anthropic_stream(*, stop: str = "end_turn", cut: int = 0) -> Sent:
    """The same as it is streamed."""
    return stream(anthropic_events(stop=stop), named=True, cut=cut)


def chat_events(*, calls: bool = False, finish: str | None = "stop") -> Iterator[Json]:
    """A chat completion of OpenAI's, 100 of its tokens cached."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    for words in (FIRST, REST):
        delta: Json = {"role": "assistant", "content": words}
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    if calls:
        function = {"name": "bash", "arguments": "{}"}
        delta = {"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": function}]}
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    usage = {
        "prompt_tokens": 132,
        "completion_tokens": 7,
        "total_tokens": 139,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    yield {**head, "choices": [], "usage": usage}


def chat_stream(*, calls: bool = False, finish: str | None = "stop", cut: int = 0) -> Sent:
    """The same as it is streamed."""
    return stream(chat_events(calls=calls, finish=finish), end="data: [DONE]\n\n", cut=cut)


def gemini_events() -> Iterator[Json]:
    """An answer of Gemini's, 100 of its tokens cached."""
    usage = {"promptTokenCount": 132, "candidatesTokenCount": 4, "thoughtsTokenCount": 3}
    for words, more in ((FIRST, {}), (REST, {"finishReason": "STOP"})):
        content = {"role": "model", "parts": [{"text": words}]}
        yield {
            "candidates": [{"content": content, "index": 0, **more}],
            "usageMetadata": {**usage, "totalTokenCount": 139, "cachedContentTokenCount": 100},
            "modelVersion": "gemini-2.5-flash",
        }


def gemini_stream(*, cut: int = 0) -> Sent:
    """The same as it is streamed."""
    return stream(gemini_events(), cut=cut)
