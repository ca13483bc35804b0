"""The program in a real terminal."""

import os
import subprocess

from tests.support.cli_program import (
    FOLDMARK,
    environment,
)


def in_terminal(*arguments: object, **changes: str) -> str:
    """What the real program prints into a terminal."""
    import pty  # noqa: PLC0415 - there are systems without

    ours, theirs = pty.openpty()
    command = [str(FOLDMARK), *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, env=environment(**changes)) as program:
        os.close(theirs)
        chunks: list[bytes] = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # how Linux says that the other end was closed
            pass
        assert program.wait() == 0
    os.close(ours)
    return b"".join(chunks).decode().replace("\r\n", "\n")
