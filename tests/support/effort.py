"""How hard a test run tries: quick (`make test`), full (`make test-all`) or soak (`make soak`).

FOLDMARK_EFFORT chooses one of the three; FOLDMARK_EXAMPLES and FOLDMARK_KILLS set single counts.
"""

import os

EFFORTS = ("quick", "full", "soak")
EFFORT = os.environ.get("FOLDMARK_EFFORT", EFFORTS[0])
if EFFORT not in EFFORTS:
    raise SystemExit(f"FOLDMARK_EFFORT is {EFFORT!r}; use one of: {', '.join(EFFORTS)}")


def examples(quick: int, full: int) -> int:
    """How many examples a property test tries; `soak` tries twenty times the full number."""
    return _count("FOLDMARK_EXAMPLES", quick, full)


def kills(quick: int, full: int) -> int:
    """How many processes a test kills."""
    return _count("FOLDMARK_KILLS", quick, full)


def _count(variable: str, quick: int, full: int) -> int:
    if variable in os.environ:
        return int(os.environ[variable])
    return {"quick": quick, "full": full, "soak": 20 * full}[EFFORT]
