"""A compaction: what is folded, how large its summary may be, and how that is made.

`prepared` looks at the session once and asks nobody; `summarised` is the flow that yields asks
and returns a summary whatever comes back. Neither writes anything: who keeps the session makes
the pivot out of what is returned.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from foldmark.digest.digest import digest
from foldmark.errors import CompactionStopped, WindowTooSmall
from foldmark.log.carryover import bridge, file_tokens, open_request, shown_files, words, words_room
from foldmark.log.log import Pivot
from foldmark.log.render import message_text
from foldmark.log.view import NOTE_TOKENS, Viewer
from foldmark.model.prompt_messages import message_texts
from foldmark.model.values import Frozen
from foldmark.policy import CompactRules, Rung
from foldmark.summary.acceptance import SLACK
from foldmark.summary.ladder import Ladder, ModelUsage, SummarizerLimits, SummaryInput
from foldmark.summary.prompting import SummaryInstructions
from foldmark.summary.protocol import Declared, ModelDialogue
from foldmark.summary.redaction import masked
from foldmark.tokens.budget import exceeds, usable
from foldmark.tokens.limits import Limit
from foldmark.tokens.sizes import MESSAGE_OVERHEAD

from .breaker import stopped
from .plan import LEAST_SUMMARY, check_window, session_fold, shown_tokens, tokens_used
from .tail import Fold

# Where no limit is known, a pivot keeps what it would keep in a window of this size.
USUAL_ROOM = 200_000
# What a digest must have to be worth adding to a model's summary.
_LEAST_DIGEST = 200

How = Rung | Literal["digest"]


class CompactionRequest(Frozen):
    """A session that is to be compacted, and what is wished for."""

    viewer: Viewer
    limit: Limit | None = None
    model: str = ""
    fixed: int = 0
    marker: int | None = None  # the place of the queued marker, if it is in the log
    overflow: bool = False
    target: int | None = None  # tokens that the view shall have after it
    wish: SummaryInstructions = SummaryInstructions()
    system: str = ""
    tools: tuple[Declared, ...] = ()

    @property
    def room(self) -> int:
        """The tokens that the session's window has."""
        if self.limit is None or self.limit.context == 0:
            return USUAL_ROOM
        return usable(self.viewer.policy, self.limit, self.model)

    @property
    def words(self) -> int:
        """The tokens that the user's words may have after it."""
        policy = self.viewer.policy
        return min(words_room(policy, self.room), words_room(policy, self.target or self.room))


class Prepared(Frozen):
    """What will be folded, what a summary may cost, and of what it is made."""

    job: CompactionRequest
    fold: Fold
    most: int  # tokens of the whole summary
    freed: float  # the share of a request that it frees at least
    words: int | None  # tokens of the user's words, where a target says so
    material: SummaryInput


class Summary(Frozen):
    """A summary, and how it came about."""

    text: str
    how: How
    fold: Fold
    spent: ModelUsage
    words: int | None = None


def prepared(job: CompactionRequest) -> Prepared:
    """Look at the session: raises where no window, or no gain, can come of compacting it."""
    viewer, policy = job.viewer, job.viewer.policy
    room, fixed = job.room, job.fixed
    if room <= fixed:
        largest = "the system prompt and the tools" if fixed else "the reserve for answers"
        raise WindowTooSmall(usable=max(room, 0), fixed=fixed, largest=largest)
    if job.target:
        room, fixed = min(job.target, room - fixed), 0
    if policy.tail.capped and (job.limit is not None or job.target):
        check_window(viewer.log, policy, room, fixed=fixed, tight=job.target is not None)
    fold = session_fold(
        viewer,
        room,
        fixed=fixed,
        overflow=job.overflow,
        before=job.marker,
        tight=job.target is not None,
    )
    said = _words(job, fold)
    beside = list(_beside(job, fold, said))
    beside_tokens = _cost(job, fold, said)
    most = _summary_tokens(job, room - fixed, beside_tokens)
    places = _places(viewer, fold)
    previous = message_text(fold.previous) if fold.previous else ""
    if most < LEAST_SUMMARY or not (places or previous):
        raise _pointless(job, room - fixed - beside_tokens)
    mask, focus = policy.compact.mask, job.wish.instructions
    view = viewer.view()
    material = SummaryInput(
        log=viewer.log,
        places=places,
        view=view.messages,
        view_tokens=max(view.tokens, tokens_used(viewer, fixed=job.fixed) - job.fixed),
        digest=lambda tokens: digest(
            viewer.log, places, tokens, shown=beside, previous=previous, mask=mask, focus=focus
        ),
        previous=previous,
        system=job.system,
        tools=job.tools,
        fixed=job.fixed,
    )
    words = job.words if job.target else None
    freed = (view.tokens - beside_tokens - most) / max(view.tokens + job.fixed, 1)
    return Prepared(job=job, fold=fold, most=most, freed=freed, words=words, material=material)


def _pointless(job: CompactionRequest, left: int) -> CompactionStopped:
    """Why nothing can come of it: there is no room for a summary, or hardly a thing to free."""
    reason = "there is too little to fold: a summary would free nothing"
    if left < LEAST_SUMMARY:
        reason = "what stays beside a summary leaves no room for one"
    elif job.limit is None or not exceeds(
        job.viewer.policy, job.viewer.tokens + job.fixed, job.limit, job.model
    ):
        return CompactionStopped(reason, usable=0, fills=())
    room = min(job.target or job.room, job.room)
    return stopped(reason, job.viewer, usable=room, fixed=job.fixed)


def summarised(ready: Prepared, means: SummarizerLimits) -> ModelDialogue[Summary]:
    """A summary of what is folded: a model's if one can be had, and the digest's in any case."""
    rules = means.rules
    share = ready.most // 2 if rules.digest else int(ready.most / SLACK)
    wish = ready.job.wish
    ladder = Ladder(ready.material, replace(means, rules=_lasting(rules, share)), wish, share)
    written = yield from ladder.climb()
    made = Summary(text="", how="digest", fold=ready.fold, spent=ModelUsage(), words=ready.words)
    if written is None:
        text = ready.material.digest(ready.most)
        return replace(made, text=text, spent=ladder.spent)
    text = masked(written.text) if rules.mask else written.text
    if rules.digest:
        text = _with_digest(text, ready)
    return replace(made, text=text, how=written.rung, spent=ladder.spent)


def _with_digest(text: str, ready: Prepared) -> str:
    """A model's summary and the digest after it; counts of parts are not the count of the whole."""
    count = ready.material.log.count
    left = ready.most - count(text) - 2
    while left >= _LEAST_DIGEST:
        whole = f"{text}\n\n{ready.material.digest(left)}"
        over = count(whole) - ready.most
        if over <= 0:
            return whole
        left -= max(over, left // 10)
    return text


def _lasting(rules: CompactRules, share: int) -> CompactRules:
    """Rules without rungs where there is no room for what a model would write."""
    return rules if share >= LEAST_SUMMARY // 2 else replace(rules, rungs=())


def _summary_tokens(job: CompactionRequest, room: int, others: int) -> int:
    """The tokens that a summary may have: it must fit, and the view must become smaller."""
    policy, before = job.viewer.policy, job.viewer.tokens
    own = room if job.target else min(policy.view.summary, room // 4)
    gain = before - others - max(1, int(before * policy.compact.futile))
    return min(own, room - others, gain)


def _places(viewer: Viewer, fold: Fold) -> list[int]:
    """The places of the messages that are folded, and that say something."""
    cells = viewer.cells
    return [place for place in fold.head_places if place in cells and cells[place].shown]


def _cost(job: CompactionRequest, fold: Fold, texts: tuple[str, str]) -> int:
    """The tokens of what the view will show beside the summary."""
    viewer = job.viewer
    count, cells = viewer.log.count, viewer.cells
    said = sum(count(text) for text in (*texts, viewer.policy.view.marker) if text)
    said += _files(job) if texts[1] else 0
    tail = [shown_tokens(cells[place]) for place in fold.tail_places if place in cells]
    since = 0 if job.marker is None else viewer.tokens_after(job.marker)
    if fold.replay is not None:
        said += count(message_text(fold.replay)) + 16 * len(fold.replay.parts)
    return said + sum(tail) + since + 3 * MESSAGE_OVERHEAD + NOTE_TOKENS


def _beside(job: CompactionRequest, fold: Fold, texts: tuple[str, str]) -> Iterator[str]:
    """The texts that the view will show beside the summary."""
    cells = job.viewer.cells
    yield from (text for text in texts if text)
    after = [] if job.marker is None else [place for place in cells if place > job.marker]
    for place in (*fold.tail_places, *after):
        for message in cells[place].shown if place in cells else ():
            yield from message_texts(message)


def _words(job: CompactionRequest, fold: Fold) -> tuple[str, str]:
    """The user's words that the view carries across the pivot."""
    log, policy = job.viewer.log, job.viewer.policy
    room = job.words
    if not policy.view.words:
        return "", ""
    place = len(log) if job.marker is None else job.marker
    here = Pivot(marker=place, summary=place, tail_id=fold.tail_start)
    tail = fold.tail_places[0] if fold.tail_places else None
    repeated = bridge(log, here, tail, room, whole=job.target is None)
    return words(log, here, tail, room), repeated


def _files(job: CompactionRequest) -> int:
    """The tokens of the files that go along with the open request."""
    log = job.viewer.log
    pending = open_request(log, len(log) if job.marker is None else job.marker)
    shown = shown_files(pending, job.words) if pending else []
    return sum(file_tokens(held.part) for held in shown)
