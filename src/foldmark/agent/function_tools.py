"""Tools from plain functions: the schema comes from the signature, and inputs are checked by it.

A function may be sync or async; a sync one runs in a thread of its own, so that one that never
returns blocks nothing else. Its return value or exception becomes an output. Permissions and
time limits are enforced in `tool_calls`.
"""

import inspect
import re
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import (
    Annotated,
    Any,
    TypedDict,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from msgspec import UNSET, UnsetType

from foldmark.errors import BadInput, FoldmarkError
from foldmark.files import explain_json_error, size_text
from foldmark.model.messages import FilePart
from foldmark.model.values import Json
from foldmark.providers.background import run_in_thread

from .tool import Context, Tool, ToolOutput, ToolRefusal

Function = Callable[..., Any]
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFS = "#/$defs/{name}"
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_CHOICE = re.compile(r"Invalid enum value (.+)", re.DOTALL)
_MAX_CAUSE = 500  # characters of an error
_PLAIN = (bool, int, float, str)  # defaults that go into the schema


class ToolOptions(TypedDict, total=False):
    """Options of `tool`; defaults come from the function and from `Tool`."""

    name: str
    description: str
    seconds: float
    visible_tokens: int
    changes_files: bool
    changed_paths: Callable[[Json], tuple[str, ...]]
    subject: Callable[[Json], str]


@overload
def tool(function: Function) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Function], Tool]:
    """Make a function a tool; usable with and without parentheses."""

    def build(function: Function) -> Tool:
        name = options.get("name") or getattr(function, "__name__", "")
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"{name!r} is not a valid tool name; "
                "set name=… to at most 64 letters, digits, _ and -"
            )
        if min(options.get("seconds", 1), options.get("visible_tokens", 1)) <= 0:
            raise BadInput(f"the tool {name!r}: seconds and visible_tokens must be more than 0")
        signature = _Signature(function, name)
        description = inspect.cleandoc(options.get("description") or function.__doc__ or "")
        call = _caller(function, signature)
        default = Tool(name, description, signature.schema, call, subject=signature.subject)
        return default._replace(**{**options, "name": name, "description": description})

    return build if function is None else build(function)


def as_tool(thing: object) -> Tool:
    """A tool as it is, or a function as a tool."""
    if isinstance(thing, Tool):
        return thing
    if not callable(thing) or isinstance(thing, type):
        raise BadInput(f"a tool is a function or a Tool, not {type(thing).__name__}")
    return tool(thing)


def toolset(things: Iterable[object]) -> dict[str, Tool]:
    """Tools by name. Raises BadInput if two different tools have the same name."""
    tools: dict[str, Tool] = {}
    for one in map(as_tool, things):
        if tools.get(one.name, one) is not one:
            raise BadInput(f"two tools are named {one.name!r}; give one of them another name=…")
        tools[one.name] = one
    return tools


# --- the signature -------------------------------------------------------------------------


class _Signature:
    """A function's parameters: as a schema for the model, and as a struct for its input."""

    def __init__(self, function: Function, name: str) -> None:
        self.name = name
        hints = _hints(function, name)
        self.contexts: list[str] = []  # parameters that receive the Context
        fields: list[tuple[str, Any, Any]] = []
        defaults: Json = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = _hint(parameter, hints, name)
            if hint is Context:
                self.contexts.append(parameter.name)
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, hint, msgspec.NODEFAULT))
            else:
                defaults[parameter.name] = parameter.default
                fields.append((parameter.name, Union[hint, UnsetType], UNSET))  # noqa: UP007 - of values
        self.names = [field for field, _, _ in fields]
        self.shape = msgspec.defstruct("Input", fields, kw_only=True, forbid_unknown_fields=True)
        self.schema = _schema(self.shape, defaults, name)

    def convert(self, arguments: Json) -> Json:
        """The arguments for the function. Raises ToolRefusal for input that does not fit."""
        try:
            struct = msgspec.convert(arguments, self.shape, strict=False)
        except msgspec.ValidationError as error:
            raise ToolRefusal(f"{self.name}: {self._explain(str(error))}") from None
        except UnicodeEncodeError:  # msgspec fails to quote lone surrogates in its errors
            raise ToolRefusal(f"{self.name}: half of a character where none is expected") from None
        values = ((name, getattr(struct, name)) for name in self.names)
        return {name: value for name, value in values if value is not UNSET}

    def _explain(self, error: str) -> str:
        cause, _, path = error.partition(" - at ")
        field = path.strip("`").removeprefix("$").lstrip(".")
        accepted = f"it takes {', '.join(self.names) or 'nothing'}"
        if unknown := _UNKNOWN.fullmatch(cause):
            at = f" of {field}" if field else f"; {accepted}"
            return f"there is no field {unknown[1]!r}{at}"
        if choice := _CHOICE.fullmatch(cause):
            choices = self.schema["properties"].get(field, {}).get("enum", ())
            among = f"none of {', '.join(map(str, choices))}" if choices else "not known here"
            return f"{field}: {choice[1]} is {among}"
        explanation = explain_json_error(BadInput(cause)).cause
        return f"{field}: {explanation}" if field else f"{explanation}; {accepted}"

    def subject(self, arguments: Json) -> str:
        """The text that permission rules match: the first argument."""
        value = arguments.get(self.names[0]) if self.names else None
        return value if isinstance(value, str) else "" if value is None else _as_json(value)


def _hints(function: Function, name: str) -> Json:
    """The annotations of a function, or of an object's `__call__`."""
    plain = inspect.isroutine(function)
    try:
        return get_type_hints(function if plain else function.__call__, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise BadInput(f"cannot read the annotations of the tool {name!r}: {error}") from None


def _hint(parameter: inspect.Parameter, hints: Json, name: str) -> Any:
    where = f"the parameter {parameter.name!r} of the tool {name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise BadInput(f"{where} is variadic; declare each parameter by name")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise BadInput(f"{where} is positional-only; remove the / from the signature")
    if parameter.name not in hints:
        raise BadInput(f"{where} has no type annotation; add one, such as {parameter.name}: str")
    return _with_description(hints[parameter.name])


def _with_description(hint: Any) -> Any:
    """The hint with its annotation texts as msgspec descriptions."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    annotations = tuple(
        msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes
    )
    return Annotated[(kind, *annotations)]


def _schema(shape: type, defaults: Json, name: str) -> Json:
    try:
        _, parts = msgspec.json.schema_components((shape,), ref_template=_REFS)
    except TypeError as error:
        cause = str(error).splitlines()[-1]
        raise BadInput(f"the tool {name!r} has a parameter without a JSON form: {cause}") from None
    schema = cast("Json", _inline(parts.pop("Input"), parts, ()))
    schema.pop("title")
    for field, value in defaults.items():
        if isinstance(value, _PLAIN):
            schema["properties"][field].setdefault("default", value)
    if _REFS.format(name="") in str(schema):  # a recursive type
        schema["$defs"] = {key: _inline(part, parts, (key,)) for key, part in parts.items()}
    return schema


def _inline(node: Any, parts: Json, within: tuple[str, ...]) -> Any:
    """The schema with its references inlined: not every provider follows them.

    Recursive types stay references.
    """
    if isinstance(node, list):
        return [_inline(one, parts, within) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("Json", node)
    key = str(fields.get("$ref", "")).removeprefix(_REFS.format(name=""))
    if key in parts and key not in within:
        siblings = {name: value for name, value in fields.items() if name != "$ref"}
        return _inline(parts[key], parts, (*within, key)) | siblings
    schema = {name: _inline(value, parts, within) for name, value in fields.items()}
    values = schema.get("enum")
    if isinstance(values, list) and all(isinstance(one, str) for one in cast("list[Any]", values)):
        schema.setdefault("type", "string")  # required by Gemini
    return schema


# --- the call ------------------------------------------------------------------------------


def _caller(
    function: Function, signature: _Signature
) -> Callable[[Json, Context], Awaitable[ToolOutput]]:
    inner = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"the tool {signature.name!r} is a generator; return one value instead")

    async def call(tool_input: Json, context: Context) -> ToolOutput:
        arguments = signature.convert(tool_input) | dict.fromkeys(signature.contexts, context)
        if awaits:
            return output_of(await function(**arguments))
        return await run_in_thread(lambda: _call_function(function, arguments))

    return call


def _call_function(function: Function, arguments: Json) -> ToolOutput:
    try:
        return output_of(function(**arguments))
    except BaseException as error:  # noqa: BLE001 - no coroutine can raise all that a call can
        return failure(error)


def output_of(value: object) -> ToolOutput:
    """A tool's return value as an output."""
    match value:
        case ToolOutput():
            return value
        case None:
            return ToolOutput(text="done")
        case str():
            return ToolOutput(text=value)
        case FilePart():
            return ToolOutput(text=f"[{value.filename or value.mime}]", files=(value,))
        case bytes() | bytearray():
            return ToolOutput(text=_text_of(bytes(value)))
        case _:
            return ToolOutput(text=_as_json(value))


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"[{size_text(len(data))} that are no text]"


def _as_json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return _safe_text(value) or f"[{type(value).__name__}]"


def failure(error: BaseException) -> ToolOutput:
    """A tool's exception as an output: one line with error and place, no traceback."""
    if isinstance(error, ToolRefusal | FoldmarkError):  # already a readable message
        return ToolOutput(text=str(error) or "refused", error=True)
    cause = " ".join(_safe_text(error).split())[:_MAX_CAUSE]
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    kind = type(error).__name__
    text = f"{kind}: {cause}{location}" if cause else f"{kind}{location}"
    return ToolOutput(text=text, error=True)


def _safe_text(thing: object) -> str:
    try:
        return str(thing)
    except Exception:  # noqa: BLE001 - str() of a foreign object may fail
        return ""
