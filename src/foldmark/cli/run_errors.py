"""Errors in the words of the command line: the library's own speak of arguments in Python."""

import re

from foldmark.errors import FoldmarkError, NoSession, UnknownModel

_BASE_URL = re.compile(r"\bbase_url(=…)?")


def line_of(error: FoldmarkError) -> str:
    """What went wrong, as who types commands would say it."""
    if isinstance(error, UnknownModel):
        hint = f" Did you mean {', '.join(error.nearest)}?" if error.nearest else ""
        return (
            f"no limits are known for the model {error.model!r}.{hint} "
            "Say how many tokens its window has: --window N"
        )
    if isinstance(error, NoSession):
        return f"{error}" if error.nearest else f"{error}; foldmark sessions lists them"
    return _BASE_URL.sub(lambda found: "--base-url" + (" URL" if found[1] else ""), str(error))
