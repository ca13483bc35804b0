"""Compactions of small sessions in memory, driven by hand: what is asked, and what comes of it."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from foldmark.compaction.situation import CompactionRequest, Situation, prepare
from foldmark.digest.digest import situation_digest
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
)
from foldmark.policy import FOLDMARK, Policy
from foldmark.summary.fallback import SummarizerLimits, Summary, summarize
from foldmark.summary.protocol import ModelRequest, Outcome
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import by_classes
from foldmark.tokens.limits import Limit
from tests.support.failing_models import Driven, driven, outcome

REQUEST = "Fix the failing test; never touch the main branch"
ROOMY = Limit(context=100_000, output=4_000)
SMALL = Limit(context=8_000, output=1_000)


def user(text: str, number: int = 0) -> Message:
    return Message(info=UserInfo(id=f"user_{number}"), parts=(TextPart(text=text),))


def answer(text: str, number: int = 0, finish: str = "stop") -> Message:
    info = AssistantInfo(id=f"answer_{number}", parent_id="user_0", finish=finish)
    return Message(info=info, parts=(TextPart(text=text),))


def looked(number: int, output: str) -> Message:
    """A step of work: a call, and what it gave."""
    given = {"filePath": f"wheel_{number}.py"}
    state = Completed(input=given, output=output, time=Time(start=1, end=2))
    call = ToolPart(id=f"part_{number}", tool="read", call_id=f"c{number}", state=state)
    info = AssistantInfo(id=f"step_{number}", parent_id="user_0", finish="tool-calls")
    return Message(info=info, parts=(TextPart(text=f"I look at wheel_{number}.py"), call))


def worked(steps: int = 30, lines: int = 150, first: str = REQUEST) -> list[Message]:
    """One request, and much work on it."""
    outputs = (f"line of wheel_{number}.py turns\n" * lines for number in range(steps))
    return [user(first), *(looked(number, output) for number, output in enumerate(outputs))]


def talked(turns: int = 20, words: int = 200) -> list[Message]:
    """Turns without any calls."""
    messages: list[Message] = []
    for number in range(turns):
        messages += (
            user(f"Question {number}?", number),
            answer(f"So it is. {'word ' * words}", number),
        )
    return messages


def with_rules(policy: Policy = FOLDMARK, **rules: Any) -> Policy:
    """A policy that compacts a little differently."""
    return replace(policy, compact=replace(policy.compact, **rules))


class Trial:
    """One compaction that a model takes part in as it is told."""

    def __init__(
        self,
        messages: Sequence[Message],
        limit: Limit = ROOMY,
        policy: Policy = FOLDMARK,
        **job: Any,
    ) -> None:
        """Take the session, its window and its policy, and what else the job has."""
        self.policy = policy
        self.limit = limit
        self.log = Log(by_classes, messages)
        self.viewer = Viewer(self.log, policy, usable=usable(policy, limit))
        self.ready: Situation = prepare(CompactionRequest(viewer=self.viewer, limit=limit, **job))
        self.driven: Driven = driven()

    def run(
        self, *replies: str | Outcome | Callable[[ModelRequest], Outcome], **means: Any
    ) -> Summary:
        """The summary, where the model replies so, the last reply again and again."""
        given: dict[str, Any] = {"rules": self.policy.compact, "limit": self.limit, "is_own_model": False}
        given["digest"] = situation_digest
        flow = summarize(self.ready, SummarizerLimits(**{**given, **means}))
        asked: list[ModelRequest] = []

        def choose(ask: ModelRequest) -> Outcome:
            asked.append(ask)
            reply = replies[min(len(asked), len(replies)) - 1]
            if isinstance(reply, str):
                return outcome(reply, ask)
            return reply(ask) if callable(reply) else reply

        return self.driven.run(flow, choose)

    @property
    def requests(self) -> list[ModelRequest]:
        return self.driven.requests

    @property
    def purposes(self) -> list[str]:
        return [ask.purpose for ask in self.requests]
