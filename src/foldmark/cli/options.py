"""What commands have in common: their options, and how they open a transcript."""

import os
import re
from typing import Annotated

import typer

from foldmark.io.files import MOST_BYTES, read_transcript, size_text
from foldmark.log import Log
from foldmark.messages import Transcript
from foldmark.policy import Policy
from foldmark.presets import FOLDMARK, PRESETS, preset
from foldmark.tokens import counter

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
    typer.Argument(metavar="FILE", help="A session from `opencode export`; - is standard input."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
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
        help="Refuse a file that is larger than this.",
    ),
]
DEFAULT_POLICY = FOLDMARK.name
StorePlace = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="WHERE",
        help="The store: a file, or a postgresql:// address. Else the one of the settings "
        "(foldmark.toml, FOLDMARK_STORE), else foldmark.db.",
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


def opened(file: str, policy: Policy, max_size: int) -> tuple[Transcript, Log]:
    """A transcript, and the log that holds it."""
    transcript = read_transcript(file, most_bytes=max_size)
    return transcript, Log(counter(policy.estimate), transcript.messages)
