"""Any function that takes a list of messages, made to be given one that fits.

    create = fitting(client.chat.completions.create, window=200_000)
    create = fitting(client.messages.create, session=foldmark.open("agent.db", window=200_000))

Without a session each list is fitted by itself (`foldmark.fit`); with one, the session follows the
list: what is folded is kept, can be searched and undone, and the next run goes on with it. It does
not know what the function does, nor what it returns.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from foldmark.errors import BadInput, FoldmarkError
from foldmark.ladder import declared_tokens
from foldmark.limits import model_limits
from foldmark.messages import AssistantInfo, Tokens
from foldmark.refusals import is_context_overflow, stated_window
from foldmark.session.session import Session
from foldmark.tokens import counter
from foldmark.values import encode
from foldmark.wire import decode_reply
from foldmark.wire.fitting import fit, wire_of
from foldmark.wire.plain import plain
from foldmark.wire.tools import declared

from .following import Following
from .wires import WireDialect

R = TypeVar("R")
Messages = list[Any]
_NAMES = ("messages", "input", "contents")  # as the official clients call it
_SHORTER = 0.7  # of the window, where a refusal does not say what it is


def fitting(
    call: Callable[..., R],
    *,
    window: int | None = None,
    model: str = "",
    session: Session | None = None,
    wire: str | None = None,
    at: str | None = None,
) -> Callable[..., R]:
    """The same function; the messages it is given fit, and after a refusal for length are shorter.

    `at` is the name of its argument, if that is none of messages, input and contents; messages that
    come by place are its first argument. `window` and `model` are as for `foldmark.fit`; with a
    session its own count. Async functions stay async.
    """
    if session is None and window is None and not model:
        raise BadInput("how much fits? give window=… in tokens, model=… by its name, or session=…")
    names = _NAMES if at is None else (at,)
    means = _Fitted(window, model, wire) if session is None else _Followed(session, wire)
    if inspect.iscoroutinefunction(inspect.unwrap(call)):
        return cast("Callable[..., R]", _asking(cast("Any", call), means, names))

    @functools.wraps(call)
    def asked(*args: Any, **named: Any) -> R:
        given = _given(args, named, names)
        if given is None:
            return call(*args, **named)
        return means.ask(given, lambda held: _called(call, given, held))

    return asked


def _asking(
    call: Callable[..., Awaitable[R]], means: "_Fitted | _Followed", names: tuple[str, ...]
) -> Callable[..., Awaitable[R]]:
    @functools.wraps(call)
    async def asked(*args: Any, **named: Any) -> R:
        given = _given(args, named, names)
        if given is None:
            return await call(*args, **named)
        return await means.aask(given, lambda held: _called(call, given, held))

    return asked


class Given(NamedTuple):
    """The arguments of a call, and the messages among them."""

    args: tuple[Any, ...]
    named: Mapping[str, Any]
    at: str | None  # the name of the messages; None where they are the first by place
    messages: Messages


def _given(args: tuple[Any, ...], named: Mapping[str, Any], names: Sequence[str]) -> Given | None:
    """The messages of a call; None for a bare text, which some clients take as well."""
    at = next((name for name in names if name in named), None)
    if at is None and not args:
        raise BadInput(f"no messages were given: neither by place nor as {' or '.join(names)}")
    held = args[0] if at is None else named[at]
    if isinstance(held, str):
        return None
    return Given(args, named, at, held if isinstance(held, list) else list(held))


def _called(call: Callable[..., R], given: Given, held: Messages) -> R:
    if given.at is None:
        return call(held, *given.args[1:], **given.named)
    return call(*given.args, **{**given.named, given.at: held})


class _Fitted:
    """Fits each list by itself."""

    def __init__(self, window: int | None, model: str, wire: str | None) -> None:
        self._window = window or model_limits(model).context
        self._model = model
        self._wire = wire

    def ask(self, given: Given, call: Callable[[Messages], R]) -> R:
        try:
            return call(self._fit(given))
        except Exception as error:
            if not is_context_overflow(error):
                raise
            return call(self._shorter(given, error))

    async def aask(self, given: Given, call: Callable[[Messages], Awaitable[R]]) -> R:
        try:
            return await call(self._fit(given))
        except Exception as error:
            if not is_context_overflow(error):
                raise
            return await call(self._shorter(given, error))

    def _fit(self, given: Given) -> Messages:
        system, tools = _beside(given)
        return fit(
            given.messages,
            self._window,
            model=self._model,
            wire=self._wire,
            system=system,
            tools=tools,
        )

    def _shorter(self, given: Given, error: Exception) -> Messages:
        """Messages for the window that the refusal tells of, which holds from now on."""
        stated = stated_window(error) or self._window
        # One that states no smaller window says that more tokens were counted than we have.
        self._window = stated if stated < self._window else int(self._window * _SHORTER)
        try:
            return self._fit(given)
        except FoldmarkError as stopped:
            raise error from stopped


class _Followed:
    """Follows the lists with a session."""

    def __init__(self, session: Session, wire: str | None) -> None:
        self._session = session
        self._wire = wire
        self._following: Following[Any] | None = None

    def ask(self, given: Given, call: Callable[[Messages], R]) -> R:
        following = self._ready(given)
        reply = following.ask(given.messages, call)
        following.measured = _measured(reply)
        return reply

    async def aask(self, given: Given, call: Callable[[Messages], Awaitable[R]]) -> R:
        following = self._ready(given)
        reply = await following.aask(given.messages, call)
        following.measured = _measured(reply)
        return reply

    def _ready(self, given: Given) -> Following[Any]:
        """What follows, made once the wire is known."""
        system, tools = _beside(given)
        if system or tools:
            count = counter(self._session.policy.estimate)
            self._session.fixed = declared_tokens(system, declared(tools), count)
        if self._following is None:
            wire = self._wire or wire_of(given.messages).name
            self._following = Following(self._session, WireDialect(wire))
        return self._following


def _measured(reply: object) -> Tokens | None:
    """What a response says of its tokens; nothing, where it is none, or a stream."""
    with suppress(BadInput):
        info = decode_reply(reply).info
        return (info.tokens or None) if isinstance(info, AssistantInfo) else None
    return None


def _beside(given: Given) -> tuple[str, Iterable[object]]:
    """The system prompt and the tools that a request holds beside its messages."""
    config = given.named.get("config")  # where Gemini's client has both
    inside: Mapping[str, Any] = {}
    if config is not None:
        inside = cast("Mapping[str, Any]", config if isinstance(config, Mapping) else vars(config))
    names = ("system", "instructions", "system_instruction")
    told = [held.get(name) for held in (given.named, inside) for name in names]
    system = next((held for held in told if held is not None), "")
    # Blocks, as Anthropic has them, are counted as they are written.
    text = system if isinstance(system, str) else encode(plain(system)).decode()
    return text, given.named.get("tools") or inside.get("tools") or ()
