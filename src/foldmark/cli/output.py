"""Where a command writes: to standard output as it is, or to a private file."""

import os
import sys
from pathlib import Path

from foldmark.errors import BadInput
from foldmark.files import harmless, write_private

from .text import escaped, harmless_text

STANDARD_OUTPUT = "-"

FORCE = ("--force", "Overwrite the file if it is there.")


def write_text(data: bytes) -> None:
    """Print lines of text as they are; where a terminal reads them, without what steers it."""
    if sys.stdout.isatty():
        data = harmless_text(data.decode().expandtabs(4)).encode("utf-8", "replace")
    write_bytes(data)


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
        raise unwritable(path, error) from None


def unwritable(path: str, error: Exception) -> BadInput:
    """That a file cannot be written, and why."""
    cause = getattr(error, "strerror", None) or error
    return BadInput(f"cannot be written: {cause}", source=harmless(path))


def check_output(path: str, *, force: bool) -> None:
    """Refuse what is there, before any work is done."""
    if Path(path).is_dir():
        raise BadInput("this is a folder, not a file", source=harmless(path))
    if not force and os.path.lexists(path):
        cause = "the file is there already; give another one, or --force to overwrite it"
        raise BadInput(cause, source=harmless(path))
