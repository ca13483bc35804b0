"""A server of a model on this machine, as a process of its own.

`python local_server.py WEIGHTS WINDOW` reads a key from its input, prints its address and ends
when its input does, so that it never outlives who started it. It knows nothing of Foldmark.
"""

import sys
from importlib import import_module
from typing import Any


def main(weights: str, window: str) -> None:
    """Serve until the input ends."""
    xllamacpp: Any = import_module("xllamacpp")  # it tells nothing of its types
    settings = xllamacpp.CommonParams()
    settings.model.path = weights
    settings.n_ctx = int(window)
    settings.n_parallel = 1
    settings.warmup = False
    # One thread: two collapse where the machine is busy.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.hostnames, settings.port = ["127.0.0.1"], 0
    # The key comes by the input: arguments are for everybody on the machine to read.
    if key := sys.stdin.readline().strip():
        settings.api_keys = [key]
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)  # noqa: T201 - whoever started it reads this
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
