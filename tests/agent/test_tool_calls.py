"""One call of a tool: whatever happens, it ends with an output."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.agent.function_tools import as_tool, tool, toolset
from foldmark.agent.permissions import PermissionGate, Permissions
from foldmark.agent.tool import Context, Tool, ToolOutput
from foldmark.agent.tool_calls import Toolbox, call_tool
from foldmark.model.messages import FilePart, Pending, ToolPart
from foldmark.model.values import Json
from tests.support.stored_sessions import opened
from tests.support.tool_calls import OPEN, asked, calling, context_of, run


@pytest.fixture
def session(tmp_path: Path) -> Iterator[foldmark.Session]:
    with opened(str(tmp_path / "store.db"), "s") as opened_session:
        yield opened_session


@pytest.fixture
def context(session: foldmark.Session, tmp_path: Path) -> Context:
    return context_of(session, tmp_path)


def look(place: str = "") -> str:
    return place


def test_an_unknown_tool_is_told_with_the_nearest_names(context: Context) -> None:
    tools = toolset([tool(name=name)(look) for name in ("read", "write", "x")])
    output = asyncio.run(call_tool(Toolbox(tools, OPEN), asked("reed"), context))
    assert output.error
    assert "'reed'" in output.text
    assert "read" in output.text
    assert "write" not in output.text


@pytest.mark.parametrize(
    ("raw", "text", "error"),
    [
        ('{"place": "docs"}', "docs", False),
        ("", "", False),
        ('{"place": "mi', "no JSON", True),
        ('["docs"]', "no JSON object", True),
        ("\ud800", "no JSON", True),
    ],
)
def test_an_input_that_came_as_text_is_read_if_it_can_be(
    context: Context, raw: str, text: str, *, error: bool
) -> None:
    output = asyncio.run(calling(as_tool(look), asked("look", raw=raw), context, OPEN))
    assert text in output.text
    assert output.error == error


def test_a_call_that_is_not_permitted_is_not_made(context: Context) -> None:
    runs: list[str] = []

    def look(where: str) -> None:
        runs.append(where)

    gate = PermissionGate(Permissions([("look", "allow"), ("look:*secret*", "deny")]))
    for where in ("a", "b/secret/c"):
        asyncio.run(calling(as_tool(look), asked("look", {"where": where}), context, gate))
    assert runs == ["a"]


def test_a_slow_function_is_left_behind(context: Context) -> None:
    going_on, finished = threading.Event(), threading.Event()

    @tool(seconds=0.05)
    def sleep() -> None:
        going_on.wait(20)
        finished.set()

    output = run(sleep, context)
    assert (output.text, output.error) == ("timed out after 0.05 s", True)
    assert not finished.is_set()
    going_on.set()
    assert finished.wait(20)


def test_a_slow_coroutine_is_cancelled(context: Context) -> None:
    ends: list[str] = []

    @tool(seconds=0.05)
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    assert run(sleep, context).text == "timed out after 0.05 s"
    assert ends == ["cancelled"]


def test_a_coroutine_that_fails_while_it_is_cancelled_disturbs_nobody(context: Context) -> None:
    @tool(seconds=0.05)
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("on the way out")

    assert run(sleep, context).text == "timed out after 0.05 s"


def test_a_cancelled_call_cancels_its_tool_and_raises(context: Context) -> None:
    ends: list[str] = []
    began = asyncio.Event()

    @tool
    async def sleep() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("ended")

    async def cut() -> None:
        task = asyncio.create_task(calling(sleep, asked("sleep"), context, OPEN))
        await began.wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cut())
    assert ends == ["ended"]


def test_a_tool_that_breaks_its_contract_is_told_as_a_failure(context: Context) -> None:
    async def nothing(arguments: Json, context: Context) -> ToolOutput:
        return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async def gives_up(arguments: Json, context: Context) -> ToolOutput:
        raise asyncio.CancelledError

    def no_coroutine(arguments: Json, context: Context) -> ToolOutput:
        raise ValueError("at once")

    for call, words in (
        (nothing, "NoneType"),
        (gives_up, "cancelled from within"),
        (no_coroutine, "ValueError: at once"),
    ):
        broken = Tool("t", "", {}, call)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        output = run(broken, context)
        assert output.error
        assert words in output.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_tool_that_wants_to_end_the_program_ends_its_own_call_alone(
    context: Context, error: BaseException
) -> None:
    async def raw(arguments: Json, context: Context) -> ToolOutput:
        raise error

    @tool
    async def awaited() -> None:
        raise error

    @tool
    def blocking() -> None:
        raise error

    def subject(arguments: Json) -> str:
        raise error

    about = as_tool(look)._replace(subject=subject)

    async def told() -> list[str]:
        outputs = [await calling(one, asked("x"), context, OPEN) for one in tools]
        assert all(output.error for output in outputs)
        return [output.text for output in outputs]

    tools = [Tool("raw", "", {}, raw), awaited, blocking, about]
    for text in asyncio.run(told()):
        assert type(error).__name__ in text


def giving(fields: Json) -> Tool:
    """A tool that gives an output with these fields, whatever they hold."""
    whole: Json = {"text": "a", **fields}

    def odd() -> ToolOutput:
        return ToolOutput(**whole)

    return as_tool(odd)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text": 123}, "text is int"),
        ({"text": None}, "text is NoneType"),
        ({"title": None}, "title is NoneType"),
        ({"metadata": None}, "metadata is NoneType"),
        ({"metadata": {"x": object()}}, "no JSON"),
        ({"metadata": {"x": {"y": [1j]}}}, "no JSON"),
        ({"files": ("x",)}, "files is str"),
        ({"files": None}, "files is NoneType"),
        ({"files": (FilePart(mime="image/png", url=None),)}, "no JSON"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
def test_an_output_that_cannot_be_kept_is_told_as_a_failure(
    context: Context, session: foldmark.Session, fields: Json, words: str
) -> None:
    output = run(giving(fields), context)
    assert output.error
    assert words in output.text
    assert "\n" not in output.text
    session.record([asked("odd")])
    session.result("c1", output.text, metadata=dict(output.metadata))


def test_odd_metadata_that_can_be_kept_is_kept(context: Context, session: foldmark.Session) -> None:
    for number, value in enumerate(({1: 2}, {"n": float("nan")}, {"s": "\ud800"}, {"d": {3}})):
        output = run(giving({"metadata": value}), context)
        assert not output.error, value
        session.record([ToolPart(tool="odd", call_id=f"k{number}", state=Pending(input={}))])
        session.result(f"k{number}", output.text, metadata=dict(output.metadata))


@pytest.mark.parametrize("depth", [100, 900, 2_000, 100_000])
def test_an_input_that_is_nested_deeply_ends_with_an_output(context: Context, depth: int) -> None:
    value: object = 1
    for _ in range(depth):
        value = {"a": value}

    def take(x: dict[str, Any]) -> str:
        return "taken"

    raw = '{"x":' + '{"a":' * depth + "1" + "}" * depth + "}"
    for part in (asked("take", {"x": value}), asked("take", raw=raw)):
        output = asyncio.run(calling(as_tool(take), part, context, OPEN))
        assert output.text == "taken" or output.error
        assert len(output.text) < 1_000


def test_outputs_can_be_kept(context: Context, session: foldmark.Session) -> None:
    texts = ["half \ud83d", "nul \0 and \x1b[31mred", "", "x" * 3_000_000]
    for number, text in enumerate(texts):
        part = ToolPart(tool="say", call_id=f"k{number}", state=Pending(input={}))
        session.record([part])

        def say(said: str = text) -> str:
            return said

        output = run(as_tool(say), context)
        session.result(f"k{number}", output.text, metadata=dict(output.metadata))
        handle = session.search("say", limit=1)[0].handle
        assert session.recall(handle) == text.replace("\ud83d", "�")
