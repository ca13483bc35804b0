"""mini-swe-agent: a `.traj.json` file, one JSON document for one run.

Facts of this format: the first version has no function calling, so a command stands in a fenced
block of the answer (exactly one, or the program complains), and the message of the user that
follows is its output. The second has real calls, of OpenAI's chat or of its Responses API. What
was measured and thought is in `extra`. The last output is what the run hands in; the second
version gives it the role `exit`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from foldmark.messages import (
    AnyPart,
    Message,
    Origin,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
)
from foldmark.values import Extra, Json
from foldmark.wire.model import Answer, options, without
from foldmark.wire.openai_chat import OpenAIChat
from foldmark.wire.openai_responses import OpenAIResponses

from .fenced import Place, enclosed, parted, place_of
from .format import Format, Opened, Step, Tally, decoder
from .litellm import measured, named_model
from .making import assistant_message, moment, user_message, with_info
from .source import Head
from .woven import Woven

_NAME = "mini-swe-agent"
_FACTS = ("exit_status", "model_stats")  # of a run, small
_ENCLOSING = (
    ("```bash", "\n```"),
    ("```mswea_bash_command", "\n```"),
    ("<mswea_bash_command>", "</mswea_bash_command>"),
)
_THOUGHTS = ("reasoning", "reasoning_content")
_chat, _responses = OpenAIChat(), OpenAIResponses()


class Run(Struct, gc=False):
    """A whole file."""

    messages: list[Json]
    info: Any = None
    instance_id: Any = None


_decode = decoder(Run)


class MiniSweAgent:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for runs that do not name their task."""
        self.decode = _decode
        self.tally = Tally()
        self._stem = Path(name).stem.removesuffix(".traj")

    def take(self, record: Run, line: int) -> Iterator[Step]:
        """What a run says."""
        self.tally.messages += len(record.messages)
        session = record.instance_id
        if not isinstance(session, str) or not session:
            session = self._stem if line == 1 else f"{self._stem}-{line}"
        info = options({"": record.info}, "")
        prompts = _prompts(record.messages)
        yield Opened(info=_info(info, session, prompts), extra=_facts(info))
        wire = _responses if any(map(_is_response, record.messages)) else _chat
        model = named_model(_config(info, "model").get("model_name"))
        conversation = _Conversation(model, Woven(wire.key, self.tally))
        for number, message in enumerate(record.messages[len(prompts) :], len(prompts)):
            yield from conversation.take(message, f"{session}-{number}")
        yield from conversation.end()

    def end(self) -> Iterator[Step]:
        """Nothing more."""
        return iter(())


class _Conversation:
    """The messages of one run."""

    def __init__(self, model: tuple[str, str], woven: Woven) -> None:
        self._model = model if any(model) else None
        self._woven = woven
        self._open: list[str] = []  # calls that wait for their outputs
        self._refused = False  # whether the last answer was not of the form that is wanted

    def take(self, message: Json, name: str) -> Iterator[Step]:
        role, extra = message.get("role"), options(message, "extra")
        at = moment(extra.get("timestamp") or message.get("timestamp"))
        if _is_response(message):
            yield from self._reply(message, extra, name, at)
        elif role == "assistant":
            yield from self._said(message, extra, name, at)
        elif role == "tool" or message.get("type") == "function_call_output":
            wire = _chat if role == "tool" else _responses
            for answer in wire.read(without(message, "extra")).answers:
                yield from self._answer(answer, at)
        elif self._open and role in ("user", "exit") and not extra.get("interrupt_type"):
            yield from self._answer(_output(self._open[0], message), at)
        else:
            yield from self._told(message, name, at)

    def end(self) -> Iterator[Step]:
        yield from self._woven.flush()

    def _answer(self, answer: Answer, at: int | None) -> Iterator[Step]:
        if answer.call_id in self._open:
            self._open.remove(answer.call_id)
        yield from self._woven.answer(answer, at)

    def _told(self, message: Json, name: str, at: int | None) -> Iterator[Step]:
        """The task, a complaint of the program, or why it ended."""
        wire = _responses if message.get("type") == "message" else _chat
        is_exit = message.get("role") == "exit"
        given = without(message, "extra", "timestamp")
        parts = wire.read({**given, "role": "user"} if is_exit else given).parts
        if self._refused or is_exit:
            parts = tuple(_by_program(part) for part in parts)
        if any(not isinstance(part, TextPart) or part.text for part in parts):
            yield from self._woven.add(user_message(name, parts, at))

    # --- the model ---

    def _add(self, message: Message, cost: object) -> Iterator[Step]:
        calls = [part.call_id or "" for part in message.parts if isinstance(part, ToolPart)]
        self._open, self._refused = calls, not calls
        if isinstance(cost, int | float) and not isinstance(cost, bool):
            message = with_info(message, cost=cost)
        yield from self._woven.add(message)

    def _said(self, message: Json, extra: Json, name: str, at: int | None) -> Iterator[Step]:
        response = options(extra, "response")
        usage = response.get("usage")
        text = message.get("content")
        is_spoken = isinstance(text, str) and not message.get("tool_calls")
        place = _place(text, extra) if is_spoken else None
        if place is not None:
            parts = parted(text, place, key=_NAME, tool="bash", call_id=f"{name}-call")
        else:
            parts = _chat.read(without(message, "extra", "timestamp")).parts
        said = assistant_message(
            name,
            (*_thoughts(response, parts), *parts),
            at or moment(response.get("created")),
            model=self._model or named_model(response.get("model")),
            tokens=measured(usage),
        )
        yield from self._add(said, extra.get("cost", options(response, "usage").get("cost")))

    def _reply(self, message: Json, extra: Json, name: str, at: int | None) -> Iterator[Step]:
        """A whole response of the Responses API."""
        reply = _responses.read_reply(without(message, "extra"))
        said = assistant_message(
            name,
            reply.read.parts,
            at or moment(message.get("created_at")),
            model=self._model or named_model(reply.model),
            tokens=reply.tokens,
            finish=reply.finish,
        )
        yield from self._add(said, extra.get("cost"))


def _is_response(message: Json) -> bool:
    return message.get("object") == "response"


def _place(text: str, extra: Json) -> Place | None:
    """Where the one command of an answer stands; the second version tells what it is."""
    match extra.get("actions"):
        case [{"command": str(command)}] if command.strip():
            return place_of(text, command.strip())
        case _:
            found = [place for pair in _ENCLOSING for place in enclosed(text, *pair)]
            return found[0] if len(found) == 1 else None


def _thoughts(response: Json, parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    """What the model thought, where the message itself does not tell it."""
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        return ()
    message = options(cast("list[object]", choices)[0], "message")
    told = {name: message[name] for name in _THOUGHTS if message.get(name)}
    if not told or any(isinstance(part, ReasoningPart) for part in parts):
        return ()
    return _chat.read({"role": "assistant", "content": None, **told}).parts


def _output(call: str, message: Json) -> Answer:
    given = {"role": "tool", "tool_call_id": call, "content": message.get("content")}
    if isinstance(given["content"], str):
        return Answer(call_id=call, output=given["content"], raw=given)
    return _chat.read(given).answers[0]


def _by_program(part: AnyPart) -> AnyPart:
    return replace(part, synthetic=True) if isinstance(part, TextPart) else part


# --- beside the messages -------------------------------------------------------------------


def _prompts(messages: list[Json]) -> list[str]:
    """The system prompts that lead a run."""
    found: list[str] = []
    for message in messages:
        if message.get("role") != "system":
            break
        parts = _chat.read(without(message, "extra")).parts
        found.append("\n".join(part.text for part in parts if isinstance(part, TextPart)))
    return found


def _info(info: Json, session: str, prompts: list[str]) -> SessionInfo:
    folder, version = _config(info, "environment").get("cwd"), info.get("mini_version")
    return SessionInfo(
        id=session,
        title=session,
        directory=folder if isinstance(folder, str) and folder else UNSET,
        version=version if isinstance(version, str) else UNSET,
        origin=Origin(system="\n\n".join(prompts)) if prompts else UNSET,
    )


def _config(info: Json, of: str) -> Json:
    return options(options(info, "config"), of)


def _facts(info: Json) -> Extra | UnsetType:
    facts = {name: info[name] for name in _FACTS if info.get(name) is not None}
    return Extra({_NAME: facts}) if facts else UNSET


def _recognises(head: Head) -> bool:
    if "messages" not in head.fields:
        return False
    told = head.field("trajectory_format")
    return isinstance(told, str) and told.startswith(_NAME)


FORMAT = Format(
    name=_NAME,
    about="mini-swe-agent, .traj.json",
    recognises=_recognises,
    importer=MiniSweAgent,
)
