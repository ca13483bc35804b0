"""mini-swe-agent: a `.traj.json` file, one JSON document for one run.

Facts of this format: the first version has no function calling, so a command stands in a fenced
block of the answer (exactly one, or the program complains), and the message of the user that
follows is its output. The second has real calls, of OpenAI's chat or of its Responses API. What
was measured and thought is in `extra`. The last output is what the run hands in; the second
version gives it the role `exit`.
"""

from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path

from foldmark.model.messages import Message, TextPart, ToolPart, has_result
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    Opened,
    Step,
    Tally,
    assistant_message,
    moment,
    user_message,
    with_info,
)
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.codec import Answer, options

from . import mini_swe_records as records
from .fenced import Call, parted
from .litellm import named_model
from .mini_swe_records import CHAT, NO_RESPONSE, NOTHING, RESPONSES, Run, Said
from .runs import Names, as_object, by_program, facts, prompted, run_info

_NAME = "mini-swe-agent"
_decode = decoder(Run)


class MiniSweAgent:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for runs that do not name their task."""
        self.decode = _decode
        self.tally = Tally()
        self._stem = Path(name).stem.removesuffix(".traj")
        self._names = Names()

    def take(self, record: Run, line: int) -> Iterator[Step]:
        """What a run says."""
        del line
        self.tally.messages += len(record.messages)
        task = record.instance_id
        session = self._names.once(task if isinstance(task, str) and task else self._stem)
        about = as_object(record.info)
        prompts = prompted((held.role, held.content) for held in record.messages)
        info = run_info(
            session,
            prompts=prompts,
            title=session,
            version=about.get("mini_version"),
            directory=_config(about, "environment").get("cwd"),
        )
        yield Opened(info=info, extra=facts(_NAME, about))
        wire = RESPONSES if any(map(records.is_response, record.messages)) else CHAT
        model = named_model(_config(about, "model").get("model_name"))
        conversation = _Conversation(model, Woven(wire.key, self.tally))
        pairs = zip_longest(record.messages, record.messages[1:])
        for number, (said, after) in islice(enumerate(pairs), len(prompts), None):
            yield from conversation.take(said, after, f"{session}-{number}")
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
        self._is_told = False  # whether the next is an output that was told with its call
        self._is_refused = False  # whether the last answer is not of the form that is wanted

    def take(self, said: Said, after: Said | None, name: str) -> Iterator[Step]:
        if self._is_told:
            self._is_told = False
            return iter(())
        if said.role == "assistant":
            return self._add(self._said(said, after, name))
        if records.is_response(said):
            return self._add(self._reply(said, name))
        if records.is_result(said):
            return self._answer(records.result(said), said)
        if self._open and records.is_output(said):
            return self._answer(records.answer(self._open[0], said), said)
        return self._told(said, name)

    def end(self) -> Iterator[Step]:
        return self._woven.flush()

    def _answer(self, answer: Answer, said: Said) -> Iterator[Step]:
        if answer.call_id in self._open:
            self._open.remove(answer.call_id)
        return self._woven.answer(answer, records.at(said))

    def _told(self, said: Said, name: str) -> Iterator[Step]:
        """The task, a complaint of the program, or why it ended."""
        is_exit = said.role == "exit"
        wire = RESPONSES if said.type == "message" else CHAT
        role = "user" if is_exit else said.role
        parts = wire.read({"role": role, "content": said.content}).parts
        if self._is_refused or is_exit:
            parts = by_program(parts)
        if all(isinstance(part, TextPart) and not part.text for part in parts):
            return iter(())
        return self._woven.add(user_message(name, parts, records.at(said)))

    # --- the model ---

    def _said(self, said: Said, after: Said | None, name: str) -> Message:
        extra = said.extra or NOTHING
        response = extra.response or NO_RESPONSE
        place = None if said.tool_calls else records.place(said.content, extra.actions)
        if place is None:
            parts = records.whole(said)
        else:
            # The output follows as a rule; to tell it at once is faster than to wait for it.
            output = records.output(after)
            self._is_told = output is not None
            parts = parted(said.content, place, Call(_NAME, "bash", f"{name}-call", output))
        usage = response.usage
        message = assistant_message(
            name,
            records.with_thoughts(parts, response),
            records.at(said) or moment(response.created),
            model=self._model or named_model(response.model),
            tokens=usage and usage.tokens(),
        )
        cost = extra.cost or (usage and usage.cost)
        return message if cost is None else with_info(message, cost=cost)

    def _reply(self, said: Said, name: str) -> Message:
        """A whole response of the Responses API."""
        given = {"output": said.output, "usage": said.usage, "model": said.model}
        reply = RESPONSES.read_reply(given)
        message = assistant_message(
            name,
            reply.read.parts,
            records.at(said) or moment(said.created_at),
            model=self._model or named_model(reply.model),
            tokens=reply.tokens,
        )
        cost = said.extra and said.extra.cost
        return message if cost is None else with_info(message, cost=cost)

    def _add(self, message: Message) -> Iterator[Step]:
        calls = [part for part in message.parts if isinstance(part, ToolPart)]
        self._open = [part.call_id or "" for part in calls if not has_result(part)]
        self._is_refused = not calls
        return self._woven.add(message)


def _config(about: Json, of: str) -> Json:
    return options(options(about, "config"), of)


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
