"""Tools made of functions: their schemas, their inputs, and what they give."""

import enum
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest

from foldmark.agent.function_tools import as_tool, tool, toolset
from foldmark.agent.tool import Context, ToolOutput, ToolRefusal
from foldmark.errors import BadInput
from foldmark.model.messages import SHOWN_TOKENS, FilePart
from foldmark.model.values import Json
from tests.support.stored_sessions import opened
from tests.support.tool_calls import context_of, run


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """Where something is."""

    x: int
    y: int = 0


class Step(msgspec.Struct):
    name: str
    done: bool = False


class Tree(msgspec.Struct):
    name: str
    kids: list["Tree"] = []


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with opened(str(tmp_path / "store.db"), "s") as session:
        yield context_of(session, tmp_path)


def properties(function: Callable[..., Any]) -> Json:
    return as_tool(function).schema["properties"]


# --- schemas -------------------------------------------------------------------------------


def test_a_tool_is_named_and_described_by_its_function() -> None:
    @tool
    def look(where: str) -> str:
        """Look at a place.

        Nothing is touched.
        """
        return where

    assert (look.name, look.description) == ("look", "Look at a place.\n\nNothing is touched.")
    assert look.schema == {
        "type": "object",
        "properties": {"where": {"type": "string"}},
        "required": ["where"],
        "additionalProperties": False,
    }


def test_a_tool_may_be_named_otherwise_and_have_its_own_bounds() -> None:
    @tool(name="peek", description="Peeks.", seconds=3, visible_tokens=50, changes_files=False)
    def look() -> None: ...

    assert look[:2] == ("peek", "Peeks.")
    assert (look.seconds, look.visible_tokens, look.changes_files) == (3, 50, False)
    assert look.declaration.schema["properties"] == {}


def test_words_beside_a_type_describe_a_parameter() -> None:
    def look(
        one: Annotated[str, "the first"],
        two: Annotated[int, msgspec.Meta(description="the second", ge=1)],
        three: Annotated[int | None, "the third"] = None,
    ) -> None: ...

    schema = properties(look)
    assert schema["one"] == {"type": "string", "description": "the first"}
    assert schema["two"] == {"type": "integer", "description": "the second", "minimum": 1}
    assert schema["three"]["description"] == "the third"
    assert as_tool(look).schema["required"] == ["one", "two"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - both ways
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Literal[1, 2], {"enum": [1, 2]}),
        (Colour, {"title": "Colour", "enum": ["blue", "red"], "type": "string"}),
    ],
)
def test_types_become_schemas(kind: Any, schema: Json) -> None:
    def look(it: Any) -> None: ...

    look.__annotations__["it"] = kind
    found = properties(look)["it"]
    if "enum" in found:
        found["enum"] = sorted(found["enum"])
    assert found == schema


def test_objects_stand_in_place_and_need_no_references() -> None:
    def look(point: Point, steps: list[Step], best: Step | None = None) -> None: ...

    schema = as_tool(look).schema
    assert "$ref" not in str(schema)
    assert "$defs" not in schema
    assert schema["properties"]["point"]["properties"]["x"] == {"type": "integer"}
    assert schema["properties"]["point"]["description"] == "Where something is."
    assert schema["properties"]["steps"]["items"]["required"] == ["name"]
    assert schema["required"] == ["point", "steps"]


def test_what_holds_itself_stays_a_reference_that_leads_somewhere() -> None:
    def grow(tree: Tree) -> None: ...

    schema = as_tool(grow).schema
    assert list(schema["$defs"]) == ["Tree"]
    kids = schema["properties"]["tree"]["properties"]["kids"]["items"]
    assert kids == {"$ref": "#/$defs/Tree"}


def test_defaults_are_told_and_need_not_be_given() -> None:
    def look(a: int = 5, b: str = "x", c: list[int] = [1], d: Any = object) -> None: ...  # noqa: B006

    schema = as_tool(look).schema
    assert schema["required"] == []
    assert schema["properties"]["a"] == {"type": "integer", "default": 5}
    assert schema["properties"]["b"]["default"] == "x"
    assert "default" not in schema["properties"]["c"]


def test_the_context_is_given_and_not_asked_for(context: Context) -> None:
    @tool
    def where(surroundings: Context, deep: bool = False) -> str:  # noqa: FBT001, FBT002
        return f"{surroundings.call_id} {deep}"

    assert list(where.schema["properties"]) == ["deep"]
    assert run(where, context).text == "c1 False"
    assert run(where, context, surroundings=1).error


def variadic(*things: str) -> None: ...
def named(**things: str) -> None: ...
def untyped(thing) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore
def placed(thing: str, /) -> None: ...
def unheard(thing: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
def odd(thing: threading.Thread) -> None: ...
def yielding() -> Iterator[str]:
    yield ""


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (variadic, "declare each parameter by name"),
        (named, "declare each parameter by name"),
        (untyped, "thing: str"),  # pyright: ignore[reportUnknownArgumentType]
        (placed, "remove the /"),
        (unheard, "Nothing"),
        (odd, "without a JSON form"),
        (yielding, "return one value"),
        (lambda: None, "name="),
        (5, "not int"),
        (Point, "not type"),
    ],
)
def test_what_can_be_no_tool_is_told_in_one_line(thing: object, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        as_tool(thing)
    assert "\n" not in str(caught.value)


def test_no_two_tools_are_called_the_same() -> None:
    def look() -> None: ...

    @tool(name="look")
    def peek() -> None: ...

    assert list(toolset([look, tool(look)._replace(name="see")])) == ["look", "see"]
    assert list(toolset([peek, peek])) == ["look"]
    with pytest.raises(BadInput, match="look"):
        toolset([look, peek])


# --- inputs --------------------------------------------------------------------------------


@tool
def sum_up(count: int, point: Point, colour: Colour = Colour.RED, exact: bool = False) -> str:  # noqa: FBT001, FBT002
    return f"{count + 1} {point.x} {colour.value} {exact}"


def test_inputs_are_converted_to_what_the_function_takes(context: Context) -> None:
    output = run(sum_up, context, count="5", point={"x": 7}, colour="blue", exact="true")
    assert output.text == "6 7 blue True"
    assert not output.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"count": "many", "point": {"x": 1}},
            "sum_up: count: expected a whole number, got a text",
        ),
        ({"point": {"x": 1}}, "'count' is missing"),
        ({"count": 1, "point": {"x": []}}, "point.x: expected a whole number, got a list"),
        ({"count": 1, "point": {"x": 1}, "size": 2}, "no field 'size'; it takes count, point"),
        ({"count": 1, "point": {"x": 1}, "colour": "green"}, "colour: 'green' is none of"),
        ({"count": 1, "point": {"x": 1}, "colour": "\ud800"}, "half of a character"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(
    context: Context, arguments: Json, words: str
) -> None:
    output = run(sum_up, context, **arguments)
    assert output.error
    assert words in output.text
    assert "\n" not in output.text


def test_the_subject_of_a_call_is_its_first_argument() -> None:
    assert sum_up.subject({"count": 3}) == "3"
    assert as_tool(odd_named).subject({"place": "the docs"}) == "the docs"
    assert as_tool(odd_named).subject({}) == ""


def odd_named(place: str = "") -> str:
    return place


# --- outputs -------------------------------------------------------------------------------

PICTURE = FilePart(mime="image/png", url="data:image/png;base64,AA==", filename="a.png")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, "done"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\xfe\x00", "[3 bytes that are no text]"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Step(name="a"), '{"name":"a","done":false}'),
        (True, "true"),
        (ToolOutput(text="whole", title="t"), "whole"),
        (PICTURE, "[a.png]"),
        ({1, 2}, "[1,2]"),
        (3 + 4j, "(3+4j)"),
        ("nul \0 stays", "nul \0 stays"),
        ("half \ud83d goes", "half � goes"),
    ],
)
def test_whatever_a_function_returns_is_an_output(
    context: Context, value: object, text: str
) -> None:
    def give() -> object:
        return value

    async def agive() -> object:
        return value

    for function in (give, agive):
        output = run(as_tool(function), context)
        assert (output.text, output.error) == (text, False)
        assert output.metadata[SHOWN_TOKENS] == as_tool(function).visible_tokens
    assert run(as_tool(give), context).files == ((PICTURE,) if value is PICTURE else ())


class Rude(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


@pytest.mark.parametrize(
    ("error", "begin"),
    [
        (ToolRefusal("not today"), "not today"),
        (BadInput("no such thing", source="a.py"), "a.py: no such thing"),
        (ValueError("one\ntwo"), "ValueError: one two (test_function_tools.py:"),
        (KeyError(), "KeyError (test_function_tools.py:"),
        (TimeoutError("theirs"), "TimeoutError: theirs"),
        (StopIteration(4), "StopIteration: 4"),
        (SystemExit(3), "SystemExit: 3"),
        (Rude(), "Rude (test_function_tools.py:"),
    ],
)
def test_whatever_a_function_raises_is_an_error_of_one_line(
    context: Context, error: BaseException, begin: str
) -> None:
    def fail() -> None:
        raise error

    async def afail() -> None:
        raise error

    for function in (fail, afail):
        if function is afail and isinstance(error, StopIteration):
            continue  # a coroutine cannot raise it
        output = run(as_tool(function), context)
        assert output.error
        assert output.text.startswith(begin)
        assert "\n" not in output.text


def test_methods_and_objects_can_be_tools(context: Context) -> None:
    class Counter:
        """Counts."""

        def __init__(self) -> None:
            self.count = 0

        def add(self, more: int) -> int:
            """Add some."""
            self.count += more
            return self.count

        async def __call__(self, more: int) -> int:
            return self.add(more)

    counter = Counter()
    assert run(as_tool(counter.add), context, more=2).text == "2"
    assert run(tool(name="count")(counter), context, more=3).text == "5"
