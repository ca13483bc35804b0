"""Make items acceptable to the Responses API in a request without stored state.

The API refuses unknown fields, reasoning without its encrypted form or without the item after it,
the id of an item whose reasoning is missing, an id used twice, and results without a call. What
must be dropped is replaced by its readable text.
"""

from collections.abc import Sequence
from typing import Any

from foldmark.model.values import Json

from .codec import NOTHING_TO_READ, url_parts, without
from .openai_items import CUSTOM, ROLES, TEXT_BLOCKS, is_result, read_result

_MAX_ID = 64
# Required prefixes of item ids.
_PREFIXES = {"message": "msg", "function_call": "fc", CUSTOM: "ctc"}
_CALL_FIELDS = ("call_id", "name", "arguments", "input", "namespace", "caller", "async")
_STATES = ("in_progress", "completed", "incomplete")
_PHASES = ("commentary", "final_answer")
# Items with a call id that may omit their own id.
_ID_OPTIONAL = ("shell_call", "apply_patch_call", "tool_search_call")
_NOT_SENT = ("ghost_snapshot",)  # written by Codex, never sent
_PRIVATE_PREFIX = "internal_"  # fields that only OpenAI's programs may send
_CACHE_FIELDS = ("prompt_cache_breakpoint",)
_PORTABLE_OUTPUTS = ("function_call_output", "custom_tool_call_output")


class RequestItems:
    """Makes the items of consecutive messages acceptable to the API."""

    def __init__(self) -> None:
        """Start without items."""
        self._used_ids: set[str] = set()
        self._calls: set[str] = set()  # calls of the provider's tools, sent unchanged
        self._has_references = False  # whether items that the provider stores were referred to

    def fit(self, items: Sequence[Json], role: str) -> list[Json]:
        """The items of one message of this role as the API accepts them."""
        if role == "tool":
            self._calls -= {str(item.get("call_id")) for item in items}
            return [_result_item(item) for item in items]
        fitted = self._assistant_items(items) if role == "assistant" else self._user_items(items)
        return fitted or [_message_item(role, NOTHING_TO_READ)]

    def _user_items(self, items: Sequence[Json]) -> list[Json]:
        fitted: list[Json] = []
        for item in items:
            if _kind(item) != "message":
                fitted += self._opaque_item(item, "user", is_linked=True)
            elif item["role"] not in ROLES:
                fitted.append(item)
            elif content := _content(item["content"]):
                fitted.append({"type": "message", "role": item["role"], "content": content})
        return fitted

    def _assistant_items(self, items: Sequence[Json]) -> list[Json]:
        """The items of a reply; those after dropped reasoning lose their ids."""
        fitted: list[Json] = []
        is_linked = True
        for item in items:
            match _kind(item):
                case "reasoning":
                    reasoning = self._reasoning(item)
                    is_linked = bool(reasoning) and "id" in reasoning[0]
                    fitted += reasoning
                case "message" if item.get("role") == "assistant":
                    fitted += self._message(item, is_linked=is_linked)
                case "function_call" | "custom_tool_call" if "name" in item:
                    fitted.append(self._call(item, is_linked=is_linked))
                case _:
                    fitted += self._opaque_item(item, "assistant", is_linked=is_linked)
        while fitted and fitted[-1].get("type") == "reasoning":
            fitted.pop()
        return fitted

    def _reasoning(self, item: Json) -> list[Json]:
        if not item.get("encrypted_content") or not self._is_new(item.get("id")):
            return []
        fields = {
            name: item[name]
            # The id unchanged: the encrypted content is bound to it.
            for name in ("type", "id", "summary", "content", "encrypted_content")
            if item.get(name) is not None
        }
        return [fields]

    def _message(self, item: Json, *, is_linked: bool) -> list[Json]:
        blocks = [output for block in item["content"] if (output := _output_block(block))]
        if not blocks:
            return []
        message: Json = {"type": "message", "role": "assistant"}
        if item.get("phase") in _PHASES:
            message["phase"] = item["phase"]
        id_field = self._id(item, "message") if is_linked else {}
        if not id_field:
            # Without an id, only the short form of a message is accepted.
            values = [block.get("text") or block.get("refusal") for block in blocks]
            texts = [text for text in values if isinstance(text, str)]
            return [{**message, "content": "\n\n".join(texts)}]
        status = item.get("status")
        message["status"] = status if status in _STATES else "completed"
        return [{**message, **id_field, "content": blocks}]

    def _call(self, item: Json, *, is_linked: bool) -> Json:
        kind = item["type"]
        call: Json = {"type": kind, **(self._id(item, kind) if is_linked else {})}
        call |= {name: item[name] for name in _CALL_FIELDS if item.get(name) is not None}
        if kind != CUSTOM and item.get("status") in _STATES:
            call["status"] = item["status"]
        return call

    def _opaque_item(self, item: Json, role: str, *, is_linked: bool) -> list[Json]:
        """An item unchanged, or the text of a result without a call."""
        kind, call_id = _kind(item), item.get("call_id")
        if kind in _NOT_SENT:
            return []
        if is_result(item):
            return self._orphan_result(item, role)
        is_new = self._is_new(item.get("id"))
        if isinstance(call_id, str):
            self._calls.add(call_id)
            loses_id = kind in _ID_OPTIONAL and not (is_linked and is_new)
            return [without(_public(item), "id") if loses_id else _public(item)]
        if not is_new or (not is_linked and kind.endswith("_call")):
            return []
        self._has_references = self._has_references or kind == "item_reference"
        return [{**_public(item), "type": kind}]

    def _orphan_result(self, item: Json, role: str) -> list[Json]:
        """A result whose call was sent unchanged or is stored; else its text."""
        if item["call_id"] in self._calls or self._has_references:
            self._calls.discard(item["call_id"])
            return [_public(item)]
        text = read_result(item).output
        return [_message_item(role, text)] if text.strip() else []

    def _id(self, item: Json, kind: str) -> Json:
        name = item.get("id")
        fits = (
            isinstance(name, str)
            and name.startswith(_PREFIXES[kind])
            and len(name) <= _MAX_ID
            and self._is_new(name)
        )
        return {"id": name} if fits else {}

    def _is_new(self, name: object) -> bool:
        """Whether an id was not used before; a missing id counts as new."""
        if not isinstance(name, str):
            return True
        if name in self._used_ids:
            return False
        self._used_ids.add(name)
        return True


def _message_item(role: str, text: str) -> Json:
    content: Any = text if role == "assistant" else [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


def _result_item(item: Json) -> Json:
    """The item for a result."""
    if item["type"] not in _PORTABLE_OUTPUTS:
        return _public(item)
    output = item["output"]
    if not isinstance(output, str):
        output = _content(output) or NOTHING_TO_READ
    return {"type": item["type"], "call_id": item["call_id"], "output": output}


def _kind(item: Json) -> str:
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def _public(item: Json) -> Json:
    return {name: value for name, value in item.items() if not name.startswith(_PRIVATE_PREFIX)}


def _content(blocks: list[Json]) -> list[Json]:
    """The acceptable blocks of a user message or of an output."""
    return [content for block in blocks if (content := _input_block(block))]


def _input_block(block: Json) -> Json | None:
    kind = str(block.get("type"))
    text = block.get("refusal" if kind == "refusal" else "text")
    if kind in TEXT_BLOCKS:
        has_text = isinstance(text, str) and text.strip()
        cache_fields = {name: block[name] for name in _CACHE_FIELDS if name in block}
        return {"type": "input_text", "text": text, **cache_fields} if has_text else None
    if kind not in ("input_image", "input_file", "computer_screenshot"):
        # Unknown blocks pass through; the API does not accept audio.
        return None if kind == "input_audio" else dict(block)
    address = block.get("image_url") or block.get("file_url") or block.get("file_data") or ""
    if block.get("file_id") is None and not str(address).startswith(("data:", "https:", "http:")):
        return _file_note(block) if kind in ("input_image", "input_file") else None
    if kind in ("input_image", "computer_screenshot"):
        return {**block, "type": "input_image", "detail": block.get("detail") or "auto"}
    return {**_default_filename(block), **block}


def _default_filename(block: Json) -> Json:
    """A filename for an inline file without one, since the API requires it."""
    if "file_data" not in block:
        return {}
    kind = url_parts(str(block["file_data"]))[0].rpartition("/")[2]
    return {"filename": f"file.{kind}" if kind.isalnum() else "file"}


def _output_block(block: Json) -> Json | None:
    """The acceptable block of an assistant message."""
    kind = str(block.get("type"))
    name = "refusal" if kind == "refusal" else "text"
    text = block.get(name)
    if kind in ("input_image", "input_file"):
        return {**_file_note(block), "type": "output_text", "annotations": []}
    if kind not in TEXT_BLOCKS:
        return None if kind == "input_audio" else dict(block)
    if not isinstance(text, str) or not text.strip():
        return None
    if kind == "refusal":
        return {"type": kind, name: text}
    annotations = block.get("annotations")
    is_list = isinstance(annotations, list)
    return {"type": "output_text", "text": text, "annotations": annotations if is_list else []}


def _file_note(block: Json) -> Json:
    name = block.get("filename") or ("an image" if block["type"] == "input_image" else "a file")
    return {"type": "input_text", "text": f"[A file that cannot be shown here: {name}]"}
