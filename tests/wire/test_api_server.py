"""The test server for the API formats: which requests it refuses, and with which message."""

import urllib.error
import urllib.request
from copy import deepcopy
from typing import Any

import pytest

import foldmark
from foldmark.wire.codec import WIRES
from tests.support.api_server import wire_server
from tests.support.client_loops import REFUSED, TOOLS, client_of
from tests.support.format_cases import CASES
from tests.support.provider_rules import flaw

Json = dict[str, Any]
FIELDS = {"openai-responses": "input", "gemini": "contents"}
TURNS = {wire: [case.user, case.call("c"), case.result("c")] for wire, case in CASES.items()}
each_wire = pytest.mark.parametrize("wire", WIRES)


def judge(wire: str, *indexes: int) -> str:
    """What is wrong with these messages of a turn."""
    messages = deepcopy([TURNS[wire][index] for index in indexes])
    return flaw(wire, {FIELDS.get(wire, "messages"): messages, "max_tokens": 9})


@each_wire
def test_pairs_are_accepted_and_halves_refused(wire: str) -> None:
    assert judge(wire, 0, 1, 2) == ""
    assert judge(wire, 0) == ""
    assert judge(wire)  # no messages
    assert judge(wire, 0, 1)  # a call without its result
    assert judge(wire, 0, 1, 0)
    assert judge(wire, 0, 2)  # a result without its call
    assert judge(wire, 0, 2, 1)
    assert judge(wire, 0, 1, 2, 2)  # a result twice


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_an_id_is_used_once(wire: str) -> None:
    assert judge(wire, 0, 1, 2, 1, 2)


def test_each_provider_has_rules_of_its_own() -> None:
    blank: Json = {"role": "user", "content": [{"type": "text", "text": " "}]}
    assert "non-whitespace" in flaw("anthropic", {"messages": [blank], "max_tokens": 9})
    assert "max_tokens" in flaw("anthropic", {"messages": [{"role": "user", "content": "Hi"}]})
    forged = {"type": "thinking", "thinking": "Hm", "signature": "x"}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [forged]}]
    assert "signature" in flaw("anthropic", {"messages": messages, "max_tokens": 9})
    contents = deepcopy(TURNS["gemini"])
    del contents[1]["parts"][0]["thoughtSignature"]
    assert "thought_signature" in flaw("gemini", {"contents": contents})
    thought: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert "following item" in flaw("openai-responses", {"input": [thought]})
    assert "malformed" in flaw("openai-chat", {"messages": [{"content": "Hi"}]})


@each_wire
@pytest.mark.parametrize("stream", [False, True])
def test_a_long_request_is_refused_with_the_message_of_its_provider(
    wire: str, *, stream: bool
) -> None:
    with wire_server(window=100) as server, client_of(wire, server) as client:
        with pytest.raises(REFUSED) as refused:
            ask(client, wire, "test " * 500, stream=stream)
        assert foldmark.is_context_overflow(str(refused.value))
        assert (server.overflows, server.answers) == (1, 0)
        assert server.requests[0].stream == stream
        server.window = 10_000
        ask(client, wire, "test " * 500, stream=stream)
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
