"""The tool that runs a command, and how a process is run: bounded, and never left behind.

A command has a process group of its own, which is ended as a whole when its time is up or the
turn ends. It is not shut in: what it may do is a matter of permissions and of the system.
"""

import asyncio
import os
import re
import shutil
import signal
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from foldmark.io.files import size_text
from foldmark.values import Frozen

from .functions import tool
from .tool import Output, Refusal, Tool

DEFAULT_SECONDS, MOST_SECONDS = 120, 600
MOST_BYTES = 16 * 2**20  # of an output that are kept: its first and its last half
_CHUNK = 2**16
_GRACE = 1.0  # seconds between asking a group to end and ending it
_DRAIN = 0.25  # seconds that what a child left running may still write
_LOOK = 0.02
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|^AWS_|^FOLDMARK_", re.IGNORECASE)
# Nobody is there to answer a question or to turn a page.
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "TERM": "dumb",
    "DEBIAN_FRONTEND": "noninteractive",
}


class Ran(Frozen):
    """How a process ended."""

    output: bytes
    code: int
    left_out: int = 0  # bytes, from the middle of the output
    late: bool = False  # it was ended, as its time was up


def shell_tool(folder: Path) -> Tool:
    """The tool that runs commands in a folder."""
    program = shutil.which("bash") or "/bin/sh"

    @tool(seconds=MOST_SECONDS + 30)
    async def shell(
        command: Annotated[str, "What to run, as for a shell."],
        timeout: Annotated[float, f"Seconds it may take, at most {MOST_SECONDS}."] = (
            DEFAULT_SECONDS
        ),
    ) -> Output:
        """Run a command in the working folder. It has no input; its output comes back as a whole.

        Each call starts anew: a folder or variable that was set before is forgotten.
        """
        if not command.strip() or "\0" in command:
            raise Refusal("the command is empty, or has a zero byte in it")
        if not 0 < timeout <= MOST_SECONDS:
            raise Refusal(f"timeout: more than 0 and at most {MOST_SECONDS} seconds")
        ran_ = await ran((program, "-c", command), folder, seconds=timeout)
        return _told(ran_, timeout, command)

    return shell


def _told(ended: Ran, seconds: float, command: str) -> Output:
    text = ended.output.decode("utf-8", "replace")
    notes: list[str] = []
    if ended.left_out:
        notes.append(f"[{size_text(ended.left_out)} were left out in the middle]")
    if ended.late:
        notes.append(f"[timed out after {seconds:g} s; it was ended, with all that it started]")
    elif ended.code < 0:
        notes.append(f"[ended by signal {-ended.code}]")
    elif ended.code or not text:
        notes.append(f"[exit code: {ended.code}]")
    gap = "" if not text or text.endswith("\n") or not notes else "\n"
    return Output(
        text=text + gap + "\n".join(notes),
        title=command.strip().partition("\n")[0][:80],
        metadata={"exit": ended.code},
        error=ended.late,
    )


def clean_environment(given: Mapping[str, str]) -> dict[str, str]:
    """An environment without what looks secret, and in which nothing asks or waits."""
    return {name: held for name, held in given.items() if not _SECRET.search(name)} | _QUIET


# --- running -------------------------------------------------------------------------------


class _Kept:
    """The first and the last bytes of an output, however long it is."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = 0  # bytes in the tail
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._held += len(rest)
        while (spare := self._held - self._half) > 0:
            first = self._tail.popleft()
            if len(first) > spare:
                self._tail.appendleft(first[spare:])
            self._held -= min(spare, len(first))
            self.left_out += min(spare, len(first))

    def whole(self) -> bytes:
        tail = b"".join(self._tail)
        if not self.left_out:
            return bytes(self._head) + tail
        note = f"\n[… {size_text(self.left_out)} left out …]\n".encode()
        return bytes(self._head) + note + tail


class _Pipe:
    """What a process writes, read as it comes by the loop that waits for the process."""

    def __init__(self, most: int) -> None:
        self.kept = _Kept(most)
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._end, self.writing = os.pipe()
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._end, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self.kept.add(data)
        else:
            self._loop.remove_reader(self._end)
            self.ended.set()

    async def drained(self) -> None:
        """Wait for the end; not long, as a child in the background may never close its side."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), _DRAIN)

    def close(self) -> None:
        self._loop.remove_reader(self._end)
        os.close(self._end)


async def ran(
    command: Sequence[str],
    folder: Path,
    *,
    seconds: float,
    given: bytes = b"",
    most: int = MOST_BYTES,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a program in a group of its own; what it writes is kept, errors and all."""
    pipe = _Pipe(most)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=clean_environment(os.environ if environment is None else environment),
                stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
                stdout=pipe.writing,
                stderr=pipe.writing,
                start_new_session=True,
            )
        except OSError as error:
            raise Refusal(f"{command[0]} cannot be started: {error.strerror}") from None
        finally:
            os.close(pipe.writing)
        late = await _waited(process, given, seconds)
        await pipe.drained()
        kept = pipe.kept
        return Ran(
            output=kept.whole(), code=process.returncode or 0, left_out=kept.left_out, late=late
        )
    finally:
        pipe.close()


async def _waited(process: asyncio.subprocess.Process, given: bytes, seconds: float) -> bool:
    """Wait for a process, and whether it had to be ended; a wait that is cancelled ends it too."""
    try:
        async with asyncio.timeout(seconds):
            if process.stdin is not None:
                with suppress(ConnectionError):
                    process.stdin.write(given)
                    await process.stdin.drain()
                process.stdin.close()
            await process.wait()
    except TimeoutError:
        return True
    finally:
        if process.returncode is None:
            await _surely(_ended(process))
    return False


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a process with all of its group: first by asking, then by force."""
    _signal(process.pid, signal.SIGTERM)
    until = time.monotonic() + _GRACE
    while time.monotonic() < until and _signal(process.pid, 0):
        await asyncio.sleep(_LOOK)
    _signal(process.pid, signal.SIGKILL)
    await process.wait()


async def _surely(work: Coroutine[None, None, None]) -> None:
    """Wait for work to its end, however often the wait is cancelled meanwhile."""
    task, cut = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cut = True
    if cut:
        raise asyncio.CancelledError
    task.result()


def _signal(group: int, number: int) -> bool:
    """Signal a group; whether there still is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
