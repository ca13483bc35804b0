"""Serve a local model in a process of its own.

`python local_server.py WEIGHTS WINDOW` reads a key from stdin, prints its address, and exits when
stdin is closed, so that it never outlives its parent. It does not import Foldmark.
"""

import sys
from importlib import import_module
from typing import Any


def main(weights: str, window: str) -> None:
    """Serve until stdin is closed."""
    xllamacpp: Any = import_module("xllamacpp")  # it has no type hints
    settings = xllamacpp.CommonParams()
    settings.model.path = weights
    settings.n_ctx = int(window)
    settings.n_parallel = 1
    settings.warmup = False
    # One thread: two are very slow on a busy machine.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.hostnames, settings.port = ["127.0.0.1"], 0
    # The key comes through stdin: every user of the machine can read arguments.
    if key := sys.stdin.readline().strip():
        settings.api_keys = [key]
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)  # noqa: T201 - read by the parent process
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
