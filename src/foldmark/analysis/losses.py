"""What a pivot took out of the view, and what of it is named nowhere in what stayed.

Told of the summary and the tail alone, as the recorded program had them: a policy of ours may
repeat the user's words beside them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from foldmark.log.log import CompletedCall, Log, Pivot
from foldmark.log.render import Cell
from foldmark.log.view import Viewer
from foldmark.model.prompt_messages import message_texts
from foldmark.model.values import Frozen

LARGEST = 5


class Hidden(Frozen):
    """What is no longer shown."""

    messages: int
    outputs: int  # of tools, not pruned before
    tokens: int


class Lost(Frozen):
    """What neither the summary nor the tail has of what was hidden."""

    files: int  # that were read or written, and are not named
    largest: tuple[str, ...]  # of these, by the tokens of their calls and outputs
    requests: int  # of the user, that are not there word for word


def hidden_places(viewer: Viewer, pivot: Pivot, before: Mapping[int, Cell]) -> list[int]:
    """The messages that were shown before a pivot, and are not after it."""
    cells = viewer.cells
    own = {pivot.marker, pivot.summary}
    return [place for place in before if place not in cells and place not in own]


def hidden(log: Log, places: Iterable[int], before: Mapping[int, Cell]) -> Hidden:
    """What these messages were."""
    shown = [place for place in places if before[place].shown]
    return Hidden(
        messages=len(shown),
        outputs=sum(tool.ordinal not in log.marks for tool in _tools(log, shown)),
        tokens=sum(before[place].tokens for place in shown),
    )


def lost(viewer: Viewer, pivot: Pivot, places: Iterable[int], folder: str = "") -> Lost:
    """What the view after a pivot does not name of the messages at these places."""
    log, gone = viewer.log, set(places)
    text = _slashed("\n".join(_texts(viewer.cells, without=pivot.marker)))
    files: Counter[str] = Counter()
    for tool in _tools(log, gone):
        for file in () if tool.failed else tool.target.files:
            files[file] += tool.tokens + tool.attached
    unnamed = [file for file, _ in files.most_common() if not is_named(file, text, folder)]
    asked = [request for request in log.requests.all if request.index in gone]
    return Lost(
        files=len(unnamed),
        largest=tuple(unnamed[:LARGEST]),
        requests=sum(_slashed(request.text.strip()) not in text for request in asked),
    )


def is_named(file: str, text: str, folder: str = "") -> bool:
    """Whether a text names a file: from where the session worked, or with its own folder."""
    path, home = _slashed(file), _slashed(folder).rstrip("/") + "/"
    if home != "/":
        path = path.removeprefix(home)
    # `store/rows.py` finds it, `rows.py` may be any.
    return "/".join(path.rsplit("/", 2)[-2:]) in text


def _tools(log: Log, places: Iterable[int]) -> Iterator[CompletedCall]:
    """The completed calls of these messages."""
    for place in places:
        entry = log.entries[place]
        for ordinal in range(entry.ordinal, entry.ordinal + len(entry.sizes)):
            tool = log.calls.get(ordinal)
            if tool is not None:
                yield tool


def _texts(cells: Mapping[int, Cell], *, without: int) -> Iterator[str]:
    for place, cell in cells.items():
        for message in cell.shown if place != without else ():
            yield from message_texts(message)


def _slashed(text: str) -> str:
    """With the paths of Windows as those of all others."""
    return text.replace("\\", "/")
