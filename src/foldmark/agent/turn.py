"""A turn: from what the user says to the model's last word, however many steps that takes.

In each round: a compaction that is queued, then one that the window needs, then a step. What the
user says meanwhile comes before the agent goes on by itself. One flow, which is async; the
blocking form lets it run in the background.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from msgspec import UNSET

from foldmark import events
from foldmark.acts import Act
from foldmark.asking import Ask, Refused
from foldmark.errors import Aborted, BadInput, ModelFailed
from foldmark.io.background import uncut, waited
from foldmark.io.models import kept_open
from foldmark.ladder import added
from foldmark.messages import (
    AnyPart,
    AssistantInfo,
    Cache,
    Message,
    Number,
    Path,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.session.maker import Content
from foldmark.session.session import Session
from foldmark.shown import AnyShown, FromAssistant
from foldmark.stepping import STEP, Stepped

from . import calls
from .delegates import handed_on
from .stepping import Answer, answered, with_own_ids
from .summing import summed_up
from .titles import first_words, title
from .tool import Context

if TYPE_CHECKING:
    from .agent import Agent

T = TypeVar("T")
Ending = Literal["stop", "length", "steps", "cost", "aborted"]
GO_ON = "Go on with what is still to be done."
_GRACE = 10.0  # seconds that a turn has to end after an interrupt


class Ended(NamedTuple):
    """How a turn ended."""

    text: str  # the model's last words
    ended: Ending
    steps: int
    cost: float  # dollars, as far as prices are known
    tokens: Tokens  # of all requests together
    files: tuple[str, ...]  # that changed
    session: Session


class Turn:
    """One turn of an agent in a session."""

    def __init__(self, agent: "Agent", session: Session, said: Content | None) -> None:
        """Take what the user says; nothing, where a session is to go on as it is."""
        self.agent = agent
        self.session = session
        self._waiting: deque[Content] = deque([] if said is None else [said])
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._steps = 0
        self._cost = 0.0
        self._tokens = Tokens(input=0, output=0, reasoning=0, cache=Cache(read=0, write=0))
        self._text = ""
        self._tree: str | None = None  # of the working folder, as it was seen last
        self._first: str | None = None  # the tree with which the turn began
        self._asked: str | None = None  # the id of the user's message
        self._words = ""  # and what it says
        self._newest: Message | None = None  # what was said last, until it is looked at

    # --- from outside, at any time and from any thread ---

    def say(self, said: Content) -> None:
        """Say something more; it is shown to the model with its next step."""
        self._waiting.append(said)

    def abort(self) -> None:
        """Stop: what was said and done until now is kept."""
        self._stopping.set()
        self.session.abort()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def run(self) -> Ended:
        """Work until the end."""
        try:
            return waited(self.arun())
        except KeyboardInterrupt:
            self._over.wait(_GRACE)  # the session is left as it shall be found
            raise

    async def arun(self) -> Ended:
        """`run`, async."""
        self._loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            self._stop.set()
        try:
            with self.agent.working(self.session):
                async with kept_open(self.agent.model):
                    return await self._whole()
        finally:
            self._over.set()

    async def _whole(self) -> Ended:
        await uncut(self.agent.prepare, self.session)
        self._tree = self._first = await uncut(self._recovered)
        await self._say_waiting()
        self.session.tell(events.TURN_STARTED, message=self._asked, agent=self.agent.name)
        naming = asyncio.create_task(self._title())
        try:
            ending = await self._rounds()
            await uncut(self.session.prune)
            files = await self._summed_up("" if ending == "aborted" else await naming)
        finally:
            naming.cancel()
        self.session.tell(
            events.TURN_FINISHED, ended=ending, steps=self._steps, cost=self._cost, files=len(files)
        )
        return Ended(self._text, ending, self._steps, self._cost, self._tokens, files, self.session)

    async def _title(self) -> str:
        found, cost = await title(self.agent.model if self.agent.titles else None, self._words)
        self._cost += cost
        return found

    async def _summed_up(self, name: str) -> tuple[str, ...]:
        held = await uncut(self.agent.snapshots, self.session)
        return await uncut(
            summed_up,
            self.session,
            held,
            (self._first, self._tree),
            asked=self._asked,
            title=name or first_words(self._words),
        )

    def _recovered(self) -> str | None:
        """Close what an earlier process left open; the tree of the folder as it is now."""
        session = self.session
        calls.close_open(session, calls.DIED)
        tree = self.agent.snapshot(session)
        last = self._newest = session.newest()
        if last is not None and tree is not None and _is_unfinished(last):
            session.finish_step(last.id, tree)
        return tree

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
        if self._steps >= self.agent.steps:
            return "steps"
        most = self.agent.cost
        return "cost" if most is not None and self._cost >= most else None

    async def _say_waiting(self) -> None:
        while self._waiting:
            message = await uncut(self.session.user, self._waiting.popleft(), agent=self.agent.name)
            self._newest = message
            if self._asked is None:
                self._asked, self._words = message.id, _words(message.parts)

    async def _handed_on(self) -> Stepped | None:
        """What the user hands to other agents, done before the model is asked."""
        newest, self._newest = self._newest, None
        stepped = None if newest is None else handed_on(newest)
        if stepped is not None:
            stepped = self._with_ids(stepped)
            await self._call(await uncut(self._record, Answer(self.session), stepped))
        return stepped

    async def _step(self) -> Stepped:
        """A request that fits, its answer, and what its calls did."""
        answer = Answer(self.session)
        outcome = await self._answer(answer)
        if isinstance(outcome, Refused) and outcome.cause == "overflow":
            await self._fold_after(outcome)
            outcome = await self._answer(answer)
        if isinstance(outcome, Refused):
            raise ModelFailed(self.agent.model.name, outcome.cause, outcome.message)
        stepped = self._with_ids(outcome)
        message = await uncut(self._record, answer, stepped)
        if stepped.calls:
            await self._call(message)
        return stepped

    def _with_ids(self, stepped: Stepped) -> Stepped:
        return with_own_ids(stepped, lambda: f"call_{self.session.maker.made('').part}")

    async def _answer(self, answer: Answer) -> Stepped | Refused:
        """The model's answer to a view that fits."""
        shown = await uncut(self._fitting)
        if shown is None:
            self._count_fold(await self._unless_stopped(self.session.afit()))
            shown = await self._view()
        self._steps += 1
        self.session.tell(events.STEP_STARTED, step=self._steps, tokens=self.session.tokens)
        asking = answered(self.agent.model, self._ask(shown), answer, self.agent.patience)
        try:
            return await self._unless_stopped(asking)
        except (Aborted, asyncio.CancelledError):
            await uncut(self._record_cut_off, answer)
            raise

    def _fitting(self) -> tuple[AnyShown, ...] | None:
        """What the model is shown, where that fits as it is; as it does most of the time."""
        session = self.session
        if session.pending() is not None or (
            session.limit is not None and session.plan(explain=False).overflow
        ):
            return None
        shown = session.view().messages
        return None if not shown or isinstance(shown[-1], FromAssistant) else shown

    async def _view(self) -> tuple[AnyShown, ...]:
        """What the model is shown, which ends with words that are not its own."""
        shown = await uncut(lambda: self.session.view().messages)
        if not shown or isinstance(shown[-1], FromAssistant):
            if not shown:
                raise BadInput(f"session {self.session.id} is empty; say what is to be done")
            part = TextPart(text=GO_ON, synthetic=True)
            await uncut(self.session.user, (part,), agent=self.agent.name)
            shown = await uncut(lambda: self.session.view().messages)
        return shown

    def _ask(self, shown: tuple[AnyShown, ...]) -> Ask:
        session = self.session
        limit = session.limit
        most = session.policy.window.output_cap
        if limit is not None:
            free = limit.context - session.room if limit.context else most
            most = min(most, limit.output or most, max(free, 1))
        return Ask(
            messages=shown, system=session.system, tools=session.tools, most=most, purpose=STEP
        )

    async def _fold_after(self, refused: Refused) -> None:
        """Make room after a provider has said that it was too much."""
        session = self.session
        if not session.policy.auto:
            raise ModelFailed(self.agent.model.name, refused.cause, refused.message)
        plan = await uncut(session.plan, explain=False)
        # By our own count it was not too much: then our count, or the window, is not the model's.
        target = None if plan.overflow else max(plan.tokens - session.fixed, 2) // 2
        folded = await self._unless_stopped(
            session.acompact(auto=True, overflow=True, target=target)
        )
        if folded is None:
            raise ModelFailed(self.agent.model.name, refused.cause, refused.message)
        self._count_fold(folded)

    def _count_fold(self, act: Act | None) -> None:
        if act is not None:
            self._cost += self.session.cost_of(act)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What some work gives; Aborted, and the work is cancelled, where the turn is to stop."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Aborted
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=_GRACE)

    # --- what is written ---

    def _record(self, answer: Answer, stepped: Stepped) -> Message:
        self._foresee(stepped.calls)
        now = self.session.maker.now()
        parts = [calls.begun(p, now) if isinstance(p, ToolPart) else p for p in stepped.parts]
        may_change = self.agent.hands.may_change(stepped.calls)
        finish = StepFinishPart(
            reason=stepped.finish,
            tokens=stepped.tokens or UNSET,
            cost=stepped.cost or 0,
            # Where files may change, the tree after that is noted when it is known.
            snapshot=UNSET if may_change else self._tree or UNSET,
        )
        self._note(stepped)
        message = self.session.record(
            (*answer.retried, self._start(), *parts, finish),
            tokens=stepped.tokens,
            finish=stepped.finish,
            cost=stepped.cost or 0,
            **self._told(),
        )
        self.session.tell(
            events.STEP_FINISHED,
            step=self._steps,
            message=message.id,
            finish=stepped.finish,
            calls=len(stepped.calls),
            cost=self._cost,
            tokens=_figures(stepped.tokens),
            used=self.session.tokens,
            usable=self.session.room,
        )
        return message

    def _record_cut_off(self, answer: Answer) -> None:
        """What was said of an answer until it was cut off, marked as that."""
        parts: tuple[AnyPart, ...] = answer.so_far
        if not parts:
            return
        error = {"name": "MessageAbortedError", "data": {"message": "stopped by the user"}}
        info = {**self._told(), "error": error, "finish": UNSET}
        maker = self.session.maker
        message = maker.assistant((self._start(), *parts), info, self.session.model)
        self._text = _words(parts)
        self.session.record(message)

    def _start(self) -> StepStartPart:
        return StepStartPart(snapshot=self._tree or UNSET)

    def _told(self) -> dict[str, Any]:
        folder = self.agent.folder
        told: dict[str, Any] = {"agent": self.agent.name, "mode": self.agent.name}
        if self._asked:
            told["parent_id"] = self._asked
        if folder is not None:
            told["path"] = Path(cwd=str(folder), root=str(folder))
        return told

    def _note(self, stepped: Stepped) -> None:
        self._text = _words(stepped.parts) or self._text
        self._cost += stepped.cost or 0.0
        self._tokens = added(self._tokens, stepped.tokens) or self._tokens

    async def _call(self, message: Message) -> None:
        """Run the calls of an answer, and note what the folder is like after them."""
        hands = self.agent.hands
        context = Context(
            session=self.session,
            folder=self.agent.folder or self.agent.here,
            call_id="",
            agent=self.agent.name,
            aborted=self._stop,
        )
        parts = [part for part in message.parts if isinstance(part, ToolPart)]
        may_change = hands.may_change(parts)
        did = calls.Did()
        try:
            did = await calls.done(self.session, parts, hands, context)
        finally:
            if may_change:
                await uncut(self._finish, message, parts, did.files)
        self._cost += did.cost

    def _include(self, paths: Sequence[str]) -> bool:
        """What a tool writes is remembered, even where other files like it are not."""
        held = self.agent.snapshots(self.session)
        return bool(held is not None and paths and held.include(paths))

    def _foresee(self, parts: Sequence[ToolPart]) -> None:
        """Have in the tree, before a step begins to write, what is there of what it will write."""
        paths = self.agent.hands.named(parts)
        if self._include(paths):
            self._tree = self.agent.snapshot(self.session, paths)

    def _finish(self, message: Message, parts: Sequence[ToolPart], files: Sequence[str]) -> None:
        self._include(files)
        tree = self.agent.snapshot(self.session, self.agent.hands.touched(parts))
        if tree is not None:
            self._tree = tree
            self.session.finish_step(message.id, tree)


def _is_unfinished(message: Message) -> bool:
    """Whether a step may have changed files, and nobody noted how they were after it."""
    finish = [part for part in message.parts if isinstance(part, StepFinishPart)]
    return isinstance(message.info, AssistantInfo) and any(not part.snapshot for part in finish)


def _figures(tokens: Tokens | None) -> dict[str, Number]:
    """What was measured, as plain figures."""
    cache = (tokens.cache if tokens else None) or Cache()
    return {
        "input": (tokens.input if tokens else None) or 0,
        "output": (tokens.output if tokens else None) or 0,
        "cache_read": cache.read or 0,
        "cache_write": cache.write or 0,
    }


def _words(parts: Sequence[AnyPart]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)
