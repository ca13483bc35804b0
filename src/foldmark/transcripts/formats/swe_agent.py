"""SWE-agent: a `.traj` file, one JSON document per run.

Facts of this format: `history` is the session. The steps of `trajectory` repeat it, in newer files
once per step; only the last observation may be new. In runs without function calls, a reply has its
command in its text and again in `action`, and the user message that follows is the output. A
demonstration is a message with the role of the user.
"""

from contextlib import suppress
from typing import Any

from msgspec import Struct

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, Pending, TextPart, ToolPart
from foldmark.model.values import Json, decoder, parse_json
from foldmark.wire.anthropic import read_block
from foldmark.wire.codec import objects, subobject, text_at
from foldmark.wire.openai_chat import OpenAIChat

from ..build import (
    FormatReader,
    as_list,
    as_object,
    marked_synthetic,
    provider_and_model,
    text_or_empty,
)
from ..source import Head, Record
from ._runs import AgentRun, find_command, split_at_command

_NAME = "swe-agent"
# SWE-agent's own commands in runs without function calls; all others are shell commands.
_COMMANDS = frozenset(
    (
        *("open", "goto", "create", "edit", "insert", "append", "view", "submit", "scroll_up"),
        *("scroll_down", "search_dir", "search_file", "find_file", "str_replace_editor"),
        *("filemap", "exit_forfeit", "rewrite", "undo_edit"),
    )
)
_wire = OpenAIChat()


class _Observation(Struct, gc=False):
    """One step of the trajectory, without the messages that it repeats."""

    observation: Any = None


class _Trajectory(Struct, gc=False):
    """A whole file."""

    history: list[Json]
    trajectory: list[_Observation] | None = None
    info: Any = None
    replay_config: Any = None


_decode = decoder(_Trajectory)


class SweAgent(FormatReader):
    """Reads a file of SWE-agent."""

    name = _NAME
    about = "SWE-agent, .traj"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        if not {"history", "trajectory", "info"} <= head.fields.keys():
            return False
        return any("role" in as_object(item) for item in head.first_items("history", 1))

    def decode(self, record: Record) -> _Trajectory:
        """Return the run without the repeated messages, which are most of a file."""
        return _decode(record.data)

    def read(self, record: _Trajectory) -> None:
        """Add a run as a session."""
        config, about = _config(record.replay_config), as_object(record.info)
        run = _SweAgentRun(self, subobject(config, "problem_statement").get("id"), record.history)
        run.model = provider_and_model(subobject(subobject(config, "agent"), "model").get("name"))
        run.read_all("history", about, version=about.get("swe_agent_version"))
        run.end(record.trajectory or [])


class _SweAgentRun(AgentRun):
    def read(self, raw: Json, id: str) -> None:
        """Add a message of the history under this id."""
        role, content = text_at(raw, "role"), raw.get("content")
        if role == "assistant":
            self._reply(raw, id)
        elif call := _call_id(raw) or (_may_be_output(raw) and next(iter(self.pending), "")):
            self.add_output(call, content, None)
        else:
            parts = _wire.read({"role": "user", "content": content}).parts
            is_synthetic = raw.get("is_demo") is True or role != "user"
            self.add_user(id, marked_synthetic(parts) if is_synthetic else parts, None)

    def end(self, steps: list[_Observation]) -> None:
        """Add the last output, which older versions write only into the trajectory."""
        if self.pending and steps and isinstance(steps[-1].observation, str):
            self.add_output(self.pending[-1], steps[-1].observation, None)
        self.flush()

    def _reply(self, raw: Json, id: str) -> None:
        content, calls = raw.get("content"), raw.get("tool_calls")
        blocks = objects(raw.get("thinking_blocks") or [], "'thinking_blocks'")
        parts: tuple[AnyPart, ...] = tuple(map(read_block, blocks))
        action = "" if calls else text_or_empty(raw.get("action")).strip()
        if action and isinstance(content, str):
            parts += _with_command(content, action, f"{id}-call")
        else:
            message = {"role": "assistant", "content": content or None}
            parts += _wire.read({**message, "tool_calls": calls} if calls else message).parts
        self.add_reply(id, parts, None)


def _with_command(text: str, action: str, call_id: str) -> tuple[AnyPart, ...]:
    """The parts of a reply with a command; a text that has it in another form stays whole."""
    word = action.split(None, 1)[0]
    tool = word if word in _COMMANDS else "bash"
    span = find_command(text, action)
    if span is not None:
        return split_at_command(text, span, _NAME, tool, call_id)
    call = ToolPart(tool=tool, call_id=call_id, state=Pending(input={"command": action}))
    return (TextPart(text=text), call)


def _call_id(item: Json) -> str:
    """The id of the call whose result a message is, or ""; a message never has several."""
    return text_or_empty(next(iter(as_list(item.get("tool_call_ids"))), ""))


def _may_be_output(item: Json) -> bool:
    kind = item.get("message_type")
    return item.get("role") in ("user", "tool") and kind in (None, "observation")


def _config(value: object) -> Json:
    """The configuration of a run, which some versions write as JSON inside a text."""
    if isinstance(value, str):
        with suppress(BadInput):
            value = parse_json(value.encode("utf-8", "replace"))
    return as_object(value)
