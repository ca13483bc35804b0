"""`foldmark.fit`: takes a list of API messages and returns one that fits. No store, no model.

The newest messages stay unchanged, older ones lose their long outputs, and the oldest become an
outline. The cut depends on the list alone and moves seldom: while a list grows, most requests
begin with the bytes of the previous one, so the provider's cache stays valid. Only the remaining
messages and the user's texts are read, so a long list costs hardly more than a short one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from foldmark.errors import BadInput, WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.render import size_text
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen, Json, encode
from foldmark.policy import FOLDMARK
from foldmark.summary.fallback import declared_tokens
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import Counter as Counting
from foldmark.tokens.counters import by_classes, truncate_middle
from foldmark.tokens.limits import Limit, limits_with_window, model_limits
from foldmark.wire.codec import Codec, codec_named
from foldmark.wire.detect import likely_codec
from foldmark.wire.formats import request
from foldmark.wire.lists import read_list
from foldmark.wire.plain import plain, plain_object
from foldmark.wire.tools import tool_declarations

from .outline import OmittedMessages, outline
from .scan import MessageScan, MessageScanner, any_tokens

# Shares of the budget: unchanged messages (min, max), messages without outputs, the outline.
_MIN_WHOLE, _MAX_WHOLE, _BARE, _OUTLINE = 0.2, 0.62, 0.15, 0.1  # plus 0.1 for an open request
_OPEN_REQUEST, _REST = 0.3, 0.75  # for a long open request, and for everything else
_LONGEST = 0.3  # share of the budget; longer outputs are truncated in the middle
_MAX_OUTLINE, _MIN_OUTLINE = 4_000, 48  # tokens
_SMALL, _NOTE = 60, 16  # tokens of an output that stays, and of the note that replaces a larger one
_HEAD = 512  # characters that show for most outputs that they are not small
_LOOK_BACK = 240  # messages whose calls an outline lists
_TRIES = 6
_LARGE = 8_000  # a budget of this many tokens leaves enough slack to skip the final count

Shorten = Callable[[str, int, Counting], str]


class CutPoint(Frozen, kw_only=False, gc=False):
    """An index at which a list may be cut, and the tokens from there on."""

    index: int
    tokens: int


class ListCut(Frozen, kw_only=False, gc=False):
    """Messages before `start` are omitted; those before `whole` lose their long outputs."""

    start: int
    whole: int
    longest: int  # tokens of an output
    tokens: int  # of the messages that stay


def fit(  # noqa: PLR0913 - each is a choice of the caller's
    messages: list[Any],
    window: int | None = None,
    *,
    model: str | None = None,
    output: int | None = None,
    api: str | None = None,
    system: object = "",
    tools: Iterable[object] | None = None,
) -> list[Any]:
    """Return messages that fit into the window; the same list if it fits already.

    Messages are dicts or objects of the official SDKs in any API format (`api`), which is
    recognized if not given. `window` is the context size in tokens, known for most models by name
    (`model`); `output` is the part reserved for the reply. `system` and `tools` are the rest of
    the request. Unchanged messages are returned as the same objects. Raises WindowTooSmall if not
    even the newest messages fit, and BadInput if the format is not recognized.
    """
    if not isinstance(messages, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"messages must be a list, not {type(messages).__name__}")
    limit, policy = _limit(window, model or ""), FOLDMARK.adjusted(reserved=output)
    prompt = system if isinstance(system, str) else encode(plain(system)).decode()
    fixed = declared_tokens(prompt, tool_declarations(tools or ()), by_classes)
    budget = usable(policy, limit, model or "") - fixed
    if limit.context == 0 or not messages:
        return messages
    try:
        codec = codec_named(api) if api else likely_codec(messages)
    except BadInput:  # a list that fits is never refused, whatever its format
        if sum(any_tokens(message, by_classes) for message in messages) < budget and not api:
            return messages
        raise
    fitter = _ListFitter(messages, codec, budget)
    return messages if fitter.fits() else fitter.fit()


def _limit(window: int | None, model: str) -> Limit:
    """The limits of the model, with the given window if any."""
    if window is not None and (not isinstance(window, int) or window <= 0):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"window must be a positive number of tokens, not {window!r}; or omit it")
    if window is None and not model:
        raise BadInput("the context size is unknown: pass window=… (tokens) or model=… (its name)")
    return model_limits(model) if window is None else limits_with_window(model, window)


def list_tokens(messages: Sequence[object], wire: Codec) -> int:
    """The tokens of a list, as `fit` counts them."""
    scanner = MessageScanner(messages, wire, by_classes)
    scans = map(scanner.at, range(len(messages)))
    return sum(scan.tokens + scan.output for scan in scans)


def small_or_more(text: str) -> int:
    """The tokens of a small text; for a larger text, some number above the limit for small."""
    # `by_classes` counts at least the head, where each letter is a fifth of a token or more.
    head = text[:_HEAD]
    lower_bound = (len(head) - head.count(" ")) // 5 - 1
    return lower_bound if lower_bound > _SMALL else by_classes(text)


class _ListFitter:
    """Fits one list of messages into one budget."""

    def __init__(self, messages: Sequence[object], wire: Codec, budget: int) -> None:
        self._messages = messages
        self._wire = wire
        self._budget = budget
        self._scanner = MessageScanner(messages, wire, by_classes, small_or_more)
        self._unpaired: set[int] = set()  # indexes of calls or results without a counterpart
        self._lead = 0  # number of leading system prompts

    def fits(self) -> bool:
        """Whether the whole list fits."""
        total = 0
        for index in range(len(self._messages) - 1, -1, -1):
            scan = self._scanner.at(index)
            total += scan.tokens + scan.output
            if total >= self._budget:
                return False
        return True

    def fit(self) -> list[Any]:
        """Return a list that fits. Raises WindowTooSmall if there is none."""
        fixed = self._skip_system_prompts()
        budget = self._budget - fixed
        if budget <= 0:
            largest = "the system prompt"
            raise WindowTooSmall(usable=max(self._budget, 0), fixed=fixed, largest=largest)
        share = 1.0
        for _ in range(_TRIES):
            messages = self._fit_budget(int(budget * share))
            if messages is not None and self._is_within(messages, budget):
                return [*self._messages[: self._lead], *messages]
            share *= 0.75
        newest = self._cut_points(len(self._messages), 0, _cost_bare)[0]
        fixed += newest[0].tokens if newest else 0
        raise WindowTooSmall(usable=self._budget, fixed=fixed, largest="the newest messages")

    def _skip_system_prompts(self) -> int:
        """Skip the leading system prompts and return their tokens."""
        tokens = 0
        while self._lead < len(self._messages):
            scan = self._scanner.at(self._lead)
            if scan.role != "system":
                break
            tokens += scan.tokens
            self._lead += 1
        return tokens

    def _is_within(self, messages: list[Any], budget: int) -> bool:
        """Whether the messages fit; small budgets and repaired lists are counted again."""
        if budget >= _LARGE and not self._unpaired:
            return True
        return list_tokens(messages, self._wire) < budget

    # --- where to cut ---

    def _fit_budget(self, budget: int) -> list[Any] | None:
        cut, request_budget = self._choose_cut(budget), int(budget * _OUTLINE)
        if cut is not None and self._open_tokens(cut.start) > request_budget:
            # The open request is long; give it more, so that it stays complete.
            cut, request_budget = self._choose_cut(int(budget * _REST)), int(budget * _OPEN_REQUEST)
        if cut is None:
            return None
        messages = self._build(cut, budget, request_budget)
        if any(index >= cut.start for index in self._unpaired):
            return self._repair_pairs(messages)
        return messages

    def _choose_cut(self, budget: int) -> ListCut | None:
        end, limit = len(self._messages), budget * _MAX_WHOLE
        longest = int(budget * _LONGEST)
        while True:
            points, is_all = self._cut_points(end, limit, _cost_truncated(longest))
            if is_all:
                return ListCut(self._lead, self._lead, longest, 0)
            if points and points[0].tokens <= limit:
                break
            # The newest messages alone exceed the limit: truncate their outputs further.
            longest //= 2
            if longest < _SMALL:
                return self._tightest_cut(budget)
        whole = _roundest(points, budget * _MIN_WHOLE)
        limit = budget * _BARE
        points, is_all = self._cut_points(whole.index, limit, _cost_without_outputs)
        if is_all:
            return ListCut(self._lead, whole.index, longest, 0)
        points = [point for point in points if point.tokens <= limit]
        start = _roundest(points, limit / 4) if points else CutPoint(whole.index, 0)
        return ListCut(start.index, whole.index, longest, whole.tokens + start.tokens)

    def _tightest_cut(self, budget: int) -> ListCut | None:
        """A cut that keeps only the newest messages, nearly without outputs; None if too large."""
        points, is_all = self._cut_points(len(self._messages), budget, _cost_bare)
        if is_all:
            return ListCut(self._lead, len(self._messages), _SMALL, 0)
        if not points or points[0].tokens > budget - _MIN_OUTLINE:
            return None
        return ListCut(points[0].index, len(self._messages), _SMALL, points[0].tokens)

    def _cut_points(
        self, end: int, limit: float, cost: Callable[[MessageScan], int]
    ) -> tuple[list[CutPoint], bool]:
        """The points before `end` where the list may be cut within the limit, newest first.

        The first point may exceed the limit. Also returns whether the whole list is within it.
        """
        points: list[CutPoint] = []
        waiting: dict[str, int] = {}  # results without their call so far, by call id
        total = 0
        scan_at = self._scanner.estimate if cost is _cost_without_outputs else self._scanner.at
        for index in range(end - 1, self._lead - 1, -1):
            scan = scan_at(index)
            total += cost(scan)
            if total > limit and points:
                return points, False
            continues = scan.joins and self._is_reply(index - 1)
            if waiting or scan.calls or scan.results:
                self._pair(index, scan, waiting, continues=continues)
            if not (waiting or scan.results or continues):
                points.append(CutPoint(index, total))
        if waiting:  # the list begins with a result
            self._unpaired.add(self._lead)
        return points, total <= limit

    def _is_reply(self, index: int) -> bool:
        return index >= self._lead and self._scanner.at(index).role == "assistant"

    def _pair(
        self, index: int, scan: MessageScan, waiting: dict[str, int], *, continues: bool
    ) -> None:
        """Match calls with the waiting results, and note the index of unmatched ones."""
        for call in scan.calls:
            count = waiting.pop(call, 0) - 1
            if count > 0:
                waiting[call] = count
            elif count < 0:
                self._unpaired.add(index)
        if waiting and scan.role != "tool" and not continues:
            self._unpaired.add(index)
            waiting.clear()
        for call in scan.results:
            waiting[call] = waiting.get(call, 0) + 1

    # --- the new list ---

    def _build(self, cut: ListCut, budget: int, request_budget: int) -> list[Any]:
        """Return the messages that stay, after an outline of the omitted ones."""
        start = cut.start
        messages: list[Any] = []
        if start > self._lead:
            text = self._outline(cut, budget, request_budget)
            if self._scanner.at(start).role == "user":  # some APIs refuse two in a row
                messages += self._scanner.with_lead(text, start)
                start += 1
            else:
                messages += self._scanner.user_message(text)
        messages += self._shorten(range(start, cut.whole), _SMALL, _omission_note)
        whole = max(start, cut.whole)
        messages += self._shorten(range(whole, len(self._messages)), cut.longest, truncate_middle)
        return messages

    def _shorten(self, indexes: range, limit: int, shorten: Shorten) -> list[Any]:
        """Return these messages, with copies in place of those whose outputs exceed the limit."""
        scan_at = self._scanner.estimate if limit == _SMALL else self._scanner.at
        messages: list[Any] = []
        for index in indexes:
            scan = scan_at(index)
            if scan.output <= limit:
                messages.append(self._messages[index])
            else:
                messages += self._with_short_outputs(index, limit // len(scan.results), shorten)
        return messages

    def _with_short_outputs(self, index: int, limit: int, shorten: Shorten) -> list[Json]:
        return self._scanner.with_outputs(index, lambda text: shorten(text, limit, by_classes))

    def _outline(self, cut: ListCut, budget: int, request_budget: int) -> str:
        scanner, start = self._scanner, cut.start
        requests, instructions = scanner.user_texts(self._lead, start)
        omitted = OmittedMessages(
            messages=start - self._lead,
            requests=requests,
            calls=scanner.calls(max(self._lead, start - _LOOK_BACK), start),
            instructions=instructions,
        )
        spare = budget - cut.tokens - _MIN_OUTLINE // 2
        limit = min(int(budget * _OUTLINE), _MAX_OUTLINE, spare)
        request_budget = min(request_budget, spare - limit) if self._is_open(start) else 0
        return outline(omitted, limit, by_classes, extra=request_budget)

    def _is_open(self, start: int) -> bool:
        """Whether the open request is among the omitted messages."""
        indexes = range(start, len(self._messages))
        return not any(self._scanner.at(index).role == "user" for index in indexes)

    def _open_tokens(self, start: int) -> int:
        """The tokens of the open request, or 0 if it is not omitted."""
        if start == self._lead or not self._is_open(start):
            return 0
        for index in range(start - 1, self._lead - 1, -1):
            if self._scanner.at(index).role == "user":
                return self._scanner.at(index).tokens
        return 0

    def _repair_pairs(self, messages: list[Any]) -> list[Any]:
        """Return the messages with a result for each call and a call for each result."""
        decoded = read_list(self._wire, [plain_object(message) for message in messages])
        log = Log(by_classes)
        for message in decoded.messages:
            log.append(message)
        return list[Any](request(Viewer(log, FOLDMARK).view().messages, self._wire.name))


def _roundest(points: Sequence[CutPoint], min_tokens: float) -> CutPoint:
    """The point whose index is divisible by the largest power of two: it moves seldom."""
    enough = [point for point in points if point.tokens >= min_tokens]
    if not enough:
        return points[-1]
    return max(enough, key=lambda point: (point.index & -point.index, -point.index))


def _cost_truncated(longest: int) -> Callable[[MessageScan], int]:
    return lambda scan: scan.tokens + min(scan.output, longest)


def _cost_without_outputs(scan: MessageScan) -> int:
    if scan.output <= _SMALL:
        return scan.tokens + scan.output
    return scan.tokens + _NOTE * len(scan.results)


def _cost_bare(scan: MessageScan) -> int:
    return scan.tokens + min(scan.output, _SMALL)


def _omission_note(text: str, _limit: int, _count: Counting) -> str:
    return f"[{size_text(text)} of output left out]"
