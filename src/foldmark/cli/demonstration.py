"""A session that grows, is pruned, compacted and undone in a real store, for `foldmark demo`.

It draws nothing. No model is asked: the answers were made before, and the summary is the digest.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec.structs import replace

from foldmark.analysis.growth import Point
from foldmark.analysis.token_usage import entry_tokens
from foldmark.compaction.plan import Plan
from foldmark.compaction.prune import Decision
from foldmark.digest.previous import REQUESTS
from foldmark.log.log import Entry, handle
from foldmark.log.marks import unmarked
from foldmark.model.messages import AssistantInfo, Message, Tokens
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import PromptMessage, ToolMessage
from foldmark.model.values import Frozen, encode
from foldmark.session.session import Session
from foldmark.tokens.budget import pressure
from foldmark.tokens.counters import counter
from foldmark.tokens.sizes import message_sizes

_HANDLE = re.compile(r"\((h[0-9a-f]+)\)")
_MOST_SHOWN = 5  # outputs of the first prune that are told
_WORTH_SHOWING = 300  # characters that a recalled text has at least


class Deed(Frozen):
    """A prune or a pivot, before the message of this number; tokens are of the view."""

    kind: str
    message: int
    hidden: int  # outputs, or messages
    before: int
    after: int


class Hidden(Frozen):
    """An output that was pruned, and why."""

    handle: str
    tool: str
    about: str
    tokens: int
    reason: str


class Example(Frozen):
    """What the model sees in place of something, and what its handle recalls."""

    handle: str
    shown: str
    recalled: str


class Taken(Frozen):
    """Hashes of the view: before the pivot, after it, with it undone, and with it done again."""

    before: str
    compacted: str
    undone: str
    redone: str


class Kept(Frozen):
    """The messages that were said, and the same as the store has them in the end."""

    messages: int
    said: str
    kept: str


class Outcome(Frozen):
    """All that became of the session."""

    usable: int
    tokens: int  # of the whole log
    points: tuple[Point, ...]
    deeds: tuple[Deed, ...]
    largest: float  # request of all, used ÷ usable
    requests: int
    after_pivot: int  # messages that came after the first pivot
    pruned: tuple[Hidden, ...]
    digest: str
    digest_tokens: int
    undo: Taken | None
    log: Kept
    examples: tuple[Example, ...]


class Demonstration:
    """Says messages to a session, one by one, as an agent's loop would."""

    def __init__(self, session: Session) -> None:
        """Take a session that is new."""
        self._session = session
        self._count = counter(session.policy.estimate)
        self._said: list[Message] = []
        self._total = 0
        self._largest = 0.0
        self._requests = 0
        self._points: list[Point] = []
        self._deeds: list[Deed] = []
        self._pruned: tuple[Hidden, ...] = ()
        self._examples: list[Example] = []
        self._digest = ""
        self._undo: Taken | None = None
        self._pivoted = 0  # messages that there were at the first pivot

    def outcome(self, messages: Sequence[Message]) -> Outcome:
        """What becomes of a session with these messages."""
        for message in messages:
            self._step(message)
        self._examples.extend(self._folded_examples())
        return Outcome(
            usable=self._session.room,
            tokens=self._total,
            points=tuple(self._points),
            deeds=tuple(self._deeds),
            largest=self._largest,
            requests=self._requests,
            after_pivot=len(self._said) - self._pivoted if self._pivoted else 0,
            pruned=self._pruned,
            digest=self._digest,
            digest_tokens=self._count(self._digest),
            undo=self._undo,
            log=self._kept(),
            examples=tuple(self._examples),
        )

    def _step(self, message: Message) -> None:
        session = self._session
        if isinstance(message.info, AssistantInfo):
            self._make_room()
            self._requests += 1
            self._largest = max(self._largest, session.pressure())
            # What a provider would have measured of the view as it is here.
            measured = Tokens(input=session.view().tokens, output=self._tokens(message))
            message = replace(message, info=replace(message.info, tokens=measured))
            session.record(message)
        else:
            session.user(message)
        self._said.append(message)
        self._total += self._tokens(message)
        number = len(self._said)
        self._points.append(Point(message=number, log=self._total, view=session.view().tokens))

    def _tokens(self, message: Message) -> int:
        sizes = message_sizes(message, self._count)
        return entry_tokens(Entry(message=message, index=0, ordinal=0, sizes=sizes))

    def _make_room(self) -> None:
        """What a loop does before each request; in a loop it is `session.messages()` that does."""
        session = self._session
        if not session.plan(explain=False).overflow:
            return
        plan, before = session.plan(), session.view()
        act = session.fit()
        if act is None:
            return
        if act.kind == "prune":
            self._note_prune(act, plan)
        else:
            self._note_pivot(act, plan, before.messages)

    # --- what is told of each deed ---

    def _note_prune(self, act: Operation, plan: Plan) -> None:
        self._note(act, len(plan.prune.prune))
        if not self._pruned:
            largest = sorted(plan.prune.prune, key=lambda held: -held.tokens)
            self._pruned = tuple(_hidden(held) for held in largest[:_MOST_SHOWN])
            self._examples.append(self._pruned_example(largest[0].ordinal))

    def _note_pivot(self, act: Operation, plan: Plan, before: tuple[PromptMessage, ...]) -> None:
        self._note(act, len(plan.fold.head) if plan.fold else 0)
        if self._undo is not None:
            return
        session = self._session
        compacted = _hash(session.view().messages)
        session.undo(act.number)
        undone = _hash(session.view().messages)
        session.redo(act.number)
        self._undo = Taken(
            before=_hash(before),
            compacted=compacted,
            undone=undone,
            redone=_hash(session.view().messages),
        )
        self._pivoted = len(self._said)
        view = session.view()
        if view.pivot is not None:
            self._digest = "".join(_texts(view.messages[1]))

    def _note(self, act: Operation, hidden: int) -> None:
        deed = Deed(
            kind="prune" if act.kind == "prune" else "pivot",
            message=len(self._said) + 1,
            hidden=hidden,
            before=act.before or 0,
            after=act.after or 0,
        )
        self._deeds.append(deed)

    # --- nothing is lost ---

    def _pruned_example(self, ordinal: int) -> Example:
        """The line that stands in place of an output, and the output."""
        name = handle(ordinal)
        messages = self._session.view().messages
        lines = (
            result.output.value
            for message in messages
            if isinstance(message, ToolMessage)
            for result in message.content
        )
        shown = next((text for text in lines if text.endswith(f"recall {name}]")), "")
        return Example(handle=name, shown=shown, recalled=self._session.recall(name))

    def _folded_examples(self) -> Iterator[Example]:
        """A line of the digest whose handle recalls much more than it says."""
        _, _, rest = self._digest.partition(f"## {REQUESTS}\n")
        # Requests stand there in full, or nearly so.
        for line in rest.partition("\n## ")[2].splitlines():
            for name in _HANDLE.findall(line):
                recalled = self._session.recall(name)
                if len(recalled) >= _WORTH_SHOWING:
                    yield Example(handle=name, shown=line.strip(), recalled=recalled)
                    return

    def _kept(self) -> Kept:
        own = {message.id for message in self._said}
        there = [
            unmarked(held)
            for held in self._session.export(reverted=False).messages
            if held.id in own
        ]
        return Kept(messages=len(there), said=_hash(self._said), kept=_hash(there))


def full(deed: Deed, usable: int) -> tuple[float, float]:
    """How full the window was before and after a deed."""
    return pressure(deed.before, usable), pressure(deed.after, usable)


def _hidden(held: Decision) -> Hidden:
    return Hidden(
        handle=handle(held.ordinal),
        tool=held.tool,
        about=held.output.target.label,
        tokens=held.tokens,
        reason=held.reason,
    )


def _texts(message: PromptMessage) -> list[str]:
    return [str(getattr(block, "text", "")) for block in message.content]


def _hash(value: object) -> str:
    return sha256(encode(value)).hexdigest()[:12]
