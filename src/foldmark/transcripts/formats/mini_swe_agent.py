"""mini-swe-agent: a `.traj.json` file, one JSON document for one run.

Facts of this format: the first version has no function calling, so a command stands in a fenced
block of the answer (exactly one, or the program complains), and the message of the user that
follows is its output. The second has real calls, of OpenAI's chat or of its Responses API. What
was measured and thought is in `extra`. The last output is what the run hands in; the second
version gives it the role `exit`.
"""

from typing import Any

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, ReasoningPart, TextPart
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    FormatReader,
    as_list,
    as_object,
    marked_synthetic,
    milliseconds,
    number_or_unset,
    provider_and_model,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import ReadResult, objects, subobject
from foldmark.wire.openai_chat import OpenAIChat, usage_tokens
from foldmark.wire.openai_responses import OpenAIResponses

from ._runs import AgentRun, CommandSpan, enclosed_commands, find_command, split_at_command

_NAME = "mini-swe-agent"
# A command stands between these; the program looks for one kind only, that which is set up.
_ENCLOSING = (
    ("```bash", "\n```"),
    ("```mswea_bash_command", "\n```"),
    ("<mswea_bash_command>", "</mswea_bash_command>"),
)
_THOUGHTS = ("reasoning", "reasoning_content")
_BESIDE = ("tool_calls", *_THOUGHTS, "reasoning_details", "thinking_blocks")
_CHAT, _RESPONSES = OpenAIChat(), OpenAIResponses()


class MiniSweAgent(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "mini-swe-agent, .traj.json"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        if "messages" not in head.fields:
            return False
        told = head.field("trajectory_format")
        return isinstance(told, str) and told.startswith(_NAME)

    def read(self, record: Json) -> None:
        """Tell what a run says."""
        messages = objects(record.get("messages"), "'messages'")
        about = as_object(record.get("info"))
        config = subobject(about, "config")
        self.key = (_RESPONSES if any(map(_is_response, messages)) else _CHAT).key
        run = _MiniSweRun(self, record.get("instance_id"), messages)
        run.model = provider_and_model(subobject(config, "model").get("model_name"))
        folder = subobject(config, "environment").get("cwd")
        run.read_all("messages", about, version=about.get("mini_version"), directory=folder)
        run.flush()


class _MiniSweRun(AgentRun):
    def read(self, said: Json, name: str) -> None:
        """Tell what a message says."""
        if said.get("role") == "assistant":
            self._reply(said, name)
        elif _is_response(said):
            self._response(said, name)
        elif said.get("role") == "tool":
            self.result(said.get("tool_call_id"), said.get("content"), _at(said))
        elif said.get("type") == "function_call_output":
            self.end_call(_output(said), _at(said))
        elif self.unanswered and _is_output(said):
            self.result(self.unanswered[0], said.get("content"), _at(said))
        else:
            self._prompt(said, name)

    def _prompt(self, said: Json, name: str) -> None:
        """The task, a complaint of the program, or why it ended."""
        is_exit = said.get("role") == "exit"
        wire = _RESPONSES if said.get("type") == "message" else _CHAT
        role = "user" if is_exit else said.get("role")
        parts = wire.read({"role": role, "content": said.get("content")}).parts
        if not self.has_called or is_exit:  # it complains of an answer without a command
            parts = marked_synthetic(parts)
        if not all(isinstance(part, TextPart) and not part.text for part in parts):
            self.add_user(name, parts, _at(said))

    # --- the model ---

    def _reply(self, said: Json, name: str) -> None:
        content, extra = said.get("content"), subobject(said, "extra")
        response = subobject(extra, "response")
        place = None if said.get("tool_calls") else _place(content, extra.get("actions"))
        if place is None or not isinstance(content, str):
            beside = {field: held for field in _BESIDE if (held := said.get(field))}
            parts = _CHAT.read({"role": "assistant", "content": content or None, **beside}).parts
        else:
            parts = split_at_command(content, place, _NAME, "bash", f"{name}-call")
        self.reply(
            name,
            _with_thoughts(parts, response),
            _at(said) or milliseconds(response.get("created")),
            model=response.get("model"),
            tokens=usage_tokens(response.get("usage") or None),
            cost=number_or_unset(extra.get("cost") or subobject(response, "usage").get("cost")),
        )

    def _response(self, said: Json, name: str) -> None:
        """A whole response of the Responses API."""
        given = {field: said.get(field) for field in ("output", "usage", "model")}
        reply = _RESPONSES.read_reply(given)
        self.reply(
            name,
            reply.message.parts,
            _at(said) or milliseconds(said.get("created_at")),
            model=reply.model,
            tokens=reply.tokens,
            cost=number_or_unset(subobject(said, "extra").get("cost")),
        )


# --- messages ------------------------------------------------------------------------------


def _at(said: Json) -> int | None:
    """When a message was made."""
    return milliseconds(subobject(said, "extra").get("timestamp") or said.get("timestamp"))


def _is_response(said: Json) -> bool:
    """Whether it is a whole response of the Responses API."""
    return said.get("object") == "response"


def _is_output(said: Json) -> bool:
    """Whether it can be what a command gave back; the program tells what interrupts."""
    interrupts = subobject(said, "extra").get("interrupt_type")
    return said.get("role") in ("user", "exit") and not interrupts


def _output(said: Json) -> ReadResult:
    """The result of a call of the Responses API."""
    given = {field: said.get(field) for field in ("type", "call_id", "output")}
    answers = _RESPONSES.read(given).results
    if not answers:
        raise BadInput("a result names no call")
    return answers[0]


def _place(text: Any, actions: Any) -> CommandSpan | None:
    """Where the one command of an answer stands; the second version tells what it is."""
    if not isinstance(text, str):
        return None
    match actions:
        case [{"command": str(command)}] if command.strip():
            return find_command(text, command.strip())
        case _:
            pass
    for opening, closing in _ENCLOSING:
        if found := enclosed_commands(text, opening, closing):
            return found[0] if len(found) == 1 else None
    return None


def _with_thoughts(parts: tuple[AnyPart, ...], response: Json) -> tuple[AnyPart, ...]:
    """What the model thought put first, where the message itself does not tell it."""
    message = subobject(next(iter(as_list(response.get("choices"))), None), "message")
    told = next((held for name in _THOUGHTS if (held := message.get(name))), None)
    if not isinstance(told, str) or any(isinstance(part, ReasoningPart) for part in parts):
        return parts
    return (ReasoningPart(text=told), *parts)
