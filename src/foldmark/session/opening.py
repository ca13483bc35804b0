"""Opens sessions: combines settings, store, model and hooks."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foldmark.errors import StoreError
from foldmark.policy import Policy
from foldmark.providers.models import model_named
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store, check_session_id
from foldmark.summary.protocol import Summarizer
from foldmark.wire.tools import tool_declarations

from .hooks import check_hooks, installed_hooks
from .message_builder import MessageBuilder
from .session import Session
from .settings import DIGEST, Settings, load_settings
from .state import SessionSetup

DEFAULT_STORE = "foldmark.db"


def open(  # noqa: A001, PLR0913 - `foldmark.open` is its name; each is a choice of the caller's
    where: str | Path | None = None,
    *,
    session: str | None = None,
    policy: str | Policy | None = None,
    hooks: Iterable[object] = (),
    fixed_tokens: int | None = None,
    system: str = "",
    tools: Iterable[object] = (),
    summarizer: str | Summarizer | None = None,
    **settings: Any,
) -> Session:
    """Open a session: a new one, the "latest", or the one with this id, created if missing.

    `where` is a file or a postgresql:// address. `system` and `tools` are sent with every request:
    they are counted, and summaries are requested with them so that the provider's cache is used.
    If you cannot pass them, pass their size as `fixed_tokens`. `summarizer` is "digest", the name
    of a model, or a `Summarizer`. All other arguments are settings; see `Settings`.
    """
    chosen, rules = resolve_settings(where, policy, summarizer, settings)
    declared_tools = tuple(tool_declarations(tools))
    checked_hooks = check_hooks(hooks)
    model = None if isinstance(summarizer, str) else summarizer
    if model is None and chosen.summarizer not in (None, DIGEST):
        # Raise problems with the configured summarizer now, not at the first compaction.
        model = model_named(chosen.summarizer, base_url=chosen.base_url)
    store = open_store(chosen)
    try:
        row = _find_or_create(store, session, rules.estimate)
        new_session = make_session(row, store, chosen, rules, hooks=checked_hooks, summarizer=model)
    except BaseException:
        store.close()
        raise
    new_session.configure(system=system, tools=declared_tools)
    if fixed_tokens is not None:
        new_session.fixed_tokens = fixed_tokens
    return new_session


def make_session(
    row: SessionRow,
    store: Store,
    settings: Settings,
    policy: Policy,
    *,
    hooks: tuple[object, ...] = (),
    summarizer: Summarizer | None = None,
) -> Session:
    """The session of a row in an open store, with all installed hooks."""
    where = settings.store or DEFAULT_STORE
    every_hook = (*installed_hooks(), *hooks)
    return Session(row, SessionSetup(store, settings, policy, where, every_hook, summarizer))


def resolve_settings(
    where: str | Path | None,
    policy: str | Policy | None,
    summarizer: str | Summarizer | None,
    settings: Mapping[str, Any],
) -> tuple[Settings, Policy]:
    """The settings from arguments, environment and files, and the policy adjusted by them."""
    arguments: dict[str, Any] = {**settings, "store": None if where is None else str(where)}
    if isinstance(summarizer, str):
        arguments["summarizer"] = summarizer
    if not isinstance(policy, Policy):
        arguments["policy"] = policy
    resolved = load_settings(**arguments)
    return resolved, resolved.rules(policy if isinstance(policy, Policy) else None)


async def aopen(where: str | Path | None = None, **options: Any) -> Session:
    """Async form of `open`."""
    return await asyncio.to_thread(open, where, **options)


def open_store(settings: Settings) -> Store:
    """The store that the settings name."""
    where = settings.store or DEFAULT_STORE
    return Store.open(where, durable=settings.durable, wait=max(settings.wait_seconds, 1.0))


def _find_or_create(store: Store, session: str | None, estimate: str) -> SessionRow:
    if session == LATEST:
        return store.resolve(LATEST)
    if session is not None and (row := store.find(check_session_id(session))):
        return row
    info = MessageBuilder().session_info(session or "")
    try:
        return store.create(info, estimate=estimate)
    except StoreError:
        if row := store.find(info.id):  # another process was faster
            return row
        raise
