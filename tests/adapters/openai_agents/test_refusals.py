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
    """A script that refuses some requests; `then` does not count them."""

    def script(number: int) -> Any:
        if number in numbers:
            return error or TooLong()
        return then(number - sum(other < number for other in numbers))

    return script


@pytest.mark.parametrize("streamed", [False, True])
def test_models_that_are_named_are_asked_over_http_within_their_window(
    tmp_path: Path, *, streamed: bool
) -> None:
    with wire_server(window=5_000, script=working(20)) as server:
        asyncio.run(run_named_model(tmp_path, server.openai, streamed=streamed))
    assert server.overflows >= 1
    assert len(server.flaws) == server.overflows
    refused = [index for index, request in enumerate(server.requests) if request.overflow]
    assert all(server.requests[index + 1].status == 200 for index in refused)
    assert sum(request.status == 200 for request in server.requests) == 42


async def run_named_model(folder: Path, address: str, *, streamed: bool) -> None:
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
    """Reports a refusal as a stream event."""

    async def stream_response(self, *args: Any, **keywords: Any) -> AsyncIterator[Any]:
        try:
            async for event in super().stream_response(*args, **keywords):
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
