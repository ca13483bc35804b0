"""What a store asks of a database: statements and transactions over one DB-API connection.

SQL is written with ? for arguments. What the engines write differently is in their `Dialect`; how
they connect and what their complaints mean is told in `sqlite` and `postgres`.
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
    """A database, as one connection to it sees it; threads take turns."""

    dialect: ClassVar[Dialect]
    now: ClassVar[str]  # SQL for the time by the database's own clock, in milliseconds
    _complaints: ClassVar[tuple[type[Exception], ...]]  # what `_told` puts into words
    _connection: Any

    def __init__(self, name: str) -> None:
        """Take the name of the store as it can be shown: without a password."""
        self.name = name
        self._lock = RLock()
        self._depth = 0

    # --- statements and transactions ---

    def read(self, sql: str, args: Args = ()) -> list[Row]:
        """The rows that a query finds."""
        # Not `_errors` here and below: these are asked thousands of times.
        try:
            with self._lock:
                return self._execute(sql, args).fetchall()
        except self._complaints as error:
            raise self._told(error) from None

    def run(self, sql: str, args: Args = ()) -> int:
        """Run a statement; how many rows it changed."""
        try:
            with self._lock:
                return self._execute(sql, args).rowcount
        except self._complaints as error:
            raise self._told(error) from None

    def run_many(self, sql: str, rows: Iterable[Args]) -> None:
        """Run a statement for each of these rows."""
        try:
            with self._lock:
                self._connection.cursor().executemany(sql, rows)
        except self._complaints as error:
            raise self._told(error) from None

    def _execute(self, sql: str, args: Args = ()) -> Any:
        """Run a statement; a connection that was lost while nobody used it is made again."""
        try:
            return self._connection.execute(sql, args)
        except self._complaints:
            if self._depth or not self._reconnect():
                raise
            return self._connection.execute(sql, args)

    def reading(self) -> AbstractContextManager[None]:
        """All that is read inside is of one moment."""
        return self._transaction(self.dialect.begin_reading)

    def writing(self) -> AbstractContextManager[None]:
        """All that is written inside is one transaction: the whole of it, or nothing."""
        return self._transaction(self.dialect.begin_writing)

    @contextmanager
    def _transaction(self, begin: str) -> Generator[None]:
        with self._lock:
            if self._depth:
                raise RuntimeError("a transaction within another")
            with self._errors():
                self._execute(begin)
                self._depth = 1
                try:
                    yield
                    self._connection.commit()
                except BaseException:
                    with suppress(*self._complaints):  # whatever state the connection is in
                        self._connection.rollback()
                    raise
                finally:
                    self._depth = 0

    def lock_session(self, session: int) -> tuple[int, str | None] | None:
        """A session's version and holder; others who would write to it wait for this transaction.

        None where there is no such session.
        """
        rows = self.read(
            f"SELECT version, holder FROM sessions WHERE key = ?{self.dialect.locked}",  # noqa: S608
            (session,),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    @contextmanager
    def _errors(self) -> Generator[None]:
        """What the database complains of inside is raised as StoreError, with what to do."""
        try:
            yield
        except self._complaints as error:
            raise self._told(error) from None

    @abstractmethod
    def _told(self, error: Exception) -> StoreError:
        """A complaint in words that say what to do."""

    def _reconnect(self) -> bool:
        """Connect again, if the connection was lost; whether it was."""
        return False

    # --- tables ---

    def _make_tables(self, *, make: bool = True) -> None:
        """Make the tables where there are none; NoStore unless that is wanted."""
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
        """Refuse tables of another version, before anything is changed; a new store has none."""
        version = self._version()
        if version not in (0, VERSION):
            raise StoreError(
                self.name,
                f"written by another Foldmark (tables {version}, this one knows {VERSION}); "
                "use that one, or give another store",
            )

    @abstractmethod
    def _version(self) -> int:
        """The version of the tables; 0 where there are none."""

    @abstractmethod
    def _prepare(self) -> None:
        """Do what must be done in the transaction before `_version` is asked again."""

    @abstractmethod
    def _set_version(self) -> None:
        """Note that the tables are of `VERSION`."""

    # --- words ---

    @abstractmethod
    def index(self, doc: int, words: set[str]) -> None:
        """Let a document be found by these words."""

    @abstractmethod
    def unindex(self, doc: int, words: set[str]) -> None:
        """Let a document no longer be found by the words it was indexed with."""

    @abstractmethod
    def matches(self, words: Sequence[str], first: int, end: int) -> tuple[str, Args]:
        """SQL for the rows `doc` of a range that hold all of these words, or longer ones."""

    # --- the database ---

    @abstractmethod
    def size(self) -> int:
        """The bytes that the whole store takes."""

    @abstractmethod
    def tidy(self) -> None:
        """Give room that is no longer needed back."""

    @abstractmethod
    def close(self) -> None:
        """Let the database go."""
