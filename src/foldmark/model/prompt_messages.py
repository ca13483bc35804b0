"""The messages that a model is shown, in three roles, before a codec writes an API request.

Their JSON is the neutral form in which OpenCode measures a tail.
"""

from collections.abc import Iterator
from typing import Any, cast

from .values import Frozen, Json, encode, parse_json

RAW = "raw"  # key in a block's provider options: the unchanged original block


class Block(Frozen, tag_field="type", omit_defaults=True, rename="camel"):
    """A piece of a message, with the data that its own provider expects back."""

    provider_options: Any = None


class Text(Block, tag="text"):
    """Text of the user or the model."""

    text: str


class Reasoning(Block, tag="reasoning"):
    """The model's own reasoning."""

    text: str


class Media(Block, tag="file"):
    """A file."""

    data: str
    media_type: str
    filename: str | None = None


class Call(Block, tag="tool-call"):
    """A tool call."""

    tool_call_id: str
    tool_name: str
    input: Json


class Output(Frozen):
    """The output of a tool: text, or the text of an error."""

    type: str
    value: str


class Result(Block, tag="tool-result"):
    """The result of a tool call."""

    tool_call_id: str
    tool_name: str
    output: Output
    attachments: tuple[Media, ...] = ()


class _Prompt(Frozen, tag_field="role", omit_defaults=True):
    """A message in a prompt; `wire` has the fields of its API format beside the content."""

    wire: Any = None

    @property
    def role(self) -> str:
        """The role: user, assistant or tool."""
        return str(self.__struct_config__.tag)


class UserMessage(_Prompt, tag="user"):
    """A message of the user."""

    content: tuple[Text | Media, ...]


class AssistantMessage(_Prompt, tag="assistant"):
    """A message of the model."""

    content: tuple[Text | Media | Reasoning | Call, ...]


class ToolMessage(_Prompt, tag="tool"):
    """The results of the previous message's tool calls, in the same order."""

    content: tuple[Result, ...]


PromptMessage = UserMessage | AssistantMessage | ToolMessage


class ToolDeclaration(Frozen):
    """A tool as requests declare it: its name, purpose, and the JSON schema of its input."""

    name: str
    description: str
    schema: Json


def neutral_json(message: PromptMessage) -> str:
    """The JSON of a message without its RAW blocks, which repeat the same content."""
    text = encode(message).decode()
    if f'"{RAW}":' not in text:
        return text
    return encode(_without_raw(parse_json(text.encode()), within=False)).decode()


def _without_raw(value: Any, *, within: bool) -> Any:
    """The value without the entries that codecs store under RAW in provider options."""
    if isinstance(value, list):
        return [_without_raw(item, within=within) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    result: Json = {}
    for name, item in cast("Json", value).items():
        if within and name == RAW:
            continue
        lean = _without_raw(item, within=within or name == "providerOptions")
        if lean != {} or item == {}:
            result[name] = lean
    return result


def message_texts(message: PromptMessage) -> Iterator[str]:
    """All texts of a message: text, reasoning, and the inputs and outputs of tool calls."""
    for block in message.content:
        match block:
            case Text() | Reasoning():
                yield block.text
            case Call():
                for value in block.input.values():
                    yield value if isinstance(value, str) else encode(value).decode()
            case Result():
                yield block.output.value
            case _:
                pass
