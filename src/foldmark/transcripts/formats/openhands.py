"""OpenHands (its first generation): `output.jsonl`, one run a line, or a bare list of events.

Facts of this format: an action carries the whole response of the model that asked for it, so the
actions of one response are one answer; an observation names the event that caused it. Of finished
runs the last action has no observation. A condensation tells which events are forgotten and what
is shown in their place. Older versions have actions and observations in pairs, or their arguments
beside their names.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    FilePart,
    Origin,
    Pending,
    ReasoningPart,
    SessionInfo,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Extra, Json
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    UniqueIds,
    as_list,
    as_object,
    milliseconds,
    optional_text,
    provider_and_model,
    read_each,
    session_time,
    synthetic_text,
    text_or_empty,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import (
    ReadResult,
    json_type,
    objects,
    positive_int,
    subobject,
    url_parts,
    without,
)
from foldmark.wire.openai_chat import OpenAIChat, usage_tokens

from ._runs import run_facts

_NAME = "openhands"
_SILENT = frozenset(  # none of these is shown to the model
    (
        *("null", "recall", "change_agent_state", "agent_state_changed", "condensation_request"),
        *("start", "pause", "resume", "stop", "loop_recovery"),
    )
)
# What an event of an older version has beside its kind, where newer ones have it in `args`.
_FLAT = ("content", "command", "code", "path", "url", "browser_actions", "outputs", "image_urls")
# What the program itself keeps in the arguments of an action.
_INTERNAL = frozenset(
    ("thought", "confirmation_state", "security_risk", "hidden", "blocking", "is_static")
)
_PLACES = ("repo_name", "repo_directory", "working_dir", "date")
_TOLD = ("repo_instructions", "conversation_instructions", "additional_agent_instructions")
_wire = OpenAIChat()


class OpenHands(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "OpenHands, output.jsonl or a list of events"
    key = _wire.key
    list_field = "history"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        name = "history" if "history" in head.fields else "trajectory"
        events = [_first(line) for line in head.lines[:3]]
        return any(map(_is_event, events or (*head.first_items(name, 1), *head.first_items("", 1))))

    def read(self, record: Json) -> None:
        """Tell what a run says."""
        name = "history" if record.get("history") else "trajectory"
        events: list[Json] = []
        read_each(record.get(name) or [], name, lambda e, n: events.extend(_in_a_row(e, n)))
        session = self.session_ids.claim(str(record.get("instance_id") or self.stem))
        cost = subobject(record, "metrics").get("accumulated_cost")
        facts = {"error": record.get("error"), "accumulated_cost": cost}
        run = _OpenHandsRun(self, _info(session, events), run_facts(_NAME, facts, facts))
        run.begin(record, events)
        read_each(events, name, run.read)
        run.flush()


class _OpenHandsRun(ConversationBuilder):
    """The events of one run."""

    def __init__(
        self, reader: FormatReader, info: SessionInfo, extra: Extra | UnsetType = UNSET
    ) -> None:
        super().__init__(reader, info, extra)
        self._model: tuple[str, str] = ("", "")
        self._usages: dict[str, Json] = {}  # by their responses
        self._names = UniqueIds()
        self._places: list[tuple[int, str]] = []  # messages by the events they began with
        self._calls: dict[object, str] = {}  # by the events that made them
        self._unanswered: dict[str, None] = {}  # calls without an observation
        self._response = ""  # the newest, and its calls
        self._told: list[str] = []
        self._by_user = True  # whether a message that names no source is the user's

    def begin(self, record: Json, events: list[Json]) -> None:
        """Tell of the run, and its task where an older version has that beside the events."""
        self._model = provider_and_model(
            subobject(record.get("metadata"), "llm_config").get("model")
        )
        usages = objects(subobject(record, "metrics").get("token_usages") or [], "'token_usages'")
        self._usages = {optional_text(usage, "response_id"): usage for usage in usages}
        self.open()
        instruction = record.get("instruction")
        if isinstance(instruction, str) and all(e.get("action") != "message" for e in events):
            self._by_user = False
            name = self._names.claim(f"{self.info.id}-instruction")
            self.add_user(name, (TextPart(text=instruction),), None)

    def read(self, event: Json, number: int) -> None:
        """Tell what an event says."""
        own = event.get("id")
        name = self._names.claim(f"{self.info.id}-{f'event-{number}' if own is None else own}")
        action, observation = event.get("action"), event.get("observation")
        last = self.last_id
        if action and action not in _SILENT:
            self._act(event, name)
        elif observation == "recall":
            self._note(event, name, _recalled(event))
        elif observation and observation not in _SILENT:
            self._observe(event, name)
        if isinstance(own, int) and self.last_id not in (last, f"{name}-summary"):
            self._places.append((own, name))

    def _act(self, event: Json, name: str) -> None:
        action, source = event["action"], event.get("source")
        if source == "environment":
            return
        is_message = action == "message" and event.get("tool_call_metadata") is None
        if source == "user" or (not source and is_message and self._by_user):
            self._prompt(event, name)
            return
        self.reader.tally.messages += 1
        self._by_user = is_message
        if action == "condensation":
            self._fold(event, name)
        elif is_message:
            self.add_assistant(name, _message(event), _at(event), model=self._model)
        elif action != "system":
            self._call(event, name)

    def _prompt(self, event: Json, name: str) -> None:
        self._by_user = False
        if event["action"] == "message":
            self.reader.tally.messages += 1
            self.add_user(name, _message(event), _at(event))
            return
        command = _arguments(event).get("command")
        is_run = event["action"] == "run" and isinstance(command, str)
        self._note(event, name, f"User executed the command:\n{command}" if is_run else "")

    # --- calls and their results ---

    def _call(self, event: Json, name: str) -> None:
        about = subobject(event, "tool_call_metadata")
        response = subobject(about, "model_response")
        call, of = optional_text(about, "tool_call_id") or name, optional_text(response, "id")
        self._calls[event.get("id")] = call
        goes_on = bool(of) and of == self._response
        if goes_on and call in self._told:
            return  # the message has all calls of the response
        self._response = of
        parts, wire = ((), None) if goes_on else _answered(response)
        self._told = [part.call_id or "" for part in parts if isinstance(part, ToolPart)]
        if call not in self._told:
            self._told.append(call)
            given = {
                key: value
                for key, value in _arguments(event).items()
                if value is not None and key not in _INTERNAL
            }
            tool = optional_text(about, "function_name") or str(event["action"])
            said = parts or (() if goes_on else _thoughts(event))
            parts = (*said, ToolPart(tool=tool, call_id=call, state=Pending(input=given)))
        self._unanswered |= dict.fromkeys(self._told)
        self.add_assistant(
            name,
            parts,
            _at(event),
            model=self._model if any(self._model) else provider_and_model(response.get("model")),
            tokens=self._tokens(of, response),
            wire=wire or UNSET,
        )

    def _tokens(self, name: str, response: Json) -> Tokens | None:
        """What was measured for a response."""
        usage = self._usages.get(name)
        if usage is None:
            return usage_tokens(response.get("usage") or None)
        cache = {"prompt_tokens_details": {"cached_tokens": usage.get("cache_read_tokens")}}
        return usage_tokens(
            {**usage, **cache, "cache_creation_input_tokens": usage.get("cache_write_tokens")}
        )

    def _observe(self, event: Json, name: str) -> None:
        call = self._caused(event)
        if call is None:
            self._note(event, name, _output(event))
            return
        del self._unanswered[call]
        extras = subobject(event, "extras")
        answer = ReadResult(
            call_id=call,
            output=_output(event),
            is_error=event["observation"] == "error" or extras.get("error") is True,
            files=tuple(_images(extras.get("image_urls"))),
        )
        self.add_result(answer, _at(event))

    def _caused(self, event: Json) -> str | None:
        """The call that an observation answers."""
        own, cause = event.get("id"), event.get("cause")
        about = subobject(event, "tool_call_metadata")
        for call in (optional_text(about, "tool_call_id"), self._calls.get(cause)):
            if call in self._unanswered:
                return call
        if own is None and cause is None and self._unanswered:
            return next(reversed(self._unanswered))  # an older version tells it by the order
        return None

    def _note(self, event: Json, name: str, text: str) -> None:
        if text.strip():
            self.add_user(name, (synthetic_text(text),), _at(event))

    # --- condensations ---

    def _fold(self, event: Json, name: str) -> None:
        """What is told in place of the forgotten events; those after them are kept."""
        told = _arguments(event)
        forgotten = told.get("forgotten_event_ids")
        last = positive_int(told.get("forgotten_events_end_id"))
        if isinstance(forgotten, list):
            last = max(map(positive_int, as_list(told["forgotten_event_ids"])), default=-1)
        self.add_compaction(
            name,
            (TextPart(text=text_or_empty(told.get("summary"))),),
            _at(event),
            auto=True,
            tail=next((message for number, message in self._places if number > last), None),
            wire={_NAME: without(told, "summary")},
        )


# --- events --------------------------------------------------------------------------------


def _in_a_row(entry: Any, number: int) -> Iterator[Json]:
    """The events of an entry; an older version has actions in pairs with what they caused."""
    if pair := [_event(event) for event in as_list(entry) if event]:
        yield from _paired(pair, number)
    elif entry and not as_list(entry):
        yield _event(entry)


def _event(entry: Any) -> Json:
    event = as_object(entry)
    if not isinstance(entry, dict):
        raise BadInput(f"an event is an object, not {json_type(entry)}")
    for name in ("source", "action", "observation"):
        optional_text(event, name)
    for name in ("id", "cause"):
        if not isinstance(event.get(name), int | str | None):
            raise BadInput(f"'{name}' is {json_type(event[name])}, not a number or a text")
    return event


def _paired(events: list[Json], number: int) -> Iterator[Json]:
    first = events[0].get("id") if events else None
    for event in events:
        if event.get("id") is None and event.get("action"):
            own = f"pair-{number}"
            first = own if event is events[0] else first
            yield {**event, "id": own}
        elif event.get("observation") and event.get("cause") is None:
            yield {**event, "cause": first}
        else:
            yield event


def _at(event: Json) -> int | None:
    return milliseconds(event.get("timestamp"))


def _arguments(event: Json) -> Json:
    """The arguments of an action."""
    if event.get("args") is not None:
        return as_object(event["args"])
    return {name: event[name] for name in _FLAT if event.get(name) is not None}


def _thoughts(event: Json) -> tuple[AnyPart, ...]:
    """What the model said with an action."""
    thought = _arguments(event).get("thought", event.get("thought"))
    told = as_object(thought)
    thinking = text_or_empty(told.get("reasoning_content"))
    said = _text(told.get("text") if isinstance(thought, dict) else thought)
    return (ReasoningPart(text=thinking), *said) if thinking else said


def _message(event: Json) -> tuple[AnyPart, ...]:
    """A message, with its images."""
    given = _arguments(event)
    return (*_text(given.get("content")), *_images(given.get("image_urls")))


def _output(event: Json) -> str:
    """What an observation tells the model, as far as it is recorded."""
    text, extras = text_or_empty(event.get("content")), subobject(event, "extras")
    if event.get("observation") == "delegate":
        told = subobject(extras, "outputs").get("content")
        return told if isinstance(told, str) else text
    around = subobject(extras, "metadata")
    prefix, suffix = (text_or_empty(around.get(name)) for name in ("prefix", "suffix"))
    return f"{prefix}{text}{suffix}"


def _recalled(event: Json) -> str:
    """What the program found for the model to know; its own words around it are not recorded."""
    extras = subobject(event, "extras")
    lines = [f"{name}: {held}" for name in _PLACES if (held := extras.get(name))]
    if hosts := subobject(extras, "runtime_hosts"):
        lines.append(f"runtime_hosts: {', '.join(hosts)}")
    pieces = ["\n".join(lines), *(extras.get(name) for name in _TOLD)]
    agents = as_list(extras.get("microagent_knowledge"))
    pieces += [as_object(agent).get("content") for agent in agents]
    return "\n\n".join(piece for piece in pieces if isinstance(piece, str) and piece)


def _answered(response: Json) -> tuple[tuple[AnyPart, ...], Json | None]:
    """What the model said in a response, all its calls among it; and what its wire keeps."""
    choices = as_list(response.get("choices"))
    message = subobject(choices[0], "message") if choices else {}
    if not message:
        return (), None
    given = {name: held for name, held in message.items() if held not in (None, "")}
    read = _wire.read({"content": None, **given, "role": "assistant"})
    return read.parts, {_wire.key: read.rest} if read.rest else None


def _text(held: object) -> tuple[TextPart, ...]:
    return (TextPart(text=held),) if isinstance(held, str) and held else ()


def _images(urls: object) -> Iterator[FilePart]:
    """Images by their addresses; a screenshot is for the screen."""
    for url in as_list(urls):
        if isinstance(url, str) and url:
            yield FilePart(mime=url_parts(url)[0] or "image/*", url=url)


# --- beside the events ---------------------------------------------------------------------


def _info(session: str, events: list[Json]) -> SessionInfo:
    prompts = (event for event in events if event.get("action") == "system")
    system = _arguments(next(prompts, as_object(None)))
    prompt, version = system.get("content"), system.get("openhands_version")
    times = [at for event in (*events[:1], *events[-1:]) if (at := _at(event)) is not None]
    return SessionInfo(
        id=session,
        title=session,
        version=version if isinstance(version, str) else UNSET,
        time=session_time(times[0], times[-1]) if times else UNSET,
        origin=Origin(
            system=prompt if isinstance(prompt, str) else UNSET,
            tools=system.get("tools") or UNSET,
        ),
    )


def _first(line: Json) -> object:
    """The first event of a run."""
    first: object = line.get("history") or line.get("trajectory")
    while items := as_list(first):  # twice, where they stand in pairs
        first = items[0]
    return first


def _is_event(held: object) -> bool:
    """Whether it is an action or an observation; a step of SWE-agent is both."""
    event = as_object(held)
    kinds = [event[name] for name in ("action", "observation") if name in event]
    is_one = len(kinds) == 1 and isinstance(kinds[0], str) and kinds[0].isidentifier()
    return is_one and not {"args", "content", "source"}.isdisjoint(event)
