"""Leases: one writer per session, for as long as it lives.

A lease expires unless its holder renews it. If the holder was a process of this machine that has
died, the lease is free at once; whether a process on another machine lives cannot be checked.
"""

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex

from foldmark.errors import NoSession, SessionBusy, SessionOvertaken

from .engine import Engine


@cache
def _machine() -> str:
    """Where process ids are unique: host name, boot id and process namespace."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8])
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]"))
    return "-".join(parts)


def new_holder() -> str:
    """A unique holder name: machine, process id and a random token."""
    return f"{_machine()}/{os.getpid()}/{token_hex(4)}"


def holder_label(holder: str) -> str:
    """A holder for display."""
    machine, _, process = holder.partition("/")
    return f"process {process.partition('/')[0]} on {machine.partition('-')[0]}"


def has_died(holder: str) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    machine, _, process = holder.rpartition("/")[0].rpartition("/")
    if machine != _machine() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(process)


def _is_zombie(process: str) -> bool:
    """Whether a process has ended and only waits to be reaped by its parent."""
    with suppress(OSError):
        status = Path(f"/proc/{process}/stat").read_text(errors="replace")
        return status.rpartition(")")[2].split()[:1] == ["Z"]
    return False


def acquire(engine: Engine, session: int, holder: str, seconds: float) -> bool:
    """Try to acquire a session's lease, or renew our own; return whether it worked."""
    free = f"holder IS NULL OR holder = ? OR expires < {engine.now}"
    if _set_holder(engine, session, holder, seconds, free, holder):
        return True
    rows = engine.read("SELECT holder FROM sessions WHERE key = ?", (session,))
    if not rows:
        raise NoSession(engine.name, f"key {session}")
    other = rows[0][0]
    if other is None or not has_died(other):
        return False
    return _set_holder(engine, session, holder, seconds, "holder = ?", other)


def _set_holder(
    engine: Engine, session: int, holder: str, seconds: float, where: str, other: str
) -> bool:
    changed = engine.run(
        f"UPDATE sessions SET holder = ?, expires = {engine.now} + ? "  # noqa: S608 - constants
        f"WHERE key = ? AND ({where})",
        (holder, int(seconds * 1000), session, other),
    )
    return changed == 1


def renew(engine: Engine, session: int, holder: str, seconds: float) -> bool:
    """Renew a lease; return False if it was released or another process has it."""
    return _set_holder(engine, session, holder, seconds, "holder = ?", holder)


def release(engine: Engine, session: int, holder: str) -> None:
    """Release a lease."""
    engine.run(
        "UPDATE sessions SET holder = NULL, expires = NULL WHERE key = ? AND holder = ?",
        (session, holder),
    )


def busy_error(engine: Engine, session: int, name: str) -> SessionBusy:
    """The error for a session held by another process, which it names."""
    rows = engine.read(
        f"SELECT holder, expires - {engine.now} FROM sessions WHERE key = ?",  # noqa: S608
        (session,),
    )
    holder, remaining = rows[0] if rows else (None, None)
    return SessionBusy(
        engine.name,
        name,
        holder=holder_label(holder) if holder else "a process that just ended",
        seconds=(remaining or 0) / 1000,
    )


def overtaken_error(engine: Engine, session: int, name: str) -> SessionOvertaken:
    """The error for a lost lease; it names the current holder, if any."""
    rows = engine.read("SELECT holder FROM sessions WHERE key = ?", (session,))
    holder = rows[0][0] if rows else None
    return SessionOvertaken(engine.name, name, holder=holder_label(holder) if holder else "")
