"""ADK agents with a scripted model."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode  # pyright: ignore[reportPrivateImportUsage] - as ADK's guides do
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import errors, types
from pydantic import Field

from foldmark.adapters.adk import FoldmarkPlugin
from foldmark.adapters.conversations import Conversations
from foldmark.tokens.counters import counter
from tests.support.adapter_contract import WINDOW, ContractAgent, Outcome, file_text, paths
from tests.support.adapter_contract import Script as ContractScript

_count = counter("classes")
Contents = Sequence[types.Content]
Script = Callable[[int, LlmRequest], "types.Content | Exception"]


class Scripted(BaseLlm):
    """Answers by a script, and keeps what it was shown."""

    model: str = "scripted"
    script: Script
    seen: list[list[types.Content]] = Field(default_factory=list)

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - ADK's own
    ) -> AsyncGenerator[LlmResponse, None]:
        self.seen.append(list(llm_request.contents))
        check_pairs(llm_request.contents)
        reply = self.script(len(self.seen), llm_request)
        if isinstance(reply, Exception):
            raise reply
        if stream:
            for part in reply.parts or []:
                piece = types.Content(role="model", parts=[part])
                yield LlmResponse(content=piece, partial=True)
        yield LlmResponse(content=reply)


def said(text: str, role: str = "model") -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def called(*paths: str, tool: str = "read") -> types.Content:
    calls = [types.FunctionCall(name=tool, args={"path": path}) for path in paths]
    return types.Content(role="model", parts=[types.Part(function_call=call) for call in calls])


async def read(path: str) -> str:
    """Read a file."""
    await asyncio.sleep(0)
    if path.startswith("missing"):
        raise FileNotFoundError(path)
    return file_text(path)


async def told_as_error(tool: object, args: object, tool_context: object, error: Exception) -> Any:
    return {"error": str(error)} if isinstance(error, FileNotFoundError) else None


def agent(model: BaseLlm, **more: Any) -> LlmAgent:
    options: dict[str, Any] = {
        "name": "worker",
        "instruction": "Be brief.",
        "tools": [read],
        **more,
    }
    return LlmAgent(model=model, on_tool_error_callback=told_as_error, **options)


def plugin(folder: Path, window: int | None = WINDOW, **more: Any) -> FoldmarkPlugin:
    return FoldmarkPlugin(folder / "agent.db", window=window, output=400, durable=False, **more)


def runner(root: Any, foldmark_plugin: FoldmarkPlugin, sessions: Any = None) -> Runner:
    if sessions is None:
        sessions = InMemorySessionService()
    app = App(name="app", root_agent=root, plugins=[foldmark_plugin])
    return Runner(app=app, session_service=sessions, auto_create_session=True)


async def ran(
    run: Runner, text: str, *, session: str = "s1", stop: bool = False, **more: Any
) -> list[Event]:
    """The events of one run; with `stop`, it is cut off when the first tools are called."""
    events: list[Event] = []
    going = run.run_async(user_id="u", session_id=session, new_message=said(text, "user"), **more)
    async for event in going:
        events.append(event)
        if stop and event.get_function_calls():
            await going.aclose()
            break
    return events


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a script, no secret


def check_pairs(view: Contents) -> None:
    """Every call has its result in the content right behind it, every result its call."""
    waiting: list[tuple[str | None, str | None]] = []
    for content in view:
        assert content.parts, "an empty content"
        results = [part.function_response for part in content.parts if part.function_response]
        for result in results:
            waiting.remove((result.id, result.name))
        assert not waiting, "a call without a result"
        calls = [part.function_call for part in content.parts if part.function_call]
        assert not calls or content.role == "model"
        waiting = [(call.id, call.name) for call in calls]
    assert not waiting, "a call without a result"


def texts(view: Contents) -> str:
    return json.dumps([content.model_dump(mode="json", exclude_none=True) for content in view])


def steps(rng: random.Random, per_turn: int) -> Script:
    """Calls of one to four tools at once, some of which fail; after so many, an answer."""

    def script(number: int, request: LlmRequest) -> types.Content:
        if number % per_turn == 0:
            return said(f"Turn {number // per_turn} is done.")
        names = ["missing" if rng.random() < 0.1 else "file" for _ in range(rng.randint(1, 4))]
        return called(*(f"{name}{number}-{n}.py" for n, name in enumerate(names)))

    return script


def sqlite_service(folder: Path) -> SqliteSessionService:
    return SqliteSessionService(str(folder / "adk.db"))


TOO_LONG = {
    "error": {
        "code": 400,
        "message": "The input token count (9000) exceeds the maximum number of tokens"
        " allowed (5000).",
        "status": "INVALID_ARGUMENT",
    }
}


def refusal() -> errors.ClientError:
    return errors.ClientError(400, TOO_LONG)


# --- the contract over adapters ---


async def fail(path: str) -> str:
    """Fail to read a file."""
    raise FileNotFoundError(f"{path} is missing")


async def crash(path: str) -> str:
    """End the run."""
    raise RuntimeError(f"cut off at {path}")


# Agents on one store share ADK's sessions while one of them is open.
_SERVICES: dict[Path, tuple[InMemorySessionService, list[ContractAgent]]] = {}


class FrameworkAgent(ContractAgent):
    modes = ("async", "sync", "stream")

    def __init__(self, folder: Path, script: ContractScript, **settings: Any) -> None:
        super().__init__(folder, script)
        self.plugin = plugin(folder, **settings)

        async def wait(path: str) -> str:
            """Wait forever."""
            self.waits.set()
            await asyncio.Event().wait()
            return path

        worker = agent(Scripted(script=self._reply), tools=[read, fail, crash, wait])
        self._folder = folder
        sessions, users = _SERVICES.setdefault(folder, (InMemorySessionService(), []))
        users.append(self)
        self._runner = runner(worker, self.plugin, sessions)

    def _reply(self, _: int, request: LlmRequest) -> types.Content:
        parts = [part for content in request.contents for part in content.parts or ()]
        calls = [part.function_call.args for part in parts if part.function_call]
        results = [part.function_response.response for part in parts if part.function_response]
        words = [part.text for part in parts if part.text]
        tokens = sum(map(_count, map(str, [*calls, *results, *words])))
        reply = self.reply(words, tokens)
        if isinstance(reply, str):
            return said(reply)
        function_calls = [
            types.FunctionCall(name=name, args={"path": path}) for name, path, _id in paths(reply)
        ]
        return types.Content(
            role="model", parts=[types.Part(function_call=c) for c in function_calls]
        )

    async def run(self, text: str, conversation: str = "t", mode: str = "async") -> Outcome:
        options: Any = {
            "user_id": "u",
            "session_id": conversation,
            "new_message": said(text, "user"),
        }
        if mode == "sync":
            events = list(self._runner.run(**options))
        else:
            streaming = StreamingMode.SSE if mode == "stream" else StreamingMode.NONE
            config = RunConfig(streaming_mode=streaming)
            events = [event async for event in self._runner.run_async(run_config=config, **options)]
        results = [one.response for event in events for one in event.get_function_responses()]
        answer = (events[-1].content or said("")).parts or []
        return Outcome(answer[0].text or "", [str(result) for result in results])

    async def close(self) -> None:
        _SERVICES[self._folder][1].remove(self)
        if not _SERVICES[self._folder][1]:  # as with the end of a process
            del _SERVICES[self._folder]
        await self._runner.close()

    @staticmethod
    def refusal() -> Exception:
        return refusal()

    @staticmethod
    def session_id(conversation: str) -> str:
        return f"app/u/{conversation}/worker"

    @property
    def pool(self) -> Conversations[Any]:
        return self.plugin._pool  # pyright: ignore[reportPrivateUsage]
