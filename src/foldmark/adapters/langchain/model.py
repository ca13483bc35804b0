"""Chat models of LangChain: one that summarises, and whether one was heard before it failed."""

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
from foldmark.summary.protocol import Delta, Finish, ModelFailure, ModelReply, ModelRequest, Outcome

from .dialect import LangChainDialect

# Its words are no answer to the user: LangGraph's streams leave out what has this tag.
_CONFIG: RunnableConfig = {"tags": ["nostream"], "metadata": {"lc_source": "foldmark"}}
_CUT = {"length", "max_tokens", "MAX_TOKENS"}
_REASONS = ("finish_reason", "stop_reason")


class ChatSummarizer:
    """Asks a chat model for summaries."""

    def __init__(self, model: BaseChatModel) -> None:
        """Take the model."""
        self.model = model
        self._dialect = LangChainDialect()

    @property
    def name(self) -> str:
        """Which model it is."""
        held = getattr(self.model, "model_name", None) or getattr(self.model, "model", None)
        kind = self.model._llm_type  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - its name for itself
        return f"{kind}:{held}" if isinstance(held, str) else kind

    async def ask(self, ask: ModelRequest, delta: Delta) -> Outcome:
        """The outcome of one ask.

        In a thread: a model's async client belongs to the loop in which it was first used, and
        that is seldom this one.
        """
        messages: list[BaseMessage] = [SystemMessage(ask.system)] if ask.system else []
        messages += self._dialect.write(ask.messages, None)
        try:
            said = await asyncio.to_thread(self.model.invoke, messages, _CONFIG)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no answer
            return _refused(error)
        delta(text := str(said.text))
        return ModelReply(
            text=text,
            finish=_finish(said),
            tokens=self._dialect.read(said).tokens,
            calls=len(said.tool_calls),
        )


def _finish(said: AIMessage) -> Finish:
    told = cast("dict[str, Any]", said.response_metadata)  # pyright: ignore[reportUnknownMemberType]
    cut = any(told.get(name) in _CUT for name in _REASONS)
    return "length" if cut else "tool-calls" if said.tool_calls else "stop"


def _refused(error: Exception) -> ModelFailure:
    text = error_line(error)
    if is_context_overflow(error):
        return ModelFailure(cause="overflow", message=text)
    status = getattr(error, "status_code", None)
    if status in {401, 403, 404}:
        return ModelFailure(cause="unavailable", message=text)
    if status in {429, 529} or matches(THROTTLES, text):
        return ModelFailure(cause="throttled", message=text)
    late = isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower()
    return ModelFailure(cause="timeout" if late else "failed", message=text)


# --- whether words were streamed -----------------------------------------------------------


class Watch(BaseCallbackHandler):
    """Hears the pieces of an answer: who has read half of one must not be given another."""

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
