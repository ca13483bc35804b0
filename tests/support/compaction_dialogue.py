"""Compactions of small sessions in memory, with a model whose replies are given."""

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
from tests.support.failing_models import DialogueDriver, outcome

REQUEST = "Fix the failing test; never touch the main branch"
ROOMY = Limit(context=100_000, output=4_000)
SMALL = Limit(context=8_000, output=1_000)


def user(text: str, number: int = 0) -> Message:
    return Message(info=UserInfo(id=f"user_{number}"), parts=(TextPart(text=text),))


def answer(text: str, number: int = 0, finish: str = "stop") -> Message:
    info = AssistantInfo(id=f"answer_{number}", parent_id="user_0", finish=finish)
    return Message(info=info, parts=(TextPart(text=text),))


def read_step(number: int, output: str) -> Message:
    """A step that reads `file_N.py`."""
    file = f"file_{number}.py"
    state = Completed(input={"filePath": file}, output=output, time=Time(start=1, end=2))
    call = ToolPart(id=f"part_{number}", tool="read", call_id=f"c{number}", state=state)
    info = AssistantInfo(id=f"step_{number}", parent_id="user_0", finish="tool-calls")
    return Message(info=info, parts=(TextPart(text=f"I read {file}"), call))


def work_session(steps: int = 30, lines: int = 150, first: str = REQUEST) -> list[Message]:
    """One request, and many steps of work on it."""
    outputs = (f"line of file_{number}.py here\n" * lines for number in range(steps))
    return [user(first), *(read_step(number, output) for number, output in enumerate(outputs))]


def chat_session(turns: int = 20, words: int = 200) -> list[Message]:
    """Turns without tool calls."""
    messages: list[Message] = []
    for number in range(turns):
        text = f"So it is. {'word ' * words}"
        messages += (user(f"Question {number}?", number), answer(text, number))
    return messages


def with_rules(policy: Policy = FOLDMARK, **rules: Any) -> Policy:
    """The policy with other rules for compaction."""
    return replace(policy, compact=replace(policy.compact, **rules))


class Trial:
    """One compaction with a scripted model."""

    def __init__(
        self,
        messages: Sequence[Message],
        limit: Limit = ROOMY,
        policy: Policy = FOLDMARK,
        **options: Any,
    ) -> None:
        """Prepare the compaction of a session; options are fields of `CompactionRequest`."""
        self.policy = policy
        self.limit = limit
        self.log = Log(by_classes, messages)
        self.viewer = Viewer(self.log, policy, usable=usable(policy, limit))
        request = CompactionRequest(viewer=self.viewer, limit=limit, **options)
        self.ready: Situation = prepare(request)
        self.driver = DialogueDriver()

    def run(
        self, *replies: str | Outcome | Callable[[ModelRequest], Outcome], **limits: Any
    ) -> Summary:
        """The summary if the model replies so, the last reply repeated."""
        fields: dict[str, Any] = {"limit": self.limit, "is_own_model": False, **limits}
        fields = {"rules": self.policy.compact, "digest": situation_digest, **fields}
        requests: list[ModelRequest] = []

        def choose(request: ModelRequest) -> Outcome:
            requests.append(request)
            reply = replies[min(len(requests), len(replies)) - 1]
            if isinstance(reply, str):
                return outcome(reply, request)
            return reply(request) if callable(reply) else reply

        dialogue = summarize(self.ready, SummarizerLimits(**fields))
        return self.driver.run(dialogue, choose)

    @property
    def requests(self) -> list[ModelRequest]:
        return self.driver.requests

    @property
    def purposes(self) -> list[str]:
        return [request.purpose for request in self.requests]
