"""Agents of the OpenAI SDK with a scripted model, which judges what it is sent."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic import TypeAdapter

from foldmark.adapters.openai_agents import FoldmarkSession
from foldmark.tokens.counters import counter
from tests.support.adapter_contract import WINDOW, ContractAgent, Outcome, file_text, paths
from tests.support.adapter_contract import Script as ContractScript

_count = counter("classes")
Json = dict[str, Any]
# What the n-th answer is, counted from 1: items, or an error to raise.
Script = Callable[[int], Sequence[Json] | Exception]
_OUTPUT: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
_CALLS = ("function_call", "custom_tool_call", "shell_call", "computer_call")


class TooLong(Exception):
    """A refusal for length, as OpenAI tells it."""

    status_code = 400
    code = "context_length_exceeded"

    def __init__(self) -> None:
        super().__init__(
            "Your input exceeds the context window of this model. Please adjust your input."
        )


class Scripted(Model):
    """Answers by a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[list[Json]] = []
        self.usage = Usage()
        self.look: Callable[[list[Json]], None] = lambda _: None

    def _next(self, model_input: Any) -> list[Any]:
        items: list[Json] = [dict(item) for item in model_input]
        check_pairs(items)
        self.look(items)
        self.seen.append(items)
        reply = self.script(len(self.seen))
        if isinstance(reply, Exception):
            raise reply
        return [_OUTPUT.validate_python(item) for item in reply]

    async def get_response(self, *args: Any, **keywords: Any) -> ModelResponse:
        output = self._next(keywords["input"] if "input" in keywords else args[1])
        return ModelResponse(output=output, usage=self.usage, response_id=None)

    async def stream_response(self, *args: Any, **keywords: Any) -> AsyncIterator[Any]:
        empty = response([])
        yield ResponseCreatedEvent(type="response.created", response=empty, sequence_number=0)
        output = self._next(keywords["input"] if "input" in keywords else args[1])
        yield ResponseCompletedEvent(
            type="response.completed", response=response(output), sequence_number=1
        )


def response(output: list[Any], **more: Any) -> Response:
    """A whole response."""
    return Response(
        id="resp_1",
        created_at=0,
        model="scripted",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        **more,
    )


def said(text: str, name: str = "msg_1") -> Json:
    """A message of the model."""
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    message = ResponseOutputMessage(
        id=name, type="message", role="assistant", status="completed", content=[content]
    )
    return message.model_dump(exclude_unset=True)


def called(name: str, arguments: str = "{}", tool: str = "look") -> Json:
    """A call of a function."""
    call = ResponseFunctionToolCall(
        id=f"fc_{name}", call_id=name, type="function_call", name=tool, arguments=arguments
    )
    return call.model_dump(exclude_unset=True)


def gave(name: str, output: Any) -> Json:
    """The result of a function."""
    return {"type": "function_call_output", "call_id": name, "output": output}


def asked(text: str) -> Json:
    """A message of the user."""
    return {"role": "user", "content": text}


def check_pairs(items: Sequence[Json]) -> None:
    """Every call has one result after it, every result its call; thinking leads to something."""
    waiting: list[tuple[str, str]] = []
    calls: set[str] = set()
    for index, item in enumerate(items):
        kind = item.get("type")
        if kind in _CALLS:
            assert item["call_id"] not in calls, "a call's id is used twice"
            calls.add(item["call_id"])
            waiting.append((f"{kind}_output", item["call_id"]))
        elif str(kind).endswith("_call_output"):
            assert (kind, item["call_id"]) in waiting, "a result without a call"
            waiting.remove((str(kind), item["call_id"]))
        elif kind == "reasoning":
            after = items[index + 1] if index + 1 < len(items) else {}
            is_model = after.get("role") == "assistant" or str(after.get("type")).endswith("_call")
            assert is_model or after.get("type") == "reasoning", "thinking that leads to nothing"
        else:
            assert not waiting or kind not in (None, "message"), "a call without a result"
    assert not waiting, "a call without a result"


# --- agents and runs ---------------------------------------------------------------------------


@function_tool
def look(n: int) -> str:
    """Look at something."""
    if n % 11 == 0:
        raise ValueError(f"there is no {n}")
    return f"line {n} is here\n" * 120


def opened(folder: Path, name: str = "one", window: int = WINDOW, **more: Any) -> FoldmarkSession:
    return FoldmarkSession(
        name, folder / "agent.db", window=window, output=400, durable=False, **more
    )


def agent(model: Any, **more: Any) -> Agent[Any]:
    return Agent(name="worker", instructions="Be brief.", model=model, tools=[look], **more)


def works(steps: int) -> Script:
    """So many answers that call one to four tools, then one in words; and again."""

    def script(number: int) -> list[Json]:
        if number % (steps + 1) == 0:
            return [said(f"Done, in {number}.", f"msg_{number}")]
        calls = [
            called(f"call_{number}_{n}", json.dumps({"n": number * 10 + n}))
            for n in range(1 + number % 4)
        ]
        return [said("I look.", f"msg_{number}"), *calls] if number % 5 == 0 else calls

    return script


def kinds(session: FoldmarkSession) -> list[str]:
    return [operation.kind for operation in session.session.operations()]


def bare(item: Any) -> Json:
    """An item without what the SDK notes for itself."""
    return {name: value for name, value in item.items() if not name.startswith("_agents")}


async def ran(
    worker: Agent[Any],
    session: FoldmarkSession,
    request: str = "Go",
    *,
    streamed: bool = False,
    config: RunConfig | None = None,
    max_turns: int = 30,
) -> Any:
    """What a run says at its end."""
    more: Any = {"session": session, "run_config": session.run_config(config)}
    if not streamed:
        return (await Runner.run(worker, request, max_turns=max_turns, **more)).final_output
    stream = Runner.run_streamed(worker, request, max_turns=max_turns, **more)
    async for _ in stream.stream_events():
        pass
    return stream.final_output


# --- the contract over adapters ---------------------------------------------------------------


@function_tool
def read(path: str) -> str:
    """Read a file."""
    return file_text(path)


@function_tool
def fail(path: str) -> str:
    """Fail to read a file."""
    raise FileNotFoundError(f"{path} is missing")


@function_tool(failure_error_function=None)
def crash(path: str) -> str:
    """End the run."""
    raise RuntimeError(f"cut off at {path}")


class _ContractModel(Scripted):
    def __init__(self, reply: Callable[[list[str], int], str | tuple[str, ...]]) -> None:
        super().__init__(lambda _: ())
        self._reply = reply

    def _next(self, model_input: Any) -> list[Any]:
        items: list[Json] = [dict(item) for item in model_input]
        check_pairs(items)
        reply = self._reply([text for item in items for text in texts(item)], tokens_of(items))
        if isinstance(reply, str):
            return [_OUTPUT.validate_python(said(reply, f"msg_{uuid4().hex}"))]
        calls = paths(reply)
        items = [called(name, json.dumps({"path": path}), tool) for tool, path, name in calls]
        return [_OUTPUT.validate_python(item) for item in items]


class FrameworkAgent(ContractAgent):
    modes = ("async", "stream")

    def __init__(self, folder: Path, script: ContractScript, **settings: Any) -> None:
        super().__init__(folder, script)
        self._model = _ContractModel(self.reply)
        self._open = partial(opened, folder, **settings)
        self._sessions: dict[str, FoldmarkSession] = {}

        @function_tool
        async def wait(path: str) -> str:
            """Wait forever."""
            self.waits.set()
            await asyncio.Event().wait()
            return path

        self._tools: Any = [read, fail, crash, wait]

    async def run(self, text: str, conversation: str = "t", mode: str = "async") -> Outcome:
        if conversation not in self._sessions:
            self._sessions[conversation] = self._open(conversation)
        session = self._sessions[conversation]
        worker = Agent(name="worker", model=session.model(self._model), tools=self._tools)
        more: Any = {"session": session, "run_config": session.run_config(), "max_turns": 200}
        if mode == "stream":
            result: Any = Runner.run_streamed(worker, text, **more)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(worker, text, **more)
        items = [item.to_input_item() for item in result.new_items]
        return Outcome(result.final_output, [str(i["output"]) for i in items if "output" in i])

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    @staticmethod
    def refusal() -> Exception:
        return TooLong()


def texts(item: Json) -> list[str]:
    """The texts of a message."""
    content: Any = item.get("content") or []
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if "text" in block]


def tokens_of(items: Sequence[Json]) -> int:
    """The tokens of items by our own count."""
    fields = [item.get(name) for item in items for name in ("arguments", "output", "content")]
    return sum(_count(one if isinstance(one, str) else json.dumps(one)) for one in fields if one)
