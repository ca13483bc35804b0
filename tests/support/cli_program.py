"""The command line, run in this process or as a program, and small sessions to run it on."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.cli.app import main
from foldmark.files import write_private
from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    Pending,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
    UserInfo,
)
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK as PRESET
from foldmark.store.store import Store
from foldmark.tokens.counters import counter
from tests.support.stored_sessions import store_log

FOLDMARK = Path(sys.executable).with_name("foldmark")
STORE = Path("data", "foldmark", "foldmark.db")  # if XDG_DATA_HOME is `data` in this folder
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
HOSTILE = "[red]x[/red]\x1b[31m\x1b]0;title\x07\x9b2J\r\nfoldmark: all is well\u202e"
_TERMINAL = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS")


def environment(**changes: str) -> dict[str, str]:
    """Our environment, without the variables that decide on colors and widths."""
    own = {name: value for name, value in os.environ.items() if name not in _TERMINAL}
    return {**own, "TERM": "xterm-256color", **changes}


def run_cli(*arguments: object, data: bytes = b"", **changes: str) -> tuple[int, str, str]:
    """Run the program in this process; returns its exit code, output and errors."""
    return _run(arguments, data, changes)


def _run(
    arguments: Iterable[object], data: bytes, changes: Mapping[str, str]
) -> tuple[int, str, str]:
    encoding = changes.get("PYTHONIOENCODING", "utf-8")
    outputs = [TextIOWrapper(BytesIO(), encoding=encoding) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        for name in _TERMINAL:
            patch.delenv(name, raising=False)
        for name, value in changes.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data), encoding="utf-8"))
        patch.setattr(sys, "stdout", outputs[0])
        patch.setattr(sys, "stderr", outputs[1])
        code = main(list(map(str, arguments)))
    texts: list[str] = []
    for output in outputs:
        output.seek(0)
        texts.append(output.buffer.read().decode("utf-8", "surrogatepass"))
    return code, texts[0], texts[1]


def run_program(*arguments: object, **changes: str) -> "subprocess.Popen[bytes]":
    """Start the real program, with pipes for its output and errors."""
    return subprocess.Popen(
        [str(FOLDMARK), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**changes),
    )


def output_of(*arguments: object, **changes: str) -> str:
    """The output of a command that must succeed."""
    code, output, errors = _run(arguments, b"", {"COLUMNS": "100", **changes})
    assert code == 0, errors
    return output


def json_of(*arguments: object) -> dict[str, Any]:
    """The JSON that a command prints."""
    return json.loads(output_of(*arguments, "--json"))


def refusal(*arguments: object, **changes: str) -> str:
    """The one line with which the program refuses something."""
    code, output, errors = _run(arguments, b"", changes)
    assert (code, output) == (2, "")
    assert errors.startswith("foldmark: ")
    assert errors.endswith("\n")
    assert errors.count("\n") == 1
    assert not STEERING.search(errors.removesuffix("\n"))
    return errors


def session_ids(where: object) -> list[str]:
    """The ids of the sessions in a store, the newest first."""
    return [session["id"] for session in json_of("sessions", "--store", where)["sessions"]]


# --- sessions ------------------------------------------------------------------------------


def tool_message(number: int, tool: str, path: str, output: str) -> Message:
    """A reply that calls a tool on a file, with the tool's output."""
    part = ToolPart(
        id=f"prt_{number}", tool=tool, state=Completed(input={"filePath": path}, output=output)
    )
    info = AssistantInfo(
        id=f"msg_{number}", provider_id="anthropic", model_id="claude-sonnet-4-5", finish="stop"
    )
    return Message(info=info, parts=(part,))


def sample_transcript(
    *more: Message, model: str = "claude-sonnet-4-5", calls: int = 12, name: str = "ses_shop"
) -> Transcript:
    """A small session about a web shop, with a request before every second tool call."""
    messages: list[Message] = []
    for number in range(calls):
        if number % 2 == 0:
            request = TextPart(text=f"Look at order {number}, then tell me how it loads")
            messages.append(Message(info=UserInfo(id=f"ask_{number}"), parts=(request,)))
        output = f"order {number}\n" * 800
        messages.append(tool_message(number, "read", f"/shop/order_{number}.py", output))
    info = AssistantInfo(id="end", provider_id="anthropic", model_id=model, finish="stop")
    ending = Message(info=info, parts=(TextPart(text="They all load."),))
    about = SessionInfo(id=name, title="How the orders load", directory="/shop")
    return Transcript(info=about, messages=(*messages, *more, ending))


def hostile_transcript() -> Transcript:
    """A session whose texts try to control the terminal, and to look like our own output."""
    text = TextPart(text=f"order {HOSTILE}")
    said = Message(info=UserInfo(id=f"m{HOSTILE}"), parts=(text,))
    call = tool_message(99, HOSTILE, f"/w/{HOSTILE}.py", f"order {HOSTILE}\n" * 2_000)
    sample = sample_transcript(said, call, calls=12)
    info = SessionInfo(id=f"a{HOSTILE}", title=HOSTILE, directory="/shop")
    return Transcript(info=info, messages=sample.messages)


def write_transcript(folder: Path, transcript: Transcript, name: str = "session.json") -> Path:
    """A file with this transcript."""
    path = folder / name
    write_private(path, encode(transcript))
    return path


def fill_store(where: str, *transcripts: Transcript) -> str:
    """Put these sessions into a store; returns its location."""
    store = Store.open(where, durable=False)
    for transcript in transcripts:
        log = Log(counter(PRESET.estimate), transcript.messages)
        store_log(store, transcript.info, log, estimate=PRESET.estimate)
    store.close()
    return where


def compacted_store(where: str, session_id: str = "ses_live", *, steps: int = 30) -> str:
    """A store with a session that was pruned (operation 1), compacted (2), and continued."""
    with foldmark.open(where, session=session_id, window=8_000, output=1_000) as session:
        session.user("Fix the order; never touch the schema")
        for number in range(steps):
            call = Pending(input={"filePath": f"/shop/order_{number}.py"})
            session.record([ToolPart(tool="read", call_id=f"c{number}", state=call)])
            session.result(f"c{number}", f"entry {number} of an order\n" * 300)
        assert session.prune() is not None
        assert session.compact("## Goal\nThe orders load.") is not None
        session.user("And now the discounts?")
        session.record("The discounts load as well.")
    return where
