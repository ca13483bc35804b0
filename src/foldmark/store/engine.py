"""The database interface of a store: statements and transactions over one DB-API connection.

SQL uses ? for arguments. `Dialect` holds the SQL that differs between engines; `sqlite` and
`postgres` know how to connect and what the errors of their drivers mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import RLock
from typing import Any, ClassVar

from foldmark.errors import NoStore, StoreError

from .schema import VERSION, Dialect, statements

Row = tuple[Any, ...]
Args = Sequence[object]


class Engine(ABC):
    """One connection to a database, shared by threads that take turns."""

    dialect: ClassVar[Dialect]
    now: ClassVar[str]  # SQL for the database's clock, in milliseconds
    _driver_errors: ClassVar[tuple[type[Exception], ...]]  # translated by `_store_error`
    _connection: Any

    def __init__(self, name: str) -> None:
        """Set the store's name for display, which has no password in it."""
        self.name = name
        self._lock = RLock()
        self._depth = 0

    # --- statements and transactions ---

    def read(self, sql: str, args: Args = ()) -> list[Row]:
        """The rows of a query."""
        # `_errors` is not used here and below: these run thousands of times.
        try:
            with self._lock:
                return self._execute(sql, args).fetchall()
        except self._driver_errors as error:
            raise self._store_error(error) from None

    def run(self, sql: str, args: Args = ()) -> int:
        """Run a statement and return how many rows it changed."""
        try:
            with self._lock:
                return self._execute(sql, args).rowcount
        except self._driver_errors as error:
            raise self._store_error(error) from None

    def run_many(self, sql: str, rows: Iterable[Args]) -> None:
        """Run a statement once for each row of arguments."""
        try:
            with self._lock:
                self._connection.cursor().executemany(sql, rows)
        except self._driver_errors as error:
            raise self._store_error(error) from None

    def _execute(self, sql: str, args: Args = ()) -> Any:
        """Run a statement; reconnect first if the connection was lost outside a transaction."""
        try:
            return self._connection.execute(sql, args)
        except self._driver_errors:
            if self._depth or not self._reconnect():
                raise
            return self._connection.execute(sql, args)

    def reading(self) -> AbstractContextManager[None]:
        """All reads in the block see one snapshot of the database."""
        return self._transaction(self.dialect.begin_reading)

    def writing(self) -> AbstractContextManager[None]:
        """All writes in the block form one transaction."""
        return self._transaction(self.dialect.begin_writing)

    @contextmanager
    def _transaction(self, begin: str) -> Generator[None]:
        with self._lock:
            if self._depth:
                raise RuntimeError("transactions cannot be nested")
            with self._errors():
                self._execute(begin)
                self._depth = 1
                try:
                    yield
                    self._connection.commit()
                except BaseException:
                    with suppress(*self._driver_errors):  # whatever state the connection is in
                        self._connection.rollback()
                    raise
                finally:
                    self._depth = 0

    def lock_session(self, session: int) -> tuple[int, str | None] | None:
        """A session's version and holder, or None if there is no such session.

        Other writers of the session wait until the current transaction ends.
        """
        rows = self.read(
            f"SELECT version, holder FROM sessions WHERE key = ?{self.dialect.locked}",  # noqa: S608
            (session,),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Raise driver errors as StoreError with advice."""
        try:
            yield
        except self._driver_errors as error:
            raise self._store_error(error) from None

    @abstractmethod
    def _store_error(self, error: Exception) -> StoreError:
        """The StoreError for a driver's error, with advice on what to do."""

    def _reconnect(self) -> bool:
        """Connect again if the connection was lost; return whether it was."""
        return False

    # --- tables ---

    def _create_tables(self, *, make: bool = True) -> None:
        """Create missing tables. Raises NoStore if they are missing and `make` is false."""
        if self._version():
            return
        if not make:
            raise NoStore(self.name)
        with self.writing():
            self._prepare()
            if not self._version():  # another process may have been quicker
                for statement in statements(self.dialect):
                    self.run(statement)
                self._set_version()

    def _check_version(self) -> None:
        """Raise StoreError for tables of another version, before anything is changed."""
        version = self._version()
        if version not in (0, VERSION):
            raise StoreError(
                self.name,
                f"made by another Foldmark (schema {version}, this one needs {VERSION}); "
                "use that version, or another store",
            )

    @abstractmethod
    def _version(self) -> int:
        """The version of the tables, or 0 if there are none."""

    @abstractmethod
    def _prepare(self) -> None:
        """Lock what must be locked before `_version` is checked again."""

    @abstractmethod
    def _set_version(self) -> None:
        """Record that the tables have version `VERSION`."""

    # --- search index ---

    @abstractmethod
    def index(self, doc: int, words: set[str]) -> None:
        """Add a document to the search index under these words."""

    @abstractmethod
    def unindex(self, doc: int, words: set[str]) -> None:
        """Remove a document from the search index, given the words it was indexed with."""

    @abstractmethod
    def matches(self, words: Sequence[str], first: int, end: int) -> tuple[str, Args]:
        """SQL for the `doc` rows of a key range with every word, each matched as a prefix."""

    # --- the database ---

    @abstractmethod
    def size(self) -> int:
        """The size of the whole store in bytes."""

    @abstractmethod
    def tidy(self) -> None:
        """Release unused space."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""
