"""A small file of each transcript format, and records that its reader must refuse."""

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foldmark.transcripts.format import Format, formats

FOLDER = Path(__file__).parents[1] / "transcripts" / "samples"
FILES = {path.name.partition(".")[0]: path for path in FOLDER.iterdir()}
_DAMAGED = FILES.pop("damaged")


class DamagedRecord(NamedTuple):
    """A record that is refused; its location is that within the record."""

    format: str
    location: str
    cause: str
    record: Any


DAMAGED = [DamagedRecord(**json.loads(line)) for line in _DAMAGED.read_bytes().splitlines()]
each_format = pytest.mark.parametrize("format", formats(), ids=lambda format: format.name)


def records(format: Format) -> list[Any]:
    """The JSON records of a sample: its lines or its document; [] if it is a text."""
    path = FILES[format.name]
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        return list(map(json.loads, data.splitlines()))
    return [json.loads(data)] if path.suffix == ".json" else []


def write_records(folder: Path, format: Format, values: list[Any]) -> Path:
    """Write records as a file of a format, and return its path."""
    path = folder / FILES[format.name].name
    dumps = partial(json.dumps, indent=None if path.suffix == ".jsonl" else 1)
    path.write_text("".join(f"{dumps(value)}\n" for value in values))
    return path
