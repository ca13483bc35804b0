"""Local models: where their weights are found, and how their server starts and stops."""

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
    """A machine without configured or cached weights."""
    monkeypatch.delenv(WEIGHTS, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(local, "_PACKAGE", "no_such_package")
    return tmp_path


def weights_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def test_a_local_model_is_named_local_or_by_its_file() -> None:
    assert is_local("local")
    assert is_local("local:small.gguf")
    assert not is_local("localhost:small")
    assert not is_local("openai:local")


def test_weights_are_the_given_the_configured_the_cached_or_a_packages(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    package = weights_file(elsewhere / "site" / "small_weights" / "deep" / "small.gguf")
    weights_file(elsewhere / "site" / "small_weights" / "__init__.py").write_text(
        "raise OSError('loaded')"
    )
    monkeypatch.setattr(sys, "path", [str(elsewhere / "site"), *sys.path])
    monkeypatch.setattr(local, "_PACKAGE", "small_weights")
    assert find_weights() == package
    cached = weights_file(elsewhere / "cache" / "foldmark" / "cached.gguf")
    assert find_weights() == cached
    own = weights_file(elsewhere / "own.gguf")
    monkeypatch.setenv(WEIGHTS, str(own))
    assert find_weights() == own
    given = weights_file(elsewhere / "given.GGUF")
    assert find_weights(str(given)) == given


def test_missing_weights_are_reported_with_the_variable_to_set(elsewhere: Path) -> None:
    with pytest.raises(BadPolicy, match=f"set {WEIGHTS} to a .gguf file"):
        find_weights()
    with pytest.raises(BadPolicy, match=r"gone\.gguf"), local_model("local:gone.gguf"):
        pass


@pytest.mark.parametrize("name", ["gone.gguf", "notes.txt", "."])
def test_a_configured_path_without_weights_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    weights_file(elsewhere / "notes.txt")
    monkeypatch.setenv(WEIGHTS, str(elsewhere / name))
    with pytest.raises(BadPolicy, match=f"^{WEIGHTS}=.* is not an existing .gguf file") as error:
        find_weights()
    assert "\n" not in str(error.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    def nowhere(name: str) -> None:
        assert name == "xllamacpp"

    monkeypatch.setattr(local, "find_spec", nowhere)
    name = f"local:{weights_file(elsewhere / 'own.gguf')}"
    with pytest.raises(BadPolicy, match="pip install xllamacpp"), local_model(name):
        pass


def test_broken_weights_are_named(elsewhere: Path) -> None:
    pytest.importorskip("xllamacpp")
    broken = weights_file(elsewhere / "broken.gguf")
    with pytest.raises(BadPolicy, match=r"broken\.gguf"), local_model(f"local:{broken}"):
        pass


# --- the server -----------------------------------------------------------------------------------


def status(address: str, key: str) -> int:
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{address}/chat/completions",
        b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}',
        {"content-type": "application/json", "authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - our own address
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_server_listens_on_this_machine_only_and_requires_its_key() -> None:
    pytest.importorskip("xllamacpp")
    with start_server(weights(), 256, "right-key") as address:
        assert address.startswith("http://127.0.0.1:")
        assert status(address, "right-key") == 200
        assert status(address, "other-key") == 401
    with pytest.raises(OSError, match="refused"):
        status(address, "right-key")


HOLDER = """
import sys, time
from pathlib import Path
from foldmark.providers import local
with local.start_server(Path(sys.argv[1]), 256, "k") as address:
    print(address, flush=True)
    time.sleep(600)
"""


def test_a_server_ends_when_its_parent_is_killed(elsewhere: Path) -> None:
    pytest.importorskip("xllamacpp")
    # Files in the working folder are not imported.
    weights_file(elsewhere / "xllamacpp.py").write_text("raise SystemExit('taken over')")
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
    """Whether the server has closed its port; else waits a moment."""
    home = urlsplit(address)
    try:
        # A request would make it wait for us.
        socket.create_connection((home.hostname or "", home.port or 0), 5).close()
    except OSError:
        return True
    time.sleep(0.05)
    return False
