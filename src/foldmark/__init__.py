"""Foldmark keeps an agent's session whole, and shows the model a view of it that fits.

    log = foldmark.Log(foldmark.counter("classes"), transcript.messages)
    viewer = foldmark.Viewer(log, foldmark.preset("foldmark"))
    plan = foldmark.session_plan(viewer, foldmark.model_limits("anthropic:claude-sonnet-4-5"))
    log.mark(plan.prune.ordinals, at=now)
    viewer.view().messages                  # what the model is shown

Names are looked up when they are first used, so that importing the package costs little.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import BadInput, BadPolicy, FoldmarkError, UnknownModel, WindowTooSmall
    from .inspection import inspection
    from .io.files import read_transcript
    from .limits import Limit, model_limits
    from .log import Log
    from .messages import Message, Transcript, decode_transcript, encode_transcript
    from .overflow import is_overflow, pressure, usable
    from .plan import Plan, session_plan
    from .policy import Policy
    from .presets import preset
    from .refusals import is_context_overflow
    from .tokens import counter
    from .view import View, Viewer

__version__ = "0.1.0"

_HOMES = {
    "BadInput": "errors",
    "BadPolicy": "errors",
    "FoldmarkError": "errors",
    "Limit": "limits",
    "Log": "log",
    "Message": "messages",
    "Plan": "plan",
    "Policy": "policy",
    "Transcript": "messages",
    "UnknownModel": "errors",
    "View": "view",
    "Viewer": "view",
    "WindowTooSmall": "errors",
    "counter": "tokens",
    "decode_transcript": "messages",
    "encode_transcript": "messages",
    "inspection": "inspection",
    "is_context_overflow": "refusals",
    "is_overflow": "overflow",
    "model_limits": "limits",
    "preset": "presets",
    "pressure": "overflow",
    "read_transcript": "io.files",
    "session_plan": "plan",
    "usable": "overflow",
}

__all__ = [
    "BadInput",
    "BadPolicy",
    "FoldmarkError",
    "Limit",
    "Log",
    "Message",
    "Plan",
    "Policy",
    "Transcript",
    "UnknownModel",
    "View",
    "Viewer",
    "WindowTooSmall",
    "counter",
    "decode_transcript",
    "encode_transcript",
    "inspection",
    "is_context_overflow",
    "is_overflow",
    "model_limits",
    "preset",
    "pressure",
    "read_transcript",
    "session_plan",
    "usable",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'foldmark' has no attribute {name!r}")
    found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
