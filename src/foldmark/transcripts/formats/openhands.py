"""OpenHands (its first generation): `output.jsonl`, one run per line, or a list of events.

Facts of this format: an action has the whole response of the model that requested it, so the
actions of one response are one reply. An observation names the event that caused it; the last
action of a finished run has none. A condensation names the events to forget and has the summary
that replaces them. Older versions have actions and observations in pairs, or without `args`.
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

from ..build import (
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
from ..source import Head
from ._runs import run_facts

_NAME = "openhands"
_HIDDEN = frozenset(  # kinds of events that the model never sees
    (
        *("null", "recall", "change_agent_state", "agent_state_changed", "condensation_request"),
        *("start", "pause", "resume", "stop", "loop_recovery"),
    )
)
# Fields that older versions have in the event itself, and newer ones in `args`.
_FLAT = ("content", "command", "code", "path", "url", "browser_actions", "outputs", "image_urls")
# Arguments of an action that are not the model's.
_INTERNAL = frozenset(
    ("thought", "confirmation_state", "security_risk", "hidden", "blocking", "is_static")
)
_FACTS = ("repo_name", "repo_directory", "working_dir", "date")
_INSTRUCTIONS = ("repo_instructions", "conversation_instructions", "additional_agent_instructions")
_wire = OpenAIChat()


class OpenHands(FormatReader):
    """Reads a file of OpenHands."""

    name = _NAME
    about = "OpenHands, output.jsonl or a list of events"
    key = _wire.key
    list_field = "history"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        name = "history" if "history" in head.fields else "trajectory"
        events = [_first_event(line) for line in head.lines[:3]]
        return any(map(_is_event, events or (*head.first_items(name, 1), *head.first_items("", 1))))

    def read(self, record: Json) -> None:
        """Add a run as a session."""
        name = "history" if record.get("history") else "trajectory"
        events: list[Json] = []
        read_each(record.get(name) or [], name, lambda e, n: events.extend(_events(e, n)))
        session = self.session_ids.claim(str(record.get("instance_id") or self.stem))
        cost = subobject(record, "metrics").get("accumulated_cost")
        facts = {"error": record.get("error"), "accumulated_cost": cost}
        run = _OpenHandsRun(self, _info(session, events), run_facts(_NAME, facts, facts))
        run.begin(record, events)
        read_each(events, name, run.read)
        run.flush()


class _OpenHandsRun(ConversationBuilder):
    """Builds the conversation of one run from its events."""

    def __init__(
        self, reader: FormatReader, info: SessionInfo, extra: Extra | UnsetType = UNSET
    ) -> None:
        super().__init__(reader, info, extra)
        self._model: tuple[str, str] = ("", "")
        self._usages: dict[str, Json] = {}  # by response id
        self._ids = UniqueIds()
        self._messages: list[tuple[int, str]] = []  # ids of events and of their messages
        self._calls: dict[object, str] = {}  # by the id of the action
        self._pending: dict[str, None] = {}  # calls without an observation
        self._response = ""  # id of the newest response
        self._response_calls: list[str] = []
        self._by_user = True  # whether a message without a source is the user's

    def begin(self, record: Json, events: list[Json]) -> None:
        """Open the session, with the task if an older version has it outside of the events."""
        self._model = provider_and_model(
            subobject(record.get("metadata"), "llm_config").get("model")
        )
        usages = objects(subobject(record, "metrics").get("token_usages") or [], "'token_usages'")
        self._usages = {optional_text(usage, "response_id"): usage for usage in usages}
        self.open()
        instruction = record.get("instruction")
        if isinstance(instruction, str) and all(e.get("action") != "message" for e in events):
            self._by_user = False
            id = self._ids.claim(f"{self.info.id}-instruction")
            self.add_user(id, (TextPart(text=instruction),), None)

    def read(self, event: Json, number: int) -> None:
        """Add an event."""
        event_id = event.get("id")
        suffix = f"event-{number}" if event_id is None else event_id
        id = self._ids.claim(f"{self.info.id}-{suffix}")
        action, observation = event.get("action"), event.get("observation")
        last = self.last_id
        if action and action not in _HIDDEN:
            self._add_action(event, id)
        elif observation == "recall":
            self._add_synthetic(event, id, _recalled_text(event))
        elif observation and observation not in _HIDDEN:
            self._add_observation(event, id)
        if isinstance(event_id, int) and self.last_id not in (last, f"{id}-summary"):
            self._messages.append((event_id, id))

    def _add_action(self, event: Json, id: str) -> None:
        action, source = event["action"], event.get("source")
        if source == "environment":
            return
        is_message = action == "message" and event.get("tool_call_metadata") is None
        if source == "user" or (not source and is_message and self._by_user):
            self._add_prompt(event, id)
            return
        self.reader.tally.messages += 1
        self._by_user = is_message
        if action == "condensation":
            self._add_condensation(event, id)
        elif is_message:
            self.add_assistant(id, _message_parts(event), _at(event), model=self._model)
        elif action != "system":
            self._add_call(event, id)

    def _add_prompt(self, event: Json, id: str) -> None:
        self._by_user = False
        if event["action"] == "message":
            self.reader.tally.messages += 1
            self.add_user(id, _message_parts(event), _at(event))
            return
        command = _arguments(event).get("command")
        is_run = event["action"] == "run" and isinstance(command, str)
        self._add_synthetic(event, id, f"User executed the command:\n{command}" if is_run else "")

    # --- calls and their results ---

    def _add_call(self, event: Json, id: str) -> None:
        metadata = subobject(event, "tool_call_metadata")
        response = subobject(metadata, "model_response")
        call = optional_text(metadata, "tool_call_id") or id
        response_id = optional_text(response, "id")
        self._calls[event.get("id")] = call
        continues = bool(response_id) and response_id == self._response
        if continues and call in self._response_calls:
            return  # the message has all calls of the response
        self._response = response_id
        parts, wire = ((), None) if continues else _response_parts(response)
        calls = [part.call_id or "" for part in parts if isinstance(part, ToolPart)]
        if call not in calls:
            calls.append(call)
            arguments = {
                key: value
                for key, value in _arguments(event).items()
                if value is not None and key not in _INTERNAL
            }
            tool = optional_text(metadata, "function_name") or str(event["action"])
            before = parts or (() if continues else _thoughts(event))
            parts = (*before, ToolPart(tool=tool, call_id=call, state=Pending(input=arguments)))
        self._response_calls = calls
        self._pending |= dict.fromkeys(calls)
        self.add_assistant(
            id,
            parts,
            _at(event),
            model=self._model if any(self._model) else provider_and_model(response.get("model")),
            tokens=self._tokens(response_id, response),
            wire=wire or UNSET,
        )

    def _tokens(self, response_id: str, response: Json) -> Tokens | None:
        """The token usage of a response."""
        usage = self._usages.get(response_id)
        if usage is None:
            return usage_tokens(response.get("usage") or None)
        cache = {"prompt_tokens_details": {"cached_tokens": usage.get("cache_read_tokens")}}
        return usage_tokens(
            {**usage, **cache, "cache_creation_input_tokens": usage.get("cache_write_tokens")}
        )

    def _add_observation(self, event: Json, id: str) -> None:
        call = self._pending_call(event)
        if call is None:
            self._add_synthetic(event, id, _output(event))
            return
        del self._pending[call]
        extras = subobject(event, "extras")
        result = ReadResult(
            call_id=call,
            output=_output(event),
            is_error=event["observation"] == "error" or extras.get("error") is True,
            files=tuple(_images(extras.get("image_urls"))),
        )
        self.add_result(result, _at(event))

    def _pending_call(self, event: Json) -> str | None:
        """The call whose result an observation is, if it is pending."""
        cause, metadata = event.get("cause"), subobject(event, "tool_call_metadata")
        for call in (optional_text(metadata, "tool_call_id"), self._calls.get(cause)):
            if call in self._pending:
                return call
        if event.get("id") is None and cause is None and self._pending:
            return next(reversed(self._pending))  # older versions link them only by their order
        return None

    def _add_synthetic(self, event: Json, id: str, text: str) -> None:
        if text.strip():
            self.add_user(id, (synthetic_text(text),), _at(event))

    # --- condensations ---

    def _add_condensation(self, event: Json, id: str) -> None:
        """Add a compaction, whose tail are the events after the forgotten ones."""
        arguments = _arguments(event)
        last = positive_int(arguments.get("forgotten_events_end_id"))
        if isinstance(arguments.get("forgotten_event_ids"), list):
            last = max(map(positive_int, as_list(arguments["forgotten_event_ids"])), default=-1)
        self.add_compaction(
            id,
            (TextPart(text=text_or_empty(arguments.get("summary"))),),
            _at(event),
            auto=True,
            tail=next((message for number, message in self._messages if number > last), None),
            wire={_NAME: without(arguments, "summary")},
        )


# --- events --------------------------------------------------------------------------------


def _events(entry: Any, number: int) -> Iterator[Json]:
    """The events of an entry, which older versions have in pairs of action and observation."""
    if pair := [_event(event) for event in as_list(entry) if event]:
        yield from _linked(pair, number)
    elif entry and not as_list(entry):
        yield _event(entry)


def _event(entry: Any) -> Json:
    event = as_object(entry)
    if not isinstance(entry, dict):
        raise BadInput(f"the event is {json_type(entry)}, not an object")
    for name in ("source", "action", "observation"):
        optional_text(event, name)
    for name in ("id", "cause"):
        if not isinstance(event.get(name), int | str | None):
            raise BadInput(f"'{name}' is {json_type(event[name])}, not a number or a string")
    return event


def _linked(events: list[Json], number: int) -> Iterator[Json]:
    """The events of a pair, with an id for the action and a cause for the observation."""
    first = events[0].get("id") if events else None
    for event in events:
        if event.get("id") is None and event.get("action"):
            event_id = f"pair-{number}"
            first = event_id if event is events[0] else first
            yield {**event, "id": event_id}
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
    """The reasoning and text that came with an action."""
    thought = _arguments(event).get("thought", event.get("thought"))
    fields = as_object(thought)
    reasoning = text_or_empty(fields.get("reasoning_content"))
    text = _text_parts(fields.get("text") if isinstance(thought, dict) else thought)
    return (ReasoningPart(text=reasoning), *text) if reasoning else text


def _message_parts(event: Json) -> tuple[AnyPart, ...]:
    """The text and images of a message."""
    arguments = _arguments(event)
    return (*_text_parts(arguments.get("content")), *_images(arguments.get("image_urls")))


def _output(event: Json) -> str:
    """The text of an observation for the model, as far as it is recorded."""
    text, extras = text_or_empty(event.get("content")), subobject(event, "extras")
    if event.get("observation") == "delegate":
        output = subobject(extras, "outputs").get("content")
        return output if isinstance(output, str) else text
    metadata = subobject(extras, "metadata")
    prefix, suffix = (text_or_empty(metadata.get(name)) for name in ("prefix", "suffix"))
    return f"{prefix}{text}{suffix}"


def _recalled_text(event: Json) -> str:
    """The knowledge that the program added; its wording around it is not recorded."""
    extras = subobject(event, "extras")
    lines = [f"{name}: {value}" for name in _FACTS if (value := extras.get(name))]
    if hosts := subobject(extras, "runtime_hosts"):
        lines.append(f"runtime_hosts: {', '.join(hosts)}")
    pieces = ["\n".join(lines), *(extras.get(name) for name in _INSTRUCTIONS)]
    agents = as_list(extras.get("microagent_knowledge"))
    pieces += [as_object(agent).get("content") for agent in agents]
    return "\n\n".join(piece for piece in pieces if isinstance(piece, str) and piece)


def _response_parts(response: Json) -> tuple[tuple[AnyPart, ...], Json | None]:
    """The parts of a response with all its calls, and the fields for `info.wire`."""
    choices = as_list(response.get("choices"))
    message = subobject(choices[0], "message") if choices else {}
    if not message:
        return (), None
    fields = {name: value for name, value in message.items() if value not in (None, "")}
    decoded = _wire.read({"content": None, **fields, "role": "assistant"})
    return decoded.parts, {_wire.key: decoded.rest} if decoded.rest else None


def _text_parts(value: object) -> tuple[TextPart, ...]:
    return (TextPart(text=value),) if isinstance(value, str) and value else ()


def _images(urls: object) -> Iterator[FilePart]:
    """The images of these URLs; screenshots are elsewhere, as they are for the screen."""
    for url in as_list(urls):
        if isinstance(url, str) and url:
            yield FilePart(mime=url_parts(url)[0] or "image/*", url=url)


# --- runs ----------------------------------------------------------------------------------


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


def _first_event(line: Json) -> object:
    """The first event of a run."""
    first: object = line.get("history") or line.get("trajectory")
    while items := as_list(first):  # twice if the events are in pairs
        first = items[0]
    return first


def _is_event(value: object) -> bool:
    """Whether a value is an action or an observation; a step of SWE-agent is both."""
    event = as_object(value)
    kinds = [event[name] for name in ("action", "observation") if name in event]
    is_one = len(kinds) == 1 and isinstance(kinds[0], str) and kinds[0].isidentifier()
    return is_one and not {"args", "content", "source"}.isdisjoint(event)
