"""Secrets in a text, put out of sight: keys, tokens and passwords by their well-known forms.

What is masked is named, not shown. Hashes, ids and long names stay: they are what work needs.
It is a net for what is common, no proof that nothing secret is left.
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
# These show where the secret stands; what names it stays.
_BESIDE = {
    "credentials": r"(?<=://)[^\s/:@'\"<>{}$]{0,64}:[^\s/@'\"<>{}$]{1,128}(?=@)",
    "authorization": (
        r"(?i:(?<=bearer )|(?<=basic )|(?<=authorization: token ))"
        r"(?=[A-Za-z0-9._~+/=-]*\d)[A-Za-z0-9._~+/=-]{16,}"
    ),
}
_NAMED = re.compile(
    r"(?P<name>(?:passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|secret[_-]?key"
    r"|private[_-]?key|token)[\"']?\s{0,2}(?:=(?!=)|:(?![:=]))\s{0,2})"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"'`,;&<>(){}\[\]$]{6,200})(?P<end>[\"']?)",
    re.IGNORECASE,
)
_PATTERN = re.compile(
    "|".join(
        f"(?P<{name.replace(' ', '_')}>{pattern})"
        for name, pattern in {**_TOKENS, **_BESIDE}.items()
    )
)
# One of these is in every text with a secret of that form; to look for them costs little.
_SIGNS = re.compile(
    r"PRIVATE KEY|sk-|gh[pousr]_|github_pat_|glpat-|AKIA|ASIA|AIza|ya29\.|xox[abeoprs]-"
    r"|hooks\.slack|[rs]k_|whsec_|npm_|pypi-|hf_|SG\.|eyJ|:[^\s/@]{1,128}@"
    r"|[Bb](?:earer|asic) |[Tt]oken "
)
_SHORTEST_TOKEN = 12
_NAMES = ("passw", "passphrase", "secret", "key", "token")
# A value that code or a document gives in the place of a real one.
_WORDY = re.compile(
    r"[A-Za-z]+(?:[_.-][A-Za-z]+)*|[a-z_]\w*(?:\.[a-z_]\w*)+|\*+|x+|\.+|%\w+%|<.*|-+",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """The text with a short note in the place of each secret."""
    if _SIGNS.search(text):
        text = _PATTERN.sub(_note, text)
    low = text.lower()
    if any(name in low for name in _NAMES):
        text = _NAMED.sub(_without_value, text)
    return text


def masked_value(name: str, value: str) -> str:
    """The value of a field; its name may tell that it is a secret."""
    text = masked(value)
    named = f'{name}="{value}"'
    return "[masked: value]" if text == value and masked(named) != named else text


def _note(found: re.Match[str]) -> str:
    return f"[masked: {(found.lastgroup or 'secret').replace('_', ' ')}]"


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    quoted = bool(found["quote"]) and found["quote"] == found["end"]
    if value.startswith("[masked") or not _is_secret(value, quoted=quoted, name=found["name"]):
        return found.group()
    return f"{found['name']}{found['quote']}[masked: value]{found['end']}"


def _is_secret(value: str, *, quoted: bool, name: str) -> bool:
    """Names, types and calls stand where a value could; a password is seldom a plain word."""
    if any(mark in value for mark in (".get", "process.", "os.", "::", "->", "/", "==")):
        return False
    if "passw" in name.lower() or "passphrase" in name.lower():
        # Shells and connection strings write it without a space, with one equals sign.
        return quoted or not _WORDY.fullmatch(value) or name.endswith("=")
    if len(value) < _SHORTEST_TOKEN or _WORDY.fullmatch(value):
        return False
    return any(letter.isdigit() for letter in value) and any(map(str.isalpha, value))
