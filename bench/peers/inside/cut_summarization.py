"""summarization-pydantic-ai: the plan of SummarizationProcessor, without its model's call."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

import asyncio
from typing import Any

from pydantic_ai.models.test import TestModel
from pydantic_ai_summarization import SummarizationProcessor
from pydantic_messages import history
from timing import Cut, report

PROCESSOR = SummarizationProcessor(
    model=TestModel(), trigger=("tokens", 40_000), keep=("tokens", 40_000)
)
LOOP = asyncio.new_event_loop()


def cut(messages: list[Any]) -> list[Any]:
    plan = LOOP.run_until_complete(PROCESSOR.plan_compression(messages))
    return messages if plan is None else plan.preserved_messages


report({"cut": Cut(history, cut, len, carried=lambda _, kept: list(kept))})
LOOP.close()
