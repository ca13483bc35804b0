"""Option groups: a command takes frozen dataclasses whose fields typer sees as options.

This module does not know what the options mean.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

Command = Callable[..., None]


def option(names: str, help: str, *, default: Any = None, **more: Any) -> Any:  # noqa: A002 - typer's name
    """A dataclass field for an option: `option("-o --output FILE", "Where to write.")`.

    A last name without a dash is the placeholder for the value.
    """
    flags = [name for name in names.split() if name.startswith("-")]
    value = [name for name in names.split() if not name.startswith("-")]
    info = typer.Option(*flags, metavar=value[0] if value else "", help=help, **more)
    if isinstance(default, list):
        return field(default_factory=list[str], metadata={"option": info})
    return field(default=default, metadata={"option": info})


def flag(names: str, help: str) -> Any:  # noqa: A002 - typer's name
    """A dataclass field for an option without a value, off by default."""
    return field(default=False, metadata={"option": switch(names, help)})


def switch(names: str, help: str) -> Any:  # noqa: A002 - typer's name
    """Annotation for an option without a value."""
    return typer.Option(*names.split(), metavar="", help=help)


def argument(name: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's name
    """Annotation for a positional argument that the help shows under this name."""
    return typer.Argument(metavar=name, help=help, **more)


def typer_command(command: Command) -> Command:
    """The command with each field of its option groups as a typer option."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _parameters(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name]))

    def invoke(**values: Any) -> None:
        for name, group in groups.items():
            own = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**own)
        command(**values)

    invoke.__doc__ = help_and_example(command)[0]
    invoke.__annotations__ = {item.name: item.annotation for item in parameters}
    invoke.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess] - as inspect documents it
    return invoke


def help_and_example(command: Command) -> tuple[str, str]:
    """The description in a command's docstring, and its example with everything after it."""
    texts = [text.replace("\n", " ") for text in (inspect.getdoc(command) or "").split("\n\n")]
    first = next(index for index, text in enumerate(texts) if text.startswith("Example: "))
    return "\n\n".join(texts[:first]), "\n\n".join(texts[first:])


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group)
    for option_field in fields(group):
        factory = option_field.default_factory
        yield inspect.Parameter(
            option_field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option_field.default if factory is MISSING else factory(),
            annotation=Annotated[hints[option_field.name], option_field.metadata["option"]],
        )
