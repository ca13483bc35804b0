"""OpenAI's Responses API, streamed: the last event has the whole, those before it what has come.

Facts of this stream: items are named by their place in the output, texts within them by theirs in
the item; each item is told whole when it is done. Some servers leave the output of the last event
empty: then the items that were done are the answer.
"""

from typing import Any, cast

from foldmark.model.values import Json

from .codec import options

_LAST = ("response.completed", "response.incomplete", "response.failed")
_WHOLE = ("response.completed", "response.incomplete")
# Events with a piece of a text: where in its item the piece belongs, and as what.
_PIECES = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}


class ResponsesStream:
    """Takes events as they come."""

    def __init__(self) -> None:
        """Begin with none."""
        self.failure = ""
        self._last = ""
        self._head: Json = {}
        self._items: dict[int, _Item] = {}

    @property
    def ended(self) -> bool:
        """Whether the model came to its end."""
        return self._last in _WHOLE

    def take(self, chunk: Json) -> None:
        """The next event; one that tells nothing of the answer is passed over."""
        kind, place = str(chunk.get("type")), chunk.get("output_index")
        if isinstance(chunk.get("response"), dict):
            self._head = cast("Json", chunk["response"])
            if kind in _LAST:
                self._last = kind
            if kind == "response.failed":
                self.failure = _message(options(self._head, "error"))
        elif kind == "error":
            self.failure = _message(options(chunk, "error") or chunk)
        elif not isinstance(place, int):
            pass
        elif kind == "response.output_item.added":
            self._items[place] = _Item(options(chunk, "item"))
        elif kind == "response.output_item.done":
            self._items[place] = _Item(options(chunk, "item"), is_done=True)
        elif kind in _PIECES and place in self._items:
            self._items[place].add(chunk)

    def response(self) -> Json | None:
        """The whole response; before the end what was said, without calls that are not whole."""
        if self.ended and self._head.get("output"):
            return self._head
        found = (self._items[place].so_far() for place in sorted(self._items))
        items = [item for item in found if item is not None]
        if not self._head and not items:
            return None
        return {"object": "response", **self._head, "output": items}


def _message(error: Json) -> str:
    return str(error.get("message") or error.get("code") or "an error")


class _Item:
    """An item of the output, as far as it came."""

    def __init__(self, item: Json, *, is_done: bool = False) -> None:
        self._item = item
        self._is_done = is_done
        # By field and place in it: what the piece is, and its texts.
        self._texts: dict[tuple[str, int], tuple[str, str, list[str]]] = {}

    def add(self, chunk: Json) -> None:
        field, index, kind, name = _PIECES[chunk["type"]]
        at, delta = chunk.get(index), chunk.get("delta")
        if isinstance(at, int) and isinstance(delta, str):
            self._texts.setdefault((field, at), (kind, name, []))[2].append(delta)

    def so_far(self) -> Json | None:
        """The item; None where it is not whole and no words either."""
        if self._is_done:
            return self._item
        if self._item.get("type") not in ("message", "reasoning") or not self._texts:
            return None
        fields: dict[str, list[Any]] = {}
        for (field, _), (kind, name, pieces) in sorted(
            self._texts.items(), key=lambda held: held[0]
        ):
            block: Json = {"type": kind, name: "".join(pieces)}
            if kind == "output_text":
                block["annotations"] = []
            fields.setdefault(field, []).append(block)
        # The provider may not have kept what it did not finish: it goes back without an id.
        item = {name: held for name, held in self._item.items() if name != "id"}
        return {**item, "status": "incomplete", **fields}
