"""Tools made of plain functions: the schema from the signature, the input checked against it.

A function may be sync or async; a sync one runs in a thread of its own, so that one that never
ends holds up nobody. What it returns or raises becomes an output. Who may call it, and for how
long, is told elsewhere.
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
from foldmark.files import in_plain_words, size_text
from foldmark.model.messages import FilePart
from foldmark.model.values import Json
from foldmark.providers.background import run_in_thread

from .tool import SECONDS, SHOWN, Context, Tool, ToolOutput, ToolRefusal

Function = Callable[..., Any]
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFS = "#/$defs/{name}"
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_CHOICE = re.compile(r"Invalid enum value (.+)", re.DOTALL)
_LONGEST_CAUSE = 500  # characters of what went wrong
_PLAIN = (bool, int, float, str)  # defaults that a schema tells


class ToolOptions(TypedDict, total=False):
    """What can be chosen for a tool; the rest is the function's own, or as `Tool` has it."""

    name: str
    description: str
    seconds: float
    shown: int
    changes: bool
    touches: Callable[[Json], tuple[str, ...]]
    subject: Callable[[Json], str]


@overload
def tool(function: Function) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function, with or without parentheses."""

    def made(function: Function) -> Tool:
        name = options.get("name") or getattr(function, "__name__", "")
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"{name!r} is no name for a tool; "
                "give name=… of letters, digits, _ and -, at most 64"
            )
        if options.get("seconds", SECONDS) <= 0 or options.get("shown", SHOWN) <= 0:
            raise BadInput(f"the tool {name!r}: seconds and shown must be more than 0")
        taken = _Signature(function, name)
        about = inspect.cleandoc(options.get("description") or function.__doc__ or "")
        whole = Tool(name, about, taken.schema, _caller(function, taken), subject=taken.subject)
        return whole._replace(**{**options, "name": name, "description": about})

    return made if function is None else made(function)


def as_tool(thing: object) -> Tool:
    """A tool, or a function as one."""
    if isinstance(thing, Tool):
        return thing
    if not callable(thing) or isinstance(thing, type):
        raise BadInput(f"a tool is a function or a Tool, not {type(thing).__name__}")
    return tool(thing)


def toolset(things: Iterable[object]) -> dict[str, Tool]:
    """Tools by their names; one may be given twice, but no two may be called the same."""
    known: dict[str, Tool] = {}
    for made in map(as_tool, things):
        if known.get(made.name, made) is not made:
            raise BadInput(f"two tools are called {made.name!r}; give one another name=…")
        known[made.name] = made
    return known


# --- the signature -------------------------------------------------------------------------


class _Signature:
    """What a function takes: as a schema for the model, and as a shape to convert its input to."""

    def __init__(self, function: Function, name: str) -> None:
        self.name = name
        hints = _hints(function, name)
        self.contexts: list[str] = []  # parameters that are given the context
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

    def converted(self, given: Json) -> Json:
        """The arguments for the function; ToolRefusal names what does not fit."""
        try:
            held = msgspec.convert(given, self.shape, strict=False)
        except msgspec.ValidationError as error:
            raise ToolRefusal(f"{self.name}: {self._misfit(str(error))}") from None
        except UnicodeEncodeError:  # msgspec cannot quote half a character where it refuses it
            raise ToolRefusal(f"{self.name}: half of a character where none is expected") from None
        values = ((name, getattr(held, name)) for name in self.names)
        return {name: value for name, value in values if value is not UNSET}

    def _misfit(self, told: str) -> str:
        cause, _, path = told.partition(" - at ")
        place = path.strip("`").removeprefix("$").lstrip(".")
        known = f"it takes {', '.join(self.names) or 'nothing'}"
        if unknown := _UNKNOWN.fullmatch(cause):
            at = f" of {place}" if place else f"; {known}"
            return f"there is no field {unknown[1]!r}{at}"
        if chosen := _CHOICE.fullmatch(cause):
            choices = self.schema["properties"].get(place, {}).get("enum", ())
            among = f"none of {', '.join(map(str, choices))}" if choices else "not known here"
            return f"{place}: {chosen[1]} is {among}"
        words = in_plain_words(BadInput(cause)).cause
        return f"{place}: {words}" if place else f"{words}; {known}"

    def subject(self, given: Json) -> str:
        """What a call is about, for permission rules: its first argument, as text."""
        held = given.get(self.names[0]) if self.names else None
        return held if isinstance(held, str) else "" if held is None else _as_json(held)


def _hints(function: Function, name: str) -> Json:
    """The annotations of a function, or of the method that calls an object."""
    plain = inspect.isroutine(function)
    try:
        return get_type_hints(function if plain else function.__call__, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise BadInput(f"the annotations of the tool {name!r} cannot be read: {error}") from None


def _hint(parameter: inspect.Parameter, hints: Json, name: str) -> Any:
    where = f"the parameter {parameter.name!r} of the tool {name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise BadInput(f"{where} takes anything; name each parameter on its own")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise BadInput(f"{where} has no name that can be used; leave out the /")
    if parameter.name not in hints:
        raise BadInput(f"{where} has no type; write one, such as {parameter.name}: str")
    return _described(hints[parameter.name])


def _described(hint: Any) -> Any:
    """A hint whose words, if it was annotated with some, are a description."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    kept = tuple(
        msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes
    )
    return Annotated[(kind, *kept)]


def _schema(shape: type, defaults: Json, name: str) -> Json:
    try:
        _, parts = msgspec.json.schema_components((shape,), ref_template=_REFS)
    except TypeError as error:
        cause = str(error).splitlines()[-1]
        raise BadInput(f"the tool {name!r} takes what JSON cannot hold: {cause}") from None
    schema = cast("Json", _inlined(parts.pop("Input"), parts, ()))
    schema.pop("title")
    for field, value in defaults.items():
        if isinstance(value, _PLAIN):
            schema["properties"][field].setdefault("default", value)
    if _REFS.format(name="") in str(schema):  # a type that holds itself
        schema["$defs"] = {key: _inlined(part, parts, (key,)) for key, part in parts.items()}
    return schema


def _inlined(node: Any, parts: Json, within: tuple[str, ...]) -> Any:
    """A schema with its parts in place, as not every provider follows references.

    What holds itself stays a reference.
    """
    if isinstance(node, list):
        return [_inlined(one, parts, within) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("Json", node)
    key = str(fields.get("$ref", "")).removeprefix(_REFS.format(name=""))
    if key in parts and key not in within:
        beside = {name: held for name, held in fields.items() if name != "$ref"}
        return _inlined(parts[key], parts, (*within, key)) | beside
    made = {name: _inlined(held, parts, within) for name, held in fields.items()}
    values = made.get("enum")
    if isinstance(values, list) and all(isinstance(one, str) for one in cast("list[Any]", values)):
        made.setdefault("type", "string")  # Gemini wants it said
    return made


# --- the call ------------------------------------------------------------------------------


def _caller(
    function: Function, taken: _Signature
) -> Callable[[Json, Context], Awaitable[ToolOutput]]:
    inner = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"the tool {taken.name!r} yields; return what it gives as a whole")

    async def call(given: Json, context: Context) -> ToolOutput:
        arguments = taken.converted(given) | dict.fromkeys(taken.contexts, context)
        if awaits:
            return output_of(await function(**arguments))
        return await run_in_thread(lambda: _given(function, arguments))

    return call


def _given(function: Function, arguments: Json) -> ToolOutput:
    try:
        return output_of(function(**arguments))
    except BaseException as error:  # noqa: BLE001 - no coroutine can raise all that a call can
        return failure(error)


def output_of(value: object) -> ToolOutput:
    """What a tool returned, as an output."""
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
        return _said(value) or f"[{type(value).__name__}]"


def failure(error: BaseException) -> ToolOutput:
    """What a tool raised, as an output: one line that says what and where, and no traceback."""
    if isinstance(error, ToolRefusal | FoldmarkError):  # said for people already
        return ToolOutput(text=str(error) or "refused", error=True)
    cause = " ".join(_said(error).split())[:_LONGEST_CAUSE]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    kind = type(error).__name__
    return ToolOutput(text=f"{kind}: {cause}{place}" if cause else f"{kind}{place}", error=True)


def _said(thing: object) -> str:
    try:
        return str(thing)
    except Exception:  # noqa: BLE001 - what is a stranger's may fail even at this
        return ""
