"""Codex: `~/.codex/sessions/<date>/rollout-<time>-<session>.jsonl`, one event a line.

Facts of this format: `response_item` lines are items of the Responses API, several of which are
one answer; `event_msg` lines repeat them for the screen, but also tell what a step took and what
the user took back. After `compacted` the agent sees the history that this line holds, or in old
versions the newest prompts: they stand here once more, after the pivot.
"""

import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, Origin, TextPart, Tokens, is_opaque
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    Tally,
    as_object,
    marked_synthetic,
    milliseconds,
    session_time,
    text_or_empty,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import (
    ReadMessage,
    object_at,
    objects,
    positive_int,
    subobject,
    text_at,
    without,
)
from foldmark.wire.openai_responses import OpenAIResponses, usage_tokens

_NAME = "codex"
_PROVIDER = "openai"
_KINDS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
_SEALED = ("compaction", "compaction_summary", "context_compaction")
_SEALED_TEXT = "[A summary that only its provider can read.]"
_UNSENT = "ghost_snapshot"  # an item of the program's own, which the model is not shown
_MOST_KEPT = 80_000  # characters of prompts that old versions keep when they compact
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
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        return any(
            line.get("type") in _KINDS and isinstance(line.get("payload"), dict)
            for line in head.lines
        )

    def __init__(self, name: str) -> None:
        """Take the file's name, for a file that names no session."""
        super().__init__(name)
        self._is_open = False
        self._prompts: list[tuple[str | None, str]] = []  # the message before each, and its words
        self._usage = _Usage()
        self._model = (_PROVIDER, "")
        self._effort = ""
        self._is_answering = False  # whether the next item may go on with an answer

    def read(self, record: Json) -> None:
        """Tell what a line says."""
        kind = text_at(record, "type")
        told = object_at(record, "payload") if kind in _KINDS else {}
        if not self._is_open:
            self._open(told if kind == "session_meta" else {}, record.get("timestamp"))
        name, at = f"{self.conversation.info.id}-{self.line}", milliseconds(record.get("timestamp"))
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

    def _open(self, told: Json, timestamp: object) -> None:
        system = text_or_empty(subobject(told, "base_instructions").get("text"))
        tools = told.get("dynamic_tools")
        self._model = (text_or_empty(told.get("model_provider")) or _PROVIDER, "")
        self.conversation.open(
            id=text_or_empty(told.get("id")) or self.stem,
            parent_id=text_or_empty(told.get("forked_from_id")) or UNSET,
            directory=text_or_empty(told.get("cwd")) or UNSET,
            version=text_or_empty(told.get("cli_version")) or UNSET,
            time=session_time(milliseconds(timestamp)),
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
        if read.role != "assistant":
            self._is_answering = False
            for answer in read.results:
                self.conversation.add_result(answer, at)
            if not read.results:
                self._prompt(self.conversation, read, name, at)
        elif self._is_answering:
            self.conversation.extend(read.parts)
        else:
            self._is_answering = True
            tokens, variant = self._usage.begin(), self._effort or UNSET
            self.conversation.add_assistant(
                name, read.parts, at, model=self._model, tokens=tokens, variant=variant
            )

    def _prompt(
        self,
        conversation: ConversationBuilder,
        read: ReadMessage,
        name: str,
        at: int | None,
        *,
        again: bool = False,
    ) -> None:
        """A message of the user, or of the program in their place."""
        parts = marked_synthetic(
            read.parts,
            lambda part: read.role != "user" or is_opaque(part) or _BY_PROGRAM.match(part.text),
        )
        if words := _words(parts):
            self._prompts.append((self.conversation.last_id, words))
        self._usage.forget()
        self.conversation.last_id = name
        wire = {_wire.key: read.rest} if read.rest else None
        conversation.add_user(name, marked_synthetic(parts) if again else parts, at, wire)

    # --- events ---

    def _event(self, told: Json) -> None:
        match told.get("type"):
            case "token_count":
                tokens = self._usage.end(told.get("info"))
                if tokens is not None:
                    self._is_answering = False  # the step is over
                    last = self.conversation.last
                    if last is not None and last.id == self.conversation.last_id:
                        self.conversation.extend((), tokens=tokens)
            case "thread_rolled_back":
                turns = min(positive_int(told.get("num_turns")), len(self._prompts))
                if turns:
                    self._is_answering = False
                    self.conversation.revert(self._prompts[-turns][0])
                    del self._prompts[-turns:]
            case "thread_name_updated":
                self.conversation.open(title=text_or_empty(told.get("thread_name")) or UNSET)
            case _:
                pass

    # --- compactions ---

    def _fold(self, told: Json, name: str, at: int | None) -> None:
        text, history = text_or_empty(told.get("message")), told.get("replacement_history")
        kept: list[ReadMessage] = []
        sealed: list[AnyPart] = []
        for item in objects([] if history is None else history, "'replacement_history'"):
            read = _wire.read(item)
            if item.get("type") in _SEALED:
                sealed += read.parts
            else:
                kept.append(read)
        if history is None:
            sizes = accumulate(len(words) for _, words in reversed(self._prompts))
            count = max(1, sum(size <= _MOST_KEPT for size in sizes))
            newest = self._prompts[-count:]
            kept = [ReadMessage(role="user", parts=(TextPart(text=words),)) for _, words in newest]
        rest = without(told, "message", "replacement_history")
        self._prompts, self._is_answering = [], False
        # Whether it was asked for is not told.
        wire = {_NAME: rest} if rest else None
        self.conversation.add_compaction(name, _summary(text, sealed), at, auto=True, wire=wire)
        # Where the summary is a text, it stands among the messages as well.
        self._tell_again(
            [read for read in kept if not text or not _words(read.parts).endswith(text)], name, at
        )

    def _tell_again(self, kept: list[ReadMessage], name: str, at: int | None) -> None:
        """What the agent went on to see of what was folded; all of it was counted before."""
        tally, self.tally = self.tally, Tally()
        conversation = ConversationBuilder(self, self.conversation.info)
        for number, read in enumerate(kept, 1):
            place = f"{name}-{number}"
            for answer in read.results:
                conversation.add_result(answer, at)
            if read.role == "assistant":
                self.conversation.last_id = place
                conversation.add_assistant(place, read.parts, at, model=self._model)
            elif not read.results:
                self._prompt(conversation, read, place, at, again=True)
        conversation.flush()
        self._usage.forget()
        self.tally = tally


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
