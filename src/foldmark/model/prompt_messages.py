"""What a model is shown: messages of three roles, before a wire's codec turns them into requests.

Their JSON is the neutral form in which OpenCode measures a tail.
"""

from collections.abc import Iterator
from typing import Any, cast

from .values import Frozen, Json, encode, parse_json

RAW = "raw"  # in what a codec keeps of a block: the block as it came


class Block(Frozen, tag_field="type", omit_defaults=True, rename="camel"):
    """A piece of a shown message, with what its own provider wants back of it."""

    provider_options: Any = None


class Text(Block, tag="text"):
    """Words."""

    text: str


class Reasoning(Block, tag="reasoning"):
    """The model's own thinking."""

    text: str


class Media(Block, tag="file"):
    """A file."""

    data: str
    media_type: str
    filename: str | None = None


class Call(Block, tag="tool-call"):
    """A call of a tool."""

    tool_call_id: str
    tool_name: str
    input: Json


class Output(Frozen):
    """What a tool gave back: text, or the text of an error."""

    type: str
    value: str


class Result(Block, tag="tool-result"):
    """The result of a call."""

    tool_call_id: str
    tool_name: str
    output: Output
    attachments: tuple[Media, ...] = ()


class _Prompt(Frozen, tag_field="role", omit_defaults=True):
    """A message as a model is shown it; `wire` is what its own wire said beside the content."""

    wire: Any = None

    @property
    def role(self) -> str:
        """Whose side it stands on: user, assistant or tool."""
        return str(self.__struct_config__.tag)


class UserMessage(_Prompt, tag="user"):
    """The user's side."""

    content: tuple[Text | Media, ...]


class AssistantMessage(_Prompt, tag="assistant"):
    """The model's side."""

    content: tuple[Text | Media | Reasoning | Call, ...]


class ToolMessage(_Prompt, tag="tool"):
    """The results of the calls of the message before it, in their order."""

    content: tuple[Result, ...]


PromptMessage = UserMessage | AssistantMessage | ToolMessage


class ToolDeclaration(Frozen):
    """A tool as requests declare it: its name, what it is for, the JSON schema of its input."""

    name: str
    description: str
    schema: Json


def neutral_json(message: PromptMessage) -> str:
    """The JSON of a message, without blocks as they came, which say the same a second time."""
    text = encode(message).decode()
    if f'"{RAW}":' not in text:
        return text
    return encode(_without_raw(parse_json(text.encode()), within=False)).decode()


def _without_raw(value: Any, *, within: bool) -> Any:
    """The same without what codecs keep under RAW within the options of a provider."""
    if isinstance(value, list):
        return [_without_raw(item, within=within) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found: Json = {}
    for name, held in cast("Json", value).items():
        if within and name == RAW:
            continue
        lean = _without_raw(held, within=within or name == "providerOptions")
        if lean != {} or held == {}:
            found[name] = lean
    return found


def message_texts(message: PromptMessage) -> Iterator[str]:
    """All that a message says: words, thoughts, what calls were given and gave back."""
    for block in message.content:
        match block:
            case Text() | Reasoning():
                yield block.text
            case Call():
                for held in block.input.values():
                    yield held if isinstance(held, str) else encode(held).decode()
            case Result():
                yield block.output.value
            case _:
                pass
