"""The gauge of a run: how full the window is, what was hidden to keep it so, what it cost.

It is told events and gives a line. Where that line is drawn is not known here.
"""

from collections.abc import Iterable

from rich.text import Text

from foldmark.model import events
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo, Tokens
from foldmark.model.operations import Operation
from foldmark.session.session import Session
from foldmark.tokens.budget import pressure

from .tables import QUIET, pressure_colour, pressure_text

_BAR = 10  # characters
_AT_ONCE = 1_000
_THOUSAND, _MILLION = 1_000, 1_000_000
_RESHAPED = frozenset({events.COMPACTED, events.UNDONE, events.REDONE, events.REVERTED})


class Gauge:
    """The figures of a session, kept up to date by its events."""

    def __init__(self, session: Session) -> None:
        """Take the session as it is now."""
        self._session = session
        self._hidden = _parts_by_prune(session)
        self._spent = 0.0  # by turns that have ended
        self.cost = 0.0
        self.step = 0
        self.cached: float | None = None  # of the newest request, as a share
        self.refresh()

    def refresh(self) -> None:
        """Look at the session anew: its window may be another."""
        self.used, self.usable = self._session.tokens, self._session.room
        self._look()

    def _look(self) -> None:
        acts = self._session.acts()
        self.pruned = sum(self._hidden.get(act.number, 0) for act in acts if act.in_force)
        self.folded = folded_messages(self._session, acts)

    def take(self, event: Event) -> None:
        """Note what an event tells."""
        data = event.data
        match event.kind:
            case events.STEP_STARTED:
                self.step, self.used = data["step"], data["tokens"]
            case events.STEP_FINISHED:
                self.used, self.usable = data["used"], data["usable"]
                self.cost = self._spent + data["cost"]
                self.cached = self._cached_share()
            case events.TURN_FINISHED:
                self._spent = self.cost = self._spent + data["cost"]
            case events.PRUNED:
                self._hidden[data["act"]] = data["parts"]
                self.used = max(0, self.used - data["before"] + data["after"])
                self._look()
            case kind if kind in _RESHAPED:
                self.used = self._session.tokens
                self._look()
            case _:
                return

    def _cached_share(self) -> float | None:
        last = self._session.newest()
        info = last.info if last else None
        return cached_share(info.tokens or None) if isinstance(info, AssistantInfo) else None

    def line(self, width: int) -> Text:
        """The gauge, as much of it as there is room for: the least important is left out first."""
        full = pressure(self.used, self.usable) if self.usable else 0.0
        items = list(self._items(full))
        while len(items) > 1 and sum(map(len, items)) + 3 * len(items) + _BAR > width:
            items.pop()
        colour = pressure_colour(full)
        filled = min(_BAR, round(full * _BAR))
        line = Text("[", style=QUIET, no_wrap=True, overflow="ellipsis")
        line.append("█" * filled, style=colour)
        line.append("░" * (_BAR - filled) + "] ")
        line.append(items[0], style=colour)
        return line.append("".join(f" · {item}" for item in items[1:]))

    def _items(self, full: float) -> Iterable[str]:
        yield pressure_text(full).replace(" %", "%") if self.usable else "no limit"
        whole = f" of {short(self.usable)}" if self.usable else " tokens"
        yield f"{short(self.used)}{whole}"
        if self.pruned:
            yield f"pruned {self.pruned:,}"
        if self.folded:
            yield f"folded {self.folded:,}"
        if self.cached is not None:
            yield f"cached {self.cached:.0%}"
        if self.cost:
            yield dollars(self.cost)
        if self.step:
            yield f"step {self.step:,}"


def short(tokens: int) -> str:
    """A number of tokens in a few characters."""
    if tokens < _THOUSAND:
        return str(tokens)
    unit, sign = (_THOUSAND, "k") if tokens < _MILLION else (_MILLION, "M")
    figure = f"{tokens / unit:.1f}"
    return f"{figure.removesuffix('.0')}{sign}"


def dollars(cost: float) -> str:
    """A cost, exact to a tenth of a cent where it is small."""
    return f"${cost:.3f}" if cost < 1 else f"${cost:,.2f}"


def cached_share(tokens: Tokens | None) -> float | None:
    """How much of a request was read from the provider's cache; None where it is not told."""
    if tokens is None or not tokens.cache:
        return None
    read, write = tokens.cache.read or 0, tokens.cache.write or 0
    whole = (tokens.input or 0) + read + write
    return read / whole if whole and (read or write) else None


def folded_messages(session: Session, acts: Iterable[Operation]) -> int:
    """How many messages the newest summary stands for."""
    view = session.view()
    if view.pivot is None:
        return 0
    reverts = [act for act in acts if act.kind == "revert" and act.in_force]
    shown = set(view.places).union(*(range(act.tail or 0, act.marker or 0) for act in reverts))
    return sum(place not in shown for place in range(view.pivot.marker))


def _parts_by_prune(session: Session) -> dict[int, int]:
    """How many outputs each prune of an earlier run has hidden."""
    found: dict[int, int] = {}
    after = 0
    while session.info.acts and (some := session.events(after, _AT_ONCE)):
        for event in some:
            if event.kind == events.PRUNED:
                found[event.data["act"]] = event.data["parts"]
        after = some[-1].number
    return found
