"""Watches whether a model's words were streamed to anybody before it failed.

Who has read half an answer must not be given another one from its beginning.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook


class Watch(BaseCallbackHandler):
    """Hears the pieces of an answer."""

    run_inline = True

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.heard = False

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **_: Any) -> None:
        """A piece; the first ones may be empty."""
        message = getattr(chunk, "message", None)
        self.heard |= bool(token) or bool(getattr(message, "tool_call_chunks", None))

    def on_stream_event(self, event: Any, **_: Any) -> None:
        """The same, of newer streams."""
        self.heard |= event.get("event") == "content-block-delta"


_WATCH: ContextVar[Watch | None] = ContextVar("foldmark_watch", default=None)
register_configure_hook(_WATCH, inheritable=True)


@contextmanager
def watched() -> Generator[Watch]:
    """Watch the models that are asked meanwhile."""
    watch = Watch()
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)
