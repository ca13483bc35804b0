"""The tables of a store. A store with another schema version is refused and not changed."""

from foldmark.model.values import Frozen

VERSION = 1


class Dialect(Frozen):
    """The SQL that differs between engines."""

    key: str  # type of a self-numbering key column
    big: str  # type of a 64-bit integer
    bytes: str
    narrow: str  # suffix for tables of small rows read in key order
    search: str  # statements that create the search index
    begin_reading: str
    begin_writing: str
    locked: str = ""  # suffix for a query that locks its row


def statements(dialect: Dialect) -> list[str]:
    """The statements that create the tables of a new store."""
    names = {field: getattr(dialect, field) for field in Dialect.__struct_fields__}
    return [text for text in (_TABLES % names).split(";") if text.strip()]


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
  place %(big)s NOT NULL,
  ordinal %(big)s NOT NULL,
  id TEXT NOT NULL,
  data %(bytes)s NOT NULL
);
CREATE TABLE parts (
  session %(big)s NOT NULL,
  ordinal %(big)s NOT NULL,
  place %(big)s NOT NULL,
  kind TEXT NOT NULL,
  fixed %(big)s NOT NULL,
  body %(big)s NOT NULL,
  attached %(big)s NOT NULL,
  PRIMARY KEY (session, ordinal)
) %(narrow)s;
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
CREATE TABLE sources (
  path TEXT PRIMARY KEY,
  size %(big)s NOT NULL,
  modified %(big)s NOT NULL,
  format TEXT NOT NULL
);
%(search)s
"""
