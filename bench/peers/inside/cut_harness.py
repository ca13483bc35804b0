"""pydantic-ai-harness: ClearToolResults before a request."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

import asyncio
from typing import Any

from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RunUsage
from pydantic_ai_harness.compaction import ClearToolResults
from pydantic_messages import history
from timing import Cut, report

MODEL = TestModel()
CLEARING: ClearToolResults[None] = ClearToolResults(max_tokens=40_000, keep_pairs=75)
LOOP = asyncio.new_event_loop()


def state(messages: list[Any]) -> tuple[Any, Any]:
    run = RunContext(deps=None, model=MODEL, usage=RunUsage(), messages=list(messages))
    request = ModelRequestContext(
        model=MODEL,
        messages=list(messages),
        model_settings=None,
        model_request_parameters=ModelRequestParameters(),
    )
    return run, request


def cut(given: tuple[Any, Any]) -> list[Any]:
    return LOOP.run_until_complete(CLEARING.before_model_request(*given)).messages


def whole(messages: list[Any]) -> int:
    return sum(not any(map(_is_cleared, message.parts)) for message in messages)


def _is_cleared(part: Any) -> bool:
    return isinstance(part, ToolReturnPart) and part.content == CLEARING.placeholder


report({"cut": Cut(history, cut, whole, state, lambda _, kept: list(kept))})
LOOP.close()
