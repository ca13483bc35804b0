"""Tools as programs declare them to providers, in whichever form, as one value."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Json

from .plain import plain

_SCHEMAS = ("input_schema", "parameters", "inputSchema", "parametersJsonSchema")


def declared(tools: Iterable[object]) -> tuple[Declared, ...]:
    """Tools as Anthropic, OpenAI, Gemini or MCP have them; or SDKs' objects for these."""
    return tuple(held for tool in tools for held in _declared(tool))


def _declared(tool: object) -> Iterator[Declared]:
    if isinstance(tool, Declared):
        yield tool
        return
    held = plain(tool)
    if not isinstance(held, Mapping):
        raise BadInput(f"a tool is a dict with a name and a schema, not {type(tool).__name__}")
    fields = cast("Json", held)
    several = fields.get("functionDeclarations") or fields.get("function_declarations")
    if isinstance(several, list):  # Gemini's form
        for one in cast("list[object]", several):
            yield from _declared(one)
        return
    yield _one(fields)


def _one(fields: Json) -> Declared:
    inner = fields.get("function")
    if isinstance(inner, Mapping):  # OpenAI's chat form
        fields = cast("Json", inner)
    # A provider's own tools (web search, …) have a type and no schema.
    name = fields.get("name") or fields.get("type")
    if not isinstance(name, str) or not name:
        raise BadInput("a tool has no name")
    schemas = [fields[key] for key in _SCHEMAS if isinstance(fields.get(key), dict)]
    described = fields.get("description")
    return Declared(
        name=name,
        description=described if isinstance(described, str) else "",
        schema=schemas[0] if schemas else {},
    )
