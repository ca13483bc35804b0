"""What commands have in common: their options, and how they open a transcript."""

import os
import re
import sys
from typing import Annotated

import typer

from foldmark.errors import BadInput
from foldmark.files import MOST_BYTES, harmless, size_text
from foldmark.log.log import Log
from foldmark.model.messages import Transcript
from foldmark.model.values import Frozen
from foldmark.policy import FOLDMARK, PRESETS, Policy, preset
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import ReadFile, picked, read_file

from .text import plain

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|b|k|kb|kib|m|mb|mib|g|gb|gib)", re.IGNORECASE)
_FACTORS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def size_in_bytes(text: str | int) -> int:
    """The bytes that a size like 512MB or 2GB stands for; typer sends its default through, too."""
    found = _SIZE.fullmatch(str(text).strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size like 512MB or 2GB")
    return int(min(float(found[1]), 2.0**40) * _FACTORS[found[2][:1].lower()])


File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A transcript of any format that is known (`foldmark formats`); - is standard input.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Read it as this format, where its content does not tell; see `foldmark formats`.",
    ),
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Leave out lines that cannot be read, and say which.")
]
Pick = Annotated[
    int | None,
    typer.Option(
        "--pick",
        metavar="N",
        min=1,
        help="Of a file with several sessions, the one of this number; else the longest.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url", metavar="URL", help="Where that model is, if not at its provider's own place."
    ),
]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="NAME", help=f"One of {', '.join(PRESETS)}.")
]
MaxSize = Annotated[
    int,
    typer.Option(
        "--max-size",
        metavar="SIZE",
        parser=size_in_bytes,
        show_default=size_text(MOST_BYTES),
        help="Refuse a line, or a document, that is larger than this.",
    ),
]
DEFAULT_POLICY = FOLDMARK.name
StorePlace = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="WHERE",
        help="The store: a file or a postgresql:// address (default: FOLDMARK_STORE, `store` in "
        "your settings, or foldmark/foldmark.db in $XDG_DATA_HOME or ~/.local/share).",
        show_default=False,
    ),
]
SessionName = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session: its id, a beginning that only it has, or `latest`."
    ),
]


def policy_named(name: str) -> Policy:
    """The preset of this name, with what the environment switches off."""
    return preset(name).in_environment(os.environ)


class Wanted(Frozen):
    """How a file is to be read, and which of its sessions is meant."""

    format: str | None = None
    lenient: bool = False
    pick: int | None = None
    max_size: int = MOST_BYTES


def opened(file: str, policy: Policy, wanted: Wanted) -> tuple[Transcript, Log]:
    """The session that is meant, and the log that holds it; says which, if there are others."""
    read = read_wanted(file, wanted)
    place = picked(read, wanted.pick, file)
    transcript = read.sessions[place]
    if wanted.format is not None and not transcript.messages:
        raise BadInput(f"nothing in it is {wanted.format}", source=harmless(file))
    if wanted.pick is None and len(read.sessions) > 1:
        sys.stderr.write(
            f"foldmark: the longest of {len(read.sessions)} sessions, number {place + 1}; "
            "another one: --pick N\n"
        )
    return transcript, Log(counter(policy.estimate), transcript.messages)


def read_wanted(file: str, wanted: Wanted) -> ReadFile:
    """A file, with a word on each line that was left out."""
    read = read_file(file, format=wanted.format, lenient=wanted.lenient, most_bytes=wanted.max_size)
    for skipped in read.skipped:
        sys.stderr.write(plain(f"foldmark: left out line {skipped.line}: {skipped.cause}") + "\n")
    return read
