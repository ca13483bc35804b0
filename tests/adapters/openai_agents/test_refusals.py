"""Refusals for length inside the loop of OpenAI's Agents SDK."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import OpenAIProvider, RunConfig, set_tracing_disabled
from openai import AsyncOpenAI
from openai.types.responses import ResponseFailedEvent
from openai.types.responses.response_error import ResponseError

from foldmark.model.messages import AssistantInfo
from tests.support.api_server import wire_server, working
from tests.support.scripted_openai_agents import (
    Script,
    Scripted,
    TooLong,
    agent,
    kinds,
    opened,
    ran,
    response,
    works,
)

set_tracing_disabled(disabled=True)


def refuses(*numbers: int, then: Script, error: Exception | None = None) -> Script:
    """A script in which some requests are refused; the others are counted without these."""

    def script(number: int) -> Any:
        if number in numbers:
            return error or TooLong()
        return then(number - sum(other < number for other in numbers))

    return script


@pytest.mark.parametrize("streamed", [False, True])
def test_a_refusal_for_length_is_followed_by_a_shorter_request(
    tmp_path: Path, *, streamed: bool
) -> None:
    with opened(tmp_path, window=100_000) as session:
        model = Scripted(refuses(9, then=works(9)))
        result = asyncio.run(ran(agent(session.model(model)), session, streamed=streamed))
        assert result == "Done, in 10."
        assert len(model.seen) == 11
        assert len(str(model.seen[9])) < len(str(model.seen[8])) * 0.7
        assert kinds(session) == ["pivot"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_second_refusal_is_the_programs(tmp_path: Path, *, streamed: bool) -> None:
    with opened(tmp_path, window=100_000) as session:
        model = Scripted(refuses(9, 10, then=works(9)))
        with pytest.raises(TooLong):
            asyncio.run(ran(agent(session.model(model)), session, streamed=streamed))
        assert len(model.seen) == 10


@pytest.mark.parametrize("streamed", [False, True])
def test_other_errors_are_the_programs(tmp_path: Path, *, streamed: bool) -> None:
    error = RuntimeError("rate limit reached")
    with opened(tmp_path, window=100_000) as session:
        model = Scripted(refuses(9, then=works(9), error=error))
        with pytest.raises(RuntimeError) as raised:
            asyncio.run(ran(agent(session.model(model)), session, streamed=streamed))
        assert raised.value is error
        assert not kinds(session)


@pytest.mark.parametrize("streamed", [False, True])
def test_models_that_are_named_are_asked_over_http_within_their_window(
    tmp_path: Path, *, streamed: bool
) -> None:
    with wire_server(window=5_000, script=working(20)) as server:
        asyncio.run(named(tmp_path, server.openai, streamed=streamed))
    assert server.overflows >= 1
    assert len(server.flaws) == server.overflows
    refused = [place for place, request in enumerate(server.requests) if request.overflow]
    assert all(server.requests[place + 1].status == 200 for place in refused)
    assert sum(request.status == 200 for request in server.requests) == 42


async def named(folder: Path, address: str, *, streamed: bool) -> None:
    async with AsyncOpenAI(api_key="none", base_url=address, max_retries=0) as client:
        # It believes in a window that the model does not have, until it is told.
        with opened(folder, window=40_000) as session:
            provider = OpenAIProvider(openai_client=client, use_responses=True)
            config = RunConfig(model_provider=provider, model="gpt-x")
            for _ in range(2):
                await ran(agent(None), session, streamed=streamed, config=config)
            answers = [message.info for message in session.session.export().messages]
            measured = [
                info.tokens
                for info in answers
                if isinstance(info, AssistantInfo) and not info.summary
            ]
            assert all(tokens and tokens.total for tokens in measured)


class Failing(Scripted):
    """Tells of a refusal in an event of its stream."""

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        try:
            async for event in super().stream_response(*args, **named):
                yield event
        except TooLong as error:
            failed = response([], status="failed")
            failed.error = ResponseError.model_construct(code=error.code, message=str(error))
            yield ResponseFailedEvent(type="response.failed", response=failed, sequence_number=1)


def test_a_refusal_that_is_an_event_of_a_stream_is_one_too(tmp_path: Path) -> None:
    with opened(tmp_path, window=100_000) as session:
        model = Failing(refuses(9, then=works(9)))
        result = asyncio.run(ran(agent(session.model(model)), session, streamed=True))
        assert result == "Done, in 10."
        assert len(model.seen) == 11
        assert kinds(session) == ["pivot"]
