"""Masks secrets in texts: keys, tokens and passwords of well-known forms.

A note with the kind of the secret replaces it. Hashes, ids and long names stay, because the work
needs them. This catches common forms; it does not prove that no secret is left.
"""

import re

_TOKENS = {
    "private key": (
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[\s\S]{0,20000}?-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
        r"|[A-Za-z0-9+/=\s\\]{0,20000})"
    ),
    "anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{16,}",
    "api key": r"\bsk-(?:proj-|or-v1-|svcacct-|lf-)?[A-Za-z0-9_-]{20,}",
    "github token": r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    "gitlab token": r"\bglpat-[A-Za-z0-9_-]{16,}",
    "aws key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "google key": r"\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}",
    "slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "slack address": r"\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    "stripe key": r"\b(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{30,}",
    "pypi token": r"\bpypi-[A-Za-z0-9_-]{30,}",
    "hugging face token": r"\bhf_[A-Za-z0-9]{30,}",
    "sendgrid key": r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "json web token": r"\beyJ[A-Za-z0-9_-]{8,1000}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
}
# Recognized by the text before them, which stays.
_IN_CONTEXT = {
    "credentials": r"(?<=://)[^\s/:@'\"<>{}$]{0,64}:[^\s/@'\"<>{}$]{1,128}(?=@)",
    "authorization": (
        r"(?i:(?<=bearer )|(?<=basic )|(?<=authorization: token ))"
        r"(?=[A-Za-z0-9._~+/=-]*\d)[A-Za-z0-9._~+/=-]{16,}"
    ),
}
_ASSIGNMENT = re.compile(
    r"(?P<name>(?:passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|secret[_-]?key"
    r"|private[_-]?key|token)[\"']?\s{0,2}(?:=(?!=)|:(?![:=]))\s{0,2})"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"'`,;&<>(){}\[\]$]{6,200})(?P<end>[\"']?)",
    re.IGNORECASE,
)
_PATTERN = re.compile(
    "|".join(
        f"(?P<{name.replace(' ', '_')}>{pattern})"
        for name, pattern in {**_TOKENS, **_IN_CONTEXT}.items()
    )
)
# Every text with a secret of the forms above contains one of these; the search is cheap.
_SIGNS = re.compile(
    r"PRIVATE KEY|sk-|gh[pousr]_|github_pat_|glpat-|AKIA|ASIA|AIza|ya29\.|xox[abeoprs]-"
    r"|hooks\.slack|[rs]k_|whsec_|npm_|pypi-|hf_|SG\.|eyJ|:[^\s/@]{1,128}@"
    r"|[Bb](?:earer|asic) |[Tt]oken "
)
_SHORTEST_TOKEN = 12
_NAMES = ("passw", "passphrase", "secret", "key", "token")
# A placeholder in code or documents instead of a real value.
_WORDY = re.compile(
    r"[A-Za-z]+(?:[_.-][A-Za-z]+)*|[a-z_]\w*(?:\.[a-z_]\w*)+|\*+|x+|\.+|%\w+%|<.*|-+",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Return the text with a short note in place of each secret."""
    if _SIGNS.search(text):
        text = _PATTERN.sub(_masked_note, text)
    low = text.lower()
    if any(name in low for name in _NAMES):
        text = _ASSIGNMENT.sub(_mask_value, text)
    return text


def mask_field(name: str, value: str) -> str:
    """Return the masked value of a field, whose name may show that it is a secret."""
    text = mask_secrets(value)
    field = f'{name}="{value}"'
    return "[masked: value]" if text == value and mask_secrets(field) != field else text


def _masked_note(match: re.Match[str]) -> str:
    return f"[masked: {(match.lastgroup or 'secret').replace('_', ' ')}]"


def _mask_value(match: re.Match[str]) -> str:
    value = match["value"]
    is_quoted = bool(match["quote"]) and match["quote"] == match["end"]
    if not _is_secret(value, is_quoted=is_quoted, name=match["name"]):
        return match.group()
    return f"{match['name']}{match['quote']}[masked: value]{match['end']}"


def _is_secret(value: str, *, is_quoted: bool, name: str) -> bool:
    """Whether a value is a secret, and not a name, a type or a call in code."""
    if any(mark in value for mark in (".get", "process.", "os.", "::", "->", "/", "==")):
        return False
    if "passw" in name.lower() or "passphrase" in name.lower():
        # A plain word counts if quoted, or in shells and connection strings: `password=word`.
        return is_quoted or not _WORDY.fullmatch(value) or name.endswith("=")
    if len(value) < _SHORTEST_TOKEN or _WORDY.fullmatch(value):
        return False
    return any(letter.isdigit() for letter in value) and any(map(str.isalpha, value))
