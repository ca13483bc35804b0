"""A model on this machine: where its weights are found, how its server begins and ends."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from foldmark.errors import BadPolicy
from foldmark.providers import local
from foldmark.providers.local import WEIGHTS, find_weights, is_local, local_model, start_server
from tests.support.local_model import weights


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is set and nothing is kept."""
    monkeypatch.delenv(WEIGHTS, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(local, "_PACKAGE", "no_such_package")
    return tmp_path


def made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def test_a_local_model_is_named_local_or_by_its_file() -> None:
    assert is_local("local")
    assert is_local("local:mill.gguf")
    assert not is_local("localhost:mill")
    assert not is_local("openai:local")


def test_weights_are_those_named_then_those_set_then_those_kept_then_a_packages(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    package = made(elsewhere / "site" / "mill_weights" / "deep" / "small.gguf")
    made(elsewhere / "site" / "mill_weights" / "__init__.py").write_text("raise OSError('loaded')")
    monkeypatch.setattr(sys, "path", [str(elsewhere / "site"), *sys.path])
    monkeypatch.setattr(local, "_PACKAGE", "mill_weights")
    assert find_weights() == package
    kept = made(elsewhere / "cache" / "foldmark" / "kept.gguf")
    assert find_weights() == kept
    own = made(elsewhere / "own.gguf")
    monkeypatch.setenv(WEIGHTS, str(own))
    assert find_weights() == own
    named = made(elsewhere / "named.GGUF")
    assert find_weights(str(named)) == named


def test_without_weights_it_is_said_what_to_set(elsewhere: Path) -> None:
    with pytest.raises(BadPolicy, match=f"set {WEIGHTS} to a .gguf file"):
        find_weights()
    with pytest.raises(BadPolicy, match=r"mill\.gguf"), local_model("local:mill.gguf"):
        pass


@pytest.mark.parametrize("name", ["gone.gguf", "notes.txt", "."])
def test_what_is_set_and_is_no_file_of_weights_is_told_by_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    made(elsewhere / "notes.txt")
    monkeypatch.setenv(WEIGHTS, str(elsewhere / name))
    with pytest.raises(BadPolicy, match=f"^{WEIGHTS}=.* is not an existing .gguf file") as error:
        find_weights()
    assert "\n" not in str(error.value)


def test_without_its_library_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    def nowhere(name: str) -> None:
        assert name == "xllamacpp"

    monkeypatch.setattr(local, "find_spec", nowhere)
    name = f"local:{made(elsewhere / 'own.gguf')}"
    with pytest.raises(BadPolicy, match="pip install xllamacpp"), local_model(name):
        pass


def test_weights_that_are_broken_are_told_by_their_name(elsewhere: Path) -> None:
    pytest.importorskip("xllamacpp")
    broken = made(elsewhere / "broken.gguf")
    with pytest.raises(BadPolicy, match=r"broken\.gguf"), local_model(f"local:{broken}"):
        pass


# --- the server -----------------------------------------------------------------------------------


def status(address: str, key: str) -> int:
    asked = urllib.request.Request(  # noqa: S310 - an address of ours
        f"{address}/chat/completions",
        b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}',
        {"content-type": "application/json", "authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - an address of ours
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_server_answers_on_this_machine_alone_and_to_its_key_alone() -> None:
    pytest.importorskip("xllamacpp")
    with start_server(weights(), 256, "mill-key") as address:
        assert address.startswith("http://127.0.0.1:")
        assert status(address, "mill-key") == 200
        assert status(address, "other-key") == 401
    with pytest.raises(OSError, match="refused"):
        status(address, "mill-key")


HOLDER = """
import sys, time
from pathlib import Path
from foldmark.providers import local
with local.start_server(Path(sys.argv[1]), 256, "k") as address:
    print(address, flush=True)
    time.sleep(600)
"""


def test_a_server_ends_when_who_started_it_is_killed(elsewhere: Path) -> None:
    pytest.importorskip("xllamacpp")
    # What lies in the working folder is not imported.
    made(elsewhere / "xllamacpp.py").write_text("raise SystemExit('taken over')")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(weights())],
        stdout=subprocess.PIPE,
        text=True,
        cwd=elsewhere,
    ) as holder:
        assert holder.stdout is not None
        address = holder.stdout.readline().strip()
        assert status(address, "k") == 200
        holder.kill()
    assert any(is_gone(address) for _ in range(400))


def is_gone(address: str) -> bool:
    """Whether nobody listens there any more; else it is given a moment."""
    home = urlsplit(address)
    try:
        # To ask it something would make it wait for us.
        socket.create_connection((home.hostname or "", home.port or 0), 5).close()
    except OSError:
        return True
    time.sleep(0.05)
    return False
