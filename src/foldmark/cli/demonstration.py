"""A session on which a plan is carried out, step by step, for `foldmark demo`.

It draws nothing. The summary in it was written by hand: no model is asked.
"""

from hashlib import sha256

from foldmark.inspection import newest_model
from foldmark.limits import Limit
from foldmark.log import Log, Tool, handle
from foldmark.messages import Transcript
from foldmark.overflow import usable
from foldmark.pivot import Made, marker_message, summary_message
from foldmark.plan import Plan, session_plan
from foldmark.presets import FOLDMARK
from foldmark.shown import FromTools
from foldmark.tokens import counter
from foldmark.values import Frozen, encode
from foldmark.view import Viewer

EXAMPLES = 2
SUMMARY = (
    "This summary was written by hand for the demonstration; in earnest a model writes it. "
    "It says what was asked for, what was done and decided, and what is left to do."
)


class Figures(Frozen):
    """A session at one moment."""

    messages: int  # of the log that the view shows
    tokens: int
    pressure: float
    pruned: int
    folded: int


class Kept(Frozen):
    """The log at one moment: how many messages, and a hash of those that it began with."""

    messages: int
    hash: str


class Example(Frozen):
    """A hidden output: what the model sees in its place, and what its handle recalls."""

    handle: str
    placeholder: str
    recalled: str


class Change(Frozen):
    """The log before and after."""

    before: Kept
    after: Kept


class Outcome(Frozen):
    """All that carrying a plan out came to."""

    before: Figures
    after_prune: Figures
    after: Figures
    compacted: bool
    log: Change
    examples: tuple[Example, ...]


class Demonstration:
    """A session, the model that it is for, and what is done to it."""

    def __init__(self, transcript: Transcript, limit: Limit) -> None:
        """Open the session for the model that it names."""
        self.log = Log(counter(FOLDMARK.estimate), transcript.messages)
        self.model = newest_model(self.log) or ""
        self.limit = limit
        room = usable(FOLDMARK, limit, self.model)
        self.viewer = Viewer(self.log, FOLDMARK, model=self.model, usable=room)
        self._made = len(self.log)

    def outcome(self) -> Outcome:
        """Carry the plan out: prune, and compact where that is not enough."""
        before, kept = self.figures(), self.kept()
        self.prune()
        pruned, examples = self.figures(), self.examples()
        compacted = self.compact()
        return Outcome(
            before=before,
            after_prune=pruned,
            after=self.figures(),
            compacted=compacted,
            log=Change(before=kept, after=self.kept()),
            examples=examples,
        )

    def figures(self) -> Figures:
        """The session as it is now."""
        plan = self._plan()
        places = set(self.viewer.view().places)
        return Figures(
            messages=sum(bool(cell.shown) for cell in self.viewer.cells.values()),
            tokens=plan.tokens,
            pressure=plan.pressure,
            pruned=len(self.log.marks),
            folded=sum(entry.index not in places for entry in self.log.entries.values()),
        )

    def kept(self) -> Kept:
        """The log as it is now."""
        messages = [self.log.entries[place].message for place in range(self._made)]
        return Kept(messages=len(self.log), hash=sha256(encode(messages)).hexdigest()[:12])

    def prune(self) -> None:
        """Hide what the plan names."""
        self.log.mark(self._plan().prune.ordinals, at=1)

    def compact(self) -> bool:
        """Make a pivot where the session still overflows; whether it did."""
        plan = self._plan()
        if not plan.overflow:
            return False
        marker = Made(session="demo", message="msg_marker", part="prt_marker", at=1)
        summary = Made(session="demo", message="msg_summary", part="prt_summary", at=2)
        self.log.append(marker_message(marker, auto=True, tail_start=plan.tail_start))
        self.log.append(summary_message(summary, SUMMARY, marker=marker.message))
        return True

    def examples(self) -> tuple[Example, ...]:
        """The largest hidden outputs, each of another tool."""
        chosen: dict[str, Tool] = {}
        for tool in sorted(self.log.hidden.values(), key=lambda tool: -tool.tokens):
            chosen.setdefault(tool.part.tool, tool)
        return tuple(self._example(tool) for tool in list(chosen.values())[:EXAMPLES])

    def _example(self, tool: Tool) -> Example:
        name = handle(tool.ordinal)
        shown = (held for cell in self.viewer.cells.values() for held in cell.shown)
        results = (
            result for held in shown if isinstance(held, FromTools) for result in held.content
        )
        seen = (result.output.value for result in results)
        placeholder = next((text for text in seen if text.endswith(f"recall {name}]")), "")
        return Example(handle=name, placeholder=placeholder, recalled=tool.state.output)

    def _plan(self) -> Plan:
        return session_plan(self.viewer, self.limit, model=self.model)
