"""How far the estimators are off, against a real vocabulary, over real transcripts.

tiktoken fetches its vocabularies when they are first used; where they are not at hand, this says
so instead. TIKTOKEN_CACHE_DIR names a folder that holds them.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from foldmark.tokens.counters import by_classes, counter, round4

BESIDE = Path(__file__).parents[2] / "shared"
CORPUS = Path(os.environ.get("FOLDMARK_CORPUS", BESIDE / "corpus"))
SHORTEST, LONGEST, PER_FILE = 40, 60_000, 1_500_000


def estimates() -> Iterator[tuple[str, ...]]:
    """The error of each estimator over all texts of all transcripts, and over single files."""
    if not os.environ.get("TIKTOKEN_CACHE_DIR") or not CORPUS.is_dir():
        yield "not measured: set TIKTOKEN_CACHE_DIR and FOLDMARK_CORPUS", "", "", "", ""
        return
    exact = counter("tiktoken:o200k_base")
    files = [file for file in sorted(CORPUS.glob("*/*")) if file.is_file()]
    texts = {file: list(_texts(file)) for file in files}
    real = {file: [exact(text) for text in found] for file, found in texts.items()}
    tokens = sum(map(sum, real.values()))
    for name, count in (("a quarter of the length", round4), ("classes", by_classes)):
        found = {file: [count(text) for text in texts[file]] for file in files}
        off = sum(abs(a - b) for f in files for a, b in zip(found[f], real[f], strict=True))
        by_file = [sum(found[file]) / sum(real[file]) - 1 for file in files]
        total = sum(map(sum, found.values())) / tokens - 1
        row = (
            f"{total:+.1%}",
            f"{off / tokens:.1%}",
            f"{min(by_file):+.1%}",
            f"{max(by_file):+.1%}",
        )
        yield name, *row


def _texts(file: Path) -> Iterator[str]:
    """Every longer text in a transcript, once, whatever its format."""
    seen: set[str] = set()
    length = 0
    for document in _documents(file.read_text(errors="replace")):
        for text in _leaves(document):
            if len(text) >= SHORTEST and text not in seen and length < PER_FILE:
                seen.add(text)
                length += min(len(text), LONGEST)
                yield text[:LONGEST]


def _documents(text: str) -> Iterator[Any]:
    with suppress(ValueError):
        yield json.loads(text)
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            yield line


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for held in cast("dict[str, Any]", value).values():
            yield from _leaves(held)
    elif isinstance(value, list):
        for held in cast("list[Any]", value):
            yield from _leaves(held)
