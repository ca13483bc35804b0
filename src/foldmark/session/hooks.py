"""Hooks: user code that may change prunes, compactions and views, but cannot break a session.

A hook is any object with one or more of these methods, plain or async. Returning None changes
nothing:

    before_prune(Prune)                returns the parts to keep, by ordinal or handle
    before_compact(CompactionRequest)  returns a CompactionChange that vetoes or changes it
    before_continue(session id)        returns False to stop a session from resuming by itself
    on_view(View)                      returns the view to send instead

Each call runs in its own thread and has a time limit. A hook that raises, hangs or returns a wrong
value is reported and ignored.
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

GROUP = "foldmark.hooks"  # the entry-point group
MAX_PROTECTED = 1_000_000  # parts that one hook may name: it could return an endless generator

T = TypeVar("T")
Report = Callable[[str, str, str], None]  # called with hook name, point and problem

_log = logging.getLogger("foldmark")


class CompactionChange(Frozen):
    """A hook's changes to a compaction."""

    veto: str | None = None  # a reason not to compact
    context: tuple[str, ...] = ()  # lines to add to the summary prompt
    prompt: str | None = None  # replaces the summary prompt


class HookRunner:
    """Calls hooks, in their order, at each point."""

    def __init__(
        self, hooks: Sequence[object] = (), *, seconds: float = 5.0, report: Report
    ) -> None:
        """Allow each call so many seconds, and pass problems to `report`."""
        self._seconds = seconds
        self._report = report
        runners = [_Hook(hook) for hook in hooks]
        self._at = {point: [hook for hook in runners if hook.has(point)] for point in POINTS}

    def protected_ordinals(self, prune: Prune) -> set[int]:
        """The ordinals of the parts that hooks want to keep."""
        ordinals: set[int] = set()
        for hook in self._at["before_prune"]:
            ordinals |= self._ask(hook, "before_prune", prune) or set()
        return ordinals

    def change_request(self, request: CompactionRequest) -> tuple[CompactionRequest, str | None]:
        """The request as changed by all hooks, and the reason of the first veto."""
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
        """Whether every hook allows the session to resume by itself."""
        point = "before_continue"
        return all(self._ask(hook, point, session) is not False for hook in self._at[point])

    def change_view(self, view: View) -> View:
        """The view as changed by all hooks."""
        for hook in self._at["on_view"]:
            view = self._ask(hook, "on_view", view) or view
        return view

    def _ask(self, hook: "_Hook", point: str, value: object) -> Any:
        """The hook's return value, or None if it has a problem, which is reported."""
        answer, problem = hook.ask(point, value, self._seconds)
        if problem is not None:
            self._report(hook.name, point, problem)
        return answer


class _Hook:
    """A hook, and its threads that exceeded the time limit."""

    def __init__(self, hook: object) -> None:
        self._hook = hook
        self._hung: list[threading.Thread] = []
        self.name: str = getattr(hook, "__name__", type(hook).__name__)

    def has(self, point: str) -> bool:
        """Whether the hook has a method for a point."""
        return getattr(self._hook, point, None) is not None

    def ask(self, point: str, value: object, seconds: float) -> tuple[Any, str | None]:
        """The hook's converted return value, and the problem if there is one."""
        self._hung = [thread for thread in self._hung if thread.is_alive()]
        if self._hung:
            return None, "still hangs in an earlier call"
        outcomes: SimpleQueue[tuple[Any, str | None]] = SimpleQueue()
        context = copy_context()
        # A late outcome goes into a queue that is no longer read.
        thread = threading.Thread(
            target=lambda: outcomes.put(context.run(self._call, point, value, seconds)),
            name=f"foldmark-hook-{self.name}",
            daemon=True,
        )
        thread.start()
        try:
            return outcomes.get(timeout=seconds)
        except Empty:
            self._hung.append(thread)
            return None, _too_slow(seconds)

    def _call(self, point: str, value: object, seconds: float) -> tuple[Any, str | None]:
        try:
            answer = getattr(self._hook, point)(value)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_await_within(answer, seconds))
            # Converted in this thread too: the value may be a generator, which runs hook code.
            return None if answer is None else POINTS[point](answer), None
        except BadInput as error:
            return None, str(error)
        except BaseException as error:  # noqa: BLE001 - a hook that exits must only end its thread
            _log.debug("a hook failed; the failure is reported", exc_info=True)
            return None, "".join(format_exception_only(error)).strip()


def check_hooks(hooks: Iterable[object]) -> tuple[object, ...]:
    """The hooks as a tuple; raises BadPolicy for an object without any hook method."""
    objects = tuple(hooks)
    for hook in objects:
        name = _Hook(hook).name
        points = [point for point in POINTS if callable(getattr(hook, point, None))]
        if not points:
            raise BadPolicy(f"the hook {name} has none of the methods {', '.join(POINTS)}")
        if isinstance(hook, type) and inspect.isfunction(inspect.getattr_static(hook, points[0])):
            raise BadPolicy(f"the hook {name} is a class; pass an instance, {name}()")
    return objects


def installed_hooks() -> list[object]:
    """The hooks of installed packages, sorted by name."""
    try:
        entries = _hook_entries(entry_points, tuple(sys.path))
    except Exception:  # noqa: BLE001 - a package may be broken
        _log.exception("installed packages cannot be searched for hooks")
        return []
    loaded = (_load_hook(entry) for entry in entries)
    return [hook for hook in loaded if hook is not None]


@lru_cache(maxsize=4)
def _hook_entries(search: Callable[..., EntryPoints], _path: tuple[str, ...]) -> list[EntryPoint]:
    """The hook entry points, cached because a search takes longer than opening a session."""
    return sorted(search(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _load_hook(entry: EntryPoint) -> object | None:
    try:
        target: object = entry.load()
        return cast("object", target()) if isinstance(target, type) else target
    except (Exception, SystemExit):  # noqa: BLE001 - third-party code
        _log.exception("the hook %s (%s) cannot be loaded", entry.name, entry.value)
        return None


async def _await_within(answer: Awaitable[T], seconds: float) -> T:
    """Await a value, but cancel it at the time limit so that its thread can end."""
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
        raise BadInput(f"returned {reprlib.repr(answer)}, not a list of ordinals or handles")
    ordinals: set[int] = set()
    for count, name in enumerate(cast("Iterable[object]", answer)):
        ordinal = ordinal_of(name) if isinstance(name, str) else name
        if not isinstance(ordinal, int) or isinstance(ordinal, bool):
            raise BadInput(f"returned {reprlib.repr(name)}, which is no ordinal or handle")
        if count >= MAX_PROTECTED:
            raise BadInput(f"returned more than {MAX_PROTECTED:,} parts")
        ordinals.add(ordinal)
    return ordinals


def _check_type(answer: object, kind: type[T], expected: str) -> T:
    if not isinstance(answer, kind):
        raise BadInput(f"returned {reprlib.repr(answer)}, not {expected}")
    return answer


def _check_struct(answer: object, kind: type[T]) -> T:
    value: Any = _check_type(answer, kind, f"a {kind.__name__}")
    try:  # msgspec does not check fields at construction
        is_sound = convert(asdict(value), kind) == value
    except ValidationError as error:
        raise BadInput(f"returned a {kind.__name__} with wrong fields: {error}") from None
    if not is_sound:
        raise BadInput(f"returned a {kind.__name__} with wrong fields")
    return value


# The points, and the function that checks and converts the value returned at each.
POINTS: dict[str, Callable[[object], object]] = {
    "before_prune": _ordinals,
    "before_compact": lambda answer: _check_struct(answer, CompactionChange),
    "before_continue": lambda answer: _check_type(answer, bool, "True, False or None"),
    "on_view": lambda answer: _check_struct(answer, View),
}
