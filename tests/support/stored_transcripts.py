"""Lines of Claude Code, imports into stores, and the state of a stored session, for tests."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from foldmark.model.messages import Transcript
from foldmark.model.operations import Operation
from foldmark.policy import FOLDMARK, OPENCODE
from foldmark.store.encoding import unpack_marks
from foldmark.store.loading import Slice, load
from foldmark.store.store import Store
from foldmark.transcripts.read import open_reading
from foldmark.transcripts.source import UnrecognizedFormat
from foldmark.transcripts.store import ImportResult, store_reading
from tests.support.stored_sessions import bytes_of, opened, plain

SESSION = "11111111-2222-4333-8444-555555555555"
_WORDS = ("parser", "printer", "lexer", "summary", "line 3")


class Lines:
    """Builds the lines of a transcript; the parent of each is the previous one by default."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._count = 0
        self._last: str | None = None

    def add(self, kind: str, parent: str | None = "", **fields: Any) -> str:
        """Add a line and return its id."""
        self._count += 1
        name = f"u{self._count}"
        facts: dict[str, Any] = {
            "parentUuid": self._last if parent == "" else parent,
            "isSidechain": False,
            "cwd": "/work",
            "sessionId": SESSION,
            "version": "2.1.0",
            "type": kind,
            "uuid": name,
            "timestamp": f"2026-01-05T10:{self._count // 60:02}:{self._count % 60:02}.000Z",
            **fields,
        }
        self.all.append(facts)
        if not facts["isSidechain"]:
            self._last = name
        return name

    def user(self, content: Any, parent: str | None = "", **fields: Any) -> str:
        """Add a line of the user, or with tool results."""
        return self.add("user", parent, message={"role": "user", "content": content}, **fields)

    def result(self, call: str, content: Any = "done", **fields: Any) -> str:
        """Add the result of a call, with its copy for the screen."""
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        return self.user([block], toolUseResult={"stdout": "never shown"}, **fields)

    def answer(self, id: str, *blocks: Any, model: str = "claude-x", **fields: Any) -> str:
        """Add a line of a reply: texts, and calls, which have at most three letters."""
        content = [
            {"type": "tool_use", "id": item, "name": "Read", "input": {"file_path": f"{item}.py"}}
            if len(item) <= 3
            else {"type": "text", "text": item}
            for item in blocks
        ]
        usage = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 70}
        message = {"id": id, "role": "assistant", "model": model, "content": content}
        return self.add("assistant", message={**message, "usage": usage}, **fields)

    def step(self, call: str, output: str = "") -> str:
        """Add a reply with one call, and its result."""
        self.answer(f"m-{call}", f"I look at parser {call}", call)
        return self.result(call, output or f"line {call} of a parser\n" * 40)

    def compact(self, summary: str = "All in one summary.", **metadata: Any) -> str:
        """Add a compaction."""
        facts = {"trigger": "auto", "preTokens": 9_000, **metadata}
        self.add("system", None, subtype="compact_boundary", compactMetadata=facts)
        return self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def microcompact(self, *calls: str) -> str:
        """Add a prune."""
        facts = {"compactedToolIds": list(calls), "tokensSaved": 1}
        return self.add("system", subtype="microcompact_boundary", microcompactMetadata=facts)

    def other(self, **line: Any) -> None:
        """Add a line that is not part of the conversation."""
        self.all.append(line)


def write(path: Path, lines: Iterable[Any]) -> Path:
    """Write these lines to a file and return its path."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def import_file(where: str, path: Path, format: str | None = None) -> list[ImportResult]:
    """Import a file into a store."""
    with Store.open(where, durable=False) as store, open_reading(path, format=format) as reading:
        return store_reading(store, reading, estimate=FOLDMARK.estimate)


def import_growing(
    where: str, path: Path, lines: Sequence[Any], step: int = 1, format: str | None = None
) -> list[ImportResult]:
    """Import a file each time that it has grown by some lines."""
    result: list[ImportResult] = []
    for end in [*range(step, len(lines), step), len(lines)]:
        write(path, lines[:end])
        with suppress(UnrecognizedFormat):  # a file with titles only
            result = import_file(where, path, format)
    return result


def stored_state(where: str, session: str, *, searching: bool = True) -> dict[str, Any]:
    """All content of a stored session, equal for equal sessions."""
    state: dict[str, Any] = {}
    for policy in (FOLDMARK, OPENCODE):
        with opened(where, session, policy=policy) as opened_session:
            view, plan = opened_session.view(), opened_session.plan()
            state[policy.name] = (bytes_of(view), view.indexes, view.tokens, plan)
            state["export"] = plain(opened_session.export())
            state["hits"] = [opened_session.search(word) for word in _WORDS if searching]
    with Store.open(where, durable=False) as store:
        row = store.resolve(session)
        state["row"] = (row.info, row.places, row.parts, row.tokens, row.size, row.settled)
        state["acts"] = [
            _operation_state(store, row.key, operation) for operation in store.operations(row.key)
        ]
        with store.engine.reading():
            state["past"] = load(store.engine, row, Slice(), sized=True).past
    return state


def _operation_state(store: Store, key: int, operation: Operation) -> Any:
    rows = store.engine.read(
        "SELECT marks FROM acts WHERE session = ? AND number = ?", (key, operation.number)
    )
    marks = unpack_marks(rows[0][0]) if rows[0][0] else None
    return (
        operation.kind,
        operation.place,
        operation.marker,
        operation.summary,
        operation.tail,
        operation.tail_id,
        operation.state,
        marks,
    )


def messages(found: Transcript) -> list[tuple[str, list[str]]]:
    """The ids and texts of messages."""
    return [
        (
            message.id,
            [getattr(part, "text", "") or getattr(part, "tool", "") for part in message.parts],
        )
        for message in found.messages
    ]
