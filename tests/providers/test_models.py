"""Models of providers over real HTTP with the real SDKs: what is sent, and what is read."""

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
    ToolDeclaration,
    Media,
    Output,
    Reasoning,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.models import model_named as summarizer
from foldmark.summary.protocol import ModelFailure, ModelReply, ModelRequest, Outcome, Summarizer
from foldmark.wire.formats import request
from tests.support.provider_server import (
    FIRST,
    REST,
    Provider,
    Sent,
    anthropic_stream,
    chat_stream,
    gemini_stream,
    provider,
)

PIXEL = "data:image/png;base64,iVBORw0KGgo="
TOOL = ToolDeclaration(
    name="bash",
    description="Runs a command",
    schema={"type": "object", "properties": {"command": {"type": "string"}}},
)


def said(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def asked(
    model: Summarizer, ask: ModelRequest | None = None, pieces: list[str] | None = None
) -> Outcome:
    told = pieces if pieces is not None else []
    return asyncio.run(model.ask(ask or ModelRequest(messages=(said("Sum it up"),)), told.append))


def anthropic(server: Provider) -> Summarizer:
    return summarizer("anthropic:claude-sonnet-4-6", base_url=server.url, api_key="k")


def chat(server: Provider) -> Summarizer:
    return summarizer("openai:gpt-4o", base_url=f"{server.url}/v1", api_key="k")


def responses(server: Provider) -> Summarizer:
    return summarizer("openai-responses:gpt-4o", base_url=f"{server.url}/v1", api_key="k")


def gemini(server: Provider) -> Summarizer:
    return summarizer("google-gla:gemini-2.5-flash", base_url=server.url, api_key="k")


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "streamed", "tokens"),
    [
        (anthropic, anthropic_stream, (12, 7, 0, 100, 20)),
        (chat, chat_stream, (32, 7, 3, 100, 0)),
        (gemini, gemini_stream, (32, 7, 3, 100, 0)),
    ],
)
def test_an_answer_comes_in_pieces_with_its_tokens_and_its_price(
    made: Callable[[Provider], Summarizer],
    streamed: Callable[[], Sent],
    tokens: tuple[int, int, int, int, int],
) -> None:
    pieces: list[str] = []
    with provider(streamed()) as server:
        answer = asked(made(server), pieces=pieces)
    assert isinstance(answer, ModelReply)
    assert (answer.text, answer.finish, answer.calls) == (FIRST + REST, "stop", 0)
    assert pieces == [FIRST, REST]
    given, output, reasoning, read, write = tokens
    assert answer.tokens == Tokens(
        input=given,
        output=output,
        reasoning=reasoning,
        total=139,
        cache=Cache(read=read, write=write),
    )
    assert answer.cost is not None
    assert 0 < answer.cost < 0.01


def test_an_answer_says_how_it_ended_and_counts_calls_that_nobody_asked_for() -> None:
    with provider(chat_stream(calls=True, finish="tool_calls")) as server:
        answer = asked(chat(server))
    assert isinstance(answer, ModelReply)
    assert (answer.finish, answer.calls) == ("tool-calls", 1)
    with provider(anthropic_stream(stop="max_tokens")) as server:
        answer = asked(anthropic(server))
    assert isinstance(answer, ModelReply)
    assert answer.finish == "length"


# --- what is sent ---------------------------------------------------------------------------------

TALK = (
    UserMessage(content=(Text(text="Fix it"), Media(data=PIXEL, media_type="image/png"))),
    AssistantMessage(
        content=(
            Reasoning(text="hm", provider_options={"anthropic": {"signature": "sig"}}),
            Text(text="I look."),
            Call(tool_call_id="t1", tool_name="bash", input={"command": "ls"}),
        )
    ),
    ToolMessage(
        content=(
            Result(
                tool_call_id="t1", tool_name="bash", output=Output(type="error-text", value="no")
            ),
        )
    ),
    AssistantMessage(content=(Text(text="It failed."),)),
    UserMessage(
        content=(Text(text="Sum up"), Media(data="x", media_type="video/x", filename="a.v"))
    ),
)
ASK = ModelRequest(messages=TALK, system="You code.", tools=(TOOL,), max_tokens=321)


def test_anthropic_is_sent_the_session_as_it_is_with_signed_thinking_and_a_cache() -> None:
    with provider(anthropic_stream()) as server:
        asked(anthropic(server), ASK)
    body = server.asked[0]
    assert body["max_tokens"] == 321
    assert "temperature" not in body
    assert body["system"][0]["text"] == "You code."
    assert [tool["name"] for tool in body["tools"]] == ["bash"]
    # A choice of tools that changes would end the cache of messages.
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
    ("made", "wire", "field"),
    [
        (anthropic, "anthropic", "messages"),
        (chat, "openai-chat", "messages"),
        (responses, "openai-responses", "input"),
    ],
)
def test_what_is_sent_is_what_the_session_itself_would_send(
    made: Callable[[Provider], Summarizer], wire: str, field: str
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
    talk = (*TALK, foreign, ToolMessage(content=(result,)), said("Sum up"))
    with provider(Sent(500, "{}")) as server:
        asked(made(server), ModelRequest(messages=talk, system="You code.", tools=(TOOL,)))
    assert server.asked[0][field] == request(talk, wire, "You code.")


@pytest.mark.parametrize("marked", [0, 1, 3])
def test_anthropic_is_sent_no_more_marks_than_it_takes(marked: int) -> None:
    mark = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
    turns = [
        UserMessage(
            content=(Text(text=f"turn {n}", provider_options=mark if n < marked else None),)
        )
        for n in range(4)
    ]
    replies = [AssistantMessage(content=(Text(text="ok"),))] * 4
    talk = [message for pair in zip(turns, replies, strict=True) for message in pair]
    with provider(anthropic_stream()) as server:
        asked(
            anthropic(server),
            ModelRequest(messages=(*talk, said("Sum up")), system="S", tools=(TOOL,)),
        )
    body = server.asked[0]
    assert "cache_control" in body["system"][0]
    assert "cache_control" in body["tools"][0]
    assert 3 <= json.dumps(body).count('"cache_control"') <= 4
    # Where the session marks nothing itself, the provider finds the place.
    assert ("cache_control" in body) == (marked == 0)


def test_a_request_without_tools_is_not_written_to_a_cache() -> None:
    with provider(anthropic_stream()) as server:
        asked(anthropic(server), ModelRequest(messages=(said("Sum up"),), system="You sum up."))
    assert "cache_control" not in str(server.asked[0])


def test_openai_is_sent_the_session_with_tools_that_it_may_not_call() -> None:
    with provider(chat_stream()) as server:
        asked(chat(server), ASK)
    body = server.asked[0]
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


def test_gemini_is_sent_the_session_with_tools_that_it_may_not_call() -> None:
    with provider(gemini_stream()) as server:
        asked(gemini(server), ASK)
    body = server.asked[0]
    assert body["generationConfig"]["maxOutputTokens"] == 321
    assert body["systemInstruction"]["parts"][0]["text"] == "You code."
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "NONE"
    parts = [part for content in body["contents"] for part in content["parts"]]
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == ["bash"]
    assert any("functionResponse" in part for part in parts)


def test_requests_of_two_lengths_begin_alike() -> None:
    longer = ModelRequest(
        messages=(*TALK, AssistantMessage(content=(Text(text="Done."),)), said("Again"))
    )
    with provider(chat_stream()) as server:
        asked(chat(server), ModelRequest(messages=TALK))
        asked(chat(server), longer)
    first, second = (body["messages"] for body in server.asked)
    assert second[: len(first)] == first


def test_a_name_that_is_no_provider_is_a_server_that_talks_as_openai_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with provider(chat_stream()) as server:
        model = summarizer("lab:our-model", base_url=f"{server.url}/v1")
        assert isinstance(asked(model), ModelReply)
    assert server.asked[0]["model"] == "our-model"


# --- what goes wrong ------------------------------------------------------------------------------


def failure(status: int, error: dict[str, Any] | str, **headers: str) -> Sent:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Sent(status, error if isinstance(error, str) else json.dumps(error), named)


def of_anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def of_openai(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def of_gemini(code: int, status: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message}}


TOO_LONG = "prompt is too long: 214676 tokens > 200000 maximum"
CASES = [
    (anthropic, failure(429, of_anthropic("rate_limit_error", "slow"), retry_after="7"),
     "throttled", 7.0),
    (anthropic, failure(529, of_anthropic("overloaded_error", "Overloaded")), "throttled", None),
    (anthropic, failure(400, of_anthropic("invalid_request_error", TOO_LONG)), "overflow", None),
    (anthropic, failure(413, of_anthropic("request_too_large", "big")), "overflow", None),
    (anthropic, failure(401, of_anthropic("authentication_error", "bad key")), "unavailable", None),
    (anthropic, failure(404, of_anthropic("not_found_error", "model: x")), "unavailable", None),
    (anthropic, failure(500, of_anthropic("api_error", "oops")), "failed", None),
    (anthropic, failure(400, of_anthropic("invalid_request_error", "odd role")), "failed", None),
    (chat, failure(429, of_openai("slow"), retry_after_ms="1500"), "throttled", 1.5),
    (chat, failure(429, of_openai("pay", "insufficient_quota")), "unavailable", None),
    (chat, failure(400, of_openai("long", "context_length_exceeded")), "overflow", None),
    (chat, failure(401, of_openai("bad key", "invalid_api_key")), "unavailable", None),
    (chat, failure(503, "upstream is overloaded"), "throttled", None),
    (chat, failure(502, "<html>bad gateway</html>"), "failed", None),
    (chat, failure(429, of_openai("Rate limit reached. Please try again in 18.5s.")),
     "throttled", 18.5),
    (chat, failure(413, of_openai("Request too large for model `x` on tokens per minute (TPM): "
     "Limit 6000, Requested 14810, please reduce your message size.")), "throttled", None),
    (responses, failure(429, of_openai("slow"), retry_after="2"), "throttled", 2.0),
    (responses, failure(400, of_openai(
        "Your input exceeds the context window of this model.")), "overflow", None),
    (gemini, failure(429, of_gemini(429, "RESOURCE_EXHAUSTED", "slow"), retry_after="3"),
     "throttled", 3.0),
    (gemini, failure(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow",
     "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}]}}),
     "throttled", 37.0),
    (gemini, failure(400, of_gemini(400, "INVALID_ARGUMENT", "The input token count (1200293) "
     "exceeds the maximum number of tokens allowed (1048576).")), "overflow", None),
    (gemini, failure(403, of_gemini(403, "PERMISSION_DENIED", "no")), "unavailable", None),
    (gemini, failure(503, of_gemini(503, "UNAVAILABLE", "The model is overloaded.")),
     "throttled", None),
    (gemini, failure(500, of_gemini(500, "INTERNAL", "oops")), "failed", None),
]  # fmt: skip


@pytest.mark.parametrize(("made", "sent", "cause", "after"), CASES)
def test_a_failure_says_its_cause_and_is_not_tried_again(
    made: Callable[[Provider], Summarizer], sent: Sent, cause: str, after: float | None
) -> None:
    with provider(sent) as server:
        outcome = asked(made(server))
    assert isinstance(outcome, ModelFailure)
    assert (outcome.cause, outcome.retry_after) == (cause, after)
    assert outcome.message.startswith(str(sent.status))
    assert "\n" not in outcome.message
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("made", "cut"),
    [
        (anthropic, anthropic_stream(cut=3)),
        (chat, chat_stream(cut=2)),
        (gemini, gemini_stream(cut=1)),
    ],
)
def test_a_stream_that_is_cut_in_the_middle_is_no_answer(
    made: Callable[[Provider], Summarizer], cut: Sent
) -> None:
    for sent in (cut, cut._replace(cut=False)):  # the connection breaks; or it is closed politely
        pieces: list[str] = []
        with provider(sent) as server:
            outcome = asked(made(server), pieces=pieces)
        assert isinstance(outcome, ModelFailure), outcome
        assert outcome.cause == "failed"
        assert pieces
        assert len(server.asked) == 1


@pytest.mark.parametrize("made", [anthropic, chat, gemini])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_what_is_no_json_is_a_failure(made: Callable[[Provider], Summarizer], kind: str) -> None:
    with provider(Sent(200, "data: {broken\n\n", kind=kind)) as server:
        outcome = asked(made(server))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "failed"


def test_an_error_inside_a_stream_is_told_as_one() -> None:
    error = of_anthropic("overloaded_error", "Overloaded")
    body = anthropic_stream(cut=4).body + f"event: error\ndata: {json.dumps(error)}\n\n"
    with provider(Sent(200, body, kind="text/event-stream")) as server:
        outcome = asked(anthropic(server))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "throttled"


HUNG_UP = Sent(0, "")


@pytest.mark.parametrize("made", [anthropic, chat, gemini])
def test_an_answer_that_has_begun_is_not_asked_for_again(
    made: Callable[[Provider], Summarizer],
) -> None:
    begun = chat_stream().body.partition("\n\n")[0].replace(FIRST, "") + "\n\n"
    for body in ("", begun if made is chat else ": one moment\n\n"):
        with provider(Sent(200, body, kind="text/event-stream", cut=True)) as server:
            outcome = asked(made(server))
        assert isinstance(outcome, ModelFailure), outcome
        assert len(server.asked) == 1


@pytest.mark.parametrize("made", [anthropic, chat, gemini])
def test_a_connection_that_is_closed_in_place_of_an_answer_is_a_failure(
    made: Callable[[Provider], Summarizer],
) -> None:
    """Those who ask try again after a failure, and count their tries; nothing below does."""
    with provider(HUNG_UP) as server:
        outcome = asked(made(server))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "failed"
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_is_a_failure() -> None:
    with provider(chat_stream()) as server:
        gone = server.url
    outcome = asked(summarizer("openai:gpt-4o", base_url=gone, api_key="k"))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "failed"


def test_one_model_is_asked_from_several_event_loops_at_the_same_time() -> None:
    outcomes: list[Outcome] = []

    async def asking(model: Summarizer) -> None:
        for _ in range(5):
            outcome = await model.ask(ModelRequest(messages=(said("Sum up"),)), lambda _: None)
            outcomes.append(outcome)

    async def both(model: Summarizer) -> None:
        await asyncio.gather(asking(model), asking(model))

    with provider(chat_stream()) as server:
        model = chat(server)
        threads = [threading.Thread(target=asyncio.run, args=(both(model),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [type(outcome) for outcome in outcomes] == [ModelReply] * 40
