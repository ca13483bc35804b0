"""Messages of pydantic-ai survive the store unchanged."""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.messages import (
    BinaryContent,
    BinaryImage,
    CachePoint,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage, RunUsage

import foldmark
from foldmark.adapters.pydantic_ai import Foldmark
from foldmark.adapters.pydantic_ai.dialect import PydanticDialect
from foldmark.errors import CompactionStopped, WindowTooSmall
from foldmark.session.history_mirror import HistoryMirror
from foldmark.session.session import Session
from tests.support.effort import examples
from tests.support.scripted_pydantic_ai import check_pairs, texts_of, tokens_of

SESSIONS = examples(30, 150)
AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
SIGNED: dict[str, Any] = {"provider_name": "maker", "provider_details": {"kept": [1]}}
IMAGE = BinaryImage(
    b"\x89PNG\r\n\x1a\n\xff\xfe", media_type="image/png", vendor_metadata={"detail": "high"}
)
CALLS: dict[str, str | dict[str, Any] | None] = {
    "spaced": '{"a": 1}',
    "compact": '{"a":1}',
    "object": {"a": 1.5, "b": None},
    "none": None,
    "empty": "",
    "broken": '{"a": ',
    "list": "[1]",
}
PROMPT = [
    "words",
    "",
    ImageUrl("https://example.org/a.png", force_download=True, vendor_metadata={"detail": "low"}),
    ImageUrl("https://example.org/nameless"),
    theirs.AudioUrl("https://example.org/a.mp3"),
    theirs.VideoUrl("https://example.org/a.mp4"),
    theirs.DocumentUrl("https://example.org/a.pdf"),
    IMAGE,
    BinaryContent(b"plain text", media_type="text/plain"),
    BinaryContent(b"%PDF", media_type="application/pdf", identifier="doc"),
    theirs.UploadedFile("file-1", provider_name="openai", media_type="application/pdf"),
    CachePoint(ttl="1h"),
    theirs.TextContent(content="more words", metadata={"a": 1}),
    theirs.StructuredContent({"state": [1]}),
]
CONTENTS: dict[str, Any] = {
    "text": "words",
    "object": {"a": [1, 2.5, None], "b": "é"},
    "number": 42,
    "nothing": None,
    "looks like json": '{"a": 1}',
    "file": IMAGE,
    "list with files": ["one", IMAGE, {"a": 1}, ImageUrl("https://example.org/a.png")],
    "files alone": [IMAGE, IMAGE],
}
REQUESTS: dict[str, list[Any]] = {
    "prompts": [
        SystemPromptPart("Be brief.", timestamp=AT, dynamic_ref="ref", metadata={"a": 1}),
        UserPromptPart("Go.", timestamp=AT),
        UserPromptPart("And this.", timestamp=AT),
    ],
    "a prompt of many items": [UserPromptPart(PROMPT, timestamp=AT), UserPromptPart("x")],
    "a system prompt alone": [SystemPromptPart("Careful now.", timestamp=AT, context_id="c")],
    "a system prompt for one request": [
        UserPromptPart("x", timestamp=AT),
        SystemPromptPart("3 left", timestamp=AT, scope="request"),
    ],
    "feedback": [
        theirs.RetryFeedbackPart(
            "Again.", retry=theirs.RetryInfo("model_retry", attempt=1, max_retries=2), timestamp=AT
        )
    ],
    "state": [
        theirs.InstructionDeltaPart(
            id=theirs.InstructionId(theirs.AgentInstructionSource(), name="x"), content="new"
        ),
        theirs.ToolAvailabilityDeltaPart(tools_added=["weigh"], tool_call_id="c"),
        theirs.CapabilityLoadDeltaPart(loaded=["scales"]),
        theirs.ModelSettingsDeltaPart(settings={"thinking": "high"}),
        theirs.CompactionPart("A summary.", metadata={"a": 1}),
        theirs.SpeechPart(speaker="user", transcript="Spoken.", audio=IMAGE),
    ],
}
RESPONSES: dict[str, list[Any]] = {
    "words": [TextPart("Words.", id="t1", **SIGNED), TextPart(" ")],
    "thinking": [
        ThinkingPart("Hm.", id="h1", signature="signed", **SIGNED),
        ThinkingPart("", signature="sealed", provider_name="maker"),
        TextPart("So."),
    ],
    "what the provider ran": [
        theirs.NativeToolCallPart("web_search", {"q": "x"}, "n1", id="n", **SIGNED),
        theirs.NativeToolReturnPart(
            "web_search", [{"url": "x"}], "n1", metadata=[1], timestamp=AT, **SIGNED
        ),
        TextPart("Found."),
    ],
    "a file": [theirs.FilePart(IMAGE, id="f1", **SIGNED)],
    "a provider's summary": [theirs.CompactionPart("Summed up.", id="s1", **SIGNED)],
    "speech": [theirs.SpeechPart(speaker="assistant", transcript="Said.", interrupted_at_ms=3)],
}


def request(parts: list[Any]) -> ModelRequest:
    return ModelRequest(
        parts=parts,
        timestamp=AT,
        instructions="Obey.",
        run_id="run",
        conversation_id="talk",
        metadata={"mine": {"a": 1}},
    )


def response(parts: list[Any]) -> ModelResponse:
    return ModelResponse(
        parts=parts,
        usage=RequestUsage(input_tokens=9, output_tokens=3, cache_read_tokens=4, details={"x": 1}),
        model_name="model-1",
        model_id="maker:model",
        timestamp=AT,
        provider_name="maker",
        provider_url="https://example.org",
        provider_details={"service": "fast"},
        provider_response_id="resp-1",
        finish_reason="stop",
        run_id="run",
        conversation_id="talk",
        metadata={"mine": 1},
        history_digest="digest",
        workspace_ref=theirs.WorkspaceRef(provider="disk", id="w"),
        state="interrupted",
    )


def talks() -> Iterator[tuple[str, list[ModelMessage]]]:
    start = request([UserPromptPart("Start.", timestamp=AT)])
    for name, parts in REQUESTS.items():
        yield name, [request(parts)]
    for name, parts in RESPONSES.items():
        yield name, [start, response(parts)]
    for name, args in CALLS.items():
        call = ToolCallPart("read", args, "c1", id="i1", **SIGNED)
        result = ToolReturnPart("read", "x", "c1", timestamp=AT)
        yield f"arguments: {name}", [start, response([call]), request([result])]
    for name, content in CONTENTS.items():
        outcome = "failed" if name == "number" else "success"
        call, other = ToolCallPart("read", {}, "c1"), ToolCallPart("read", {}, "c2")
        result = [
            ToolReturnPart("read", content, "c1", metadata={"a": 1}, timestamp=AT, outcome=outcome),
            ToolReturnPart("read", "y", "c2", timestamp=AT, outcome="denied"),
            UserPromptPart("Look.", timestamp=AT),
        ]
        yield f"content: {name}", [start, response([call, other]), request(result)]


def opened(folder: Path, name: str = "one", window: int = 100_000) -> Session:
    return foldmark.open(folder / "a.db", session=name, window=window, output=100, durable=False)


def again(messages: list[ModelMessage]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


@pytest.mark.parametrize(("name", "talk"), list(talks()), ids=lambda held: str(held)[:40])
def test_every_message_comes_back_from_the_store_as_it_was(
    tmp_path: Path, name: str, talk: list[ModelMessage]
) -> None:
    talk = again(talk)
    with opened(tmp_path) as session:
        following = HistoryMirror(session, PydanticDialect())
        following.take(talk)
        view = following.view()
        assert all(one is other for one, other in zip(view, talk, strict=True)), name
    with opened(tmp_path) as session:
        following = HistoryMirror(session, PydanticDialect())
        assert following.view() == talk
        following.take(again(talk))
        assert following.view() == talk
        assert not session.operations()  # it was recognised


def test_what_the_provider_measured_is_known(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        HistoryMirror(session, PydanticDialect()).take([request([]), response([TextPart("Yes.")])])
        tokens = session.export().messages[-1].info.tokens  # pyright: ignore
        assert (tokens.input, tokens.output, tokens.cache.read) == (5, 3, 4)  # pyright: ignore


def test_what_is_no_json_is_kept_by_its_kind_and_shown_as_it_is(tmp_path: Path) -> None:
    odd = ToolReturnPart("read", {"a": object()}, "c1", metadata=object())  # pyright: ignore
    talk = [
        request([UserPromptPart("Half a pair: \ud83d")]),
        response([ToolCallPart("read", {"x": "\udc00"}, "c1")]),
        request([odd]),
    ]
    with opened(tmp_path) as session:
        following = HistoryMirror(session, PydanticDialect())
        following.take(talk)
        assert following.view()[2].parts[0] is odd
    with opened(tmp_path) as session:
        view = HistoryMirror(session, PydanticDialect()).view()
        assert view[2].parts[0].content == {"a": "<object>"}  # pyright: ignore


@pytest.mark.filterwarnings("ignore:`RetryPromptPart` is deprecated")
def test_an_old_kind_of_retry_is_what_it_always_meant(tmp_path: Path) -> None:
    old = theirs.RetryPromptPart("Again.", tool_name="read", tool_call_id="c1", timestamp=AT)  # pyright: ignore
    talk = [request([UserPromptPart("x")]), response([ToolCallPart("read", {}, "c1")])]
    talk.append(request([old, theirs.RetryPromptPart("No.", timestamp=AT)]))  # pyright: ignore
    with opened(tmp_path) as session:
        following = HistoryMirror(session, PydanticDialect())
        following.take(talk)
        check_pairs(again(following.view()))
    with opened(tmp_path) as session:
        assert HistoryMirror(session, PydanticDialect()).view()[2] == again(talk)[2]


def test_a_message_that_changes_beside_what_it_says_stays_the_same(tmp_path: Path) -> None:
    talk: list[ModelMessage] = [request(REQUESTS["prompts"]), response([TextPart("Yes.")])]
    with opened(tmp_path) as session:
        HistoryMirror(session, PydanticDialect()).take(talk)
        newer = again(talk)
        newer[0].instructions, newer[0].metadata = "Otherwise.", {"other": 1}  # pyright: ignore
        newer[0].parts[0].content = "Be quick."  # pyright: ignore
        following = HistoryMirror(session, PydanticDialect())
        following.take(newer)
        assert not session.operations()
        assert following.view()[0] is newer[0]


def test_a_result_without_a_call_is_words(tmp_path: Path) -> None:
    talk = [request([ToolReturnPart("read", "lost", "never"), UserPromptPart("Go.")])]
    with opened(tmp_path) as session:
        following = HistoryMirror(session, PydanticDialect())
        following.take(talk)
        check_pairs(following.view())
        assert "lost" in texts_of(following.view())


# --- the hook, many times ----------------------------------------------------------------------


def context(name: str) -> RunContext[Any]:
    return RunContext(
        deps=None, model=TestModel(), usage=RunUsage(), run_id=name, conversation_id=name
    )


async def sent(memory: Foldmark, name: str, history: list[ModelMessage]) -> list[ModelMessage]:
    parameters = ModelRequestParameters()
    asked = ModelRequestContext(
        model=TestModel(),
        messages=list(history),
        model_settings=None,
        model_request_parameters=parameters,
    )
    return (await memory.prepare_model_request(context(name), asked)).messages


def random_step(rng: random.Random, name: str, step: int) -> list[ModelMessage]:
    """Calls of a model and their results: sometimes incomplete, sometimes with user text."""
    names = [f"{name}s{step}c{call}" for call in range(rng.randint(1, 4))]
    words = [TextPart("I look.")] if rng.random() < 0.3 else []
    calls = [ToolCallPart(rng.choice(["read", "run"]), {"n": step}, call) for call in names]
    outcomes = ["success", "success", "failed"]
    parts: list[Any] = [
        ToolReturnPart("read", "word " * rng.randint(1, 200), call, outcome=rng.choice(outcomes))  # pyright: ignore
        for call in names
        if rng.random() < 0.9
    ]
    if not parts or rng.random() < 0.2:
        parts.append(UserPromptPart(f"Request {step}: " + "please " * rng.randint(1, 30)))
    return [ModelResponse(parts=[*words, *calls]), ModelRequest(parts=parts)]


class Run:
    """A run that uses only the hooks, and its messages."""

    def __init__(self, memory: Foldmark, rng: random.Random, name: str, window: int) -> None:
        self._memory, self._rng, self._name, self._window = memory, rng, name, window
        opening = [SystemPromptPart("Be careful."), UserPromptPart("Do it all.")]
        self._history: list[ModelMessage] = [ModelRequest(parts=opening)]
        self.folded = 0

    def all_messages(self) -> list[ModelMessage]:
        return self._history

    async def go(self) -> Any:
        for step in range(self._rng.randint(4, 14)):
            if step and self._rng.random() < 0.05:
                back = self._rng.randrange(0, len(self._history), 2)
                self._history = self._history[: back + 1]
            self._history += random_step(self._rng, self._name, step)
            self._check(await sent(self._memory, self._name, self._history))
        return self

    def _check(self, view: list[ModelMessage]) -> None:
        check_pairs(view)
        assert tokens_of(view) <= self._window
        assert texts_of(view[:1]).startswith("Be careful.")
        assert isinstance(view[-1], ModelRequest)
        self.folded += view[0] is not self._history[0]


def test_random_sessions_have_no_orphan_no_open_call_and_no_view_over_budget(
    tmp_path: Path,
) -> None:
    async def work() -> int:
        folded = 0
        memories = {
            window: Foldmark(tmp_path / "a.db", window=window, output=200, durable=False)
            for window in (2_500, 4_000, 6_000)
        }
        for number in range(SESSIONS):
            rng = random.Random(number)  # noqa: S311 - a script
            name, window = f"s{number}", rng.choice([*memories])
            run = Run(memories[window], rng, name, window)
            await memories[window].wrap_run(context(name), handler=run.go)
            folded += run.folded
        for memory in memories.values():
            memory.close()
        return folded

    assert asyncio.run(work()) > SESSIONS / 4


def test_a_view_that_cannot_fit_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        with Foldmark(tmp_path / "a.db", window=1_000, output=200) as memory:
            history: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("long " * 3_000)])]
            with pytest.raises((WindowTooSmall, CompactionStopped), match="window"):
                await sent(memory, "x", history)

    asyncio.run(work())
