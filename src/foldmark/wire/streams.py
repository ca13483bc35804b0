"""Join a streamed reply into the response that its API would have given without streaming.

Chunks are SDK objects or their JSON; the API format is recognized by the first distinctive chunk.
Events that SDKs add are ignored. Nothing is sent or awaited here: the caller adds chunks as they
arrive and may ask for the result so far at any time.
"""

from collections.abc import Callable
from typing import cast

from foldmark.errors import BadInput
from foldmark.model.values import Frozen, Json

from .codec import WIRES, codec_named, subobject
from .joiners import EVENTS, AnthropicJoiner, ChatJoiner, GeminiJoiner, Joiner, ResponsesJoiner
from .plain import plain_object

_JOINERS: dict[str, Callable[[], Joiner]] = {
    "openai-chat": ChatJoiner,
    "openai-responses": ResponsesJoiner,
    "anthropic": AnthropicJoiner,
    "gemini": GeminiJoiner,
}
_GEMINI = ("candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata")
_MAX_ERROR_TEXT = 300  # characters of a provider's error that are quoted
# Events that SDK helpers add to the API's, each with all the text so far.
_SDK_EVENTS = frozenset({"text", "thinking", "signature", "citation", "input_json", "compaction"})


class StreamResult(Frozen):
    """The response of a stream, complete or cut short."""

    wire: str
    response: Json
    is_complete: bool  # else the stream broke off
    failure: str = ""  # the provider's error message


class Stream:
    """Collects the chunks of one reply as they arrive."""

    def __init__(self, wire: str | None = None) -> None:
        """Take the name of the API format, if it is known."""
        self.wire = None if wire is None else codec_named(wire).name
        self._joiner = None if self.wire is None else _JOINERS[self.wire]()
        self._count = 0  # of chunks without a recognized format
        self._failure = ""  # the error in a chunk

    def add(self, chunk: object) -> None:
        """Add a chunk: an SDK object or its JSON. Raises BadInput if it is neither."""
        if getattr(chunk, "type", None) in _SDK_EVENTS:
            self._count += self._joiner is None
            return
        if getattr(chunk, "type", None) == "chunk":  # the wrapper of OpenAI's helper
            chunk = getattr(chunk, "chunk", chunk)
        received = plain_object(chunk)
        if failure := _failure(received):
            self._failure = failure
            if chunk_wire(received) is None:  # an error may be the only chunk, in any format
                return
        if self._joiner is None:
            self.wire = chunk_wire(received)
            if self.wire is None:
                self._count += received.get("type") != "ping"
                return
            self._joiner = _JOINERS[self.wire]()
        self._joiner.add(received)

    def result(self) -> StreamResult | None:
        """The response so far; None if there is none, except perhaps an error."""
        if self._joiner is None or self.wire is None:
            if self._count:
                raise BadInput(_unknown_format(self._failure))
            return None
        response = self._joiner.response()
        if response is None:
            return None
        return StreamResult(
            wire=self.wire,
            response=response,
            is_complete=self._joiner.is_complete,
            failure=self._failure,
        )


def chunk_wire(chunk: Json) -> str | None:
    """The API format of a chunk; None if the chunk is not distinctive."""
    kind = chunk.get("type")
    if isinstance(kind, str) and kind.startswith("response."):
        return "openai-responses"
    if kind in EVENTS:
        return "anthropic"
    if chunk.get("object") == "chat.completion.chunk" or isinstance(chunk.get("choices"), list):
        return "openai-chat"
    return "gemini" if any(name in chunk for name in _GEMINI) else None


def _failure(chunk: Json) -> str:
    """The provider's error in a chunk, in the form of any API; "" if there is none."""
    error = chunk.get("error")
    if chunk.get("type") == "response.failed":
        error = subobject(chunk, "response").get("error") or chunk["type"]
    if chunk.get("type") != "error" and not error:
        return ""
    if isinstance(error, str) and error:
        return error
    details = cast("Json", error) if isinstance(error, dict) else chunk
    return str(details.get("message") or details.get("code") or "an error")


def _unknown_format(failure: str) -> str:
    cause = f"; the provider reports: {failure[:_MAX_ERROR_TEXT]}" if failure else ""
    return f"this stream has no known API format ({', '.join(WIRES)}); pass api=…{cause}"
