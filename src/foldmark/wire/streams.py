"""A streamed answer, put together: the response that its API would have given without streaming.

Chunks are an SDK's objects or their JSON; their wire is recognised by the first that tells it. What
an SDK adds of its own between them is passed over. Nothing is sent or awaited here: who listens
to a stream gives what comes, and asks at any moment what was said so far.
"""

from collections.abc import Callable
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.values import Frozen, Json

from .codec import WIRES, options, wire_named
from .joiners import EVENTS, AnthropicJoiner, ChatJoiner, GeminiJoiner, Joiner, ResponsesJoiner
from .plain import plain_object

_JOINERS: dict[str, Callable[[], Joiner]] = {
    "openai-chat": ChatJoiner,
    "openai-responses": ResponsesJoiner,
    "anthropic": AnthropicJoiner,
    "gemini": GeminiJoiner,
}
_GEMINI = ("candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata")
_TOLD = 300  # characters of a provider's error
# What the SDKs' own helpers tell beside the API's events, with all that was said so far in each.
_ADDED = frozenset({"text", "thinking", "signature", "citation", "input_json", "compaction"})


class Streamed(Frozen):
    """What a stream said."""

    wire: str
    response: Json
    ended: bool  # else it broke off
    failure: str = ""  # what its provider said went wrong


class Stream:
    """Takes the chunks of one answer as they come."""

    def __init__(self, wire: str | None = None) -> None:
        """Take the name of the wire, if it is known."""
        self.wire = None if wire is None else wire_named(wire).name
        self._joiner = None if self.wire is None else _JOINERS[self.wire]()
        self._count = 0  # of chunks that tell no wire
        self._failure = ""  # what a chunk says that is an error

    def take(self, chunk: object) -> None:
        """The next chunk, an SDK's object or its JSON; BadInput where it is neither."""
        if getattr(chunk, "type", None) in _ADDED:
            self._count += self._joiner is None
            return
        if getattr(chunk, "type", None) == "chunk":  # as OpenAI's helper wraps them
            chunk = getattr(chunk, "chunk", chunk)
        given = plain_object(chunk)
        if failure := _failure(given):
            self._failure = failure
            if chunk_wire(given) is None:  # it may be all that comes, on any wire
                return
        if self._joiner is None:
            self.wire = chunk_wire(given)
            if self.wire is None:
                self._count += given.get("type") != "ping"
                return
            self._joiner = _JOINERS[self.wire]()
        self._joiner.take(given)

    def streamed(self) -> Streamed | None:
        """What was said so far; None where that is nothing, but perhaps an error."""
        if self._joiner is None or self.wire is None:
            if self._count:
                raise BadInput(_no_wire(self._failure))
            return None
        response = self._joiner.response()
        if response is None:
            return None
        ended = self._joiner.ended
        return Streamed(wire=self.wire, response=response, ended=ended, failure=self._failure)


def chunk_wire(chunk: Json) -> str | None:
    """The wire that a chunk is of; None where it does not tell."""
    kind = chunk.get("type")
    if isinstance(kind, str) and kind.startswith("response."):
        return "openai-responses"
    if kind in EVENTS:
        return "anthropic"
    if chunk.get("object") == "chat.completion.chunk" or isinstance(chunk.get("choices"), list):
        return "openai-chat"
    return "gemini" if any(name in chunk for name in _GEMINI) else None


def _failure(chunk: Json) -> str:
    """What a provider says went wrong, in the forms that all wires have; empty where nothing."""
    told = chunk.get("error")
    if chunk.get("type") == "response.failed":
        told = options(chunk, "response").get("error") or chunk["type"]
    if chunk.get("type") != "error" and not told:
        return ""
    if isinstance(told, str) and told:
        return told
    found = cast("Json", told) if isinstance(told, dict) else chunk
    return str(found.get("message") or found.get("code") or "an error")


def _no_wire(failure: str) -> str:
    told = f"; its provider says: {failure[:_TOLD]}" if failure else ""
    return f"this stream is of no wire that is known ({', '.join(WIRES)}); give wire=…{told}"
