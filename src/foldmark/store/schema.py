"""The tables of a store, and how older ones become newer ones.

A migration is a named function; they run in their order, each once, all in one transaction.
What is in `MIGRATIONS` has been shipped: add to it, never change it.
"""

from collections.abc import Callable
from typing import Protocol

from foldmark.model.values import Frozen


class Dialect(Frozen):
    """How an engine writes what the engines write differently."""

    key: str  # a column of its own numbers
    big: str  # a whole number of 64 bits
    bytes: str
    narrow: str  # after a table whose rows are small and read in the order of their key
    search: str  # the statements that make the index of words


class Runs(Protocol):
    """What runs a statement."""

    dialect: Dialect

    def run(self, sql: str, args: tuple[object, ...] = ()) -> int:
        """Run a statement; how many rows it changed."""
        ...


def first_tables(engine: Runs) -> None:
    """Sessions, messages, parts, bodies, acts with their marks, events, and the index of words."""
    names = {field: getattr(engine.dialect, field) for field in Dialect.__struct_fields__}
    for statement in (_TABLES % names).split(";"):
        if statement.strip():
            engine.run(statement)


def imported_files(engine: Runs) -> None:
    """Which files were imported, and how they were then."""
    names = {"big": engine.dialect.big}
    engine.run(_SOURCES % names)


# The key of a message is told by its session and place, so that no second index is needed.
_PLACES = 2**32
ALL_KEYS = 2**62


def key_at(session: int, place: int) -> int:
    """The key of the message at a place of a session; also where that place would be."""
    return session * _PLACES + place


MIGRATIONS: tuple[Callable[[Runs], None], ...] = (first_tables, imported_files)
VERSION = len(MIGRATIONS)


def migrate(engine: Runs, version: int) -> None:
    """Bring tables of this version up to date."""
    for migration in MIGRATIONS[version:]:
        migration(engine)


_TABLES = """
CREATE TABLE sessions (
  key %(key)s,
  id TEXT NOT NULL UNIQUE,
  info %(bytes)s NOT NULL,
  estimate TEXT NOT NULL,
  created %(big)s NOT NULL,
  updated %(big)s NOT NULL,
  places %(big)s NOT NULL,
  parts %(big)s NOT NULL,
  tokens %(big)s NOT NULL,
  size %(big)s NOT NULL,
  acts %(big)s NOT NULL,
  events %(big)s NOT NULL,
  indexed %(big)s NOT NULL,
  settled %(big)s NOT NULL,
  version %(big)s NOT NULL,
  holder TEXT,
  expires %(big)s
);
CREATE TABLE messages (
  key %(big)s PRIMARY KEY,
  session %(big)s NOT NULL,
  place %(big)s NOT NULL,
  ordinal %(big)s NOT NULL,
  id TEXT NOT NULL,
  role TEXT NOT NULL,
  doc %(big)s,
  data %(bytes)s NOT NULL
);
CREATE INDEX messages_doc ON messages (doc) WHERE doc IS NOT NULL;
CREATE TABLE parts (
  session %(big)s NOT NULL,
  ordinal %(big)s NOT NULL,
  place %(big)s NOT NULL,
  kind TEXT NOT NULL,
  tool TEXT,
  fixed %(big)s NOT NULL,
  body %(big)s NOT NULL,
  attached %(big)s NOT NULL,
  PRIMARY KEY (session, ordinal)
) %(narrow)s;
CREATE TABLE bodies (
  key %(key)s,
  digest %(bytes)s NOT NULL UNIQUE,
  size %(big)s NOT NULL,
  data %(bytes)s NOT NULL
);
CREATE TABLE refs (
  session %(big)s NOT NULL,
  place %(big)s NOT NULL,
  body %(big)s NOT NULL,
  PRIMARY KEY (session, place, body)
) %(narrow)s;
CREATE INDEX refs_body ON refs (body);
CREATE TABLE acts (
  session %(big)s NOT NULL,
  number %(big)s NOT NULL,
  kind TEXT NOT NULL,
  at %(big)s NOT NULL,
  place %(big)s NOT NULL,
  marker %(big)s,
  summary %(big)s,
  tail %(big)s,
  tail_id TEXT,
  before %(big)s,
  after %(big)s,
  memory %(bytes)s,
  marks %(bytes)s,
  last_mark %(big)s,
  claimed TEXT,
  failed TEXT,
  undone %(big)s,
  reverted %(big)s,
  PRIMARY KEY (session, number)
);
CREATE INDEX acts_marks ON acts (session, last_mark)
  WHERE last_mark IS NOT NULL AND undone IS NULL AND reverted IS NULL;
CREATE INDEX acts_pivots ON acts (session, marker)
  WHERE summary IS NOT NULL AND undone IS NULL AND reverted IS NULL;
CREATE TABLE events (
  session %(big)s NOT NULL,
  number %(big)s NOT NULL,
  at %(big)s NOT NULL,
  data %(bytes)s NOT NULL,
  PRIMARY KEY (session, number)
) %(narrow)s;
%(search)s
"""

_SOURCES = """
CREATE TABLE sources (
  path TEXT PRIMARY KEY,
  size %(big)s NOT NULL,
  modified %(big)s NOT NULL,
  format TEXT NOT NULL
)
"""
