"""The tool `shell`, and running processes with limits and without leftovers.

A command runs in a process session of its own, which is ended as a whole when the command ends,
times out or the turn ends; a process survives only if it leaves that session (setsid). There is
no sandbox. If this process is killed, the command keeps running.
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
from foldmark.providers.background import wait_uninterrupted

DEFAULT_SECONDS, MAX_SECONDS = 120, 600
MAX_BYTES = 16 * 2**20  # of an output: the first and the last half are kept
_CHUNK = 2**16
_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_DRAIN = 0.25  # seconds to read what background children still write
_LEAVE = 0.25  # seconds for a new child to leave the session
_LOOK = 0.02
_DEAD = (b"Z", b"X")  # states of a process that has ended
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|CONN(ECTION)?_?STR|AUTH(?!OR)|AUTHORIZ|^AWS_|^FOLDMARK_"
    r"|(^|_)(PAT|DSN)(_|$)|_PWD$",
    re.IGNORECASE,
)
# Programs must not wait for answers or page their output.
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "TERM": "dumb",
    "DEBIAN_FRONTEND": "noninteractive",
}


class ProcessResult(Frozen):
    """How a process ended."""

    output: bytes
    code: int
    left_out: int = 0  # bytes dropped from the middle of the output
    timed_out: bool = False  # it was ended by the time limit
    leftover: int = 0  # processes it left running, which were ended


def shell_tool(folder: Path) -> Tool:
    """The tool `shell` for a folder."""
    program = shutil.which("bash") or "/bin/sh"

    @tool(seconds=MAX_SECONDS + 30)
    async def shell(
        command: Annotated[str, "What to run, as for a shell."],
        timeout: Annotated[float, f"Seconds it may take, at most {MAX_SECONDS}."] = (
            DEFAULT_SECONDS
        ),
    ) -> ToolOutput:
        """Run a command in the working folder. It has no input; its output comes back as a whole.

        Each call starts anew: a folder or variable that was set before is forgotten. What runs
        in the background is ended with the command, unless it was started with setsid.
        """
        if not command.strip() or "\0" in command:
            raise ToolRefusal("the command is empty, or has a zero byte in it")
        if not 0 < timeout <= MAX_SECONDS:
            raise ToolRefusal(f"timeout: more than 0 and at most {MAX_SECONDS} seconds")
        result = await run_process((program, "-c", command), folder, seconds=timeout)
        return _tool_output(result, timeout, command)

    return shell


def _tool_output(result: ProcessResult, seconds: float, command: str) -> ToolOutput:
    text = result.output.decode("utf-8", "replace")
    notes: list[str] = []
    if result.left_out:
        notes.append(f"[{size_text(result.left_out)} were left out in the middle]")
    if result.timed_out:
        notes.append(f"[timed out after {seconds:g} s; it was ended, with all that it started]")
    elif result.code < 0:
        notes.append(f"[ended by signal {-result.code}]")
    elif result.code or not text:
        notes.append(f"[exit code: {result.code}]")
    if result.leftover and not result.timed_out:
        count = result.leftover
        what = "1 process that was" if count == 1 else f"{count} processes that were"
        notes.append(f"[ended {what} left running; setsid keeps one]")
    gap = "" if not text or text.endswith("\n") or not notes else "\n"
    return ToolOutput(
        text=text + gap + "\n".join(notes),
        title=command.strip().partition("\n")[0][:80],
        metadata={"exit": result.code},
        error=result.timed_out,
    )


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without secrets, and with settings that keep programs from waiting."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)} | _QUIET


# --- running -------------------------------------------------------------------------------


class _Output:
    """Reads a process's output as it arrives; of a long one it keeps both ends."""

    def __init__(self, max_bytes: int) -> None:
        self.left_out = 0
        self.closed = asyncio.Event()
        self._half = max_bytes // 2
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
            self.closed.set()
        space = self._half - len(self._head)
        self._head += data[:space]
        self._tail += data[space:]
        if (spare := len(self._tail) - self._half) > 0:
            del self._tail[:spare]
            self.left_out += spare

    def whole(self) -> bytes:
        note = f"\n[… {size_text(self.left_out)} left out …]\n" if self.left_out else ""
        return bytes(self._head) + note.encode() + bytes(self._tail)

    async def drain(self) -> None:
        """Wait for the end, but not long: a background child may never close its pipe."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closed.wait(), _DRAIN)

    def close(self) -> None:
        self._loop.remove_reader(self._end)
        os.close(self._end)


async def run_process(
    command: Sequence[str],
    folder: Path,
    *,
    seconds: float,
    stdin: bytes = b"",
    max_bytes: int = MAX_BYTES,
) -> ProcessResult:
    """Run a program in a session of its own; its output includes standard error."""
    pipe = _Output(max_bytes)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=clean_environment(os.environ),
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=pipe.writing,
                stderr=pipe.writing,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolRefusal(f"{command[0]} cannot be started: {error.strerror}") from None
        finally:
            os.close(pipe.writing)
        timed_out = False
        try:
            timed_out = await _wait(process, stdin, seconds)
            if not timed_out:
                await pipe.drain()
        finally:  # also if the wait is cancelled
            leftover = await wait_uninterrupted(asyncio.ensure_future(_end_session(process)))
        if timed_out:
            await pipe.drain()
        return ProcessResult(
            output=pipe.whole(),
            code=process.returncode or 0,
            left_out=pipe.left_out,
            timed_out=timed_out,
            leftover=leftover,
        )
    finally:
        pipe.close()


async def _wait(process: asyncio.subprocess.Process, stdin: bytes, seconds: float) -> bool:
    """Wait for a process; return whether it exceeded its time."""
    try:
        async with asyncio.timeout(seconds):
            if process.stdin is not None:
                with suppress(ConnectionError):
                    process.stdin.write(stdin)
                    await process.stdin.drain()
                process.stdin.close()
            await process.wait()
    except TimeoutError:
        return True
    return False


async def _end_session(process: asyncio.subprocess.Process) -> int:
    """End a process's session with SIGTERM, then SIGKILL; return how many processes it had."""
    by_itself = process.returncode is not None
    if by_itself and not _signal(process.pid, 0):
        return 0  # usual case: avoids a scan of /proc
    processes = await _wait_for_end(process, _LEAVE if by_itself else 0)
    for group in {process.pid, *processes.values()}:
        _signal(group, signal.SIGTERM)
    survivors = await _wait_for_end(process, _GRACE)
    for group in {process.pid, *survivors.values()}:
        _signal(group, signal.SIGKILL)
    await process.wait()
    return len(processes)


async def _wait_for_end(process: asyncio.subprocess.Process, seconds: float) -> dict[int, int]:
    """Wait until a process's session has ended; return what still runs after `seconds`."""
    until = time.monotonic() + seconds
    while (running := _running(process.pid)) or process.returncode is None:
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_LOOK)
    return running


def _running(session: int) -> dict[int, int]:
    """The running processes of a session, with the group of each.

    Ended ones are skipped: they stay in their group until a parent collects them.
    """
    processes: dict[int, int] = {}
    numbers: list[int] = []
    with suppress(OSError):
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    if not numbers:  # not Linux: only the group is visible
        return {session: session} if _signal(session, 0) else {}
    for number in numbers:
        with suppress(OSError):
            about = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
            if int(about[3]) == session and about[0] not in _DEAD:
                processes[number] = int(about[2])
    return processes


def _signal(group: int, number: int) -> bool:
    """Signal a group; return whether it exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
