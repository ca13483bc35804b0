"""Pruning and pivoting a session, and taking that back. Each call is one transaction."""

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
from foldmark.model.messages import AnyPart, FilePart, Message, TextPart, file_name
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import AssistantMessage, UserMessage
from foldmark.model.values import encode
from foldmark.store.rows import QUEUED, read_acts
from foldmark.store.transaction import Change
from foldmark.summary.ladder import Summary
from foldmark.tokens.sizes import message_sizes

from .state import SessionState
from .writer import write_message

# --- prune ---


def prune(state: SessionState) -> Operation | None:
    """Hide old tool outputs by marks; None where there is nothing to hide."""
    with state.lock:
        state.fresh()
        planned = view_prune(state.viewer, state.room, explain=False)
        if not planned.prune:
            return None
        kept = state.hooks.kept(planned)  # before the transaction: others need not wait for it
        number = state.write(lambda change: _prune(state, change, kept))
        return None if number is None else state.act(number)


def _prune(state: SessionState, change: Change, kept: set[int]) -> int | None:
    planned = view_prune(state.viewer, state.room, explain=False)
    ordinals = [ordinal for ordinal in planned.ordinals if ordinal not in kept]
    if not ordinals:
        return None
    before = state.viewer.tokens
    state.log.mark(ordinals, at=change.at)
    after = state.viewer.tokens
    number = change.prune(ordinals, change.at, before=before, after=after)
    change.event(events.PRUNED, act=number, parts=len(ordinals), before=before, after=after)
    return number


# --- a compaction that is queued ---


def queue(state: SessionState, asked: CompactionRequest) -> Operation | None:
    """Queue a compaction by a marker; the one that is queued already, if one is."""
    with state.lock:
        wanted = allowed(state, asked)
        if wanted is None:
            return None
        return state.act(state.write(lambda change: queued(state, change, wanted)))


def pending(state: SessionState) -> Operation | None:
    """The compaction that is queued, if one is."""
    found = read_acts(state.store.engine, state.key, QUEUED)
    if not found:
        return None  # as it is at most steps, however many pivots there are
    acts = state.store.acts(state.key, "pivot")
    # What a newer pivot has folded is not waited for, until that one is taken back.
    folded = max((act.marker or 0 for act in acts if act.in_force), default=-1)
    waiting = [act for act in found if (act.marker or 0) > folded]
    return waiting[-1] if waiting else None


def cancel(state: SessionState, reason: str) -> Operation | None:
    """Give a queued compaction up: it is never shown, and never tried again."""

    def job(change: Change) -> int | None:
        waiting = pending(state)
        if waiting is None:
            return None
        change.change_act(waiting.number, failed=reason)
        change.event(events.FAILED, act=waiting.number, reason=reason)
        return waiting.number

    with state.lock:
        number = state.write(job) if pending(state) else None
        return None if number is None else state.act(number)


def allowed(state: SessionState, asked: CompactionRequest) -> CompactionRequest | None:
    """The compaction as hooks leave it; one that is queued already is not asked for again.

    None where a hook forbids it, or where it is automatic and the policy is not.
    """
    state.fresh()
    asked = replace(asked, viewer=state.viewer, instructions=asked.instructions or state.focus)
    if pending(state) is not None:
        return asked
    if asked.auto and not state.policy.auto:
        return None
    changed, veto = state.hooks.compaction(asked)
    if veto is None:
        return changed
    state.write(lambda change: change.event(events.FAILED, reason=f"vetoed: {veto}"))
    return None


def queued(state: SessionState, change: Change, wanted: CompactionRequest) -> int:
    """The compaction that is queued, by another process perhaps, or a new one."""
    waiting = pending(state)
    return waiting.number if waiting else _queue(state, change, wanted)


def _queue(state: SessionState, change: Change, wanted: CompactionRequest) -> int:
    marker = marker_message(
        state.maker.made(),
        auto=wanted.auto,
        overflow=wanted.overflow,
        model=state.maker.model_ref(state.model),
    )
    before = state.viewer.tokens
    number = change.act("pivot", marker=change.places, before=before)
    write_message(state, change, marker)
    # Who makes the summary, here or elsewhere, finds with the event what hooks wished.
    wishes = {
        "context": list(wanted.context),
        "prompt": wanted.prompt,
        "instructions": wanted.instructions,
    }
    change.event(
        events.QUEUED,
        act=number,
        message=marker.id,
        auto=wanted.auto,
        before=before,
        **{name: wish for name, wish in wishes.items() if wish},
    )
    return number


# --- a pivot ---


def complete(
    state: SessionState,
    asked: CompactionRequest,
    summary: Callable[[int | None], Summary],
    *,
    resume: bool = False,
) -> Operation:
    """Complete the queued compaction, or a new one: marker, summary and tail at once.

    `summary` is given the place of the marker that waits, if one does. A request that names a
    marker has been claimed already.
    """
    job = partial(_pivot, state, asked=asked, summary=summary, resume=resume)
    return state.act(state.write(job))


def _pivot(
    state: SessionState,
    change: Change,
    *,
    asked: CompactionRequest,
    summary: Callable[[int | None], Summary],
    resume: bool,
) -> int:
    before, is_claimed = state.viewer.tokens, asked.marker is not None
    waiting = pending(state)  # asked here, where no other process can change it
    if asked.act is not None and (waiting is None or waiting.number != asked.act):
        raise BadInput(f"compaction {asked.act} of session {state.id} is not waiting any more")
    made = summary(None if waiting is None else waiting.marker)
    if waiting is None:
        number = _queue(state, change, asked)
        marker = change.places - 1
    else:
        number, marker = waiting.number, waiting.marker or 0
    if not change.claim(number, state.holder, anew=not is_claimed):
        raise BadInput(f"compaction {number} of session {state.id} is another's, or done")
    if not is_claimed:
        change.event(events.STARTED, act=number)
    message, place = _fold_away(state, change, (number, marker), made)
    if made.fold.replay is not None:
        # The request that overflowed, once more, its files named and not shown.
        write_message(
            state, change, state.maker.user(tuple(map(_named_only, made.fold.replay.parts)), {})
        )
    after = state.load_changed(change)
    if resume and _must_resume(state):
        # In the user's place, marked as not theirs.
        part = TextPart(text=state.policy.compact.resume, synthetic=True)
        write_message(state, change, state.maker.user((part,), {}))
        after = state.load_changed(change)
    change.change_act(number, summary=place, before=before, after=after)
    told = {"how": made.how, "calls": made.spent.calls, "flaws": list(made.spent.flaws)}
    change.event(
        events.COMPACTED,
        act=number,
        message=message.id,
        before=before,
        after=after,
        **{name: held for name, held in told.items() if held},
    )
    return number


def _fold_away(
    state: SessionState, change: Change, act: tuple[int, int], made: Summary
) -> tuple[Message, int]:
    """Write the summary of an act and where its tail begins; the message and its place."""
    number, marker = act
    tail_id = made.fold.tail_start
    tail = None if tail_id is None else state.log.place(tail_id, below=marker)
    tail_id = None if tail is None else tail_id
    _note_pivot(state, change, marker, tail_id, made.words)
    memory = state.log.requests.memory(marker if tail is None else tail)
    message = summary_message(
        state.maker.made(),
        made.text,
        marker=state.log.entries[marker].message.id,
        model=state.maker.model_ref(made.model or state.model),
        tokens=made.spent.tokens,
        cost=made.spent.cost,
    )
    place = write_message(state, change, message).index
    change.change_act(
        number, memory=memory, marker=marker, summary=place, tail=tail, tail_id=tail_id
    )
    change.settled = change.places
    change.index()  # what is folded now is no longer at hand to be looked through
    return message, place


def _note_pivot(
    state: SessionState, change: Change, marker: int, tail_id: str | None, words: int | None
) -> None:
    """Write into the marker where its tail begins, and how long the user's words may be."""
    entry = state.log.entries[marker]
    part = marker_part(entry.message)
    if part is None or (tail_id is None and words is None):
        return
    room = UNSET if words is None else words
    named = replace(part, tail_start_id=tail_id or UNSET, words=room)
    parts = tuple(named if held is part else held for held in entry.message.parts)
    newer = replace(entry.message, parts=parts)
    sizes = message_sizes(newer, state.count)
    change.put(entry, replace(entry, message=newer, sizes=sizes), encode(newer))


def _must_resume(state: SessionState) -> bool:
    """Whether a model would otherwise be asked to follow its own words."""
    shown = state.viewer.view().messages
    replayed = bool(shown) and isinstance(shown[-1], UserMessage)
    always = state.policy.compact.always_resume
    return not replayed and (always or isinstance(shown[-1], AssistantMessage))


def _named_only(part: AnyPart) -> AnyPart:
    """A part without the ids of the message that it is a copy of; a file as its name."""
    if isinstance(part, FilePart):
        return TextPart(text=file_name(part))
    return replace(part, id=UNSET, message_id=UNSET) if isinstance(part, TextPart) else part


# --- taking back ---


def take_back(state: SessionState, number: int | None, *, undone: bool) -> Operation:
    """Take back the latest act in force, or put in force what was undone last; or this one."""

    def job(change: Change) -> int:
        act = _to_take_back(state, number, undone=undone)
        before = state.viewer.tokens
        change.take_back(act.number, undone=undone)
        after = state.load_changed(change)
        kind = events.UNDONE if undone else events.REDONE
        change.event(kind, act=act.number, what=act.kind, before=before, after=after)
        return act.number

    with state.lock:
        _to_take_back(state, number, undone=undone)  # refuse before a lease is asked for
        return state.act(state.write(job))


def _to_take_back(state: SessionState, number: int | None, *, undone: bool) -> Operation:
    if number is not None:
        act = state.act(number)
        if act.in_force if undone else _can_be_redone(act):
            return act
        raise BadInput(f"act {number} is {act.state}: there is nothing to take back")
    acts = state.store.acts(state.key)
    if undone:
        found = sorted((act for act in acts if act.in_force), key=lambda act: act.done)
    else:
        found = sorted(filter(_can_be_redone, acts), key=lambda act: act.undone or 0)
    if not found:
        raise BadInput(f"session {state.id}: there is nothing to {'undo' if undone else 'redo'}")
    return found[-1]


def _can_be_redone(act: Operation) -> bool:
    return act.undone is not None and act.reverted is None


def revert(state: SessionState, message: str) -> Operation:
    """Go back to a message: what came after it is hidden, what was folded since is shown."""

    def job(change: Change) -> int:
        place = state.place(message, hidden=True)
        before = state.viewer.tokens
        number = change.revert(place)
        after = state.load_changed(change)
        change.change_act(number, before=before, after=after)
        change.event(events.REVERTED, act=number, message=message, before=before, after=after)
        return number

    with state.lock:
        state.place(message, hidden=True)
        return state.act(state.write(job))
