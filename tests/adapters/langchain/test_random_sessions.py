"""Random sessions through the middleware's own entry point.

FOLDMARK_EXAMPLES=10000 looks harder.
"""

import random
from pathlib import Path
from typing import Any, cast

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from foldmark.adapters.langchain import FoldmarkMiddleware
from tests.support.effort import examples
from tests.support.langchain_agents import Scripted, Talk, check_pairs, tokens_of

SESSIONS = examples(30, 150)
WINDOWS = (2_500, 4_000, 6_000, 9_000)
SYSTEM = SystemMessage("Be brief.")
MODEL = Scripted(reply=lambda _number, _talk: AIMessage("Done."))


class Run:
    """One random session."""

    def __init__(self, number: int, middleware: FoldmarkMiddleware) -> None:
        self._rng = random.Random(number)  # noqa: S311 - a script
        self._name = f"s{number}"
        self._middleware = middleware
        self._made = 0
        self.talk: Talk = [HumanMessage(f"Session {number}. " + self._words(30), id=self._id())]

    def _id(self) -> str:
        self._made += 1
        return f"{self._name}m{self._made}"

    def _words(self, limit: int) -> str:
        return "entry " * self._rng.randint(1, limit)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self._ask()
            if self._rng.random() < 0.1:
                del self.talk[self._rng.randint(1, len(self.talk)) :]
                self.talk.append(HumanMessage("Otherwise: " + self._words(10), id=self._id()))

    def _ask(self) -> None:
        before = list(self.talk)
        history = cast("list[AnyMessage]", list(self.talk))
        request: ModelRequest[Any] = ModelRequest(
            model=MODEL, messages=history, system_message=SYSTEM
        )
        reply = self._middleware.wrap_model_call(request, self._answered)
        assert self.talk == before  # nothing was done to the history
        self.talk += reply.result
        self._add_results(reply.result[0])

    def _answered(self, request: ModelRequest[Any]) -> ModelResponse[Any]:
        check_pairs(request.messages)
        conversations = self._middleware._pool._open.values()  # pyright: ignore[reportPrivateUsage]
        (session,) = [one.session for one in conversations if one.is_exclusive]
        assert tokens_of(request.messages) + session.fixed_tokens <= session.usable
        calls: Any = [
            {"name": "read", "args": {"path": self._words(5)}, "id": self._id()}
            for _ in range(self._rng.randint(0, 4))
        ]
        wrong: Any = []
        if calls and self._rng.random() < 0.1:
            call_id = calls.pop()["id"]
            wrong = [{"name": "read", "args": "{", "id": call_id, "error": None}]
        reply = AIMessage(
            self._rng.choice(["", self._words(40)]),
            tool_calls=calls,
            invalid_tool_calls=wrong,
            id=self._id(),
        )
        return ModelResponse(result=[reply])

    def _add_results(self, reply: Any) -> None:
        calls = [*reply.tool_calls, *reply.invalid_tool_calls]
        self._rng.shuffle(calls)
        for call in calls:
            if self._rng.random() < 0.92:
                self.talk.append(self._result(call["id"]))
        if self._rng.random() < 0.05:
            self.talk.append(self._result(self._id()))  # of no call at all
        if not calls or self._rng.random() < 0.15:
            self.talk.append(HumanMessage("And then: " + self._words(20), id=self._id()))

    def _result(self, call_id: str) -> ToolMessage:
        text = self._words(400)
        content: Any = text if self._rng.random() < 0.7 else [text, {"type": "json", "is": text}]
        status: Any = self._rng.choice(["success", "success", "error"])
        return ToolMessage(content, tool_call_id=call_id, status=status, id=self._id())


def test_no_orphan_no_unanswered_call_and_no_view_over_budget(tmp_path: Path) -> None:
    all_windows = [
        FoldmarkMiddleware(tmp_path / f"{window}.db", window=window, output=300, durable=False)
        for window in WINDOWS
    ]
    folds = 0
    for number in range(SESSIONS):
        with all_windows[number % len(WINDOWS)] as middleware:
            Run(number, middleware).go(steps=2 + number % 7)
            conversations = middleware._pool._open.values()  # pyright: ignore[reportPrivateUsage]
            folds += sum(len(one.session.operations()) for one in conversations)
    assert folds > SESSIONS / 10
