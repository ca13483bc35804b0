"""Option groups: a command takes frozen dataclasses, and typer sees their fields as options.

What the options mean is not known here.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

Command = Callable[..., None]


def option(names: str, help: str, *, default: Any = None, **more: Any) -> Any:  # noqa: A002 - typer's word
    """A field that is an option: `option("-o --output FILE", "Where to write.")`.

    The last of the names is what stands for its value, if it has no dash.
    """
    flags = [name for name in names.split() if name.startswith("-")]
    value = [name for name in names.split() if not name.startswith("-")]
    held = typer.Option(*flags, metavar=value[0] if value else None, help=help, **more)
    if isinstance(default, list):
        return field(default_factory=list[str], metadata={"option": held})
    return field(default=default, metadata={"option": held})


def flag(names: str, help: str) -> Any:  # noqa: A002 - the same
    """A field that is an option without a value, off unless it is given."""
    return option(names, help, default=False)


def argument(name: str, help: str, **more: Any) -> Any:  # noqa: A002 - the same
    """Makes an annotated parameter an argument, shown by this name in the help."""
    return typer.Argument(metavar=name, help=help, **more)


def expanded(command: Command) -> Command:
    """The command as typer takes it: each field of its option groups is an option of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _parameters(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name]))

    def called(**given: Any) -> None:
        for name, group in groups.items():
            own = {field.name: given.pop(field.name) for field in fields(group)}
            given[name] = group(**own)
        command(**given)

    called.__doc__ = help_and_example(command)[0]
    called.__annotations__ = {held.name: held.annotation for held in parameters}
    called.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess] - as inspect documents it
    return called


def help_and_example(command: Command) -> tuple[str, str]:
    """The sentences of a command's docstring, and its example with all that follows, as typed."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    first = next(at for at, text in enumerate(paragraphs) if text.startswith("Example: "))
    example = (text.replace("\n", " ") for text in paragraphs[first:])
    return "\n\n".join(paragraphs[:first]), "\n\n".join(example)


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group)
    for held in fields(group):
        factory = held.default_factory
        yield inspect.Parameter(
            held.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=held.default if factory is MISSING else factory(),
            annotation=Annotated[hints[held.name], held.metadata["option"]],
        )
