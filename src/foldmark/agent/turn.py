"""A turn: from the user's request to the model's final text, in as many steps as it takes.

Each round runs a queued compaction, then one that the window needs, then a step. What the user
adds meanwhile goes in before the next step. The flow is async; the blocking form runs it on a
background event loop.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from foldmark.errors import Aborted, BadInput, CompactionStopped, ModelFailed, WindowTooSmall
from foldmark.model import events
from foldmark.model.messages import Message, Pending, SubtaskPart, TextPart, Tokens, ToolPart
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import AssistantMessage, PromptMessage
from foldmark.providers.background import run_sync, run_uninterrupted
from foldmark.providers.models import keep_open
from foldmark.session.loop_support import LoopSupport
from foldmark.session.message_builder import Content
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import stop_on
from foldmark.summary.protocol import STEP, Model, ModelFailure, ModelRequest, StepReply
from foldmark.tokens.budget import is_overflow

from . import tool_calls as calls
from .recorder import FolderSnapshots, TurnRecorder
from .step import AnswerStream, RetryPolicy, request_answer, with_unique_call_ids
from .titles import make_title
from .tool import Context

T = TypeVar("T")
Ending = Literal["stop", "length", "steps", "cost", "aborted"]
DELEGATE_TOOL = "delegate"  # the tool that gives a task to another agent
CONTINUE = "Go on with what is still to be done."
_GRACE = 10.0  # seconds for a turn to end after an interrupt


class TurnResult(NamedTuple):
    """How a turn ended."""

    text: str  # the model's final text
    ending: Ending
    steps: int
    cost: float  # dollars, as far as prices are known
    tokens: Tokens  # the sum over all requests
    files: tuple[str, ...]  # files that changed
    session: Session


class Worker(Protocol):
    """The attributes of an agent that a turn uses."""

    name: str
    model: Model
    toolbox: calls.Toolbox
    snapshots: FolderSnapshots
    retry: RetryPolicy
    titles: bool
    here: Path
    max_steps: int
    max_cost: float | None

    def prepare(self, session: Session) -> None:
        """Configure a session for the agent's model, system prompt and tools."""
        ...


class Turn:
    """One turn of an agent in a session; it can run once."""

    def __init__(self, agent: Worker, session: Session, content: Content | None) -> None:
        """Create a turn with the user's content; None continues the session as it is."""
        self.agent = agent
        self.session = session
        self._support = LoopSupport(session)
        self._record = TurnRecorder(session, agent.name, agent.toolbox, agent.snapshots)
        self._waiting: deque[Content] = deque([] if content is None else [content])
        self._lock = threading.Lock()  # guards _waiting and _is_open
        self._is_open = True
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._new_messages: list[Message] = []  # not yet searched for subtasks

    # --- callable at any time, from any thread ---

    def say(self, content: Content) -> None:
        """Add a message of the user; the model sees it in the next step."""
        with self._lock:
            if not self._is_open:
                raise BadInput("the turn is over; start another one with this message")
            self._waiting.append(content)

    def abort(self) -> None:
        """Stop the turn; everything up to now stays in the session."""
        self._stopping.set()
        self.session.abort()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def cost(self) -> float:
        """Dollars spent so far."""
        return self._record.cost

    def run(self) -> TurnResult:
        """Run the turn to its end."""
        try:
            return run_sync(self.arun())
        except KeyboardInterrupt:
            self._stopping.set()
            self._finished.wait(_GRACE)  # let the turn close the session's open calls
            raise

    async def arun(self) -> TurnResult:
        """`run`, async."""
        if self._loop is not None:
            raise BadInput("a turn can run only once; start another one")
        self._loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            self._stop.set()
        try:
            with self._support.turn(), stop_on(self._stopping):
                async with keep_open(self.agent.model):
                    return await self._run()
        finally:
            self._finished.set()

    async def _run(self) -> TurnResult:
        await run_uninterrupted(self.agent.prepare, self.session)
        newest = await run_uninterrupted(self._record.begin)
        self._new_messages = [] if newest is None else [newest]
        await self._add_waiting()
        self.session.publish(
            events.TURN_STARTED, message=self._record.request_id, agent=self.agent.name
        )
        naming = asyncio.create_task(self._title())
        try:
            ending, name = await self._run_rounds(naming)
            await run_uninterrupted(self.session.prune)
        except BaseException as error:
            await self._close("", "failed" if isinstance(error, Exception) else "cancelled")
            raise
        finally:
            naming.cancel()
        files = await self._close(name, ending)
        record = self._record
        return TurnResult(
            record.text, ending, record.steps, record.cost, record.tokens, files, self.session
        )

    async def _run_rounds(self, naming: "asyncio.Task[str]") -> tuple[Ending, str]:
        """Run rounds until nothing is waiting; return how they ended and the turn's title."""
        while True:
            ending = await self._rounds()
            name = ""
            if ending in ("stop", "length"):
                try:
                    name = await self._unless_stopped(asyncio.shield(naming))
                except Aborted:
                    ending = "aborted"
            with self._lock:
                if not self._waiting or ending not in ("stop", "length"):
                    self._is_open = False
                    return ending, name

    async def _close(self, name: str, ending: str) -> tuple[str, ...]:
        """Write what the turn still has to record, however it ended."""
        with self._lock:
            self._is_open = False
        await self._add_waiting()  # the next turn sees it
        files = await run_uninterrupted(self._record.record_changes, name)
        figures = {"steps": self._record.steps, "cost": self._record.cost, "files": len(files)}
        self.session.publish(events.TURN_FINISHED, ended=ending, **figures)
        return files

    async def _title(self) -> str:
        model = self.agent.model if self.agent.titles else None
        text, cost = await make_title(model, self._record.request_text)
        self._record.cost += cost
        return text

    # --- rounds ---

    async def _rounds(self) -> Ending:
        while True:
            if (ending := self._limit_reached()) is not None:
                return ending
            await self._add_waiting()
            try:
                reply = await self._run_subtasks() or await self._step()
            except Aborted:
                return "aborted"
            if reply.calls or self._waiting:
                continue
            return "length" if reply.finish == "length" else "stop"

    def _limit_reached(self) -> Ending | None:
        if self._stopping.is_set():
            return "aborted"
        if self._record.steps >= self.agent.max_steps:
            return "steps"
        limit = self.agent.max_cost
        return "cost" if limit is not None and self._record.cost >= limit else None

    async def _add_waiting(self) -> None:
        while self._waiting:
            message = await run_uninterrupted(self._record.say, self._waiting.popleft())
            self._new_messages.append(message)

    async def _run_subtasks(self) -> StepReply | None:
        """Run the subtasks that the user gave to other agents, before the model is called."""
        unseen, self._new_messages = self._new_messages, []
        tasks = [
            {"agent": part.agent or "", "task": part.prompt or ""}
            for message in unseen
            for part in message.parts
            if message.is_user and isinstance(part, SubtaskPart)
        ]
        if not tasks:
            return None
        parts = tuple(ToolPart(tool=DELEGATE_TOOL, state=Pending(input=task)) for task in tasks)
        reply = StepReply(parts=parts, finish="tool-calls")
        return await self._finish_step(AnswerStream(self.session), reply)

    async def _step(self) -> StepReply:
        """One request that fits, its answer, and the tool calls of that answer."""
        answer = AnswerStream(self.session)
        outcome = await self._answer(answer)
        if isinstance(outcome, ModelFailure) and outcome.cause == "overflow":
            answer.clear()
            await self._compact_after(outcome)
            outcome = await self._answer(answer)
        if isinstance(outcome, ModelFailure):
            raise ModelFailed(self.agent.model.name, outcome.cause, outcome.message)
        return await self._finish_step(answer, outcome)

    async def _answer(self, answer: AnswerStream) -> StepReply | ModelFailure:
        """Make the view fit and request the model's answer to it."""
        self._add_cost(await self._unless_stopped(self.session.afit()))
        messages = await self._view()
        self._record.steps += 1
        self.session.publish(
            events.STEP_STARTED, step=self._record.steps, tokens=self.session.tokens
        )
        reply = request_answer(self.agent.model, self._ask(messages), answer, self.agent.retry)
        try:
            return await self._unless_stopped(reply)
        except (Aborted, asyncio.CancelledError):
            await run_uninterrupted(self._record.add_partial_answer, answer)
            raise

    async def _view(self) -> tuple[PromptMessage, ...]:
        """The view, ending with a message that is not the model's own."""
        messages = await run_uninterrupted(lambda: self.session.view().messages)
        if not messages:
            raise BadInput(f"session {self.session.id} is empty; give it a task")
        if isinstance(messages[-1], AssistantMessage):
            part = TextPart(text=CONTINUE, synthetic=True)
            await run_uninterrupted(self.session.user, (part,), agent=self.agent.name)
            messages = await run_uninterrupted(lambda: self.session.view().messages)
        return messages

    def _ask(self, messages: tuple[PromptMessage, ...]) -> ModelRequest:
        session = self.session
        limit = session.limit
        max_tokens = session.policy.window.output_cap
        if limit is not None:
            free = limit.context - session.usable if limit.context else max_tokens
            max_tokens = min(max_tokens, limit.output or max_tokens, max(free, 1))
        return ModelRequest(
            messages=messages,
            system=session.system,
            tools=session.tools,
            max_tokens=max_tokens,
            purpose=STEP,
        )

    async def _compact_after(self, refusal: ModelFailure) -> None:
        """Compact the session after the provider refused a request as too long."""
        session = self.session
        failure_error = ModelFailed(self.agent.model.name, refusal.cause, refusal.message)
        if not session.policy.auto:
            raise failure_error
        tokens, limit = await run_uninterrupted(lambda: session.tokens), session.limit
        # If it fits by our own count, that count or the window is wrong: halve the view.
        fits = limit is None or not is_overflow(session.policy, tokens, limit, session.model)
        target = max(tokens - session.fixed_tokens, 2) // 2 if fits else None
        compaction = session.acompact(auto=True, overflow=True, target=target)
        try:
            operation = await self._unless_stopped(compaction)
        except (CompactionStopped, WindowTooSmall) as error:
            raise failure_error from error  # the provider's refusal is the reason to report
        if operation is None:
            raise failure_error
        self._add_cost(operation)

    def _add_cost(self, operation: Operation | None) -> None:
        if operation is not None:
            self._record.cost += self._support.cost_of(operation)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        """The result of some work; raises Aborted and cancels the work if the turn stops."""
        return await calls.run_unless_stopped(work, self._stop, _GRACE)

    # --- recording and tool calls ---

    async def _finish_step(self, answer: AnswerStream, outcome: StepReply) -> StepReply:
        """Record an answer and run its calls; no call stays open, whatever happens."""
        reply = with_unique_call_ids(
            outcome, lambda: f"call_{self._support.builder.make_id('prt')}"
        )
        try:
            message = await run_uninterrupted(self._record.answer, answer, reply)
            if reply.calls:
                await self._run_calls(message, calls.truncated_call(reply))
        except asyncio.CancelledError:
            call_ids = {part.call_id or "" for part in reply.calls}
            await run_uninterrupted(calls.close_open_calls, self.session, calls.CUT_OFF, call_ids)
            raise
        return reply

    async def _run_calls(self, message: Message, truncated: str | None) -> None:
        """Run the calls of an answer, then record the state of the folder."""
        toolbox = self.agent.toolbox
        context = Context(
            session=self.session,
            folder=self.agent.here,
            call_id="",
            agent=self.agent.name,
            aborted=self._stop,
        )
        parts = [part for part in message.parts if isinstance(part, ToolPart)]
        outcome = calls.CallsOutcome()
        try:
            outcome = await calls.run_calls(parts, toolbox, context, truncated=truncated)
        finally:
            if toolbox.may_change(parts):
                await run_uninterrupted(self._record.finish, message, outcome.files)
        self._record.cost += outcome.cost
