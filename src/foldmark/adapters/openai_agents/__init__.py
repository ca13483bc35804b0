"""Foldmark as a session of OpenAI's Agents SDK: all items are kept, the model is shown what fits.

    session = FoldmarkSession("chat-17", "agent.db", window=128_000)
    await Runner.run(agent, "Go on.", session=session, run_config=session.run_config())

The SDK asks a session only when a run begins, and a run may grow beyond any window: so the run's
configuration brings a filter, which sees the input of every call, and models that are wrapped.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from inspect import isawaitable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from foldmark.errors import FoldmarkError
from foldmark.model.values import Json
from foldmark.providers.background import uncut
from foldmark.session import opening
from foldmark.session.closing import AsyncClosing, Closing
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.wire.plain import plain_object

try:
    from agents import Model, RunConfig, SessionSettings
    from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData

    from .items import ItemsMirror
    from .model import (
        BesideItems,
        FoldmarkModel,
        FoldmarkProvider,
        Shown,
        declared_tools,
    )
except ImportError as missing:
    raise ImportError(
        "the OpenAI Agents SDK is needed: pip install 'foldmark[openai-agents]'"
    ) from missing

__all__ = ["FoldmarkSession"]

T = TypeVar("T")
_MOST_OTHERS = 8  # lists of agents inside agents, of which more is known than their session has


class _Request(NamedTuple):
    """What was shown, and when."""

    shown: Shown
    added: int  # how often items had been added then
    inside: bool  # whether a tool of our own run asked


# That is made in this context.
_REQUEST: ContextVar[_Request | None] = ContextVar("foldmark_request", default=None)


class FoldmarkSession(Closing, AsyncClosing):
    """A session of the SDK that keeps all items in a Foldmark session."""

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str, where: str | Path | None = None, **settings: Any) -> None:
        """Open the session of this id in a store; the settings are those of `foldmark.open`."""
        self.session_id = session_id
        self._opened = partial(opening.open, where, **settings)
        self._own = _closing(ItemsMirror(self._opened(session=session_id)))
        self._others: list[ItemsMirror] = []  # lists that are not ours, the newest last
        self._part: ItemsMirror | None = None  # for lists that are parts of ours
        self._added = 0  # how often the SDK has added items
        self._lock = threading.RLock()

    @property
    def session(self) -> Session:
        """The Foldmark session, to look at: its acts, its plan, what it finds and recalls."""
        return self._own.session

    # --- what the SDK asks of a session ---

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """All items, or the last ones."""
        items = await uncut(self._own.kept)
        if limit is None:
            return items
        return items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[Any]) -> None:
        """Add items."""
        self._added += 1
        await uncut(self._alone, lambda: self._own.add(items))

    async def pop_item(self) -> Any:
        """Take back the last item: no model is shown it any more, and it can still be found."""
        return await uncut(self._alone, self._own.pop)

    async def clear_session(self) -> None:
        """Take back all items."""
        await uncut(self._alone, self._own.clear)

    def _alone(self, call: Callable[[], T]) -> T:
        with self._lock, self._own.turn():
            return call()

    # --- what a run needs beside it ---

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """The configuration of a run that keeps within the window; made of another, if given."""
        given = config or RunConfig()
        return replace(
            given,
            model=self.model(given.model) if isinstance(given.model, Model) else given.model,
            model_provider=FoldmarkProvider(given.model_provider, self),
            call_model_input_filter=self._after(given.call_model_input_filter),
        )

    def model(self, model: Model) -> Model:
        """The same model, asked again with less where it refuses for length.

        For agents that have a model as an object; `run_config` does it for those that name one.
        """
        return model if isinstance(model, FoldmarkModel) else FoldmarkModel(model, self)

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """The input of a call as the model is shown it, for `RunConfig.call_model_input_filter`."""
        given, agent = data.model_data, data.agent
        beside = BesideItems(given.instructions or "", declared_tools(agent.tools, agent.handoffs))
        inside = self._is_inside()
        shown = await uncut(self._show, _plain(given.input), beside, inside)
        _REQUEST.set(_Request(shown, self._added, inside))
        return ModelInputData(input=shown.view, instructions=given.instructions)

    def _after(self, other: CallModelInputFilter | None) -> CallModelInputFilter:
        """Our filter, after the one that the program has."""
        if other is None:
            return self.filter

        async def both(data: CallModelData[Any]) -> ModelInputData:
            given = other(data)
            chosen = await given if isawaitable(given) else given
            return await self.filter(replace(data, model_data=chosen))

        return both

    # --- for wrapped models ---

    async def shown(self, given: list[Json], beside: BesideItems) -> Shown:
        """A view of what is about to be sent; where that is a view already, it stays."""
        request = _REQUEST.get()
        if request is None or request.shown.view != given or not self._has(request.shown.followed):
            return await uncut(self._show, _plain(given), beside, self._is_inside())
        if request.shown.beside == beside:
            return request.shown
        return await uncut(self._show, request.shown.history, beside, request.inside)

    def shorter(self, shown: Shown, error: Exception) -> list[Any]:
        """A view that is shorter than one that was refused."""
        followed = shown.followed
        try:
            with self._lock, followed.turn():
                if followed is self._part:
                    followed.follow(shown.history)  # another run may have used it
                return followed.shrunk(error)
        except FoldmarkError as stopped:
            raise error from stopped

    # --- whose list it is ---

    def _is_inside(self) -> bool:
        """Whether a tool of our own run asks: the items of that step are yet to be added.

        An agent inside an agent may be asked in the very words of the one outside.
        """
        request = _REQUEST.get()
        if request is None or not (request.inside or request.shown.followed is self._own):
            return False
        return 0 < self._added == request.added

    def _show(self, history: list[Json], beside: BesideItems, inside: bool) -> Shown:  # noqa: FBT001 - as `uncut` takes it
        with self._lock:
            if not inside:
                with self._own.turn():
                    if self._own.send(history):
                        return _shown(self._own, history, beside)
            found = self._other(history, inside=inside)
            with found.turn():
                found.follow(history)
                return _shown(found, history, beside)

    def _other(self, history: list[Json], *, inside: bool) -> ItemsMirror:
        """Who follows a list that is not ours, or not all of ours."""
        found = next((other for other in self._others if other.is_of(history)), None)
        if found is None and not inside and history and history[0] in self._own.items:
            self._part = self._part or _closing(ItemsMirror(self._opened(session=self._beside)))
            return self._part
        if found is None:
            # Closed when the run that it is for is over, and nobody holds it any more.
            found = _closing(ItemsMirror(LoopSupport(self.session).child()))
        self._others = [other for other in self._others if other is not found]
        self._others = [*self._others[1 - _MOST_OTHERS :], found]
        return found

    @property
    def _beside(self) -> str:
        """The id of the one session for parts of our list; nobody can guess it."""
        first = self.session.export(reverted=False).messages[0].id
        return f"part-{blake2b(f'{self.session.id} {first}'.encode(), digest_size=16).hexdigest()}"

    def _has(self, followed: ItemsMirror) -> bool:
        return followed in (self._own, self._part) or followed in self._others

    # --- the end ---

    def close(self) -> None:
        """Let the store go."""
        with self._lock:
            for held in (*self._others, self._part, self._own):
                if held is not None:
                    held.session.close()
            self._others = []

    async def aclose(self) -> None:
        """`close`, async."""
        await uncut(self.close)


def _plain(given: Sequence[Any]) -> list[Json]:
    return [cast("Json", item) if isinstance(item, dict) else plain_object(item) for item in given]


def _shown(followed: ItemsMirror, history: list[Json], beside: BesideItems) -> Shown:
    followed.session.configure(system=beside.system, tools=beside.tools)
    return Shown(followed.view(), history, followed, beside)


def _closing(followed: ItemsMirror) -> ItemsMirror:
    """The same; who forgets to close it leaves nothing open."""
    weakref.finalize(followed, followed.session.close)
    return followed
