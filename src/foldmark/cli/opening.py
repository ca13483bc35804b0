"""Opening the store that a command is for, and a session in it.

A command that only reads makes no store, and takes no lease.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from foldmark.errors import BadInput, NoStore
from foldmark.files import user_data
from foldmark.session.session import Session
from foldmark.session.settings import Settings, load_settings
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store


def user_store() -> Path:
    """The user's own store, outside of any project; `Store.open` makes it private."""
    return user_data() / "foldmark.db"


def store_settings(**given: Any) -> Settings:
    """The settings of a command on a store; without another choice it is the user's own."""
    settings = load_settings(**given)
    return replace(settings, store=store_place(settings))


def store_place(settings: Settings) -> str:
    """The path or the address of a command's store."""
    return settings.store or str(user_store())


@contextmanager
def opened_store(settings: Settings, *, make: bool = False) -> Generator[Store]:
    """The store that the settings name; only a command that fills it may make it."""
    wait = max(settings.wait_seconds, 1.0)
    place = store_place(settings)
    try:
        store = Store.open(place, durable=settings.durable, wait=wait, make=make)
    except NoStore as error:
        cause = f"no store at {error.store}; begin with: foldmark import FILE"
        raise BadInput(cause) from None
    try:
        yield store
    finally:
        store.close()


@contextmanager
def existing_store(where: str | None) -> Generator[Store]:
    """The store at a place, or the one of the settings."""
    with opened_store(store_settings(store=where)) as store:
        yield store


@contextmanager
def opened_session(where: str | None, name: str) -> Generator[tuple[Session, Store, SessionRow]]:
    """A session that is in the store, by its name, with the store and its row."""
    settings = store_settings(store=where)
    with opened_store(settings) as store:
        row = store.named(name)
        with Session(store, row, settings, settings.rules()) as session:
            session.prepare(store_place(settings), ())
            yield session, store, row


def new_name(name: str | None) -> str | None:
    """An id that a user gives to a new session, if it can be one."""
    if name is not None and (not name.strip() or name == LATEST):
        raise BadInput(f"{name!r} cannot be the id of a session; give another")
    return name
