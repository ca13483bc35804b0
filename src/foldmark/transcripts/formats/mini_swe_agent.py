"""mini-swe-agent: a `.traj.json` file, one JSON document for one run.

Facts of this format: the first version has no function calling, so a command stands in a fenced
block of the answer (exactly one, or the program complains), and the message of the user that
follows is its output. The second has real calls, of OpenAI's chat or of its Responses API. What
was measured and thought is in `extra`. The last output is what the run hands in; the second
version gives it the role `exit`.
"""

from itertools import islice, zip_longest
from typing import Any

from msgspec import UNSET

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
    has_result,
)
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    FormatReader,
    Talk,
    UniqueNames,
    as_list,
    as_object,
    by_program,
    located,
    moment,
    named_model,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import Answer, objects, options
from foldmark.wire.openai_chat import OpenAIChat
from foldmark.wire.openai_responses import OpenAIResponses

from ._fenced import FencedCall, FencedOutput, Place, enclosed, parted, place_of
from ._litellm import (
    leading_prompts,
    number_or_none,
    response_tokens,
    run_facts,
    run_info,
)

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
    def recognises(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        if "messages" not in head.fields:
            return False
        told = head.field("trajectory_format")
        return isinstance(told, str) and told.startswith(_NAME)

    def __init__(self, name: str) -> None:
        """Take the file's name, for runs that do not name their task."""
        super().__init__(name)
        self.stem = self.stem.removesuffix(".traj")
        self._names = UniqueNames()

    def read(self, record: Json, line: int) -> None:
        """Tell what a run says."""
        del line
        messages = objects(record.get("messages"), "'messages'")
        self.tally.messages += len(messages)
        task, about = record.get("instance_id"), as_object(record.get("info"))
        session = self._names.once(task if isinstance(task, str) and task else self.stem)
        prompts = leading_prompts(messages)
        config = options(about, "config")
        info = run_info(
            session,
            prompts=prompts,
            version=about.get("mini_version"),
            directory=options(config, "environment").get("cwd"),
        )
        self.key = (_RESPONSES if any(map(_is_response, messages)) else _CHAT).key
        run = _MiniSweRun(self, info, named_model(options(config, "model").get("model_name")))
        run.extra = run_facts(_NAME, about)
        run.open()
        pairs = zip_longest(messages, messages[1:], fillvalue=None)
        for number, (said, after) in islice(enumerate(pairs), len(prompts), None):
            with located(f"messages[{number}]"):
                run.read(said or {}, after, f"{session}-{number}")
        run.flush()


class _MiniSweRun(Talk):
    """The messages of one run."""

    def __init__(self, reader: FormatReader, info: SessionInfo, model: tuple[str, str]) -> None:
        super().__init__(reader, info)
        self._model = model if any(model) else None
        self._unanswered: list[str] = []  # calls that wait for their outputs
        self._is_told = False  # whether the next is an output that was told with its call
        self._is_refused = False  # whether the last answer is not of the form that is wanted

    def read(self, said: Json, after: Json | None, name: str) -> None:
        """Tell what a message says; an answer is told with the output that follows."""
        if self._is_told:
            self._is_told = False
        elif said.get("role") == "assistant":
            self._reply(said, after, name)
        elif _is_response(said):
            self._response(said, name)
        elif said.get("role") == "tool" or said.get("type") == "function_call_output":
            self._result(_result(said), said)
        elif self._unanswered and _is_output(said):
            self._result(_as_answer(self._unanswered[0], said), said)
        else:
            self._prompt(said, name)

    def _result(self, answer: Answer, said: Json) -> None:
        if answer.call_id in self._unanswered:
            self._unanswered.remove(answer.call_id)
        self.answer(answer, _at(said))

    def _prompt(self, said: Json, name: str) -> None:
        """The task, a complaint of the program, or why it ended."""
        is_exit = said.get("role") == "exit"
        wire = _RESPONSES if said.get("type") == "message" else _CHAT
        role = "user" if is_exit else said.get("role")
        parts = wire.read({"role": role, "content": said.get("content")}).parts
        if self._is_refused or is_exit:
            parts = by_program(parts)
        if not all(isinstance(part, TextPart) and not part.text for part in parts):
            self.user(name, parts, _at(said))

    # --- the model ---

    def _reply(self, said: Json, after: Json | None, name: str) -> None:
        content, extra = said.get("content"), options(said, "extra")
        response = options(extra, "response")
        place = None if said.get("tool_calls") else _place(content, extra.get("actions"))
        if place is None or not isinstance(content, str):
            beside = {field: held for field in _BESIDE if (held := said.get(field))}
            parts = _CHAT.read({"role": "assistant", "content": content or None, **beside}).parts
        else:
            # The output follows as a rule; to tell it at once is faster than to wait for it.
            output = _output(after)
            self._is_told = output is not None
            parts = parted(content, place, FencedCall(_NAME, "bash", f"{name}-call", output))
        self._tell(
            name,
            _with_thoughts(parts, response),
            _at(said) or moment(response.get("created")),
            model=self._model or named_model(response.get("model")),
            tokens=response_tokens(response),
            cost=_cost(extra.get("cost") or options(response, "usage").get("cost")),
        )

    def _response(self, said: Json, name: str) -> None:
        """A whole response of the Responses API."""
        given = {field: said.get(field) for field in ("output", "usage", "model")}
        reply = _RESPONSES.read_reply(given)
        self._tell(
            name,
            reply.read.parts,
            _at(said) or moment(said.get("created_at")),
            model=self._model or named_model(reply.model),
            tokens=reply.tokens,
            cost=_cost(options(said, "extra").get("cost")),
        )

    def _tell(self, name: str, parts: tuple[AnyPart, ...], at: int | None, **about: Any) -> None:
        calls = [part for part in parts if isinstance(part, ToolPart)]
        self._unanswered = [part.call_id or "" for part in calls if not has_result(part)]
        self._is_refused = not calls
        self.assistant(name, parts, at, **about)


# --- messages ------------------------------------------------------------------------------


def _cost(told: object) -> Any:
    cost = number_or_none(told)
    return UNSET if cost is None else cost


def _at(said: Json) -> int | None:
    """When a message was made."""
    return moment(options(said, "extra").get("timestamp") or said.get("timestamp"))


def _is_response(said: Json) -> bool:
    """Whether it is a whole response of the Responses API."""
    return said.get("object") == "response"


def _is_output(said: Json) -> bool:
    """Whether it can be what a command gave back; the program tells what interrupts."""
    interrupts = options(said, "extra").get("interrupt_type")
    return said.get("role") in ("user", "exit") and not interrupts


def _output(said: Json | None) -> FencedOutput | None:
    """What a command gave back, where that is a text."""
    if said is None or not isinstance(said.get("content"), str) or not _is_output(said):
        return None
    return FencedOutput(said["content"], _at(said))


def _result(said: Json) -> Answer:
    """The result of a real call."""
    if said.get("role") == "tool":
        return _as_answer(said.get("tool_call_id"), said)
    given = {field: said.get(field) for field in ("type", "call_id", "output")}
    answers = _RESPONSES.read(given).answers
    if not answers:
        raise BadInput("a result names no call")
    return answers[0]


def _as_answer(call: Any, said: Json) -> Answer:
    """A message as the result of a call."""
    given = {"role": "tool", "tool_call_id": call, "content": said.get("content")}
    return _CHAT.read(given).answers[0]


def _place(text: Any, actions: Any) -> Place | None:
    """Where the one command of an answer stands; the second version tells what it is."""
    if not isinstance(text, str):
        return None
    match actions:
        case [{"command": str(command)}] if command.strip():
            return place_of(text, command.strip())
        case _:
            pass
    for opening, closing in _ENCLOSING:
        if found := enclosed(text, opening, closing):
            return found[0] if len(found) == 1 else None
    return None


def _with_thoughts(parts: tuple[AnyPart, ...], response: Json) -> tuple[AnyPart, ...]:
    """What the model thought put first, where the message itself does not tell it."""
    message = options(next(iter(as_list(response.get("choices"))), None), "message")
    told = next((held for name in _THOUGHTS if (held := message.get(name))), None)
    if not isinstance(told, str) or any(isinstance(part, ReasoningPart) for part in parts):
        return parts
    return (ReasoningPart(text=told), *parts)
