"""A real HTTP server for the four API formats, with and without streaming, that checks requests.

    with wire_server(window=6_000) as server:
        client = OpenAI(base_url=server.openai, api_key="none")

It replies from a script. It refuses requests that the provider would refuse, with the provider's
error message: calls without results, results without calls, more tokens than the window.
"""

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.api_answers import ANSWERS, Answer, Bit, Call, Cut, Json, Reply, Thought
from tests.support.provider_rules import flaw, prompt_tokens, refusal, too_long, tool_schemas

__all__ = ["Call", "Cut", "Request", "Thought", "WireServer", "wire_server", "working"]

Step = Sequence[Bit]
# The content of the k-th reply, counted from 1; the last step of a list is repeated.
Script = Callable[[int], Step] | Sequence[Step]


class Request(NamedTuple):
    """A request, and how the server judged it."""

    wire: str
    path: str
    body: Json
    stream: bool
    tokens: int
    status: int
    flaw: str = ""  # why it was refused, if it was
    overflow: bool = False  # whether it was too long

    @property
    def messages(self) -> list[Json]:
        """The messages of the request."""
        names = {"gemini": "contents", "openai-responses": "input"}
        return self.body[names.get(self.wire, "messages")]


def working(steps: int = 5) -> Callable[[int], Step]:
    """A script of so many replies with one to three tool calls and one with text, repeated."""

    def script(number: int) -> Step:
        if number % (steps + 1) == 0:
            return (f"All of it is done, in {number} answers.",)
        calls = [Call() for _ in range(1 + number % 3)]
        return ("I look at it.", *calls) if number % 2 else calls

    return script


class WireServer:
    """The server, with its URL, its requests and the number of its replies."""

    def __init__(self, window: int, script: Script) -> None:
        self.window = window  # in tokens, may be changed at any time; 0 for no limit
        self.script = script
        self.requests: list[Request] = []
        self.answers = 0
        self.url = ""
        self._lock = threading.Lock()

    @property
    def openai(self) -> str:
        """The base URL for OpenAI's client."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point the official clients to this server."""
        return {
            "OPENAI_BASE_URL": self.openai,
            "ANTHROPIC_BASE_URL": self.url,
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_API_KEY": "none",
            "GEMINI_API_KEY": "none",
        }

    @property
    def flaws(self) -> list[str]:
        """The reasons for refused requests."""
        return [request.flaw for request in self.requests if request.flaw]

    @property
    def overflows(self) -> int:
        """The number of requests that were too long."""
        return sum(request.overflow for request in self.requests)

    def answer(self, wire: str, path: str, body: Json) -> tuple[int, Answer | Json]:
        """The status, and the reply or the error."""
        stream = is_streamed(path, body)
        with self._lock:
            tokens, wrong = prompt_tokens(body), flaw(wire, body)
            overflow = not wrong and 0 < self.window < tokens
            if overflow:
                wrong = too_long(wire, tokens, self.window)
            status = 400 if wrong else 200
            request = Request(wire, path, body, stream, tokens, status, wrong, overflow)
            self.requests.append(request)
            if wrong:
                return status, refusal(wire, wrong, overflow=overflow)
            self.answers += 1
            reply = Reply(self.answers, tuple(self._step(wire, body)), tokens, body)
            return status, ANSWERS[wire](reply)

    def _step(self, wire: str, body: Json) -> Step:
        if callable(self.script):
            step = self.script(self.answers)
        else:
            step = self.script[min(self.answers, len(self.script)) - 1]
        tools = tool_schemas(wire, body)
        if not tools:
            return [bit for bit in step if not isinstance(bit, Call)] or ["Nothing can be called."]
        return [_filled(bit, tools, self.answers) if isinstance(bit, Call) else bit for bit in step]


def _filled(call: Call, tools: dict[str, Json], number: int) -> Call:
    """A call of a tool that was declared, with arguments that it takes."""
    name = call.tool or list(tools)[number % len(tools)]
    if call.arguments is not None:
        return Call(name, call.arguments)
    kinds: dict[str, Any] = {"integer": number, "number": number, "boolean": True, "array": []}
    arguments = {
        field: kinds.get(str(schema.get("type")).lower(), f"item {number}")
        for field, schema in tools.get(name, {}).get("properties", {}).items()
    }
    return Call(name, arguments)


def wire_of(path: str) -> str | None:
    """The API format of a path."""
    place = urlsplit(path).path
    if place.endswith("/chat/completions"):
        return "openai-chat"
    if place.endswith("/responses"):
        return "openai-responses"
    if place.endswith("/messages"):
        return "anthropic"
    return "gemini" if place.endswith("enerateContent") else None


def is_streamed(path: str, body: Json) -> bool:
    """Whether the request asks for a stream."""
    return bool(body.get("stream")) or ":stream" in path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open, as providers keep them
    disable_nagle_algorithm = True
    owner: WireServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        wire = wire_of(self.path)
        if wire is None:
            self._send(404, [json.dumps({"error": {"message": "no such endpoint"}})])
            return
        status, answer = self.owner.answer(wire, self.path, body)
        if isinstance(answer, dict):
            self._send(status, [json.dumps(answer)])
        elif is_streamed(self.path, body):
            self._send(status, answer.events(), kind="text/event-stream", cut=answer.is_cut)
        else:
            self._send(status, [json.dumps(answer.whole)])

    def _send(
        self, status: int, pieces: list[str], kind: str = "application/json", *, cut: bool = False
    ) -> None:
        data = [piece.encode() for piece in pieces]
        self.send_response(status)
        self.send_header("content-type", kind)
        # A cut reply ends before its promised length.
        self.send_header("content-length", str(sum(map(len, data)) + 1_000 * cut))
        self.end_headers()
        try:
            for piece in data:
                self.wfile.write(piece)
        except OSError:
            pass  # the client has disconnected
        self.close_connection = cut

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def wire_server(*, window: int = 0, script: Script | None = None) -> Generator[WireServer]:
    """A server with a window in tokens, 0 for no limit, and a script."""
    owner = WireServer(window, working() if script is None else script)
    handler = type("Handler", (_Handler,), {"owner": owner})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        owner.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield owner
        finally:
            server.shutdown()
            thread.join()
