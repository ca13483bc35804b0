"""Compaction by a small real model behind a real server: chunks, overflow, usage, cache."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec.structs import replace

import foldmark
from foldmark.model.messages import AssistantInfo, Pending, TextPart, ToolPart
from foldmark.policy import FOLDMARK
from foldmark.providers.models import model_named
from foldmark.session.session import Session
from foldmark.summary.protocol import ModelReply, ModelRequest, Outcome, Summarizer, TextHandler
from foldmark.wire.formats import request
from tests.support.local_model import WINDOW, model_server

# The model cannot write headings, so the prompt without them is used. The machine may be busy, so
# the time limits are long.
PATIENT = replace(
    FOLDMARK.compact, prompts="001", retries=1, calls=10, seconds=3_600, request_seconds=1_800
)
PLAIN = replace(FOLDMARK, compact=PATIENT)
ANSWER = 48
SMALL = 1024  # window for the test of chunks: the model reads slowly


class RecordingModel:
    """A summarizer that records its outcomes."""

    def __init__(self, model: Summarizer) -> None:
        self._model = model
        self.name = model.name
        self.outcomes: list[tuple[str, Outcome]] = []

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        outcome = await self._model.ask(request, on_text)
        self.outcomes.append((request.purpose, outcome))
        return outcome


@pytest.fixture
def session(tmp_path: Path, local_model: str) -> Iterator[Session]:
    with foldmark.open(
        tmp_path / "agent.db", window=WINDOW, output=ANSWER, policy=PLAIN, summarizer="digest"
    ) as session:
        yield session


def work(session: Session, steps: int, lines: int) -> None:
    """Work of an agent: calls with long outputs."""
    for step in range(steps):
        state = Pending(input={"filePath": f"src/parser_{step}.py"})
        call = ToolPart(tool="read", call_id=f"call_{step}", state=state)
        session.record([TextPart(text=f"I read parser {step}."), call])
        session.result(f"call_{step}", f"def parse_rows_{step}(lines): return lines\n" * lines)


def compacted_event(session: Session) -> dict[str, Any]:
    events = [event for event in session.events() if event.kind == "session.compacted"]
    return events[-1].data


def test_a_history_ten_times_the_window_is_compacted_in_chunks(tmp_path: Path) -> None:
    with model_server(SMALL) as address:
        model = RecordingModel(model_named("openai:smollm2", base_url=address, api_key="none"))
        with foldmark.open(
            tmp_path / "agent.db",
            window=SMALL,
            output=ANSWER,
            policy=PLAIN,
            summarizer=model,
        ) as session:
            session.user("Make all parsers return tuples. Never touch the main branch.")
            work(session, steps=36, lines=45)
            assert session.view().tokens > 10 * SMALL
            pieces: list[str] = []
            session.subscribe(lambda event: pieces.append(event.data["text"]), ["compaction.delta"])
            operation = session.compact()
            assert operation is not None
            assert (operation.after or 0) < SMALL
            check_chunks(session, model)
            assert len(pieces) > len(model.outcomes)
            assert "Never touch the main branch." in str(session.messages())


def check_chunks(session: Session, model: RecordingModel) -> None:
    """Each part of the history was read, however useful the model's notes are."""
    chunks = [outcome for purpose, outcome in model.outcomes if purpose == "chunk"]
    assert len(chunks) >= 2
    assert [outcome for outcome in chunks if not isinstance(outcome, ModelReply)] == []
    event = compacted_event(session)
    assert event["calls"] == len(model.outcomes) <= PLAIN.compact.calls
    info = session.export().messages[-1].info
    assert isinstance(info, AssistantInfo)
    assert info.tokens
    measured = [o.tokens for _, o in model.outcomes if isinstance(o, ModelReply) and o.tokens]
    assert info.tokens.output == sum(tokens.output or 0 for tokens in measured) > 0
    assert info.tokens.input == sum(tokens.input or 0 for tokens in measured) > 0


def test_an_overflow_error_is_recognized_and_the_next_request_fits(
    session: Session, local_model: str
) -> None:
    client = openai.OpenAI(base_url=local_model, api_key="none", max_retries=0)
    session.user("Make all parsers return tuples.")
    work(session, steps=9, lines=30)
    too_long: Any = request(session.view().messages, "openai-chat", "")
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="smollm2", messages=too_long, max_tokens=4)
    assert foldmark.is_context_overflow(str(refused.value))
    session.compact(overflow=True)
    shorter: Any = session.messages("openai-chat")
    reply = client.chat.completions.create(model="smollm2", messages=shorter, max_tokens=4)
    session.record(reply)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens < WINDOW


def test_between_two_pivots_the_server_finds_each_request_in_its_cache(
    session: Session, local_model: str
) -> None:
    client = openai.OpenAI(base_url=local_model, api_key="none", max_retries=0)
    session.user("Make all parsers return tuples.")
    before = 0
    for step in range(4):
        request: Any = session.messages("openai-chat")
        reply = client.chat.completions.create(model="smollm2", messages=request, max_tokens=4)
        assert reply.usage is not None
        assert reply.usage.prompt_tokens_details is not None
        cached = reply.usage.prompt_tokens_details.cached_tokens or 0
        # The last tokens mark the end of a request; they differ when it is extended.
        assert cached >= before - 16
        before = reply.usage.prompt_tokens
        session.record(reply)
        session.user(
            f"And parser number {step}? Tell me what it returns, and whether it is tested."
        )
    assert not session.operations()
    assert before > 100
