"""The real program, and small sessions of our own to run it on."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import foldmark
from foldmark.cli.app import app, main
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
STORE = Path("data", "foldmark", "foldmark.db")  # where XDG_DATA_HOME is `data` in this folder
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what decides on colours and widths."""
    dropped = {"COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM", "PY_COLORS"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "TERM": "xterm-256color", **changes}


def called(*arguments: object, data: bytes = b"", **changes: str) -> tuple[int, str, str]:
    """The exit code, output and complaints of the real program."""
    command = [str(FOLDMARK), *map(str, arguments)]
    done = subprocess.run(
        command,
        input=data,
        capture_output=True,
        check=False,
        env=environment(**changes),
        timeout=60,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def printed(*arguments: object, **changes: str) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "100", **changes})
    assert result.exception is None
    assert result.exit_code == 0
    return result.stdout


def answered(*arguments: object) -> dict[str, Any]:
    return json.loads(printed(*arguments, "--json"))


def call(number: int, tool: str, path: str, output: str) -> Message:
    part = ToolPart(
        id=f"prt_{number}", tool=tool, state=Completed(input={"filePath": path}, output=output)
    )
    info = AssistantInfo(
        id=f"msg_{number}", provider_id="anthropic", model_id="claude-sonnet-4-5", finish="stop"
    )
    return Message(info=info, parts=(part,))


def session(*more: Message, model: str = "claude-sonnet-4-5", calls: int = 12) -> Transcript:
    """A small session about a mill, with a request before every second call."""
    messages: list[Message] = []
    for number in range(calls):
        if number % 2 == 0:
            words = TextPart(text=f"Look at wheel {number}, then tell me how it turns")
            messages.append(Message(info=UserInfo(id=f"ask_{number}"), parts=(words,)))
        messages.append(call(number, "read", f"/mill/wheel_{number}.py", f"wheel {number}\n" * 800))
    info = AssistantInfo(id="end", provider_id="anthropic", model_id=model, finish="stop")
    ending = Message(info=info, parts=(TextPart(text="They all turn."),))
    about = SessionInfo(id="ses_mill", title="How the wheels turn", directory="/mill")
    return Transcript(info=about, messages=(*messages, *more, ending))


def stored(folder: Path, transcript: Transcript, name: str = "session.json") -> Path:
    path = folder / name
    write_private(path, encode(transcript))
    return path


def ended(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code, output and complaints of the program, run in this process: it is quicker."""
    code = main(list(map(str, arguments)))
    output, errors = capsys.readouterr()
    return code, output, errors


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which the program refuses something, run in this process."""
    code, output, errors = ended(capsys, *arguments)
    assert (code, output) == (2, "")
    assert errors.startswith("foldmark: ")
    assert errors.count("\n") == 1
    assert not STEERING.search(errors)
    return errors


def filled(where: str, *transcripts: Transcript) -> str:
    """A store with these sessions in it."""
    store = Store.open(where, durable=False)
    for transcript in transcripts:
        log = Log(counter(PRESET.estimate), transcript.messages)
        store_log(store, transcript.info, log, estimate=PRESET.estimate)
    store.close()
    return where


def worked(where: str, session_id: str = "ses_live", *, steps: int = 30) -> str:
    """A store with a session that was pruned (act 1), compacted (act 2), and went on."""
    with foldmark.open(where, session=session_id, window=8_000, output=1_000) as session:
        session.user("Mend the wheel; never touch the sluice")
        for number in range(steps):
            read = Pending(input={"filePath": f"/mill/wheel_{number}.py"})
            session.record([ToolPart(tool="read", call_id=f"c{number}", state=read)])
            session.result(f"c{number}", f"tooth {number} of a wheel\n" * 300)
        assert session.prune() is not None
        assert session.compact("## Goal\nThe wheels turn.") is not None
        session.user("And now the millstone?")
        session.record("The millstone turns as well.")
    return where
