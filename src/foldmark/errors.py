"""Every error that Foldmark raises on purpose.

FoldmarkError
├── BadInput          a file or value that cannot be read; names file, place and cause
├── UnknownModel      no limits are known for this model; says what to set
├── BadPolicy         a policy or setting that makes no sense; names the nearest valid one
├── WindowTooSmall    the part that cannot be folded is larger than the window
├── CompactionStopped folding would not help, or not for long; says what fills the window
├── ModelFailed       a model gave no answer, however often it was asked; says why
├── Aborted           somebody asked to stop while a model was being waited for
└── StoreError        the store cannot be used as it is; says what to do
    ├── NoStore       there is no store at this place, where one is to be read
    ├── SessionBusy   another process writes to this session; names it
    ├── SessionOvertaken  another process took this session over while ours stood still
    └── NoSession     there is no session of this name; names the nearest

Errors carry fields, so that a program need not read the text.
"""


class FoldmarkError(Exception):
    """The base of all: catch this to catch whatever Foldmark raises on purpose."""


class BadInput(FoldmarkError):
    """Input that cannot be read, with its place and what is wrong with it."""

    def __init__(self, cause: str, *, source: str | None = None, place: str | None = None) -> None:
        self.cause = cause
        self.source = source
        self.place = place
        super().__init__(": ".join(part for part in (source, place, cause) if part))


class UnknownModel(FoldmarkError):
    """A model without known limits; a silent default would overflow or waste its window."""

    def __init__(self, model: str, nearest: tuple[str, ...] = ()) -> None:
        self.model = model
        self.nearest = nearest
        hint = f" Did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(
            f"no limits are known for the model {model!r}.{hint} "
            "Give its window: window=… in Python (Limit(context=…) in the core), "
            "--window N on the command line."
        )


class BadPolicy(FoldmarkError):
    """A policy that does not exist, or whose figures contradict each other."""


class WindowTooSmall(FoldmarkError):
    """What must be shown in any case is larger than the window."""

    def __init__(self, *, usable: int, fixed: int, largest: str) -> None:
        self.usable = usable
        self.fixed = fixed
        self.largest = largest
        super().__init__(
            f"the window has {usable} usable tokens, but {fixed} must be shown in any case; "
            f"the largest of it is {largest}. Use a model with a larger window, or shorten that."
        )


class Aborted(FoldmarkError):
    """A wait for a model that somebody asked to end."""

    def __init__(self) -> None:
        super().__init__("stopped while waiting for a model, as was asked; nothing was changed")


class ModelFailed(FoldmarkError):
    """A model that did not answer. What was done until then is in the session."""

    def __init__(self, model: str, cause: str, message: str) -> None:
        self.model = model
        self.cause = cause  # overflow, throttled, timeout, failed or unavailable
        self.message = message
        super().__init__(f"{model} did not answer: {message}")


class CompactionStopped(FoldmarkError):
    """A compaction that is not made, as it would free nothing, or be needed again at once."""

    def __init__(self, reason: str, *, usable: int, fills: tuple[tuple[str, int], ...]) -> None:
        self.reason = reason
        self.usable = usable
        self.fills = fills  # what stands in the window, and its tokens; the largest first
        held = ", ".join(f"{what} ({tokens} tokens)" for what, tokens in fills[:3])
        room = f" of {usable} usable tokens" if usable else ""
        advice = "Shorten the largest of it, use a model with a larger window, or compact by hand."
        told = f" What fills the window{room}: {held}. {advice}" if held else ""
        super().__init__(f"{reason}.{told}")


class StoreError(FoldmarkError):
    """A store that cannot be read or written; nothing in it was changed."""

    def __init__(self, store: str, cause: str) -> None:
        self.store = store
        self.cause = cause
        super().__init__(f"{store}: {cause}")


class NoStore(StoreError):
    """A store that is not there, where none was to be made."""

    def __init__(self, store: str) -> None:
        super().__init__(store, "there is no store here")


class SessionBusy(StoreError):
    """A session that another process is writing to."""

    def __init__(self, store: str, session: str, *, holder: str, seconds: float) -> None:
        self.session = session
        self.holder = holder
        self.seconds = seconds  # until its lease ends, if it does not renew it
        super().__init__(
            store,
            f"session {session} is being written by {holder}; "
            f"wait for it to end, or {max(seconds, 0):.0f} s after it has died",
        )


class SessionOvertaken(StoreError):
    """A session that another process took over while this one was stopped; nothing was written.

    The next call works again, on the session as the other process left it: look at it first.
    """

    def __init__(self, store: str, session: str, *, holder: str = "") -> None:
        self.session = session
        self.holder = holder  # who writes to it now; "" where nobody does any more
        by = holder or "another process, which has ended since"
        super().__init__(
            store,
            f"session {session} was taken over by {by} while this process stood still; "
            "nothing was written. Look at the session again, then go on",
        )


class NoSession(StoreError):
    """A session that is not in the store."""

    def __init__(self, store: str, session: str, nearest: tuple[str, ...] = ()) -> None:
        self.session = session
        self.nearest = nearest
        hint = f"; did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(store, f"there is no session {session!r}{hint}")
