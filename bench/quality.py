"""How much of what later calls need a view still has, over recorded sessions.

Long sessions are cut at several places and folded to a few thousand tokens; `needs` tells what
the next calls need. Beside the digest stand the plain tail, what OpenCode's preset keeps with an
empty summary, the recorded summaries, and the whole history.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from time import process_time

import foldmark
from foldmark.analysis.needs import Need, Retention, messages_text, needs, part_texts, retention
from foldmark.compaction.situation import CompactionRequest
from foldmark.compaction.tail import suffix_measure, tail_start
from foldmark.digest.digest import digest
from foldmark.errors import WindowTooSmall
from foldmark.log.carryover import carried_user_text, repeated_request
from foldmark.log.log import Log, Pivot
from foldmark.log.marks import unmarked
from foldmark.log.render import is_marker, is_summary, message_text
from foldmark.log.view import Viewer
from foldmark.model.messages import Message, ToolPart
from foldmark.model.prompt_messages import message_texts
from foldmark.model.values import Frozen
from foldmark.policy import FOLDMARK, OPENCODE
from foldmark.session.in_memory import fit_view
from foldmark.store.store import Store
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import by_classes, round4, truncate_middle
from foldmark.tokens.limits import Limit
from foldmark.tokens.sizes import MESSAGE_OVERHEAD
from foldmark.transcripts.read import read_sessions

from .store import filled
from .transcripts import corpus_files

LONG, LATER = 20_000, 40  # tokens before a cut, calls after it
CUTS = (0.0, 0.25, 0.5, 0.75, 0.999)
SIZES = (2_000, 5_000, 10_000)
TAIL_SHARE = 0.1  # of a view, where it is small; a digest says more in the same room
WINDOW = Limit(context=200_000, output=8_192)
OURS = "foldmark compact --target"
_SAMPLE, _PIVOTS = 40, 3
Row = tuple[str, ...]


class Case(Frozen):
    """A session cut at a place, and what is needed after it."""

    name: str
    past: tuple[Message, ...]
    text: str
    needed: tuple[Need, ...]


class Folded(Frozen):
    """A view, the digest in it, and where its tail begins."""

    view: str
    summary: str
    end: int


class Told(Frozen):
    """A recorded summary, and what it was made of."""

    case: Case
    summary: str


def cases() -> list[Case]:
    """Every long session of the corpus, cut at several places."""
    return [case for name, messages in _sessions() for case in _cut(name, messages)]


def _sessions() -> Iterator[tuple[str, tuple[Message, ...]]]:
    for path in corpus_files():
        if path.suffix != ".md":
            for session in read_sessions(path):
                yield f"{path.parent.name}/{path.stem}", session.messages


def _cut(name: str, recorded: Sequence[Message]) -> Iterator[Case]:
    messages = tuple(held for held in recorded if not (is_marker(held) or is_summary(held)))
    sizes = [sum(size.total for size in entry.sizes) for entry in _log(messages).entries.values()]
    calls = [sum(isinstance(part, ToolPart) for part in held.parts) for held in messages]
    tokens, later = 0, sum(calls)
    places: list[int] = []
    for place, (size, number) in enumerate(zip(sizes, calls, strict=True)):
        if tokens >= LONG and later >= LATER:
            places.append(place)
        tokens, later = tokens + size, later - number
    for place in sorted({places[int(len(places) * cut)] for cut in CUTS}) if places else ():
        yield _case(name, messages, place)


def _case(name: str, messages: Sequence[Message], place: int) -> Case:
    past = tuple(messages[:place])
    text = messages_text(past)
    return Case(name=name, past=past, text=text, needed=tuple(needs(text, messages[place:])))


def _log(messages: Sequence[Message]) -> Log:
    return Log(by_classes, messages)


# --- views -----------------------------------------------------------------------------------


def tail_place(log: Log, budget: int) -> int | None:
    """Where a tail of so many tokens may begin."""
    cells = Viewer(log, FOLDMARK).cells
    messages = [entry.message for entry in log.entries.values()]
    measure = suffix_measure(lambda place: cells[place].tokens, len(messages))
    return tail_start(messages, FOLDMARK.tail, budget, measure) if budget else None


def fitted_view(past: Sequence[Message], size: int) -> str:
    """What `foldmark compact --target` makes of a session."""
    log = _log([unmarked(message) for message in past])
    viewer = Viewer(log, FOLDMARK, usable=usable(FOLDMARK, WINDOW))
    try:
        fit_view(CompactionRequest(viewer=viewer, limit=WINDOW, target=size))
    except WindowTooSmall:
        return ""  # the open request alone is larger; counted as if nothing were there
    messages = viewer.view().messages
    return "\n".join(text for message in messages for text in message_texts(message))


def folded(past: Sequence[Message], size: int, before: "Folded | None" = None) -> "Folded":
    """The view of a session at a size: words, digest and tail."""
    log = _log(past)
    start = tail_place(log, int(size * TAIL_SHARE))
    here = Pivot(marker=len(log), summary=len(log), tail_id=None)
    said = [
        carried_user_text(log, here.marker, start, size // 4),
        repeated_request(log, here.marker, start, size // 4),
    ]
    said = [truncate_middle(text, size // 4, by_classes, "h0") for text in said]
    cells = Viewer(log, FOLDMARK).cells
    end = len(log) if start is None else start
    kept_tokens = sum(cells[place].tokens for place in range(end, len(log)))
    tail = [text for held in past[end:] for part in held.parts for text in part_texts(part)]
    room = size - kept_tokens - sum(map(by_classes, said)) - 2 * MESSAGE_OVERHEAD
    places = range(before.end if before else 0, end)
    previous = before.summary if before else ""
    made = digest(log, places, room, visible=[*said, *tail], previous=previous)
    return Folded(summary=made, view="\n".join((said[0], made, said[1], *tail)), end=end)


def plain_tail(text: str, size: int) -> str:
    """The end of a text, of so many tokens."""
    length = len(text) * size // max(1, by_classes(text))
    while by_classes(text[-length:]) > size:
        length = length * 49 // 50
    return text[-length:]


def opencode_tail(past: Sequence[Message], size: int) -> str:
    """What OpenCode's preset keeps of a session beside a summary that says nothing."""
    log = Log(round4, past)
    cells = Viewer(log, OPENCODE).cells
    measure = suffix_measure(lambda place: cells[place].tokens, len(past))
    start = tail_start(past, OPENCODE.tail, size, measure)
    return "" if start is None else messages_text(past[start:])


# --- tables ----------------------------------------------------------------------------------


def _figures(found: Sequence[Retention]) -> str:
    """Named / explained: the mean over cuts, and over all references in brackets."""
    held = [each for each in found if each.needed]
    if not held:
        return ""
    total = sum(each.needed for each in held)
    named = mean(each.named / each.needed for each in held)
    explained = mean(each.explained / each.needed for each in held)
    of_all = (
        f"{sum(e.named for e in held) / total:.2f} / {sum(e.explained for e in held) / total:.2f}"
    )
    return f"{named:.2f} / {explained:.2f} ({of_all})"


def quality() -> Iterator[Row]:
    """What views of each size have of what is needed, by how they were made."""
    found = cases()
    if not found:
        yield ("not measured: no corpus", *("" for _ in SIZES))
        return
    half = set(sorted({case.name for case in found})[::2])
    views: dict[str, Callable[[Case, int], str]] = {
        OURS: lambda case, size: fitted_view(case.past, size),
        f"the same after {_PIVOTS} pivots": _after_pivots,
        "plain tail": lambda case, size: plain_tail(case.text, size),
        "opencode, empty summary": lambda case, size: opencode_tail(case.past, size),
        "whole history": lambda case, _: case.text,
    }
    for name, view in views.items():
        results = {s: [retention(case.needed, view(case, s)) for case in found] for s in SIZES}
        yield name, *(_figures(results[size]) for size in SIZES)
        if name == OURS:
            for label, inside in (("… sessions weights were fitted on", True), ("… others", False)):
                chosen = [
                    place for place, case in enumerate(found) if (case.name in half) == inside
                ]
                yield label, *(_figures([results[size][p] for p in chosen]) for size in SIZES)
    yield from _recorded()
    yield "recoverable by search", "", _recoverable(found), ""
    yield "digest, CPU per 100 000 tokens", *(_time(found, size) for size in SIZES)


def _after_pivots(case: Case, size: int) -> str:
    """The view after several pivots, each made of the digest before it and what came since."""
    made: Folded | None = None
    for number in range(1, _PIVOTS):
        made = folded(case.past[: max(1, len(case.past) * number // _PIVOTS)], size, made)
    return folded(case.past, size, made).view


def _recorded() -> Iterator[Row]:
    """The recorded summaries of agents against views of ours of the same size."""
    theirs: list[Retention] = []
    ours: list[Retention] = []
    for name, messages in _sessions():
        for told_ in _told(name, messages) if name.startswith("claude-code/") else ():
            theirs.append(retention(told_.case.needed, told_.summary))
            ours.append(
                retention(
                    told_.case.needed, fitted_view(told_.case.past, by_classes(told_.summary))
                )
            )
    if theirs:
        yield f"{len(theirs)} recorded Claude Code summaries", "", _figures(theirs), ""
        yield "ours at their sizes", "", _figures(ours), ""


def _told(name: str, messages: Sequence[Message]) -> Iterator[Told]:
    for pivot in _log(messages).pivots:
        past = [
            held for held in messages[: pivot.marker] if not (is_marker(held) or is_summary(held))
        ]
        case = _case(name, [*past, *messages[pivot.summary + 1 :]], len(past))
        yield Told(case=case, summary=message_text(messages[pivot.summary]))


def _recoverable(found: Sequence[Case]) -> str:
    """How many of some needed references a search in a real store finds."""
    hits = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(found[:: max(1, len(found) // 10)]):
            where = str(Path(folder) / f"{number}.db")
            with Store.open(where, durable=False) as store:
                filled(store, "s", case.past)
            with foldmark.open(where, session="s") as session:
                for need in case.needed[:_SAMPLE]:
                    tried += 1
                    hits += bool(session.search(need.reference))
    return f"{hits} of {tried}"


def _time(found: Sequence[Case], size: int) -> str:
    tokens, seconds = 0, 0.0
    for case in found[::4]:
        log = _log(case.past)
        start = process_time()
        digest(log, range(len(log)), size)
        seconds += process_time() - start
        tokens += by_classes(case.text)
    return f"{seconds / tokens * 100_000:.2f} s"
