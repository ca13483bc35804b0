"""Agent loops with the official clients: one step each, blocking, async and streamed.

A step calls the model, records its reply and gives each tool call a result. It returns whether
there were calls.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import errors, types

import foldmark
from tests.support.api_server import WireServer

SYSTEM = "You answer support tickets."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
    "required": ["path"],
}
FUNCTION: dict[str, Any] = {"name": "read", "description": "Read a file.", "parameters": SCHEMA}
TOOLS: dict[str, list[Any]] = {
    "openai-chat": [{"type": "function", "function": FUNCTION}],
    "openai-responses": [{"type": "function", **FUNCTION, "strict": False}],
    "anthropic": [{"name": "read", "description": "Read a file.", "input_schema": SCHEMA}],
    "gemini": [{"function_declarations": [{**FUNCTION}]}],
}
CONFIG: Any = {"system_instruction": SYSTEM, "tools": TOOLS["gemini"]}
MODEL = "support-1"
Session = foldmark.Session
REFUSED = (openai.BadRequestError, anthropic.BadRequestError, errors.ClientError)
Step = Callable[[Any, Session], bool]
AsyncStep = Callable[[Any, Session], Awaitable[bool]]


def output(name: str) -> str:
    """The output of the tool: 2,000 characters."""
    return f"{name}: {'line of log, ' * 200}"[:2_000]


def settle(session: Session) -> bool:
    """Give each open call its result."""
    calls = session.open_calls()
    for call in calls:
        session.result(call.call_id, output(call.tool))
    return bool(calls)


def drain(session: Session, stream: Any) -> bool:
    """Record a stream, and give each call its result."""
    for _ in session.record_stream(stream):
        pass
    return settle(session)


async def adrain(session: Session, stream: Any) -> bool:
    async for _ in session.arecord_stream(stream):
        pass
    calls = await session.aopen_calls()
    for call in calls:
        await session.aresult(call.call_id, output(call.tool))
    return bool(calls)


# --- openai chat -----------------------------------------------------------------------------


def _chat(session: Session, messages: list[Any]) -> dict[str, Any]:
    # This API has the system prompt among the messages.
    prompt = [{"role": "system", "content": SYSTEM}]
    return {"model": MODEL, "messages": prompt + messages, "tools": TOOLS["openai-chat"]}


STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def chat(client: Any, session: Session) -> bool:
    request = _chat(session, session.messages("openai-chat"))
    reply = client.chat.completions.create(**request)
    session.record(reply)
    calls: list[Any] = reply.choices[0].message.tool_calls or []
    for call in calls:
        session.result(call.id, output(call.function.name))
    return bool(calls)


def chat_streamed(client: Any, session: Session) -> bool:
    request = _chat(session, session.messages("openai-chat"))
    return drain(session, client.chat.completions.create(**request, **STREAMED))


async def achat(client: Any, session: Session) -> bool:
    request = _chat(session, await session.amessages("openai-chat"))
    reply = await client.chat.completions.create(**request)
    await session.arecord(reply)
    calls: list[Any] = reply.choices[0].message.tool_calls or []
    for call in calls:
        await session.aresult(call.id, output(call.function.name))
    return bool(calls)


async def achat_streamed(client: Any, session: Session) -> bool:
    request = _chat(session, await session.amessages("openai-chat"))
    return await adrain(session, await client.chat.completions.create(**request, **STREAMED))


# --- openai responses ------------------------------------------------------------------------


def _responses(items: list[Any]) -> dict[str, Any]:
    fixed = {"instructions": SYSTEM, "tools": TOOLS["openai-responses"], "store": False}
    return {"model": MODEL, "input": items, **fixed}


def responses(client: Any, session: Session) -> bool:
    reply = client.responses.create(**_responses(session.messages("openai-responses")))
    session.record(reply)
    calls = [item for item in reply.output if item.type == "function_call"]
    for call in calls:
        session.result(call.call_id, output(call.name))
    return bool(calls)


def responses_streamed(client: Any, session: Session) -> bool:
    request = _responses(session.messages("openai-responses"))
    return drain(session, client.responses.create(**request, stream=True))


async def aresponses(client: Any, session: Session) -> bool:
    request = _responses(await session.amessages("openai-responses"))
    reply = await client.responses.create(**request)
    await session.arecord(reply)
    calls = [item for item in reply.output if item.type == "function_call"]
    for call in calls:
        await session.aresult(call.call_id, output(call.name))
    return bool(calls)


async def aresponses_streamed(client: Any, session: Session) -> bool:
    request = _responses(await session.amessages("openai-responses"))
    return await adrain(session, await client.responses.create(**request, stream=True))


# --- anthropic -------------------------------------------------------------------------------


def _anthropic(messages: list[Any]) -> dict[str, Any]:
    fixed = {"system": SYSTEM, "tools": TOOLS["anthropic"], "max_tokens": 500}
    return {"model": MODEL, "messages": messages, **fixed}


def claude(client: Any, session: Session) -> bool:
    reply = client.messages.create(**_anthropic(session.messages("anthropic")))
    session.record(reply)
    calls = [block for block in reply.content if block.type == "tool_use"]
    for call in calls:
        session.result(call.id, output(call.name))
    return bool(calls)


def claude_streamed(client: Any, session: Session) -> bool:
    request = _anthropic(session.messages("anthropic"))
    return drain(session, client.messages.create(**request, stream=True))


def claude_context(client: Any, session: Session) -> bool:
    """Uses the client's own helper, which adds events that the API does not have."""
    with client.messages.stream(**_anthropic(session.messages("anthropic"))) as stream:
        return drain(session, stream)


async def aclaude(client: Any, session: Session) -> bool:
    reply = await client.messages.create(**_anthropic(await session.amessages("anthropic")))
    await session.arecord(reply)
    calls = [block for block in reply.content if block.type == "tool_use"]
    for call in calls:
        await session.aresult(call.id, output(call.name))
    return bool(calls)


async def aclaude_streamed(client: Any, session: Session) -> bool:
    request = _anthropic(await session.amessages("anthropic"))
    return await adrain(session, await client.messages.create(**request, stream=True))


async def aclaude_context(client: Any, session: Session) -> bool:
    request = _anthropic(await session.amessages("anthropic"))
    async with client.messages.stream(**request) as stream:
        return await adrain(session, stream)


# --- gemini ----------------------------------------------------------------------------------


def _results(calls: list[Any]) -> list[Any]:
    """The results of calls, which may have no ids: in one content, in order."""
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=call.id, name=call.name, response={"output": output(call.name)}
            )
        )
        for call in calls
    ]
    return [types.Content(role="user", parts=parts)] if parts else []


def gemini(client: Any, session: Session) -> bool:
    contents = session.messages("gemini")
    reply = client.models.generate_content(model=MODEL, contents=contents, config=CONFIG)
    session.record(reply)
    session.extend(_results(reply.function_calls or []), "gemini")
    return bool(reply.function_calls)


def gemini_streamed(client: Any, session: Session) -> bool:
    request = {"model": MODEL, "contents": session.messages("gemini"), "config": CONFIG}
    return drain(session, client.models.generate_content_stream(**request))


async def agemini(client: Any, session: Session) -> bool:
    contents = await session.amessages("gemini")
    request = {"model": MODEL, "contents": contents, "config": CONFIG}
    reply = await client.aio.models.generate_content(**request)
    await session.arecord(reply)
    await session.aextend(_results(reply.function_calls or []), "gemini")
    return bool(reply.function_calls)


async def agemini_streamed(client: Any, session: Session) -> bool:
    contents = await session.amessages("gemini")
    request = {"model": MODEL, "contents": contents, "config": CONFIG}
    return await adrain(session, await client.aio.models.generate_content_stream(**request))


# --- all of them -----------------------------------------------------------------------------

LOOPS: dict[str, tuple[str, Step]] = {
    "chat": ("openai-chat", chat),
    "chat, streamed": ("openai-chat", chat_streamed),
    "responses": ("openai-responses", responses),
    "responses, streamed": ("openai-responses", responses_streamed),
    "anthropic": ("anthropic", claude),
    "anthropic, streamed": ("anthropic", claude_streamed),
    "anthropic, context": ("anthropic", claude_context),
    "gemini": ("gemini", gemini),
    "gemini, streamed": ("gemini", gemini_streamed),
}
ASYNC_LOOPS: dict[str, tuple[str, AsyncStep]] = {
    "chat": ("openai-chat", achat),
    "chat, streamed": ("openai-chat", achat_streamed),
    "responses": ("openai-responses", aresponses),
    "responses, streamed": ("openai-responses", aresponses_streamed),
    "anthropic": ("anthropic", aclaude),
    "anthropic, streamed": ("anthropic", aclaude_streamed),
    "anthropic, context": ("anthropic", aclaude_context),
    "gemini": ("gemini", agemini),
    "gemini, streamed": ("gemini", agemini_streamed),
}


@contextmanager
def client_of(wire: str, server: WireServer) -> Generator[Any]:
    """The blocking client of an API."""
    if wire == "gemini":
        options = types.HttpOptions(base_url=server.url)
        with genai.Client(api_key="none", http_options=options) as client:
            yield client
    elif wire == "anthropic":
        with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
            yield client
    else:
        with openai.OpenAI(base_url=server.openai, api_key="none", max_retries=0) as client:
            yield client


def async_client_of(wire: str, server: WireServer) -> Any:
    """The async client of an API; must be closed in its own loop."""
    if wire == "gemini":
        options = types.HttpOptions(base_url=server.url)
        return genai.Client(api_key="none", http_options=options)
    if wire == "anthropic":
        return anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0)
    return openai.AsyncOpenAI(base_url=server.openai, api_key="none", max_retries=0)


async def close_async(client: Any) -> None:
    if isinstance(client, genai.Client):
        await client.aio.aclose()
        client.close()
    else:
        await client.close()
