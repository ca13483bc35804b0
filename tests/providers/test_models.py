"""Summary requests to providers over real HTTP with the real SDKs: requests, replies, failures."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from foldmark.model.messages import Cache, Tokens
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    Output,
    Reasoning,
    Result,
    Text,
    ToolDeclaration,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.models import model_named
from foldmark.summary.protocol import (
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
    TextHandler,
)
from foldmark.wire.formats import request
from tests.support.provider_server import (
    FIRST,
    REST,
    Sent,
    anthropic,
    anthropic_stream,
    chat,
    chat_stream,
    gemini,
    gemini_stream,
    provider,
    responses,
)

PIXEL = "data:image/png;base64,iVBORw0KGgo="
TOOL = ToolDeclaration(
    name="bash",
    description="Runs a command",
    schema={"type": "object", "properties": {"command": {"type": "string"}}},
)


Connect = Callable[[str], Summarizer]


def user(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def assistant(text: str) -> AssistantMessage:
    return AssistantMessage(content=(Text(text=text),))


SUM_UP = ModelRequest(messages=(user("Sum it up"),))


def send(
    model: Summarizer, request: ModelRequest = SUM_UP, on_text: TextHandler = lambda _: None
) -> Outcome:
    return asyncio.run(model.ask(request, on_text))


def sent_body(model: Connect, request: ModelRequest, reply: Sent) -> dict[str, Any]:
    """The body of this request, as the server gets it."""
    with provider(reply) as server:
        send(model(server.url), request)
    return server.requests[0]


def failed(model: Connect, reply: Sent) -> ModelFailure:
    """The failure that a reply causes; the request is sent once."""
    with provider(reply) as server:
        outcome = send(model(server.url))
    assert isinstance(outcome, ModelFailure), outcome
    assert len(server.requests) == 1
    return outcome


# --- replies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "reply", "tokens"),
    [
        (anthropic, anthropic_stream(), (12, 7, 0, 100, 20)),
        (chat, chat_stream(), (32, 7, 3, 100, 0)),
        (gemini, gemini_stream(), (32, 7, 3, 100, 0)),
    ],
)
def test_a_reply_comes_in_pieces_with_its_tokens_and_price(
    model: Connect, reply: Sent, tokens: tuple[int, int, int, int, int]
) -> None:
    pieces: list[str] = []
    with provider(reply) as server:
        outcome = send(model(server.url), on_text=pieces.append)
    assert isinstance(outcome, ModelReply)
    assert (outcome.text, outcome.finish, outcome.calls) == (FIRST + REST, "stop", 0)
    assert pieces == [FIRST, REST]
    fresh, output, reasoning, read, write = tokens
    cache = Cache(read=read, write=write)
    expected = Tokens(input=fresh, output=output, reasoning=reasoning, total=139, cache=cache)
    assert outcome.tokens == expected
    assert outcome.cost is not None
    assert 0 < outcome.cost < 0.01


@pytest.mark.parametrize(
    ("model", "reply", "finish", "calls"),
    [
        (chat, chat_stream(calls=True, finish="tool_calls"), "tool-calls", 1),
        (anthropic, anthropic_stream(stop="max_tokens"), "length", 0),
    ],
)
def test_a_reply_has_its_finish_reason_and_counts_unexpected_calls(
    model: Connect, reply: Sent, finish: str, calls: int
) -> None:
    with provider(reply) as server:
        outcome = send(model(server.url))
    assert isinstance(outcome, ModelReply)
    assert (outcome.finish, outcome.calls) == (finish, calls)


# --- requests -------------------------------------------------------------------------------------

NO_RESULT = Result(
    tool_call_id="t1", tool_name="bash", output=Output(type="error-text", value="no")
)
TALK = (
    UserMessage(content=(Text(text="Fix it"), Media(data=PIXEL, media_type="image/png"))),
    AssistantMessage(
        content=(
            Reasoning(text="hm", provider_options={"anthropic": {"signature": "sig"}}),
            Text(text="I look."),
            Call(tool_call_id="t1", tool_name="bash", input={"command": "ls"}),
        )
    ),
    ToolMessage(content=(NO_RESULT,)),
    assistant("It failed."),
    UserMessage(
        content=(Text(text="Sum up"), Media(data="x", media_type="video/x", filename="a.v"))
    ),
)
REQUEST = ModelRequest(messages=TALK, system="You code.", tools=(TOOL,), max_tokens=321)


def test_anthropic_gets_the_session_with_signed_thinking_and_a_cache() -> None:
    body = sent_body(anthropic, REQUEST, anthropic_stream())
    assert body["max_tokens"] == 321
    assert "temperature" not in body
    assert body["system"][0]["text"] == "You code."
    assert [tool["name"] for tool in body["tools"]] == ["bash"]
    # Another tool choice would invalidate the message cache.
    assert body.get("tool_choice", {"type": "auto"}) == {"type": "auto"}
    assert "cache_control" in str(body)
    blocks = [(m["role"], [b["type"] for b in m["content"]]) for m in body["messages"]]
    assert blocks == [
        ("user", ["text", "image"]),
        ("assistant", ["thinking", "text", "tool_use"]),
        ("user", ["tool_result"]),
        ("assistant", ["text"]),
        ("user", ["text", "text"]),
    ]
    thinking, _, call = body["messages"][1]["content"]
    assert thinking["signature"] == "sig"
    assert (call["id"], call["input"]) == ("t1", {"command": "ls"})
    assert body["messages"][2]["content"][0]["is_error"] is True


@pytest.mark.parametrize(
    ("model", "wire", "field"),
    [
        (anthropic, "anthropic", "messages"),
        (chat, "openai-chat", "messages"),
        (responses, "openai-responses", "input"),
    ],
)
def test_a_summary_request_has_the_messages_of_the_sessions_own(
    model: Connect, wire: str, field: str
) -> None:
    foreign = AssistantMessage(
        content=(
            Reasoning(text="unsigned"),
            Call(tool_call_id="x" * 90, tool_name="odd.name", input={"a": "é"}),
        )
    )
    done = Output(type="text", value="")
    picture = Media(data=PIXEL, media_type="image/png")
    result = Result(
        tool_call_id="x" * 90, tool_name="odd.name", output=done, attachments=(picture,)
    )
    talk = (*TALK, foreign, ToolMessage(content=(result,)), user("Sum up"))
    summarize = ModelRequest(messages=talk, system="You code.", tools=(TOOL,))
    body = sent_body(model, summarize, Sent(500, "{}"))
    assert body[field] == request(talk, wire, "You code.")


@pytest.mark.parametrize("marked", [0, 1, 3])
def test_anthropic_gets_at_most_four_cache_marks(marked: int) -> None:
    mark = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
    turns = [
        UserMessage(
            content=(Text(text=f"turn {n}", provider_options=mark if n < marked else None),)
        )
        for n in range(4)
    ]
    talk = [message for turn in turns for message in (turn, assistant("ok"))]
    summarize = ModelRequest(messages=(*talk, user("Sum up")), system="S", tools=(TOOL,))
    body = sent_body(anthropic, summarize, anthropic_stream())
    assert "cache_control" in body["system"][0]
    assert "cache_control" in body["tools"][0]
    assert 3 <= json.dumps(body).count('"cache_control"') <= 4
    # Without marks in the messages, the provider chooses what to cache.
    assert ("cache_control" in body) == (marked == 0)


def test_a_request_without_tools_is_not_cached() -> None:
    summarize = ModelRequest(messages=(user("Sum up"),), system="You sum up.")
    assert "cache_control" not in str(sent_body(anthropic, summarize, anthropic_stream()))


def test_openai_gets_the_session_with_tools_that_it_may_not_call() -> None:
    with provider(chat_stream()) as server:
        send(chat(server.url), REQUEST)
    body = server.requests[0]
    assert server.paths == ["/v1/chat/completions"]
    assert (body["stream"], body["tool_choice"]) == (True, "none")
    assert 321 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert body["tools"][0]["function"]["parameters"]["properties"] == TOOL.schema["properties"]
    assert [message["role"] for message in body["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant", "user")
    ]
    assert body["messages"][0]["content"] == "You code."
    assert body["messages"][3]["content"] == "no"
    assert body["messages"][3]["tool_call_id"] == "t1"


def test_gemini_gets_the_session_with_tools_that_it_may_not_call() -> None:
    body = sent_body(gemini, REQUEST, gemini_stream())
    assert body["generationConfig"]["maxOutputTokens"] == 321
    assert body["systemInstruction"]["parts"][0]["text"] == "You code."
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "NONE"
    parts = [part for content in body["contents"] for part in content["parts"]]
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == ["bash"]
    assert any("functionResponse" in part for part in parts)


def test_a_longer_request_starts_with_the_shorter_one() -> None:
    with provider(chat_stream()) as server:
        send(chat(server.url), ModelRequest(messages=TALK))
        longer = (*TALK, assistant("Done."), user("Again"))
        send(chat(server.url), ModelRequest(messages=longer))
    first, second = (body["messages"] for body in server.requests)
    assert second[: len(first)] == first


def test_an_unknown_provider_with_an_address_is_an_openai_compatible_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with provider(chat_stream()) as server:
        model = model_named("lab:our-model", base_url=f"{server.url}/v1")
        assert isinstance(send(model), ModelReply)
    assert server.requests[0]["model"] == "our-model"


# --- failures -------------------------------------------------------------------------------------


def failure(status: int, error: dict[str, Any] | str, **headers: str) -> Sent:
    rows = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Sent(status, error if isinstance(error, str) else json.dumps(error), rows)


def anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def openai_error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def gemini_error(code: int, status: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message}}


TOO_LONG = "prompt is too long: 214676 tokens > 200000 maximum"
CASES = [
    (anthropic, failure(429, anthropic_error("rate_limit_error", "slow"), retry_after="7"),
     "throttled", 7.0),
    (anthropic, failure(529, anthropic_error("overloaded_error", "Overloaded")), "throttled", None),
    (anthropic, failure(400, anthropic_error("invalid_request_error", TOO_LONG)), "overflow", None),
    (anthropic, failure(413, anthropic_error("request_too_large", "big")), "overflow", None),
    (anthropic, failure(401, anthropic_error("authentication_error", "key")), "unavailable", None),
    (anthropic, failure(404, anthropic_error("not_found_error", "model: x")), "unavailable", None),
    (anthropic, failure(500, anthropic_error("api_error", "oops")), "failed", None),
    (anthropic, failure(400, anthropic_error("invalid_request_error", "odd role")), "failed", None),
    (chat, failure(429, openai_error("slow"), retry_after_ms="1500"), "throttled", 1.5),
    (chat, failure(429, openai_error("pay", "insufficient_quota")), "unavailable", None),
    (chat, failure(400, openai_error("long", "context_length_exceeded")), "overflow", None),
    (chat, failure(401, openai_error("bad key", "invalid_api_key")), "unavailable", None),
    (chat, failure(503, "upstream is overloaded"), "throttled", None),
    (chat, failure(502, "<html>bad gateway</html>"), "failed", None),
    (chat, failure(429, openai_error("Rate limit reached. Please try again in 18.5s.")),
     "throttled", 18.5),
    (chat, failure(413, openai_error("Request too large for model `x` on tokens per minute (TPM): "
     "Limit 6000, Requested 14810, please reduce your message size.")), "throttled", None),
    (responses, failure(429, openai_error("slow"), retry_after="2"), "throttled", 2.0),
    (responses, failure(401, openai_error("bad key", "invalid_api_key")), "unavailable", None),
    (responses, failure(500, openai_error("oops")), "failed", None),
    (responses, failure(400, openai_error(
        "Your input exceeds the context window of this model.")), "overflow", None),
    (gemini, failure(429, gemini_error(429, "RESOURCE_EXHAUSTED", "slow"), retry_after="3"),
     "throttled", 3.0),
    (gemini, failure(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow",
     "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}]}}),
     "throttled", 37.0),
    (gemini, failure(400, gemini_error(400, "INVALID_ARGUMENT", "The input token count (1200293) "
     "exceeds the maximum number of tokens allowed (1048576).")), "overflow", None),
    (gemini, failure(403, gemini_error(403, "PERMISSION_DENIED", "no")), "unavailable", None),
    (gemini, failure(503, gemini_error(503, "UNAVAILABLE", "The model is overloaded.")),
     "throttled", None),
    (gemini, failure(500, gemini_error(500, "INTERNAL", "oops")), "failed", None),
]  # fmt: skip


@pytest.mark.parametrize(("model", "reply", "cause", "wait"), CASES)
def test_a_failure_has_its_cause_and_is_not_retried(
    model: Connect, reply: Sent, cause: str, wait: float | None
) -> None:
    outcome = failed(model, reply)
    assert (outcome.cause, outcome.retry_after) == (cause, wait)
    assert outcome.message.startswith(str(reply.status))
    assert "\n" not in outcome.message


STARTED = chat_stream().body.partition("\n\n")[0].replace(FIRST, "") + "\n\n"
NO_REPLIES = {
    "invalid JSON": Sent(200, "data: {broken\n\n"),
    "an invalid stream": Sent(200, "data: {broken\n\n", kind="text/event-stream"),
    "a closed connection": Sent(0, ""),
    "an empty stream": Sent(200, "", kind="text/event-stream", cut=True),
    "a started stream": Sent(200, STARTED, kind="text/event-stream", cut=True),
    "a comment": Sent(200, ": one moment\n\n", kind="text/event-stream", cut=True),
}


@pytest.mark.parametrize("model", [anthropic, chat, gemini])
@pytest.mark.parametrize("reply", NO_REPLIES.values(), ids=NO_REPLIES)
def test_an_incomplete_reply_is_a_failure_and_not_retried(model: Connect, reply: Sent) -> None:
    assert failed(model, reply).cause == "failed"


def test_an_error_inside_a_stream_is_a_failure() -> None:
    error = anthropic_error("overloaded_error", "Overloaded")
    body = anthropic_stream(cut=4).body + f"event: error\ndata: {json.dumps(error)}\n\n"
    assert failed(anthropic, Sent(200, body, kind="text/event-stream")).cause == "throttled"


def test_an_unreachable_server_is_a_failure() -> None:
    with provider(chat_stream()) as server:
        model = chat(server.url)
    outcome = send(model)
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "failed"


def test_one_model_is_used_by_several_event_loops_at_the_same_time() -> None:
    outcomes: list[Outcome] = []

    async def send_five(model: Summarizer) -> None:
        outcomes.extend([await model.ask(SUM_UP, lambda _: None) for _ in range(5)])

    async def both(model: Summarizer) -> None:
        await asyncio.gather(send_five(model), send_five(model))

    with provider(chat_stream()) as server:
        model = chat(server.url)
        threads = [threading.Thread(target=asyncio.run, args=(both(model),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [type(outcome) for outcome in outcomes] == [ModelReply] * 40
