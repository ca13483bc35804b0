"""What a store asks of a database, and what `sqlite` and `postgres` have in common.

SQL is written with ? for arguments. What the engines write differently is in their `Dialect`.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any, ClassVar, LiteralString

from foldmark.errors import NoStore, StoreError

from .schema import VERSION, Dialect, statements

Row = tuple[Any, ...]
Args = Sequence[object]


class Engine(ABC):
    """A database, as one connection to it sees it; threads take turns."""

    dialect: ClassVar[Dialect]
    now: ClassVar[str]  # SQL for the time by the database's own clock, in milliseconds
    _begin_reading: ClassVar[LiteralString]
    _begin_writing: ClassVar[LiteralString]

    def __init__(self, name: str) -> None:
        """Take the name of the store as it can be shown: without a password."""
        self.name = name
        self._lock = RLock()
        self._depth = 0

    # --- transactions ---

    @contextmanager
    def reading(self) -> Generator[None]:
        """All that is read inside is of one moment."""
        with self._transaction(self._begin_reading):
            yield

    @contextmanager
    def writing(self) -> Generator[None]:
        """All that is written inside is one transaction: the whole of it, or nothing."""
        with self._transaction(self._begin_writing):
            yield

    @contextmanager
    def _transaction(self, begin: LiteralString) -> Generator[None]:
        with self._lock:
            if self._depth:
                raise RuntimeError("a transaction within another")
            with self._errors():
                self._begin(begin)
                self._depth = 1
                try:
                    yield
                    self._commit()
                except BaseException:
                    self._roll_back()
                    raise
                finally:
                    self._depth = 0

    @abstractmethod
    def _begin(self, begin: LiteralString) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _roll_back(self) -> None:
        """Take back what is not committed, whatever state the connection is in; raises nothing."""

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """What the database complains of inside is raised as StoreError, with what to do."""

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

    # --- statements ---

    @abstractmethod
    def read(self, sql: str, args: Args = ()) -> list[Row]:
        """The rows that a query finds."""

    @abstractmethod
    def run(self, sql: str, args: Args = ()) -> int:
        """Run a statement; how many rows it changed."""

    @abstractmethod
    def run_many(self, sql: str, rows: Iterable[Args]) -> None:
        """Run a statement for each of these rows."""

    @abstractmethod
    def lock_session(self, session: int) -> None:
        """Until the transaction ends, others who would write to a session wait."""

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
