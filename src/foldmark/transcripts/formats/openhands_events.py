"""The events of OpenHands: their fields, and what each of them says."""

from collections.abc import Iterator
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from foldmark.model.messages import (
    AnyPart,
    Cache,
    FilePart,
    Number,
    ReasoningPart,
    TextPart,
    Tokens,
)
from foldmark.model.values import Extra, Json
from foldmark.transcripts.build import moment
from foldmark.wire.codec import as_number, options, url_parts
from foldmark.wire.openai_chat import OpenAIChat

from .litellm import Response
from .runs import as_object

_wire = OpenAIChat()
# What an event of an older version has beside its kind, where newer ones have it in `args`.
_FLAT = ("content", "command", "code", "path", "url", "browser_actions", "outputs", "image_urls")
# What the program itself keeps in the arguments of an action.
_INTERNAL = frozenset(
    ("thought", "confirmation_state", "security_risk", "hidden", "blocking", "is_static")
)
_PLACES = ("repo_name", "repo_directory", "working_dir", "date")
_TOLD = ("repo_instructions", "conversation_instructions", "additional_agent_instructions")


class Answered(Response, gc=False):
    """A response; the first choice is the answer."""

    choices: list[Json] | None = None


class CallMetadata(Struct, gc=False):
    """Which call of which response an event belongs to."""

    function_name: str | None = None
    tool_call_id: str | None = None
    model_response: Answered | None = None


class Event(Struct, gc=False):
    """An action, or an observation of what it caused."""

    id: int | str | None = None
    timestamp: Any = None
    source: str | None = None
    cause: int | str | None = None
    action: str | None = None
    observation: str | None = None
    args: Json | None = None
    content: Any = None
    extras: Json | None = None
    tool_call_metadata: CallMetadata | None = None
    thought: Any = None
    command: Any = None
    code: Any = None
    path: Any = None
    url: Any = None
    browser_actions: Any = None
    outputs: Any = None
    image_urls: Any = None

    @property
    def at(self) -> int | None:
        """When it happened."""
        return moment(self.timestamp)


Entry = Event | list[Event | None] | None


class Measured(Struct, gc=False):
    """What was measured for one response."""

    response_id: str | None = None
    prompt_tokens: Number | None = 0
    completion_tokens: Number | None = 0
    cache_read_tokens: Number | None = 0
    cache_write_tokens: Number | None = 0

    def tokens(self) -> Tokens:
        """Our count; the prompt's tokens include what the cache gave or took."""
        given, made = self.prompt_tokens or 0, self.completion_tokens or 0
        read, write = self.cache_read_tokens or 0, self.cache_write_tokens or 0
        return Tokens(
            input=max(given - read - write, 0),
            output=made,
            reasoning=0,
            total=given + made,
            cache=Cache(read=read, write=write),
        )


class Metrics(Struct, gc=False):
    """What was measured in all."""

    accumulated_cost: Any = None
    token_usages: list[Measured] | None = None


class Row(Struct, gc=False):
    """One run."""

    instance_id: int | str | None = None
    instruction: Any = None
    history: list[Entry] | None = None
    trajectory: list[Entry] | None = None
    metadata: Any = None
    metrics: Metrics | None = None
    error: Any = None

    def facts(self, name: str) -> Extra | UnsetType:
        """How the run ended and what it cost, under the name of the format."""
        cost = self.metrics.accumulated_cost if self.metrics else None
        told = {"error": self.error, "accumulated_cost": cost}
        found = {fact: held for fact, held in told.items() if held is not None}
        return Extra({name: found}) if found else UNSET


def in_a_row(entries: list[Entry]) -> Iterator[Event]:
    """The events one by one; an older version has actions in pairs with what they caused."""
    for number, entry in enumerate(entries):
        if isinstance(entry, Event):
            yield entry
        elif entry is not None:
            yield from _paired([event for event in entry if event is not None], number)


def _paired(events: list[Event], number: int) -> Iterator[Event]:
    for event in events:
        if event.id is None and event.action:
            event.id = f"pair-{number}"
        elif event.observation and event.cause is None:
            event.cause = events[0].id
        yield event


# --- what an event says --------------------------------------------------------------------


def arguments(event: Event) -> Json:
    """The arguments of an action."""
    if event.args is not None:
        return event.args
    return {name: held for name in _FLAT if (held := getattr(event, name)) is not None}


def given_input(event: Event) -> Json:
    """The arguments of an action that are no affair of the program alone."""
    given = arguments(event).items()
    return {name: held for name, held in given if held is not None and name not in _INTERNAL}


def thoughts(event: Event) -> tuple[AnyPart, ...]:
    """What the model said with an action."""
    held = arguments(event).get("thought", event.thought)
    if isinstance(held, dict):
        told = cast("Json", held)
        thinking, held = told.get("reasoning_content"), told.get("text")
        if isinstance(thinking, str) and thinking:
            return (ReasoningPart(text=thinking), *_said(held))
    return _said(held)


def message_parts(event: Event) -> tuple[AnyPart, ...]:
    """A message, with its images."""
    given = arguments(event)
    return (*_said(given.get("content")), *_images(given.get("image_urls")))


def output(event: Event) -> str:
    """What an observation tells the model, as far as it is recorded."""
    text = event.content if isinstance(event.content, str) else ""
    if event.observation == "delegate":
        told = options(event.extras, "outputs").get("content")
        return told if isinstance(told, str) else text
    around = options(event.extras, "metadata")
    prefix, suffix = around.get("prefix"), around.get("suffix")
    text = f"{prefix}{text}" if isinstance(prefix, str) else text
    return f"{text}{suffix}" if isinstance(suffix, str) else text


def images(event: Event) -> tuple[FilePart, ...]:
    """The images of an observation; a screenshot is for the screen."""
    held = (event.extras or {}).get("image_urls")
    return tuple(_images(held)) if held else ()


def recalled(event: Event) -> str:
    """What the program found for the model to know; its own words around it are not recorded."""
    extras = event.extras or {}
    lines = [f"{name}: {held}" for name in _PLACES if (held := extras.get(name))]
    if hosts := options(extras, "runtime_hosts"):
        lines.append(f"runtime_hosts: {', '.join(hosts)}")
    pieces = ["\n".join(lines), *(extras.get(name) for name in _TOLD)]
    known = extras.get("microagent_knowledge")
    agents = cast("list[object]", known) if isinstance(known, list) else []
    pieces += [as_object(agent).get("content") for agent in agents]
    return "\n\n".join(piece for piece in pieces if isinstance(piece, str) and piece)


def answered(response: Answered) -> tuple[tuple[AnyPart, ...], Json | None]:
    """What the model said in a response, all its calls among it; and what its wire keeps."""
    message = options(response.choices[0], "message") if response.choices else None
    if not message:
        return (), None
    given = {name: held for name, held in message.items() if held not in (None, "")}
    read = _wire.read({"content": None, **given, "role": "assistant"})
    return read.parts, {_wire.key: read.rest} if read.rest else None


def last_forgotten(told: Json) -> int:
    """The newest event that a condensation takes out of the view."""
    held = told.get("forgotten_event_ids")
    if isinstance(held, list):
        return max((as_number(name) for name in cast("list[object]", held)), default=-1)
    return as_number(told.get("forgotten_events_end_id"))


def _said(held: object) -> tuple[TextPart, ...]:
    return (TextPart(text=held),) if isinstance(held, str) and held else ()


def _images(held: object) -> Iterator[FilePart]:
    for url in cast("list[object]", held) if isinstance(held, list) else []:
        if isinstance(url, str) and url:
            yield FilePart(mime=url_parts(url)[0] or "image/*", url=url)


# --- recognising ---------------------------------------------------------------------------


def first(line: Json) -> object:
    """The first event of a run."""
    held: object = line.get("history") or line.get("trajectory")
    while isinstance(held, list):  # twice, where they stand in pairs
        held = cast("list[object]", held)[0] if held else None
    return held


def is_event(held: object) -> bool:
    """Whether it is an action or an observation; a step of SWE-agent is both."""
    event = as_object(held)
    kinds = [event[name] for name in ("action", "observation") if name in event]
    is_one = len(kinds) == 1 and isinstance(kinds[0], str) and kinds[0].isidentifier()
    return is_one and not {"args", "content", "source"}.isdisjoint(event)
