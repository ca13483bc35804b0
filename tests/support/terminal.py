"""The program in a real terminal."""

import os
import subprocess

from tests.support.cli_program import FOLDMARK, environment


def in_terminal(*arguments: object, is_error_shown: bool = False, **changes: str) -> str:
    """What the real program prints on a terminal: its output, and its errors if asked for."""
    import pty  # noqa: PLC0415 - not on every system

    ours, theirs = pty.openpty()
    command = [str(FOLDMARK), *map(str, arguments)]
    errors = theirs if is_error_shown else None
    with subprocess.Popen(
        command, stdout=theirs, stderr=errors, env=environment(**changes)
    ) as program:
        os.close(theirs)
        chunks: list[bytes] = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # on Linux, the other end was closed
            pass
        assert program.wait() == 0
    os.close(ours)
    return b"".join(chunks).decode().replace("\r\n", "\n")
