"""Any callable that takes messages: the official clients' own, and one's own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.genai import types

import foldmark
from foldmark.adapters.wrapping import fitting

from .own_loops import async_client_of, client_of, close_async
from .test_fit import check_pairs, size
from .wire_server import WireServer, wire_server, working

TEXT = "the wheel turns\n" * 120
WINDOW = 8_000
STEPS = 45
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]


def calls_of(reply: Any) -> list[str]:
    return [call.id for call in reply.choices[0].message.tool_calls or ()]


def worked(create: Any, steps: int = STEPS) -> list[Any]:
    """A loop over the chat wire that knows nothing of windows; what it has said in the end."""
    messages: list[Any] = [{"role": "user", "content": "Mend the mill."}]
    for _ in range(steps):
        reply = create(model="m", messages=messages, tools=CHAT_TOOLS)
        messages.append(reply.choices[0].message.model_dump(exclude_none=True))
        calls = calls_of(reply)
        messages += [{"role": "tool", "tool_call_id": name, "content": TEXT} for name in calls]
        if not calls:
            messages.append({"role": "user", "content": "Go on."})
    return messages


def check(server: WireServer, wire: str = "openai-chat", steps: int = STEPS) -> None:
    assert len(server.requests) == steps
    assert [request.flaw for request in server.requests if request.flaw] == []
    for request in server.requests:
        check_pairs(request.messages, wire)


def test_a_loop_of_the_openai_client_never_overflows() -> None:
    with (
        wire_server(window=WINDOW, script=working()) as server,
        client_of("openai-chat", server) as client,
    ):
        messages = worked(fitting(client.chat.completions.create, window=WINDOW))
        check(server)
        assert size(messages, "openai-chat") > 4 * WINDOW


def test_with_a_session_nothing_is_lost_and_a_restart_goes_on(tmp_path: Path) -> None:
    with (
        wire_server(window=WINDOW, script=working()) as server,
        client_of("openai-chat", server) as client,
    ):
        for _ in range(2):
            with foldmark.open(
                tmp_path / "agent.db", session="one", window=WINDOW, output=500
            ) as session:
                create = fitting(client.chat.completions.create, session=session)
                worked(create, 25)
                assert session.search("wheel")
        check(server, steps=50)
        assert [request for request in server.requests[26:] if len(request.messages) > 1]


def test_async_clients_stay_async(tmp_path: Path) -> None:
    async def run(server: WireServer, **more: Any) -> None:
        client = async_client_of("openai-chat", server)
        create = fitting(client.chat.completions.create, **more)
        messages: list[Any] = [{"role": "user", "content": "Mend the mill."}]
        for _ in range(STEPS):
            reply = await create(model="m", messages=messages, tools=CHAT_TOOLS)
            messages.append(reply.choices[0].message)  # as the client's object
            calls = calls_of(reply)
            messages += [{"role": "tool", "tool_call_id": name, "content": TEXT} for name in calls]
            messages += [] if calls else [{"role": "user", "content": "Go on."}]
        await close_async(client)

    with wire_server(window=WINDOW, script=working()) as server:
        asyncio.run(run(server, window=WINDOW))
        check(server)
    with (
        wire_server(window=WINDOW, script=working()) as server,
        foldmark.open(tmp_path / "agent.db", window=WINDOW, output=500) as session,
    ):
        asyncio.run(run(server, session=session))
        check(server)


def test_a_refusal_for_length_is_followed_by_a_shorter_list(tmp_path: Path) -> None:
    with (
        wire_server(window=5_000, script=working()) as server,
        client_of("openai-chat", server) as client,
    ):
        worked(fitting(client.chat.completions.create, window=100_000))
        assert [request.overflow for request in server.requests].count(True) == 1
        assert len(server.requests) == STEPS + 1
    with (
        wire_server(window=5_000, script=working()) as server,
        client_of("openai-chat", server) as client,
        foldmark.open(tmp_path / "agent.db", window=100_000, output=500) as session,
    ):
        worked(fitting(client.chat.completions.create, session=session))
        assert [request.overflow for request in server.requests].count(True) == 1
        assert len(server.requests) == STEPS + 1


def test_a_loop_of_the_anthropic_client_never_overflows() -> None:
    tools = [{"name": "read", "input_schema": SCHEMA}]
    with (
        wire_server(window=WINDOW, script=working()) as server,
        client_of("anthropic", server) as client,
    ):
        create = fitting(client.messages.create, window=WINDOW)
        messages: list[Any] = [{"role": "user", "content": "Mend the mill."}]
        for _ in range(STEPS):
            reply = create(
                model="m", max_tokens=100, messages=messages, system="Be brief.", tools=tools
            )
            messages.append({"role": "assistant", "content": reply.content})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": TEXT}
                for block in reply.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results or "Go on."})
        check(server, "anthropic")


def test_a_loop_of_the_gemini_client_never_overflows() -> None:
    function = types.FunctionDeclaration(name="read", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[function])], system_instruction="Be brief."
    )
    with (
        wire_server(window=WINDOW, script=working()) as server,
        client_of("gemini", server) as client,
    ):
        generate = fitting(client.models.generate_content, window=WINDOW)
        contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="Mend it.")])]
        for _ in range(STEPS):
            reply = generate(model="m", contents=contents, config=config)
            contents.append(reply.candidates[0].content)
            results = [
                types.FunctionResponse(id=call.id, name=call.name, response={"output": TEXT})
                for call in reply.function_calls or ()
            ]
            parts = [types.Part(function_response=result) for result in results]
            contents.append(types.Content(role="user", parts=parts or [types.Part(text="Go on.")]))
        check(server, "gemini")


def test_what_is_no_list_or_another_error_goes_through() -> None:
    def echo(messages: object, more: int = 0) -> object:
        if more:
            raise ValueError("more")
        return messages

    assert fitting(echo, window=1_000)("a bare text") == "a bare text"
    held = [{"role": "user", "content": "short"}]
    assert fitting(echo, window=1_000)(held) is held
    assert fitting(echo, window=1_000)(messages=held) is held
    with pytest.raises(ValueError, match="more"):
        fitting(echo, window=1_000)(held, more=1)
    with pytest.raises(foldmark.BadInput, match="how much fits"):
        fitting(echo)
    with pytest.raises(foldmark.BadInput, match="no messages were given"):
        fitting(echo, window=1_000)()


def test_the_list_may_have_any_name() -> None:
    def ask(*, talk: list[Any]) -> list[Any]:
        return talk

    long = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}] * 20
    made = fitting(ask, window=4_000, at="talk")(talk=long)
    assert size(made, "openai-chat") < 3_000
