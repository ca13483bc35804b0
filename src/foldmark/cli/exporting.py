"""`foldmark export`: a session as a file that OpenCode, and `foldmark import`, can read."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from foldmark.errors import BadInput
from foldmark.io.files import harmless, size_text, write_private
from foldmark.messages import encode_transcript

from .opening import opened_session
from .options import AsJson, SessionName, StorePlace
from .tables import show, show_json, words
from .text import escaped, number

EXAMPLE = "Example: foldmark export latest -o session.json"
STANDARD_OUTPUT = "-"

Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write it to a file that only you may read; - is standard output.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]


def export(
    session: SessionName,
    *,
    output: Output = STANDARD_OUTPUT,
    force: Force = False,
    store: StorePlace = None,
    json: AsJson = False,
) -> None:
    """Write a session as `opencode export` does, whole, with its marks."""
    if output != STANDARD_OUTPUT:
        _check(output, force=force)
    with opened_session(store, session) as (opened, _, row):
        transcript = opened.export()
    data = encode_transcript(transcript)
    if output == STANDARD_OUTPUT:
        write_json(data)
        return
    write_file(output, data)
    if json:
        messages = len(transcript.messages)
        show_json({"id": row.id, "path": output, "messages": messages, "size": len(data)})
    else:
        told = f"{number(len(transcript.messages), 'message')}, {size_text(len(data))}"
        show(words(f"Wrote session {row.id} to {output}: {told}.", most=1_000))


def write_json(data: bytes) -> None:
    """Print JSON as it is; what steers a terminal is escaped where one reads it."""
    if sys.stdout.isatty():
        data = escaped(data.decode()).encode()
    write_bytes(data + b"\n")


def write_bytes(data: bytes) -> None:
    """Print bytes unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_file(path: str, data: bytes) -> None:
    """Write a private file; BadInput names it where it cannot be written."""
    try:
        write_private(path, data)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be written: {cause}", source=harmless(path)) from None


def _check(path: str, *, force: bool) -> None:
    """Refuse what is there, before any work is done."""
    if Path(path).is_dir():
        raise BadInput("this is a folder, not a file", source=harmless(path))
    if not force and os.path.lexists(path):
        cause = "the file is there already; give another one, or --force to overwrite it"
        raise BadInput(cause, source=harmless(path))
