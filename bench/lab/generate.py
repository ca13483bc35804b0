"""Sessions made on the spot: a coding agent at work, in OpenCode's shape, the same for a seed.

For demonstrations, benchmarks and tests that need a session of any length. Nothing in it comes
from a real one, and it deliberately knows nothing of views, policies or plans: what Foldmark
would do with a session is not written into it.
"""

from collections import deque
from random import Random

from msgspec import UNSET, UnsetType

from foldmark.model.messages import (
    AnyPart,
    CompactionPart,
    ModelRef,
    SessionInfo,
    TextPart,
    Time,
    Transcript,
)

from .recorder import START, Recorder
from .shop.calls import Calls
from .shop.chance import Deck, Sizes
from .shop.project import ROOT, Project
from .shop.story import Story

FULL = 0.8  # of the window: where a pivot is due
_KEPT = 0.3  # of the window: the most that a tail may have
_MARKER = 10  # tokens in which a marker is shown
_PIVOT = 3  # messages: the marker, the summary, and the request to go on
_GO_ON = "Go on with what is left to do, or say what you need to know."

_TURNS = {"plain": 18, "picture": 1, "running": 1, "pending": 1, "refused": 1}
_STEPS = {2: 2, 4: 3, 6: 4, 9: 4, 13: 3, 18: 1}


def generate(  # noqa: PLR0913 - each is a measure of its own
    seed: int = 7,
    *,
    messages: int = 400,
    output_chars: int = 2_000,
    model: str = "anthropic:claude-sonnet-4-5",
    window: int = 200_000,
    pivots: bool = False,
    pruned: bool = False,
) -> Transcript:
    """A session of so many messages, whose tool outputs have about so many characters.

    With `pivots` it is compacted whenever the window is nearly full, with `pruned` old outputs
    are marked after a turn, both as OpenCode does; without, it only grows.
    """
    rng = Random(seed)  # noqa: S311 - a seed is wanted here, not a secret
    provider, _, name = model.partition(":")
    recorder = Recorder(rng, ModelRef(provider_id=provider, model_id=name), window)
    project = Project(rng, output_chars)
    calls = Calls(rng, project, Sizes(rng, output_chars, window * 4 // 10))
    plot = _Plot(rng, recorder, calls, messages, window if pivots else None)
    while plot.room:
        plot.turn(pasted=project.rolls["log"].cut(600))
        if pruned:
            plot.prune()
    info = SessionInfo(
        id=recorder.session,
        slug="quiet-shop",
        project_id=recorder.hash(),
        directory=ROOT,
        title="Settle the books of the shop",
        version="1.0.0",
        time=Time(created=START, updated=recorder.now),
    )
    return Transcript(info=info, messages=tuple(recorder.messages))


class _Plot:
    """Turn after turn, each with its steps, until the session is long enough."""

    def __init__(
        self, rng: Random, recorder: Recorder, calls: Calls, messages: int, window: int | None
    ) -> None:
        self._rng = rng
        self._recorder = recorder
        self._calls = calls
        self._messages = messages
        self._window = window  # None where nothing is ever compacted
        self._story = Story(rng)
        self._turns = Deck(rng, _TURNS)
        self._steps = Deck(rng, _STEPS)
        self._tails = Deck(rng, {True: 3, False: 1})  # whether a pivot keeps one
        self._trouble = ""  # how the last turn ended, if not well
        self._places: deque[int] = deque(maxlen=2)  # of the newest requests
        self._starts: deque[tuple[str, int]] = deque(maxlen=3)  # since a pivot, tokens before them

    @property
    def room(self) -> int:
        """How many messages are still to come."""
        return self._messages - len(self._recorder.messages)

    def turn(self, pasted: list[str]) -> None:
        """A request, and the steps to its answer or to where they are cut short."""
        kind = self._turns.draw()
        self._recorder.wait(20_000, 900_000)
        text = TextPart(text=self._story.request(self._trouble, pasted))
        self._calls.turn(self._story.module)
        parent = self._user(text, *([self._recorder.picture()] if kind == "picture" else []))
        self._trouble = kind if kind in ("running", "pending", "refused") else ""
        steps = 1 if kind == "refused" else self._steps.draw()
        for left in range(steps - 1, -1, -1):
            if self.room:
                parent = self._pivot(parent)
                self._step(parent, kind, last=left == 0 or self.room == 1)

    def prune(self) -> None:
        """Hide outputs from before the last two turns."""
        if len(self._places) == self._places.maxlen:
            self._recorder.prune(before=self._places[0])

    def _user(self, *parts: AnyPart) -> str:
        before = self._recorder.meter.total
        self._places.append(len(self._recorder.messages))
        made = self._recorder.user(*parts)
        self._starts.append((made, before))
        return made

    def _step(self, parent: str, kind: str, *, last: bool) -> None:
        recorder, story = self._recorder, self._story
        thought = story.thought() if self._rng.random() < 0.35 else ""
        if not last:
            calls = self._calls.step()
            for call in calls:
                story.files.update(dict.fromkeys(call.changed))
            text = story.said(calls[0].tool) if self._rng.random() < 0.5 else ""
            recorder.step(parent, thought=thought, text=text, calls=calls)
        elif kind == "refused":
            recorder.refused(parent)
        elif kind in ("running", "pending"):
            call = self._calls.slow()
            recorder.aborted(parent, story.said(call.tool), call, begun=kind == "running")
        else:
            recorder.step(parent, thought=thought, text=story.closing())

    def _pivot(self, parent: str) -> str:
        """Compact if the next request would be too long; give the request that is then in work."""
        recorder, window = self._recorder, self._window
        if window is None or recorder.meter.context <= FULL * window or self.room <= _PIVOT:
            return parent
        tail, kept = self._tail(int(_KEPT * window))
        marker = recorder.user(CompactionPart(auto=True, tail_start_id=tail))
        before = recorder.meter.total
        recorder.step(marker, text=self._story.summary(), summary=True)
        recorder.pivoted(kept + _MARKER + recorder.meter.total - before)
        self._starts.clear()
        return self._user(TextPart(text=_GO_ON, synthetic=True))

    def _tail(self, most: int) -> tuple[str | UnsetType, int]:
        """A request of late from which on all is kept, and its tokens; in some cases none."""
        now = self._recorder.meter.total
        fitting = [(made, now - before) for made, before in self._starts if now - before <= most]
        if not self._tails.draw() or not fitting:
            return UNSET, 0
        return self._rng.choice(fitting)
