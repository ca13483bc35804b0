"""The references in a text: paths, file names, identifiers, hashes, URLs and flags.

An agent needs them again exactly and cannot guess them. Plain words and numbers are no references.
This module knows nothing of messages, and not whether a reference exists.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import cast

WORDS_THAT_EXPLAIN = 3
WORD = re.compile(r"\b[^\W\d_]{3,}\b")

# Runs of characters that may contain references. The result depends on the run alone, so that
# each distinct run is parsed once.
_RUN = re.compile(r"https?://[^\s\"'`<>()\[\]{}|\\^]+|[\w~@+./-]{4,}")
_LONGEST = 300  # a longer run is data, not a name
_EXTENSIONS = (
    "astro|avro|bash|bat|bib|bin|bmp|bz2|c|cc|cfg|cjs|class|cmake|cnf|conf|cpp|cs|css|csv|cts|cxx|"
    "dart|db|diff|dll|dockerfile|doc|docx|env|erb|erl|ex|exe|exs|fish|fs|gif|go|gql|gradle|graphql|"
    "gz|h|hbs|hcl|hpp|hs|htm|html|ico|in|ini|ino|ipynb|iso|jar|java|jpeg|jpg|js|json|json5|jsonc|"
    "jsonl|jsx|jl|key|kt|kts|less|lock|log|lua|m|md|mdx|mjs|mk|ml|mod|mov|mp3|mp4|mts|nim|nix|o|"
    "org|parquet|patch|pdf|pem|php|pickle|pl|plist|png|po|prisma|properties|proto|ps1|py|pyc|pyi|"
    "pyx|r|rb|rego|rs|rst|sass|sbt|scala|scss|service|sh|so|sol|sql|sqlite|sum|svelte|svg|swift|"
    "tar|tcl|tex|tf|tgz|tmpl|toml|tpl|traj|ts|tsv|tsx|ttf|txt|typed|vb|vue|wasm|wav|webp|whl|woff|"
    "woff2|xls|xlsx|xml|xz|yaml|yml|zig|zip|zsh"
)
_FILE = re.compile(rf"\.?\w[\w+@-]*(?:\.[\w+@-]+)*\.(?:{_EXTENSIONS})", re.IGNORECASE)
_SEGMENT = r"[\w@+.~-]*\w"
_PATH = re.compile(rf"(?:~|\.{{1,2}})?(?:/{_SEGMENT}){{2,}}/?|{_SEGMENT}(?:/{_SEGMENT})+/?|"
                   rf"(?:~|\.{{1,2}})/{_SEGMENT}/?")  # fmt: skip
_FLAG = re.compile(r"--[A-Za-z][\w-]*\w")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HASH = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}")
_SNAKE = re.compile(r"_*[^\W_]+(?:_+[^\W_]+)+_*|__[^\W_]+__")
# A lower-case letter before a capital, or capitals before a word: getValue, HTTPError.
_HUMPS = re.compile(r"(?=.*[a-z])(?:[A-Za-z]\w*[a-z0-9][A-Z]\w*|[A-Z]{2,}[a-z]{2,}\w*)")
_LETTER = re.compile(r"[^\W\d_]")
_NAME = re.compile(r"\w{4,}")


def references(text: str) -> list[str]:
    """The references in a text, in order, with repetitions."""
    names: list[str] = []
    for run in _RUN.findall(text):
        if run_names := references_of_run(run):
            names += run_names
    return names


@lru_cache(maxsize=65_536)
def references_of_run(run: str) -> tuple[str, ...]:
    """The references in a run of characters without spaces."""
    if len(run) > _LONGEST:
        return ()
    if "://" in run:
        return (run.rstrip(".,;:!?*_"),)
    if run.startswith("--"):
        flag = _FLAG.match(run)
        return (flag.group(),) if flag else ()
    run = run.strip("-+.@") if not run.startswith(("./", "../", ".")) else run.rstrip("-+.@")
    if "/" in run and (path := _PATH.fullmatch(run)) and _is_path(path.group()):
        return (path.group().rstrip("/"),)
    if _UUID.fullmatch(run) or _FILE.fullmatch(run):
        return (run,)
    pieces = run.split("/") if "/" in run else [run]
    return tuple(name for piece in pieces for name in _names(piece))


def _is_path(text: str) -> bool:
    """Whether the slashes separate names; 1/2 and 24/7 are not paths."""
    names = [name for name in text.split("/") if name]
    return all(len(name) > 1 for name in names[-1:]) and any(
        len(_LETTER.findall(name)) > 1 for name in names
    )


def _names(piece: str) -> list[str]:
    if _FILE.fullmatch(piece):
        return [piece]
    return [name for name in _NAME.findall(piece) if is_identifier(name)]


def is_identifier(name: str) -> bool:
    """Whether a word looks like an identifier or a hash."""
    if "_" in name:
        return _SNAKE.fullmatch(name) is not None and _LETTER.search(name) is not None
    return _HUMPS.fullmatch(name) is not None or _HASH.fullmatch(name) is not None


def values(value: object) -> Iterator[str]:
    """The texts among the values of a call's input, without keys."""
    match value:
        case str():
            yield value
        case dict():
            for item in cast("dict[str, object]", value).values():
                yield from values(item)
        case list() | tuple():
            for item in cast("Sequence[object]", value):
                yield from values(item)
        case _:
            pass
