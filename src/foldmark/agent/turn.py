"""A turn: from what the user says to the model's last word, however many steps that takes.

In each round: a compaction that is queued, then one that the window needs, then a step. What the
user says meanwhile comes before the agent goes on by itself. One flow, which is async; the
blocking form lets it run in the background.
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
from foldmark.providers.background import uncut, waited
from foldmark.providers.models import kept_open
from foldmark.session.loop_support import LoopSupport
from foldmark.session.maker import Content
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import stopped_by
from foldmark.summary.protocol import STEP, Model, ModelFailure, ModelRequest, Stepped
from foldmark.tokens.budget import is_overflow

from . import tool_calls as calls
from .recorder import FolderSnapshots, TurnRecorder
from .step import RetryPolicy, StreamedAnswer, answered, with_own_ids
from .titles import title
from .tool import Context

T = TypeVar("T")
Ending = Literal["stop", "length", "steps", "cost", "aborted"]
DELEGATE = "delegate"  # the tool that hands a task to another agent
GO_ON = "Go on with what is still to be done."
_GRACE = 10.0  # seconds that a turn has to end after an interrupt


class TurnResult(NamedTuple):
    """How a turn ended."""

    text: str  # the model's last words
    ended: Ending
    steps: int
    cost: float  # dollars, as far as prices are known
    tokens: Tokens  # of all requests together
    files: tuple[str, ...]  # that changed
    session: Session


class Worker(Protocol):
    """What a turn needs of its agent."""

    name: str
    model: Model
    toolbox: calls.Toolbox
    changes: FolderSnapshots
    retry: RetryPolicy
    titles: bool
    here: Path
    steps: int
    cost: float | None

    def prepare(self, session: Session) -> None:
        """Make a session ready for the agent's model, prompt and tools."""
        ...


class Turn:
    """One turn of an agent in a session; it is used once."""

    def __init__(self, agent: Worker, session: Session, said: Content | None) -> None:
        """Take what the user says; nothing, where a session is to go on as it is."""
        self.agent = agent
        self.session = session
        self._support = LoopSupport(session)
        self._record = TurnRecorder(session, agent.name, agent.toolbox, agent.changes)
        self._waiting: deque[Content] = deque([] if said is None else [said])
        self._door = threading.Lock()  # held where words come in, and where that ends
        self._is_open = True
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._unseen: list[Message] = []  # what was said and not yet looked at

    # --- from outside, at any time and from any thread ---

    def say(self, said: Content) -> None:
        """Say something more; it is shown to the model with its next step."""
        with self._door:
            if not self._is_open:
                raise BadInput("the turn is over; begin another one with these words")
            self._waiting.append(said)

    def abort(self) -> None:
        """Stop: what was said and done until now is kept."""
        self._stopping.set()
        self.session.abort()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def cost(self) -> float:
        """The dollars that it has cost so far."""
        return self._record.cost

    def run(self) -> TurnResult:
        """Work until the end."""
        try:
            return waited(self.arun())
        except KeyboardInterrupt:
            self._stopping.set()
            self._over.wait(_GRACE)  # the session is left as it shall be found
            raise

    async def arun(self) -> TurnResult:
        """`run`, async."""
        if self._loop is not None:
            raise BadInput("a turn is used once; begin another one")
        self._loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            self._stop.set()
        try:
            with self._support.turn(), stopped_by(self._stopping):
                async with kept_open(self.agent.model):
                    return await self._whole()
        finally:
            self._over.set()

    async def _whole(self) -> TurnResult:
        await uncut(self.agent.prepare, self.session)
        newest = await uncut(self._record.begin)
        self._unseen = [] if newest is None else [newest]
        await self._say_waiting()
        self.session.publish(events.TURN_STARTED, message=self._record.asked, agent=self.agent.name)
        naming = asyncio.create_task(self._title())
        try:
            ending, name = await self._all_rounds(naming)
            await uncut(self.session.prune)
        except BaseException as error:
            await self._close("", "failed" if isinstance(error, Exception) else "cancelled")
            raise
        finally:
            naming.cancel()
        files = await self._close(name, ending)
        held = self._record
        return TurnResult(
            held.text, ending, held.steps, held.cost, held.tokens, files, self.session
        )

    async def _all_rounds(self, naming: "asyncio.Task[str]") -> tuple[Ending, str]:
        """Rounds until nobody has anything more to say; how they ended, and the turn's title."""
        while True:
            ending = await self._rounds()
            name = ""
            if ending in ("stop", "length"):
                try:
                    name = await self._unless_stopped(asyncio.shield(naming))
                except Aborted:
                    ending = "aborted"
            with self._door:
                if not self._waiting or ending not in ("stop", "length"):
                    self._is_open = False
                    return ending, name

    async def _close(self, name: str, ending: str) -> tuple[str, ...]:
        """Write what is left to be written, however the turn ended."""
        with self._door:
            self._is_open = False
        await self._say_waiting()  # for the next turn: nothing that was said is lost
        files = await uncut(self._record.sum_up, name)
        held = self._record
        self.session.publish(
            events.TURN_FINISHED, ended=ending, steps=held.steps, cost=held.cost, files=len(files)
        )
        return files

    async def _title(self) -> str:
        model = self.agent.model if self.agent.titles else None
        found, cost = await title(model, self._record.words)
        self._record.cost += cost
        return found

    # --- rounds ---

    async def _rounds(self) -> Ending:
        while True:
            if (ending := self._bound()) is not None:
                return ending
            await self._say_waiting()
            try:
                stepped = await self._handed_on() or await self._step()
            except Aborted:
                return "aborted"
            if stepped.calls or self._waiting:
                continue
            return "length" if stepped.finish == "length" else "stop"

    def _bound(self) -> Ending | None:
        if self._stopping.is_set():
            return "aborted"
        if self._record.steps >= self.agent.steps:
            return "steps"
        most = self.agent.cost
        return "cost" if most is not None and self._record.cost >= most else None

    async def _say_waiting(self) -> None:
        while self._waiting:
            self._unseen.append(await uncut(self._record.say, self._waiting.popleft()))

    async def _handed_on(self) -> Stepped | None:
        """What the user hands to other agents, done before the model is asked."""
        unseen, self._unseen = self._unseen, []
        tasks = [
            {"agent": part.agent or "", "task": part.prompt or ""}
            for message in unseen
            for part in message.parts
            if message.is_user and isinstance(part, SubtaskPart)
        ]
        if not tasks:
            return None
        parts = tuple(ToolPart(tool=DELEGATE, state=Pending(input=task)) for task in tasks)
        stepped = Stepped(parts=parts, finish="tool-calls")
        return await self._done(StreamedAnswer(self.session), stepped)

    async def _step(self) -> Stepped:
        """A request that fits, its answer, and what its calls did."""
        answer = StreamedAnswer(self.session)
        outcome = await self._answer(answer)
        if isinstance(outcome, ModelFailure) and outcome.cause == "overflow":
            answer.forget()
            await self._fold_after(outcome)
            outcome = await self._answer(answer)
        if isinstance(outcome, ModelFailure):
            raise ModelFailed(self.agent.model.name, outcome.cause, outcome.message)
        return await self._done(answer, outcome)

    async def _answer(self, answer: StreamedAnswer) -> Stepped | ModelFailure:
        """The model's answer to a view that fits."""
        self._count_fold(await self._unless_stopped(self.session.afit()))
        shown = await self._view()
        self._record.steps += 1
        self.session.publish(
            events.STEP_STARTED, step=self._record.steps, tokens=self.session.tokens
        )
        asking = answered(self.agent.model, self._ask(shown), answer, self.agent.retry)
        try:
            return await self._unless_stopped(asking)
        except (Aborted, asyncio.CancelledError):
            await uncut(self._record.cut_off, answer)
            raise

    async def _view(self) -> tuple[PromptMessage, ...]:
        """What the model is shown, which ends with words that are not its own."""
        shown = await uncut(lambda: self.session.view().messages)
        if not shown:
            raise BadInput(f"session {self.session.id} is empty; say what is to be done")
        if isinstance(shown[-1], AssistantMessage):
            part = TextPart(text=GO_ON, synthetic=True)
            await uncut(self.session.user, (part,), agent=self.agent.name)
            shown = await uncut(lambda: self.session.view().messages)
        return shown

    def _ask(self, shown: tuple[PromptMessage, ...]) -> ModelRequest:
        session = self.session
        limit = session.limit
        most = session.policy.window.output_cap
        if limit is not None:
            free = limit.context - session.room if limit.context else most
            most = min(most, limit.output or most, max(free, 1))
        return ModelRequest(
            messages=shown, system=session.system, tools=session.tools, most=most, purpose=STEP
        )

    async def _fold_after(self, refused: ModelFailure) -> None:
        """Make room after a provider has said that it was too much."""
        session = self.session
        failed = ModelFailed(self.agent.model.name, refused.cause, refused.message)
        if not session.policy.auto:
            raise failed
        tokens, limit = await uncut(lambda: session.tokens), session.limit
        # By our own count it was not too much: then our count, or the window, is not the model's.
        fits = limit is None or not is_overflow(session.policy, tokens, limit, session.model)
        target = max(tokens - session.fixed, 2) // 2 if fits else None
        folding = session.acompact(auto=True, overflow=True, target=target)
        try:
            folded = await self._unless_stopped(folding)
        except (CompactionStopped, WindowTooSmall) as error:
            raise failed from error  # what the provider said is the reason
        if folded is None:
            raise failed
        self._count_fold(folded)

    def _count_fold(self, act: Operation | None) -> None:
        if act is not None:
            self._record.cost += self._support.cost_of(act)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        """What some work gives; Aborted, and the work is cancelled, where the turn is to stop."""
        return await calls.unless_stopped(work, self._stop, _GRACE)

    # --- what is done ---

    async def _done(self, answer: StreamedAnswer, outcome: Stepped) -> Stepped:
        """An answer written, and its calls run; whatever happens, none of them stays open."""
        stepped = with_own_ids(outcome, lambda: f"call_{self._support.maker.make_id('prt')}")
        try:
            message = await uncut(self._record.answer, answer, stepped)
            if stepped.calls:
                await self._call(message, calls.cut_call(stepped))
        except asyncio.CancelledError:
            named = {part.call_id or "" for part in stepped.calls}
            await uncut(calls.close_open, self.session, calls.CUT_OFF, named)
            raise
        return stepped

    async def _call(self, message: Message, cut: str | None) -> None:
        """Run the calls of an answer, and note what the folder is like after them."""
        hands = self.agent.toolbox
        context = Context(
            session=self.session,
            folder=self.agent.here,
            call_id="",
            agent=self.agent.name,
            aborted=self._stop,
        )
        parts = [part for part in message.parts if isinstance(part, ToolPart)]
        did = calls.CallsOutcome()
        try:
            did = await calls.done(parts, hands, context, cut=cut)
        finally:
            if hands.may_change(parts):
                await uncut(self._record.finish, message, did.files)
        self._record.cost += did.cost
