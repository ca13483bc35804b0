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
    stop_error,
    stop_reason,
)
from foldmark.digest.digest import situation_digest
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
from foldmark.store.loading import queued_options
from foldmark.store.transaction import Change
from foldmark.summary.fallback import (
    DEFAULT_WINDOW,
    ModelUsage,
    SummarizerLimits,
    Summary,
    summarize,
)
from foldmark.summary.protocol import ModelDialogue, Summarizer, TextHandler
from foldmark.summary.redaction import mask_secrets
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

_LOCK_POLL_SECONDS = 0.02  # seconds between two looks at a lock
_SHRINK_FACTOR = 0.9  # of a window, after a refusal that states no smaller one
_log = logging.getLogger("foldmark")


# A procedure that yields what is to be done, and is sent what came of each.
Steps = Generator[FitStep, Operation | None, T]


def run(state: SessionState, steps: Steps[T]) -> T:
    """What a procedure returns, its prunes and compactions made in this thread."""
    try:
        step = steps.send(None)
        while True:
            try:
                operation = _prune(state) if isinstance(step, Prune) else _compact(state, step)
            except CompactionStopped as error:
                step = steps.throw(error)
            else:
                step = steps.send(operation)
    except StopIteration as end:
        return end.value


async def arun(state: SessionState, steps: Steps[T]) -> T:
    """`run`, async: models are asked in the caller's own event loop."""
    step = await uncut(_advance, steps.send, None)
    while not isinstance(step, StopIteration):
        try:
            if isinstance(step, Prune):
                operation = await uncut(_prune, state)
            else:
                operation = await _acompact(state, step)
        except CompactionStopped as error:
            step = await uncut(_advance, steps.throw, error)
        else:
            step = await uncut(_advance, steps.send, operation)
    return step.value


def _advance(advance: Callable[[A], FitStep], value: A) -> FitStep | StopIteration:
    """What a procedure needs next, or its end: no thread can raise that to another."""
    try:
        return advance(value)
    except StopIteration as end:
        return end


# --- bringing a session into its window ---


def new_request(state: SessionState, **options: Any) -> CompactionRequest:
    """A compaction of the session as it is now, with what is wished for."""
    request = CompactionRequest(
        viewer=state.viewer,
        session=state.id,
        limit=state.limit,
        model=state.model,
        fixed=state.fixed_tokens,
        system=state.system,
        tools=state.tools,
    )
    return replace(request, **options)


def fit(state: SessionState) -> Steps[Operation | None]:
    """Bring the view into the window: prune, and compact only where that is not enough."""
    if (waiting := pending(state)) is not None:
        # One that is given up, as it frees nothing, does no harm where all fits without it.
        with suppress(CompactionStopped):
            pivot = yield new_request(
                state, operation=waiting.number, newest_pivot=newest_pivot(state)
            )
            if pivot is not None and pivot.in_force:
                return pivot
    operation, request = None, new_request(state, auto=True)

    def look() -> tuple[CompactionRequest, int]:
        viewer = state.refresh()
        return replace(request, viewer=viewer), tokens_used(viewer, fixed=request.fixed)

    for step in _locked_steps(state, fit_steps(look, passes=1)):
        operation = yield step
        if isinstance(step, Prune) and operation is not None and not state.policy.window.preflight:
            return operation  # where only answers are measured, the next tells
    return operation


def _locked_steps(state: SessionState, steps: Iterator[FitStep]) -> Iterator[FitStep]:
    """These steps; the session is looked at under its lock, which nobody holds between them."""
    while True:
        with state.lock:
            step = next(steps, None)
            if isinstance(step, CompactionRequest):
                step = replace(step, newest_pivot=newest_pivot(state))
        if step is None:
            return
        yield step


def outgoing_messages(
    state: SessionState, api: str | None
) -> tuple[PromptMessage, ...] | list[Json]:
    """The view as it is sent to a model, on a provider's wire if one is given."""
    messages, origin = reader.view(state).messages, state.row.info.origin
    return (
        messages if api is None else encode(messages, api, (origin.system or "") if origin else "")
    )


def compact(
    state: SessionState, text: str | None, tokens: Tokens | None, **options: Any
) -> Steps[Operation | None]:
    """One compaction, as the caller asked for it; with this text, that is its summary."""
    request = new_request(state, **options)
    if text is not None:
        return _complete(state, request, text, tokens)
    if request.target is not None and request.target < 1:
        raise BadInput(f"the target is {request.target}; it must be a number of tokens")
    return (yield replace(request, newest_pivot=newest_pivot(state)))


def _complete(
    state: SessionState, request: CompactionRequest, text: str, tokens: Tokens | None
) -> Operation | None:
    """A pivot with the caller's own summary."""
    if not text.strip():
        raise BadInput("a summary must not be empty")

    def summary(marker: int | None) -> Summary:
        viewer, budget, fixed = state.viewer, request.budget, state.fixed_tokens
        if state.limit is not None and state.policy.tail.capped:
            check_window(viewer, budget, fixed=fixed)
        fold = session_fold(viewer, budget, fixed=fixed, overflow=request.overflow, before=marker)
        return Summary(text=text, fold=fold, usage=ModelUsage(tokens=tokens))

    with state.lock:
        allowed_request = operations.apply_hooks(state, request)
        return (
            None
            if allowed_request is None
            else operations.complete(state, allowed_request, summary)
        )


def switch(
    state: SessionState, model: str | None, window: int | None, output: int | None
) -> Steps[list[Operation]]:
    """Go on with another model; where its window is too small, the old one compacts first."""
    settings = _switch_settings(state.settings, model, window, output)
    limit, name = settings.limit(), settings.model or ""
    budget = 0 if limit is None else usable(state.policy, limit, name)
    operations_made: list[Operation] = []

    def look() -> tuple[CompactionRequest, int]:
        state.refresh()  # the view, as the other model would be shown it
        viewer = Viewer(state.log, state.policy, model=name, usable=budget)
        request = new_request(state, limit=limit, model=name)
        return request, tokens_used(viewer, fixed=state.fixed_tokens)

    for step in _locked_steps(state, fit_steps(look, prune="never")):
        operation = yield step
        if operation is None:
            reason = "a hook forbids the compaction that another window needs"
            raise stop_error(reason, state.viewer, usable=state.usable, fixed=state.fixed_tokens)
        operations_made.append(operation)
    with state.lock:
        if is_full(*look()):
            raise WindowTooSmall(usable=budget, fixed=state.tokens, largest="the view")
        state.settings, state.limit, state.model = settings, limit, name
        state.set_log(state.log)
    return operations_made


def recover(state: SessionState, error: str | BaseException) -> Steps[bool]:
    """Make the view shorter after a refusal for length; False where the error is another."""
    if not state.policy.auto or not is_context_overflow(error):
        return False
    window = _smaller_window(state.limit, error)
    if window is None or not (yield from switch(state, None, window, None)):
        yield new_request(state, auto=True, overflow=True, newest_pivot=newest_pivot(state))
    return True


def _smaller_window(limit: Limit | None, error: str | BaseException) -> int | None:
    stated = stated_window(error)
    if limit is None or not limit.context or (stated and stated < limit.context):
        return stated
    return int(limit.context * _SHRINK_FACTOR)


def _switch_settings(
    settings: Settings, model: str | None, window: int | None, output: int | None
) -> Settings:
    """The settings with another model, or another window of the same."""
    if model is None or model == settings.model:
        limits = {"window": window or settings.window, "output": output or settings.output}
        return replace(settings, **limits, input=None if window else settings.input)
    # What was set for the old model's server and window does not hold for the new one.
    same_provider = (settings.model or "").partition(":")[0] == model.partition(":")[0]
    base_url = settings.base_url if same_provider or settings.summarizer else None
    return replace(
        settings, model=model, window=window, output=output, input=None, base_url=base_url
    )


# --- one compaction, from its marker to its summary ---


class _CompactionRun(NamedTuple):
    """A compaction whose marker is queued and claimed."""

    asked: CompactionRequest
    flow: ModelDialogue[Summary]
    model: Summarizer | None
    delta: "WordStream"
    mid_work: bool  # the turn was cut, and may go on by itself


def _compact(state: SessionState, request: CompactionRequest) -> Operation | None:
    if state.is_compacting_here:
        # A subscriber, or another task of a loop: to wait here would be to wait for ever.
        raise BadInput(
            f"a compaction of session {state.id} is being made in this very thread; "
            "wait for its end, or use the async form"
        )
    with state.compaction_lock, state.compacting_here(), _cancel_on_error(state):
        run = _claim_next(state, request)
        if not isinstance(run, _CompactionRun):
            return run
        summary = drive(run.flow, run.model, delta=run.delta, aborted=state.aborted)
        return _finish(state, run, summary)


async def _acompact(state: SessionState, request: CompactionRequest) -> Operation | None:
    async with _locked(state.compaction_lock):
        with state.compacting_here(), _cancel_on_error(state):
            run = await uncut(_claim_next, state, request)
            if not isinstance(run, _CompactionRun):
                return run
            summary = await adrive(run.flow, run.model, delta=run.delta, aborted=state.aborted)
            return await uncut(_finish, state, run, summary)


@asynccontextmanager
async def _locked(lock: threading.Lock) -> AsyncGenerator[None]:
    """A lock of threads, waited for without keeping the event loop from its work."""
    while not lock.acquire(blocking=False):
        await asyncio.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _cancel_on_error(state: SessionState) -> Generator[None]:
    """A compaction that can be aborted; its marker is cancelled where it is not brought to an end.

    Nothing is awaited for that: a cancelled task must not be cancelled once more on the way out.
    """
    state.aborted.clear()
    try:
        yield
    except BaseException as error:
        _cancel_own(state, error)
        raise


def _cancel_own(state: SessionState, error: BaseException) -> None:
    """Cancel the marker; where even that cannot be written, it waits for who comes next."""
    reason = str(error) or type(error).__name__

    def job(change: Change) -> None:
        for operation in _own_claims(state):
            change.update_operation(operation.number, failed=reason)
            change.add_event(events.FAILED, act=operation.number, reason=reason)

    with state.compacting_here(), state.lock, suppress(FoldmarkError):
        if isinstance(error, SessionOvertaken) or not _own_claims(state):
            return
        try:
            state.write(job)
        except SessionOvertaken:
            state.report_overtaken_later()


def _own_claims(state: SessionState) -> list[Operation]:
    """The compactions that were begun here and not brought to an end."""
    pivots = state.store.operations(state.key, "pivot")
    return [pivot for pivot in pivots if pivot.state == "claimed" and pivot.claimed == state.holder]


def _claim_next(
    state: SessionState, request: CompactionRequest
) -> _CompactionRun | Operation | None:
    """The marker queued and claimed; or what else there is to return."""
    with state.compacting_here(), state.lock:
        state.refresh()
        if (number := _replacement(state, request)) is not None:
            return state.operation(number)  # another thread or process was quicker
        if pending(state) is None and (state.policy.auto or not request.auto):
            # Refused before anything is written, where it makes no sense to compact.
            _prepare(state, request)
        allowed_request = operations.apply_hooks(state, request)
        if allowed_request is None:
            return None
        operation = state.operation(
            state.write(lambda change: _claim(state, change, allowed_request))
        )
        return (
            _start(state, operation, allowed_request) if operation.state == "claimed" else operation
        )


def _replacement(state: SessionState, request: CompactionRequest) -> int | None:
    """The number of the compaction that is taken in the stead of the one that is wanted."""
    waiting = pending(state)
    if request.operation is not None and (waiting is None or waiting.number != request.operation):
        return request.operation
    newer = newest_pivot(state) if waiting is None else 0
    return newer if newer > request.newest_pivot else None


def newest_pivot(state: SessionState) -> int:
    """The number of the newest pivot in force; who saw an older one has been overtaken."""
    pivots = state.store.operations(state.key, "pivot")
    return max((pivot.number for pivot in pivots if pivot.in_force), default=0)


def _prepare(state: SessionState, request: CompactionRequest) -> Situation:
    """What a compaction knows; CompactionStopped for an automatic one that frees nothing again."""
    situation = prepare(replace(request, viewer=state.viewer))
    reason = request.auto and stop_reason(
        [
            operation
            for operation in state.store.operations(state.key)
            if _was_automatic(state, operation)
        ],
        state.log,
        state.policy.compact,
        fixed=state.fixed_tokens,
        foreseen=situation.min_freed_share,
        read_message=lambda index: _folded_message(state, index),
    )
    if reason:
        raise stop_error(reason, state.viewer, usable=state.usable, fixed=state.fixed_tokens)
    return situation


def _was_automatic(state: SessionState, operation: Operation) -> bool:
    """Whether a pivot came by itself: what the user did by hand is no thrashing."""
    if operation.kind != "pivot" or operation.marker is None:
        return False
    entry = state.log.entries.get(operation.marker)
    message = entry.message if entry else _folded_message(state, operation.marker)
    part = marker_part(message) if message else None
    return part is not None and bool(part.auto)


def _folded_message(state: SessionState, index: int) -> Message | None:
    entry = state.store.message_at(state.key, index)
    return None if entry is None else entry.message


def _claim(state: SessionState, change: Change, request: CompactionRequest) -> int:
    """The compaction that is to be made now, or the one that was made meanwhile."""
    if (number := _replacement(state, request)) is not None:
        return number
    number = operations.ensure_queued(state, change, request)
    change.claim(number, state.holder)
    change.add_event(events.STARTED, act=number)
    return number


def _start(state: SessionState, operation: Operation, request: CompactionRequest) -> _CompactionRun:
    request = _with_queued_options(state, operation, request)
    # One that was queued has not been held against the breaker yet.
    situation, model = _prepare(state, request), summarizer(state)
    return _CompactionRun(
        asked=request,
        flow=summarize(situation, summarizer_limits(request, model)),
        model=model,
        delta=_word_stream(state, operation),
        mid_work=request.auto and open_request(state.log, operation.marker or 0) is not None,
    )


def _with_queued_options(
    state: SessionState, operation: Operation, request: CompactionRequest
) -> CompactionRequest:
    """With what was wished for when the compaction was queued, here or by another process."""
    entry = state.log.entries.get(operation.marker or 0)
    part = marker_part(entry.message) if entry else None
    if part is not None:
        request = replace(request, auto=bool(part.auto), overflow=bool(part.overflow))
    data = queued_options(state.store.engine, state.key, operation.number)
    return replace(
        request,
        operation=operation.number,
        marker=operation.marker or 0,
        instructions=request.instructions or str(data.get("instructions") or ""),
        context=tuple(map(str, data.get("context") or request.context)),
        prompt=data.get("prompt") or request.prompt,
    )


def _finish(state: SessionState, run: _CompactionRun, summary: Summary) -> Operation:
    """The pivot made of a summary."""
    run.delta.end()
    if state.aborted.is_set():
        raise Aborted
    resume = run.mid_work and state.hooks.may_continue(state.id)
    with state.compacting_here(), state.lock:
        return operations.complete(state, run.asked, lambda _: summary, resume=resume)


# --- who is asked ---


def summarizer(state: SessionState) -> Summarizer | None:
    """The model that summarises: the one that is set, else the session's; None for none."""
    if state.setup.summarizer is not None:
        return state.setup.summarizer
    if state.settings.summarizer is None and state.default_summarizer is not None:
        return state.default_summarizer
    name = state.settings.summarizer or state.model
    if name in {"", DIGEST}:
        return None
    if state.cached_summarizer is None or state.cached_summarizer[0] != name:
        state.cached_summarizer = (name, _open_model(name, state.settings.base_url))
    return state.cached_summarizer[1]


def _open_model(name: str, base_url: str | None) -> Summarizer | None:
    try:
        return model_named(name, base_url=base_url)
    except BadPolicy as error:
        _log.warning("summaries will be digests, as no model can be asked: %s", error)
        return None


def summarizer_limits(request: CompactionRequest, model: Summarizer | None) -> SummarizerLimits:
    """Within which bounds a model is asked; without rungs where nobody can be asked."""
    rules = request.viewer.policy.compact
    is_own = model is not None and model.name == request.model
    limit = request.limit if is_own or model is None else _known_limit(model.name)
    return SummarizerLimits(
        digest=situation_digest,
        rules=rules if model is not None else replace(rules, fallbacks=()),
        limit=limit or request.limit or Limit(context=DEFAULT_WINDOW),
        is_own_model=is_own,
        clock=time.monotonic,
        name="" if model is None else model.name,
    )


def _known_limit(name: str) -> Limit | None:
    with suppress(UnknownModel):
        return model_limits(limits_name(name))
    return None


def _word_stream(state: SessionState, operation: Operation) -> "WordStream":
    """Tells subscribers of each piece of an answer; these events are not kept."""

    def publish_text(piece: str) -> None:
        with state.compacting_here():  # who is told here must not wait for the compaction's end
            publish(state, events.DELTA, {"act": operation.number, "text": piece})

    return WordStream(publish_text, mask_secrets if state.policy.compact.mask else str)


def publish(state: SessionState, kind: str, data: Json) -> None:
    """Tell subscribers of something that is not kept."""
    event = Event(number=0, session=state.id, kind=kind, at=state.builder.now(), data=data)
    state.bus.publish([event])


class WordStream:
    """Passes an answer on word by word, so that a secret is whole when it is masked."""

    def __init__(self, publish: TextHandler, mask: Callable[[str], str]) -> None:
        """Take who is told, and what is done to each piece."""
        self._tell = publish
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
