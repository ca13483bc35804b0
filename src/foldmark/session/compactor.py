"""Compacting a session: who is asked for a summary, and what is done when the window is full.

What brings a session into its window is a generator that yields the compactions that it needs;
`run` makes them and blocks, `arun` awaits them. While a model is waited for no lock is held: what
is said meanwhile comes after the marker. Where it ends badly, by an error, an abort or Ctrl-C, the
marker is cancelled and nothing else is left.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from foldmark.compaction.fit import FitStep, is_full
from foldmark.compaction.fit import fit as fit_steps
from foldmark.compaction.fold import check_window, session_fold, tokens_used
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import (
    CompactionRequest,
    Situation,
    prepare,
    stop_reason,
    stopped,
)
from foldmark.digest.digest import digest_of
from foldmark.errors import (
    Aborted,
    BadInput,
    BadPolicy,
    CompactionStopped,
    FoldmarkError,
    SessionOvertaken,
    UnknownModel,
    WindowTooSmall,
)
from foldmark.log.carryover import open_request
from foldmark.log.log import marker_part
from foldmark.log.view import Viewer
from foldmark.model import events
from foldmark.model.events import Event
from foldmark.model.messages import Message, Tokens
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Json
from foldmark.providers.background import uncut
from foldmark.providers.driver import adrive, drive
from foldmark.providers.models import limits_name, model_named
from foldmark.refusals import is_context_overflow, stated_window
from foldmark.store.loading import wishes
from foldmark.store.transaction import Change
from foldmark.summary.ladder import USUAL_WINDOW, ModelUsage, SummarizerLimits, Summary, summarize
from foldmark.summary.protocol import Delta, ModelDialogue, Summarizer
from foldmark.summary.redaction import masked
from foldmark.tokens.budget import usable
from foldmark.tokens.limits import Limit, model_limits
from foldmark.wire.formats import request as encode

from . import operations, reader
from .operations import pending
from .operations import prune as _prune
from .settings import DIGEST, Settings
from .state import SessionState

A = TypeVar("A")
T = TypeVar("T")

_GLANCE = 0.02  # seconds between two looks at a lock
_LESS = 0.9  # of a window, after a refusal that states no smaller one
_log = logging.getLogger("foldmark")


# A procedure that yields what is to be done, and is sent what came of each.
Steps = Generator[FitStep, Operation | None, T]


def run(state: SessionState, steps: Steps[T]) -> T:
    """What a procedure returns, its prunes and compactions made in this thread."""
    try:
        step = steps.send(None)
        while True:
            try:
                act = _prune(state) if isinstance(step, Prune) else _compact(state, step)
            except CompactionStopped as error:
                step = steps.throw(error)
            else:
                step = steps.send(act)
    except StopIteration as end:
        return end.value


async def arun(state: SessionState, steps: Steps[T]) -> T:
    """`run`, async: models are asked in the caller's own event loop."""
    step = await uncut(_step, steps.send, None)
    while not isinstance(step, StopIteration):
        try:
            if isinstance(step, Prune):
                act = await uncut(_prune, state)
            else:
                act = await _acompact(state, step)
        except CompactionStopped as error:
            step = await uncut(_step, steps.throw, error)
        else:
            step = await uncut(_step, steps.send, act)
    return step.value


def _step(advance: Callable[[A], FitStep], value: A) -> FitStep | StopIteration:
    """What a procedure needs next, or its end: no thread can raise that to another."""
    try:
        return advance(value)
    except StopIteration as end:
        return end


# --- bringing a session into its window ---


def request(state: SessionState, **wishes: Any) -> CompactionRequest:
    """A compaction of the session as it is now, with what is wished for."""
    asked = CompactionRequest(
        viewer=state.viewer,
        session=state.id,
        limit=state.limit,
        model=state.model,
        fixed=state.fixed,
        system=state.system,
        tools=state.tools,
    )
    return replace(asked, **wishes)


def fit(state: SessionState) -> Steps[Operation | None]:
    """Bring the view into the window: prune, and compact only where that is not enough."""
    if (waiting := pending(state)) is not None:
        # One that is given up, as it frees nothing, does no harm where all fits without it.
        with suppress(CompactionStopped):
            made = yield request(state, act=waiting.number, seen=newest_pivot(state))
            if made is not None and made.in_force:
                return made
    act, asked = None, request(state, auto=True)

    def look() -> tuple[CompactionRequest, int]:
        viewer = state.fresh()
        return replace(asked, viewer=viewer), tokens_used(viewer, fixed=asked.fixed)

    for step in _each(state, fit_steps(look, passes=1)):
        act = yield step
        if isinstance(step, Prune) and act is not None and not state.policy.window.preflight:
            return act  # where only answers are measured, the next tells
    return act


def _each(state: SessionState, steps: Iterator[FitStep]) -> Iterator[FitStep]:
    """These steps; the session is looked at under its lock, which nobody holds between them."""
    while True:
        with state.lock:
            step = next(steps, None)
            if isinstance(step, CompactionRequest):
                step = replace(step, seen=newest_pivot(state))
        if step is None:
            return
        yield step


def sent(state: SessionState, wire: str | None) -> tuple[PromptMessage, ...] | list[Json]:
    """The view as it is sent to a model, on a provider's wire if one is given."""
    shown, origin = reader.view(state).messages, state.row.info.origin
    return shown if wire is None else encode(shown, wire, (origin.system or "") if origin else "")


def compact(
    state: SessionState, text: str | None, tokens: Tokens | None, **wishes: Any
) -> Steps[Operation | None]:
    """One compaction, as the caller asked for it; with this text, that is its summary."""
    asked = request(state, **wishes)
    if text is not None:
        return _complete(state, asked, text, tokens)
    if asked.target is not None and asked.target < 1:
        raise BadInput(f"the target is {asked.target}; it must be a number of tokens")
    return (yield replace(asked, seen=newest_pivot(state)))


def _complete(
    state: SessionState, asked: CompactionRequest, text: str, tokens: Tokens | None
) -> Operation | None:
    """A pivot with the caller's own summary."""
    if not text.strip():
        raise BadInput("a summary must not be empty")

    def summary(marker: int | None) -> Summary:
        viewer, room, fixed = state.viewer, asked.room, state.fixed
        if state.limit is not None and state.policy.tail.capped:
            check_window(viewer, room, fixed=fixed)
        fold = session_fold(viewer, room, fixed=fixed, overflow=asked.overflow, before=marker)
        return Summary(text=text, fold=fold, spent=ModelUsage(tokens=tokens))

    with state.lock:
        wanted = operations.allowed(state, asked)
        return None if wanted is None else operations.complete(state, wanted, summary)


def switch(
    state: SessionState, model: str | None, window: int | None, output: int | None
) -> Steps[list[Operation]]:
    """Go on with another model; where its window is too small, the old one compacts first."""
    settings = _switched(state.settings, model, window, output)
    limit, name = settings.limit(), settings.model or ""
    room = 0 if limit is None else usable(state.policy, limit, name)
    done: list[Operation] = []

    def look() -> tuple[CompactionRequest, int]:
        state.fresh()  # the view, as the other model would be shown it
        viewer = Viewer(state.log, state.policy, model=name, usable=room)
        asked = request(state, limit=limit, model=name)
        return asked, tokens_used(viewer, fixed=state.fixed)

    for step in _each(state, fit_steps(look, prune="never")):
        made = yield step
        if made is None:
            reason = "a hook forbids the compaction that another window needs"
            raise stopped(reason, state.viewer, usable=state.room, fixed=state.fixed)
        done.append(made)
    with state.lock:
        if is_full(*look()):
            raise WindowTooSmall(usable=room, fixed=state.tokens, largest="the view")
        state.settings, state.limit, state.model = settings, limit, name
        state.show(state.log)
    return done


def recover(state: SessionState, error: str | BaseException) -> Steps[bool]:
    """Make the view shorter after a refusal for length; False where the error is another."""
    if not state.policy.auto or not is_context_overflow(error):
        return False
    window = _smaller_window(state.limit, error)
    if window is None or not (yield from switch(state, None, window, None)):
        yield request(state, auto=True, overflow=True, seen=newest_pivot(state))
    return True


def _smaller_window(limit: Limit | None, error: str | BaseException) -> int | None:
    found = stated_window(error)
    if limit is None or not limit.context or (found and found < limit.context):
        return found
    return int(limit.context * _LESS)


def _switched(now: Settings, model: str | None, window: int | None, output: int | None) -> Settings:
    """The settings with another model, or another window of the same."""
    if model is None or model == now.model:
        kept = {"window": window or now.window, "output": output or now.output}
        return replace(now, **kept, input=None if window else now.input)
    # What was set for the old model's server and window does not hold for the new one.
    same = (now.model or "").partition(":")[0] == model.partition(":")[0]
    base_url = now.base_url if same or now.summarizer else None
    return replace(now, model=model, window=window, output=output, input=None, base_url=base_url)


# --- one compaction, from its marker to its summary ---


class _Begun(NamedTuple):
    """A compaction whose marker is queued and claimed."""

    asked: CompactionRequest
    flow: ModelDialogue[Summary]
    model: Summarizer | None
    delta: "WordStream"
    mid_work: bool  # the turn was cut, and may go on by itself


def _compact(state: SessionState, wanted: CompactionRequest) -> Operation | None:
    if state.is_at_it:
        # A subscriber, or another task of a loop: to wait here would be to wait for ever.
        raise BadInput(
            f"a compaction of session {state.id} is being made in this very thread; "
            "wait for its end, or use the async form"
        )
    with state.compacting, state.at_it(), _given_up(state):
        begun = _begin(state, wanted)
        if not isinstance(begun, _Begun):
            return begun
        made = drive(begun.flow, begun.model, delta=begun.delta, aborted=state.aborted)
        return _end(state, begun, made)


async def _acompact(state: SessionState, wanted: CompactionRequest) -> Operation | None:
    async with _held(state.compacting):
        with state.at_it(), _given_up(state):
            begun = await uncut(_begin, state, wanted)
            if not isinstance(begun, _Begun):
                return begun
            made = await adrive(begun.flow, begun.model, delta=begun.delta, aborted=state.aborted)
            return await uncut(_end, state, begun, made)


@asynccontextmanager
async def _held(lock: threading.Lock) -> AsyncGenerator[None]:
    """A lock of threads, waited for without keeping the event loop from its work."""
    while not lock.acquire(blocking=False):
        await asyncio.sleep(_GLANCE)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _given_up(state: SessionState) -> Generator[None]:
    """A compaction that can be aborted; its marker is cancelled where it is not brought to an end.

    Nothing is awaited for that: a cancelled task must not be cancelled once more on the way out.
    """
    state.aborted.clear()
    try:
        yield
    except BaseException as error:
        _give_up(state, error)
        raise


def _give_up(state: SessionState, error: BaseException) -> None:
    """Cancel the marker; where even that cannot be written, it waits for who comes next."""
    reason = str(error) or type(error).__name__

    def job(change: Change) -> None:
        for act in _own(state):
            change.change_act(act.number, failed=reason)
            change.event(events.FAILED, act=act.number, reason=reason)

    with state.at_it(), state.lock, suppress(FoldmarkError):
        if isinstance(error, SessionOvertaken) or not _own(state):
            return
        try:
            state.write(job)
        except SessionOvertaken:
            state.tell_later()


def _own(state: SessionState) -> list[Operation]:
    """The compactions that were begun here and not brought to an end."""
    acts = state.store.acts(state.key, "pivot")
    return [act for act in acts if act.state == "claimed" and act.claimed == state.holder]


def _begin(state: SessionState, wanted: CompactionRequest) -> _Begun | Operation | None:
    """The marker queued and claimed; or what else there is to return."""
    with state.at_it(), state.lock:
        state.fresh()
        if (number := _superseded(state, wanted)) is not None:
            return state.act(number)  # another thread or process was quicker
        if pending(state) is None and (state.policy.auto or not wanted.auto):
            # Refused before anything is written, where it makes no sense to compact.
            _prepare(state, wanted)
        asked = operations.allowed(state, wanted)
        if asked is None:
            return None
        act = state.act(state.write(lambda change: _claim(state, change, asked)))
        return _begin_on(state, act, asked) if act.state == "claimed" else act


def _superseded(state: SessionState, wanted: CompactionRequest) -> int | None:
    """The number of the compaction that is taken in the stead of the one that is wanted."""
    waiting = pending(state)
    if wanted.act is not None and (waiting is None or waiting.number != wanted.act):
        return wanted.act
    newer = newest_pivot(state) if waiting is None else 0
    return newer if newer > wanted.seen else None


def newest_pivot(state: SessionState) -> int:
    """The number of the newest pivot in force; who saw an older one has been overtaken."""
    acts = state.store.acts(state.key, "pivot")
    return max((act.number for act in acts if act.in_force), default=0)


def _prepare(state: SessionState, asked: CompactionRequest) -> Situation:
    """What a compaction knows; CompactionStopped for an automatic one that frees nothing again."""
    ready = prepare(replace(asked, viewer=state.viewer))
    reason = asked.auto and stop_reason(
        [act for act in state.store.acts(state.key) if _was_automatic(state, act)],
        state.log,
        state.policy.compact,
        fixed=state.fixed,
        foreseen=ready.min_freed_share,
        read=lambda place: _folded_message(state, place),
    )
    if reason:
        raise stopped(reason, state.viewer, usable=state.room, fixed=state.fixed)
    return ready


def _was_automatic(state: SessionState, act: Operation) -> bool:
    """Whether a pivot came by itself: what the user did by hand is no thrashing."""
    if act.kind != "pivot" or act.marker is None:
        return False
    entry = state.log.entries.get(act.marker)
    message = entry.message if entry else _folded_message(state, act.marker)
    part = marker_part(message) if message else None
    return part is not None and bool(part.auto)


def _folded_message(state: SessionState, place: int) -> Message | None:
    held = state.store.message_at(state.key, place)
    return None if held is None else held.message


def _claim(state: SessionState, change: Change, asked: CompactionRequest) -> int:
    """The compaction that is to be made now, or the one that was made meanwhile."""
    if (number := _superseded(state, asked)) is not None:
        return number
    number = operations.queued(state, change, asked)
    change.claim(number, state.holder)
    change.event(events.STARTED, act=number)
    return number


def _begin_on(state: SessionState, act: Operation, asked: CompactionRequest) -> _Begun:
    asked = _as_queued(state, act, asked)
    # One that was queued has not been held against the breaker yet.
    ready, model = _prepare(state, asked), summarizer(state)
    return _Begun(
        asked=asked,
        flow=summarize(ready, summarizer_limits(asked, model)),
        model=model,
        delta=_word_stream(state, act),
        mid_work=asked.auto and open_request(state.log, act.marker or 0) is not None,
    )


def _as_queued(state: SessionState, act: Operation, asked: CompactionRequest) -> CompactionRequest:
    """With what was wished for when the compaction was queued, here or by another process."""
    entry = state.log.entries.get(act.marker or 0)
    part = marker_part(entry.message) if entry else None
    if part is not None:
        asked = replace(asked, auto=bool(part.auto), overflow=bool(part.overflow))
    data = wishes(state.store.engine, state.key, act.number)
    return replace(
        asked,
        act=act.number,
        marker=act.marker or 0,
        instructions=asked.instructions or str(data.get("instructions") or ""),
        context=tuple(map(str, data.get("context") or asked.context)),
        prompt=data.get("prompt") or asked.prompt,
    )


def _end(state: SessionState, begun: _Begun, made: Summary) -> Operation:
    """The pivot made of a summary."""
    begun.delta.end()
    if state.aborted.is_set():
        raise Aborted
    resume = begun.mid_work and state.hooks.may_continue(state.id)
    with state.at_it(), state.lock:
        return operations.complete(state, begun.asked, lambda _: made, resume=resume)


# --- who is asked ---


def summarizer(state: SessionState) -> Summarizer | None:
    """The model that summarises: the one that is set, else the session's; None for none."""
    if state.setup.summarizer is not None:
        return state.setup.summarizer
    if state.settings.summarizer is None and state.usual_summarizer is not None:
        return state.usual_summarizer
    name = state.settings.summarizer or state.model
    if name in {"", DIGEST}:
        return None
    if state.reached is None or state.reached[0] != name:
        state.reached = (name, _reach(name, state.settings.base_url))
    return state.reached[1]


def _reach(name: str, base_url: str | None) -> Summarizer | None:
    try:
        return model_named(name, base_url=base_url)
    except BadPolicy as error:
        _log.warning("summaries will be digests, as no model can be asked: %s", error)
        return None


def summarizer_limits(asked: CompactionRequest, model: Summarizer | None) -> SummarizerLimits:
    """Within which bounds a model is asked; without rungs where nobody can be asked."""
    rules = asked.viewer.policy.compact
    own = model is not None and model.name == asked.model
    known = asked.limit if own or model is None else _known_limit(model.name)
    return SummarizerLimits(
        digest=digest_of,
        rules=rules if model is not None else replace(rules, rungs=()),
        limit=known or asked.limit or Limit(context=USUAL_WINDOW),
        own=own,
        clock=time.monotonic,
        name="" if model is None else model.name,
    )


def _known_limit(name: str) -> Limit | None:
    with suppress(UnknownModel):
        return model_limits(limits_name(name))
    return None


def _word_stream(state: SessionState, act: Operation) -> "WordStream":
    """Tells subscribers of each piece of an answer; these events are not kept."""

    def tell(piece: str) -> None:
        with state.at_it():  # who is told here must not wait for the compaction's end
            publish(state, events.DELTA, {"act": act.number, "text": piece})

    return WordStream(tell, masked if state.policy.compact.mask else str)


def publish(state: SessionState, kind: str, data: Json) -> None:
    """Tell subscribers of something that is not kept."""
    event = Event(number=0, session=state.id, kind=kind, at=state.maker.now(), data=data)
    state.bus.publish([event])


class WordStream:
    """Passes an answer on word by word, so that a secret is whole when it is masked."""

    def __init__(self, tell: Delta, mask: Callable[[str], str]) -> None:
        """Take who is told, and what is done to each piece."""
        self._tell = tell
        self._mask = mask
        self._rest = ""

    def __call__(self, piece: str) -> None:
        """Take a piece; what is after its last space waits for more."""
        text = self._rest + piece
        end = max(text.rfind(" "), text.rfind("\n")) + 1
        self._rest = text[end:]
        if end:
            self._tell(self._mask(text[:end]))

    def end(self) -> None:
        """Tell what still waits."""
        rest, self._rest = self._rest, ""
        if rest:
            self._tell(self._mask(rest))
