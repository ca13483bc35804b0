"""Addresses of stores as they may be printed: their passwords are never told at all."""

import re

from foldmark.files import harmless

_MASK = "***"
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PATH = re.compile(r"/(?!/)|[.~]|[a-z]:[/\\]", re.IGNORECASE)
_NAME = r"(?<!\w)\w*(?:passw|pwd|secret|token|_key)\w*\s*=\s*"
_IN_QUERY = re.compile(rf"({_NAME})[^&]*", re.IGNORECASE)
# As libpq reads it: a value in quotes, or up to white space, with backslashes in either.
_IN_PAIRS = re.compile(rf"({_NAME})(?:'(?:\\.|[^'\\])*'?|(?:\\.|\S)+)", re.IGNORECASE | re.DOTALL)
PAIRS = re.compile(r"\s*(?:host|hostaddr|port|dbname|user|password|service)\s*=")
_LETTER = re.compile(r"%([46][1-9a-f]|[57][0-9a]|5f)", re.IGNORECASE)
_HOST = r"(?:\[[^\]]*\]|[^:,/?#\[\]]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?=[/?#]|$)")


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
