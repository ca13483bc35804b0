"""Gemini CLI: `~/.gemini/tmp/<project>/chats`, and what `/chat save` writes.

Facts of this format: an older session is one document; a newer one is lines, in which a message is
written again with all that is added to it, `$rewindTo` takes a message and all after it back, and
`$set` tells of the session, or puts another history in the place of all messages: one that was
folded, or in which results were masked. `/chat save` writes the bare contents of the API. Content
is a text or Gemini's own parts; a call may stand among them and again in `toolCalls`, where its
result is what the model was told, with a copy for the screen.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    Message,
    Pending,
    ReasoningPart,
    SessionInfo,
    TextPart,
    Time,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Frozen, Json
from foldmark.transcripts.build import (
    FormatReader,
    UniqueIds,
    as_list,
    as_object,
    assistant_message,
    marked_synthetic,
    milliseconds,
    optional_text,
    user_message,
    with_info,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import ReadResult, objects, subobject, text_at
from foldmark.wire.gemini import KINDS, Gemini, usage_tokens
from foldmark.wire.lists import read_list

_NAME = "gemini-cli"
_MOST_HELD = 8  # messages that may still be written again
_LOOKED_AT = 8  # contents by which a history is recognised
_HEADER = {"sessionId", "projectHash"}
_SNAPSHOT, _MASKED = "<state_snapshot>", "<tool_output_masked>"
_SETUP = "<session_context>"  # by it the program begins what it tells of where it works
# What a step took, by the names of the API.
_USAGE = {
    "promptTokenCount": "input",
    "cachedContentTokenCount": "cached",
    "thoughtsTokenCount": "thoughts",
    "candidatesTokenCount": "output",
    "totalTokenCount": "total",
}
_wire = Gemini()


class _Draft(Frozen):
    """A message of ours, which may still be written again, and the results told with it."""

    message: Message
    answers: tuple[ReadResult, ...]
    at: int | None

    @property
    def texts(self) -> list[TextPart]:
        """What it says in words."""
        return [part for part in self.message.parts if isinstance(part, TextPart)]

    @property
    def calls(self) -> set[str]:
        """The calls that it makes."""
        calls = (part for part in self.message.parts if isinstance(part, ToolPart))
        return {part.call_id for part in calls if part.call_id}

    @property
    def masked(self) -> set[str]:
        """The calls whose results the program took out of the context."""
        return {answer.call_id for answer in self.answers if _MASKED in answer.output}

    @property
    def is_snapshot(self) -> bool:
        """Whether it stands for messages that were folded."""
        return any(_SNAPSHOT in part.text for part in self.texts)


class GeminiCli(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "Gemini CLI, ~/.gemini/tmp, and its /chat save"
    key = _wire.key
    list_field = "history"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        if any(fields.keys() >= _HEADER for fields in (head.fields, *head.lines)):
            return True
        name = next((name for name in ("history", "contents") if name in head.fields), "")
        items = head.first_items(name, _LOOKED_AT)
        return bool(items) and all(map(_is_content, items))

    def __init__(self, name: str) -> None:
        """Take the file's name, for a history that names no session."""
        super().__init__(name)
        self._drafts: dict[str, _Draft] = {}
        # The records of the history as it stands: their messages, and the newest after each.
        self._history: dict[str, tuple[str | None, str | None]] = {}
        self._names = UniqueIds()
        self._answered: set[str] = set()
        self._masked: set[str] = set()
        self._folds = 0

    def read(self, record: Json) -> None:
        """Tell what a line or a document says."""
        contents = next((name for name in ("history", "contents") if record.get(name)), "")
        if contents or record.get("history") == []:
            listed = objects(record[contents or "history"], f"'{contents}'")
            self._saved_contents(listed, record.get("systemInstruction"))
        elif rewound := optional_text(record, "$rewindTo"):
            self._rewind(rewound)
        elif optional_text(record, "id") and optional_text(record, "type"):
            if _is_shown(record):
                self._say(_draft(record, record["id"]))
        elif patch := subobject(record, "$set"):
            self._patch(patch)
        elif session := optional_text(record, "sessionId"):
            self._begin(record, session)

    def finish(self) -> None:
        """Tell the messages that are held."""
        self._settle_all()

    # --- sessions ---

    def _begin(self, record: Json, session: str) -> None:
        drafts = _drafts(record.get("messages"), session)
        if self.conversation.emitted_info is None:
            created, updated = (
                milliseconds(record.get("startTime")),
                milliseconds(record.get("lastUpdated")),
            )
            self.conversation.info = SessionInfo(
                id=session,
                project_id=optional_text(record, "projectHash") or UNSET,
                title=optional_text(record, "summary") or UNSET,
                time=Time(created=created or UNSET, updated=updated or created or UNSET),
            )
            self.conversation.open()
        for draft in drafts:
            self._say(draft)

    def _patch(self, patch: Json) -> None:
        drafts, info = (
            _drafts(patch.get("messages"), self.conversation.info.id),
            self.conversation.info,
        )
        if updated := milliseconds(patch.get("lastUpdated")):
            info = replace(info, time=replace(info.time or Time(), updated=updated))
        self.conversation.info = replace(info, title=optional_text(patch, "summary") or info.title)
        if "messages" in patch:
            self._replace(drafts)

    def _saved_contents(self, contents: list[Json], system: object) -> None:
        """Bare contents, which are written back as they came; with the prompt of a request."""
        read = read_list(_wire, contents)
        origin = read.origin
        if system := as_object(system):
            parts = _wire.read(system).parts
            text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
            origin = replace(origin, system=text, wire={_wire.name: {"system": system}})
        self.conversation.info = SessionInfo(id=self.session_ids.claim(self.stem), origin=origin)
        self.conversation.open()
        self.tally.messages += len(contents)
        parts = [part for content in contents for part in content.get("parts") or ()]
        kinds = Counter(KINDS.get(field) for part in parts for field in part)
        self.tally.calls += kinds["call"]
        self.tally.results += kinds["result"]
        self.emit(self.conversation, *read.messages)

    # --- messages ---

    def _say(self, draft: _Draft) -> None:
        if self.conversation.emitted_info is None:
            self.conversation.open()
        name = draft.message.id
        if name in self._drafts and draft.masked:
            self._settle_all()  # as it was before
        if name in self._history:
            self._answer(draft)
            return
        self.tally.messages += name not in self._drafts
        self._drafts[name] = draft
        if len(self._drafts) > _MOST_HELD:
            self._settle(next(iter(self._drafts)))

    def _settle_all(self) -> None:
        for name in tuple(self._drafts):
            self._settle(name)

    def _settle(self, name: str) -> None:
        """Hand on a message that will not be written again."""
        draft = self._drafts.pop(name)
        if draft.message.parts or not draft.answers:
            # One that was folded or taken back may be told again.
            self.conversation.add(with_info(draft.message, id=self._names.claim(name)))
        self._history[name] = (self.conversation.last_id, self.conversation.last_id)
        self._answered -= draft.calls
        self._masked -= draft.calls
        self._answer(draft)

    def _answer(self, draft: _Draft) -> None:
        """Results, once only: they are told with the call, and as a message of their own."""
        masked = draft.masked & self._answered - self._masked
        for answer in draft.answers:
            if answer.call_id not in self._answered:
                self._answered.add(answer.call_id)
                self.conversation.add_result(answer, draft.at)
        if masked:
            self._masked |= masked
            self.conversation.prune(sorted(masked), draft.at)

    # --- another history ---

    def _rewind(self, name: str) -> None:
        """All from this message on is taken back; all there is, where it is not known."""
        self._settle_all()
        names = list(self._history)
        if names:
            self._revert(names.index(name) if name in names else 0)

    def _revert(self, count: int) -> None:
        """Only the first records still stand."""
        self._history = dict(list(self._history.items())[:count])
        self.conversation.revert(next(reversed(self._history.values()), (None, None))[1])

    def _replace(self, drafts: list[_Draft]) -> None:
        """A history in the place of the one that was told."""
        self._settle_all()
        told, names = list(self._history), [draft.message.id for draft in drafts]
        pairs = zip(told, names, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rest = drafts
        if same < len(told):
            later = set(told[same:])
            tail = next((place for place, name in enumerate(names) if name in later), len(names))
            if tail < len(names) or any(draft.is_snapshot for draft in drafts[same:]):
                self._fold(drafts[:tail], names[tail:])
                rest = drafts[tail:]
            else:
                self._revert(same)
        for draft in rest:
            self._say(draft)

    def _fold(self, head: list[_Draft], tail: list[str]) -> None:
        """What now stands before the tail stands for all that was before it."""
        self._folds += 1
        self.tally.messages += sum(draft.message.id not in self._history for draft in head)
        self.conversation.add_compaction(
            f"{self.conversation.info.id}-fold-{self._folds}",
            [text for draft in head for text in draft.texts],
            head[-1].at if head else None,
            auto=True,
            tail=self._history[tail[0]][0] if tail else None,
        )
        last = self.conversation.last_id
        places = {draft.message.id: last for draft in head}
        places |= {name: self._history[name][0] or last for name in tail if name in self._history}
        self._history = {name: (place, last) for name, place in places.items()}


# --- records -------------------------------------------------------------------------------


def _is_shown(said: Json) -> bool:
    """Whether the model sees it; of what the program says, only files that a tool gave."""
    if said.get("type") in ("user", "gemini"):
        return True
    given = as_list(said.get("content"))
    return said.get("type") == "info" and any("inlineData" in as_object(part) for part in given)


def _drafts(messages: object, session: str) -> list[_Draft]:
    """What the model sees of a whole history."""
    return [
        _draft(said, optional_text(said, "id") or f"{session}-{number}")
        for number, said in enumerate(objects(messages or [], "'messages'"), 1)
        if _is_shown(said)
    ]


def _draft(said: Json, id: str) -> _Draft:
    """A record as a message of this id."""
    by_model, at = said.get("type") == "gemini", milliseconds(said.get("timestamp"))
    content = {"role": "model" if by_model else "user", "parts": _api_parts(said.get("content"))}
    read = _wire.read(content)
    if not by_model:
        parts = marked_synthetic(read.parts, lambda part: part.text.startswith(_SETUP))
        return _Draft(message=user_message(id, parts, at), answers=read.results, at=at)
    listed = objects(said.get("toolCalls") or [], "'toolCalls'")
    calls = {optional_text(call, "id") or f"{id}-{n}": call for n, call in enumerate(listed, 1)}
    model = optional_text(said, "model")
    message = assistant_message(
        id,
        (*_thoughts(said.get("thoughts")), *_with_calls(read.parts, calls)),
        at,
        model=(_wire.provider, model) if model else ("", ""),
        tokens=_tokens(subobject(said, "tokens")),
    )
    answers = (_answer(call_id, call) for call_id, call in calls.items() if call.get("result"))
    return _Draft(message=message, answers=tuple(answers), at=at)


def _api_parts(content: object) -> list[Json]:
    """Content in the one form that the API takes."""
    listed = as_list(content) or [content]
    parts: list[Any] = [{"text": part} if isinstance(part, str) else part for part in listed]
    return [part for part in parts if part and part != {"text": ""}]


def _thoughts(thoughts: object) -> Iterator[ReasoningPart]:
    for thought in objects(thoughts or [], "'thoughts'"):
        subject, more = optional_text(thought, "subject"), optional_text(thought, "description")
        yield ReasoningPart(text=" ".join(filter(None, (subject and f"**{subject}**", more))))


def _with_calls(parts: Sequence[AnyPart], calls: dict[str, Json]) -> Iterator[AnyPart]:
    """All that was said, and the calls that do not stand in it already."""
    yield from parts
    told = {part.call_id for part in parts if isinstance(part, ToolPart)}
    for call_id, call in calls.items():
        if call_id not in told:
            state = Pending(input=subobject(call, "args"))
            yield ToolPart(tool=text_at(call, "name"), call_id=call_id, state=state)


def _answer(call_id: str, call: Json) -> ReadResult:
    """The result of a call; where it was changed later, those of its neighbours stand with it."""
    result = call.get("result")
    read = _wire.read({"role": "user", "parts": _api_parts(result)})
    for answer in read.results:
        if answer.call_id == call_id or len(read.results) == 1:
            return replace(answer, call_id=call_id)
    text = "".join(part.text for part in read.parts if isinstance(part, TextPart))
    tool = text_at(call, "name")
    return ReadResult(call_id=call_id, output=text, tool=tool, raw={"result": result})


def _tokens(told: Json) -> Tokens | None:
    usage = {name: told.get(own) for name, own in _USAGE.items()}
    return usage_tokens(usage) if told else None


def _is_content(item: object) -> bool:
    """Whether it is a content of the API; others that have parts tell the kind of each."""
    content = as_object(item)
    if content.get("role") not in ("user", "model") or not isinstance(content.get("parts"), list):
        return False
    return all(isinstance(part, dict) and "type" not in part for part in as_list(content["parts"]))
