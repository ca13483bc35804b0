"""`fit_calls` around the functions of official clients, and around any other function."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from google.genai import types

import foldmark
from foldmark.adapters.wrapping import fit_calls
from tests.support.api_server import WireServer, wire_server, working
from tests.support.client_loops import async_client_of, client_of, close_async
from tests.support.list_checks import check_pairs, size

TEXT = "all tests pass.\n" * 120
WINDOW = 8_000
STEPS = 45
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]


def calls_of(reply: Any) -> list[str]:
    return [call.id for call in reply.choices[0].message.tool_calls or ()]


def worked(create: Any, steps: int = STEPS) -> list[Any]:
    """Run a chat loop that ignores context windows; returns its complete list of messages."""
    messages: list[Any] = [{"role": "user", "content": "Fix the failing test."}]
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
        messages = worked(fit_calls(client.chat.completions.create, window=WINDOW))
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
                create = fit_calls(client.chat.completions.create, session=session)
                worked(create, 25)
                assert session.search("tests pass")
        check(server, steps=50)
        assert [request for request in server.requests[26:] if len(request.messages) > 1]


def test_async_clients_stay_async(tmp_path: Path) -> None:
    async def run(server: WireServer, **more: Any) -> None:
        client = async_client_of("openai-chat", server)
        create = fit_calls(client.chat.completions.create, **more)
        messages: list[Any] = [{"role": "user", "content": "Fix the failing test."}]
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
        worked(fit_calls(client.chat.completions.create, window=100_000))
        assert [request.overflow for request in server.requests].count(True) == 1
        assert len(server.requests) == STEPS + 1
    with (
        wire_server(window=5_000, script=working()) as server,
        client_of("openai-chat", server) as client,
        foldmark.open(tmp_path / "agent.db", window=100_000, output=500) as session,
    ):
        worked(fit_calls(client.chat.completions.create, session=session))
        assert [request.overflow for request in server.requests].count(True) == 1
        assert len(server.requests) == STEPS + 1


def test_a_loop_of_the_anthropic_client_never_overflows() -> None:
    with (
        wire_server(window=WINDOW, script=working()) as server,
        client_of("anthropic", server) as client,
    ):
        anthropic_loop(fit_calls(client.messages.create, window=WINDOW), STEPS)
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
        generate = fit_calls(client.models.generate_content, window=WINDOW)
        contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="Fix it.")])]
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

    assert fit_calls(echo, window=1_000)("a bare text") == "a bare text"
    short = [{"role": "user", "content": "short"}]
    assert fit_calls(echo, window=1_000)(short) is short
    assert fit_calls(echo, window=1_000)(messages=short) is short
    with pytest.raises(ValueError, match="more"):
        fit_calls(echo, window=1_000)(short, more=1)
    with pytest.raises(foldmark.BadInput, match="no context window is known"):
        fit_calls(echo)
    with pytest.raises(foldmark.BadInput, match="no messages in the call"):
        fit_calls(echo, window=1_000)()


def test_the_list_may_have_any_name() -> None:
    def ask(*, talk: list[Any]) -> list[Any]:
        return talk

    long = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}] * 20
    result = fit_calls(ask, window=4_000, argument="talk")(talk=long)
    assert size(result, "openai-chat") < 3_000


def sent_by(**more: Any) -> tuple[Any, list[int]]:
    """A function that refuses long requests, and the sizes of its requests."""
    sizes: list[int] = []

    def ask(**keywords: Any) -> str:
        sizes.append(len(str(keywords)))
        if sizes[-1] > 20_000:
            raise TooLong("Your input exceeds the context window of this model.")
        return "well"

    return fit_calls(ask, **more), sizes


class TooLong(Exception):
    status_code = 400


def test_a_refusal_that_states_no_window_is_followed_by_a_shorter_list() -> None:
    ask, sizes = sent_by(window=100_000)
    long = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}] * 8
    assert ask(messages=long) == "well"
    assert len(sizes) == 2
    assert sizes[1] < sizes[0] * 0.8
    with pytest.raises(TooLong):  # nothing in it can be left out
        ask(messages=[{"role": "user", "content": "x " * 20_000}])
    assert len(sizes) == 3
    short = [{"role": "user", "content": "Go on."}]
    assert ask(messages=short) == "well"
    assert ask(messages=long[:4]) == "well"  # what was refused once takes nothing from others


def test_messages_by_place_are_found_by_the_name_they_have() -> None:
    def ask(model: str, messages: list[Any]) -> list[Any]:
        return messages

    long = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}] * 20
    assert size(fit_calls(ask, window=4_000)("m", long), "openai-chat") < 3_000


def test_what_clients_say_for_not_given_is_no_system_prompt() -> None:
    def ask(**keywords: Any) -> Any:
        return keywords

    short = [{"role": "user", "content": "short"}]
    tools = (tool for tool in CHAT_TOOLS)
    passed_on = fit_calls(ask, window=4_000)(messages=short, system=object(), tools=tools)
    assert passed_on["messages"] is short
    assert list(passed_on["tools"]) == CHAT_TOOLS
    assert fit_calls(ask, window=4_000)(contents=["hello", "you"])["contents"] == ["hello", "you"]
    assert fit_calls(ask, window=4_000)(messages=None)["messages"] is None


def test_an_object_that_is_called_async_stays_async() -> None:
    class Model:
        async def __call__(self, messages: list[Any]) -> list[Any]:
            return messages

    long = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}] * 20
    result = asyncio.run(cast("Any", fit_calls(Model(), window=4_000)(long)))
    assert size(result, "openai-chat") < 3_000


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_a_session_knows_the_wire_of_the_client(tmp_path: Path, wire: str) -> None:
    with (
        wire_server(window=WINDOW, script=working()) as server,
        client_of(wire, server) as client,
        foldmark.open(tmp_path / "agent.db", session="one", window=WINDOW, output=500) as session,
    ):
        if wire == "anthropic":
            anthropic_loop(fit_calls(client.messages.create, session=session), 30)
        else:
            responses_loop(fit_calls(client.responses.create, session=session), 30)
        check(server, wire, 30)
        assert session.operations()


def fields(value: object) -> set[str]:
    """The names of all fields in a value."""
    if isinstance(value, list):
        return {name for held in cast("list[Any]", value) for name in fields(held)}
    if not isinstance(value, dict):
        return set()
    held = cast("dict[str, Any]", value)
    return held.keys() | {name for inner in held.values() for name in fields(inner)}


WORKING: dict[str, Callable[[int], list[Any]]] = {
    "openai-chat": lambda n: [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": f"c{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": f"c{n}", "content": TEXT},
    ],
    "openai-responses": lambda n: [
        {"type": "function_call", "call_id": f"c{n}", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": TEXT},
    ],
    "anthropic": lambda n: [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Well."},
                {"type": "tool_use", "id": f"c{n}", "name": "ls", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": f"c{n}",
                    "content": [{"type": "text", "text": TEXT}],
                }
            ],
        },
    ],
    "gemini": lambda n: [
        {"role": "model", "parts": [{"functionCall": {"id": f"c{n}", "name": "ls", "args": {}}}]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": f"c{n}",
                        "name": "ls",
                        "response": {"output": TEXT},
                    }
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("wire", WORKING)
def test_nothing_that_a_session_notes_is_sent(tmp_path: Path, wire: str) -> None:
    first = {"role": "user", "content": "Go."}
    if wire == "gemini":
        first = {"role": "user", "parts": [{"text": "Go."}]}
    talk: list[Any] = [first]
    sent: list[Any] = []
    with foldmark.open(tmp_path / "a.db", window=WINDOW, output=500) as session:
        ask = fit_calls(sent.extend, session=session, api=wire)
        for step in range(40):
            talk += WORKING[wire](step)
            ask(talk)
        assert session.operations()
    theirs = {"content", "type", "text"}  # of summaries, as their wire writes them
    assert fields(sent) <= fields(talk) | theirs


def anthropic_loop(create: Any, steps: int) -> None:
    tools = [{"name": "read", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": "Fix the failing test."}]
    for _ in range(steps):
        reply = create(model="m", max_tokens=100, messages=messages, tools=tools)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block.id for block in reply.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": name, "content": TEXT} for name in calls]
        messages.append({"role": "user", "content": results or "Go on."})


def responses_loop(create: Any, steps: int) -> None:
    tools = [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}]
    items: list[Any] = [{"role": "user", "content": "Fix the failing test."}]
    for _ in range(steps):
        reply = create(model="m", input=items, tools=tools, store=False)
        items += reply.output
        calls = [item.call_id for item in reply.output if item.type == "function_call"]
        items += [
            {"type": "function_call_output", "call_id": name, "output": TEXT} for name in calls
        ]
        items += [] if calls else [{"role": "user", "content": "Go on."}]


def echoed(messages: list[Any]) -> list[Any]:
    return messages


def test_a_wire_that_shows_only_later_is_asked_for(tmp_path: Path) -> None:
    with foldmark.open(tmp_path / "agent.db", window=WINDOW) as session:
        ask = fit_calls(echoed, session=session)
        talk: list[Any] = [{"role": "user", "content": "Go."}]
        ask(talk)
        call: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
        talk += [{"role": "assistant", "content": [call]}]
        talk += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}]
        with pytest.raises(foldmark.BadInput, match="pass api='anthropic'"):
            ask(talk)
    with pytest.raises(foldmark.BadInput, match="expected a function"):
        fit_calls("client", window=100)  # pyright: ignore[reportArgumentType]
