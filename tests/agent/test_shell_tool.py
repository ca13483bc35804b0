"""The tool that runs commands: what it gives back, and that nothing of it is left behind."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foldmark.agent.permissions import PermissionGate, Permissions
from foldmark.agent.tool import Context, ToolOutput, ToolRefusal
from foldmark.agent.tools.shell import ProcessResult, clean_environment, run_process, shell_tool
from foldmark.model.messages import Pending, ToolPart
from tests.support.stored_sessions import opened
from tests.support.tool_calls import calling

PYTHON = sys.executable


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., ToolOutput]:
    """A function that runs a command in a folder of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    tool = shell_tool(folder)

    def run(command: str, **more: object) -> ToolOutput:
        arguments: dict[str, object] = {"command": command, **more}
        part = ToolPart(tool="shell", call_id="c", state=Pending(input=arguments))
        with opened(str(tmp_path / "store.db"), "s") as session:
            context = Context(session, folder, "c", "agent", asyncio.Event())
            gate = PermissionGate(Permissions([("*", "allow")]))
            return asyncio.run(calling(tool, part, context, gate))

    return run


def gone(number: int) -> bool:
    """Whether a process ends soon; one that has ended but is not yet collected is gone too."""
    for _ in range(500):
        try:
            os.kill(number, 0)
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def gone_now(number: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


def wait_for(file: Path) -> str:
    """The text of a file, once there is some."""
    for _ in range(1_000):
        if file.exists() and (text := file.read_text()).endswith("\n"):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{file.name} was never written")


def test_a_command_gives_its_output_and_its_errors_as_they_come(
    shell: Callable[..., ToolOutput],
) -> None:
    output = shell("echo one; echo two >&2; echo three")
    assert output.text == "one\ntwo\nthree\n"
    assert output.metadata["exit"] == 0
    assert not output.error


def test_a_command_that_fails_tells_its_code(shell: Callable[..., ToolOutput]) -> None:
    output = shell("printf no; exit 3")
    assert (output.text, output.metadata["exit"]) == ("no\n[exit code: 3]", 3)
    assert not output.error  # the program said so, and the tool did its work
    assert shell("true").text == "[exit code: 0]"
    assert "[exit code: 127]" in shell("nothing-such").text
    assert shell("kill -9 $$").text == "[ended by signal 9]"


def test_a_command_runs_in_the_folder_and_has_no_input(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    assert shell("pwd; cat; read x || echo none").text == f"{tmp_path / 'work'}\nnone\n"
    shell("cd /; X=1")
    assert shell("pwd").text == f"{tmp_path / 'work'}\n"


@pytest.mark.parametrize(
    "arguments", [{"timeout": 0}, {"timeout": -1}, {"timeout": 601}, {"timeout": "x"}]
)
def test_a_time_that_makes_no_sense_is_refused(
    shell: Callable[..., ToolOutput], arguments: dict[str, object]
) -> None:
    assert "timeout" in shell("true", **arguments).text
    assert shell("true", **arguments).error


def test_an_empty_command_is_refused(shell: Callable[..., ToolOutput]) -> None:
    assert shell(" ").error
    assert shell("echo \0").error


def test_what_looks_secret_is_not_in_the_environment(
    shell: Callable[..., ToolOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = ("OPENAI_API_KEY", "my_token", "A_SECRET_B", "PGPASSWORD", "AWS_REGION")
    hidden += ("FOLDMARK_STORE", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_KEY_FILE", "DB_PASS")
    hidden += ("GH_PAT", "PAT_OF_MINE", "SENTRY_DSN", "SSH_AUTH_SOCK", "X_CONNECTION_STRING")
    hidden += ("MYSQL_PWD", "HTTP_AUTHORIZATION")
    for name in hidden:
        monkeypatch.setenv(name, "hush-hush")
    monkeypatch.setenv("ORDINARY", "seen")
    output = shell("env").text
    assert "hush-hush" not in output
    for line in ("ORDINARY=seen", "GIT_TERMINAL_PROMPT=0", "PAGER=cat", "TERM=dumb"):
        assert f"{line}\n" in output
    expected = {"PATH", "HOME", "PWD", "MANPATH", "PYTHONPATH", "GIT_AUTHOR_NAME", "PATTERN"}
    assert expected <= clean_environment(dict.fromkeys(expected, "x")).keys()


def test_bytes_that_are_no_text_are_told_as_well_as_can_be(
    shell: Callable[..., ToolOutput],
) -> None:
    assert shell("printf 'a\\377\\000b'").text == "a�\0b"
    assert shell("printf '\\033[31mred'").text == "\x1b[31mred"


def test_megabytes_come_back_whole_and_more_is_cut_in_the_middle(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    write = "import sys; [sys.stdout.write(f'{n:099}\\n') for n in range({count})]"
    command = f'{PYTHON} -c "{write.replace("{count}", "50_000")}"'
    text = shell(command).text
    assert len(text) == 5_000_000
    assert text.split("\n")[49_999] == f"{49_999:099}"
    command = [PYTHON, "-c", write.replace("{count}", "300_000")]
    result = asyncio.run(run_process(command, tmp_path, seconds=60))
    assert result.left_out == 30_000_000 - 16 * 2**20
    assert len(result.output) < 16 * 2**20 + 100
    assert result.output.startswith(b"0" * 99)
    assert result.output.endswith(f"{299_999:099}\n".encode())
    assert b"left out" in result.output


def test_an_output_just_over_the_bound_loses_its_middle_alone(tmp_path: Path) -> None:
    for limit in (10, 100_000, 200_000):
        command = ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"]
        whole = b"".join(b"%d\n" % number for number in range(20_000))
        result = asyncio.run(run_process(command, tmp_path, seconds=60, max_bytes=limit))
        if limit > len(whole):
            assert (result.output, result.left_out) == (whole, 0)
            continue
        head, _, rest = result.output.partition("\n[… ".encode())
        tail = rest.partition("…]\n".encode())[2]
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head) + result.left_out + len(tail) == len(whole)
        assert len(head) == len(tail) == limit // 2


def test_a_timeout_ends_the_command_with_all_that_it_started(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    command = "echo begun; (trap '' TERM; sleep 300 & echo $! > pid; wait) & wait"
    output = shell(command, timeout=2)
    assert output.error
    assert output.text.startswith("begun\n[timed out after 2 s")
    assert gone(int((tmp_path / "work" / "pid").read_text()))


def test_a_command_that_ignores_being_asked_is_ended_by_force(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    output = shell("trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 0.05; done", timeout=1.5)
    assert "timed out" in output.text
    assert gone(int((tmp_path / "work" / "pid").read_text()))


def test_a_cancelled_call_ends_the_whole_group(tmp_path: Path) -> None:
    async def cut() -> None:
        command = ("sh", "-c", "sleep 300 & echo $! > pid; echo $$ > own; wait")
        task = asyncio.create_task(run_process(command, tmp_path, seconds=60))
        for name in ("pid", "own"):
            await asyncio.to_thread(wait_for, tmp_path / name)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cut())
    for name in ("pid", "own"):
        assert gone(int((tmp_path / name).read_text()))


def test_a_call_that_is_cancelled_twice_leaves_nothing_running(tmp_path: Path) -> None:
    async def cut() -> None:
        command = ("sh", "-c", "trap '' TERM; echo $$ > own; while :; do sleep 0.05; done")
        task = asyncio.create_task(run_process(command, tmp_path, seconds=60))
        await asyncio.to_thread(wait_for, tmp_path / "own")
        task.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(cut())
    assert gone(int((tmp_path / "own").read_text()))


def test_a_child_in_the_background_does_not_hold_up_the_call(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    output = shell("sleep 300 & echo $! > pid; echo started", timeout=60)
    note = "[ended 1 process that was left running; setsid keeps one]"
    assert output.text == f"started\n{note}"
    assert not output.error
    assert gone(int((tmp_path / "work" / "pid").read_text()))


def test_what_a_command_leaves_running_is_ended_with_it(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    quiet = ">/dev/null 2>&1 & echo $!"
    stubborn = "(trap '' TERM; while :; do sleep 0.05; done)"
    output = shell(f"sleep 300 {quiet}; nohup sleep 300 {quiet}; {stubborn} {quiet}")
    *numbers, note = output.text.splitlines()
    assert len(numbers) == 3
    assert note.startswith("[ended ")
    assert all(gone(int(number)) for number in numbers)


@pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid")
def test_what_has_left_the_session_of_a_command_lives_on(
    shell: Callable[..., ToolOutput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "foldmark.agent.tools.shell._LEAVE", 30
    )  # it may take its time, and on a busy machine does
    output = shell("setsid sh -c 'echo $$ > pid; exec sleep 300' >/dev/null 2>&1 & echo started")
    number = int(wait_for(tmp_path / "work" / "pid"))
    assert not gone_now(number)
    os.kill(number, 9)
    assert gone(number)
    assert output.text.startswith("started\n")


# A process that leaves the session, in which its child has ended and is collected by nobody.
NEGLECTFUL = """
import os, time
child = os.fork()
if not child:
    os._exit(0)
os.setsid()
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print(os.getpid(), file=open("pid", "w"), flush=True)
time.sleep(300)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
def test_a_process_that_has_ended_and_is_not_collected_is_not_taken_for_running(
    shell: Callable[..., ToolOutput], tmp_path: Path
) -> None:
    (tmp_path / "work" / "neglectful.py").write_text(NEGLECTFUL)
    started = f"{PYTHON} neglectful.py >/dev/null 2>&1 &"
    output = shell(f"{started} while [ ! -s pid ]; do sleep 0.02; done; echo done")
    number = int(wait_for(tmp_path / "work" / "pid"))
    os.kill(number, 9)
    assert gone(number)
    assert output.text == "done\n"


def test_a_call_that_is_cancelled_after_its_command_ended_leaves_nothing(tmp_path: Path) -> None:
    async def cut() -> None:
        command = ("sh", "-c", "sleep 300 & echo $! > pid")
        task = asyncio.create_task(run_process(command, tmp_path, seconds=60))
        await asyncio.to_thread(wait_for, tmp_path / "pid")
        await asyncio.sleep(0.1)  # the shell has ended, and its output is still waited for
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(cut())
    assert gone(int((tmp_path / "pid").read_text()))


def test_commands_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for what the other one writes."""

    def half(own: str, other: str) -> tuple[str, ...]:
        return "sh", "-c", f"touch {own}; while [ ! -e {other} ]; do sleep 0.02; done; echo {own}"

    async def both() -> list[ProcessResult]:
        halves = (half("a", "b"), half("b", "a"))
        return await asyncio.gather(*(run_process(one, tmp_path, seconds=30) for one in halves))

    assert [one.output for one in asyncio.run(both())] == [b"a\n", b"b\n"]


def test_a_program_that_is_not_there_is_told_and_no_pipe_stays_open(tmp_path: Path) -> None:
    async def tries() -> None:
        for _ in range(20):
            with pytest.raises(ToolRefusal, match="cannot be started"):
                await run_process(["/nothing/such"], tmp_path, seconds=5)
            with pytest.raises(ToolRefusal, match="cannot be started"):
                await run_process(["true"], tmp_path / "none", seconds=5)
            await run_process(["true"], tmp_path, seconds=5)

    asyncio.run(tries())
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    asyncio.run(tries())
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
