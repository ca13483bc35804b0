"""The command line: inspect and compact transcripts, and work with sessions in a store.

`main` is the entry point. It imports typer and rich late, because they come with an extra.
"""

import sys

_EXTRA = frozenset({"typer", "rich"})
_NEEDS = "foldmark: the command line is not installed; run: pip install 'foldmark[cli]'\n"


def main() -> None:
    """Run the command that the arguments name and exit with its code."""
    try:
        from .app import main as run  # noqa: PLC0415 - typer and rich may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(_NEEDS)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
