"""Items of the Responses API as the API takes them in a request that nothing is stored for.

It refuses fields that it does not know, thinking without its encrypted form or without the item
that it led to, the id of an item whose thinking is gone, an id a second time, and results of no
call. What must go leaves what can be read of it.
"""

from collections.abc import Sequence
from typing import Any

from foldmark.model.values import Json

from .codec import NOTHING_TO_READ, url_parts, without
from .openai_items import CUSTOM, ROLES, TEXT_BLOCKS, is_answer, read_answer

_LONGEST_ID = 64
# How the ids of items begin; others are refused.
_PREFIXES = {"message": "msg", "function_call": "fc", CUSTOM: "ctc"}
_CALL_FIELDS = ("call_id", "name", "arguments", "input", "namespace", "caller", "async")
_STATES = ("in_progress", "completed", "incomplete")
_PHASES = ("commentary", "final_answer")
# Items with a call's id that need none of their own.
_MAY_LOSE_ID = ("shell_call", "apply_patch_call", "tool_search_call")
_NOT_SENT = ("ghost_snapshot",)  # Codex's own, never sent
_PRIVATE = "internal_"  # fields that only OpenAI's own programs may send
_CACHED = ("prompt_cache_breakpoint",)
_OWN_OUTPUTS = ("function_call_output", "custom_tool_call_output")


class Request:
    """Makes items fit, one message's after the other's."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ids: set[str] = set()
        self._calls: set[str] = set()  # calls of the provider's own tools, kept whole
        self._refers = False  # whether items were named that the provider has stored

    def taken(self, items: Sequence[Json], role: str) -> list[Json]:
        """What may be sent of the items of one message; `role` is whose it is."""
        if role == "tool":
            self._calls -= {str(item.get("call_id")) for item in items}
            return [_output(item) for item in items]
        found = self._made(items) if role == "assistant" else self._said(items)
        return found or [_said_by(role, NOTHING_TO_READ)]

    def _said(self, items: Sequence[Json]) -> list[Json]:
        found: list[Json] = []
        for item in items:
            if _kind(item) != "message":
                found += self._whole(item, "user", linked=True)
            elif item["role"] not in ROLES:
                found.append(item)
            elif content := _content(item["content"]):
                found.append({"type": "message", "role": item["role"], "content": content})
        return found

    def _made(self, items: Sequence[Json]) -> list[Json]:
        """The items of an answer; those after thinking that is gone have lost their ids."""
        found: list[Json] = []
        linked = True
        for item in items:
            match _kind(item):
                case "reasoning":
                    thought = self._thought(item)
                    linked = bool(thought) and "id" in thought[0]
                    found += thought
                case "message" if item.get("role") == "assistant":
                    found += self._message(item, linked=linked)
                case "function_call" | "custom_tool_call" if "name" in item:
                    found.append(self._call(item, linked=linked))
                case _:
                    found += self._whole(item, "assistant", linked=linked)
        while found and found[-1].get("type") == "reasoning":
            found.pop()
        return found

    def _thought(self, item: Json) -> list[Json]:
        if not item.get("encrypted_content") or not self._is_new(item.get("id")):
            return []
        fields = {
            name: item[name]
            # The id as it is: the encrypted content is bound to it.
            for name in ("type", "id", "summary", "content", "encrypted_content")
            if item.get(name) is not None
        }
        return [fields]

    def _message(self, item: Json, *, linked: bool) -> list[Json]:
        blocks = [found for block in item["content"] if (found := _spoken(block))]
        if not blocks:
            return []
        message: Json = {"type": "message", "role": "assistant"}
        if item.get("phase") in _PHASES:
            message["phase"] = item["phase"]
        named = self._id(item, "message") if linked else {}
        if not named:
            # Without an id it is taken only as the short form of a message.
            told = [block.get("text") or block.get("refusal") for block in blocks]
            texts = [text for text in told if isinstance(text, str)]
            return [{**message, "content": "\n\n".join(texts)}]
        status = item.get("status")
        message["status"] = status if status in _STATES else "completed"
        return [{**message, **named, "content": blocks}]

    def _call(self, item: Json, *, linked: bool) -> Json:
        kind = item["type"]
        call: Json = {"type": kind, **(self._id(item, kind) if linked else {})}
        call |= {name: item[name] for name in _CALL_FIELDS if item.get(name) is not None}
        if kind != CUSTOM and item.get("status") in _STATES:
            call["status"] = item["status"]
        return call

    def _whole(self, item: Json, role: str, *, linked: bool) -> list[Json]:
        """An item as it came, or what can be read of a result that has no call."""
        kind, call_id = _kind(item), item.get("call_id")
        if kind in _NOT_SENT:
            return []
        if is_answer(item):
            return self._answer(item, role)
        is_new = self._is_new(item.get("id"))
        if isinstance(call_id, str):
            self._calls.add(call_id)
            loses_id = kind in _MAY_LOSE_ID and not (linked and is_new)
            return [without(_public(item), "id") if loses_id else _public(item)]
        if not is_new or (not linked and kind.endswith("_call")):
            return []
        self._refers = self._refers or kind == "item_reference"
        return [{**_public(item), "type": kind}]

    def _answer(self, item: Json, role: str) -> list[Json]:
        """A result that stands alone: its call is kept whole, or stored, or there is none."""
        if item["call_id"] in self._calls or self._refers:
            self._calls.discard(item["call_id"])
            return [_public(item)]
        text = read_answer(item).output
        return [_said_by(role, text)] if text.strip() else []

    def _id(self, item: Json, kind: str) -> Json:
        name = item.get("id")
        fits = (
            isinstance(name, str)
            and name.startswith(_PREFIXES[kind])
            and len(name) <= _LONGEST_ID
            and self._is_new(name)
        )
        return {"id": name} if fits else {}

    def _is_new(self, name: object) -> bool:
        """Whether an id was not used before; no id is always new."""
        if not isinstance(name, str):
            return True
        if name in self._ids:
            return False
        self._ids.add(name)
        return True


def _said_by(role: str, text: str) -> Json:
    content: Any = text if role == "assistant" else [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


def _output(item: Json) -> Json:
    """A result."""
    if item["type"] not in _OWN_OUTPUTS:
        return _public(item)
    output = item["output"]
    if not isinstance(output, str):
        output = _content(output) or NOTHING_TO_READ
    return {"type": item["type"], "call_id": item["call_id"], "output": output}


def _kind(item: Json) -> str:
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def _public(item: Json) -> Json:
    return {name: held for name, held in item.items() if not name.startswith(_PRIVATE)}


def _content(blocks: list[Json]) -> list[Json]:
    """The blocks of a user's message, or of an output."""
    return [found for block in blocks if (found := _heard(block))]


def _heard(block: Json) -> Json | None:
    kind = str(block.get("type"))
    text = block.get("refusal" if kind == "refusal" else "text")
    if kind in TEXT_BLOCKS:
        is_said = isinstance(text, str) and text.strip()
        cached = {name: block[name] for name in _CACHED if name in block}
        return {"type": "input_text", "text": text, **cached} if is_said else None
    if kind not in ("input_image", "input_file", "computer_screenshot"):
        # What we do not know passes through; this the API has no place for.
        return None if kind == "input_audio" else dict(block)
    address = block.get("image_url") or block.get("file_url") or block.get("file_data") or ""
    if block.get("file_id") is None and not str(address).startswith(("data:", "https:", "http:")):
        return _note(block) if kind in ("input_image", "input_file") else None
    if kind in ("input_image", "computer_screenshot"):
        return {**block, "type": "input_image", "detail": block.get("detail") or "auto"}
    return {**_named(block), **block}


def _named(block: Json) -> Json:
    """A name for a file that is inline and has none: it is wanted there."""
    if "file_data" not in block:
        return {}
    kind = url_parts(str(block["file_data"]))[0].rpartition("/")[2]
    return {"filename": f"file.{kind}" if kind.isalnum() else "file"}


def _spoken(block: Json) -> Json | None:
    """A block of the model's own message."""
    kind = str(block.get("type"))
    name = "refusal" if kind == "refusal" else "text"
    text = block.get(name)
    if kind in ("input_image", "input_file"):
        return {**_note(block), "type": "output_text", "annotations": []}
    if kind not in TEXT_BLOCKS:
        return None if kind == "input_audio" else dict(block)
    if not isinstance(text, str) or not text.strip():
        return None
    if kind == "refusal":
        return {"type": kind, name: text}
    annotations = block.get("annotations")
    is_list = isinstance(annotations, list)
    return {"type": "output_text", "text": text, "annotations": annotations if is_list else []}


def _note(block: Json) -> Json:
    name = block.get("filename") or ("an image" if block["type"] == "input_image" else "a file")
    return {"type": "input_text", "text": f"[A file that cannot be shown here: {name}]"}
