"""Messages of Anthropic's API in tests: written by hand and generated, of every kind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anthropic.types import Message as SdkMessage
from hypothesis import strategies as st

from foldmark.model.messages import Cache, Tokens
from foldmark.wire.codec import NOTHING_TO_READ
from tests.support.api_lists import NOTES, FormatCases, Json, any_json, merged
from tests.support.session_strategies import PNG

DATA = PNG.partition(",")[2]
MARK: Json = {"cache_control": {"type": "ephemeral"}}
SHOT: Json = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": DATA},
}
LINKED: Json = {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}
PDF: Json = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    "title": "One",
    "citations": {"enabled": True},
}
PAPER: Json = {"type": "document", "source": {"type": "url", "url": "https://a.b/c.pdf"}}
NOTE: Json = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "words"},
}
HELD: Json = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
THOUGHT: Json = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
HIDDEN: Json = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "a"},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://a.b", "title": "A", "encrypted_content": "x"}
    ],
}
CITED: Json = {
    "type": "text",
    "text": "So it is",
    "citations": [
        {
            "type": "web_search_result_location",
            "url": "https://a.b",
            "title": "A",
            "encrypted_index": "y",
            "cited_text": "it is",
        }
    ],
}
REMOTE: Json = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "ls",
    "server_name": "disk",
    "input": {},
}
REMOTE_RESULT: Json = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "a"}],
}
UPLOAD: Json = {"type": "container_upload", "file_id": "file_1"}
FOLDED: Json = {"type": "compaction", "content": "What was done so far."}


def user(*blocks: Json, **more: Any) -> Json:
    return {"role": "user", "content": list(blocks), **more}


def assistant(*blocks: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": list(blocks), **more}


def text(content: str = "Hello", **more: Any) -> Json:
    return {"type": "text", "text": content, **more}


def use(name: str = "a", **more: Any) -> Json:
    return {"type": "tool_use", "id": name, "name": "read", "input": {"path": "a.py"}, **more}


def result(name: str = "a", *content: Any, **more: Any) -> Json:
    fields = {"content": content[0]} if content else {}
    return {"type": "tool_result", "tool_use_id": name, **fields, **more}


# Lists that are encoded again without keeping their original, except one in another order.
LISTS: dict[str, list[Json]] = {
    "texts": [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Done"}],
    "blocks": [user(text()), assistant(text("a"), text("b")), user(text("a"), text("b")), user()],
    "thinking": [user(text()), assistant(THOUGHT, HIDDEN, {**THOUGHT, "thinking": ""}, text())],
    "results": [
        assistant(use("a"), use("b"), use("c"), use("d", cache_control=None)),
        user(result("a", "done"), result("b", []), result("c"), result("d", None)),
    ],
    "errors": [
        assistant(use("a"), use("b"), use("c")),
        user(
            result("a", "no", is_error=True),
            result("b", "yes", is_error=False),
            result("c", [text("no")], is_error=True, **MARK),
        ),
    ],
    "results in pieces": [
        assistant(use("a"), use("b")),
        user(
            result("a", [text("one\n"), SHOT, text(""), text("two", **MARK), PDF]),
            result("b", [LINKED, {"type": "search_result", "content": []}, NOTE, text("x")]),
        ),
    ],
    "another order": [assistant(use("a"), use("b")), user(result("b", "2"), result("a", "1"))],
    "results and words": [assistant(use()), user(result("a", "1"), text("And?"), SHOT)],
    "marks": [user(text("a", **MARK)), assistant(use(**MARK)), user(result("a", "1", **MARK))],
    "server tools": [user(text()), assistant(SEARCH, FOUND, CITED, REMOTE, REMOTE_RESULT)],
    "files": [user(SHOT, LINKED, PDF, PAPER, NOTE, HELD, UPLOAD, {**SHOT, **MARK})],
    "compaction": [assistant(FOLDED), assistant({"type": "compaction", "content": None})],
    "unknown blocks": [user({"type": "hologram", "depth": 3}), assistant({"type": "fallback"})],
    "opaque": [
        user(text(**MARK)), assistant(THOUGHT, HIDDEN, FOLDED, SEARCH, use()),
        user(result("a", [text("1"), SHOT])), assistant(HIDDEN), user(text("And?")),
    ],
    "fields of a message": [{"role": "user", "content": "Go", "id": "7"}, assistant(use(), id="8")],
}  # fmt: skip

# Lists that the API refuses, and some programs store.
ODD_LISTS: list[list[Json]] = [
    [user(result("gone", "lost"), text("And?"))],
    [assistant(use("a"), use("b")), user(result("a", "1")), user(result("b", "2"))],
    [assistant(use("a")), assistant(use("b")), user(result("b", "2"), result("a", "1"))],
    [assistant(use("a")), user(text(), result("a", "1"))],
    [assistant(use("a")), assistant(use("a")), user(result("a", "1"), result("a", "2"))],
    [assistant(use("a")), user(text()), assistant(text()), user(result("a", "late"))],
    [user(use("a")), assistant(result("a", "1"))],
    [user(SHOT | {"form": "x"}), assistant(text(form="x", block={}, rest={}), outline=[1])],
    [assistant(use("a", result=5)), user(result("a", "1", outline=[1, {"chars": "x"}], order="x"))],
]

CONTENTS = ["done", "", [], [text("a"), text("b")], [text("a"), SHOT], [SHOT], None, [text(" ")]]
REPLY_BLOCKS = [
    text("Hi"), text(" "), text("Ha", **MARK), THOUGHT, HIDDEN, CITED, FOLDED, SEARCH,
    {"type": "thinking", "thinking": "unsigned", "signature": ""},
]  # fmt: skip
USER_BLOCKS = [text("Go"), text("And?", **MARK), text(""), SHOT, PDF, NOTE, {**SHOT, **MARK}]


@st.composite
def valid_lists(draw: st.DrawFn) -> list[Json]:
    """Lists that the API accepts."""
    messages: list[Json] = []
    for step in range(draw(st.integers(0, 6))):
        reply = draw(st.lists(st.sampled_from(REPLY_BLOCKS), max_size=3))
        ids = [f"t{step}_{number}" for number in range(draw(st.integers(0, 3)))]
        if not reply and not ids:
            content = draw(st.sampled_from(("Go", "And now?", "")))
            blocks = draw(st.lists(st.sampled_from(USER_BLOCKS), max_size=3))
            messages.append(user(*blocks) if blocks else {"role": "user", "content": content})
            continue
        messages.append(assistant(*reply, *[use(name) for name in ids]))
        results: list[Json] = []
        for name in draw(st.permutations(ids)):
            content = () if draw(st.integers(0, 9)) == 0 else (draw(st.sampled_from(CONTENTS)),)
            more = draw(st.sampled_from(({}, {"is_error": True}, {"is_error": False}, MARK)))
            results.append(result(name, *content, **more))
        blocks = draw(st.lists(st.sampled_from(USER_BLOCKS), max_size=2))
        if results or blocks:
            messages.append(user(*results, *blocks))
    return messages


@st.composite
def odd_lists(draw: st.DrawFn) -> list[Json]:
    """Lists with blocks anywhere: orphaned, repeated and split results."""
    names = st.sampled_from(("a", "b", "c"))
    halves = st.builds(use, names) | st.builds(result, names, st.sampled_from(CONTENTS))
    blocks = st.lists(halves | st.sampled_from([*REPLY_BLOCKS, *USER_BLOCKS]), max_size=4)
    roles = st.sampled_from(("user", "assistant"))
    contents = blocks | st.sampled_from(("Go", ""))
    pairs = draw(st.lists(st.tuples(roles, contents), max_size=8))
    return [{"role": role, "content": content} for role, content in pairs]


# --- malformed messages and responses ------------------------------------------------------

_NAMES = (
    "type", "text", "thinking", "content", "id", "name", "input", "tool_use_id", "source", "data",
    "media_type", "url", "role", "is_error", "stop_reason", "usage", "input_tokens",
)  # fmt: skip
_TYPES = (
    "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document",
    "base64", "url", "user", "assistant", "", "a",
)  # fmt: skip
_values = any_json(_NAMES, _TYPES)
_objects: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from((*_NAMES, *NOTES)), _values, max_size=4
)
_types: st.SearchStrategy[Json] = st.fixed_dictionaries({"type": st.sampled_from(_TYPES)})
_contents = st.lists(st.builds(merged, _types, _objects) | _objects, max_size=3) | _values
_messages: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant")), "content": _contents}
)
_heads: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"type": st.just("message"), "role": st.just("assistant"), "content": _contents}
)


def recorded_exchanges(corpus: Path) -> Iterator[tuple[Json, Json | None]]:
    """The bodies of recorded requests and responses."""
    path = corpus / "anthropic-api" / "claude-trace_test-traffic.sanitized.jsonl"
    for line in path.read_bytes().splitlines():
        exchange = json.loads(line)
        yield exchange["request"]["body"], exchange["response"]["body"]


def recorded_lists(corpus: Path) -> Iterator[list[Json]]:
    for body, _ in recorded_exchanges(corpus):
        yield body["messages"]


# The files of `messages_with_files` as the API accepts them.
FILES = [
    SHOT,
    {"type": "image", "source": {"type": "url", "url": "https://a.b/c"}},
    {"type": "document", "source": PDF["source"]},
    text(NOTHING_TO_READ),
    text(NOTHING_TO_READ),
    {**NOTE, "source": {**NOTE["source"], "data": "a,b"}},
    {**NOTE, "source": {**NOTE["source"], "data": "a b"}},
    text(NOTHING_TO_READ),
]
RESPONSE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5",
    "content": [THOUGHT, text("Hi", citations=None), use()],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
    },
}


def _call(name: str) -> Json:
    return assistant(use(name))


def _result(name: str) -> Json:
    return user(result(name, "done"))


CASES = FormatCases(
    user=user(text("Wait")),
    call=_call,
    result=_result,
    lists=LISTS,
    stretches={"another order": 1},
    odd_lists=ODD_LISTS,
    valid=valid_lists(),
    odd=odd_lists(),
    malformed=_messages | _objects,
    malformed_replies=_objects | st.builds(merged, _objects, _heads),
    notes=_values,
    refused=[
        ({"content": "a"}, "the field 'role' is missing"),
        ({"role": "user"}, "'content' is null, not a list"),
        (user(text() | {"text": 5}), "'text' is a number"),
        (assistant({"type": "tool_use", "id": "a", "name": "b"}), "'input' is null"),
        (user({"type": "tool_result"}), "the field 'tool_use_id' is missing"),
        (user(result("a", 5)), "'content' of a tool_result is a number"),
    ],
    opaque=("c2ln", "ZGF0YQ", "compaction", "srvtoolu"),
    readable=("What was done so far.",),
    files_request=[
        user(*FILES),
        assistant(text(NOTHING_TO_READ), use("a"), use("b")),
        user(result("a", [text("seen"), *FILES]), result("b", [SHOT])),
        assistant(text(NOTHING_TO_READ)),
    ],
    reply=RESPONSE,
    reply_messages=[assistant(*RESPONSE["content"])],
    sdk_reply=SdkMessage.model_validate,
    tokens=Tokens(input=10, output=5, reasoning=0, total=135, cache=Cache(read=100, write=20)),
    model="claude-opus-5",
    finishes=[
        ({**RESPONSE, "stop_reason": reason}, finish)
        for reason, finish in {
            "end_turn": "stop",
            "stop_sequence": "stop",
            "max_tokens": "length",
            "model_context_window_exceeded": "length",
            "refusal": "content-filter",
            "pause_turn": "other",
            None: "tool-calls",
        }.items()
    ],
    recorded=recorded_lists,
    recorded_count=1,
)
