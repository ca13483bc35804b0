"""SWE-agent: a `.traj` file, one JSON document for one run.

Facts of this format: `history` is the session; the steps of `trajectory` repeat it, in newer files
once more for each step, and of these only the last observation may be new. Runs without function
calling have the command in the answer's text and again in `action`; the message of the user that
follows is its output. A demonstration is shown as if the user had told it.
"""

from contextlib import suppress
from typing import Any

from msgspec import Struct

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, Pending, TextPart, ToolPart
from foldmark.model.values import Json, decoder, parse_json
from foldmark.transcripts.build import (
    FormatReader,
    as_list,
    as_object,
    marked_synthetic,
    provider_and_model,
    text_or_empty,
)
from foldmark.transcripts.source import Head, Record
from foldmark.wire.anthropic import read_block
from foldmark.wire.codec import objects, subobject, text_at
from foldmark.wire.openai_chat import OpenAIChat

from ._runs import AgentRun, find_command, split_at_command

_NAME = "swe-agent"
# Its own commands, where they are called by text; any other line is for the shell.
_COMMANDS = frozenset(
    (
        *("open", "goto", "create", "edit", "insert", "append", "view", "submit", "scroll_up"),
        *("scroll_down", "search_dir", "search_file", "find_file", "str_replace_editor"),
        *("filemap", "exit_forfeit", "rewrite", "undo_edit"),
    )
)
_wire = OpenAIChat()


class _Observation(Struct, gc=False):
    """One step of the trajectory; the messages that it repeats are passed over."""

    observation: Any = None


class _Trajectory(Struct, gc=False):
    """A whole file."""

    history: list[Json]
    trajectory: list[_Observation] | None = None
    info: Any = None
    replay_config: Any = None


_decode = decoder(_Trajectory)


class SweAgent(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "SWE-agent, .traj"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        if not {"history", "trajectory", "info"} <= head.fields.keys():
            return False
        return any("role" in as_object(item) for item in head.first_items("history", 1))

    def decode(self, record: Record) -> _Trajectory:
        """A run; not decoded is what its steps repeat, which is most of a file."""
        return _decode(record.data)

    def read(self, record: _Trajectory) -> None:
        """Tell what a run says."""
        config, about = _config(record.replay_config), as_object(record.info)
        run = _SweAgentRun(self, subobject(config, "problem_statement").get("id"), record.history)
        run.model = provider_and_model(subobject(subobject(config, "agent"), "model").get("name"))
        run.read_all("history", about, version=about.get("swe_agent_version"))
        run.end(record.trajectory or [])


class _SweAgentRun(AgentRun):
    def read(self, said: Json, name: str) -> None:
        """Tell what a message of the history says."""
        role, content = text_at(said, "role"), said.get("content")
        if role == "assistant":
            self._reply(said, name)
        elif call := _answered(said) or (_may_be_output(said) and next(iter(self.unanswered), "")):
            self.result(call, content, None)
        else:
            parts = _wire.read({"role": "user", "content": content}).parts
            is_told = said.get("is_demo") is True or role != "user"
            self.add_user(name, marked_synthetic(parts) if is_told else parts, None)

    def end(self, steps: list[_Observation]) -> None:
        """An older version does not write the output of the last command into the history."""
        if self.unanswered and steps and isinstance(steps[-1].observation, str):
            self.result(self.unanswered[-1], steps[-1].observation, None)
        self.flush()

    def _reply(self, said: Json, name: str) -> None:
        content, calls = said.get("content"), said.get("tool_calls")
        blocks = objects(said.get("thinking_blocks") or [], "'thinking_blocks'")
        parts: tuple[AnyPart, ...] = tuple(map(read_block, blocks))
        action = "" if calls else text_or_empty(said.get("action")).strip()
        if action and isinstance(content, str):
            parts += _with_command(content, action, f"{name}-call")
        else:
            given = {"role": "assistant", "content": content or None}
            parts += _wire.read({**given, "tool_calls": calls} if calls else given).parts
        self.reply(name, parts, None)


def _with_command(text: str, action: str, call_id: str) -> tuple[AnyPart, ...]:
    """An answer with a command in its text, which some models write in another form."""
    word = action.split(None, 1)[0]
    tool = word if word in _COMMANDS else "bash"
    place = find_command(text, action)
    if place is not None:
        return split_at_command(text, place, _NAME, tool, call_id)
    call = ToolPart(tool=tool, call_id=call_id, state=Pending(input={"command": action}))
    return (TextPart(text=text), call)


def _answered(item: Json) -> str:
    """The call that a message answers by its id; there is never more than one."""
    return text_or_empty(next(iter(as_list(item.get("tool_call_ids"))), ""))


def _may_be_output(item: Json) -> bool:
    kind = item.get("message_type")
    return item.get("role") in ("user", "tool") and kind in (None, "observation")


def _config(held: object) -> Json:
    """How the run was set up; some versions write that as JSON inside a text."""
    if isinstance(held, str):
        with suppress(BadInput):
            held = parse_json(held.encode("utf-8", "replace"))
    return as_object(held)
