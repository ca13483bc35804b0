"""A message of the log with its secrets masked, for those who quote from it."""

from typing import cast

from msgspec.structs import replace

from foldmark.log.log import Entry
from foldmark.model.messages import AnyPart, Completed, Failed, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Json
from foldmark.summary.redaction import masked, masked_value


def masked_entry(entry: Entry) -> Entry:
    """The same entry where nothing in it is secret, else one with notes in those places."""
    parts = tuple(_masked_part(part) for part in entry.message.parts)
    if all(new is old for new, old in zip(parts, entry.message.parts, strict=True)):
        return entry
    return replace(entry, message=replace(entry.message, parts=parts))


def _masked_part(part: AnyPart) -> AnyPart:
    match part:
        case TextPart() | ReasoningPart():
            text = masked(part.text)
            return part if text == part.text else replace(part, text=text)
        case ToolPart():
            return _masked_call(part)
        case _:
            return part


def _masked_call(part: ToolPart) -> ToolPart:
    state = part.state
    given = _masked_values(state.input or {})
    if given != (state.input or {}):
        state = replace(state, input=given)
    match state:
        case Completed(output=output) if (text := masked(output)) != output:
            state = replace(state, output=text)
        case Failed(error=error) if (text := masked(error)) != error:
            state = replace(state, error=text)
        case _:
            pass
    return part if state is part.state else replace(part, state=state)


def _masked_values(held: Json) -> Json:
    return {key: _masked_value(value, key) for key, value in held.items()}


def _masked_value(held: object, name: str = "") -> object:
    match held:
        case str():
            return masked_value(name, held)
        case dict():
            return _masked_values(cast("Json", held))
        case list():
            return [_masked_value(value) for value in cast("list[object]", held)]
        case _:
            return held
