"""Gemini CLI: `~/.gemini/tmp/<project>/chats`, and the files of `/chat save`.

Facts of this format: an older session is one document, a newer one has lines. A line repeats a
message with all that was added to it; `$rewindTo` takes back a message and all after it; `$set` has
fields of the session, or a history that replaces all messages: one that was compacted, or in which
results were masked. `/chat save` writes only contents of the API. Content is a text or Gemini's
parts; a call may be in these and again in `toolCalls`, where its result is the one that the model
saw, with a copy for the screen.
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
from foldmark.wire.codec import ReadResult, objects, subobject, text_at
from foldmark.wire.gemini import KINDS, Gemini, usage_tokens
from foldmark.wire.lists import read_list

from ..build import (
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
from ..source import Head

_NAME = "gemini-cli"
_MAX_DRAFTS = 8
_EXAMINED = 8  # contents by which a history is recognized
_HEADER = {"sessionId", "projectHash"}
_SNAPSHOT, _MASKED = "<state_snapshot>", "<tool_output_masked>"
_SETUP = "<session_context>"  # how the program's description of its environment starts
# The fields of a step's token usage by the names of the API.
_USAGE = {
    "promptTokenCount": "input",
    "cachedContentTokenCount": "cached",
    "thoughtsTokenCount": "thoughts",
    "candidatesTokenCount": "output",
    "totalTokenCount": "total",
}
_wire = Gemini()


class _Draft(Frozen):
    """A message that a later line may still replace, and the results recorded with it."""

    message: Message
    results: tuple[ReadResult, ...]
    at: int | None

    @property
    def texts(self) -> list[TextPart]:
        """The texts of the message."""
        return [part for part in self.message.parts if isinstance(part, TextPart)]

    @property
    def calls(self) -> set[str]:
        """The ids of its calls."""
        calls = (part for part in self.message.parts if isinstance(part, ToolPart))
        return {part.call_id for part in calls if part.call_id}

    @property
    def masked(self) -> set[str]:
        """The ids of calls whose results the program has hidden from the model."""
        return {result.call_id for result in self.results if _MASKED in result.output}

    @property
    def is_snapshot(self) -> bool:
        """Whether it is the summary of a compaction."""
        return any(_SNAPSHOT in part.text for part in self.texts)


class GeminiCli(FormatReader):
    """Reads a file of Gemini CLI."""

    name = _NAME
    about = "Gemini CLI, ~/.gemini/tmp, and its /chat save"
    key = _wire.key
    list_field = "history"

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        if any(fields.keys() >= _HEADER for fields in (head.fields, *head.lines)):
            return True
        name = next((name for name in ("history", "contents") if name in head.fields), "")
        items = head.first_items(name, _EXAMINED)
        return bool(items) and all(map(_is_content, items))

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of a session without one."""
        super().__init__(name)
        self._drafts: dict[str, _Draft] = {}
        # The current history: for each record, the ids of its message and of the newest after it.
        self._history: dict[str, tuple[str | None, str | None]] = {}
        self._ids = UniqueIds()
        self._settled_calls: set[str] = set()
        self._masked: set[str] = set()
        self._compactions = 0

    def read(self, record: Json) -> None:
        """Add a line or document."""
        field = next((name for name in ("history", "contents") if record.get(name)), "")
        if field or record.get("history") == []:
            contents = objects(record[field or "history"], f"'{field}'")
            self._add_contents(contents, record.get("systemInstruction"))
        elif target := optional_text(record, "$rewindTo"):
            self._rewind(target)
        elif optional_text(record, "id") and optional_text(record, "type"):
            if _is_visible(record):
                self._add(_draft(record, record["id"]))
        elif patch := subobject(record, "$set"):
            self._patch(patch)
        elif session := optional_text(record, "sessionId"):
            self._open(record, session)

    def finish(self) -> None:
        """Add the messages that are still drafts."""
        self._settle_all()

    # --- sessions ---

    def _open(self, record: Json, session: str) -> None:
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
            self._add(draft)

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

    def _add_contents(self, contents: list[Json], system: object) -> None:
        """Add contents of the API, which can be written back unchanged, and a system prompt."""
        decoded = read_list(_wire, contents)
        origin = decoded.origin
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
        self.emit(self.conversation, *decoded.messages)

    # --- messages ---

    def _add(self, draft: _Draft) -> None:
        if self.conversation.emitted_info is None:
            self.conversation.open()
        id = draft.message.id
        if id in self._drafts and draft.masked:
            self._settle_all()  # with the results that they had before
        if id in self._history:
            self._add_results(draft)
            return
        self.tally.messages += id not in self._drafts
        self._drafts[id] = draft
        if len(self._drafts) > _MAX_DRAFTS:
            self._settle(next(iter(self._drafts)))

    def _settle_all(self) -> None:
        for id in tuple(self._drafts):
            self._settle(id)

    def _settle(self, id: str) -> None:
        """Add a message that later lines will not replace."""
        draft = self._drafts.pop(id)
        if draft.message.parts or not draft.results:
            # A message that was summarized or taken back may come again.
            self.conversation.add(with_info(draft.message, id=self._ids.claim(id)))
        self._history[id] = (self.conversation.last_id, self.conversation.last_id)
        self._settled_calls -= draft.calls
        self._masked -= draft.calls
        self._add_results(draft)

    def _add_results(self, draft: _Draft) -> None:
        """Add results that are new: each is recorded with its call, and as a message."""
        masked = draft.masked & self._settled_calls - self._masked
        for result in draft.results:
            if result.call_id not in self._settled_calls:
                self._settled_calls.add(result.call_id)
                self.conversation.add_result(result, draft.at)
        if masked:
            self._masked |= masked
            self.conversation.prune(sorted(masked), draft.at)

    # --- changes of the history ---

    def _rewind(self, id: str) -> None:
        """Take back all messages from this one on, or all if it is unknown."""
        self._settle_all()
        ids = list(self._history)
        if ids:
            self._revert(ids.index(id) if id in ids else 0)

    def _revert(self, count: int) -> None:
        """Take back all records but the first ones."""
        self._history = dict(list(self._history.items())[:count])
        self.conversation.revert(next(reversed(self._history.values()), (None, None))[1])

    def _replace(self, drafts: list[_Draft]) -> None:
        """Replace the history; with a tail or a snapshot, that is a compaction, else a revert."""
        self._settle_all()
        old, new = list(self._history), [draft.message.id for draft in drafts]
        pairs = zip(old, new, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rest = drafts
        if same < len(old):
            later = set(old[same:])
            tail = next((index for index, id in enumerate(new) if id in later), len(new))
            if tail < len(new) or any(draft.is_snapshot for draft in drafts[same:]):
                self._compact(drafts[:tail], new[tail:])
                rest = drafts[tail:]
            else:
                self._revert(same)
        for draft in rest:
            self._add(draft)

    def _compact(self, head: list[_Draft], tail: list[str]) -> None:
        """Add a compaction: the head is the summary of all that came before the tail."""
        self._compactions += 1
        self.tally.messages += sum(draft.message.id not in self._history for draft in head)
        self.conversation.add_compaction(
            f"{self.conversation.info.id}-fold-{self._compactions}",
            [text for draft in head for text in draft.texts],
            head[-1].at if head else None,
            auto=True,
            tail=self._history[tail[0]][0] if tail else None,
        )
        last = self.conversation.last_id
        messages = {draft.message.id: last for draft in head}
        messages |= {id: self._history[id][0] or last for id in tail if id in self._history}
        self._history = {id: (message, last) for id, message in messages.items()}


# --- records -------------------------------------------------------------------------------


def _is_visible(raw: Json) -> bool:
    """Whether the model sees a message; of the program's, only those with files of a tool."""
    if raw.get("type") in ("user", "gemini"):
        return True
    content = as_list(raw.get("content"))
    return raw.get("type") == "info" and any("inlineData" in as_object(part) for part in content)


def _drafts(messages: object, session: str) -> list[_Draft]:
    """The messages of a history that the model sees."""
    return [
        _draft(raw, optional_text(raw, "id") or f"{session}-{number}")
        for number, raw in enumerate(objects(messages or [], "'messages'"), 1)
        if _is_visible(raw)
    ]


def _draft(raw: Json, id: str) -> _Draft:
    """A record as a message with this id."""
    by_model, at = raw.get("type") == "gemini", milliseconds(raw.get("timestamp"))
    content = {"role": "model" if by_model else "user", "parts": _api_parts(raw.get("content"))}
    decoded = _wire.read(content)
    if not by_model:
        parts = marked_synthetic(decoded.parts, lambda part: part.text.startswith(_SETUP))
        return _Draft(message=user_message(id, parts, at), results=decoded.results, at=at)
    items = objects(raw.get("toolCalls") or [], "'toolCalls'")
    calls = {optional_text(call, "id") or f"{id}-{n}": call for n, call in enumerate(items, 1)}
    model = optional_text(raw, "model")
    message = assistant_message(
        id,
        (*_thoughts(raw.get("thoughts")), *_with_calls(decoded.parts, calls)),
        at,
        model=(_wire.provider, model) if model else ("", ""),
        tokens=_tokens(subobject(raw, "tokens")),
    )
    results = (_result(call_id, call) for call_id, call in calls.items() if call.get("result"))
    return _Draft(message=message, results=tuple(results), at=at)


def _api_parts(content: object) -> list[Json]:
    """Content as a list of parts, the only form that the API accepts."""
    items = as_list(content) or [content]
    parts: list[Any] = [{"text": part} if isinstance(part, str) else part for part in items]
    return [part for part in parts if part and part != {"text": ""}]


def _thoughts(thoughts: object) -> Iterator[ReasoningPart]:
    for thought in objects(thoughts or [], "'thoughts'"):
        subject, more = optional_text(thought, "subject"), optional_text(thought, "description")
        yield ReasoningPart(text=" ".join(filter(None, (subject and f"**{subject}**", more))))


def _with_calls(parts: Sequence[AnyPart], calls: dict[str, Json]) -> Iterator[AnyPart]:
    """The parts, followed by the calls that are not among them."""
    yield from parts
    present = {part.call_id for part in parts if isinstance(part, ToolPart)}
    for call_id, call in calls.items():
        if call_id not in present:
            state = Pending(input=subobject(call, "args"))
            yield ToolPart(tool=text_at(call, "name"), call_id=call_id, state=state)


def _result(call_id: str, call: Json) -> ReadResult:
    """The result of a call; if it was changed later, the call has those of its neighbors, too."""
    raw = call.get("result")
    decoded = _wire.read({"role": "user", "parts": _api_parts(raw)})
    for result in decoded.results:
        if result.call_id == call_id or len(decoded.results) == 1:
            return replace(result, call_id=call_id)
    text = "".join(part.text for part in decoded.parts if isinstance(part, TextPart))
    tool = text_at(call, "name")
    return ReadResult(call_id=call_id, output=text, tool=tool, raw={"result": raw})


def _tokens(counts: Json) -> Tokens | None:
    usage = {name: counts.get(own) for name, own in _USAGE.items()}
    return usage_tokens(usage) if counts else None


def _is_content(item: object) -> bool:
    """Whether an item is a content of the API; the parts of other APIs have a type."""
    content = as_object(item)
    if content.get("role") not in ("user", "model") or not isinstance(content.get("parts"), list):
        return False
    return all(isinstance(part, dict) and "type" not in part for part in as_list(content["parts"]))
