"""The parts of a chat message, read and written: texts, files, and calls.

What the codec keeps of a part lies one level down, under `fields` and `inner`: a vendor's field is
then never taken for one of our own notes. Messages, results and responses are in `openai_chat`.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from foldmark.model.messages import BLOCK, FilePart, Pending, TextPart, ToolPart
from foldmark.model.prompt_messages import Block, Call, Media, Result, Text
from foldmark.model.values import Json

from .codec import (
    ARGUMENTS,
    Names,
    arguments_input,
    arguments_object,
    compact,
    data_url,
    kept,
    object_at,
    opaque,
    options,
    text_at,
    url_parts,
    without,
)

KEY = "openai-chat"
FIELDS, INNER = "fields", "inner"  # what the wire says beside what we read, and inside of it
UNDER = "under"  # the fields in which a text stood that is no content
# A call of the kind that came before `tool_calls`: one to a message, and without an id.
OLD = "function_call"
_KIND = "kind"
_UNKNOWN = "unknown"  # a call whose input stands under its kind

FILES = ("image_url", "input_audio", "file")
# Thinking that can be read, by the fields that vendors have for it.
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
# What else of a message or call its own server wants back; other fields are none of a request.
_RETURNED = frozenset(
    {
        *THOUGHTS,
        *("name", "reasoning_details", "reasoning_opaque", "thinking_blocks"),
        *("extra_content", "provider_specific_fields"),
    }
)
# What may stand in a part of a request beside the part itself.
MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_AUDIO = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
# Ids of any letters are taken, and some servers want theirs back as they were: `functions.ls:0`.
_FITTING_ID = re.compile(r"[!-~]{1,40}")
_IDS, _TOOLS = Names(longest=40), Names(longest=64)


# --- reading -------------------------------------------------------------------------------


def read_part(block: Json) -> TextPart | FilePart:
    """One part of the content."""
    match block.get("type"):
        case "text":
            own = noted(without(block, "type", "text"))
            return TextPart(text=text_at(block, "text"), metadata=kept(KEY, own))
        case "image_url" | "input_audio" | "file" if (file := read_file(block)) is not None:
            return file
        case kind:
            said = block.get("refusal" if kind == "refusal" else "text")
            return opaque(KEY, block, said if isinstance(said, str) else "")


def noted(fields: Json, inner: Json | None = None) -> Json:
    """What is kept; nothing where there is nothing."""
    return {**({FIELDS: fields} if fields else {}), **({INNER: inner} if inner else {})}


def read_file(block: Json) -> FilePart | None:
    """A file that is inline or has an address; None where it is neither."""
    kind = str(block["type"])
    body = options(block, kind)
    name: Any = UNSET
    match kind, body:
        case "image_url", {"url": str(url)}:
            mime, inner = url_parts(url)[0] or "image/*", without(body, "url")
        case "input_audio", {"data": str(data), "format": str(form)}:
            mime, inner = _AUDIO.get(form, f"audio/{form}"), without(body, "data", "format")
            url = data_url(mime, data)
        case "file", {"file_data": str(url)} if url_parts(url)[1] is not None:
            mime, inner = url_parts(url)[0], without(body, "file_data")
            if isinstance(inner.get("filename"), str) and inner["filename"]:
                name = inner.pop("filename")
        case _:
            return None
    own = noted(without(block, "type", kind), inner)
    if kind != _usual_kind(mime):
        own[_KIND] = kind
    return FilePart(mime=mime, url=url, filename=name, metadata=kept(KEY, own))


def _usual_kind(mime: str) -> str:
    kinds = {"image": "image_url", "audio": "input_audio"}
    return kinds.get(mime.partition("/")[0], "file")


def read_call(call: Json) -> ToolPart:
    """A call: of a function, whose arguments are JSON, or of a tool that takes any text."""
    kind = call.get("type")
    if isinstance(kind, str) and kind not in ("function", "custom") and "function" not in call:
        return _unknown_call(call, kind)
    place, held = ("custom", "input") if kind == "custom" else ("function", "arguments")
    body = object_at(call, place)
    own = noted(without(call, "id", "type", place), without(body, "name", held))
    if kind != "function":
        own[_KIND] = kind
    name, call_id, given = text_at(body, "name"), text_at(call, "id"), text_at(body, held)
    if kind != "custom":
        return _called(name, call_id, given, own)
    state = Pending(input={"input": given})
    return ToolPart(tool=name, call_id=call_id, state=state, metadata={KEY: own})


def _unknown_call(call: Json, kind: str) -> ToolPart:
    """A call of a kind that we do not know: its input is all that stands under its kind."""
    body = options(call, kind)
    name = body.get("name")
    return ToolPart(
        tool=name if isinstance(name, str) and name else kind,
        call_id=text_at(call, "id"),
        state=Pending(input=body),
        metadata={KEY: {_KIND: kind, _UNKNOWN: True, **noted(without(call, "id", "type", kind))}},
    )


def read_old_call(call: Json) -> ToolPart:
    """A call of the old kind."""
    own: Json = {_KIND: OLD, **noted({}, without(call, "name", "arguments"))}
    name = text_at(call, "name")
    return _called(name, old_id(name), text_at(call, "arguments"), own)


def old_id(name: str) -> str:
    """Calls of the old kind have no ids: a result belongs to the last call of its function."""
    return f"function_{name}"


def _called(name: str, call_id: str, arguments: str, own: Json) -> ToolPart:
    given = arguments_input(arguments)
    if compact(given) != arguments:
        own[ARGUMENTS] = arguments
    state = Pending(input=given)
    return ToolPart(tool=name, call_id=call_id, state=state, metadata=kept(KEY, own))


# --- writing -------------------------------------------------------------------------------


def written_parts(said: Sequence[Text | Media], *, as_is: bool, files: bool) -> list[Json]:
    """Parts of a content; where files may not stand, a note of each."""
    written: list[Json] = []
    for held in said:
        own = options(held.provider_options, KEY)
        if isinstance(held, Media):
            is_sent = files and (as_is or _can_be_sent(held))
            written.append(written_file(held, as_is=as_is) if is_sent else _note(held))
        elif isinstance(own.get(BLOCK), dict) and not lone_result(held):
            written.append(dict(own[BLOCK]))
        elif as_is or held.text.strip():
            fields = {} if UNDER in own else returned(own, as_is=as_is, known=MARKS)
            written.append({"type": "text", "text": held.text, **fields})
    return written


def lone_result(block: Block) -> Json | None:
    """The message that a result without a call was, if it is one."""
    held = options(options(block.provider_options, KEY), BLOCK)
    return dict(held) if held.get("role") in ("tool", "function") else None


def returned(own: Json, *, as_is: bool, known: frozenset[str] = _RETURNED) -> Json:
    """The fields that go back: all, or those that a server knows."""
    fields = options(own, FIELDS)
    if as_is:
        return dict(fields)
    return {name: held for name, held in fields.items() if name in known and held is not None}


def _kind(media: Media) -> str:
    kind = options(media.provider_options, KEY).get(_KIND)
    return kind if isinstance(kind, str) else _usual_kind(media.media_type)


def _can_be_sent(media: Media) -> bool:
    mime, data = url_parts(media.data)
    match _kind(media):
        case "image_url" if data is None:
            return media.data.startswith(("https://", "http://"))
        case "image_url":
            return not mime.startswith("image/svg")
        case "input_audio":
            return data is not None and mime in _FORMATS
        case _:
            return data is not None


def _note(media: Media) -> Json:
    is_inline = media.data.startswith("data:")
    name = media.filename or (media.media_type if is_inline else media.data)
    return {"type": "text", "text": f"[A file that cannot be shown here: {name}]"}


def written_file(media: Media, *, as_is: bool) -> Json:
    """A file as a part of the content."""
    kind = _kind(media)
    mime, data = url_parts(media.data)
    if kind == "image_url":
        body: Json = {"url": media.data}
    elif kind == "input_audio" and data is not None:
        body = {"data": data, "format": _FORMATS.get(mime, mime.removeprefix("audio/"))}
    else:
        kind, body = "file", {"file_data": media.data}
        if media.filename or not as_is:
            body["filename"] = media.filename or "file"  # one that is inline must have a name
    own = options(media.provider_options, KEY)
    fields = returned(own, as_is=as_is, known=MARKS)
    return {"type": kind, kind: {**body, **options(own, INNER)}, **fields}


def written_calls(calls: Sequence[Call], *, as_is: bool) -> Json:
    """The fields of a message that hold its calls."""
    written = [_written_call(call, as_is=as_is) for call in calls]
    old = [place for place, call in enumerate(calls) if as_is and is_old(call)]
    fields: Json = {}
    if len(old) == 1:
        fields[OLD] = written.pop(old[0])["function"]
    if written:
        fields["tool_calls"] = written
    return fields


def is_old(block: Call | Result) -> bool:
    """Whether it is of the old kind."""
    return options(block.provider_options, KEY).get(_KIND) == OLD


def _written_call(call: Call, *, as_is: bool) -> Json:
    own = options(call.provider_options, KEY)
    kind, inner = own.get(_KIND, "function"), options(own, INNER)
    name, call_id = call.tool_name, call.tool_call_id
    if not as_is:
        name, call_id, inner = _TOOLS.tool(name), fitting_id(call_id), {}
        kind = kind if isinstance(kind, str) and kind != OLD else "function"
    text = call.input.get("input")
    if kind == "custom" and not isinstance(text, str):
        kind = "function"  # what was changed no longer is one text
    written: Json = {"id": call_id, "type": kind, **returned(own, as_is=as_is)}
    if kind is None:
        del written["type"]  # it was absent
    if kind == "custom":
        return {**written, "custom": {"name": name, "input": text, **inner}}
    if isinstance(kind, str) and own.get(_UNKNOWN) is True:
        return {**written, kind: call.input}
    arguments = _arguments(call, own, as_is=as_is)
    return {**written, "function": {"name": name, "arguments": arguments, **inner}}


def _arguments(call: Call, own: Json, *, as_is: bool) -> str:
    """As they came, if they still say the same; servers refuse what is no object in JSON."""
    raw = own.get(ARGUMENTS)
    said = arguments_input if as_is else arguments_object
    if isinstance(raw, str) and said(raw) == call.input:
        return raw
    return compact(call.input)


def fitting_id(call_id: str) -> str:
    """An id that is taken."""
    return call_id if _FITTING_ID.fullmatch(call_id) else _IDS.call_id(call_id)
