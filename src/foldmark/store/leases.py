"""Who may write to a session: one at a time, for as long as it lives.

A lease ends by itself when its holder no longer renews it. A holder on this machine that has died
is known at once: whether a process lives can be asked here, and only here.
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
    """Where process numbers mean the same: this host, this boot, this container."""
    told = [socket.gethostname()]
    with suppress(OSError):
        told.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8])
    with suppress(OSError):
        told.append(str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]"))
    return "-".join(told)


def new_holder() -> str:
    """A name for one who writes: machine, process, and a word of its own."""
    return f"{_machine()}/{os.getpid()}/{token_hex(4)}"


def shown_holder(holder: str) -> str:
    """A holder as people know it."""
    machine, _, rest = holder.partition("/")
    return f"process {rest.partition('/')[0]} on {machine.partition('-')[0]}"


def has_died(holder: str) -> bool:
    """Whether a holder is a process of this machine that is no more."""
    machine, _, rest = holder.rpartition("/")[0].rpartition("/")
    if machine != _machine() or not rest.isdigit():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(rest)


def _is_zombie(process: str) -> bool:
    """Whether a process has ended, and only waits for its parent to take note of that."""
    with suppress(OSError):
        told = Path(f"/proc/{process}/stat").read_text(errors="replace")
        return told.rpartition(")")[2].split()[:1] == ["Z"]
    return False


def take(engine: Engine, session: int, holder: str, seconds: float) -> bool:
    """Try to get a session's lease, or to renew one's own."""
    free = f"holder IS NULL OR holder = ? OR expires < {engine.now}"
    if _take(engine, session, holder, seconds, free, holder):
        return True
    rows = engine.read("SELECT holder FROM sessions WHERE key = ?", (session,))
    if not rows:
        raise NoSession(engine.name, f"number {session}")
    other = rows[0][0]
    if other is None or not has_died(other):
        return False
    return _take(engine, session, holder, seconds, "holder = ?", other)


def _take(
    engine: Engine, session: int, holder: str, seconds: float, where: str, other: str
) -> bool:
    changed = engine.run(
        f"UPDATE sessions SET holder = ?, expires = {engine.now} + ? "  # noqa: S608 - constants
        f"WHERE key = ? AND ({where})",
        (holder, int(seconds * 1000), session, other),
    )
    return changed == 1


def renew(engine: Engine, session: int, holder: str, seconds: float) -> bool:
    """Keep a lease; False where it is another's by now, or was given back."""
    return _take(engine, session, holder, seconds, "holder = ?", holder)


def release(engine: Engine, session: int, holder: str) -> None:
    """Give a lease back."""
    engine.run(
        "UPDATE sessions SET holder = NULL, expires = NULL WHERE key = ? AND holder = ?",
        (session, holder),
    )


def busy(engine: Engine, session: int, name: str) -> SessionBusy:
    """The error that names who holds a session."""
    rows = engine.read(
        f"SELECT holder, expires - {engine.now} FROM sessions WHERE key = ?",  # noqa: S608
        (session,),
    )
    holder, left = rows[0] if rows else (None, None)
    return SessionBusy(
        engine.name,
        name,
        holder=shown_holder(holder) if holder else "a process that has just ended",
        seconds=(left or 0) / 1000,
    )


def overtaken(engine: Engine, session: int, name: str) -> SessionOvertaken:
    """The error for one who no longer holds a session; it names who does, if anybody."""
    rows = engine.read("SELECT holder FROM sessions WHERE key = ?", (session,))
    holder = rows[0][0] if rows else None
    return SessionOvertaken(engine.name, name, holder=shown_holder(holder) if holder else "")
