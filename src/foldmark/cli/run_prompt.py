"""The prompt of a run: what the user types or pastes, which is one message however many lines.

What a line means is not known here.
"""

import select
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

PROMPT = "› "  # noqa: RUF001 - no mistaken >, but a sign of our own
_MORE = "… "
_MOMENT = 0.05  # seconds in which the next line of a paste is there
_LEAVING = "Ctrl-D or /exit leaves"


class Prompt:
    """Reads what the user says."""

    def __init__(self) -> None:
        """Let lines be edited, and a paste be taken as a whole where that is possible."""
        self._has_told = False
        with suppress(ImportError, AttributeError):
            editing: Any = import_module("readline")
            if "libedit" not in (editing.__doc__ or ""):
                editing.parse_and_bind("set enable-bracketed-paste on")

    def typed(self, stands_alone: Callable[[str], bool]) -> str | None:
        """What the user says; None where they leave. What stands alone is not waited after."""
        try:
            lines = [input(PROMPT)]
            while lines[0].strip() and not stands_alone(lines[0]) and _is_more_waiting():
                lines += _next_line()
        except EOFError:
            sys.stdout.write("\n")
            return None
        except SystemExit:  # by a signal
            sys.stdout.write("\n")
            raise
        except KeyboardInterrupt:
            self._tell_how_to_leave()
            return ""
        return "\n".join(lines).strip()

    def _tell_how_to_leave(self) -> None:
        sys.stdout.write("\n" if self._has_told else f"\n{_LEAVING}\n")
        self._has_told = True


def _next_line() -> list[str]:
    try:
        return [input(_MORE)]
    except EOFError:
        return []


def _is_more_waiting() -> bool:
    with suppress(OSError, ValueError):
        return bool(select.select([sys.stdin], [], [], _MOMENT)[0])
    return False
