"""`foldmark.fit`: a list of a wire's messages in, one that fits out. No store, no model.

The newest messages stay as they are, older ones without their long outputs, and the oldest become
an outline. Where it is cut depends on the list alone, and moves seldom: lists that grow step by
step give requests of which each begins with the one before, so the provider's cache holds.
Only what stays is looked at, and what the user said: a long list costs hardly more than a short.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from foldmark.errors import BadInput, WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.render import size_text
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen, Json, encode
from foldmark.policy import FOLDMARK
from foldmark.summary.ladder import declared_tokens
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import Counter as Counting
from foldmark.tokens.counters import by_classes, truncate_middle
from foldmark.tokens.limits import Limit, model_limits, narrowed
from foldmark.wire.codec import Wire, wire_named
from foldmark.wire.detect import wire_of
from foldmark.wire.formats import request
from foldmark.wire.lists import read_list
from foldmark.wire.plain import plain, plain_object
from foldmark.wire.tools import declared

from .outline import LeftOut, outline
from .scan import MessageScan, MessageScanner, any_tokens

# Of the room: messages as they are, at least and at most; those without outputs; the outline.
_LEAST, _MOST, _MASKED, _OUTLINE = 0.2, 0.62, 0.15, 0.1  # an open request: 0.1 more
_OPEN, _BESIDE_OPEN = 0.3, 0.75  # an open request that is long, and what all else is cut for then
_LONGEST = 0.3  # of the room: a longer output is cut in its middle
_MOST_OUTLINE, _LEAST_OUTLINE = 4_000, 48  # tokens
_SMALL, _NOTE = 60, 16  # tokens of an output that stays, and of the note in place of another
_HEAD = 512  # characters of an output by which most are known not to be small
_LOOKED_BACK = 240  # messages whose calls an outline tells
_TRIES = 6
_CERTAIN = 8_000  # tokens of room from which shares of it are large enough not to be checked

Shorten = Callable[[str, int, Counting], str]


class Spot(Frozen, kw_only=False, gc=False):
    """A place at which a list may be cut, and the tokens from there on."""

    place: int
    tokens: int


class Cut(Frozen, kw_only=False, gc=False):
    """What is left out (before `start`), what is shown without long outputs (before `whole`)."""

    start: int
    whole: int
    longest: int  # tokens of an output
    kept: int  # tokens of all that is shown of it


def fit(  # noqa: PLR0913 - each is a choice of the caller's
    messages: list[Any],
    window: int | None = None,
    *,
    model: str | None = None,
    output: int | None = None,
    wire: str | None = None,
    system: object = "",
    tools: Iterable[object] | None = None,
) -> list[Any]:
    """The messages, or fewer that fit: the very same list where it fits already.

    Messages are dicts or objects of the official SDKs, on any wire; it is recognised, if it is not
    given. `window` is the model's context, which is known for most by their names (`model`), and
    `output` what an answer may take of it. `system` and `tools` are what the request holds beside
    the messages. What stays is handed back as the object that came. Raises WindowTooSmall where
    even the newest messages do not fit.
    """
    if not isinstance(messages, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"a list of messages is expected, not {type(messages).__name__}")
    limit, policy = _limit(window, model or ""), FOLDMARK.adjusted(reserved=output)
    beside = system if isinstance(system, str) else encode(plain(system)).decode()
    fixed = declared_tokens(beside, declared(tools or ()), by_classes)
    room = usable(policy, limit, model or "") - fixed
    if limit.context == 0 or not messages:
        return messages
    try:
        codec = wire_named(wire) if wire else wire_of(messages)
    except BadInput:  # what fits is never refused, whatever it is
        if sum(any_tokens(message, by_classes) for message in messages) < room and not wire:
            return messages
        raise
    fitting = _Fitting(messages, codec, room)
    return messages if fitting.fits() else fitting.fitted()


def _limit(window: int | None, model: str) -> Limit:
    """The limits: a window that is given goes before what is known of the model."""
    if window is not None and (not isinstance(window, int) or window <= 0):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(
            f"a window of {window!r} tokens holds nothing; leave it out where none is known"
        )
    if window is None and not model:
        raise BadInput("how much fits? give window=… in tokens, or model=… by its name")
    return model_limits(model) if window is None else narrowed(model, window)


def list_tokens(messages: Sequence[object], wire: Wire) -> int:
    """The tokens of a list, as `fit` counts them."""
    scanner = MessageScanner(messages, wire, by_classes)
    scans = map(scanner.at, range(len(messages)))
    return sum(scan.tokens + scan.output for scan in scans)


def small_or_more(text: str) -> int:
    """The tokens of a text that is small; of another, any number that is too large for that."""
    # Who counts by classes looks at least at the head, and a letter is a fifth of a token there.
    head = text[:_HEAD]
    least = (len(head) - head.count(" ")) // 5 - 1
    return least if least > _SMALL else by_classes(text)


class _Fitting:
    """One list on its way into one room."""

    def __init__(self, messages: Sequence[object], wire: Wire, room: int) -> None:
        self._messages = messages
        self._wire = wire
        self._room = room
        self._scanner = MessageScanner(messages, wire, by_classes, small_or_more)
        self._odd: set[int] = set()  # places at which calls and results do not meet
        self._lead = 0  # system prompts in front

    def fits(self) -> bool:
        """Whether all of it fits."""
        total = 0
        for place in range(len(self._messages) - 1, -1, -1):
            scan = self._scanner.at(place)
            total += scan.tokens + scan.output
            if total >= self._room:
                return False
        return True

    def fitted(self) -> list[Any]:
        """A list that fits."""
        fixed = self._led()
        room = self._room - fixed
        if room <= 0:
            largest = "the system prompt"
            raise WindowTooSmall(usable=max(self._room, 0), fixed=fixed, largest=largest)
        share = 1.0
        for _ in range(_TRIES):
            made = self._made(int(room * share))
            if made is not None and self._is_certain(made, room):
                return [*self._messages[: self._lead], *made]
            share *= 0.75
        newest = self._spots(len(self._messages), 0, _bare)[0]
        fixed += newest[0].tokens if newest else 0
        raise WindowTooSmall(usable=self._room, fixed=fixed, largest="the newest messages")

    def _led(self) -> int:
        """The tokens of the system prompts that lead the list."""
        tokens = 0
        while self._lead < len(self._messages):
            scan = self._scanner.at(self._lead)
            if scan.role != "system":
                break
            tokens += scan.tokens
            self._lead += 1
        return tokens

    def _is_certain(self, made: list[Any], room: int) -> bool:
        """Whether it fits: shares of a small room, and what was mended, are counted anew."""
        if room >= _CERTAIN and not self._odd:
            return True
        return list_tokens(made, self._wire) < room

    # --- where to cut ---

    def _made(self, room: int) -> list[Any] | None:
        cut, last = self._cut(room), int(room * _OUTLINE)
        if cut is not None and self._open_tokens(cut.start) > last:
            # What is being worked on is long, and is to be read whole.
            cut, last = self._cut(int(room * _BESIDE_OPEN)), int(room * _OPEN)
        if cut is None:
            return None
        made = self._shown(cut, room, last)
        if any(place >= cut.start for place in self._odd):
            return self._mended(made)
        return made

    def _cut(self, room: int) -> Cut | None:
        end, most = len(self._messages), room * _MOST
        longest = int(room * _LONGEST)
        while True:
            spots, all_of_it = self._spots(end, most, _cut_outputs(longest))
            if all_of_it:
                return Cut(self._lead, self._lead, longest, 0)
            if spots and spots[0].tokens <= most:
                break
            # What came last is too much by itself: its outputs are cut shorter.
            longest //= 2
            if longest < _SMALL:
                return self._tight(room)
        whole = _roundest(spots, room * _LEAST)
        most = room * _MASKED
        spots, all_of_it = self._spots(whole.place, most, _masked)
        if all_of_it:
            return Cut(self._lead, whole.place, longest, 0)
        spots = [spot for spot in spots if spot.tokens <= most]
        start = _roundest(spots, most / 4) if spots else Spot(whole.place, 0)
        return Cut(start.place, whole.place, longest, whole.tokens + start.tokens)

    def _tight(self, room: int) -> Cut | None:
        """The newest messages alone, almost without outputs; None where not even they fit."""
        spots, all_of_it = self._spots(len(self._messages), room, _bare)
        if all_of_it:
            return Cut(self._lead, len(self._messages), _SMALL, 0)
        if not spots or spots[0].tokens > room - _LEAST_OUTLINE:
            return None
        return Cut(spots[0].place, len(self._messages), _SMALL, spots[0].tokens)

    def _spots(
        self, end: int, most: float, cost: Callable[[MessageScan], int]
    ) -> tuple[list[Spot], bool]:
        """Where it may be cut before a place, back to where that is too much; and if it never is.

        The first of them is there even where it is too much.
        """
        spots: list[Spot] = []
        waiting: dict[str, int] = {}  # how many results of a call wait for it
        total = 0
        scan_at = self._scanner.estimate if cost is _masked else self._scanner.at
        for place in range(end - 1, self._lead - 1, -1):
            scan = scan_at(place)
            total += cost(scan)
            if total > most and spots:
                return spots, False
            goes_on = scan.joins and self._is_answer(place - 1)
            if waiting or scan.calls or scan.answers:
                self._pair(place, scan, waiting, goes_on=goes_on)
            if not (waiting or scan.answers or goes_on):
                spots.append(Spot(place, total))
        if waiting:  # a result leads the list
            self._odd.add(self._lead)
        return spots, total <= most

    def _is_answer(self, place: int) -> bool:
        return place >= self._lead and self._scanner.at(place).role == "assistant"

    def _pair(
        self, place: int, scan: MessageScan, waiting: dict[str, int], *, goes_on: bool
    ) -> None:
        """Take calls from the results that wait for them; what is left over is odd."""
        for call in scan.calls:
            left = waiting.pop(call, 0) - 1
            if left > 0:
                waiting[call] = left
            elif left < 0:
                self._odd.add(place)
        if waiting and scan.role != "tool" and not goes_on:
            self._odd.add(place)
            waiting.clear()
        for call in scan.answers:
            waiting[call] = waiting.get(call, 0) + 1

    # --- what is shown ---

    def _shown(self, cut: Cut, room: int, last: int) -> list[Any]:
        """What stays, after an outline of what does not."""
        start = cut.start
        made: list[Any] = []
        if start > self._lead:
            text = self._outline(cut, room, last)
            if self._scanner.at(start).role == "user":  # some refuse two messages of the user
                made += self._scanner.led(text, start)
                start += 1
            else:
                made += self._scanner.told(text)
        made += self._shortened(range(start, cut.whole), _SMALL, _left_out)
        whole = max(start, cut.whole)
        made += self._shortened(range(whole, len(self._messages)), cut.longest, truncate_middle)
        return made

    def _shortened(self, places: range, most: int, shown: Shorten) -> list[Any]:
        """The messages there; one like it for each whose outputs have too many tokens."""
        scan_at = self._scanner.estimate if most == _SMALL else self._scanner.at
        made: list[Any] = []
        for place in places:
            scan = scan_at(place)
            if scan.output <= most:
                made.append(self._messages[place])
            else:
                made += self._without_output(place, most // len(scan.answers), shown)
        return made

    def _without_output(self, place: int, most: int, shown: Shorten) -> list[Json]:
        return self._scanner.with_outputs(place, lambda text: shown(text, most, by_classes))

    def _outline(self, cut: Cut, room: int, last: int) -> str:
        scanner, start = self._scanner, cut.start
        requests, instructions = scanner.words(self._lead, start)
        left = LeftOut(
            messages=start - self._lead,
            requests=requests,
            calls=scanner.calls(max(self._lead, start - _LOOKED_BACK), start),
            instructions=instructions,
        )
        spare = room - cut.kept - _LEAST_OUTLINE // 2
        most = min(int(room * _OUTLINE), _MOST_OUTLINE, spare)
        last = min(last, spare - most) if self._is_open(start) else 0
        return outline(left, most, by_classes, last=last)

    def _is_open(self, start: int) -> bool:
        """Whether what is being worked on was asked for in what is left out."""
        places = range(start, len(self._messages))
        return not any(self._scanner.at(place).role == "user" for place in places)

    def _open_tokens(self, start: int) -> int:
        """The tokens of that request; none where it is not left out."""
        if start == self._lead or not self._is_open(start):
            return 0
        for place in range(start - 1, self._lead - 1, -1):
            if self._scanner.at(place).role == "user":
                return self._scanner.at(place).tokens
        return 0

    def _mended(self, made: list[Any]) -> list[Any]:
        """The same with a result for each call and a call for each result."""
        decoded = read_list(self._wire, [plain_object(message) for message in made])
        log = Log(by_classes)
        for message in decoded.messages:
            log.append(message)
        return list[Any](request(Viewer(log, FOLDMARK).view().messages, self._wire.name))


def _roundest(spots: Sequence[Spot], least: float) -> Spot:
    """The place that is divided by two most often: as a list grows, it stays the same for long."""
    enough = [spot for spot in spots if spot.tokens >= least]
    if not enough:
        return spots[-1]
    return max(enough, key=lambda spot: (spot.place & -spot.place, -spot.place))


def _cut_outputs(longest: int) -> Callable[[MessageScan], int]:
    return lambda scan: scan.tokens + min(scan.output, longest)


def _masked(scan: MessageScan) -> int:
    if scan.output <= _SMALL:
        return scan.tokens + scan.output
    return scan.tokens + _NOTE * len(scan.answers)


def _bare(scan: MessageScan) -> int:
    return scan.tokens + min(scan.output, _SMALL)


def _left_out(text: str, _room: int, _count: Counting) -> str:
    return f"[{size_text(text)} of output left out]"
