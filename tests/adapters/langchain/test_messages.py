"""Every kind of LangChain message, with every field, survives the store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolMessage,
)

import foldmark
from foldmark.adapters.langchain.dialect import LangChainDialect
from foldmark.adapters.langchain.values import from_json, to_json
from foldmark.session.history_mirror import HistoryMirror

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kg=="
MORE: dict[str, Any] = {
    "id": "m-1",
    "name": "ada",
    "additional_kwargs": {"source": ["x", {"y": 1.5}], "raw": b"\x00\xff", "pair": (1, 2)},
    "response_metadata": {"model_name": "some", "logprobs": None, "deep": {"$bytes": "no"}},
}
USAGE: Any = {
    "input_tokens": 900,
    "output_tokens": 40,
    "total_tokens": 940,
    "input_token_details": {"cache_read": 500, "cache_creation": 100},
    "output_token_details": {"reasoning": 8},
}


def call(name: str | None, call_id: str | None, **arguments: Any) -> Any:
    return {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}


WORDS: Sequence[BaseMessage] = [
    HumanMessage("Plain words."),
    HumanMessage("With all fields.", **MORE),
    HumanMessage(""),
    HumanMessage(["bare", {"type": "text", "text": "block", "cache_control": {"type": "x"}}]),
    HumanMessage([{"type": "text", "text": "one block"}], extra_field={"kept": True}),
    SystemMessage("In the middle.", **MORE),
    ChatMessage(content="By another role.", role="critic", **MORE),
    ChatMessage(content="By the model.", role="assistant"),
    FunctionMessage(content="An old result.", **MORE),
    HumanMessageChunk(content="A chunk.", **MORE),
]
FILES: list[Any] = [
    {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PICTURE}", "detail": "low"},
    },
    {"type": "image_url", "image_url": "https://example.org/a.png"},
    {"type": "image", "base64": PICTURE, "mime_type": "image/png", "id": "f-1"},
    {"type": "image", "url": "https://example.org/b.png"},
    {"type": "image", "source_type": "base64", "data": PICTURE, "mime_type": "image/png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
    {"type": "document", "source": {"type": "url", "url": "https://example.org/c.pdf"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {
        "type": "file",
        "file": {"filename": "d.pdf", "file_data": "data:application/pdf;base64,JVBE"},
    },
    {"type": "file", "file_id": "file-123"},
    {"type": "file", "base64": "aGVsbG8=", "mime_type": "text/plain"},
    {"type": "text-plain", "text": "A file of words.", "mime_type": "text/plain"},
    {"type": "media", "mime_type": "video/mp4", "data": "AAAA"},
    {"type": "media", "mime_type": "image/png", "data": b"\x89PNG"},
    {"type": "input_image", "image_url": "https://example.org/e.png", "detail": "auto"},
    {"type": "nobody_knows", "deep": [{"a": None}]},
    {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
]
ANSWERS: list[BaseMessage] = [
    AIMessage("Words.", usage_metadata=USAGE, **MORE),
    AIMessage(""),
    AIMessage(
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk", "index": 0},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "text", "text": "I look.", "citations": [{"at": 3}]},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}, "index": 3},
            {"type": "server_tool_use", "id": "s1", "name": "web", "input": {"q": "b"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
            {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
        ],
        tool_calls=[call("read", "t2"), call("read", "t1", path="a")],
        usage_metadata=USAGE,
        **MORE,
    ),
    AIMessage(
        [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "So."}]},
            {"type": "reasoning", "id": "r2", "summary": [], "encrypted_content": "Z0FB"},
            {"type": "text", "text": "Yes.", "annotations": [], "id": "msg_1"},
            {"type": "function_call", "name": "ls", "arguments": '{"a": 1}', "call_id": "t3"},
            {"type": "reasoning", "reasoning": "In LangChain's form.", "extras": {"x": 1}},
            {"type": "reasoning_content", "reasoning_content": {"text": "B.", "signature": "s"}},
        ],
        tool_calls=[call("ls", "t3", a=1)],
    ),
    AIMessage(
        "Some calls.",
        tool_calls=[call("ls", "t4"), call("ls", None, deep={"a": [1, None, b"x"]})],
        invalid_tool_calls=[
            {
                "name": "read",
                "args": '{"pa',
                "id": "t5",
                "error": "no JSON",
                "type": "invalid_tool_call",
            },
            {"name": None, "args": None, "id": None, "error": None, "type": "invalid_tool_call"},
        ],
    ),
    AIMessage(
        [{"type": "tool_use", "id": "t6", "name": "read", "input": {"path": "b"}}],
        response_metadata={"stop_reason": "max_tokens"},
    ),
    AIMessage(
        [{"type": "tool_call", "id": "t7", "name": "ls", "args": {"x": 1}}],
        tool_calls=[call("ls", "t7", x=1)],
    ),
    AIMessageChunk(content="A piece.", chunk_position="last", **MORE),
]
RESULTS: list[BaseMessage] = [
    ToolMessage("Plain.", tool_call_id="r0"),
    ToolMessage("", tool_call_id="r1", name="read"),
    ToolMessage("Broken.", tool_call_id="r2", status="error", artifact={"a": [1, None]}, **MORE),
    ToolMessage(["bare", {"type": "text", "text": "block\nlines", "x": 1}], tool_call_id="r3"),
    ToolMessage([{"type": "text", "text": "see"}, *FILES], tool_call_id="r4", **MORE),
    ToolMessage([{"type": "json", "json": {"a": "b" * 50, "raw": b"\x01"}}], tool_call_id="r5"),
    ToolMessage([], tool_call_id="r6"),
]


def once_more(messages: list[BaseMessage], folder: Path) -> list[BaseMessage]:
    """The view of messages after a restart, without their objects."""
    with foldmark.open(folder / "a.db", session="one", window=50_000) as session:
        HistoryMirror[BaseMessage](session, LangChainDialect()).take(messages)
    with foldmark.open(folder / "a.db", session="one", window=50_000) as session:
        return HistoryMirror[BaseMessage](session, LangChainDialect()).view()


def same(got: list[BaseMessage], expected: list[BaseMessage]) -> None:
    assert [type(message) for message in got] == [type(message) for message in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.model_dump() == other.model_dump()


@pytest.mark.parametrize("block", FILES, ids=lambda block: str(sorted(block))[:40])
def test_files_come_back_as_they_were(block: Any, tmp_path: Path) -> None:
    message = HumanMessage([{"type": "text", "text": "Look."}, block])
    same(once_more([message], tmp_path), [message])


def test_results_come_back_as_they_were_and_in_their_order(tmp_path: Path) -> None:
    calls = [call(result.name or "read", f"r{n}") for n, result in enumerate(RESULTS)]
    talk = [HumanMessage("Go"), AIMessage("", tool_calls=calls), *RESULTS]
    same(once_more(talk, tmp_path), talk)


def test_a_result_without_a_call_is_words_for_a_model(tmp_path: Path) -> None:
    talk: list[BaseMessage] = [HumanMessage("Go"), RESULTS[2], RESULTS[4]]
    view = once_more(talk, tmp_path)
    assert not any(isinstance(message, ToolMessage) for message in view)
    assert "Broken." in str(view)


SHOWN = [message for message in (*WORDS, *ANSWERS) if message.content]


@pytest.mark.parametrize("message", SHOWN, ids=lambda message: str(message.content)[:20])
def test_a_view_after_a_restart_shows_what_came(message: BaseMessage, tmp_path: Path) -> None:
    before: list[BaseMessage] = [HumanMessage("Go"), AIMessage("Well.")]
    by_model = "assistant" in (message.type, getattr(message, "role", ""))
    by_model = by_model or isinstance(message, AIMessage)
    talk = [*before[: 1 if by_model else 2], message]
    view = once_more(talk, tmp_path)
    assert [type(held) for held in view[: len(talk)]] == [type(held) for held in talk]
    assert view[len(talk) - 1].model_dump() == with_ids(message, view[len(talk) - 1])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_users_of_different_names_say_in_a_row_stays_apart(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    picture = {"type": "image", "url": "https://example.org/b.png"}
    talk: list[BaseMessage] = [
        HumanMessage("One.", name="ada"),
        HumanMessage("Two.", name="ada"),
        HumanMessage(["Three.", picture], name="bob"),
        HumanMessage("Four."),
        ToolMessage("Five.", tool_call_id="lost"),
    ]
    with foldmark.open(tmp_path / "a.db", session="one", window=50_000) as session:
        following = HistoryMirror[BaseMessage](session, LangChainDialect())
        following.take(talk)
        if is_restarted:
            following = HistoryMirror[BaseMessage](session, LangChainDialect())
        view = following.view()
    assert [(message.type, message.name, message.content) for message in view] == [
        ("human", "ada", "One.\n\nTwo."),
        ("human", "bob", ["Three.", picture]),
        ("human", None, "Four.\n\nFive."),
    ]


def with_ids(message: BaseMessage, view: BaseMessage) -> dict[str, Any]:
    """The message expected in a view: providers need ids, so missing ones are created."""
    expected = message.model_dump()
    for listed in ("tool_calls", "invalid_tool_calls"):
        for entry, call in zip(expected.get(listed, []), getattr(view, listed, []), strict=True):
            entry["id"] = entry["id"] or call["id"]
            assert entry["id"]
    return expected


def test_what_was_measured_is_known(tmp_path: Path) -> None:
    tokens = LangChainDialect().read(ANSWERS[0]).tokens
    assert tokens is not None
    assert tokens.cache
    usage = (tokens.input, tokens.cache.read, tokens.cache.write, tokens.output, tokens.total)
    assert usage == (300, 500, 100, 40, 940)
    assert LangChainDialect().read(ANSWERS[1]).tokens is None


def test_blocks_that_nobody_knows_are_counted(tmp_path: Path) -> None:
    long = {"type": "json", "json": {"rows": ["word"] * 5_000}}
    answer = LangChainDialect().read(ToolMessage([long], tool_call_id="a")).results[0]
    assert len(answer.output) > 25_000


def test_an_artifact_that_is_no_json_stays_with_its_message() -> None:
    artifact = object()
    message = ToolMessage("x", tool_call_id="a", artifact=artifact)
    assert "artifact" not in str(LangChainDialect().read(message))


@pytest.mark.parametrize(
    "value",
    [None, 1.5, "x", b"\x00", (1, (b"2",)), {"$bytes": "x"}, {"$dict": {"$tuple": [1]}}, [{}, []]],
)
def test_values_come_back_as_they_were(value: object) -> None:
    assert from_json(to_json(value)) == value
    assert json.loads(json.dumps(to_json(value))) == to_json(value)
