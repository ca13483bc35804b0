"""Opening a session: settings, store, model and hooks put together."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foldmark.errors import StoreError
from foldmark.io.rows import SessionRow
from foldmark.io.store import LATEST, Store, checked_id
from foldmark.messages import SessionInfo, Time
from foldmark.policy import Policy

from .maker import Maker
from .session import Session
from .settings import Settings, load_settings

DEFAULT_STORE = "foldmark.db"


def open(  # noqa: A001 - `foldmark.open` is its name
    where: str | Path | None = None,
    *,
    session: str | None = None,
    policy: str | Policy | None = None,
    hooks: Iterable[object] = (),
    fixed: int = 0,
    **settings: Any,
) -> Session:
    """A session in a store: a new one, `latest`, or the one of this id, made if there is none.

    `where` is a path or a postgresql:// address. `fixed` is what a request holds beside the view:
    the tokens of the system prompt and the tools. The rest are settings; see `Settings`.
    """
    given: dict[str, Any] = {**settings, "store": None if where is None else str(where)}
    if not isinstance(policy, Policy):
        given["policy"] = policy
    chosen = load_settings(**given)
    rules = policy if isinstance(policy, Policy) else chosen.rules()
    place = chosen.store or DEFAULT_STORE
    store = open_store(chosen)
    try:
        maker = Maker("")
        row = _row(store, session, maker, rules.estimate)
        opened = Session(store, row, chosen, rules)
    except BaseException:
        store.close()
        raise
    opened.prepare(place, tuple(hooks))
    opened.fixed = fixed
    return opened


async def aopen(where: str | Path | None = None, **more: Any) -> Session:
    """`open`, async."""
    return await asyncio.to_thread(open, where, **more)


def open_store(settings: Settings) -> Store:
    """The store that the settings name."""
    where = settings.store or DEFAULT_STORE
    return Store.open(where, durable=settings.durable, wait=max(settings.wait_seconds, 1.0))


def _row(store: Store, session: str | None, maker: Maker, estimate: str) -> SessionRow:
    if session == LATEST:
        return store.named(LATEST)
    if session is not None:
        checked_id(session)
    found = None if session is None else store.find(session)
    if found is not None:
        return found
    now = maker.now()
    name = session or maker.session_id()
    info = SessionInfo(id=name, time=Time(created=now, updated=now))
    try:
        return store.create(info, estimate=estimate)
    except StoreError:
        if found := store.find(name):  # another process was quicker
            return found
        raise
