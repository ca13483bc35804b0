"""Wraps any function that takes a list of messages so that each call passes a list that fits.

    create = fit_calls(client.chat.completions.create, window=200_000)
    create = fit_calls(client.messages.create, session=foldmark.open("agent.db", session="one"))

Without a session each list is shortened on its own (`foldmark.fit`). With one, all lists are one
conversation that the session stores: summarized messages can be searched and restored, and the
next run continues. The wrapper does not know what the function does or returns. It recovers from a
refusal for length that the function raises, but not from one that a stream raises later.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from foldmark.errors import BadInput, FoldmarkError
from foldmark.fitting.fit import fit, list_tokens
from foldmark.model.messages import AssistantInfo, Tokens
from foldmark.model.prompt_messages import PromptMessage, ToolDeclaration
from foldmark.model.values import encode
from foldmark.providers.background import run_uninterrupted
from foldmark.refusals import is_context_overflow, stated_window
from foldmark.session.history_mirror import HistoryMirror, run_abortable
from foldmark.session.session import Session
from foldmark.summary.fallback import declared_tokens
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import model_limits
from foldmark.wire.codec import ReadMessage, codec_named
from foldmark.wire.detect import likely_codec, likely_codecs
from foldmark.wire.formats import decode_reply
from foldmark.wire.plain import is_sdk_object, plain, plain_object
from foldmark.wire.tools import tool_declarations

R = TypeVar("R")
Messages = list[Any]
_ARGUMENT_NAMES = ("messages", "input", "contents")  # in the official clients
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# API formats of the official clients, by the module of the function and by the argument's name.
_APIS_BY_MODULE = {
    "openai.resources.chat": "openai-chat",
    "openai.resources.responses": "openai-responses",
    "anthropic.": "anthropic",
    "google.genai": "gemini",
}
_APIS_BY_ARGUMENT = {"input": "openai-responses", "contents": "gemini"}
_RETRY_SHARE = 0.7  # share of a refused list to try next if the refusal states no limit


def fit_calls(
    call: Callable[..., R],
    *,
    window: int | None = None,
    model: str = "",
    session: Session | None = None,
    api: str | None = None,
    argument: str | None = None,
) -> Callable[..., R]:
    """Wrap a function so that its messages fit, and retry once with fewer if it refuses for length.

    `argument` names the argument with the messages (default: messages, input or contents).
    `window` and `model` are those of `foldmark.fit`; a session uses its own and stores a single
    conversation. `api` is the API format; by default it is that of the official client, or is
    detected from the messages. Async functions stay async.
    """
    if not callable(call):
        raise BadInput(f"expected a function such as client.messages.create, not {call!r:.60}")
    if session is None and window is None and not model:
        raise BadInput("no context window is known: pass window=… (tokens), model=… or session=…")
    module = getattr(call, "__module__", None) or ""
    api = api or next((its for key, its in _APIS_BY_MODULE.items() if module.startswith(key)), None)
    find = _MessageFinder(call, _ARGUMENT_NAMES if argument is None else (argument,))
    views = _ListViews(window, model, api) if session is None else _SessionViews(session, api)
    if _is_async(call):
        return cast("Callable[..., R]", _wrap_async(cast("Any", call), views, find))

    @functools.wraps(call)
    def wrapper(*args: Any, **keywords: Any) -> R:
        arguments = find(args, keywords)
        if arguments is None:
            return call(*args, **keywords)
        view = views.view_for(arguments)
        try:
            reply = arguments.call_with(call, view)
        except Exception as error:  # noqa: BLE001 - raised again, unless it is a refusal
            reply = arguments.call_with(call, views.shorter(arguments, view, error))
        views.record_usage(reply)
        return reply

    return wrapper


def _wrap_async(
    call: Callable[..., Awaitable[R]], views: "_ListViews | _SessionViews", find: "_MessageFinder"
) -> Callable[..., Awaitable[R]]:
    @functools.wraps(call)
    async def wrapper(*args: Any, **keywords: Any) -> R:
        arguments = find(args, keywords)
        if arguments is None:
            return await call(*args, **keywords)
        view = await views.in_thread(lambda: views.view_for(arguments))
        try:
            reply = await arguments.call_with(call, view)
        except Exception as error:  # noqa: BLE001 - raised again, unless it is a refusal
            again = functools.partial(views.shorter, arguments, view, error)
            reply = await arguments.call_with(call, await views.in_thread(again))
        views.record_usage(reply)
        return reply

    return wrapper


def _is_async(call: Callable[..., object]) -> bool:
    inner = getattr(call, "__call__", None)  # noqa: B004 - of a callable object
    return any(map(inspect.iscoroutinefunction, (inspect.unwrap(call), inner)))


# --- the messages among the arguments ---


class CallArguments(NamedTuple):
    """The arguments of a call, and where its messages are."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    position: str | int  # keyword or index of the messages
    messages: Messages

    def call_with(self, call: Callable[..., R], messages: Messages) -> R:
        """Call the function with other messages."""
        if isinstance(self.position, str):
            return call(*self.args, **{**self.keywords, self.position: messages})
        before, after = self.args[: self.position], self.args[self.position + 1 :]
        return call(*before, messages, *after, **self.keywords)


class _MessageFinder:
    """Finds the messages among the arguments of a call."""

    def __init__(self, call: Callable[..., object], names: Sequence[str]) -> None:
        self._names = names
        self._index = 0  # of the messages among the positional arguments
        with suppress(TypeError, ValueError):  # a builtin may have no signature
            parameters = list(inspect.signature(call).parameters)
            self._index = next((parameters.index(name) for name in names if name in parameters), 0)

    def __call__(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> CallArguments | None:
        """The arguments with their messages; None if those are no list (they stay unchanged)."""
        position: str | int | None = next((name for name in self._names if name in keywords), None)
        if position is None:
            if len(args) <= self._index:
                names = " or ".join(self._names)
                raise BadInput(f"no messages in the call: pass them as {names}, or by position")
            position = self._index
        value = keywords[position] if isinstance(position, str) else args[position]
        if not isinstance(value, list | tuple):
            return None
        items = cast("Sequence[Any]", value)
        messages = cast("Messages", value) if isinstance(value, list) else list(items)
        if not all(isinstance(one, Mapping) or is_sdk_object(one) for one in messages):
            return None
        return CallArguments(args, keywords, position, messages)


def _system_and_tools(arguments: CallArguments) -> tuple[str, tuple[ToolDeclaration, ...]]:
    """The system prompt and the tools among the arguments, as far as they are recognized."""
    config = arguments.keywords.get("config")  # Gemini's client has both in here
    nested: Mapping[str, Any] = {}
    if config is not None:
        nested = cast("Mapping[str, Any]", config if isinstance(config, Mapping) else vars(config))
    names = ("system", "instructions", "system_instruction")
    prompts = (where.get(name) for where in (arguments.keywords, nested) for name in names)
    system = next(filter(None, prompts), "")
    tools = arguments.keywords.get("tools") or nested.get("tools")
    return _text(system), _tools(tools)


def _text(system: object) -> str:
    if isinstance(system, str):
        return system
    with suppress(BadInput):  # a client's marker for "not given" is no text
        return encode(plain(system)).decode()
    return ""


def _tools(tools: object) -> tuple[ToolDeclaration, ...]:
    """The tools that can be counted: no Python functions, no one-shot iterators."""
    if not isinstance(tools, list | tuple):
        return ()
    result: list[ToolDeclaration] = []
    for tool in cast("Iterable[object]", tools):
        with suppress(BadInput):
            result += tool_declarations([tool])
    return tuple(result)


# --- views ---


class _ListViews:
    """Fits each list on its own."""

    def __init__(self, window: int | None, model: str, api: str | None) -> None:
        self._window = window or model_limits(model).context
        self._model = model
        self._api = api

    async def in_thread(self, call: Callable[[], Messages]) -> Messages:
        return await run_uninterrupted(call)

    def view_for(self, arguments: CallArguments) -> Messages:
        return self._fit(arguments, self._window)

    def record_usage(self, reply: object) -> None:
        """Do nothing: the next list is fitted on its own."""

    def _fit(self, arguments: CallArguments, window: int) -> Messages:
        system, tools = _system_and_tools(arguments)
        limits = (arguments.keywords.get(name) for name in _OUTPUT_LIMITS)
        output = next((limit for limit in limits if type(limit) is int), 0)
        usual = min(window // 4, 32_000)  # also a margin for estimation errors
        return fit(
            arguments.messages,
            window,
            model=self._model,
            output=output if usual < output < window else None,
            api=self._api or _argument_api(arguments),
            system=system,
            tools=tools,
        )

    def shorter(self, arguments: CallArguments, refused: Messages, error: Exception) -> Messages:
        """Messages for the limit that the refusal states; raises `error` if none are shorter."""
        if not is_context_overflow(error):
            raise error
        stated_limit = stated_window(error)
        try:
            if stated_limit and stated_limit < self._window:
                self._window = stated_limit  # also for later calls
                messages = self._fit(arguments, stated_limit)
                if json_size(messages) < json_size(refused):
                    return messages
            target = self._tokens(arguments, refused) * _RETRY_SHARE
            messages = self._fit(arguments, int(target + min(target / 3, 32_000)) + 1)
        except FoldmarkError as failure:
            raise error from failure
        if json_size(messages) >= json_size(refused):
            raise error
        return messages

    def _tokens(self, arguments: CallArguments, messages: Messages) -> int:
        api = self._api or _argument_api(arguments)
        system, tools = _system_and_tools(arguments)
        fixed = declared_tokens(system, tools, counter("classes"))
        return fixed + list_tokens(messages, codec_named(api) if api else likely_codec(messages))


def json_size(messages: Messages) -> int:
    """The size of a list in bytes of its JSON."""
    return len(encode(plain(messages)))


def _argument_api(arguments: CallArguments) -> str | None:
    return _APIS_BY_ARGUMENT.get(str(arguments.position))


class _SessionViews:
    """Stores the lists in a session and returns its views."""

    def __init__(self, session: Session, api: str | None) -> None:
        self._session = session
        self._api = api
        self._mirror: tuple[str, HistoryMirror[Any]] | None = None

    async def in_thread(self, call: Callable[[], Messages]) -> Messages:
        return await run_abortable(self._session, call)

    def view_for(self, arguments: CallArguments) -> Messages:
        mirror = self._mirror_for(arguments)
        mirror.take(arguments.messages)
        return mirror.view()

    def shorter(self, arguments: CallArguments, _refused: Messages, error: Exception) -> Messages:
        mirror = self._mirror_for(arguments)
        if not mirror.can_shrink(error):
            raise error
        return mirror.shorter_view(error)

    def record_usage(self, reply: object) -> None:
        if self._mirror is not None:
            self._mirror[1].measured = _measured(reply)

    def _mirror_for(self, arguments: CallArguments) -> HistoryMirror[Any]:
        """The mirror for these messages, created once their API format is known."""
        system, tools = _system_and_tools(arguments)
        if system or tools:
            count = counter(self._session.policy.estimate)
            self._session.fixed_tokens = declared_tokens(system, tools, count)
        api = self._api or _argument_api(arguments)
        if api is None:
            possible = [codec.name for codec in likely_codecs(arguments.messages)]
            name = self._mirror[0] if self._mirror else possible[0]
            if name not in possible:
                raise BadInput(
                    f"earlier messages were read as {name}, but these are {possible[0]}: "
                    f"pass api={possible[0]!r}"
                )
            api = name
        if self._mirror is None:
            self._mirror = api, HistoryMirror(self._session, WireDialect(api))
        return self._mirror[1]


class WireDialect:
    """Reads and writes messages of one API format."""

    unique = False

    def __init__(self, api: str) -> None:
        """Use the codec of this API format."""
        self._codec = codec_named(api)
        self.key = self._codec.key

    def read(self, message: object, /) -> ReadMessage:
        """The content of a message."""
        return self._codec.read(plain_object(message))

    def write(self, messages: Sequence[PromptMessage], _original: object, /) -> list[Any]:
        """Messages with this content."""
        return list[Any](self._codec.write(tuple(messages), as_is=False))

    def prompt(self, message: object, /) -> object | None:
        """The message if it is a system prompt, else None."""
        return message if self.read(message).role == "system" else None


def _measured(reply: object) -> Tokens | None:
    """The usage in a response; None for streams and for anything else."""
    with suppress(BadInput):
        info = decode_reply(reply).info
        return (info.tokens or None) if isinstance(info, AssistantInfo) else None
    return None
