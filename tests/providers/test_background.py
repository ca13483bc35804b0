"""The background loop ends with its process and prints nothing."""

import subprocess
import sys

STUBBORN = """
import asyncio, os, signal, threading
from foldmark.providers.background import run_sync

async def stubborn():
    try:
        await asyncio.sleep(60)
    finally:
        for _ in range(100):
            await asyncio.sleep(0.001)

async def outer():
    inner = asyncio.create_task(stubborn())
    try:
        await asyncio.wait((inner,))
    finally:
        inner.cancel()
        await asyncio.wait((inner,))

threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    run_sync(outer())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_slow_cleanup_is_waited_for_at_exit() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STUBBORN], capture_output=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"interrupted\n", b"")
