"""Names of files as git writes them."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def shown_name(name: str) -> str:
    """The name of a file as git writes it: in quotes and with escapes, where it has odd signs."""
    shown = "".join(map(_shown, name))
    return name if shown == name else f'"{shown}"'


def _shown(sign: str) -> str:
    if sign in _ESCAPES:
        return _ESCAPES[sign]
    if sign.isprintable():
        return sign
    return "".join(f"\\{byte:03o}" for byte in sign.encode("utf-8", "surrogateescape"))
