"""Prunes, compactions, undo and revert of a session. Each call is one transaction."""

from collections.abc import Callable
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.compaction.pivot import marker_message, summary_message
from foldmark.compaction.prune import view_prune
from foldmark.compaction.situation import CompactionRequest
from foldmark.errors import BadInput
from foldmark.log.log import marker_part
from foldmark.model import events
from foldmark.model.messages import AnyPart, FilePart, Message, TextPart, file_placeholder
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import AssistantMessage, UserMessage
from foldmark.model.values import encode
from foldmark.store.rows import QUEUED, read_operations
from foldmark.store.transaction import Change
from foldmark.summary.fallback import Summary
from foldmark.tokens.sizes import message_sizes

from .state import SessionState
from .writer import write_message

# --- prune ---


def prune(state: SessionState) -> Operation | None:
    """Hide old tool outputs; returns None if there is nothing to hide."""
    with state.lock:
        state.refresh()
        plan = view_prune(state.viewer, state.usable, explain=False)
        if not plan.prune:
            return None
        protected = state.hooks.protected_ordinals(plan)  # before the transaction
        number = state.write(lambda change: _prune(state, change, protected))
        return None if number is None else state.operation(number)


def _prune(state: SessionState, change: Change, protected: set[int]) -> int | None:
    plan = view_prune(state.viewer, state.usable, explain=False)
    ordinals = [ordinal for ordinal in plan.ordinals if ordinal not in protected]
    if not ordinals:
        return None
    before = state.viewer.tokens
    state.log.mark(ordinals, at=change.at)
    after = state.viewer.tokens
    number = change.prune(ordinals, change.at, before=before, after=after)
    change.add_event(events.PRUNED, act=number, parts=len(ordinals), before=before, after=after)
    return number


# --- queued compactions ---


def queue(state: SessionState, request: CompactionRequest) -> Operation | None:
    """Queue a compaction, and return it or the one that is queued already."""
    with state.lock:
        allowed = apply_hooks(state, request)
        if allowed is None:
            return None
        return state.operation(state.write(lambda change: ensure_queued(state, change, allowed)))


def pending(state: SessionState) -> Operation | None:
    """The queued compaction, or None."""
    queued = read_operations(state.store.engine, state.key, QUEUED)
    if not queued:
        return None  # the usual case: do not read all pivots
    pivots = state.store.operations(state.key, "pivot")
    # A queued marker that a newer pivot has folded does not count, unless that one is undone.
    folded = max((pivot.marker or 0 for pivot in pivots if pivot.in_force), default=-1)
    waiting = [pivot for pivot in queued if (pivot.marker or 0) > folded]
    return waiting[-1] if waiting else None


def cancel(state: SessionState, reason: str) -> Operation | None:
    """Cancel the queued compaction for good, and return it, or None if none is queued."""

    def job(change: Change) -> int | None:
        waiting = pending(state)
        if waiting is None:
            return None
        change.update_operation(waiting.number, failed=reason)
        change.add_event(events.FAILED, act=waiting.number, reason=reason)
        return waiting.number

    with state.lock:
        number = state.write(job) if pending(state) else None
        return None if number is None else state.operation(number)


def apply_hooks(state: SessionState, request: CompactionRequest) -> CompactionRequest | None:
    """Let hooks change a request, unless a compaction is queued already.

    Returns None if a hook vetoes it, or if the policy allows no automatic compaction.
    """
    instructions = request.instructions or state.focus
    request = replace(request, viewer=state.refresh(), instructions=instructions)
    if pending(state) is not None:
        return request
    if request.auto and not state.policy.auto:
        return None
    changed, veto = state.hooks.change_request(request)
    if veto is None:
        return changed
    state.write(lambda change: change.add_event(events.FAILED, reason=f"vetoed: {veto}"))
    return None


def ensure_queued(state: SessionState, change: Change, request: CompactionRequest) -> int:
    """The number of the queued compaction; queues one if there is none."""
    waiting = pending(state)
    return waiting.number if waiting else _write_marker(state, change, request)


def _write_marker(state: SessionState, change: Change, request: CompactionRequest) -> int:
    marker = marker_message(
        state.builder.new_stamp(),
        auto=request.auto,
        overflow=request.overflow,
        model=state.builder.model_ref(state.model),
    )
    before = state.viewer.tokens
    number = change.add_operation("pivot", marker=change.places, before=before)
    write_message(state, change, marker)
    # Stored with the event for whichever process makes the summary.
    options = {
        "context": list(request.context),
        "prompt": request.prompt,
        "instructions": request.instructions,
    }
    change.add_event(
        events.QUEUED,
        act=number,
        message=marker.id,
        auto=request.auto,
        before=before,
        **{name: value for name, value in options.items() if value},
    )
    return number


# --- pivots ---


def complete(
    state: SessionState,
    request: CompactionRequest,
    summary_for: Callable[[int | None], Summary],
    *,
    resume: bool = False,
) -> Operation:
    """Complete the queued compaction, or a new one, in one transaction.

    `summary_for` gets the index of the queued marker, or None. A request with a marker has been
    claimed already.
    """
    job = partial(_write_pivot, state, request=request, summary_for=summary_for, resume=resume)
    return state.operation(state.write(job))


def _write_pivot(
    state: SessionState,
    change: Change,
    *,
    request: CompactionRequest,
    summary_for: Callable[[int | None], Summary],
    resume: bool,
) -> int:
    before, is_claimed = state.viewer.tokens, request.marker is not None
    waiting = pending(state)  # read in the transaction: no other process can change it
    if request.operation not in (None, waiting and waiting.number):
        raise BadInput(f"compaction {request.operation} of session {state.id} is no longer queued")
    summary = summary_for(None if waiting is None else waiting.marker)
    if waiting is None:
        number = _write_marker(state, change, request)
        marker = change.places - 1
    else:
        number, marker = waiting.number, waiting.marker or 0
    if not change.claim(number, state.holder, anew=not is_claimed):
        cause = "is claimed by another process, or completed"
        raise BadInput(f"compaction {number} of session {state.id} {cause}")
    if not is_claimed:
        change.add_event(events.STARTED, act=number)
    message, index = _write_summary(state, change, (number, marker), summary)
    if summary.fold.replay is not None:
        # Repeat the request that overflowed, with the names of its files only.
        parts = tuple(map(_replay_part, summary.fold.replay.parts))
        write_message(state, change, state.builder.user(parts, {}))
    after = state.load_changed(change)
    if resume and _must_resume(state):
        # A user message, marked as not written by the user.
        part = TextPart(text=state.policy.compact.resume, synthetic=True)
        write_message(state, change, state.builder.user((part,), {}))
        after = state.load_changed(change)
    change.update_operation(number, summary=index, before=before, after=after)
    details = {"how": summary.how, "calls": summary.usage.calls, "flaws": list(summary.usage.flaws)}
    change.add_event(
        events.COMPACTED,
        act=number,
        message=message.id,
        before=before,
        after=after,
        **{name: value for name, value in details.items() if value},
    )
    return number


def _write_summary(
    state: SessionState, change: Change, pivot: tuple[int, int], summary: Summary
) -> tuple[Message, int]:
    """Write the summary of a pivot and the start of its tail; returns the message and its index."""
    number, marker = pivot
    tail_id = summary.fold.tail_start
    tail = None if tail_id is None else state.log.index_of(tail_id, below=marker)
    tail_id = None if tail is None else tail_id
    _update_marker(state, change, marker, tail_id, summary.user_text)
    memory = state.log.requests.memory(marker if tail is None else tail)
    message = summary_message(
        state.builder.new_stamp(),
        summary.text,
        marker=state.log.entries[marker].message.id,
        model=state.builder.model_ref(summary.model or state.model),
        tokens=summary.usage.tokens,
        cost=summary.usage.cost,
    )
    index = write_message(state, change, message).index
    change.update_operation(
        number, memory=memory, marker=marker, summary=index, tail=tail, tail_id=tail_id
    )
    change.settled = change.places
    change.index()  # searches need it: the folded messages leave memory
    return message, index


def _update_marker(
    state: SessionState, change: Change, marker: int, tail_id: str | None, words: int | None
) -> None:
    """Write the start of the tail, and the limit of the user's text, into the marker."""
    entry = state.log.entries[marker]
    part = marker_part(entry.message)
    if part is None or (tail_id is None and words is None):
        return
    max_words = UNSET if words is None else words
    new_part = replace(part, tail_start_id=tail_id or UNSET, words=max_words)
    parts = tuple(new_part if old_part is part else old_part for old_part in entry.message.parts)
    newer = replace(entry.message, parts=parts)
    sizes = message_sizes(newer, state.count)
    change.put(entry, replace(entry, message=newer, sizes=sizes), encode(newer))


def _must_resume(state: SessionState) -> bool:
    """Whether a synthetic user message must follow; `always_resume` wants one in any case."""
    messages = state.viewer.view().messages
    by_user = bool(messages) and isinstance(messages[-1], UserMessage)
    always = state.policy.compact.always_resume
    return not by_user and (always or isinstance(messages[-1], AssistantMessage))


def _replay_part(part: AnyPart) -> AnyPart:
    """A copy of a part without its ids; a file becomes its name."""
    if isinstance(part, FilePart):
        return TextPart(text=file_placeholder(part))
    return replace(part, id=UNSET, message_id=UNSET) if isinstance(part, TextPart) else part


# --- undo, redo, revert ---


def undo_or_redo(state: SessionState, number: int | None, *, undo: bool) -> Operation:
    """Undo the latest operation in force, or redo the last undone one; or the one of a number."""

    def job(change: Change) -> int:
        operation = _target_operation(state, number, undo=undo)
        before = state.viewer.tokens
        change.set_undone(operation.number, undone=undo)
        after = state.load_changed(change)
        kind = events.UNDONE if undo else events.REDONE
        details = {"what": operation.kind, "before": before, "after": after}
        change.add_event(kind, act=operation.number, **details)
        return operation.number

    with state.lock:
        _target_operation(state, number, undo=undo)  # raise before taking the lease
        return state.operation(state.write(job))


def _target_operation(state: SessionState, number: int | None, *, undo: bool) -> Operation:
    if number is not None:
        operation = state.operation(number)
        if operation.in_force if undo else _can_redo(operation):
            return operation
        verb = "undone" if undo else "redone"
        raise BadInput(f"operation {number} is {operation.state} and cannot be {verb}")
    candidates = state.store.operations(state.key)
    if undo:
        candidates = sorted((one for one in candidates if one.in_force), key=lambda one: one.order)
    else:
        candidates = sorted(filter(_can_redo, candidates), key=lambda one: one.undone or 0)
    if not candidates:
        raise BadInput(f"session {state.id}: there is nothing to {'undo' if undo else 'redo'}")
    return candidates[-1]


def _can_redo(operation: Operation) -> bool:
    return operation.undone is not None and operation.reverted is None


def revert(state: SessionState, message: str) -> Operation:
    """Go back to a message: later messages are hidden, later operations no longer apply."""

    def job(change: Change) -> int:
        index = state.message_index(message, hidden=True)
        before = state.viewer.tokens
        number = change.revert(index)
        after = state.load_changed(change)
        change.update_operation(number, before=before, after=after)
        change.add_event(events.REVERTED, act=number, message=message, before=before, after=after)
        return number

    with state.lock:
        state.message_index(message, hidden=True)
        return state.operation(state.write(job))
