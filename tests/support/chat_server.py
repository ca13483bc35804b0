"""A real HTTP server that streams chat completions as they are scripted, piece by piece.

A script is a list of steps; a step is words, calls, thoughts and waits in their order. A request
without tools asks for a title, and takes no step. The last step is given again and again.
"""

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Json = dict[str, Any]
TITLE = "A title by the server"
MODEL = "openai:mill"  # any name that no limits are known for


class Call(NamedTuple):
    """A call of a tool."""

    tool: str
    given: Json


class Thought(NamedTuple):
    """Some thinking."""

    text: str


Bit = str | Call | Thought | threading.Event | int  # an event is waited for; a status refuses
Step = Sequence[Bit]


class ChatServer:
    """The server: where it is, what it was asked, and how often it has stepped."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.requests: list[Json] = []
        self.lock = threading.Lock()
        self.url = ""
        self.ending = threading.Event()

    def next(self, body: Json) -> tuple[int, Step]:
        """The number of a step, and what is said in it."""
        if not body.get("tools"):
            return 0, (TITLE,)
        with self.lock:
            self.requests.append(body)
            number = len(self.requests)
        return number, self.steps[min(number, len(self.steps)) - 1]


@contextmanager
def chat_server(*steps: Step) -> Generator[ChatServer]:
    """A server with this script."""
    held = ChatServer(steps)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            number, step = held.next(body)
            if isinstance(step[0], int):
                self._refuse(step[0])
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for event in _events(number, step, held.ending):
                    self.wfile.write(f"data: {event}\n\n".encode())
                    self.wfile.flush()
            except OSError:
                pass  # who asked has gone

        def _refuse(self, status: int) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"error": {"message": "not with this key", "code": "no"}}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        held.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield held
        finally:
            held.ending.set()
            server.shutdown()
            thread.join()


def _events(number: int, step: Step, ending: threading.Event) -> Iterator[str]:
    place = 0
    for bit in step:
        match bit:
            case str():
                yield _chunk({"role": "assistant", "content": bit})
            case Thought():
                yield _chunk({"role": "assistant", "reasoning_content": bit.text})
            case Call():
                function = {"name": bit.tool, "arguments": json.dumps(bit.given)}
                call = {"index": place, "id": f"c{number}_{place}", "type": "function"}
                yield _chunk({"tool_calls": [{**call, "function": function}]})
                place += 1
            case int():
                raise ValueError("a status stands alone")
            case _:
                while not (bit.wait(0.02) or ending.is_set()):
                    pass
    yield _chunk({}, "tool_calls" if place else "stop")
    usage: Json = {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010}
    usage["prompt_tokens_details"] = {"cached_tokens": 800}
    yield json.dumps({**json.loads(_chunk({})), "choices": [], "usage": usage})
    yield "[DONE]"


def _chunk(delta: Json, finish: str | None = None) -> str:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "mill"}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({**head, "choices": [choice]})
