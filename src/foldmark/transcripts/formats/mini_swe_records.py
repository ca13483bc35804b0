"""The messages of a mini-swe-agent run: their fields, and what each of them is."""

from typing import Any

from msgspec import Struct

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, Number, ReasoningPart
from foldmark.transcripts.build import moment
from foldmark.wire.codec import Answer
from foldmark.wire.openai_chat import OpenAIChat
from foldmark.wire.openai_responses import OpenAIResponses

from .fenced import Output, Place, enclosed, place_of
from .litellm import Response

# A command stands between these; the program looks for one kind only, that which is set up.
_ENCLOSING = (
    ("```bash", "\n```"),
    ("```mswea_bash_command", "\n```"),
    ("<mswea_bash_command>", "</mswea_bash_command>"),
)
_THOUGHTS = ("reasoning", "reasoning_content")
_BESIDE = ("tool_calls", *_THOUGHTS, "reasoning_details", "thinking_blocks")
CHAT, RESPONSES = OpenAIChat(), OpenAIResponses()


class Thought(Struct, gc=False):
    """What a model thought; what it said is in the message itself."""

    reasoning: str | None = None
    reasoning_content: str | None = None


class Choice(Struct, gc=False):
    """One answer of a model."""

    message: Thought | None = None


class Thoughtful(Response, gc=False):
    """A response; the first choice is the answer."""

    choices: list[Choice] | None = None


class Beside(Struct, gc=False):
    """What is said of a message; the model is never shown it."""

    response: Thoughtful | None = None
    actions: Any = None
    cost: Number | None = None
    timestamp: Any = None
    interrupt_type: Any = None


class Said(Struct, gc=False):
    """A message; of the Responses API, a whole response or a result."""

    role: Any = None
    content: Any = None
    extra: Beside | None = None
    timestamp: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    type: Any = None
    object: Any = None
    output: Any = None
    call_id: Any = None
    model: Any = None
    usage: Any = None
    created_at: Any = None


class Run(Struct, gc=False):
    """A whole file."""

    messages: list[Said]
    info: Any = None
    instance_id: Any = None


NOTHING, NO_RESPONSE = Beside(), Thoughtful()


def at(said: Said) -> int | None:
    """When a message was made."""
    return moment((said.extra and said.extra.timestamp) or said.timestamp)


def is_response(said: Said) -> bool:
    """Whether it is a whole response of the Responses API."""
    return said.object == "response"


def is_result(said: Said) -> bool:
    """Whether it is the result of a real call."""
    return said.role == "tool" or said.type == "function_call_output"


def is_output(said: Said) -> bool:
    """Whether it can be what a command gave back; the program tells what interrupts."""
    return said.role in ("user", "exit") and not (said.extra and said.extra.interrupt_type)


def output(said: Said | None) -> Output | None:
    """What a command gave back, where that is a text."""
    if said is None or not isinstance(said.content, str) or not is_output(said):
        return None
    return Output(said.content, at(said))


def result(said: Said) -> Answer:
    """The result of a real call."""
    if said.role == "tool":
        return answer(said.tool_call_id, said)
    given = {"type": said.type, "call_id": said.call_id, "output": said.output}
    answers = RESPONSES.read(given).answers
    if not answers:
        raise BadInput("a result names no call")
    return answers[0]


def answer(call: Any, said: Said) -> Answer:
    """A message as the result of a call."""
    given = {"role": "tool", "tool_call_id": call, "content": said.content}
    return CHAT.read(given).answers[0]


def place(text: Any, actions: Any) -> Place | None:
    """Where the one command of an answer stands; the second version tells what it is."""
    if not isinstance(text, str):
        return None
    match actions:
        case [{"command": str(command)}] if command.strip():
            return place_of(text, command.strip())
        case _:
            return _enclosed(text)


def _enclosed(text: str) -> Place | None:
    for opening, closing in _ENCLOSING:
        if found := enclosed(text, opening, closing):
            return found[0] if len(found) == 1 else None
    return None


def whole(said: Said) -> tuple[AnyPart, ...]:
    """What an answer says, its real calls among it."""
    given = {field: held for field in _BESIDE if (held := getattr(said, field))}
    return CHAT.read({"role": "assistant", "content": said.content or None, **given}).parts


def with_thoughts(parts: tuple[AnyPart, ...], response: Thoughtful) -> tuple[AnyPart, ...]:
    """What the model thought put first, where the message itself does not tell it."""
    message = response.choices[0].message if response.choices else None
    told = message and (message.reasoning or message.reasoning_content)
    if not told or any(isinstance(part, ReasoningPart) for part in parts):
        return parts
    return (ReasoningPart(text=told), *parts)
