"""Foldmark keeps the whole session of an agent, and shows the model a view that fits its window.

    with foldmark.open("agent.db", model="anthropic:claude-sonnet-4-5") as session:
        session.user("Fix the failing test")
        session.messages("anthropic")       # the messages to send, compacted first if necessary
        foldmark.Agent("anthropic:claude-sonnet-4-5", tools=[run_tests]).run(session=session)

Names are imported when they are first used, so that importing the package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent.agent import Agent
    from .agent.function_tools import tool
    from .errors import (
        BadInput,
        BadPolicy,
        CompactionStopped,
        FoldmarkError,
        SessionBusy,
        StoreError,
        UnknownModel,
        WindowTooSmall,
    )
    from .fitting.fit import fit
    from .log.log import Log
    from .log.view import Viewer
    from .model.events import Event
    from .model.messages import Message
    from .policy import Policy, preset
    from .refusals import is_context_overflow
    from .session.opening import aopen, open  # noqa: A004 - the public name is `foldmark.open`
    from .session.session import Session
    from .session.settings import Settings
    from .tokens.limits import Limit, model_limits
    from .transcripts.read import read_transcript

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agent.agent",
    "BadInput": "errors",
    "BadPolicy": "errors",
    "CompactionStopped": "errors",
    "Event": "model.events",
    "FoldmarkError": "errors",
    "Limit": "tokens.limits",
    "Log": "log.log",
    "Message": "model.messages",
    "Policy": "policy",
    "Session": "session.session",
    "SessionBusy": "errors",
    "Settings": "session.settings",
    "StoreError": "errors",
    "UnknownModel": "errors",
    "Viewer": "log.view",
    "WindowTooSmall": "errors",
    "aopen": "session.opening",
    "fit": "fitting.fit",
    "is_context_overflow": "refusals",
    "model_limits": "tokens.limits",
    "open": "session.opening",
    "preset": "policy",
    "read_transcript": "transcripts.read",
    "tool": "agent.function_tools",
}

__all__ = [
    "Agent",
    "BadInput",
    "BadPolicy",
    "CompactionStopped",
    "Event",
    "FoldmarkError",
    "Limit",
    "Log",
    "Message",
    "Policy",
    "Session",
    "SessionBusy",
    "Settings",
    "StoreError",
    "UnknownModel",
    "Viewer",
    "WindowTooSmall",
    "aopen",
    "fit",
    "is_context_overflow",
    "model_limits",
    "open",
    "preset",
    "read_transcript",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'foldmark' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
