"""τ²-bench: the results of a run, one document with its tasks and simulations.

Facts of this format: messages are τ²'s own; arguments are objects, a tool's message names its call
as `id`. The simulated user has tools, too (`requestor` is `user`): what they say is nothing that
the agent sees, so it is kept as ignored text. The policy is the system prompt of every session.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    Message,
    Number,
    Origin,
    Pending,
    SessionInfo,
    TextPart,
    Time,
    ToolPart,
)
from foldmark.model.values import Extra, Json, encode
from foldmark.transcripts.build import (
    Opened,
    Step,
    Tally,
    assistant_message,
    moment,
    note,
    user_message,
    with_info,
)
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.codec import Answer, options
from foldmark.wire.openai_chat import usage_tokens

from .litellm import named_model
from .tau_bench import short, shortened

_NAME = "tau2-bench"


class Called(Struct, gc=False):
    """A call of a tool."""

    name: str
    id: str = ""
    arguments: Any = None
    requestor: str = "assistant"


class Said(Struct, gc=False):
    """A message; that of several tools holds one of each."""

    role: str
    id: str | None = None
    content: Any = None
    tool_calls: list[Called] | None = None
    tool_messages: list["Said"] | None = None
    requestor: str | None = None
    error: bool | None = None
    usage: Any = None
    cost: Any = None
    timestamp: Any = None


class Simulation(Struct, gc=False):
    """One conversation."""

    messages: list[Said]
    id: str | None = None
    task_id: Any = None
    trial: Any = None
    start_time: Any = None
    end_time: Any = None
    termination_reason: Any = None
    reward_info: Json | None = None


class Results(Struct, gc=False):
    """A run."""

    simulations: list[Simulation]
    info: Json
    tasks: list[Json] | None = None


class Tau2Bench:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for simulations without an id."""
        self.decode = decoder(Results)
        self.tally = Tally()
        self._stem = Path(name).stem
        self._names: set[str] = set()

    def take(self, record: Results, line: int) -> Iterator[Step]:
        """All simulations, each a session."""
        del line
        titles = {short(task.get("id")): _title(task) for task in record.tasks or []}
        world = options(record.info, "environment_info")
        policy, tools = world.get("policy"), world.get("tool_defs")
        origin = Origin(system=policy if isinstance(policy, str) else UNSET, tools=tools or UNSET)
        model = named_model(options(record.info, "agent_info").get("llm"))
        for simulation in record.simulations:
            info = SessionInfo(
                id=self._session(simulation),
                title=titles.get(short(simulation.task_id)) or UNSET,
                time=_time(simulation),
                origin=origin,
            )
            yield Opened(info=info, extra=Extra({_NAME: _facts(simulation)}))
            yield from _Talk(info.id, model, self.tally).told(simulation.messages)

    def end(self) -> Iterator[Step]:
        """Nothing more."""
        return iter(())

    def _session(self, simulation: Simulation) -> str:
        task, trial = short(simulation.task_id), short(simulation.trial)
        name = simulation.id or f"{self._stem}-{task}-{trial}"
        if name in self._names:
            name = f"{name}-{len(self._names) + 1}"
        self._names.add(name)
        return name


class _Talk:
    """One simulation's messages."""

    def __init__(self, session: str, model: tuple[str, str], tally: Tally) -> None:
        self._session = session
        self._model = model
        self._tally = tally
        self._woven = Woven(_NAME, tally)
        self._count = 0

    def told(self, messages: list[Said]) -> Iterator[Step]:
        for said in messages:
            self._tally.messages += 1
            yield from self._said(said)
        yield from self._woven.flush()

    def _said(self, said: Said) -> Iterator[Step]:
        at = moment(said.timestamp)
        match said.role:
            case "tool" if said.tool_messages is not None:
                for one in said.tool_messages:
                    yield from self._result(one, at)
            case "tool":
                yield from self._result(said, at)
            case "assistant":
                yield from self._add(self._answer(said, at))
            case "user" | "system":
                yield from self._add(self._heard(said, at))
            case _:
                raise BadInput(f"'{said.role}' is no role of a message here")

    def _add(self, message: Message) -> Iterator[Step]:
        if message.parts:
            yield from self._woven.add(message)

    def _answer(self, said: Said, at: Number | None) -> Message:
        text = _text(said.content)
        words: list[AnyPart] = [TextPart(text=text)] if text else []
        calls = [_call(call) for call in said.tool_calls or []]
        tokens = usage_tokens(said.usage)
        message = assistant_message(
            self._name(), [*words, *calls], at, model=self._model, tokens=tokens
        )
        is_price = isinstance(said.cost, int | float) and not isinstance(said.cost, bool)
        return with_info(message, cost=said.cost) if is_price else message

    def _heard(self, said: Said, at: Number | None) -> Message:
        text = _text(said.content)
        words = note(text) if said.role == "system" else TextPart(text=text)
        own = [_unseen(_call_text(call)) for call in said.tool_calls or []]
        self._tally.calls += len(own)
        return user_message(self._name(), [*([words] if text else []), *own], at)

    def _result(self, said: Said, at: Number | None) -> Iterator[Step]:
        output, call_id = _text(said.content), said.id or ""
        if said.requestor == "user":
            self._tally.results += 1
            yield from self._add(user_message(self._name(), [_unseen(output)], at))
            return
        is_error = said.error is True
        raw = {"role": "tool", "id": call_id, "content": output, "error": is_error}
        answer = Answer(call_id=call_id, output=output, is_error=is_error, raw=raw)
        yield from self._woven.answer(answer, moment(said.timestamp) or at)

    def _name(self) -> str:
        self._count += 1
        return f"{self._session}-{self._count}"


def _call(call: Called) -> ToolPart:
    state = Pending(input=_arguments(call))
    return ToolPart(tool=call.name, call_id=call.id or UNSET, state=state)


def _arguments(call: Called) -> Json:
    held = call.arguments
    if isinstance(held, dict):
        return cast("Json", held)
    return {} if held is None else {"arguments": held}


def _call_text(call: Called) -> str:
    return f"{call.name} {encode(_arguments(call)).decode()}"


def _unseen(text: str) -> TextPart:
    """What the simulated user's own tools say, which the agent never sees."""
    return TextPart(text=text, synthetic=True, ignored=True)


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return encode(content).decode()


def _time(simulation: Simulation) -> Time | UnsetType:
    begun, ended = moment(simulation.start_time), moment(simulation.end_time)
    return UNSET if begun is None else Time(created=begun, updated=ended or begun)


def _title(task: Json) -> str:
    purpose = options(task, "description").get("purpose")
    scene = options(options(task, "user_scenario"), "instructions")
    return shortened(purpose) or shortened(scene.get("reason_for_call"))


def _facts(simulation: Simulation) -> Json:
    return {
        "task_id": simulation.task_id,
        "trial": simulation.trial,
        "termination_reason": simulation.termination_reason,
        "reward": (simulation.reward_info or {}).get("reward"),
    }


def _recognises(head: Head) -> bool:
    return {"info", "tasks", "simulations"} <= set(head.fields)


FORMAT = Format(
    name=_NAME,
    about="τ²-bench, the results of a run",
    recognises=_recognises,
    importer=Tau2Bench,
)
