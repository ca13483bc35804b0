"""Convert tool declarations of any provider's form to one value."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.model.values import Json

from .plain import plain

_SCHEMAS = ("input_schema", "parameters", "inputSchema", "parametersJsonSchema")


def tool_declarations(tools: Iterable[object]) -> tuple[ToolDeclaration, ...]:
    """The declarations of tools in Anthropic, OpenAI, Gemini or MCP form, or as SDK objects."""
    return tuple(declaration for tool in tools for declaration in _declarations(tool))


def _declarations(tool: object) -> Iterator[ToolDeclaration]:
    if isinstance(tool, ToolDeclaration):
        yield tool
        return
    value = plain(tool)
    if not isinstance(value, Mapping):
        raise BadInput(f"a tool must be a dict with a name and a schema, not {type(tool).__name__}")
    fields = cast("Json", value)
    functions = fields.get("functionDeclarations") or fields.get("function_declarations")
    if isinstance(functions, list):  # Gemini's form
        for function in cast("list[object]", functions):
            yield from _declarations(function)
        return
    yield _declaration(fields)


def _declaration(fields: Json) -> ToolDeclaration:
    inner = fields.get("function")
    if isinstance(inner, Mapping):  # OpenAI's chat form
        fields = cast("Json", inner)
    # A provider's own tools (web search, …) have a type and no schema.
    name = fields.get("name") or fields.get("type")
    if not isinstance(name, str) or not name:
        raise BadInput("a tool declaration has no name")
    schemas = [fields[key] for key in _SCHEMAS if isinstance(fields.get(key), dict)]
    description = fields.get("description")
    return ToolDeclaration(
        name=name,
        description=description if isinstance(description, str) else "",
        schema=schemas[0] if schemas else {},
    )
