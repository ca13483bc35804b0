"""The corpus of real transcripts: its folder, its manifest, and cached reading."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from foldmark.log.log import Log
from foldmark.log.view import View, Viewer
from foldmark.model.messages import (
    Transcript,
)
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import by_classes
from foldmark.transcripts.read import TranscriptFile, read_file

SHARED = Path(__file__).parents[3] / "shared"
CORPUS = Path(os.environ.get("FOLDMARK_CORPUS", SHARED / "corpus"))
FOREIGN = ("tau-bench", "tau2-bench", "entire-compact")  # folders of formats that we do not read

Json = dict[str, Any]
_manifest = CORPUS / "manifest.json"
_files: list[Json] = json.loads(_manifest.read_bytes()) if _manifest.is_file() else []
MANIFEST = [entry for entry in _files if entry["format"] not in FOREIGN]
each_file = pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])


@cache
def read(file: str) -> TranscriptFile:
    return read_file(CORPUS / file)


@cache
def views(file: str) -> list[View]:
    return [viewed(session) for session in read(file).sessions]


def viewed(session: Transcript, model: str = "") -> View:
    return Viewer(Log(by_classes, session.messages), FOLDMARK, model=model).view()
