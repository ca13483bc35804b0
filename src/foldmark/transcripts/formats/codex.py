"""Codex: `~/.codex/sessions/<date>/rollout-<time>-<session>.jsonl`, one event a line.

Facts of this format: `response_item` lines are items of the Responses API, several of which are
one answer; `event_msg` lines repeat them for the screen, but also tell what a step took and what
the user took back. After `compacted` the agent sees the history that this line holds, or in old
versions the newest prompts: they stand here once more, after the pivot.
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    Message,
    Origin,
    TextPart,
    Tokens,
    finish_of,
    is_opaque,
)
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    FormatReader,
    Talk,
    Tally,
    as_object,
    assistant_message,
    by_program,
    moment,
    session_time,
    text_or_empty,
    with_info,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import Read, as_number, object_at, objects, options, text_at, without
from foldmark.wire.openai_responses import OpenAIResponses, usage_tokens

_NAME = "codex"
_PROVIDER = "openai"
_KINDS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
_SEALED = ("compaction", "compaction_summary", "context_compaction")
_SEALED_TEXT = "[A summary that only its provider can read.]"
_UNSENT = "ghost_snapshot"  # an item of the program's own, which the model is not shown
_MOST_REMEMBERED = 80_000  # characters of prompts; as much as old versions keep when they compact
# What the program says in the user's place begins so.
_BY_PROGRAM = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|turn_aborted"
    r"|user_shell_command|subagent_notification|subagents|skill|plugins|hook_prompt|goal_context"
    r"|codex_internal_context|model_switch|personality_spec)\b)",
    re.IGNORECASE,
)
_wire = OpenAIResponses()


class Codex(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "Codex, ~/.codex/sessions"
    key = _wire.key

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        return any(
            line.get("type") in _KINDS and isinstance(line.get("payload"), dict)
            for line in head.lines
        )

    def __init__(self, name: str) -> None:
        """Take the file's name, for a file that names no session."""
        super().__init__(name)
        self._is_open = False
        self._prompts = _Prompts()
        self._usage = _Usage()
        self._model = (_PROVIDER, "")
        self._effort = ""
        self._answer: Message | None = None  # begun by its first item
        self._more: list[AnyPart] = []  # what its further items say

    def read(self, record: Json) -> None:
        """Tell what a line says."""
        kind = text_at(record, "type")
        told = object_at(record, "payload") if kind in _KINDS else {}
        if not self._is_open:
            self._open(told if kind == "session_meta" else {}, record.get("timestamp"))
        name, at = f"{self.talk.info.id}-{self.line}", moment(record.get("timestamp"))
        if kind == "response_item":
            self._item(told, name, at)
        elif kind == "event_msg":
            self._event(told)
        elif kind == "compacted":
            self._fold(told, name, at)
        elif kind == "turn_context":
            self._model = (self._model[0], text_or_empty(told.get("model")))
            self._effort = text_or_empty(told.get("effort"))
        self._is_open = True  # not before: of a line that cannot be read nothing is told

    def finish(self) -> None:
        """Tell the answer that is held."""
        self._end_answer()

    def _open(self, told: Json, timestamp: object) -> None:
        system = text_or_empty(options(told, "base_instructions").get("text"))
        tools = told.get("dynamic_tools")
        self._model = (text_or_empty(told.get("model_provider")) or _PROVIDER, "")
        self.talk.open(
            id=text_or_empty(told.get("id")) or self.stem,
            parent_id=text_or_empty(told.get("forked_from_id")) or UNSET,
            directory=text_or_empty(told.get("cwd")) or UNSET,
            version=text_or_empty(told.get("cli_version")) or UNSET,
            time=session_time(moment(timestamp)),
            origin=Origin(system=system or UNSET, tools=tools or UNSET)
            if system or tools
            else UNSET,
        )

    # --- items ---

    def _item(self, item: Json, name: str, at: int | None) -> None:
        if item.get("type") == _UNSENT:
            return
        read = _wire.read(item)
        self.tally.messages += item.get("type") == "message"
        if read.role == "assistant" and self._answer is not None:
            self._more += read.parts
        elif read.role == "assistant":
            message = assistant_message(
                name,
                read.parts,
                at,
                model=self._model,
                tokens=self._usage.begin(),
                variant=self._effort or UNSET,
            )
            self._answer, self.talk.last_id = message, name
        else:
            self._end_answer()
            for answer in read.answers:
                self.talk.answer(answer, at)
            if not read.answers:
                self._prompt(self.talk, read, name, at)

    def _end_answer(self) -> None:
        """An answer is whole once something else comes."""
        answer, more = self._answer, self._more
        if answer is not None:
            self._answer, self._more = None, []
            if more:
                parts = (*answer.parts, *more)
                answer = with_info(replace(answer, parts=parts), finish=finish_of(parts))
            self.talk.add(answer)

    def _prompt(
        self, talk: Talk, read: Read, name: str, at: int | None, *, again: bool = False
    ) -> None:
        """A message of the user, or of the program in their place."""
        parts = tuple(_told_apart(read))
        if words := _words(parts):
            self._prompts.add(self.talk.last_id, words)
        self._usage.forget()
        self.talk.last_id = name
        wire = {_wire.key: read.rest} if read.rest else None
        talk.user(name, by_program(parts) if again else parts, at, wire)

    # --- events ---

    def _event(self, told: Json) -> None:
        match told.get("type"):
            case "token_count":
                tokens = self._usage.end(told.get("info"))
                if tokens is not None:
                    self._end_answer()  # the step is over
                    last = self.talk.last
                    if last is not None and last.id == self.talk.last_id:
                        self.talk.extend((), tokens=tokens)
            case "thread_rolled_back":
                first = self._prompts.take_back(as_number(told.get("num_turns")))
                if first is not None:
                    self._end_answer()
                    self.talk.revert(first[0])
            case "thread_name_updated":
                self.talk.open(title=text_or_empty(told.get("thread_name")) or UNSET)
            case _:
                pass

    # --- compactions ---

    def _fold(self, told: Json, name: str, at: int | None) -> None:
        text, history = text_or_empty(told.get("message")), told.get("replacement_history")
        kept: list[Read] = []
        sealed: list[AnyPart] = []
        for item in objects([] if history is None else history, "'replacement_history'"):
            read = _wire.read(item)
            if item.get("type") in _SEALED:
                sealed += read.parts
            else:
                kept.append(read)
        prompts = self._prompts.clear()
        if history is None:
            kept = [Read(role="user", parts=(TextPart(text=words),)) for _, words in prompts]
        rest = without(told, "message", "replacement_history")
        self._end_answer()
        # Whether it was asked for is not told.
        wire = {_NAME: rest} if rest else None
        self.talk.fold(name, _summary(text, sealed), at, auto=True, wire=wire)
        # Where the summary is a text, it stands among the messages as well.
        self._tell_again(
            [read for read in kept if not text or not _words(read.parts).endswith(text)], name, at
        )

    def _tell_again(self, kept: list[Read], name: str, at: int | None) -> None:
        """What the agent went on to see of what was folded; all of it was counted before."""
        tally, self.tally = self.tally, Tally()
        talk = Talk(self, self.talk.info)
        for number, read in enumerate(kept, 1):
            place = f"{name}-{number}"
            for answer in read.answers:
                talk.answer(answer, at)
            if read.role == "assistant":
                self.talk.last_id = place
                talk.assistant(place, read.parts, at, model=self._model)
            elif not read.answers:
                self._prompt(talk, read, place, at, again=True)
        talk.flush()
        self._usage.forget()
        self.tally = tally


class _Prompts:
    """The newest prompts: the message before each, and its words."""

    def __init__(self) -> None:
        self._all: deque[tuple[str | None, str]] = deque()
        self._size = 0

    def add(self, before: str | None, words: str) -> None:
        self._all.append((before, words))
        self._size += len(words)
        while self._size > _MOST_REMEMBERED and len(self._all) > 1:
            self._size -= len(self._all.popleft()[1])

    def take_back(self, turns: int) -> tuple[str | None, str] | None:
        """The first of so many that are no longer there."""
        first = None
        for _ in range(min(turns, len(self._all))):
            first = self._all.pop()
            self._size -= len(first[1])
        return first

    def clear(self) -> list[tuple[str | None, str]]:
        """All, which are forgotten."""
        prompts = list(self._all)
        self._all.clear()
        self._size = 0
        return prompts


class _Usage:
    """What steps took: told after the items of a step, or before them in old versions."""

    def __init__(self) -> None:
        self._total: object = None
        self._next: Tokens | None = None
        self._waits = False  # whether there is an answer of which nothing is told

    def begin(self) -> Tokens | None:
        """What was told of the answer that begins."""
        tokens, self._next = self._next, None
        self._waits = tokens is None
        return tokens

    def forget(self) -> None:
        """Something else comes: what is told belongs to nothing before it."""
        self._next = None
        self._waits = False

    def end(self, info: Any) -> Tokens | None:
        """What the newest answer took."""
        told = as_object(info)
        total, usage = told.get("total_token_usage"), told.get("last_token_usage")
        if total == self._total or not isinstance(usage, dict):
            return None  # the same is told again
        self._total = total
        tokens = _tokens(as_object(told["last_token_usage"]))
        if self._waits:
            self._waits = False
            return tokens
        self._next = tokens
        return None


def _tokens(usage: Json) -> Tokens | None:
    details = {"cached_tokens": usage.get("cached_input_tokens")}
    made = {"reasoning_tokens": usage.get("reasoning_output_tokens")}
    return usage_tokens({**usage, "input_tokens_details": details, "output_tokens_details": made})


def _told_apart(read: Read) -> Iterable[AnyPart]:
    """The parts of a message, those that the program wrote marked as such."""
    for part in read.parts:
        is_text = isinstance(part, TextPart)
        is_program = is_text and (is_opaque(part) or _BY_PROGRAM.match(part.text) is not None)
        yield from by_program((part,)) if is_program or read.role != "user" else (part,)


def _words(parts: Iterable[AnyPart]) -> str:
    """What the user says."""
    texts = (part for part in parts if isinstance(part, TextPart))
    return "\n\n".join(part.text for part in texts if not part.synthetic)


def _summary(text: str, sealed: list[AnyPart]) -> tuple[AnyPart, ...]:
    """What a compaction leaves: a text, or what only the provider can read."""
    if text.strip() or not sealed:
        return (TextPart(text=text), *sealed)
    first = sealed[0]
    if isinstance(first, TextPart):
        first = replace(first, text=_SEALED_TEXT, synthetic=True)
    return (first, *sealed[1:])
