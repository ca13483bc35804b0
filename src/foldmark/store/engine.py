"""What a store asks of a database; `sqlite` and `postgres` are the two that give it.

SQL is written with ? for arguments. What the engines write differently is in their `Dialect`.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

from foldmark.errors import StoreError

from .schema import Dialect

# postgresql://…, or key=value pairs as libpq takes them.
_ADDRESS = re.compile(r"postgres(ql)?://|\s*(host|hostaddr|port|dbname|service|user|password)\s*=")
_OTHER_ADDRESS = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
Row = tuple[Any, ...]
Args = Sequence[object]


class Engine(Protocol):
    """A database, as one connection to it sees it."""

    name: str  # as it can be shown: without a password
    dialect: Dialect
    now: str  # SQL for the time by the database's own clock, in milliseconds
    numbers: str  # SQL for the rows `n` of one argument made by `many_numbers`

    def reading(self) -> AbstractContextManager[None]:
        """All that is read inside is of one moment."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """All that is written inside is one transaction: the whole of it, or nothing."""
        ...

    def read(self, sql: str, args: Args = ()) -> list[Row]:
        """The rows that a query finds."""
        ...

    def run(self, sql: str, args: Args = ()) -> int:
        """Run a statement; how many rows it changed."""
        ...

    def insert(self, sql: str, args: Args = ()) -> int:
        """Insert one row; the key it was given."""
        ...

    def run_many(self, sql: str, rows: Iterable[Args]) -> None:
        """Run a statement for each of these rows."""
        ...

    def many_numbers(self, numbers: Iterable[int]) -> object:
        """Any number of whole numbers as one argument."""
        ...

    def lock_session(self, session: int) -> None:
        """Until the transaction ends, others who would write to a session wait."""
        ...

    def lock_bodies(self, *, alone: bool) -> None:
        """Until the transaction ends: none removes bodies while others add them."""
        ...

    def index(self, doc: int, words: set[str], instead_of: set[str] | None = None) -> None:
        """Let a document be found by these words."""
        ...

    def unindex(self, doc: int, words: set[str]) -> None:
        """Let a document no longer be found."""
        ...

    def matches(self, words: Sequence[str], first: int, end: int) -> tuple[str, Args]:
        """SQL for the rows `doc` of a range that hold all of these words, or longer ones."""
        ...

    def size(self) -> int:
        """The bytes that the whole store takes."""
        ...

    def tidy(self) -> None:
        """Give room that is no longer needed back."""
        ...

    def close(self) -> None:
        """Let the database go."""
        ...


def open_engine(
    where: str | Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
) -> Engine:
    """The engine that a path or an address asks for; NoStore where there is none to be made."""
    text = str(where)
    if _ADDRESS.match(text):
        from .postgres import Postgres  # noqa: PLC0415 - psycopg comes with an extra

        return Postgres(text, durable=durable, wait=wait, make=make)
    if _OTHER_ADDRESS.match(text):
        kind = text.partition("://")[0].strip()
        raise StoreError(kind, "no such kind of store; give a path, or postgresql://…")
    if text == ":memory:":
        raise StoreError(text, "a store is kept in a file; give a path")
    from .sqlite import Sqlite  # noqa: PLC0415 - so is sqlite3 left alone by those who do not use it

    path = Path(text)
    with suppress(RuntimeError):  # nobody is called so: then the folder is
        path = path.expanduser()
    return Sqlite(path, durable=durable, wait=wait, make=make)
