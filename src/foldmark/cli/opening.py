"""Opening the store that a command is for, and a session in it.

A command that only reads makes no store, and takes no lease.
"""

from collections.abc import Generator
from contextlib import contextmanager

from foldmark.errors import BadInput, NoStore
from foldmark.session.opening import DEFAULT_STORE
from foldmark.session.session import Session
from foldmark.session.settings import Settings, load_settings
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store


@contextmanager
def opened_store(settings: Settings, *, make: bool = False) -> Generator[Store]:
    """The store that the settings name; only a command that fills it may make it."""
    wait = max(settings.wait_seconds, 1.0)
    place = settings.store or DEFAULT_STORE
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
    with opened_store(load_settings(store=where)) as store:
        yield store


@contextmanager
def opened_session(where: str | None, name: str) -> Generator[tuple[Session, Store, SessionRow]]:
    """A session that is in the store, by its name, with the store and its row."""
    settings = load_settings(store=where)
    with opened_store(settings) as store:
        row = store.named(name)
        with Session(store, row, settings, settings.rules()) as session:
            session.prepare(settings.store or DEFAULT_STORE, ())
            yield session, store, row


def new_name(name: str | None) -> str | None:
    """An id that a user gives to a new session, if it can be one."""
    if name is not None and (not name.strip() or name == LATEST):
        raise BadInput(f"{name!r} cannot be the id of a session; give another")
    return name
