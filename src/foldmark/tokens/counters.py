"""Token counters: the estimates of the specification, and one by character classes.

A counter is any function from a text to a number; tiktoken's can be used if it is installed.
Measurements of a provider correct the estimates (`correction`). `media` counts files.
"""

from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase, digits

from foldmark.errors import BadPolicy

Counter = Callable[[str], int]

# Tokens per character, fitted to o200k over source, logs, listings, JSON, prose and base64.
_LOWER, _UPPER_OR_DIGIT, _SPACE, _PUNCTUATION, _BEYOND_ASCII = 0.20, 0.85, 0.02, 0.47, 1.0
_LOWER_BYTES = ascii_lowercase.encode()
_UPPER_OR_DIGIT_BYTES = (ascii_uppercase + digits).encode()
_BEYOND_ASCII_BYTES = bytes(range(128, 256))
# Text without white space (base64, minified code) has more tokens than its characters suggest.
_UNBROKEN, _UNBROKEN_FROM = 1.2, 200
# A long text is estimated from four samples, so that 8 MB cost no more time than 2 kB.
_SAMPLES, _SAMPLE = 4, 512
# Character classes say nothing about a few letters.
_TOO_SHORT = 24

# Bounds of a correction. An estimate is never lowered, so that a provider that under-reports its
# usage cannot disable overflow detection. Above the upper bound, the measurement is not plausible.
CORRECTION = (1.0, 4.0)


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, as JavaScript counts it."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def round4(text: str) -> int:
    """OpenCode's estimate: a quarter of the length, rounded half up."""
    return round4_length(utf16_length(text))


def round4_length(length: int) -> int:
    """The `round4` estimate for a text of this length."""
    return (length + 2) // 4


def ceil4(text: str) -> int:
    """The estimate of the `opencode-buffer` preset: a quarter of the length, rounded up."""
    return (utf16_length(text) + 3) // 4


def by_classes(text: str) -> int:
    """An estimate from the number of characters of each class."""
    length = len(text)
    if length < _TOO_SHORT and text.isascii():
        return (length + 3) // 4
    if length <= _SAMPLES * _SAMPLE:
        return round(_weight(text))
    step = (length - _SAMPLE) // (_SAMPLES - 1)
    sample = "".join(text[i * step : i * step + _SAMPLE] for i in range(_SAMPLES))
    return round(_weight(sample) * length / len(sample))


def _weight(text: str) -> float:
    if text.isascii():
        data, beyond = text.encode(), 0
    else:
        data = text.encode("utf-8", "surrogatepass").translate(None, _BEYOND_ASCII_BYTES)
        beyond = len(text) - len(data)
    length = len(data)
    # Remove one class after the other, so that each pass has less to scan.
    without_lower = data.translate(None, _LOWER_BYTES)
    others = without_lower.translate(None, _UPPER_OR_DIGIT_BYTES)
    lower, upper = length - len(without_lower), len(without_lower) - len(others)
    space = others.count(b" ")
    other = len(others) - space
    tokens = lower * _LOWER + upper * _UPPER_OR_DIGIT + space * _SPACE + other * _PUNCTUATION
    if space * 50 < length and length > _UNBROKEN_FROM and others.count(b"\n") * 50 < length:
        tokens *= _UNBROKEN
    return tokens + beyond * _BEYOND_ASCII


COUNTERS: dict[str, Counter] = {"round4": round4, "ceil4": ceil4, "classes": by_classes}


def counter(name: str) -> Counter:
    """The counter of this name; `tiktoken:ENCODING` is exact and needs tiktoken."""
    if name in COUNTERS:
        return COUNTERS[name]
    if name.startswith("tiktoken:"):
        return _exact(name.partition(":")[2])
    valid = ", ".join(sorted(COUNTERS))
    raise BadPolicy(f"there is no token counter {name!r}; use {valid} or tiktoken:ENCODING")


def _exact(encoding: str) -> Counter:
    try:
        import tiktoken  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise BadPolicy("exact token counts need tiktoken: pip install 'foldmark[exact]'") from None
    try:
        encode = tiktoken.get_encoding(encoding).encode_ordinary
    except (ValueError, OSError) as error:  # unknown, or its vocabulary cannot be downloaded
        cause = str(error).partition("\n")[0]
        raise BadPolicy(f"tiktoken cannot load the encoding {encoding!r}: {cause}") from None
    return lambda text: len(encode(text))


def correction(measured: int, estimated: int) -> float:
    """The factor from an estimate to the measurement, or 1 if it is outside of CORRECTION."""
    low, high = CORRECTION
    factor = measured / estimated if estimated > 0 else 1.0
    return factor if low <= factor <= high else 1.0


def truncate_middle(text: str, limit: int, count: Counter, name: str = "") -> str:
    """The text, or its head and tail around a note, within this number of tokens."""
    tokens = count(text)
    if tokens <= limit:
        return text
    keep = max(0, len(text) * limit // max(1, tokens) // 2 - 40)
    while True:
        shortened = without_middle(text, keep, keep, name)
        if keep == 0 or count(shortened) <= limit:
            return shortened
        keep = keep * 7 // 8


def without_middle(text: str, head: int, tail: int, name: str = "") -> str:
    """The first and last characters of a text around a note, which names the handle if any."""
    recall = f"; recall {name}" if name else ""
    note = f"\n[… {len(text) - head - tail} characters left out{recall} …]\n"
    return text[:head] + note + text[len(text) - tail :]
