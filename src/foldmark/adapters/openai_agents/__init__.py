"""Foldmark as a session of OpenAI's Agents SDK: it stores all items and sends a view that fits.

    session = FoldmarkSession("chat-17", "agent.db", window=128_000)
    await Runner.run(agent, "Go on.", session=session, run_config=session.run_config())

The SDK reads a session only when a run starts, but a run may outgrow any window. The run's
configuration therefore adds a filter, which sees the input of every call, and wraps models.
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
from foldmark.providers.background import run_uninterrupted
from foldmark.session import opening
from foldmark.session.closing import AsyncClosing, Closing
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.wire.plain import plain_object

try:
    from agents import Model, RunConfig, SessionSettings
    from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData

    from .items import ItemsMirror
    from .model import FixedInputs, FoldmarkModel, FoldmarkProvider, RequestView, declared_tools
except ImportError as missing:
    raise ImportError(
        "this adapter needs the OpenAI Agents SDK: pip install 'foldmark[openai-agents]'"
    ) from missing

__all__ = ["FoldmarkSession"]

T = TypeVar("T")
_MAX_OTHERS = 8  # mirrors of nested agents with more state than their session


class _Request(NamedTuple):
    """The view of the last request in a context."""

    view: RequestView
    additions: int  # number of `add_items` calls before it
    is_nested: bool  # whether a tool of our own run sent it


_REQUEST: ContextVar[_Request | None] = ContextVar("foldmark_request", default=None)


class FoldmarkSession(Closing, AsyncClosing):
    """A session of the SDK that stores all items in a Foldmark session."""

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str, where: str | Path | None = None, **settings: Any) -> None:
        """Open the session with this id in a store; the settings are those of `foldmark.open`."""
        self.session_id = session_id
        self._open = partial(opening.open, where, **settings)
        self._own = _mirror(self._open(session=session_id))
        self._others: list[ItemsMirror] = []  # for lists of other agents, the newest last
        self._partial: ItemsMirror | None = None  # for lists that are parts of our own
        self._additions = 0  # number of `add_items` calls
        self._lock = threading.RLock()

    @property
    def session(self) -> Session:
        """The Foldmark session, for its operations, plan, search and recall."""
        return self._own.session

    # --- the SDK's session interface ---

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """All items, or the last `limit` ones."""
        items = await run_uninterrupted(self._own.all_items)
        if limit is None:
            return items
        return items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[Any]) -> None:
        """Add items."""
        self._additions += 1
        await run_uninterrupted(self._alone, lambda: self._own.add(items))

    async def pop_item(self) -> Any:
        """Revert the last item and return it: it is hidden from models but can still be found."""
        return await run_uninterrupted(self._alone, self._own.pop)

    async def clear_session(self) -> None:
        """Revert all items."""
        await run_uninterrupted(self._alone, self._own.clear)

    def _alone(self, call: Callable[[], T]) -> T:
        with self._lock, self._own.turn():
            return call()

    # --- run configuration ---

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """A run configuration that keeps requests within the window, based on `config`."""
        base = config or RunConfig()
        return replace(
            base,
            model=self.model(base.model) if isinstance(base.model, Model) else base.model,
            model_provider=FoldmarkProvider(base.model_provider, self),
            call_model_input_filter=self._after(base.call_model_input_filter),
        )

    def model(self, model: Model) -> Model:
        """Wrap a model so that it is called again with less after a refusal for length.

        For agents with a model object; `run_config` does it for agents with a model's name.
        """
        return model if isinstance(model, FoldmarkModel) else FoldmarkModel(model, self)

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Replace the input of a call by a view, for `RunConfig.call_model_input_filter`."""
        model_data, agent = data.model_data, data.agent
        tools = declared_tools(agent.tools, agent.handoffs)
        fixed = FixedInputs(model_data.instructions or "", tools)
        is_nested = self._is_nested()
        view = await run_uninterrupted(self._show, _plain(model_data.input), fixed, is_nested)
        _REQUEST.set(_Request(view, self._additions, is_nested))
        return ModelInputData(input=view.items, instructions=model_data.instructions)

    def _after(self, other: CallModelInputFilter | None) -> CallModelInputFilter:
        """Our filter, applied after the program's own."""
        if other is None:
            return self.filter

        async def both(data: CallModelData[Any]) -> ModelInputData:
            result = other(data)
            model_data = await result if isawaitable(result) else result
            return await self.filter(replace(data, model_data=model_data))

        return both

    # --- for wrapped models ---

    async def view_of(self, items: list[Json], fixed: FixedInputs) -> RequestView:
        """A view of the items to send; a view that the filter made is reused."""
        request = _REQUEST.get()
        if not (request and request.view.items == items and self._has(request.view.mirror)):
            return await run_uninterrupted(self._show, _plain(items), fixed, self._is_nested())
        if request.view.fixed == fixed:
            return request.view
        return await run_uninterrupted(self._show, request.view.history, fixed, request.is_nested)

    def shorter(self, view: RequestView, error: Exception) -> list[Any]:
        """A shorter view after a refusal for length."""
        mirror = view.mirror
        try:
            with self._lock, mirror.turn():
                if mirror is self._partial:
                    mirror.follow(view.history)  # another run may have used it meanwhile
                return mirror.shorter_view(error)
        except FoldmarkError as failure:
            raise error from failure

    # --- mirrors of lists ---

    def _is_nested(self) -> bool:
        """Whether a tool of our own run sends this: the items of that step are not added yet.

        A nested agent may get the same input as the outer one.
        """
        request = _REQUEST.get()
        if request is None or not (request.is_nested or request.view.mirror is self._own):
            return False
        return 0 < self._additions == request.additions

    def _show(self, history: list[Json], fixed: FixedInputs, is_nested: bool) -> RequestView:  # noqa: FBT001 - `uncut` passes positional arguments
        with self._lock:
            if not is_nested:
                with self._own.turn():
                    if self._own.try_follow(history):
                        return _view_of(self._own, history, fixed)
            mirror = self._other(history, is_nested=is_nested)
            with mirror.turn():
                mirror.follow(history)
                return _view_of(mirror, history, fixed)

    def _other(self, history: list[Json], *, is_nested: bool) -> ItemsMirror:
        """The mirror of a list of another agent, or of a part of our own."""
        mirror = next((other for other in self._others if other.is_continued_by(history)), None)
        if mirror is None and not is_nested and history and history[0] in self._own.items:
            self._partial = self._partial or _mirror(self._open(session=self._partial_id))
            return self._partial
        if mirror is None:
            # Closed once its run is over and nothing refers to it.
            mirror = _mirror(LoopSupport(self.session).child())
        self._others = [other for other in self._others if other is not mirror]
        self._others = [*self._others[1 - _MAX_OTHERS :], mirror]
        return mirror

    @property
    def _partial_id(self) -> str:
        """The id of the session for parts of our list; it cannot be guessed."""
        first = self.session.export(reverted=False).messages[0].id
        return f"part-{blake2b(f'{self.session.id} {first}'.encode(), digest_size=16).hexdigest()}"

    def _has(self, mirror: ItemsMirror) -> bool:
        return mirror in (self._own, self._partial) or mirror in self._others

    # --- closing ---

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            for mirror in (*self._others, self._partial, self._own):
                if mirror is not None:
                    mirror.session.close()
            self._others = []

    async def aclose(self) -> None:
        """Async form of `close`."""
        await run_uninterrupted(self.close)


def _plain(items: Sequence[Any]) -> list[Json]:
    return [cast("Json", item) if isinstance(item, dict) else plain_object(item) for item in items]


def _view_of(mirror: ItemsMirror, history: list[Json], fixed: FixedInputs) -> RequestView:
    mirror.session.configure(system=fixed.system, tools=fixed.tools)
    return RequestView(mirror.view(), history, mirror, fixed)


def _mirror(session: Session) -> ItemsMirror:
    """A mirror that closes its session when it is deleted, at the latest."""
    mirror = ItemsMirror(session)
    weakref.finalize(mirror, session.close)
    return mirror
