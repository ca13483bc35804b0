"""The tool that runs a command, and how a process is run: bounded, and never left behind.

A command has a session of its own, which is ended as a whole when the command ends, its time is
up or the turn ends; what is to live on must leave it (setsid). It is not shut in: what it may do
is a matter of permissions and of the system. Where this process is killed, nobody ends it.
"""

import asyncio
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Tool, ToolOutput, ToolRefusal
from foldmark.files import size_text
from foldmark.model.values import Frozen
from foldmark.providers.background import finished

DEFAULT_SECONDS, MOST_SECONDS = 120, 600
MOST_BYTES = 16 * 2**20  # of an output that are kept: its first and its last half
_CHUNK = 2**16
_GRACE = 1.0  # seconds between asking a group to end and ending it
_DRAIN = 0.25  # seconds that what a child left running may still write
_LEAVE = 0.25  # seconds that what a command has just started may take to leave its session
_LOOK = 0.02
_DEAD = (b"Z", b"X")  # states of a process that has ended
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|CONN(ECTION)?_?STR|AUTH(?!OR)|AUTHORIZ|^AWS_|^FOLDMARK_"
    r"|(^|_)(PAT|DSN)(_|$)|_PWD$",
    re.IGNORECASE,
)
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
    left: int = 0  # processes that it had left running, and that were ended


def shell_tool(folder: Path) -> Tool:
    """The tool that runs commands in a folder."""
    program = shutil.which("bash") or "/bin/sh"

    @tool(seconds=MOST_SECONDS + 30)
    async def shell(
        command: Annotated[str, "What to run, as for a shell."],
        timeout: Annotated[float, f"Seconds it may take, at most {MOST_SECONDS}."] = (
            DEFAULT_SECONDS
        ),
    ) -> ToolOutput:
        """Run a command in the working folder. It has no input; its output comes back as a whole.

        Each call starts anew: a folder or variable that was set before is forgotten. What runs
        in the background is ended with the command, unless it was started with setsid.
        """
        if not command.strip() or "\0" in command:
            raise ToolRefusal("the command is empty, or has a zero byte in it")
        if not 0 < timeout <= MOST_SECONDS:
            raise ToolRefusal(f"timeout: more than 0 and at most {MOST_SECONDS} seconds")
        ran_ = await ran((program, "-c", command), folder, seconds=timeout)
        return _told(ran_, timeout, command)

    return shell


def _told(ended: Ran, seconds: float, command: str) -> ToolOutput:
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
    if ended.left and not ended.late:
        what = "1 process that was" if ended.left == 1 else f"{ended.left} processes that were"
        notes.append(f"[ended {what} left running; setsid keeps one]")
    gap = "" if not text or text.endswith("\n") or not notes else "\n"
    return ToolOutput(
        text=text + gap + "\n".join(notes),
        title=command.strip().partition("\n")[0][:80],
        metadata={"exit": ended.code},
        error=ended.late,
    )


def clean_environment(given: Mapping[str, str]) -> dict[str, str]:
    """An environment without what looks secret, and in which nothing asks or waits."""
    return {name: held for name, held in given.items() if not _SECRET.search(name)} | _QUIET


# --- running -------------------------------------------------------------------------------


class _Output:
    """What a process writes, read as it comes; of a long output, the first and the last bytes."""

    def __init__(self, most: int) -> None:
        self.left_out = 0
        self.ended = asyncio.Event()
        self._half = most // 2
        self._head, self._tail = bytearray(), bytearray()
        self._loop = asyncio.get_running_loop()
        self._end, self.writing = os.pipe()
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._end, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._end)
            self.ended.set()
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (spare := len(self._tail) - self._half) > 0:
            del self._tail[:spare]
            self.left_out += spare

    def whole(self) -> bytes:
        note = f"\n[… {size_text(self.left_out)} left out …]\n" if self.left_out else ""
        return bytes(self._head) + note.encode() + bytes(self._tail)

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
) -> Ran:
    """Run a program in a group of its own; what it writes is kept, errors and all."""
    pipe = _Output(most)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=clean_environment(os.environ),
                stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
                stdout=pipe.writing,
                stderr=pipe.writing,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolRefusal(f"{command[0]} cannot be started: {error.strerror}") from None
        finally:
            os.close(pipe.writing)
        late = False
        try:
            late = await _waited(process, given, seconds)
            if not late:
                await pipe.drained()
        finally:  # also where the wait is cancelled
            left = await finished(asyncio.ensure_future(_ended(process)))
        if late:
            await pipe.drained()
        return Ran(
            output=pipe.whole(),
            code=process.returncode or 0,
            left_out=pipe.left_out,
            late=late,
            left=left,
        )
    finally:
        pipe.close()


async def _waited(process: asyncio.subprocess.Process, given: bytes, seconds: float) -> bool:
    """Wait for a process; whether its time was up before it ended."""
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
    return False


async def _ended(process: asyncio.subprocess.Process) -> int:
    """End all of a process's session, first by asking, then by force; how many there were."""
    by_itself = process.returncode is not None
    if by_itself and not _signal(process.pid, 0):
        return 0  # the usual case; it is not worth a look at every process that there is
    found = await _left(process, _LEAVE if by_itself else 0)
    for group in {process.pid, *found.values()}:
        _signal(group, signal.SIGTERM)
    left = await _left(process, _GRACE)
    for group in {process.pid, *left.values()}:
        _signal(group, signal.SIGKILL)
    await process.wait()
    return len(found)


async def _left(process: asyncio.subprocess.Process, seconds: float) -> dict[int, int]:
    """What still runs of a process's session after so long; sooner, where nothing does."""
    until = time.monotonic() + seconds
    while (left := _running(process.pid)) or process.returncode is None:
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_LOOK)
    return left


def _running(session: int) -> dict[int, int]:
    """The processes of a session that have not ended, and the group of each.

    One that has ended is in its group until somebody collects it, and there may be nobody.
    """
    found: dict[int, int] = {}
    numbers: list[int] = []
    with suppress(OSError):
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    if not numbers:  # not Linux: the group is all that can be seen
        return {session: session} if _signal(session, 0) else {}
    for number in numbers:
        with suppress(OSError):
            about = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
            if int(about[3]) == session and about[0] not in _DEAD:
                found[number] = int(about[2])
    return found


def _signal(group: int, number: int) -> bool:
    """Signal a group; whether there still is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
