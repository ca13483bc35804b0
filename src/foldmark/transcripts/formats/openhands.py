"""OpenHands (its first generation): `output.jsonl`, one run a line, or a bare list of events.

Facts of this format: an action carries the whole response of the model that asked for it, so the
actions of one response are one answer; an observation names the event that caused it. Of finished
runs the last action has no observation. A condensation tells which events are forgotten and what
is shown in their place. Older versions have actions and observations in pairs, or their arguments
beside their names.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET

from foldmark.model.messages import Message, Origin, Pending, SessionInfo, TextPart, Time, ToolPart
from foldmark.transcripts.build import (
    Opened,
    Step,
    Tally,
    assistant_message,
    folded,
    note,
    user_message,
    with_info,
)
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.codec import Answer, options, without
from foldmark.wire.openai_chat import OpenAIChat

from . import openhands_events as events
from .litellm import named_model
from .openhands_events import Answered, CallMetadata, Entry, Event, Row
from .runs import Names, as_object, first_of

_NAME = "openhands"
_SILENT = frozenset(  # none of these is shown to the model
    (
        *("null", "recall", "change_agent_state", "agent_state_changed", "condensation_request"),
        *("start", "pause", "resume", "stop", "loop_recovery"),
    )
)
_wire = OpenAIChat()
_NO_METADATA, _NO_RESPONSE = CallMetadata(), Answered()
_decode = decoder(Row | list[Entry])  # pyright: ignore[reportArgumentType] - a union is no type


class OpenHands:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for runs that do not name their task."""
        self.decode = _decode
        self.tally = Tally()
        self._stem = Path(name).stem
        self._names = Names()

    def take(self, record: Row | list[Entry], line: int) -> Iterator[Step]:
        """What a run says."""
        del line
        row = Row(history=record) if isinstance(record, list) else record
        found = list(events.in_a_row(row.history or row.trajectory or []))
        session = self._names.once(str(row.instance_id or self._stem))
        yield Opened(info=_info(session, found), extra=row.facts(_NAME))
        conversation = _Conversation(session, row, self.tally)
        yield from conversation.begin(row.instruction, found)
        for number, event in enumerate(found):
            yield from conversation.take(event, number)
        yield from conversation.end()

    def end(self) -> Iterator[Step]:
        """Nothing more."""
        return iter(())


class _Conversation:
    """The events of one run."""

    def __init__(self, session: str, row: Row, tally: Tally) -> None:
        self._session = session
        self._tally = tally
        self._woven = Woven(_wire.key, tally)
        model = options(as_object(row.metadata), "llm_config").get("model")
        self._model = named_model(model) if isinstance(model, str) and model else None
        measured = (row.metrics and row.metrics.token_usages) or []
        self._tokens = {held.response_id: held for held in measured}
        self._names = Names()
        self._places: list[tuple[int, str]] = []  # messages by the events they began with
        self._calls: dict[int | str | None, str] = {}  # by the events that made them
        self._open: dict[str, None] = {}  # calls without an observation
        self._response: str | None = None  # the newest, and its calls
        self._told: list[str] = []
        self._by_user = True  # whether a message that names no source is the user's

    def begin(self, instruction: object, found: list[Event]) -> Iterator[Step]:
        """The task, where an older version does not write it among the events."""
        if any(event.action == "message" for event in found) or not isinstance(instruction, str):
            return iter(())
        self._by_user = False
        name = self._names.once(f"{self._session}-instruction")
        return self._woven.add(user_message(name, (TextPart(text=instruction),), None))

    def take(self, event: Event, number: int) -> Iterator[Step]:
        known = f"event-{number}" if event.id is None else event.id
        name = self._names.once(f"{self._session}-{known}")
        if event.action and event.action not in _SILENT:
            return self._action(event, name)
        if event.observation == "recall":
            return self._noted(event, name, events.recalled(event))
        if event.observation and event.observation not in _SILENT:
            return self._observed(event, name)
        return iter(())

    def end(self) -> Iterator[Step]:
        return self._woven.flush()

    def _action(self, event: Event, name: str) -> Iterator[Step]:
        if event.source == "environment":
            return iter(())
        is_message = event.action == "message" and event.tool_call_metadata is None
        if event.source == "user" or (not event.source and is_message and self._by_user):
            return self._from_user(event, name)
        self._tally.messages += 1
        self._by_user = is_message
        if event.action == "system":
            return iter(())
        if event.action == "condensation":
            return self._folded(event, name)
        if is_message:
            parts = events.message_parts(event)
            model = self._model or ("", "")
            return self._add(event, assistant_message(name, parts, event.at, model=model))
        return self._called(event, name)

    def _from_user(self, event: Event, name: str) -> Iterator[Step]:
        self._by_user = False
        if event.action == "message":
            self._tally.messages += 1
            return self._add(event, user_message(name, events.message_parts(event), event.at))
        command = events.arguments(event).get("command")
        is_run = event.action == "run" and isinstance(command, str)
        text = f"User executed the command:\n{command}" if is_run else ""
        return self._noted(event, name, text)

    # --- calls and their results ---

    def _called(self, event: Event, name: str) -> Iterator[Step]:
        about = event.tool_call_metadata or _NO_METADATA
        response = about.model_response or _NO_RESPONSE
        call = about.tool_call_id or name
        self._calls[event.id] = call
        goes_on = bool(response.id) and response.id == self._response
        if goes_on and call in self._told:
            return iter(())  # the message has all calls of the response
        self._response = response.id
        parts, wire = ((), None) if goes_on else events.answered(response)
        self._told = [part.call_id or "" for part in parts if isinstance(part, ToolPart)]
        if call not in self._told:
            self._told.append(call)
            state = Pending(input=events.given_input(event))
            tool = about.function_name or str(event.action)
            said = parts or (() if goes_on else events.thoughts(event))
            parts = (*said, ToolPart(tool=tool, call_id=call, state=state))
        self._open |= dict.fromkeys(self._told)
        measured = self._tokens.get(response.id) or response.usage
        message = assistant_message(
            name,
            parts,
            event.at,
            model=self._model or named_model(response.model),
            tokens=measured and measured.tokens(),
        )
        return self._add(event, with_info(message, wire=wire) if wire else message)

    def _observed(self, event: Event, name: str) -> Iterator[Step]:
        call = self._caused(event)
        if call is None:
            return self._noted(event, name, events.output(event))
        del self._open[call]
        answer = Answer(
            call_id=call,
            output=events.output(event),
            is_error=event.observation == "error" or (event.extras or {}).get("error") is True,
            files=events.images(event),
        )
        return self._woven.answer(answer, event.at)

    def _caused(self, event: Event) -> str | None:
        """The call that an observation answers."""
        about = event.tool_call_metadata or _NO_METADATA
        for call in (about.tool_call_id, self._calls.get(event.cause)):
            if call in self._open:
                return call
        if event.id is None and event.cause is None and self._open:
            return next(reversed(self._open))  # an older version tells it by the order
        return None

    def _noted(self, event: Event, name: str, text: str) -> Iterator[Step]:
        if not text.strip():
            return iter(())
        return self._add(event, user_message(name, (note(text),), event.at))

    # --- condensations ---

    def _folded(self, event: Event, name: str) -> Iterator[Step]:
        """What is told in place of the forgotten events; those after them are kept."""
        told = events.arguments(event)
        last = events.last_forgotten(told)
        tail = next((message for number, message in self._places if number > last), None)
        summary = told.get("summary")
        yield from self._woven.flush()
        yield from folded(
            name,
            (TextPart(text=summary if isinstance(summary, str) else ""),),
            event.at,
            auto=True,
            tail=tail,
            wire={_NAME: without(told, "summary")},
        )

    def _add(self, event: Event, message: Message) -> Iterator[Step]:
        if isinstance(event.id, int):
            self._places.append((event.id, message.id))
        return self._woven.add(message)


# --- beside the events ---------------------------------------------------------------------


def _info(session: str, found: list[Event]) -> SessionInfo:
    system = events.arguments(next((held for held in found if held.action == "system"), Event()))
    prompt, version = system.get("content"), system.get("openhands_version")
    times = [at for held in (*found[:1], *found[-1:]) if (at := held.at) is not None]
    return SessionInfo(
        id=session,
        title=session,
        version=version if isinstance(version, str) else UNSET,
        time=Time(created=times[0], updated=times[-1]) if times else UNSET,
        origin=Origin(
            system=prompt if isinstance(prompt, str) else UNSET,
            tools=system.get("tools") or UNSET,
        ),
    )


def _recognises(head: Head) -> bool:
    name = "history" if "history" in head.fields else "trajectory"
    held = [events.first(line) for line in head.lines[:3]]
    return any(map(events.is_event, held or (first_of(head, name), head.item(0))))


FORMAT = Format(
    name=_NAME,
    about="OpenHands, output.jsonl or a list of events",
    recognises=_recognises,
    importer=OpenHands,
)
