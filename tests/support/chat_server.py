"""A real HTTP server that streams scripted chat completions piece by piece.

A script is a list of steps; a step is a list of texts, calls, thoughts and waits. A request without
tools gets a title instead of a step. The last step is repeated.
"""

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.support.provider_server import chunk

Json = dict[str, Any]
TITLE = "A title by the server"
MODEL = "openai:unlisted"  # a name without known limits
_chunk = partial(chunk, model="unlisted")


class Call(NamedTuple):
    """A tool call."""

    tool: str
    arguments: Json


class Thought(NamedTuple):
    """A piece of reasoning."""

    text: str


Item = str | Call | Thought | threading.Event | int  # waits for an event; refuses with a status
Step = Sequence[Item]


class ChatServer:
    """The server's address, and the requests so far."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.requests: list[Json] = []
        self.lock = threading.Lock()
        self.url = ""
        self.ending = threading.Event()

    def next(self, body: Json) -> tuple[int, Step]:
        """The number and content of the next step."""
        if not body.get("tools"):
            return 0, (TITLE,)
        with self.lock:
            self.requests.append(body)
            number = len(self.requests)
        return number, self.steps[min(number, len(self.steps)) - 1]


@contextmanager
def chat_server(*steps: Step) -> Generator[ChatServer]:
    """A server with this script."""
    state = ChatServer(steps)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            number, step = state.next(body)
            if isinstance(step[0], int):
                self._refuse(step[0])
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for event in _events(number, step, state.ending):
                    self.wfile.write(f"data: {event}\n\n".encode())
                    self.wfile.flush()
            except OSError:
                pass  # the client has disconnected

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
        state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield state
        finally:
            state.ending.set()
            server.shutdown()
            thread.join()


def _events(number: int, step: Step, ending: threading.Event) -> Iterator[str]:
    index = 0
    for item in step:
        match item:
            case str():
                yield json.dumps(_chunk({"role": "assistant", "content": item}))
            case Thought():
                yield json.dumps(_chunk({"role": "assistant", "reasoning_content": item.text}))
            case Call():
                function = {"name": item.tool, "arguments": json.dumps(item.arguments)}
                call = {"index": index, "id": f"c{number}_{index}", "type": "function"}
                yield json.dumps(_chunk({"tool_calls": [{**call, "function": function}]}))
                index += 1
            case int():
                raise ValueError("a status must be the only item")
            case _:
                while not (item.wait(0.02) or ending.is_set()):
                    pass
    yield json.dumps(_chunk({}, "tool_calls" if index else "stop"))
    usage: Json = {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010}
    usage["prompt_tokens_details"] = {"cached_tokens": 800}
    yield json.dumps({**_chunk({}), "choices": [], "usage": usage})
    yield "[DONE]"
