"""Addresses of stores: opened, and printed without their passwords."""

import re
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import harmless

from .engine import Engine

_MASK = "***"
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PATH = re.compile(r"/(?!/)|[.~]|[a-z]:[/\\]", re.IGNORECASE)
_NAME = r"(?<!\w)\w*(?:passw|pwd|secret|token|_key)\w*\s*=\s*"
_IN_QUERY = re.compile(rf"({_NAME})[^&]*", re.IGNORECASE)
# As libpq reads it: a value in quotes, or up to white space, with backslashes in either.
_IN_PAIRS = re.compile(rf"({_NAME})(?:'(?:\\.|[^'\\])*'?|(?:\\.|\S)+)", re.IGNORECASE | re.DOTALL)
# key=value pairs as libpq takes them
PAIRS = re.compile(r"\s*(?:host|hostaddr|port|dbname|user|password|service)\s*=")
_LETTER = re.compile(r"%([46][1-9a-f]|[57][0-9a]|5f)", re.IGNORECASE)
_HOST = r"(?:\[[^\]]*\]|[^:,/?#\[\]]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?=[/?#]|$)")


def open_engine(
    where: str | Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
) -> Engine:
    """The engine that a path or an address asks for; NoStore where there is none to be made."""
    text = str(where)
    if text.startswith(("postgres://", "postgresql://")) or PAIRS.match(text):
        from .postgres import Postgres  # noqa: PLC0415 - psycopg comes with an extra

        return Postgres(text, durable=durable, wait=wait, make=make)
    if _SCHEME.match(text):
        kind = text.partition("://")[0].strip()
        raise StoreError(kind, "no such kind of store; give a path, or postgresql://…")
    if text == ":memory:":
        raise StoreError(text, "a store is kept in a file; give a path")
    from .sqlite import Sqlite  # noqa: PLC0415 - so is sqlite3 left alone by those who do not use it

    path = Path(text)
    with suppress(RuntimeError):  # nobody is called so: then the folder is
        path = path.expanduser()
    return Sqlite(path, durable=durable, wait=wait, make=make)


def shown_store(store: str) -> str:
    """A store as it may be printed, without its password.

    Rather too much is hidden than too little: people paste passwords as they are, with @ and /.
    """
    if scheme := _SCHEME.match(store):
        rest = _LETTER.sub(lambda code: chr(int(code[1], 16)), store[scheme.end() :])
        rest = _without_login(_IN_QUERY.sub(rf"\1{_MASK}", rest))
        if "@" not in rest and not _HOSTS.match(rest):  # the host was forgotten
            rest = f"{rest.partition(':')[0]}:{_MASK}"
        store = scheme[0] + rest
    elif not _PATH.match(store):
        store = _without_login(_IN_PAIRS.sub(rf"\1{_MASK}", store))
    return harmless(store)


def _without_login(text: str) -> str:
    login, _, host = text.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{user}:{_MASK}@{host}" if colon else text
