"""Pieces of real transcripts, damaged at random: bytes, lines, fields and values."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

Json = dict[str, Any]
_MOST_LINES, _MOST_BYTES = 24, 60_000
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**70, 1.5, float("1e308"), "", " ", "x", "\0", "\ud83d", "user"),
    *([], {}, [[]], [None], {"": None}, {"type": "text"}, [{"type": "tool_use"}], ["assistant"]),
)


@cache
def material(corpus: Path) -> tuple[bytes, ...]:
    """Pieces of every file, small enough to be read thousands of times."""
    session: list[bytes] = []
    for path in sorted(corpus.glob("*/*")):
        lines = path.read_bytes().splitlines(keepends=True)
        short = [line for line in lines if len(line) < _MOST_BYTES]
        if path.suffix in (".json", ".traj"):
            session.append(_small(path.read_bytes()))
            continue
        starts = range(0, len(short), max(len(short) // 6, 1))
        session += [b"".join([*short[:1], *short[at : at + _MOST_LINES]]) for at in starts]
    return tuple(session)


def _small(data: bytes) -> bytes:
    """A document with the first items of each list."""

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return [cut(item) for item in cast("list[Any]", value)[:6]]
        if isinstance(value, dict):
            return {name: cut(item) for name, item in cast("Json", value).items()}
        return value[:300] if isinstance(value, str) else value

    return json.dumps(cut(json.loads(data))).encode()


def spoiled(data: bytes, chance: random.Random) -> bytes:
    """The data with one to five random errors."""
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        data = chance.choice(_WAYS)(data, chance)
    return data


def _byte(data: bytes, chance: random.Random) -> bytes:
    index = chance.randrange(len(data) + 1)
    return data[:index] + bytes([chance.randrange(256)]) + data[index + chance.randrange(2) :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    way, index = chance.randrange(4), chance.randrange(len(lines))
    if way == 0:
        del lines[index]
    elif way == 1:
        lines.insert(index, chance.choice(lines))
    elif way == 2:
        chance.shuffle(lines)
    else:
        lines.insert(index, json.dumps(chance.choice(_ODD)).encode() + b"\n")
    return b"".join(lines)


def _value(data: bytes, chance: random.Random) -> bytes:
    """Change one value somewhere in one record."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    index = chance.randrange(len(lines))
    try:
        record = json.loads(lines[index])
    except ValueError:
        return data
    lines[index] = json.dumps(_bent(record, chance)).encode() + b"\n"
    return b"".join(lines)


def _bent(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.85:
        item = dict(cast("Json", value))
        name = chance.choice(list(item))
        if chance.random() < 0.1:
            del item[name]
        elif chance.random() < 0.05:
            item[chance.choice(list(item))] = item[name]
        else:
            item[name] = _bent(item[name], chance)
        return item
    if isinstance(value, list) and value and chance.random() < 0.85:
        items = list(cast("list[Any]", value))
        index = chance.randrange(len(items))
        if chance.random() < 0.1:
            items.append(items[index])
        else:
            items[index] = _bent(items[index], chance)
        return items
    return chance.choice(_ODD)


_WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_value, _value, _value, _value, _lines, _byte, _cut),
)
