"""A scripted model for agents of pydantic-ai, which looks at every request that it is sent."""

import asyncio
import random
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import UsageLimits

from foldmark.adapters.conversations import Conversations
from foldmark.adapters.pydantic_ai import Foldmark
from foldmark.tokens.counters import counter
from tests.support.adapter_contract import (
    OUTPUT,
    WINDOW,
    ContractAgent,
    Outcome,
    file_text,
    paths,
)
from tests.support.adapter_contract import Script as ContractScript

TOO_LONG = {
    "message": "This model's maximum context length is 4096 tokens. However, your messages "
    "resulted in 9000 tokens.",
    "code": "context_length_exceeded",
}
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
            ToolCallPart(name, {"path": f"src/{step}_{index}.py"}, f"call_{step}_{index}")
            for index, name in enumerate(names)
        ]

    def stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        return deltas(self.answer(messages, info))


async def deltas(response: ModelResponse) -> AsyncIterator[str | DeltaToolCalls]:
    """The deltas of a streamed response."""
    for index, part in enumerate(response.parts):
        if isinstance(part, TextPart):
            yield part.content
        elif isinstance(part, ToolCallPart):
            args = part.args_as_json_str()
            yield {index: DeltaToolCall(part.tool_name, args, tool_call_id=part.tool_call_id)}


def equipped(agent: Agent[Any, str]) -> Agent[Any, str]:
    """The agent with tools: one reads 2 000 characters, one fails."""

    @agent.tool_plain
    def read(path: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Read a file."""
        return file_text(path)

    @agent.tool_plain
    def fail(path: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Fail to read a file."""
        raise ToolFailed(f"{path} is missing")

    @agent.tool_plain
    def crash(path: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """End the run."""
        raise RuntimeError(f"cut off at {path}")

    return agent


def check_pairs(messages: Iterable[ModelMessage]) -> None:
    """Every call has its one result in the next message, every result its call."""
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ModelRequest):
            ids = [part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)]
            assert len(ids) == len(set(ids))
            assert set(ids) <= waiting
            waiting -= set(ids)
            continue
        assert not waiting
        call_ids = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        assert len(call_ids) == len(set(call_ids))
        waiting = set(call_ids)
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


# --- the contract over adapters --------------------------------------------------------------


class FrameworkAgent(ContractAgent):
    modes = ("async", "stream")

    def __init__(self, folder: Path, script: ContractScript, **settings: Any) -> None:
        super().__init__(folder, script)
        options: dict[str, Any] = {"window": WINDOW, "output": OUTPUT, "durable": False, **settings}
        self.memory = Foldmark(folder / "agent.db", **options)
        model = FunctionModel(self._answer, stream_function=self._stream)
        self._agent = equipped(Agent(model, system_prompt="Be brief.", capabilities=[self.memory]))

        @self._agent.tool_plain
        async def wait(path: str) -> str:  # pyright: ignore[reportUnusedFunction]
            """Wait forever."""
            self.waits.set()
            await asyncio.Event().wait()
            return path

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        check_pairs(messages)
        parts = [part for message in messages for part in message.parts]
        words = [str(part.content) for part in parts if isinstance(part, TextPart | UserPromptPart)]
        reply = self.reply(words, tokens_of(messages, info))
        if isinstance(reply, str):
            return ModelResponse(parts=[TextPart(reply)])
        calls = paths(reply)
        return ModelResponse(parts=[ToolCallPart(name, {"path": p}, i) for name, p, i in calls])

    def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        return deltas(self._answer(messages, info))

    async def run(self, text: str, conversation: str = "t", mode: str = "async") -> Outcome:
        limits = UsageLimits(request_limit=None)
        options: Any = {"conversation_id": conversation, "usage_limits": limits}
        if mode == "stream":
            async with self._agent.run_stream(text, **options) as stream:
                answer, messages = await stream.get_output(), stream.all_messages()
        else:
            result = await self._agent.run(text, **options)
            answer, messages = result.output, result.all_messages()
        parts = [part for message in messages for part in message.parts]
        return Outcome(
            answer, [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        )

    async def close(self) -> None:
        await self.memory.aclose()

    @staticmethod
    def refusal() -> Exception:
        return ModelHTTPError(400, "gpt", {"error": TOO_LONG})

    @property
    def pool(self) -> Conversations[Any]:
        return self.memory._pool  # pyright: ignore[reportPrivateUsage]
