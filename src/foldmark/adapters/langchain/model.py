"""LangChain chat models: as a summarizer, and whether one streamed output before it failed."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.context import register_configure_hook

from foldmark.providers.driver import error_line
from foldmark.refusals import THROTTLES, is_context_overflow, matches
from foldmark.summary.protocol import (
    Finish,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    TextHandler,
)

from .dialect import LangChainDialect

# LangGraph's streams skip this tag: summaries are no reply to the user.
_CONFIG: RunnableConfig = {"tags": ["nostream"], "metadata": {"lc_source": "foldmark"}}
_CUT = {"length", "max_tokens", "MAX_TOKENS"}
_REASONS = ("finish_reason", "stop_reason")


class ChatSummarizer:
    """A summarizer that calls a chat model."""

    def __init__(self, model: BaseChatModel) -> None:
        """Use this model."""
        self.model = model
        self._dialect = LangChainDialect()

    @property
    def name(self) -> str:
        """The kind and the name of the model."""
        name = getattr(self.model, "model_name", None) or getattr(self.model, "model", None)
        kind = self.model._llm_type  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - its name for itself
        return f"{kind}:{name}" if isinstance(name, str) else kind

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        """Call the model once, in a thread.

        A model's async client belongs to the event loop that first used it, rarely this one.
        """
        messages: list[BaseMessage] = [SystemMessage(request.system)] if request.system else []
        messages += self._dialect.write(request.messages, None)
        try:
            reply = await asyncio.to_thread(self.model.invoke, messages, _CONFIG)
        except Exception as error:  # noqa: BLE001 - any error means that there is no reply
            return _failure(error)
        on_text(text := str(reply.text))
        return ModelReply(
            text=text,
            finish=_finish(reply),
            tokens=self._dialect.read(reply).tokens,
            calls=len(reply.tool_calls),
        )


def _finish(reply: AIMessage) -> Finish:
    metadata = cast("dict[str, Any]", reply.response_metadata)  # pyright: ignore[reportUnknownMemberType]
    is_cut = any(metadata.get(name) in _CUT for name in _REASONS)
    return "length" if is_cut else "tool-calls" if reply.tool_calls else "stop"


def _failure(error: Exception) -> ModelFailure:
    text = error_line(error)
    if is_context_overflow(error):
        return ModelFailure(cause="overflow", message=text)
    status = getattr(error, "status_code", None)
    if status in {401, 403, 404}:
        return ModelFailure(cause="unavailable", message=text)
    if status in {429, 529} or matches(THROTTLES, text):
        return ModelFailure(cause="throttled", message=text)
    is_timeout = isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower()
    return ModelFailure(cause="timeout" if is_timeout else "failed", message=text)


# --- streamed output -----------------------------------------------------------------------


class StreamWatch(BaseCallbackHandler):
    """Notes whether a reply has started to stream: then no second one may follow it."""

    run_inline = True

    def __init__(self) -> None:
        """Start without output."""
        self.has_output = False

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **_: Any) -> None:
        """Note a chunk; the first ones may be empty."""
        message = getattr(chunk, "message", None)
        self.has_output |= bool(token) or bool(getattr(message, "tool_call_chunks", None))

    def on_stream_event(self, event: Any, **_: Any) -> None:
        """Note an event of newer streams."""
        self.has_output |= event.get("event") == "content-block-delta"


_STREAM_WATCH: ContextVar[StreamWatch | None] = ContextVar("foldmark_watch", default=None)
register_configure_hook(_STREAM_WATCH, inheritable=True)


@contextmanager
def watch_stream() -> Generator[StreamWatch]:
    """Watch the models that are called in this context."""
    watch = StreamWatch()
    token = _STREAM_WATCH.set(watch)
    try:
        yield watch
    finally:
        _STREAM_WATCH.reset(token)
