"""The server that judges requests in tests: what it refuses, and in whose words."""

import json
import urllib.error
import urllib.request
from copy import deepcopy
from typing import Any

import pytest

import foldmark
from foldmark.wire.codec import WIRES
from tests.support.api_server import wire_server
from tests.support.client_loops import REFUSED, TOOLS, client_of
from tests.support.provider_rules import flaw

Json = dict[str, Any]
ARGS = json.dumps({"path": "a"})
CALL: Json = {"id": "c", "type": "function", "function": {"name": "read", "arguments": ARGS}}
USE: Json = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
FUNCTION: Json = {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"}
RESPONSE: Json = {"functionResponse": {"name": "read", "response": {"output": "x"}}}
# For each wire: what is asked, a call, its result.
TALKS: dict[str, tuple[str, list[Json]]] = {
    "openai-chat": (
        "messages",
        [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ],
    ),
    "openai-responses": (
        "input",
        [
            {"role": "user", "content": "Look"},
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": ARGS},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ],
    ),
    "anthropic": (
        "messages",
        [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [RESULT]},
        ],
    ),
    "gemini": (
        "contents",
        [
            {"role": "user", "parts": [{"text": "Look"}]},
            {"role": "model", "parts": [FUNCTION]},
            {"role": "user", "parts": [RESPONSE]},
        ],
    ),
}
each_wire = pytest.mark.parametrize("wire", WIRES)


def judged(wire: str, *indexes: int) -> str:
    """What is wrong with the messages at these places of a talk."""
    name, messages = TALKS[wire]
    return flaw(wire, {name: deepcopy([messages[index] for index in indexes]), "max_tokens": 9})


@each_wire
def test_pairs_are_accepted_and_halves_refused(wire: str) -> None:
    assert judged(wire, 0, 1, 2) == ""
    assert judged(wire, 0) == ""
    assert judged(wire)  # nothing at all
    assert judged(wire, 0, 1)  # a call without its result
    assert judged(wire, 0, 1, 0)
    assert judged(wire, 0, 2)  # a result without its call
    assert judged(wire, 0, 2, 1)
    assert judged(wire, 0, 1, 2, 2)  # a result twice


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_an_id_is_used_once(wire: str) -> None:
    assert judged(wire, 0, 1, 2, 1, 2)


def test_each_provider_has_rules_of_its_own() -> None:
    blank: Json = {"role": "user", "content": [{"type": "text", "text": " "}]}
    assert "non-whitespace" in flaw("anthropic", {"messages": [blank], "max_tokens": 9})
    assert "max_tokens" in flaw("anthropic", {"messages": [{"role": "user", "content": "Hi"}]})
    forged = {"type": "thinking", "thinking": "Hm", "signature": "x"}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [forged]}]
    assert "signature" in flaw("anthropic", {"messages": messages, "max_tokens": 9})
    contents = deepcopy(TALKS["gemini"][1])
    del contents[1]["parts"][0]["thoughtSignature"]
    assert "thought_signature" in flaw("gemini", {"contents": contents})
    thought: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert "following item" in flaw("openai-responses", {"input": [thought]})
    assert "malformed" in flaw("openai-chat", {"messages": [{"content": "Hi"}]})


@each_wire
@pytest.mark.parametrize("stream", [False, True])
def test_a_long_request_is_refused_with_the_message_of_its_provider(
    wire: str, stream: bool
) -> None:
    with wire_server(window=100) as server, client_of(wire, server) as client:
        with pytest.raises(REFUSED) as refused:
            ask(client, wire, "rye " * 500, stream=stream)
        assert foldmark.is_context_overflow(str(refused.value))
        assert (server.overflows, server.answers) == (1, 0)
        assert server.requests[0].stream == stream
        server.window = 10_000
        ask(client, wire, "rye " * 500, stream=stream)
        assert (server.overflows, server.answers) == (1, 1)


def ask(client: Any, wire: str, text: str, *, stream: bool) -> None:
    fields: Json = {"model": "m", "tools": TOOLS[wire]}
    message = {"role": "user", "content": text}
    match wire:
        case "openai-chat":
            reply = client.chat.completions.create(**fields, messages=[message], stream=stream)
        case "openai-responses":
            reply = client.responses.create(**fields, input=[message], stream=stream)
        case "anthropic":
            fields["max_tokens"] = 9
            reply = client.messages.create(**fields, messages=[message], stream=stream)
        case _:
            models = client.models
            call = models.generate_content_stream if stream else models.generate_content
            reply = call(model="m", contents=text, config={"tools": TOOLS[wire]})
    assert not stream or list(reply)


def test_another_path_is_not_found() -> None:
    with wire_server() as server:
        request = urllib.request.Request(f"{server.url}/v1/nothing", data=b"{}")  # noqa: S310 - our own server
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(request)  # noqa: S310 - the same
        missing.value.close()
