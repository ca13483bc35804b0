"""What hooks may change, and that no hook can break or block a session."""

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest
from foldmark.log.log import Log, handle
from foldmark.log.view import View, Viewer
from foldmark.policy import FOLDMARK
from foldmark.session import hooks as module
from foldmark.session.hooks import (
    POINTS,
    CompactionChange,
    HookRunner,
)
from foldmark.tokens.counters import round4

SOON = 20.0  # seconds that are enough even on a busy machine
SHORT = 0.05  # seconds after which a hook counts as hung
NOTHING = Prune(prune=(), keep=(), tokens=0)
VIEWER = Viewer(Log(round4), FOLDMARK)
COMPACTION = CompactionRequest(viewer=VIEWER, session="s", auto=True, context=("a",), prompt="p")
VIEW = VIEWER.view()
# How a runner calls hooks at each point, and its result without hooks.
CALLS: dict[str, tuple[Callable[[HookRunner], object], object]] = {
    "before_prune": (lambda runner: runner.protected_ordinals(NOTHING), set()),
    "before_compact": (lambda runner: runner.change_request(COMPACTION), (COMPACTION, None)),
    "before_continue": (lambda runner: runner.may_continue("s"), True),
    "on_view": (lambda runner: runner.change_view(VIEW), VIEW),
}
AT_EVERY_POINT = pytest.mark.parametrize("point", POINTS)


class Hook:
    """A hook that returns, at one point, what a function returns."""

    def __init__(self, point: str, function: Callable[[Any], Any]) -> None:
        self.values: list[Any] = []
        self._function = function
        setattr(self, point, self._call)

    def _call(self, value: Any) -> Any:
        self.values.append(value)
        return self._function(value)


class Runner(HookRunner):
    """A runner that records reported problems."""

    def __init__(self, *hooks: object, seconds: float = SOON) -> None:
        self.problems: list[tuple[str, str, str]] = []
        super().__init__(hooks, seconds=seconds, report=self._record)

    def _record(self, name: str, point: str, problem: str) -> None:
        self.problems.append((name, point, problem))


def hook_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("foldmark-hook")]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that hooks wait for; set at the end, so that their threads end."""
    gate = threading.Event()
    yield gate
    gate.set()
    for thread in hook_threads():
        thread.join(SOON)
        assert not thread.is_alive()


# --- changes --------------------------------------------------------------------------------


@AT_EVERY_POINT
def test_without_a_hook_for_a_point_nothing_changes_and_no_thread_is_started(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        before_prune = before_compact = before_continue = on_view = None

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a thread")

    monkeypatch.setattr(module.threading, "Thread", refuse)
    ask, without = CALLS[point]
    elsewhere = [Hook(other, lambda _: 1 // 0) for other in POINTS if other != point]
    for hooks in ([], [object(), Elsewhere()], elsewhere):
        runner = Runner(*hooks)
        assert ask(runner) == without
        assert runner.problems == []


def test_parts_are_kept_by_ordinal_and_by_handle() -> None:
    answers: list[Any] = [[3, handle(26)], iter((4, "h1F ")), {5: "x"}, (n for n in (6,)), (), None]
    hooks = [Hook("before_prune", lambda _, answer=answer: answer) for answer in answers]
    runner = Runner(*hooks)
    assert runner.protected_ordinals(NOTHING) == {3, 26, 4, 31, 5, 6}
    assert [hook.values for hook in hooks] == [[NOTHING]] * len(hooks)
    assert runner.problems == []


def test_each_hook_sees_the_compaction_as_the_one_before_left_it() -> None:
    changes = [
        CompactionChange(context=("b", "c")),
        None,
        CompactionChange(prompt="q"),
        CompactionChange(prompt="", context=("d",)),
    ]
    hooks = [Hook("before_compact", lambda _, change=change: change) for change in changes]
    with_context = replace(COMPACTION, context=("a", "b", "c"))
    with_prompt = replace(with_context, prompt="q")
    last = replace(with_prompt, context=("a", "b", "c", "d"), prompt="")
    assert Runner(*hooks).change_request(COMPACTION) == (last, None)
    requests = [COMPACTION, with_context, with_context, with_prompt]
    assert [hook.values for hook in hooks] == [[request] for request in requests]


def test_the_first_veto_ends_a_compaction() -> None:
    first = Hook("before_compact", lambda _: CompactionChange(context=("b",)))
    second = Hook("before_compact", lambda _: CompactionChange(veto="not now", prompt="q"))
    third = Hook("before_compact", lambda _: CompactionChange(veto="never"))
    changed, veto = Runner(first, second, third).change_request(COMPACTION)
    assert (changed, veto) == (replace(COMPACTION, context=("a", "b")), "not now")
    assert third.values == []


def test_an_empty_veto_is_a_veto() -> None:
    hook = Hook("before_compact", lambda _: CompactionChange(veto=""))
    assert Runner(hook).change_request(COMPACTION) == (COMPACTION, "Hook gives no reason")


@pytest.mark.parametrize(
    ("answers", "may"), [([None, True], True), ([True, False, None], False), ([False], False)]
)
def test_one_hook_is_enough_to_stop_a_session(answers: list[bool | None], *, may: bool) -> None:
    hooks = [Hook("before_continue", lambda _, answer=answer: answer) for answer in answers]
    runner = Runner(*hooks)
    assert runner.may_continue("the session") is may
    assert hooks[0].values == ["the session"]
    assert runner.problems == []


def test_each_hook_sees_the_view_of_the_one_before() -> None:
    hooks = [
        Hook("on_view", lambda view: replace(view, tokens=view.tokens + 1)),
        Hook("on_view", lambda _: None),
        Hook("on_view", lambda view: replace(view, tokens=view.tokens * 10)),
    ]
    assert Runner(*hooks).change_view(VIEW) == replace(VIEW, tokens=(VIEW.tokens + 1) * 10)


def test_one_object_may_have_all_methods_async_or_not() -> None:
    class Both:
        async def before_prune(self, prune: Prune) -> list[int]:
            await asyncio.sleep(0)
            return [7, *prune.ordinals]

        async def before_compact(self, compaction: CompactionRequest) -> CompactionChange | None:
            await asyncio.sleep(0)
            return CompactionChange(prompt=f"{compaction.prompt}!")

        def before_continue(self, session: str) -> bool:
            return session != "s"

        async def on_view(self, view: View) -> View | None:
            return replace(view, tokens=5)

    runner = Runner(Both())
    assert runner.protected_ordinals(NOTHING) == {7}
    assert runner.change_request(COMPACTION) == (replace(COMPACTION, prompt="p!"), None)
    assert not runner.may_continue("s")
    assert runner.change_view(VIEW).tokens == 5
    assert runner.problems == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_sees_the_context_of_its_caller_and_cannot_change_it(*, is_async: bool) -> None:
    word = ContextVar("word", default="default")

    def plain(_: object) -> bool:
        records.append(word.get())
        word.set("changed by the hook")
        return True

    async def later(value: object) -> bool:
        await asyncio.sleep(0)
        return plain(value)

    records: list[str] = []
    reset = word.set("of the caller")
    assert Runner(Hook("before_continue", later if is_async else plain)).may_continue("s")
    assert records == [word.get()] == ["of the caller"]
    word.reset(reset)


# --- failures -------------------------------------------------------------------------------


def failing(value: object) -> object:
    raise ValueError("broken on purpose")


async def failing_later(value: object) -> object:
    return failing(value)


def leaving(value: object) -> object:
    sys.exit("left on purpose")


async def cancelled(value: object) -> object:
    raise asyncio.CancelledError


@AT_EVERY_POINT
@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (failing, "ValueError: broken on purpose"),
        (failing_later, "ValueError: broken on purpose"),
        (leaving, "SystemExit: left on purpose"),
        (cancelled, "CancelledError"),
    ],
)
def test_a_hook_that_raises_is_reported_and_ignored(
    point: str, broken: Callable[[Any], Any], problem: str
) -> None:
    ask, without = CALLS[point]
    other = Hook(point, lambda _: None)
    runner = Runner(Hook(point, broken), other)
    assert ask(runner) == without
    ((name, where, text),) = runner.problems
    assert (name, where) == ("Hook", point)
    assert problem in text
    assert len(other.values) == 1


WRONG: list[tuple[str, Any, str]] = [
    ("before_prune", 5, "5"),
    ("before_prune", "h1", "h1"),
    ("before_prune", b"\x01", "not a list"),
    ("before_prune", [1, 2.0], "2.0"),
    ("before_prune", [1, True], "True"),
    ("before_prune", [1, None], "None"),
    ("before_prune", [1, "part_1"], "part_1"),
    ("before_prune", (1 // n for n in (1, 0)), "ZeroDivisionError"),
    ("before_prune", itertools.repeat(1), "more than 1,000,000"),
    ("before_compact", "no", "'no'"),
    ("before_compact", {"veto": "no"}, "CompactionChange"),
    ("before_compact", replace(CompactionChange(), veto=True), "veto"),
    ("before_compact", replace(CompactionChange(), prompt=b"x"), "prompt"),
    ("before_compact", replace(CompactionChange(), context="line"), "context"),
    ("before_compact", replace(CompactionChange(), context=("a", 1)), "context"),
    ("before_continue", 0, "0"),
    ("before_continue", "False", "'False'"),
    ("on_view", VIEW.messages, "not a View"),
    ("on_view", replace(VIEW, messages=[]), "fields"),
    ("on_view", replace(VIEW, messages=("hello",)), "messages"),
    ("on_view", replace(VIEW, indexes=("1",)), "indexes"),
    ("on_view", replace(VIEW, tokens=None), "tokens"),
    ("on_view", replace(VIEW, pivot=1), "pivot"),
]


@pytest.mark.parametrize(
    ("point", "answer", "problem"), WRONG, ids=[f"{w[0]}-{n}" for n, w in enumerate(WRONG)]
)
def test_a_wrong_return_value_is_reported_and_ignored(
    point: str, answer: object, problem: str
) -> None:
    ask, without = CALLS[point]
    runner = Runner(Hook(point, lambda _: answer))
    assert ask(runner) == without
    ((name, where, text),) = runner.problems
    assert (name, where) == ("Hook", point)
    assert problem in text


def test_a_method_that_cannot_be_called_is_reported() -> None:
    class Odd:
        before_continue = "yes"

        def on_view(self, view: View, more: object, limit: object) -> None: ...

    runner = Runner(Odd(), Odd)
    assert runner.may_continue("s")
    assert runner.change_view(VIEW) == VIEW
    points = [("Odd", "before_continue")] * 2 + [("Odd", "on_view")] * 2
    assert [(name, point) for name, point, _ in runner.problems] == points


# --- time limits ----------------------------------------------------------------------------


@AT_EVERY_POINT
def test_a_hanging_hook_is_reported_and_not_called_again(point: str, gate: threading.Event) -> None:
    hanging = Hook(point, lambda _: gate.wait(SOON) and None)
    runner = Runner(hanging, seconds=SHORT)
    ask, without = CALLS[point]
    assert [ask(runner) for _ in range(3)] == [without] * 3
    assert runner.problems == [
        ("Hook", point, "took longer than 0.05 s"),
        ("Hook", point, "still hangs in an earlier call"),
        ("Hook", point, "still hangs in an earlier call"),
    ]
    (thread,) = hook_threads()
    assert thread.daemon
    gate.set()
    thread.join(SOON)
    assert len(hanging.values) == 1


def test_other_hooks_are_called_beside_a_hanging_one(gate: threading.Event) -> None:
    hanging = Hook("before_prune", lambda _: [2] if gate.wait(SOON) else None)
    other = Hook("before_prune", lambda _: [1])
    runner = Runner(hanging, other, seconds=SHORT)
    runner.protected_ordinals(NOTHING)
    runner._seconds = SOON  # pyright: ignore[reportPrivateUsage]
    assert runner.protected_ordinals(NOTHING) == {1}
    assert len(hook_threads()) == 1


def test_a_late_value_is_never_used_but_a_hook_that_returned_is_called_again(
    gate: threading.Event,
) -> None:
    hook = Hook("before_continue", lambda _: not gate.wait(SOON))  # a late veto
    runner = Runner(hook, seconds=SHORT)
    assert runner.may_continue("first")
    (thread,) = hook_threads()
    gate.set()
    thread.join(SOON)
    assert len(runner.problems) == 1
    runner._seconds = SOON  # pyright: ignore[reportPrivateUsage]
    assert not runner.may_continue("second")
    assert hook.values == ["first", "second"]
    assert len(runner.problems) == 1


def test_a_generator_that_hangs_counts_as_a_hanging_hook(gate: threading.Event) -> None:
    def slowly(_: object) -> Iterator[int]:
        yield 1
        gate.wait(SOON)

    runner = Runner(Hook("before_prune", slowly), seconds=SHORT)
    assert runner.protected_ordinals(NOTHING) == set()
    assert [words for *_, words in runner.problems] == ["took longer than 0.05 s"]


def test_an_async_hook_is_cancelled_at_the_limit_and_its_thread_ends() -> None:
    ended = threading.Semaphore(0)

    async def endless(_: object) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.release()
        return False

    runner = Runner(Hook("before_continue", endless), seconds=SHORT)
    for count in (1, 2):
        assert runner.may_continue("s")
        assert ended.acquire(timeout=SOON)
        for thread in hook_threads():
            thread.join(SOON)
        assert hook_threads() == []
        assert [words for *_, words in runner.problems] == ["took longer than 0.05 s"] * count


# --- hooks of installed packages ------------------------------------------------------------


OFFERED = """
class Veto:
    def before_continue(self, session):
        return False

class Broken:
    def __init__(self):
        raise ValueError("broken on purpose")

ready = Veto()
"""
ENTRY_POINTS = """[foldmark.hooks]
e_class = offered:Veto
d_broken = offered:Broken
c_missing = offered:nothing_such
b_absent = no_such_module
a_leaving = leaving
f_object = offered:ready
g_module = offered

[other.group]
x = offered:Veto
"""
FIND = """
import logging
from foldmark.session.hooks import HookRunner, installed_hooks
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
hooks = installed_hooks()
print([getattr(hook, "__name__", type(hook).__name__) for hook in hooks])
print(HookRunner(hooks[:1], report=print).may_continue("s"))
"""


def installed(folder: Path, entries: bytes) -> tuple[list[str], str]:
    """The output and the log of a program that loads the hooks of a package in this folder."""
    info = folder / "offered-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(entries)
    (folder / "offered.py").write_text(OFFERED)
    (folder / "leaving.py").write_text("import sys; sys.exit(3)")
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{FIND}"
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines(), run.stderr


def test_hooks_of_installed_packages_are_found_by_name_and_broken_ones_are_logged(
    tmp_path: Path,
) -> None:
    printed, logged = installed(tmp_path, ENTRY_POINTS.encode())
    assert printed == ["['Veto', 'Veto', 'offered']", "False"]
    for name in ("a_leaving", "b_absent", "c_missing", "d_broken"):
        assert f"ERROR foldmark the hook {name} " in logged
    assert logged.count("ERROR foldmark ") == 4
    assert "ValueError: broken on purpose" in logged


def test_unreadable_packages_are_logged_and_have_no_hooks(tmp_path: Path) -> None:
    printed, logged = installed(tmp_path, b"[foldmark.hooks]\nx = \xff\n")
    assert printed == ["[]", "True"]
    assert logged.startswith("ERROR foldmark installed packages cannot be searched")
