"""Hooks may change what happens, at four named points, and cannot break it.

A hook is any object with one or more of these methods, plain or async. An answer of None changes
nothing:

    before_prune(Prune)                names the parts to keep, by their ordinals or handles
    before_compact(CompactionRequest)  vetoes the compaction or changes it, by a CompactionChange
    before_continue(session id)        vetoes with False that a session goes on by itself
    on_view(View)                      gives another view in place of the one for the model

Each call runs in a thread of its own and within a time limit; a hook that raises, hangs or answers
nonsense is reported and passed over, as if it were not there. What is done with the answers is not
known here.
"""

import asyncio
import inspect
import logging
import reprlib
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from queue import Empty, SimpleQueue
from traceback import format_exception_only
from typing import Any, TypeVar, cast

from msgspec import ValidationError, convert
from msgspec.structs import asdict, replace

from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest
from foldmark.errors import BadInput, BadPolicy
from foldmark.log.log import ordinal_of
from foldmark.log.view import View
from foldmark.model.values import Frozen

GROUP = "foldmark.hooks"  # of entry points
MAX_PROTECTED = 1_000_000  # parts that one hook may name: what it answers could be without end

T = TypeVar("T")
Report = Callable[[str, str, str], None]  # takes the names of hook and point, and the problem

_log = logging.getLogger("foldmark")


class CompactionChange(Frozen):
    """What a hook wants to be different in a compaction."""

    veto: str | None = None  # the reason for which it is not to be made
    context: tuple[str, ...] = ()  # lines to add
    prompt: str | None = None  # in place of the one that there is


class HookRunner:
    """Asks hooks in their order; where none has a point's method, nothing is done there."""

    def __init__(
        self, hooks: Sequence[object] = (), *, seconds: float = 5.0, report: Report
    ) -> None:
        """Take the hooks, how long each may take for an answer, and who is told of problems."""
        self._seconds = seconds
        self._report = report
        runners = [_Hook(hook) for hook in hooks]
        self._at = {point: [hook for hook in runners if hook.has(point)] for point in POINTS}

    def kept(self, prune: Prune) -> set[int]:
        """The ordinals of the parts that hooks want to be kept, whether or not they would go."""
        ordinals: set[int] = set()
        for hook in self._at["before_prune"]:
            ordinals |= self._ask(hook, "before_prune", prune) or set()
        return ordinals

    def compaction(self, request: CompactionRequest) -> tuple[CompactionRequest, str | None]:
        """The compaction with the changes of all hooks, and the reason of the first veto."""
        for hook in self._at["before_compact"]:
            change: CompactionChange | None = self._ask(hook, "before_compact", request)
            if change is None:
                continue
            if change.veto is not None:
                return request, change.veto or f"{hook.name} gives no reason"
            prompt = request.prompt if change.prompt is None else change.prompt
            request = replace(request, context=(*request.context, *change.context), prompt=prompt)
        return request, None

    def may_continue(self, session: str) -> bool:
        """Whether no hook vetoes that a session goes on by itself."""
        point = "before_continue"
        return all(self._ask(hook, point, session) is not False for hook in self._at[point])

    def view(self, view: View) -> View:
        """The view as the hooks leave it."""
        for hook in self._at["on_view"]:
            view = self._ask(hook, "on_view", view) or view
        return view

    def _ask(self, hook: "_Hook", point: str, value: object) -> Any:
        """What a hook answers; None where that is nothing, or a problem, which is reported."""
        answer, problem = hook.ask(point, value, self._seconds)
        if problem is not None:
            self._report(hook.name, point, problem)
        return answer


class _Hook:
    """A hook, and its threads that did not come back in time."""

    def __init__(self, hook: object) -> None:
        self._hook = hook
        self._hung: list[threading.Thread] = []
        self.name: str = getattr(hook, "__name__", type(hook).__name__)

    def has(self, point: str) -> bool:
        """Whether it has a method for this point."""
        return getattr(self._hook, point, None) is not None

    def ask(self, point: str, value: object, seconds: float) -> tuple[Any, str | None]:
        """The hook's answer as its point reads it, and what went wrong."""
        self._hung = [thread for thread in self._hung if thread.is_alive()]
        if self._hung:
            return None, "still hangs in an earlier call"
        outcomes: SimpleQueue[tuple[Any, str | None]] = SimpleQueue()
        context = copy_context()
        # A late outcome goes into a queue that nobody reads any more.
        thread = threading.Thread(
            target=lambda: outcomes.put(context.run(self._outcome, point, value, seconds)),
            name=f"foldmark-hook-{self.name}",
            daemon=True,
        )
        thread.start()
        try:
            return outcomes.get(timeout=seconds)
        except Empty:
            self._hung.append(thread)
            return None, _too_slow(seconds)

    def _outcome(self, point: str, value: object, seconds: float) -> tuple[Any, str | None]:
        try:
            answer = getattr(self._hook, point)(value)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer, seconds))
            # Read here too: an answer may be a generator, which is the hook's own code.
            return None if answer is None else POINTS[point](answer), None
        except BadInput as error:
            return None, str(error)
        except BaseException as error:  # noqa: BLE001 - a hook that exits is to end its thread alone
            _log.debug("a hook failed, which is reported", exc_info=True)
            return None, "".join(format_exception_only(error)).strip()


def check_hooks(hooks: Iterable[object]) -> tuple[object, ...]:
    """These hooks; BadPolicy for one that would never be asked: its methods have other names."""
    objects = tuple(hooks)
    for hook in objects:
        name = _Hook(hook).name
        points = [point for point in POINTS if callable(getattr(hook, point, None))]
        if not points:
            raise BadPolicy(f"the hook {name} has none of the methods {', '.join(POINTS)}")
        if isinstance(hook, type) and inspect.isfunction(inspect.getattr_static(hook, points[0])):
            raise BadPolicy(f"the hook {name} is a class; give an object of it")
    return objects


def installed_hooks() -> list[object]:
    """The hooks that installed packages offer, in the order of their names."""
    try:
        entries = _entries(entry_points, tuple(sys.path))
    except Exception:  # noqa: BLE001 - a package may be installed by halves
        _log.exception("installed packages cannot be searched for hooks")
        return []
    loaded = (_loaded(entry) for entry in entries)
    return [hook for hook in loaded if hook is not None]


@lru_cache(maxsize=4)
def _entries(search: Callable[..., EntryPoints], _path: tuple[str, ...]) -> list[EntryPoint]:
    """All of them; to look through what is installed takes longer than to open a session."""
    return sorted(search(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _loaded(entry: EntryPoint) -> object | None:
    try:
        target: object = entry.load()
        return cast("object", target()) if isinstance(target, type) else target
    except (Exception, SystemExit):  # noqa: BLE001 - it is others' code
        _log.exception("the hook %s (%s) cannot be loaded", entry.name, entry.value)
        return None


async def _awaited(answer: Awaitable[T], seconds: float) -> T:
    """An async answer, cancelled at the limit, so that its thread can end."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await answer
    except TimeoutError:
        if limit.expired():
            raise BadInput(_too_slow(seconds)) from None
        raise


def _too_slow(seconds: float) -> str:
    return f"took longer than {seconds:g} s"


def _ordinals(answer: object) -> set[int]:
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise BadInput(f"answered {reprlib.repr(answer)}, not a list of ordinals or handles")
    ordinals: set[int] = set()
    for count, name in enumerate(cast("Iterable[object]", answer)):
        ordinal = ordinal_of(name) if isinstance(name, str) else name
        if not isinstance(ordinal, int) or isinstance(ordinal, bool):
            raise BadInput(f"answered {reprlib.repr(name)}, which is no ordinal and no handle")
        if count >= MAX_PROTECTED:
            raise BadInput(f"answered more than {MAX_PROTECTED:,} parts")
        ordinals.add(ordinal)
    return ordinals


def _of(answer: object, kind: type[T], expected: str) -> T:
    if not isinstance(answer, kind):
        raise BadInput(f"answered {reprlib.repr(answer)}, not {expected}")
    return answer


def _struct(answer: object, kind: type[T]) -> T:
    value: Any = _of(answer, kind, f"a {kind.__name__}")
    try:  # fields are not checked when it is made
        is_sound = convert(asdict(value), kind) == value
    except ValidationError as error:
        raise BadInput(f"answered a {kind.__name__} with wrong fields: {error}") from None
    if not is_sound:
        raise BadInput(f"answered a {kind.__name__} with wrong fields")
    return value


# The names of the points, and how an answer at each is read.
POINTS: dict[str, Callable[[object], object]] = {
    "before_prune": _ordinals,
    "before_compact": lambda answer: _struct(answer, CompactionChange),
    "before_continue": lambda answer: _of(answer, bool, "True, False or None"),
    "on_view": lambda answer: _struct(answer, View),
}
