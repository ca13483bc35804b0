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
from inspect import isawaitable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from foldmark.closing import AsyncClosing, Closing
from foldmark.io.background import uncut
from foldmark.session import opening
from foldmark.session.session import Session
from foldmark.values import Json
from foldmark.wire.plain import plain_object

try:
    from agents import Model, RunConfig, SessionSettings
    from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData

    from .items import ItemsFollowing
    from .model import (
        FoldmarkModel,
        FoldmarkProvider,
        count_beside,
        declared_tools,
    )
except ImportError as missing:
    raise ImportError(
        "the OpenAI Agents SDK is needed: pip install 'foldmark[openai-agents]'"
    ) from missing

__all__ = ["FoldmarkSession"]

T = TypeVar("T")
_MOST_OTHERS = 8  # lists of agents inside agents, of which more is known than their session has


class _Shown(NamedTuple):
    """What the filter gave, and the session that it is a view of."""

    view: list[Json]
    followed: ItemsFollowing
    added: int  # how often items had been added then
    inside: bool  # whether a tool of our own run asked


# Of the request that is made in this context.
_SHOWN: ContextVar[_Shown | None] = ContextVar("foldmark_shown", default=None)


class FoldmarkSession(Closing, AsyncClosing):
    """A session of the SDK that keeps all items in a Foldmark session."""

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str, where: str | Path | None = None, **settings: Any) -> None:
        """Open the session of this id in a store; the settings are those of `foldmark.open`."""
        self.session_id = session_id
        self._own = ItemsFollowing(opening.open(where, session=session_id, **settings))
        self._others: list[ItemsFollowing] = []  # lists that are not ours, the newest last
        self._added = 0  # how often the SDK has added items
        self._lock = threading.RLock()

    @property
    def session(self) -> Session:
        """The Foldmark session, to look at: its acts, its plan, what it finds and recalls."""
        return self._own.session

    # --- what the SDK asks of a session ---

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """All items, or the last ones."""
        items = await uncut(self._alone, lambda: list(self._own.items))
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
        with self._lock:
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
        inside = self._is_inside()
        followed = await self._following(given.input)
        count_beside(followed, given.instructions, declared_tools(agent.tools, agent.handoffs))
        view: list[Any] = await followed.aview()
        _SHOWN.set(_Shown(view, followed, self._added, inside))
        return ModelInputData(input=view, instructions=given.instructions)

    def _after(self, other: CallModelInputFilter | None) -> CallModelInputFilter:
        """Our filter, after the one that the program has."""
        if other is None:
            return self.filter

        async def both(data: CallModelData[Any]) -> ModelInputData:
            given = other(data)
            chosen = await given if isawaitable(given) else given
            return await self.filter(replace(data, model_data=chosen))

        return both

    # --- whose list it is ---

    async def following(self, given: list[Json]) -> ItemsFollowing:
        """The session that follows what a model is about to be sent; for wrapped models."""
        shown = _SHOWN.get()
        if shown is not None and shown.view == given and self._has(shown.followed):
            return shown.followed
        return await self._following(given)

    async def _following(self, given: Sequence[Any]) -> ItemsFollowing:
        items: list[Json] = [
            cast("Json", item) if isinstance(item, dict) else plain_object(item) for item in given
        ]
        return await uncut(self._followed, items, self._is_inside())

    def _is_inside(self) -> bool:
        """Whether a tool of our own run asks: the items of that step are yet to be added.

        An agent inside an agent may be asked in the very words of the one outside.
        """
        shown = _SHOWN.get()
        if shown is None or not (shown.inside or shown.followed is self._own):
            return False
        return 0 < self._added == shown.added

    def _followed(self, items: list[Json], inside: bool) -> ItemsFollowing:  # noqa: FBT001 - as `uncut` takes it
        with self._lock:
            if not inside and self._own.send(items):
                return self._own
            found = next((other for other in self._others if other.send(items)), None)
            if found is None:
                found = ItemsFollowing(self.session.child())
                found.send(items)
                # Closed when the run that it is for is over, and nobody holds it any more.
                weakref.finalize(found, found.session.close)
            self._others = [other for other in self._others if other is not found]
            self._others = [*self._others[1 - _MOST_OTHERS :], found]
            return found

    def _has(self, followed: ItemsFollowing) -> bool:
        return followed is self._own or followed in self._others

    # --- the end ---

    def close(self) -> None:
        """Let the store go."""
        with self._lock:
            for other in self._others:
                other.session.close()
            self._others = []
            self._own.session.close()

    async def aclose(self) -> None:
        """`close`, async."""
        await uncut(self.close)
