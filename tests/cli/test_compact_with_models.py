"""`foldmark compact` with a model that summarizes: a real HTTP server that replies like OpenAI."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldmark.summary.prompting import SECTIONS
from tests.support.cli_program import (
    STEERING,
    run_cli,
    run_program,
    sample_transcript,
    write_transcript,
)
from tests.support.provider_server import Provider, Sent, provider, stream
from tests.support.terminal import in_terminal

SMALL = ("--target", "6000")  # so small that everything is summarized, and nothing pruned
GOOD = "\n".join(f"## {name}\n- the shop order, see order_3.py" for name in SECTIONS)
HOSTILE = GOOD + "\n\x1b]0;title\x07\x9b2J\u202e[bold]all is well[/bold]"


@pytest.fixture
def file(tmp_path: Path) -> Path:
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


def with_model(path: Path, url: str, *more: str) -> tuple[object, ...]:
    """The arguments that compact a file with the model at an address."""
    return ("compact", path, *SMALL, "--summarizer", "shop:writer", "--base-url", url, *more)


def compact(path: Path, server: Provider, *more: str) -> tuple[int, str, str]:
    return run_cli(*with_model(path, f"{server.url}/v1", *more))


def test_a_model_writes_the_summary_and_a_digest_follows_it(file: Path):
    with provider(answer(GOOD)) as server:
        code, output, errors = compact(file, server, "--json", "--instructions", "the ticket gates")
    assert (code, errors) == (0, "")
    report = json.loads(output)
    assert report["summary"].startswith(GOOD)
    assert (report["how"], report["calls"], report["flaws"]) == ("serial", 1, [])
    assert report["summarizer"] == "shop:writer"
    assert (report["spent"]["input"], report["spent"]["output"]) == (900, 70)
    shares = report["tokens"]["after"]
    assert shares["summary"] > 0 < shares["digest"]
    assert report["after"]["tokens"] <= report["usable"]
    assert "the ticket gates" in json.dumps(server.requests[0]["messages"])


def test_the_report_names_the_summarizer_and_its_usage(file: Path):
    with provider(answer("I would rather not."), answer(GOOD)) as server:
        code, output, errors = compact(file, server)
    assert (code, errors) == (0, "")
    result = " ".join(output.split())
    for text in (
        "shop:writer, from the session as text",
        "2 calls, 1,800 tokens in, 140 tokens out",
    ):
        assert text in result
    assert "problem it lacks the headings" in result


def test_if_the_model_fails_the_digest_is_used_and_the_report_says_so(file: Path, tmp_path: Path):
    out = tmp_path / "messages.json"
    with provider(Sent(401, '{"error": {"message": "wrong \\u001b[2J key"}}')) as server:
        code, output, errors = compact(file, server, "--output", str(out))
    assert (code, errors) == (0, "")
    assert "wrote no usable summary" in " ".join(output.split())
    assert "wrong" in output
    assert not STEERING.search(output)
    assert json.loads(out.read_bytes())


def test_text_of_a_model_never_controls_the_terminal(file: Path):
    with provider(answer(HOSTILE)) as server:
        for more in ((), ("--json",)):
            code, output, _ = compact(file, server, *more)
            assert code == 0
            assert not STEERING.search(output)


def test_no_model_is_asked_if_the_session_fits(file: Path):
    with provider(answer(GOOD)) as server:
        code, output, _ = compact(file, server, "--target", "900000", "--window", "1000000")
    assert code == 0
    assert "It fits already" in output
    assert server.requests == []


def test_a_terminal_shows_that_a_model_is_asked(file: Path):
    with provider(answer(GOOD)) as server:
        arguments = with_model(file, f"{server.url}/v1")
        assert "asking shop:writer" in in_terminal(*arguments, is_error_shown=True)


def test_an_interrupt_while_a_model_is_asked_ends_at_once_and_writes_nothing(
    file: Path, tmp_path: Path
):
    out = tmp_path / "messages.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        arguments = with_model(file, url, "--output", str(out))
        with run_program(*arguments) as program:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                program.send_signal(signal.SIGINT)
                output, errors = program.communicate(timeout=60)
    assert (program.returncode, output, errors) == (130, b"", b"")
    assert not out.exists()
    assert list(tmp_path.iterdir()) == [file]
