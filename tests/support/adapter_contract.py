"""An agent of any framework with Foldmark and a scripted model, for the contract over adapters."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import pytest

import foldmark
from foldmark.adapters.conversations import Conversations
from foldmark.session.session import Session

WINDOW, OUTPUT = 6_000, 400
_numbers = count()
# A text, the names of tools to call, or an error to raise.
Reply = str | tuple[str, ...] | Exception
# The reply to a request, by its number from 0 and its texts.
Script = Callable[[int, list[str]], Reply]
# The framework's package and the module with its agent.
FRAMEWORKS = {
    "langchain": ("langchain", "tests.support.langchain_agents"),
    "pydantic_ai": ("pydantic_ai", "tests.support.scripted_pydantic_ai"),
    "openai_agents": ("agents", "tests.support.scripted_openai_agents"),
    "adk": ("google.adk", "tests.support.adk_agents"),
}


class Request(NamedTuple):
    """What the model received: texts of the user and the model, and all tokens."""

    texts: list[str]
    tokens: int


class Outcome(NamedTuple):
    """The answer of a run, and its tool outputs in the framework's own history."""

    answer: str
    outputs: list[str]


class ContractAgent(ABC):
    """An agent with the tools read (2,000 characters), fail, crash (ends the run) and wait."""

    modes: ClassVar[tuple[str, ...]]

    def __init__(self, folder: Path, script: Script, **settings: Any) -> None:
        del folder, settings  # for the subclass
        self.script = script
        self.requests: list[Request] = []
        self.waits = asyncio.Event()  # set by the tool `wait`, which never returns

    def reply(self, texts: list[str], tokens: int) -> str | tuple[str, ...]:
        """The script's reply to a request; raises its errors."""
        self.requests.append(Request(texts, tokens))
        reply = self.script(len(self.requests) - 1, texts)
        if isinstance(reply, Exception):
            raise reply
        return reply

    @abstractmethod
    async def run(self, text: str, conversation: str = "t", mode: str = "async") -> Outcome: ...

    @abstractmethod
    async def close(self) -> None: ...

    @staticmethod
    @abstractmethod
    def refusal() -> Exception:
        """A refusal for length."""

    @staticmethod
    def session_id(conversation: str) -> str:
        return conversation

    @property
    def pool(self) -> Conversations[Any]:
        """The open conversations, if the adapter has several."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def contract_agent(framework: str) -> type[ContractAgent]:
    """The class of a framework's agent; skips the test if the framework is not installed."""
    package, module = FRAMEWORKS[framework]
    pytest.importorskip(package, reason=f"needs the package {package}")
    return import_module(module).FrameworkAgent


def stored_session(folder: Path, name: str, **settings: Any) -> Session:
    options: dict[str, Any] = {"window": WINDOW, "output": OUTPUT, **settings}
    return foldmark.open(folder / "agent.db", session=name, **options)


def compactions(session: Session) -> int:
    return sum(operation.kind == "pivot" for operation in session.operations())


def working(steps: int, seed: int = 1) -> Script:
    """Replies with one to four calls each, every `steps`-th with a text."""
    rng = random.Random(seed)  # noqa: S311 - a script

    def script(number: int, _: list[str]) -> Reply:
        if number % steps == steps - 1:
            return "Done."
        return tuple(rng.choices(["read", "fail"], [9, 1], k=rng.randint(1, 4)))

    return script


def paths(names: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Name, path and id of each call of a reply; ids are unique, also after a restart."""
    return [(name, f"src/{(number := next(_numbers))}.py", f"call_{number}") for name in names]


def file_text(path: str) -> str:
    line = f"{path}: a line of the file\n"
    return line * (2_000 // len(line) + 1)
