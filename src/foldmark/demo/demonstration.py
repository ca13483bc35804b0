"""The demonstration: a recorded session outgrows a small window and is compacted.

It also checks undo, redo and recall. The sample is the session of a coding agent, recorded by
`scripts/record_sample.py`. No model is asked: the summary is the digest.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from foldmark.analysis.history import Point
from foldmark.log.marks import unmarked
from foldmark.model.messages import Message, Transcript, decode_transcript
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import PromptMessage, message_texts
from foldmark.model.values import Frozen, encode
from foldmark.policy import FOLDMARK
from foldmark.session.opening import open as open_session
from foldmark.session.session import Session
from foldmark.session.settings import DIGEST
from foldmark.store.store import Store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SAMPLE = Path(__file__).with_name("sample.json.zst")
MODEL, WINDOW, OUTPUT = "anthropic:claude-sonnet-4-5", 32_000, 4_000
CONSTRAINT = "do not change the public JSON field names"
_HANDLE = re.compile(r"\bh[0-9a-f]+\b")
_WORTH_RECALLING = 1_000  # characters


class UndoCheck(Frozen):
    """Hashes of the view before and after a compaction, after its undo and after its redo."""

    before: str
    compacted: str
    undone: str
    redone: str

    @property
    def is_exact(self) -> bool:
        """Whether undo and redo restored exactly the same views."""
        return self.before == self.undone != self.compacted == self.redone


class RecallCheck(Frozen):
    """A line of the summary, and the text that its handle recalls."""

    handle: str
    shown: str
    recalled: str


class DemoReport(Frozen):
    """The result of the demonstration."""

    messages: int
    tokens: int  # of the whole log
    usable: int
    largest: int  # tokens of the largest view in a request
    points: tuple[Point, ...]
    acts: tuple[Operation, ...]
    constraint: str  # of the user, in the first message
    survived: bool  # whether the view still has it verbatim
    summary: str
    undo: UndoCheck | None
    recall: RecallCheck | None
    unchanged: bool  # whether the log still has every original message


def sample() -> Transcript:
    """The recorded session."""
    return decode_transcript(zstd.decompress(SAMPLE.read_bytes()))


def compress(data: bytes) -> bytes:
    """Return the compressed form of a recorded session."""
    return zstd.compress(data, 19)


def demonstrate(transcript: Transcript, path: Path) -> DemoReport:
    """Add a session's messages one by one to a new store, as an agent's loop would."""
    info = transcript.info
    with Store.open(path, durable=False) as store:
        store.create(info, estimate=FOLDMARK.estimate)
    # Explicit values, so that the user's settings neither change the result nor call a model.
    with open_session(
        path,
        session=info.id,
        policy=FOLDMARK,
        summarizer=DIGEST,
        model=MODEL,
        window=WINDOW,
        output=OUTPUT,
        durable=False,
    ) as session:
        return _report(session, transcript.messages)


def _report(session: Session, messages: tuple[Message, ...]) -> DemoReport:
    points: list[Point] = []
    largest, undo = 0, None
    for number, message in enumerate(messages, 1):
        if message.is_user:
            session.user(message)
        else:
            before = session.view().messages
            operation = session.fit()
            if undo is None and operation is not None and operation.kind == "pivot":
                undo = _check_undo(session, operation.number, before)
            largest = max(largest, session.view().tokens)
            session.record(message)
        view = session.view().tokens
        points.append(Point(message=number, log=session.info.tokens, view=view))
    final = session.view()
    summary = "".join(message_texts(final.messages[1])) if final.pivot else ""
    exported = {each.id: unmarked(each) for each in session.export().messages}
    return DemoReport(
        messages=len(messages),
        tokens=session.info.tokens,
        usable=session.usable,
        largest=largest,
        points=tuple(points),
        acts=tuple(session.operations()),
        constraint=CONSTRAINT,
        survived=any(CONSTRAINT in text for text in _texts(final.messages)),
        summary=summary,
        undo=undo,
        recall=_check_recall(session, summary),
        unchanged=all(exported.get(message.id) == message for message in messages),
    )


def _check_undo(session: Session, number: int, before: Iterable[PromptMessage]) -> UndoCheck:
    compacted = _hash(session.view().messages)
    session.undo(number)
    undone = _hash(session.view().messages)
    session.redo(number)
    redone = _hash(session.view().messages)
    return UndoCheck(before=_hash(before), compacted=compacted, undone=undone, redone=redone)


def _check_recall(session: Session, summary: str) -> RecallCheck | None:
    """The last line of a summary whose handle recalls a long text, or None."""
    for line in reversed(summary.splitlines()):
        for handle in _HANDLE.findall(line):
            recalled = session.recall(handle)
            if len(recalled) >= _WORTH_RECALLING:
                return RecallCheck(handle=handle, shown=line.strip(), recalled=recalled)
    return None


def _texts(messages: Iterable[PromptMessage]) -> Iterator[str]:
    return (text for message in messages for text in message_texts(message))


def _hash(messages: Iterable[PromptMessage]) -> str:
    return sha256(encode(tuple(messages))).hexdigest()[:12]
