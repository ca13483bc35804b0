"""Any function that takes a list of messages, made to be given one that fits.

    create = fitting(client.chat.completions.create, window=200_000)
    create = fitting(client.messages.create, session=foldmark.open("agent.db", session="one"))

Without a session each list is fitted by itself (`foldmark.fit`); with one, the session follows the
list, which is one conversation: what is folded is kept, can be searched and undone, and the next
run goes on with it. It does not know what the function does, nor what it returns; a refusal for
length is recovered from where the function raises it, not where a stream does later.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from foldmark.errors import BadInput, FoldmarkError
from foldmark.fitting.fit import fit, list_tokens
from foldmark.model.messages import AssistantInfo, Tokens
from foldmark.model.prompt_messages import Declared, PromptMessage
from foldmark.model.values import encode
from foldmark.providers.background import uncut
from foldmark.refusals import is_context_overflow, stated_window
from foldmark.session.history_mirror import HistoryMirror, aborting
from foldmark.session.session import Session
from foldmark.summary.ladder import declared_tokens
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import model_limits
from foldmark.wire.codec import Read, wire_named
from foldmark.wire.detect import wire_of, wires_of
from foldmark.wire.formats import decode_reply
from foldmark.wire.plain import is_sdk_object, plain, plain_object
from foldmark.wire.tools import declared

R = TypeVar("R")
Messages = list[Any]
_NAMES = ("messages", "input", "contents")  # as the official clients call it
_OUTPUTS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# The wires of the official clients, by where their functions are, and by the argument's name.
_CLIENTS = {
    "openai.resources.chat": "openai-chat",
    "openai.resources.responses": "openai-responses",
    "anthropic.": "anthropic",
    "google.genai": "gemini",
}
_ARGUMENTS = {"input": "openai-responses", "contents": "gemini"}
_SHORTER = 0.7  # of what was refused, where the refusal does not say how much is allowed


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

    `at` is the name of its argument, if that is none of messages, input and contents. `window` and
    `model` are as for `foldmark.fit`; with a session its own count, and it is of one conversation
    alone. The wire is known for the official clients; for others it is recognised, if it is not
    given. Async functions stay async.
    """
    if not callable(call):
        raise BadInput(f"a function is expected, such as client.messages.create, not {call!r:.60}")
    if session is None and window is None and not model:
        raise BadInput("how much fits? give window=… in tokens, model=… by its name, or session=…")
    home = getattr(call, "__module__", None) or ""
    spoken = wire or next((its for start, its in _CLIENTS.items() if home.startswith(start)), None)
    find = _Finder(call, _NAMES if at is None else (at,))
    views = _ListViews(window, model, spoken) if session is None else _SessionViews(session, spoken)
    if _is_async(call):
        return cast("Callable[..., R]", _asking(cast("Any", call), views, find))

    @functools.wraps(call)
    def asked(*args: Any, **named: Any) -> R:
        given = find(args, named)
        if given is None:
            return call(*args, **named)
        view = views.first(given)
        try:
            reply = given.called(call, view)
        except Exception as error:  # noqa: BLE001 - raised again, unless it is a refusal
            reply = given.called(call, views.shorter(given, view, error))
        views.note(reply)
        return reply

    return asked


def _asking(
    call: Callable[..., Awaitable[R]], views: "_ListViews | _SessionViews", find: "_Finder"
) -> Callable[..., Awaitable[R]]:
    @functools.wraps(call)
    async def asked(*args: Any, **named: Any) -> R:
        given = find(args, named)
        if given is None:
            return await call(*args, **named)
        view = await views.in_thread(lambda: views.first(given))
        try:
            reply = await given.called(call, view)
        except Exception as error:  # noqa: BLE001 - raised again, unless it is a refusal
            again = functools.partial(views.shorter, given, view, error)
            reply = await given.called(call, await views.in_thread(again))
        views.note(reply)
        return reply

    return asked


def _is_async(call: Callable[..., object]) -> bool:
    inner = getattr(call, "__call__", None)  # noqa: B004 - of an object that is called
    return any(map(inspect.iscoroutinefunction, (inspect.unwrap(call), inner)))


# --- the messages among the arguments ---


class Given(NamedTuple):
    """The arguments of a call, and the messages among them."""

    args: tuple[Any, ...]
    named: Mapping[str, Any]
    at: str | int  # their name, or their place
    messages: Messages

    def called(self, call: Callable[..., R], held: Messages) -> R:
        """What the function gives for other messages."""
        if isinstance(self.at, str):
            return call(*self.args, **{**self.named, self.at: held})
        return call(*self.args[: self.at], held, *self.args[self.at + 1 :], **self.named)


class _Finder:
    """Finds the messages of a call."""

    def __init__(self, call: Callable[..., object], names: Sequence[str]) -> None:
        self._names = names
        self._place = 0  # where the messages stand among arguments without names
        with suppress(TypeError, ValueError):  # of a builtin nothing is known
            known = list(inspect.signature(call).parameters)
            self._place = next((known.index(name) for name in names if name in known), 0)

    def __call__(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Given | None:
        """The messages; None for what is no list of them, which goes through as it is."""
        at: str | int | None = next((name for name in self._names if name in named), None)
        if at is None:
            if len(args) <= self._place:
                told = " or ".join(self._names)
                raise BadInput(f"no messages were given: neither by place nor as {told}")
            at = self._place
        held = named[at] if isinstance(at, str) else args[at]
        if not isinstance(held, list | tuple):
            return None
        items = cast("Sequence[Any]", held)
        messages = cast("Messages", held) if isinstance(held, list) else list(items)
        if not all(isinstance(one, Mapping) or is_sdk_object(one) for one in messages):
            return None
        return Given(args, named, at, messages)


def _beside(given: Given) -> tuple[str, tuple[Declared, ...]]:
    """The system prompt and the tools that a request holds beside its messages, as far as known."""
    config = given.named.get("config")  # where Gemini's client has both
    inside: Mapping[str, Any] = {}
    if config is not None:
        inside = cast("Mapping[str, Any]", config if isinstance(config, Mapping) else vars(config))
    names = ("system", "instructions", "system_instruction")
    told = [held.get(name) for held in (given.named, inside) for name in names]
    system = next((held for held in told if held), "")
    tools = given.named.get("tools") or inside.get("tools")
    return _text(system), _tools(tools)


def _text(system: object) -> str:
    if isinstance(system, str):
        return system
    with suppress(BadInput):  # a client's word for "not given" is no text
        return encode(plain(system)).decode()
    return ""


def _tools(tools: object) -> tuple[Declared, ...]:
    """The tools that can be counted: no functions, nothing that can be looked through only once."""
    if not isinstance(tools, list | tuple):
        return ()
    found: list[Declared] = []
    for tool in cast("Iterable[object]", tools):
        with suppress(BadInput):
            found += declared([tool])
    return tuple(found)


# --- what is shown ---


class _ListViews:
    """Fits each list by itself."""

    def __init__(self, window: int | None, model: str, wire: str | None) -> None:
        self._window = window or model_limits(model).context
        self._model = model
        self._wire = wire

    async def in_thread(self, call: Callable[[], Messages]) -> Messages:
        return await uncut(call)

    def first(self, given: Given) -> Messages:
        return self._fit(given, self._window)

    def note(self, reply: object) -> None:
        """Nothing: the next list is fitted by itself."""

    def _fit(self, given: Given, window: int) -> Messages:
        system, tools = _beside(given)
        named = (given.named.get(name) for name in _OUTPUTS)
        output = next((held for held in named if type(held) is int), 0)
        usual = min(window // 4, 32_000)  # also leaves room for what estimates miss
        return fit(
            given.messages,
            window,
            model=self._model,
            output=output if usual < output < window else None,
            wire=self._wire or _argument_wire(given),
            system=system,
            tools=tools,
        )

    def shorter(self, given: Given, refused: Messages, error: Exception) -> Messages:
        """Messages for the window that the refusal tells of; the error, where none are shorter."""
        if not is_context_overflow(error):
            raise error
        stated = stated_window(error)
        try:
            if stated and stated < self._window:
                self._window = stated  # it holds from now on
                held = self._fit(given, stated)
                if list_length(held) < list_length(refused):
                    return held
            room = self._tokens(given, refused) * _SHORTER
            held = self._fit(given, int(room + min(room / 3, 32_000)) + 1)
        except FoldmarkError as stopped:
            raise error from stopped
        if list_length(held) >= list_length(refused):
            raise error
        return held

    def _tokens(self, given: Given, messages: Messages) -> int:
        wire = self._wire or _argument_wire(given)
        system, tools = _beside(given)
        fixed = declared_tokens(system, tools, counter("classes"))
        return fixed + list_tokens(messages, wire_named(wire) if wire else wire_of(messages))


def list_length(messages: Messages) -> int:
    """How long a list is, in characters of its JSON."""
    return len(encode(plain(messages)))


def _argument_wire(given: Given) -> str | None:
    return _ARGUMENTS.get(given.at) if isinstance(given.at, str) else None


class _SessionViews:
    """Follows the lists with a session."""

    def __init__(self, session: Session, wire: str | None) -> None:
        self._session = session
        self._wire = wire
        self._mirror: tuple[str, HistoryMirror[Any]] | None = None

    async def in_thread(self, call: Callable[[], Messages]) -> Messages:
        return await aborting(self._session, call)

    def first(self, given: Given) -> Messages:
        mirror = self._ready(given)
        mirror.take(given.messages)
        return mirror.view()

    def shorter(self, given: Given, _refused: Messages, error: Exception) -> Messages:
        mirror = self._ready(given)
        if not mirror.can_shrink(error):
            raise error
        return mirror.shrunk(error)

    def note(self, reply: object) -> None:
        if self._mirror is not None:
            self._mirror[1].measured = _measured(reply)

    def _ready(self, given: Given) -> HistoryMirror[Any]:
        """What follows, made once a wire is known."""
        system, tools = _beside(given)
        if system or tools:
            count = counter(self._session.policy.estimate)
            self._session.fixed = declared_tokens(system, tools, count)
        wire = self._wire or _argument_wire(given)
        if wire is None:
            can_be = [found.name for found in wires_of(given.messages)]
            known = self._mirror[0] if self._mirror else can_be[0]
            if known not in can_be:
                raise BadInput(
                    f"the messages are of {can_be[0]}, which could not be told before; "
                    f"give wire={can_be[0]!r}"
                )
            wire = known
        if self._mirror is None:
            self._mirror = wire, HistoryMirror(self._session, WireDialect(wire))
        return self._mirror[1]


class WireDialect:
    """Reads and writes messages of one wire."""

    unique = False

    def __init__(self, wire: str) -> None:
        """Take the wire's name."""
        self._codec = wire_named(wire)
        self.key = self._codec.key

    def read(self, message: object, /) -> Read:
        """What a message says."""
        return self._codec.read(plain_object(message))

    def write(self, shown: Sequence[PromptMessage], _original: object, /) -> list[Any]:
        """Messages that say this."""
        return list[Any](self._codec.write(tuple(shown), as_is=False))

    def prompt(self, message: object, /) -> object | None:
        """The message, where it is a system prompt."""
        return message if self.read(message).role == "system" else None


def _measured(reply: object) -> Tokens | None:
    """What a response says of its tokens; nothing, where it is none, or a stream."""
    with suppress(BadInput):
        info = decode_reply(reply).info
        return (info.tokens or None) if isinstance(info, AssistantInfo) else None
    return None
