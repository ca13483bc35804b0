"""mini-swe-agent: a `.traj.json` file, one JSON document per run.

Facts of this format: version 1 has no function calls. A reply has its command in a fenced block
(exactly one, or the program complains), and the user message that follows is the output. Version 2
has calls of OpenAI's Chat or Responses API. Usage and reasoning are in `extra`. The last output is
the submission of the run; in version 2 its role is `exit`.
"""

from typing import Any

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, ReasoningPart, TextPart
from foldmark.model.values import Json
from foldmark.wire.codec import ReadResult, objects, subobject
from foldmark.wire.openai_chat import OpenAIChat, usage_tokens
from foldmark.wire.openai_responses import OpenAIResponses

from ..build import (
    FormatReader,
    as_list,
    as_object,
    marked_synthetic,
    milliseconds,
    number_or_unset,
    provider_and_model,
)
from ..source import Head
from ._runs import AgentRun, CommandSpan, enclosed_commands, find_command, split_at_command

_NAME = "mini-swe-agent"
# What encloses a command; each run is configured for one of these.
_ENCLOSING = (
    ("```bash", "\n```"),
    ("```mswea_bash_command", "\n```"),
    ("<mswea_bash_command>", "</mswea_bash_command>"),
)
_THOUGHTS = ("reasoning", "reasoning_content")
_REPLY_FIELDS = ("tool_calls", *_THOUGHTS, "reasoning_details", "thinking_blocks")
_RESPONSE_FIELDS = ("output", "usage", "model")
_CHAT, _RESPONSES = OpenAIChat(), OpenAIResponses()


class MiniSweAgent(FormatReader):
    """Reads a file of mini-swe-agent."""

    name = _NAME
    about = "mini-swe-agent, .traj.json"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        if "messages" not in head.fields:
            return False
        format = head.field("trajectory_format")
        return isinstance(format, str) and format.startswith(_NAME)

    def read(self, record: Json) -> None:
        """Add a run as a session."""
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
    def read(self, raw: Json, id: str) -> None:
        """Add a message of the run under this id."""
        if raw.get("role") == "assistant":
            self._reply(raw, id)
        elif _is_response(raw):
            self._response(raw, id)
        elif raw.get("role") == "tool":
            self.add_output(raw.get("tool_call_id"), raw.get("content"), _at(raw))
        elif raw.get("type") == "function_call_output":
            self.end_call(_output(raw), _at(raw))
        elif self.pending and _is_output(raw):
            self.add_output(self.pending[0], raw.get("content"), _at(raw))
        else:
            self._prompt(raw, id)

    def _prompt(self, raw: Json, id: str) -> None:
        """Add the task, a complaint of the program, or the reason for which the run ended."""
        is_exit = raw.get("role") == "exit"
        wire = _RESPONSES if raw.get("type") == "message" else _CHAT
        role = "user" if is_exit else raw.get("role")
        parts = wire.read({"role": role, "content": raw.get("content")}).parts
        if not self.has_called or is_exit:  # the program complains of a reply without a command
            parts = marked_synthetic(parts)
        if not all(isinstance(part, TextPart) and not part.text for part in parts):
            self.add_user(id, parts, _at(raw))

    # --- the model ---

    def _reply(self, raw: Json, id: str) -> None:
        content, extra = raw.get("content"), subobject(raw, "extra")
        response = subobject(extra, "response")
        span = None if raw.get("tool_calls") else _command_span(content, extra.get("actions"))
        if span is None or not isinstance(content, str):
            fields = {name: value for name in _REPLY_FIELDS if (value := raw.get(name))}
            parts = _CHAT.read({"role": "assistant", "content": content or None, **fields}).parts
        else:
            parts = split_at_command(content, span, _NAME, "bash", f"{id}-call")
        self.add_reply(
            id,
            _with_thoughts(parts, response),
            _at(raw) or milliseconds(response.get("created")),
            model=response.get("model"),
            tokens=usage_tokens(response.get("usage") or None),
            cost=number_or_unset(extra.get("cost") or subobject(response, "usage").get("cost")),
        )

    def _response(self, raw: Json, id: str) -> None:
        """Add a complete Responses API response."""
        reply = _RESPONSES.read_reply({name: raw.get(name) for name in _RESPONSE_FIELDS})
        self.add_reply(
            id,
            reply.message.parts,
            _at(raw) or milliseconds(raw.get("created_at")),
            model=reply.model,
            tokens=reply.tokens,
            cost=number_or_unset(subobject(raw, "extra").get("cost")),
        )


# --- messages ------------------------------------------------------------------------------


def _at(raw: Json) -> int | None:
    """The time of a message."""
    return milliseconds(subobject(raw, "extra").get("timestamp") or raw.get("timestamp"))


def _is_response(raw: Json) -> bool:
    """Whether a message is a complete Responses API response."""
    return raw.get("object") == "response"


def _is_output(raw: Json) -> bool:
    """Whether a message can be the output of a command; an interruption is marked as such."""
    interruption = subobject(raw, "extra").get("interrupt_type")
    return raw.get("role") in ("user", "exit") and not interruption


def _output(raw: Json) -> ReadResult:
    """The result of a call of the Responses API."""
    item = {name: raw.get(name) for name in ("type", "call_id", "output")}
    results = _RESPONSES.read(item).results
    if not results:
        raise BadInput("a function_call_output has no call_id")
    return results[0]


def _command_span(text: Any, actions: Any) -> CommandSpan | None:
    """The position of a reply's only command, which version 2 names in `actions`; else None."""
    if not isinstance(text, str):
        return None
    match actions:
        case [{"command": str(command)}] if command.strip():
            return find_command(text, command.strip())
        case _:
            pass
    for opening, closing in _ENCLOSING:
        if spans := enclosed_commands(text, opening, closing):
            return spans[0] if len(spans) == 1 else None
    return None


def _with_thoughts(parts: tuple[AnyPart, ...], response: Json) -> tuple[AnyPart, ...]:
    """The parts, preceded by the response's reasoning unless they have reasoning themselves."""
    message = subobject(next(iter(as_list(response.get("choices"))), None), "message")
    thought = next((value for name in _THOUGHTS if (value := message.get(name))), None)
    if not isinstance(thought, str) or any(isinstance(part, ReasoningPart) for part in parts):
        return parts
    return (ReasoningPart(text=thought), *parts)
