"""Every error that Foldmark raises on purpose.

FoldmarkError
├── BadInput          a file or value cannot be read; names the file, the location and the cause
├── UnknownModel      the limits of a model are unknown; says what to set
├── BadPolicy         a policy or setting is invalid; names the nearest valid one
├── WindowTooSmall    the part that cannot be compacted is larger than the window
├── CompactionStopped a compaction would free nothing, or not for long; says what fills the window
├── ModelFailed       a model gave no answer after all retries; says why
├── Aborted           the caller stopped waiting for a model
└── StoreError        the store cannot be used in its current state; says what to do
    ├── NoStore       there is no store at this path, and the call does not create one
    ├── SessionBusy   another process writes to this session; names that process
    ├── SessionOvertaken  another process took this session over while ours was suspended
    └── NoSession     no session has this name; names the nearest

Errors carry their facts as fields, so that programs need not parse the text.
"""


class FoldmarkError(Exception):
    """Base class of every error that Foldmark raises on purpose."""


class BadInput(FoldmarkError):
    """Input that cannot be read: the cause, and the file and location if they are known."""

    def __init__(
        self, cause: str, *, source: str | None = None, location: str | None = None
    ) -> None:
        self.cause = cause
        self.source = source
        self.location = location
        super().__init__(": ".join(part for part in (source, location, cause) if part))


class UnknownModel(FoldmarkError):
    """A model with unknown limits; a silent default would overflow or waste its window."""

    def __init__(self, model: str, nearest: tuple[str, ...] = ()) -> None:
        self.model = model
        self.nearest = nearest
        hint = f" Did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(
            f"no limits are known for the model {model!r}.{hint} "
            "Set its window: window=… in Python (Limit(context=…) in the core), "
            "--window N on the command line."
        )


class BadPolicy(FoldmarkError):
    """A policy that does not exist, or whose values contradict each other."""


class WindowTooSmall(FoldmarkError):
    """The content that no compaction can remove is larger than the window."""

    def __init__(self, *, usable: int, fixed: int, largest: str) -> None:
        self.usable = usable
        self.fixed = fixed
        self.largest = largest
        super().__init__(
            f"the window has {usable} usable tokens, but {fixed} cannot be compacted; the largest "
            f"part of them is {largest}. Use a model with a larger window, or shorten that part."
        )


class Aborted(FoldmarkError):
    """The caller stopped waiting for a model."""

    def __init__(self) -> None:
        super().__init__("stopped on request while waiting for a model; nothing was changed")


class ModelFailed(FoldmarkError):
    """A model did not answer. The work done before that is in the session."""

    def __init__(self, model: str, cause: str, message: str) -> None:
        self.model = model
        self.cause = cause  # overflow, throttled, timeout, failed or unavailable
        self.message = message
        super().__init__(f"{model} did not answer: {message}")


class CompactionStopped(FoldmarkError):
    """A compaction was not made: it would free nothing, or would be needed again at once."""

    def __init__(self, reason: str, *, usable: int, fills: tuple[tuple[str, int], ...]) -> None:
        self.reason = reason
        self.usable = usable
        self.fills = fills  # descriptions of the window's contents with their tokens, largest first
        largest = ", ".join(f"{what} ({tokens} tokens)" for what, tokens in fills[:3])
        size = f" of {usable} usable tokens" if usable else ""
        advice = "Shorten the largest of these, use a larger window, or compact by hand."
        contents = f" What fills the window{size}: {largest}. {advice}" if largest else ""
        super().__init__(f"{reason}.{contents}")


class StoreError(FoldmarkError):
    """A store cannot be read or written; nothing in it was changed."""

    def __init__(self, store: str, cause: str) -> None:
        self.store = store
        self.cause = cause
        super().__init__(f"{store}: {cause}")


class NoStore(StoreError):
    """There is no store at this path, and the call does not create one."""

    def __init__(self, store: str) -> None:
        super().__init__(store, "there is no store here")


class SessionBusy(StoreError):
    """Another process is writing to the session."""

    def __init__(self, store: str, session: str, *, holder: str, seconds: float) -> None:
        self.session = session
        self.holder = holder
        self.seconds = seconds  # until its lease ends, unless it is renewed
        super().__init__(
            store,
            f"session {session} is being written by {holder}; wait until it is done "
            f"(if it has crashed, its lease ends in {max(seconds, 0):.0f} s)",
        )


class SessionOvertaken(StoreError):
    """Another process took the session over while this one was suspended; nothing was written.

    The next call works again, on the session as the other process left it: read it first.
    """

    def __init__(self, store: str, session: str, *, holder: str = "") -> None:
        self.session = session
        self.holder = holder  # the current writer, or "" if there is none any more
        by = holder or "another process, which has ended since"
        super().__init__(
            store,
            f"session {session} was taken over by {by} while this process was suspended; "
            "nothing was written. Read the session again, then continue",
        )


class NoSession(StoreError):
    """The store has no session with this name."""

    def __init__(self, store: str, session: str, nearest: tuple[str, ...] = ()) -> None:
        self.session = session
        self.nearest = nearest
        hint = f"; did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(store, f"there is no session {session!r}{hint}")
