"""Compacts a session: chooses the summarizer, and makes the view fit when the window is full.

Procedures are generators that yield prunes and compactions; `run` executes them and blocks, `arun`
awaits them. No lock is held while a model writes the summary: messages added meanwhile follow the
marker. If a compaction fails or is aborted, its marker is cancelled and nothing else remains.
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
from foldmark.providers.background import run_uninterrupted
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

_LOCK_POLL_SECONDS = 0.02
_SHRINK_FACTOR = 0.9  # of the window, after a refusal that states no smaller one
_log = logging.getLogger("foldmark")


# A procedure that yields steps, and is sent the operation that each step made.
Steps = Generator[FitStep, Operation | None, T]


def run(state: SessionState, steps: Steps[T]) -> T:
    """Execute the steps of a procedure in this thread, and return its result."""
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
    """Async form of `run`: models are called in the caller's event loop."""
    step = await run_uninterrupted(_advance, steps.send, None)
    while not isinstance(step, StopIteration):
        try:
            if isinstance(step, Prune):
                operation = await run_uninterrupted(_prune, state)
            else:
                operation = await _acompact(state, step)
        except CompactionStopped as error:
            step = await run_uninterrupted(_advance, steps.throw, error)
        else:
            step = await run_uninterrupted(_advance, steps.send, operation)
    return step.value


def _advance(advance: Callable[[A], FitStep], value: A) -> FitStep | StopIteration:
    """The next step or the end, returned because StopIteration cannot cross threads."""
    try:
        return advance(value)
    except StopIteration as end:
        return end


# --- making a session fit its window ---


def new_request(state: SessionState, **options: Any) -> CompactionRequest:
    """A request to compact the session as it is now, with these options."""
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
    """Make the view fit the window: prune, then compact if pruning is not enough."""
    if (waiting := pending(state)) is not None:
        newest = newest_pivot(state)
        # If the queued compaction frees nothing, the view may still fit without it.
        with suppress(CompactionStopped):
            pivot = yield new_request(state, operation=waiting.number, newest_pivot=newest)
            if pivot is not None and pivot.in_force:
                return pivot
    operation, request = None, new_request(state, auto=True)

    def look() -> tuple[CompactionRequest, int]:
        viewer = state.refresh()
        return replace(request, viewer=viewer), tokens_used(viewer, fixed=request.fixed)

    for step in _locked_steps(state, fit_steps(look, passes=1)):
        operation = yield step
        if isinstance(step, Prune) and operation is not None and not state.policy.window.preflight:
            return operation  # without preflight, only the next reply's usage shows if it fits
    return operation


def _locked_steps(state: SessionState, steps: Iterator[FitStep]) -> Iterator[FitStep]:
    """Yield the steps; each is computed under the session's lock, which is free between them."""
    while True:
        with state.lock:
            step = next(steps, None)
            if isinstance(step, CompactionRequest):
                step = replace(step, newest_pivot=newest_pivot(state))
        if step is None:
            return
        yield step


def view_messages(state: SessionState, api: str | None) -> tuple[PromptMessage, ...] | list[Json]:
    """The messages of the view, in an API format if one is given."""
    messages, origin = reader.view(state).messages, state.row.info.origin
    if api is None:
        return messages
    return encode(messages, api, (origin.system or "") if origin else "")


def compact(
    state: SessionState, text: str | None, tokens: Tokens | None, **options: Any
) -> Steps[Operation | None]:
    """Compact once as requested; `text` is the summary if given."""
    request = new_request(state, **options)
    if text is not None:
        return _complete(state, request, text, tokens)
    if request.target is not None and request.target < 1:
        raise BadInput(f"target is {request.target}; give 1 token or more")
    return (yield replace(request, newest_pivot=newest_pivot(state)))


def _complete(
    state: SessionState, request: CompactionRequest, text: str, tokens: Tokens | None
) -> Operation | None:
    """Compact with the caller's own summary."""
    if not text.strip():
        raise BadInput("the summary is empty; give a text, or none to have one written")

    def summary(marker: int | None) -> Summary:
        viewer, budget, fixed = state.viewer, request.budget, state.fixed_tokens
        if state.limit is not None and state.policy.tail.capped:
            check_window(viewer, budget, fixed=fixed)
        fold = session_fold(viewer, budget, fixed=fixed, overflow=request.overflow, before=marker)
        return Summary(text=text, fold=fold, usage=ModelUsage(tokens=tokens))

    with state.lock:
        allowed = operations.apply_hooks(state, request)
        return None if allowed is None else operations.complete(state, allowed, summary)


def switch(
    state: SessionState, model: str | None, window: int | None, output: int | None
) -> Steps[list[Operation]]:
    """Continue with another model or window; the old model compacts first if needed."""
    settings = _switch_settings(state.settings, model, window, output)
    limit, name = settings.limit(), settings.model or ""
    budget = 0 if limit is None else usable(state.policy, limit, name)
    pivots: list[Operation] = []

    def look() -> tuple[CompactionRequest, int]:
        state.refresh()  # the view that the new model would get
        viewer = Viewer(state.log, state.policy, model=name, usable=budget)
        request = new_request(state, limit=limit, model=name)
        return request, tokens_used(viewer, fixed=state.fixed_tokens)

    for step in _locked_steps(state, fit_steps(look, prune="never")):
        pivot = yield step
        if pivot is None:
            reason = "a hook forbids the compaction that the new window needs"
            raise stop_error(reason, state.viewer, usable=state.usable, fixed=state.fixed_tokens)
        pivots.append(pivot)
    with state.lock:
        if is_full(*look()):
            raise WindowTooSmall(usable=budget, fixed=state.tokens, largest="the view")
        state.settings, state.limit, state.model = settings, limit, name
        state.set_log(state.log)
    return pivots


def recover(state: SessionState, error: str | BaseException) -> Steps[bool]:
    """Shorten the view after a refusal for length; returns False for any other error."""
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
    """The settings with another model, or with another window for the same model."""
    if model is None or model == settings.model:
        limits = {"window": window or settings.window, "output": output or settings.output}
        return replace(settings, **limits, input=None if window else settings.input)
    # The limits and the server of the old model do not apply to the new one.
    same_provider = (settings.model or "").partition(":")[0] == model.partition(":")[0]
    base_url = settings.base_url if same_provider or settings.summarizer else None
    limits = {"window": window, "output": output, "input": None}
    return replace(settings, model=model, base_url=base_url, **limits)


# --- one compaction, from its marker to its summary ---


class _CompactionRun(NamedTuple):
    """A compaction whose marker is queued and claimed."""

    request: CompactionRequest
    dialogue: ModelDialogue[Summary]
    model: Summarizer | None
    text_stream: "WordStream"
    is_mid_turn: bool  # it interrupted a turn, which may be resumed automatically


def _compact(state: SessionState, request: CompactionRequest) -> Operation | None:
    if state.is_compacting_here:
        # Called by a subscriber or another task of the event loop: waiting would deadlock.
        hint = "wait until it is finished, or use the async form"
        raise BadInput(f"this thread is already compacting session {state.id}; {hint}")
    with state.compaction_lock, state.compacting_here(), _cancel_on_error(state):
        run = _claim_next(state, request)
        if not isinstance(run, _CompactionRun):
            return run
        summary = drive(run.dialogue, run.model, on_text=run.text_stream, aborted=state.aborted)
        return _finish(state, run, summary)


async def _acompact(state: SessionState, request: CompactionRequest) -> Operation | None:
    async with _locked(state.compaction_lock):
        with state.compacting_here(), _cancel_on_error(state):
            run = await run_uninterrupted(_claim_next, state, request)
            if not isinstance(run, _CompactionRun):
                return run
            steps = adrive(run.dialogue, run.model, on_text=run.text_stream, aborted=state.aborted)
            return await run_uninterrupted(_finish, state, run, await steps)


@asynccontextmanager
async def _locked(lock: threading.Lock) -> AsyncGenerator[None]:
    """Hold a thread lock, waiting for it without blocking the event loop."""
    while not lock.acquire(blocking=False):
        await asyncio.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _cancel_on_error(state: SessionState) -> Generator[None]:
    """Cancel this process's marker if the block raises.

    Nothing is awaited here: a cancelled task must not be interrupted again while it cleans up.
    """
    state.aborted.clear()
    try:
        yield
    except BaseException as error:
        _cancel_own(state, error)
        raise


def _cancel_own(state: SessionState, error: BaseException) -> None:
    """Cancel the claimed markers; if that cannot be written, the next compaction takes them."""
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
    """The compactions that this process claimed and did not finish."""
    pivots = state.store.operations(state.key, "pivot")
    return [pivot for pivot in pivots if pivot.state == "claimed" and pivot.claimed == state.holder]


def _claim_next(
    state: SessionState, request: CompactionRequest
) -> _CompactionRun | Operation | None:
    """Queue and claim a marker, or return what the caller gets instead of a new compaction."""
    with state.compacting_here(), state.lock:
        state.refresh()
        if (number := _replacement(state, request)) is not None:
            return state.operation(number)  # another thread or process was faster
        if pending(state) is None and (state.policy.auto or not request.auto):
            _prepare(state, request)  # raises if compacting is pointless, before any write
        allowed = operations.apply_hooks(state, request)
        if allowed is None:
            return None
        pivot = state.operation(state.write(lambda change: _claim(state, change, allowed)))
        return _start(state, pivot, allowed) if pivot.state == "claimed" else pivot


def _replacement(state: SessionState, request: CompactionRequest) -> int | None:
    """The number of an operation that makes the requested compaction unnecessary, or None."""
    waiting = pending(state)
    if request.operation is not None and (waiting is None or waiting.number != request.operation):
        return request.operation
    newer = newest_pivot(state) if waiting is None else 0
    return newer if newer > request.newest_pivot else None


def newest_pivot(state: SessionState) -> int:
    """The number of the newest pivot that is not undone, or 0."""
    pivots = state.store.operations(state.key, "pivot")
    return max((pivot.number for pivot in pivots if pivot.in_force), default=0)


def _prepare(state: SessionState, request: CompactionRequest) -> Situation:
    """The situation to summarize; raises CompactionStopped if automatic ones free too little."""
    situation = prepare(replace(request, viewer=state.viewer))
    pivots = state.store.operations(state.key, "pivot")
    reason = request.auto and stop_reason(
        [pivot for pivot in pivots if _was_automatic(state, pivot)],
        state.log,
        state.policy.compact,
        fixed=state.fixed_tokens,
        expected=situation.min_freed_share,
        read_message=lambda index: _folded_message(state, index),
    )
    if reason:
        raise stop_error(reason, state.viewer, usable=state.usable, fixed=state.fixed_tokens)
    return situation


def _was_automatic(state: SessionState, pivot: Operation) -> bool:
    """Whether a pivot was automatic; only these count as thrashing."""
    if pivot.marker is None:
        return False
    entry = state.log.entries.get(pivot.marker)
    message = entry.message if entry else _folded_message(state, pivot.marker)
    part = marker_part(message) if message else None
    return part is not None and bool(part.auto)


def _folded_message(state: SessionState, index: int) -> Message | None:
    entry = state.store.message_at(state.key, index)
    return None if entry is None else entry.message


def _claim(state: SessionState, change: Change, request: CompactionRequest) -> int:
    """Claim the queued compaction, or return the number of one that was made meanwhile."""
    if (number := _replacement(state, request)) is not None:
        return number
    number = operations.ensure_queued(state, change, request)
    change.claim(number, state.holder)
    change.add_event(events.STARTED, act=number)
    return number


def _start(state: SessionState, pivot: Operation, request: CompactionRequest) -> _CompactionRun:
    request = _with_queued_options(state, pivot, request)
    # Prepared again: a queued compaction has not been checked for thrashing yet.
    situation, model = _prepare(state, request), summarizer(state)
    return _CompactionRun(
        request=request,
        dialogue=summarize(situation, summarizer_limits(request, model)),
        model=model,
        text_stream=_word_stream(state, pivot),
        is_mid_turn=request.auto and open_request(state.log, pivot.marker or 0) is not None,
    )


def _with_queued_options(
    state: SessionState, pivot: Operation, request: CompactionRequest
) -> CompactionRequest:
    """The request with the options stored when it was queued, here or by another process."""
    entry = state.log.entries.get(pivot.marker or 0)
    part = marker_part(entry.message) if entry else None
    if part is not None:
        request = replace(request, auto=bool(part.auto), overflow=bool(part.overflow))
    data = queued_options(state.store.engine, state.key, pivot.number)
    return replace(
        request,
        operation=pivot.number,
        marker=pivot.marker or 0,
        instructions=request.instructions or str(data.get("instructions") or ""),
        context=tuple(map(str, data.get("context") or request.context)),
        prompt=data.get("prompt") or request.prompt,
    )


def _finish(state: SessionState, run: _CompactionRun, summary: Summary) -> Operation:
    """Write the summary, and return the completed compaction."""
    run.text_stream.end()
    if state.aborted.is_set():
        raise Aborted
    resume = run.is_mid_turn and state.hooks.may_continue(state.id)
    with state.compacting_here(), state.lock:
        return operations.complete(state, run.request, lambda _: summary, resume=resume)


# --- the summarizer ---


def summarizer(state: SessionState) -> Summarizer | None:
    """The configured summarizer, else the session's model; None if summaries are digests."""
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
        _log.warning("no model is available, so summaries are digests: %s", error)
        return None


def summarizer_limits(request: CompactionRequest, model: Summarizer | None) -> SummarizerLimits:
    """The limits for a summarizer; without a model, no fallback asks one."""
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


def _word_stream(state: SessionState, pivot: Operation) -> "WordStream":
    """A stream that publishes the text of a summary as events, which are not stored."""

    def publish_text(text: str) -> None:
        with state.compacting_here():  # a subscriber must not wait for this compaction to end
            publish(state, events.DELTA, {"act": pivot.number, "text": text})

    return WordStream(publish_text, mask_secrets if state.policy.compact.mask else str)


def publish(state: SessionState, kind: str, data: Json) -> None:
    """Send an event to subscribers without storing it."""
    event = Event(number=0, session=state.id, kind=kind, at=state.builder.now(), data=data)
    state.bus.publish([event])


class WordStream:
    """Publishes streamed text in whole words, so that secrets can be masked."""

    def __init__(self, publish: TextHandler, mask: Callable[[str], str]) -> None:
        """Publish what `mask` returns for each piece of whole words."""
        self._publish = publish
        self._mask = mask
        self._buffer = ""

    def __call__(self, text: str) -> None:
        """Publish the text up to its last space; the rest waits for more."""
        text = self._buffer + text
        end = max(text.rfind(" "), text.rfind("\n")) + 1
        self._buffer = text[end:]
        if end:
            self._publish(self._mask(text[:end]))

    def end(self) -> None:
        """Publish the rest."""
        text, self._buffer = self._buffer, ""
        if text:
            self._publish(self._mask(text))
