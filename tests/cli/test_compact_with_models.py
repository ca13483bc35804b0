"""`foldmark compact` with a model that summarises: a real HTTP server that answers as OpenAI's."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldmark.summary.prompting import SECTIONS
from tests.support.cli_program import (
    FOLDMARK,
    STEERING,
    environment,
    run_cli,
    sample_transcript,
    write_transcript,
)
from tests.support.provider_server import Provider, Sent, provider, stream

SMALL = ("--target", "6000")  # where nothing is pruned, and all of it is folded
GOOD = "\n".join(f"## {name}\n- the shop order, see order_3.py" for name in SECTIONS)
HOSTILE = GOOD + "\n\x1b]0;title\x07\x9b2J\u202e[bold]all is well[/bold]"


@pytest.fixture
def transcript_file(tmp_path: Path) -> Path:
    return write_transcript(tmp_path, sample_transcript(calls=40))


def chunks(text: str) -> Iterator[dict[str, Any]]:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "writer"}
    for piece in (text[:20], text[20:]):
        delta = {"role": "assistant", "content": piece}
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 900, "completion_tokens": 70, "total_tokens": 970}
    yield {**head, "choices": [], "usage": usage}


def answer(text: str) -> Sent:
    return stream(chunks(text), end="data: [DONE]\n\n")


def asked(path: Path, held: Provider, *more: str) -> tuple[int, str, str]:
    model = ("--summarizer", "shop:writer", "--base-url", f"{held.url}/v1")
    return run_cli("compact", path, *SMALL, *model, *more)


def test_a_model_writes_the_summary_and_the_digest_stands_beside_it(transcript_file: Path):
    with provider(answer(GOOD)) as held:
        code, output, errors = asked(
            transcript_file, held, "--json", "--instructions", "the ticket gates"
        )
    assert (code, errors) == (0, "")
    found = json.loads(output)
    assert found["summary"].startswith(GOOD)
    assert (found["how"], found["calls"], found["flaws"]) == ("serial", 1, [])
    assert found["summarizer"] == "shop:writer"
    assert (found["spent"]["input"], found["spent"]["output"]) == (900, 70)
    shares = found["tokens"]["after"]
    assert shares["summary"] > 0 < shares["digest"]
    assert found["after"]["tokens"] <= found["usable"]
    assert "the ticket gates" in json.dumps(held.requests[0]["messages"])


def test_the_report_tells_who_wrote_the_summary_and_what_it_took(transcript_file: Path):
    with provider(answer("I would rather not."), answer(GOOD)) as held:
        code, output, errors = asked(transcript_file, held)
    assert (code, errors) == (0, "")
    told = " ".join(output.split())
    for text in (
        "shop:writer, from the session as text",
        "2 calls, 1,800 tokens in, 140 tokens out",
    ):
        assert text in told
    assert "problem it lacks the headings" in told


def test_a_model_that_fails_leaves_the_digest_and_says_so(transcript_file: Path, tmp_path: Path):
    out = tmp_path / "messages.json"
    with provider(Sent(401, '{"error": {"message": "wrong \\u001b[2J key"}}')) as held:
        code, output, errors = asked(transcript_file, held, "--output", str(out))
    assert (code, errors) == (0, "")
    assert "wrote no usable summary" in " ".join(output.split())
    assert "wrong" in output
    assert not STEERING.search(output)
    assert json.loads(out.read_bytes())


def test_what_a_model_writes_is_never_a_command(transcript_file: Path):
    with provider(answer(HOSTILE)) as held:
        for more in ((), ("--json",)):
            code, output, _ = asked(transcript_file, held, *more)
            assert code == 0
            assert not STEERING.search(output)


def test_a_model_is_not_asked_where_the_session_fits(transcript_file: Path):
    with provider(answer(GOOD)) as held:
        code, output, _ = asked(transcript_file, held, "--target", "900000", "--window", "1000000")
    assert code == 0
    assert "It fits already" in output
    assert held.requests == []


def test_who_waits_at_a_terminal_sees_that_a_model_is_asked(transcript_file: Path):
    import pty  # noqa: PLC0415 - there are systems without

    ours, theirs = pty.openpty()
    with provider(answer(GOOD)) as held:
        model = ("--summarizer", "shop:writer", "--base-url", f"{held.url}/v1")
        command = [str(FOLDMARK), "compact", str(transcript_file), *SMALL, *model]
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment(), check=True
        )
    os.close(theirs)
    seen = os.read(ours, 65536)
    os.close(ours)
    assert b"asking shop:writer" in seen


def test_an_interrupt_while_a_model_is_asked_ends_at_once_and_writes_nothing(
    transcript_file: Path, tmp_path: Path
):
    out = tmp_path / "messages.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        model = ("--summarizer", "shop:writer", "--base-url", url, "--output", str(out))
        with subprocess.Popen(
            [str(FOLDMARK), "compact", str(transcript_file), *SMALL, *model],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as program:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                program.send_signal(signal.SIGINT)
                output, errors = program.communicate(timeout=60)
    assert (program.returncode, output, errors) == (130, b"", b"")
    assert not out.exists()
    assert list(tmp_path.iterdir()) == [transcript_file]
