"""Keep the difference between a received message and the form we would write (canonical form).

Parsing loses details such as spacing or the order of blocks. If the canonical form of a message
differs from the original, the difference is stored with a checksum of the canonical form. While
the canonical form still has that checksum, the original is restored and written instead.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from foldmark.log.render import media
from foldmark.model.prompt_messages import RAW, Output, Result
from foldmark.model.values import Json

from .codec import RESULT, ReadResult, arguments_object, compact_json, without

_MIN_SHARED = 32  # characters from which on a text is referred to instead of stored again
_MAX_SEARCHED = 64  # texts searched for a piece: a long list has thousands


def difference_note(canonical: Any, original: Any, id_field: str = "") -> Json:
    """A note from which `restore` rebuilds the original, whatever the id; {} if none is needed."""
    if canonical == original:
        return {}
    canonical, original = _without_id(canonical, id_field), _without_id(original, id_field)
    texts = {text: number for number, text in enumerate(_texts(canonical))}
    return {RAW: [_checksum(canonical), _difference(original, canonical, texts)]}


def restore(canonical: Any, notes: Json, id_field: str = "") -> Any:
    """The original if the canonical form, except its id, is unchanged; else the canonical form."""
    if RAW not in notes:
        return canonical
    anonymous = _without_id(canonical, id_field)
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        checksum, difference = notes[RAW]
        if checksum == _checksum(anonymous):
            original = _apply_note(difference, anonymous)
            has_id = id_field and id_field in original
            return {**original, id_field: canonical[id_field]} if has_id else original
    return canonical


def _without_id(block: Any, id_field: str) -> Any:
    return {**block, id_field: ""} if id_field and id_field in block else block


def with_difference(
    result: ReadResult, write: Callable[[Result], Json], key: str, call: Json, id_field: str = ""
) -> ReadResult:
    """The result with a difference note, if its canonical form is not the original."""
    note = difference_note(write(prompt_result(result, key, call)), result.raw, id_field)
    return replace(result, rest=result.rest | note) if note else result


def prompt_result(result: ReadResult, key: str, call: Json) -> Result:
    """The result as a prompt block; `call` has the notes stored with its call."""
    notes = call | ({RESULT: result.rest} if result.rest else {})
    return Result(
        tool_call_id=result.call_id,
        tool_name=result.tool,
        output=Output(type="error-text" if result.is_error else "text", value=result.output),
        attachments=tuple(map(media, result.files)),
        provider_options={key: notes} if notes else None,
    )


def _checksum(canonical: object) -> str:
    text = compact_json(canonical, is_sorted=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _texts(canonical: object) -> list[str]:
    """The distinct long texts in a JSON value, whatever the order of its fields."""
    texts: dict[str, None] = {}
    stack = [canonical]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            if len(value) >= _MIN_SHARED:
                texts[value] = None
        elif isinstance(value, dict):
            fields = cast("Json", value)
            stack += [fields[name] for name in sorted(fields)]
        elif isinstance(value, list):
            stack += cast("list[object]", value)
    return list(texts)


def _difference(original: Any, canonical: Any, texts: Mapping[str, int]) -> list[Any]:
    """The difference of the original from the canonical form: its kind, then its data."""
    if canonical is None and not _texts(original):
        return ["value", original]
    if isinstance(original, str) and len(original) >= _MIN_SHARED:
        return _text_difference(original, texts)
    if isinstance(original, list | dict) and any(text[0] in "[{" for text in texts):
        text = compact_json(cast("object", original))
        if text in texts and msgspec.json.decode(text) == original:
            return ["parsed", texts[text]]
    if isinstance(original, list):
        return ["list", [_difference(item, None, texts) for item in cast("list[Any]", original)]]
    if isinstance(original, dict):
        old, fields = _object(canonical), cast("Json", original)
        changed = {
            name: _difference(item, old.get(name), texts)
            for name, item in fields.items()
            if name not in old or old[name] != item
        }
        return ["fields", changed, *(name for name in old if name not in fields)]
    return ["value", original]


def _text_difference(original: str, texts: Mapping[str, int]) -> list[Any]:
    if original in texts:
        return ["piece", texts[original], 0, len(original)]
    if (value := arguments_object(original)) is not None:
        text = compact_json(value)
        if text in texts and _spaced(text) == original:
            return ["spaced", texts[text]]
    for text, number in islice(texts.items(), _MAX_SEARCHED):
        if (start := text.find(original)) >= 0:
            return ["piece", number, start, start + len(original)]
    return ["value", original]


def _apply_note(difference: Any, canonical: Any) -> Any:
    try:
        return _rebuild(difference, canonical, ())
    except IndexError:  # few differences refer to texts, and listing them is slow
        return _rebuild(difference, canonical, _texts(canonical))


def _rebuild(difference: Any, canonical: Any, texts: Sequence[str]) -> Any:
    """The original, from a difference and the canonical form."""
    kind, value, *more = difference
    if kind == "value":
        return value
    if kind == "fields":
        old = _object(canonical)
        newer = {name: _rebuild(item, old.get(name), texts) for name, item in value.items()}
        return {**(without(old, *more) if more else old), **newer}
    if kind == "list":
        return [_rebuild(item, None, texts) for item in value]
    if kind == "piece":
        return texts[int(value)][slice(*more)]
    text = texts[int(value)]
    if kind == "parsed":
        return msgspec.json.decode(text)
    if kind == "spaced":
        return _spaced(text)
    raise ValueError(difference)


def _spaced(text: str) -> str:
    """The JSON string with spaces, as Python's json module writes it."""
    return json.dumps(json.loads(text), ensure_ascii=False)


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
