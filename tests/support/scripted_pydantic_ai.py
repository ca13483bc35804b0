"""A scripted model for agents of pydantic-ai, which looks at every request that it is sent."""

import asyncio
import random
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from foldmark.tokens.counters import counter

WINDOW = 6_000
count = counter("classes")


@contextmanager
def own_loop() -> Generator[None]:
    """A loop for `run_sync`, which makes one where there is none and leaves it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class Script:
    """Calls tools for some steps, then says that it is done; keeps what it was sent."""

    def __init__(self, steps: int, window: int = WINDOW, seed: int = 1, words: float = 0.3) -> None:
        self.steps = steps
        self.window = window
        self.requests: list[list[ModelMessage]] = []
        self.refusals: list[Exception | None] = []  # to be raised, one for each request
        self._rng = random.Random(seed)  # noqa: S311 - a script
        self.calls = 0  # of tools
        self._words = words  # how often it says something beside its calls
        self._left = steps

    def model(self) -> FunctionModel:
        return FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        check_pairs(messages)
        assert tokens_of(messages, info) <= self.window
        self.requests.append(list(messages))
        if self.refusals and (error := self.refusals.pop(0)):
            raise error
        self._left -= 1
        if self._left <= 0:
            self._left = self.steps
            return ModelResponse(parts=[TextPart(f"Done after {len(self.requests)}.")])
        return ModelResponse(parts=self._calls())

    def _calls(self) -> list[ModelResponsePart]:
        step = len(self.requests)
        words: list[ModelResponsePart] = (
            [TextPart("I look.")] if self._rng.random() < self._words else []
        )
        names = self._rng.choices(["read", "fail"], [9, 1], k=self._rng.randint(1, 4))
        self.calls += len(names)
        return words + [
            ToolCallPart(name, {"path": f"src/{step}_{place}.py"}, f"call_{step}_{place}")
            for place, name in enumerate(names)
        ]

    async def stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        for place, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                args = part.args_as_json_str()
                call = DeltaToolCall(part.tool_name, args, tool_call_id=part.tool_call_id)
                yield {place: call}


def equipped(agent: Agent[Any, str]) -> Agent[Any, str]:
    """The agent with tools: one reads 2 000 characters, one fails."""

    @agent.tool_plain
    def read(path: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Read a file."""
        line = f"{path}: some words of it\n"
        return (line * (2_000 // len(line) + 1))[:2_000]

    @agent.tool_plain
    def fail(path: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Fail to read a file."""
        raise ToolFailed(f"{path}: no such file")

    return agent


def check_pairs(messages: Iterable[ModelMessage]) -> None:
    """Every call has its one result in the next message, every result its call."""
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ModelRequest):
            given = [
                part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)
            ]
            assert len(given) == len(set(given))
            assert set(given) <= waiting
            waiting -= set(given)
            continue
        assert not waiting
        called = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        assert len(called) == len(set(called))
        waiting = set(called)
    assert not waiting


def tokens_of(messages: Sequence[ModelMessage], info: AgentInfo | None = None) -> int:
    """The tokens of a request by our own count."""
    texts = [text for message in messages for part in message.parts for text in said(part)]
    if info is not None:
        texts += [info.instructions or ""]
        texts += [f"{tool.name} {tool.parameters_json_schema}" for tool in info.function_tools]
    return sum(map(count, texts))


def said(part: object) -> list[str]:
    if isinstance(part, ToolCallPart):
        return [part.args_as_json_str()]
    content = getattr(part, "content", "")
    return [content] if isinstance(content, str) else [str(content)]


def texts_of(messages: Iterable[ModelMessage]) -> str:
    return "\n".join(text for message in messages for part in message.parts for text in said(part))
