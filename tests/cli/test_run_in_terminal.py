"""`foldmark run` at a terminal: a real one, with the real program in it."""

import codecs
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import foldmark
from foldmark.agent.function_tools import toolset
from foldmark.agent.permissions import PermissionGate, Permissions
from foldmark.agent.tool_calls import Toolbox
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.cli.chat.lines import Calls
from foldmark.cli.chat.prompt import escape_controls, parse_reply
from foldmark.cli.chat.slash_commands import is_command
from foldmark.model import events
from foldmark.model.events import Event
from foldmark.store.store import Store
from tests.support.chat_server import MODEL, Call, ChatServer, Step, Thought, chat_server
from tests.support.cli_program import FOLDMARK, STORE, environment

CONTROL_C, CONTROL_D = "\x03", "\x04"
PROMPT = "›"  # noqa: RUF001 - the sign of the program
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[>=]")
COLOR = re.compile(r"\x1b\[[0-9;]*3[0-9][;0-9]*m")
PATIENCE = 120.0  # seconds: only ends a test that hangs
SETTLED, RETRY = 0.3, 20.0  # seconds until a key is probably read, and until it was surely lost
DONE: Step = ("It works.",)


class Terminal:
    """A program in a terminal of 100 columns, and its output so far."""

    def __init__(self, number: int, program: "subprocess.Popen[bytes]") -> None:
        self._number = number
        self.program = program
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._seen = 0

    @property
    def text(self) -> str:
        """The output without control sequences."""
        return SEQUENCE.sub("", self.raw).replace("\r", "")

    def until(self, text: str, *, again: Callable[[], None] | None = None) -> str:
        """The output since the last call, up to a text; repeats an action that may be lost."""
        deadline = time.monotonic() + PATIENCE
        next_try = time.monotonic() + SETTLED
        while (index := self.text.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} never came:\n{self.text[self._seen :]}"
            if again is not None and time.monotonic() > next_try:
                again()
                next_try = time.monotonic() + RETRY
            if not self.read_more():
                assert text in self.text[self._seen :], f"ended without {text!r}:\n{self.text}"
        output = self.text[self._seen : index + len(text)]
        self._seen = index + len(text)
        return output

    def read_more(self) -> bool:
        """Read output that comes soon; False after its end."""
        if not select.select([self._number], [], [], 0.2)[0]:
            return True
        try:
            self.raw += self._decoder.decode(os.read(self._number, 65536))
        except OSError:  # on Linux, the other end was closed
            return False
        return True

    def type(self, text: str) -> None:
        os.write(self._number, text.encode())

    def say(self, line: str) -> None:
        """Type a line at the next prompt."""
        self.until(PROMPT)
        self.type(f"{line}\n")

    def leave(self) -> int:
        """The exit code, after the rest of the output."""
        deadline = time.monotonic() + PATIENCE
        while self.read_more():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            if self.program.poll() is not None and not select.select([self._number], [], [], 0)[0]:
                break
        return self.program.wait(PATIENCE)


@contextmanager
def terminal(
    server: ChatServer, folder: Path, *more: object, **changes: str
) -> Generator[Terminal]:
    """A run in a terminal of its own."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": "100", "LINES": "30", "PROMPT_TOOLKIT_NO_CPR": "1"}
    options = ["run", *more, "--model", MODEL, "--window", 16_000, "--base-url", server.url]
    program = subprocess.Popen(
        [str(FOLDMARK), *map(str, options), "--dir", str(folder)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**size, HOME=str(folder.parent), **changes),
        start_new_session=True,
        preexec_fn=_own_terminal,  # noqa: PLW1509 - so that Ctrl-C is a signal
    )
    os.close(theirs)
    try:
        yield Terminal(ours, program)
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def is_pending(process: int, number: int) -> bool:
    """Whether a signal was not delivered yet: a second one would be merged with it."""
    status = Path(f"/proc/{process}/status").read_text()
    pending = re.search(r"ShdPnd:\s*(\w+)", status)
    return bool(pending and int(pending[1], 16) & 1 << number - 1)


def _own_terminal() -> None:
    import fcntl  # noqa: PLC0415 - in the child
    import termios  # noqa: PLC0415

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_text_streams_above_the_status_of_calls_and_a_gauge(project: Path):
    thought, first = threading.Event(), threading.Event()
    look = (Thought("Look "), Thought("first.\x1b[2J"), thought, "I look ", first, "around.")
    step = (*look, Call("read", {"path": "app.py"}), Call("read", {"path": "none.py"}))
    with chat_server(step, DONE) as server, terminal(server, project, "Fix it") as screen:
        screen.until("· thinking Look first.")
        thought.set()
        screen.until("I look")  # while the server still waits
        assert re.search(r"\[[█░]{10}\] \d+% · [\d.]+k? of [\d.]+k · step 1", screen.text)
        first.set()
        screen.until("✓ read app.py · 11 characters")
        screen.until("done after 2 steps")
        screen.until("cached 80%")
        screen.until(PROMPT)
        screen.type(CONTROL_D)
        assert screen.leave() == 0
        assert "✗ read none.py · " in screen.text
        assert "I look around.\n" in screen.text
        assert "\x1b[2J" not in screen.raw
        assert COLOR.search(screen.raw)


def test_control_c_stops_a_turn_and_the_prompt_comes_back(project: Path):
    never = threading.Event()
    script: list[Step] = [("I wait.", never), DONE]
    with chat_server(*script) as server, terminal(server, project, NO_COLOR="1") as screen:
        screen.say("/Plan")
        screen.until("/plan needs a session: type a first message")
        screen.until(PROMPT)
        # A signal is lost between the prompt and the wait for a key.
        screen.until("Press Ctrl-D or type /exit", again=lambda: screen.type(CONTROL_C))
        screen.say("/shop is broken")
        screen.until("there is no /shop")
        screen.say("/shop/order.py is broken, fix it")
        screen.until("I wait.")
        screen.type(CONTROL_C)
        screen.until("stopped after 1 step")
        screen.say("Go on, then")
        screen.until("done after 1 step")
        screen.say("/exit")
        assert screen.leave() == 0
        assert screen.text.count("stopped") == 1
        assert "continue with: foldmark run --continue --session ses_" in screen.text
        assert f"--model {MODEL} --base-url {server.url} --window 16000 --dir " in screen.text
        assert not COLOR.search(screen.raw)
    with Store.open(STORE) as store:
        assert store.resolve("latest").holder is None
    with chat_server(DONE) as server, terminal(server, project, "-c") as screen:
        screen.until(PROMPT)  # the turn had ended: the user is asked
        screen.type(CONTROL_D)
        assert screen.leave() == 0
    assert not server.requests


def test_pasted_lines_are_one_message(project: Path):
    with chat_server(DONE) as server, terminal(server, project) as screen:
        screen.until(PROMPT)
        screen.type("\x1b[200~Fix it:\r- the order\r- the ticket\x1b[201~\r")
        screen.until("done after 1 step")
        assert "- the ticket" in screen.text
        screen.until(PROMPT)
        screen.type("And then:\n- the basket\n- the totals\n")  # a terminal without bracketed paste
        screen.until("done after 1 step")
        screen.say("/exit")
        assert screen.leave() == 0
    assert len(server.requests) == 2
    request = json.dumps(server.requests[1]["messages"])
    assert "Fix it:\\n- the order\\n- the ticket" in request
    assert "And then:\\n- the basket\\n- the totals" in request


def test_a_call_that_control_c_stops_is_shown(project: Path):
    sleep = Call("shell", {"command": "touch begun; sleep 20"})
    with (
        chat_server((sleep,)) as server,
        terminal(server, project, "Fix it", "--allow", "shell") as screen,
    ):
        while not (project / "begun").exists():
            screen.read_more()
            assert screen.program.poll() is None
        screen.type(CONTROL_C)
        screen.until("✗ shell touch begun; sleep 20 · stopped\n")
        screen.until("stopped after 1 step")


def test_a_second_control_c_leaves_at_once(project: Path):
    # A command that ignores SIGTERM: after the first signal, the turn waits for it.
    stubborn = Call("shell", {"command": "trap '' TERM; touch begun; sleep 4 & wait; sleep 4"})
    with (
        chat_server((stubborn,)) as server,
        terminal(server, project, "Fix it", "--allow", "shell") as screen,
    ):
        while not (project / "begun").exists():
            screen.read_more()
            assert screen.program.poll() is None
        os.kill(screen.program.pid, signal.SIGINT)
        while is_pending(screen.program.pid, signal.SIGINT):
            screen.read_more()
        os.kill(screen.program.pid, signal.SIGINT)
        assert screen.leave() == 130
    with foldmark.open(STORE, session="latest", wait_seconds=0) as session:
        assert session.user("It is free").id


def test_a_question_ignores_what_was_typed_before_it(project: Path):
    ready = threading.Event()
    shell = [(Call("shell", {"command": f"echo {n} >> out.txt"}),) for n in (1, 2, 3, 3)]
    with (
        chat_server(("I ask.", ready, *shell[0]), *shell[1:], DONE) as server,
        terminal(server, project, "Test it") as screen,
    ):
        screen.until("I ask.")
        screen.type("y\n")
        ready.set()
        screen.until("echo 1 >> out.txt\n")
        screen.until("typed before the question: y")
        screen.until("[a]lways this exact command in this run")
        screen.until(f"sent to the model):\n{PROMPT}")
        assert not (project / "out.txt").exists()
        screen.type("what\n")
        screen.until(f"sent to the model):\n{PROMPT}")
        screen.type("y\n")
        screen.until("echo 2 >> out.txt\n")
        screen.until(f"sent to the model):\n{PROMPT}")
        screen.type("n write it yourself\n")
        screen.until("✗ shell echo 2 >> out.txt · the user said no: write it yourself")
        screen.until(f"sent to the model):\n{PROMPT}")
        screen.type("a\n")  # the fourth is not asked about
        screen.until("done after 5 steps")
        screen.until(PROMPT)
    assert (project / "out.txt").read_text() == "1\n3\n3\n"
    assert "write it yourself" in str(server.requests[2]["messages"])


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "signal"])
def test_control_c_at_a_question_stops_the_turn(project: Path, *, by_key: bool):
    touch = (Call("shell", {"command": "touch out.txt"}),)
    with chat_server(touch, DONE) as server, terminal(server, project, "Test it") as screen:
        screen.until(f"sent to the model):\n{PROMPT}")

        def interrupt() -> None:
            if by_key:
                screen.type(CONTROL_C)
            else:
                os.kill(screen.program.pid, signal.SIGINT)

        screen.until("stopped after 1 step", again=interrupt)
        screen.say("Go on, then")
        screen.until("done after 1 step")
        screen.say("/exit")
        assert screen.leave() == 0
    assert not (project / "out.txt").exists()


def test_slash_commands_work_at_the_prompt(project: Path):
    write = (Call("write", {"path": "order.py", "content": "works = True\n"}),)
    with (
        chat_server(("I begin. " * 300,), write, DONE) as server,
        terminal(server, project, "Begin", "--summarizer", "digest") as screen,
    ):
        screen.say("Fix it")
        screen.until("✓ write order.py")
        screen.say("/diff")
        screen.until("+works = True")
        screen.until("Not included: ignored files")
        screen.say("/search works")
        screen.until("foldmark recall ses_")
        screen.say("/plan")
        screen.until("Compact would summarize at most ")
        screen.say("/compact")
        assert "summarized the older messages: " in screen.until(" tokens")
        screen.say("/undo")
        screen.until("Operation 1 (compaction) was undone")
        screen.say("/undo nine")
        screen.until("'nine' is not the number of an operation")
        screen.say("/model openai:other")
        screen.until("/model openai:other N")
        screen.say("/model openai:other 9000")
        screen.until("now openai:other")
        screen.say("/revert")
        screen.until("Reverted to before “Fix it”")
        screen.until("deleted: order.py")
        screen.say("/undo")
        screen.until("(revert) was undone")
        screen.until("written: order.py")
        screen.until(PROMPT)
        assert (project / "order.py").exists()
        screen.type("/revert\n")
        screen.until("deleted: order.py")
        screen.until(PROMPT)
        (project / "order.py").write_text("by hand")
        screen.type("/undo\n")
        screen.until("files were not restored: they changed since then")
        screen.say("/revert")
        screen.until("deleted: order.py")
        screen.say("/fly")
        screen.until("there is no /fly; the commands are /compact, /undo, /plan, /search, /diff")
        screen.say("/help")
        screen.until("/exit")
        screen.say("And now?")
        screen.until("done after 1 step")
        screen.say("/exit")
        assert screen.leave() == 0
    assert not (project / "order.py").exists()
    last = server.requests[-1]
    assert last["model"] == "other"
    assert "Begin" in str(last["messages"])
    assert "Fix it" not in str(last["messages"])


def test_an_answer_is_yes_always_or_no_with_a_text():
    assert [parse_reply(line) for line in ("y", "YES", "a", "always", "n")] == [
        *("once", "once", "always", "always", "no"),
    ]
    assert parse_reply("no, use a pipe") == parse_reply("n use a pipe")
    assert parse_reply("") is None
    assert parse_reply("maybe") is None


def test_a_question_hides_nothing():
    assert escape_controls("a\x1b[2Jb\n\tc\u202ed é") == "a\\x1b[2Jb\n\\tc\\u202ed é"


def test_a_message_that_starts_with_a_path_is_no_command(tmp_path: Path):
    assert all(map(is_command, ("/plan", "/PLAN", " /search src/shop", "/fly away", "/")))
    folder = tmp_path.parts[1]
    words = (
        f"/{folder} is a folder",
        f"{tmp_path} too",
        "/fly/away now",
        "a /plan",
        "/12",
        "/plan\nb",
    )
    assert not any(map(is_command, words))


def test_the_time_of_a_question_is_not_the_time_of_its_call(tmp_path: Path):
    calls = Calls(Toolbox(toolset(workspace_tools(tmp_path)), PermissionGate(Permissions())))
    data = {"call": "c1", "tool": "shell", "input": {"command": "make"}}
    now = int(time.time() * 1_000)
    calls.begin(Event(number=0, session="s", kind=events.TOOL_STARTED, at=now - 60_000, data=data))
    assert calls.running()[0][1] > 59
    calls.note_answer("shell", "make")
    assert calls.running()[0][1] < 30
    end = {"title": "", "error": False, "told": "", "characters": 1, "seconds": 61.0}
    finished = Event(
        number=0, session="s", kind=events.TOOL_FINISHED, at=now + 1_000, data={**data, **end}
    )
    seconds = re.search(r"([0-9.]+) s$", calls.finish(finished).text)
    assert seconds
    assert float(seconds[1]) < 30
