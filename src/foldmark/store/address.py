"""Open stores by their address, and print addresses without their passwords."""

import re
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import printable

from .engine import Engine

_MASK = "***"
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PATH = re.compile(r"/(?!/)|[.~]|[a-z]:[/\\]", re.IGNORECASE)
_NAME = r"(?<!\w)\w*(?:passw|pwd|secret|token|_key)\w*\s*=\s*"
_IN_QUERY = re.compile(rf"({_NAME})[^&]*", re.IGNORECASE)
# As libpq parses it: a quoted value, or up to white space; backslashes escape in both.
_IN_PAIRS = re.compile(rf"({_NAME})(?:'(?:\\.|[^'\\])*'?|(?:\\.|\S)+)", re.IGNORECASE | re.DOTALL)
# key=value pairs as libpq accepts them
PAIRS = re.compile(r"\s*(?:host|hostaddr|port|dbname|user|password|service)\s*=")
_LETTER = re.compile(r"%([46][1-9a-f]|[57][0-9a]|5f)", re.IGNORECASE)
_HOST = r"(?:\[[^\]]*\]|[^:,/?#\[\]]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?=[/?#]|$)")


def open_engine(
    where: str | Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
) -> Engine:
    """The engine for a path or address. Raises NoStore if there is none and `make` is false."""
    text = str(where)
    if text.startswith(("postgres://", "postgresql://")) or PAIRS.match(text):
        from .postgres import Postgres  # noqa: PLC0415 - psycopg comes with an extra

        return Postgres(text, durable=durable, wait=wait, make=make)
    if _SCHEME.match(text):
        kind = text.partition("://")[0].strip()
        raise StoreError(kind, "unknown kind of store; use a file path or postgresql://…")
    if text == ":memory:":
        raise StoreError(text, "stores cannot live in memory; use a file path")
    from .sqlite import Sqlite  # noqa: PLC0415 - not needed for PostgreSQL

    path = Path(text)
    with suppress(RuntimeError):  # no such user: the path is used as it is
        path = path.expanduser()
    return Sqlite(path, durable=durable, wait=wait, make=make)


def masked_address(store: str) -> str:
    """A store's address for printing, with its password masked.

    Masks too much rather than too little: passwords are often pasted unescaped, with @ and /.
    """
    if scheme := _SCHEME.match(store):
        location = _LETTER.sub(lambda code: chr(int(code[1], 16)), store[scheme.end() :])
        location = _without_login(_IN_QUERY.sub(rf"\1{_MASK}", location))
        if "@" not in location and not _HOSTS.match(location):  # the host is missing
            location = f"{location.partition(':')[0]}:{_MASK}"
        store = scheme[0] + location
    elif not _PATH.match(store):
        store = _without_login(_IN_PAIRS.sub(rf"\1{_MASK}", store))
    return printable(store)


def _without_login(text: str) -> str:
    login, _, host = text.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{user}:{_MASK}@{host}" if colon else text
