"""SWE-agent: a `.traj` file, one JSON document for one run.

Facts of this format: `history` is the session; the steps of `trajectory` repeat it, in newer files
once more for each step, and of these only the last observation may be new. Runs without function
calling have the command in the answer's text and again in `action`; the message of the user that
follows is its output. A demonstration is shown as if the user had told it.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, Message, Pending, TextPart, ToolPart
from foldmark.model.values import Json, parsed
from foldmark.transcripts.build import Opened, Step, Tally, assistant_message, user_message
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.anthropic import read_block
from foldmark.wire.codec import Answer, objects, options
from foldmark.wire.openai_chat import OpenAIChat

from .fenced import Call, parted, place_of
from .litellm import named_model
from .runs import Names, as_object, by_program, facts, first_of, prompted, run_info

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


class Item(Struct, gc=False):
    """One message of the history."""

    role: str
    content: Any = None
    message_type: Any = None
    is_demo: Any = None
    action: Any = None
    tool_calls: Any = None
    tool_call_ids: Any = None
    thinking_blocks: Any = None


class Done(Struct, gc=False):
    """One step of the trajectory; the messages that it repeats are passed over."""

    observation: Any = None


class Run(Struct, gc=False):
    """A whole file."""

    history: list[Item]
    trajectory: list[Done] | UnsetType | None = UNSET
    info: Any = None
    replay_config: Any = None


_decode = decoder(Run)


class SweAgent:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for runs that do not name their task."""
        self.decode = _decode
        self.tally = Tally()
        self._stem = Path(name).stem
        self._names = Names()

    def take(self, record: Run, line: int) -> Iterator[Step]:
        """What a run says."""
        del line
        self.tally.messages += len(record.history)
        config = _config(record.replay_config)
        task = options(config, "problem_statement").get("id")
        session = self._names.once(task if isinstance(task, str) and task else self._stem)
        about = as_object(record.info)
        prompts = prompted((held.role, held.content) for held in record.history)
        version = about.get("swe_agent_version")
        info = run_info(session, prompts=prompts, title=session, version=version)
        yield Opened(info=info, extra=facts(_NAME, about))
        model = named_model(options(options(config, "agent"), "model").get("name"))
        conversation = _Conversation(session, model, self.tally)
        for number, item in enumerate(record.history[len(prompts) :], len(prompts)):
            yield from conversation.take(item, number)
        yield from conversation.end(record.trajectory or [])

    def end(self) -> Iterator[Step]:
        """Nothing more."""
        return iter(())


class _Conversation:
    """The messages of one run."""

    def __init__(self, session: str, model: tuple[str, str], tally: Tally) -> None:
        self._session = session
        self._model = model
        self._woven = Woven(_wire.key, tally)
        self._open = ""  # the call that waits for its output

    def take(self, item: Item, number: int) -> Iterator[Step]:
        name = f"{self._session}-{number}"
        if item.role == "assistant":
            return self._woven.add(self._said(item, name))
        call = _answered(item) or (self._open if _may_be_output(item) else "")
        if call:
            return self._answer(call, item.content)
        parts = _wire.read({"role": "user", "content": item.content}).parts
        if item.is_demo is True or item.role != "user":
            parts = by_program(parts)
        self._open = ""
        return self._woven.add(user_message(name, parts, None))

    def end(self, steps: list[Done]) -> Iterator[Step]:
        """An older version does not write the output of the last command into the history."""
        if self._open and steps and isinstance(steps[-1].observation, str):
            yield from self._answer(self._open, steps[-1].observation)
        yield from self._woven.flush()

    def _answer(self, call: str, content: Any) -> Iterator[Step]:
        self._open = ""
        given = {"role": "tool", "tool_call_id": call, "content": content}
        if isinstance(content, str):
            return self._woven.answer(Answer(call_id=call, output=content, raw=given), None)
        return self._woven.answer(_wire.read(given).answers[0], None)

    def _said(self, item: Item, name: str) -> Message:
        parts = _thoughts(item)
        action = item.action if isinstance(item.action, str) and not item.tool_calls else ""
        if action.strip() and isinstance(item.content, str):
            parts += _spoken(item.content, action.strip(), f"{name}-call")
        else:
            given: Json = {"role": "assistant", "content": item.content or None}
            if item.tool_calls:
                given["tool_calls"] = item.tool_calls
            parts += _wire.read(given).parts
        calls = [part.call_id for part in parts if isinstance(part, ToolPart)]
        self._open = (calls[-1] or "") if calls else ""
        return assistant_message(name, parts, None, model=self._model)


def _spoken(text: str, action: str, call_id: str) -> tuple[AnyPart, ...]:
    """An answer with a command in its text, which some models write in another form."""
    word = action.split(None, 1)[0]
    tool = word if word in _COMMANDS else "bash"
    place = place_of(text, action)
    if place is not None:
        return parted(text, place, Call(_NAME, tool, call_id))
    call = ToolPart(tool=tool, call_id=call_id, state=Pending(input={"command": action}))
    return (TextPart(text=text), call)


def _thoughts(item: Item) -> tuple[AnyPart, ...]:
    if not item.thinking_blocks:
        return ()
    return tuple(map(read_block, objects(item.thinking_blocks, "'thinking_blocks'")))


def _answered(item: Item) -> str:
    """The call that a message answers by its id; there is never more than one."""
    ids = cast("list[object]", item.tool_call_ids) if isinstance(item.tool_call_ids, list) else []
    return ids[0] if ids and isinstance(ids[0], str) else ""


def _may_be_output(item: Item) -> bool:
    return item.role in ("user", "tool") and item.message_type in (None, "observation")


# --- beside the messages -------------------------------------------------------------------


def _config(held: object) -> Json:
    """How the run was set up; some versions write that as JSON inside a text."""
    if isinstance(held, str):
        with suppress(BadInput):
            held = parsed(held.encode("utf-8", "replace"))
    return as_object(held)


def _recognises(head: Head) -> bool:
    if not {"history", "trajectory", "info"} <= head.fields.keys():
        return False
    return "role" in first_of(head, "history")


FORMAT = Format(
    name=_NAME,
    about="SWE-agent, .traj",
    recognises=_recognises,
    importer=SweAgent,
)
