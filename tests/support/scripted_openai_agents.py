"""Agents of the OpenAI SDK with a scripted model, which judges what it is sent."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

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

WINDOW = 6_000
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

    def _next(self, given: Any) -> list[Any]:
        items: list[Json] = [dict(item) for item in given]
        check_pairs(items)
        self.look(items)
        self.seen.append(items)
        said = self.script(len(self.seen))
        if isinstance(said, Exception):
            raise said
        return [_OUTPUT.validate_python(item) for item in said]

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        output = self._next(named["input"] if "input" in named else args[1])
        return ModelResponse(output=output, usage=self.usage, response_id=None)

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        begun = response([])
        yield ResponseCreatedEvent(type="response.created", response=begun, sequence_number=0)
        output = self._next(named["input"] if "input" in named else args[1])
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
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind in _CALLS:
            assert item["call_id"] not in calls, "a call's id is used twice"
            calls.add(item["call_id"])
            waiting.append((f"{kind}_output", item["call_id"]))
        elif str(kind).endswith("_call_output"):
            assert (kind, item["call_id"]) in waiting, "a result without a call"
            waiting.remove((str(kind), item["call_id"]))
        elif kind == "reasoning":
            after = items[place + 1] if place + 1 < len(items) else {}
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
    return [act.kind for act in session.session.operations()]


def bare(item: Any) -> Json:
    """An item without what the SDK notes for itself."""
    return {name: held for name, held in item.items() if not name.startswith("_agents")}


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
