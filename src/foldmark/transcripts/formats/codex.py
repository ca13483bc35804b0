"""Codex: `~/.codex/sessions/<date>/rollout-<time>-<session>.jsonl`, one event per line.

Facts of this format: `response_item` lines are items of the Responses API; several of them are one
reply. `event_msg` lines repeat them for the screen, but also have token usage and rollbacks of the
user. After `compacted`, the agent sees the history in that line, or in old versions the newest
prompts; these messages are added again after the compaction.
"""

import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, Origin, TextPart, Tokens, is_opaque
from foldmark.model.values import Json
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

from ..build import (
    ConversationBuilder,
    FormatReader,
    Tally,
    as_object,
    marked_synthetic,
    milliseconds,
    session_time,
    text_or_empty,
)
from ..source import Head

_NAME = "codex"
_PROVIDER = "openai"
_KINDS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")
_SEALED = ("compaction", "compaction_summary", "context_compaction")
_SEALED_TEXT = "[A summary that only its provider can read.]"
_UNSENT = "ghost_snapshot"  # an item for the program itself, which the model never sees
_MAX_KEPT = 80_000  # characters of prompts that old versions keep when they compact
# How texts begin that the program writes in the role of the user.
_BY_PROGRAM = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|turn_aborted"
    r"|user_shell_command|subagent_notification|subagents|skill|plugins|hook_prompt|goal_context"
    r"|codex_internal_context|model_switch|personality_spec)\b)",
    re.IGNORECASE,
)
_wire = OpenAIResponses()


class Codex(FormatReader):
    """Reads a file of Codex."""

    name = _NAME
    about = "Codex, ~/.codex/sessions"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        return any(
            line.get("type") in _KINDS and isinstance(line.get("payload"), dict)
            for line in head.lines
        )

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of a session without one."""
        super().__init__(name)
        self._is_open = False
        # For each prompt: the id of the message before it, and its text.
        self._prompts: list[tuple[str | None, str]] = []
        self._usage = _Usage()
        self._model = (_PROVIDER, "")
        self._effort = ""
        self._is_replying = False  # whether the next item may continue a reply

    def read(self, record: Json) -> None:
        """Add a line."""
        kind = text_at(record, "type")
        payload = object_at(record, "payload") if kind in _KINDS else {}
        if not self._is_open:
            self._open(payload if kind == "session_meta" else {}, record.get("timestamp"))
        id, at = f"{self.conversation.info.id}-{self.line}", milliseconds(record.get("timestamp"))
        if kind == "response_item":
            self._add_item(payload, id, at)
        elif kind == "event_msg":
            self._add_event(payload)
        elif kind == "compacted":
            self._add_compaction(payload, id, at)
        elif kind == "turn_context":
            self._model = (self._model[0], text_or_empty(payload.get("model")))
            self._effort = text_or_empty(payload.get("effort"))
        self._is_open = True  # not before: an unreadable line emits nothing

    def _open(self, metadata: Json, timestamp: object) -> None:
        system = text_or_empty(subobject(metadata, "base_instructions").get("text"))
        tools = metadata.get("dynamic_tools")
        self._model = (text_or_empty(metadata.get("model_provider")) or _PROVIDER, "")
        self.conversation.open(
            id=text_or_empty(metadata.get("id")) or self.stem,
            parent_id=text_or_empty(metadata.get("forked_from_id")) or UNSET,
            directory=text_or_empty(metadata.get("cwd")) or UNSET,
            version=text_or_empty(metadata.get("cli_version")) or UNSET,
            time=session_time(milliseconds(timestamp)),
            origin=Origin(system=system or UNSET, tools=tools or UNSET)
            if system or tools
            else UNSET,
        )

    # --- items ---

    def _add_item(self, item: Json, id: str, at: int | None) -> None:
        if item.get("type") == _UNSENT:
            return
        message = _wire.read(item)
        self.tally.messages += item.get("type") == "message"
        if message.role != "assistant":
            self._is_replying = False
            for result in message.results:
                self.conversation.add_result(result, at)
            if not message.results:
                self._add_prompt(message, id, at)
        elif self._is_replying:
            self.conversation.extend(message.parts)
        else:
            self._is_replying = True
            tokens, variant = self._usage.begin(), self._effort or UNSET
            self.conversation.add_assistant(
                id, message.parts, at, model=self._model, tokens=tokens, variant=variant
            )

    def _add_prompt(
        self,
        message: ReadMessage,
        id: str,
        at: int | None,
        copies: ConversationBuilder | None = None,
    ) -> None:
        """Add a message in the role of the user, or a synthetic copy of it to `copies`."""
        parts = marked_synthetic(
            message.parts,
            lambda part: message.role != "user" or is_opaque(part) or _BY_PROGRAM.match(part.text),
        )
        if text := _user_text(parts):
            self._prompts.append((self.conversation.last_id, text))
        self._usage.forget()
        self.conversation.last_id = id
        wire = {_wire.key: message.rest} if message.rest else None
        parts = marked_synthetic(parts) if copies else parts
        (copies or self.conversation).add_user(id, parts, at, wire)

    # --- events ---

    def _add_event(self, event: Json) -> None:
        match event.get("type"):
            case "token_count":
                tokens = self._usage.end(event.get("info"))
                if tokens is not None:
                    self._is_replying = False  # the step is over
                    last = self.conversation.last
                    if last is not None and last.id == self.conversation.last_id:
                        self.conversation.extend((), tokens=tokens)
            case "thread_rolled_back":
                turns = min(positive_int(event.get("num_turns")), len(self._prompts))
                if turns:
                    self._is_replying = False
                    self.conversation.revert(self._prompts[-turns][0])
                    del self._prompts[-turns:]
            case "thread_name_updated":
                self.conversation.open(title=text_or_empty(event.get("thread_name")) or UNSET)
            case _:
                pass

    # --- compactions ---

    def _add_compaction(self, payload: Json, id: str, at: int | None) -> None:
        text, history = text_or_empty(payload.get("message")), payload.get("replacement_history")
        messages: list[ReadMessage] = []
        sealed: list[AnyPart] = []
        for item in objects([] if history is None else history, "'replacement_history'"):
            message = _wire.read(item)
            if item.get("type") in _SEALED:
                sealed += message.parts
            else:
                messages.append(message)
        if history is None:
            sizes = accumulate(len(prompt) for _, prompt in reversed(self._prompts))
            count = max(1, sum(size <= _MAX_KEPT for size in sizes))
            prompts = [TextPart(text=prompt) for _, prompt in self._prompts[-count:]]
            messages = [ReadMessage(role="user", parts=(prompt,)) for prompt in prompts]
        rest = without(payload, "message", "replacement_history")
        self._prompts, self._is_replying = [], False
        # Files do not record whether the user requested the compaction.
        wire = {_NAME: rest} if rest else None
        self.conversation.add_compaction(id, _summary(text, sealed), at, auto=True, wire=wire)
        # A summary that is a text is one of the messages, too.
        others = [one for one in messages if not text or not _user_text(one.parts).endswith(text)]
        self._add_again(others, id, at)

    def _add_again(self, messages: list[ReadMessage], id: str, at: int | None) -> None:
        """Add messages that the agent sees after a compaction, and that were counted before it."""
        tally, self.tally = self.tally, Tally()
        copies = ConversationBuilder(self, self.conversation.info)
        for number, message in enumerate(messages, 1):
            new_id = f"{id}-{number}"
            for result in message.results:
                copies.add_result(result, at)
            if message.role == "assistant":
                self.conversation.last_id = new_id
                copies.add_assistant(new_id, message.parts, at, model=self._model)
            elif not message.results:
                self._add_prompt(message, new_id, at, copies)
        copies.flush()
        self._usage.forget()
        self.tally = tally


class _Usage:
    """The token usage of steps, which comes after a step's items, or before in old versions."""

    def __init__(self) -> None:
        self._total: object = None
        self._next: Tokens | None = None
        self._waits = False  # whether the newest reply has no usage yet

    def begin(self) -> Tokens | None:
        """The usage of the reply that begins, if it came before."""
        tokens, self._next = self._next, None
        self._waits = tokens is None
        return tokens

    def forget(self) -> None:
        """Forget usage and reply, as something else comes between."""
        self._next = None
        self._waits = False

    def end(self, info: Any) -> Tokens | None:
        """The usage of the newest reply, if `info` has it; else it is that of the next reply."""
        fields = as_object(info)
        total, usage = fields.get("total_token_usage"), fields.get("last_token_usage")
        if total == self._total or not isinstance(usage, dict):
            return None  # a repetition
        self._total = total
        tokens = _tokens(as_object(fields["last_token_usage"]))
        if self._waits:
            self._waits = False
            return tokens
        self._next = tokens
        return None


def _tokens(usage: Json) -> Tokens | None:
    inputs = {"cached_tokens": usage.get("cached_input_tokens")}
    outputs = {"reasoning_tokens": usage.get("reasoning_output_tokens")}
    return usage_tokens({**usage, "input_tokens_details": inputs, "output_tokens_details": outputs})


def _user_text(parts: Iterable[AnyPart]) -> str:
    """The text that the user wrote."""
    texts = (part for part in parts if isinstance(part, TextPart))
    return "\n\n".join(part.text for part in texts if not part.synthetic)


def _summary(text: str, sealed: list[AnyPart]) -> tuple[AnyPart, ...]:
    """The parts of a summary: a text, or items that only the provider can read."""
    if text.strip() or not sealed:
        return (TextPart(text=text), *sealed)
    first = sealed[0]
    if isinstance(first, TextPart):
        first = replace(first, text=_SEALED_TEXT, synthetic=True)
    return (first, *sealed[1:])
