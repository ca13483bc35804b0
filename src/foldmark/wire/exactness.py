"""What came, kept as a difference to what would be written: so it is written back just as it was.

What we read of a message may not tell how it was written. There is one rule for that, on every
wire: where the message would be written otherwise, the difference is kept, with a mark of what
would be written. As long as that is still the same, what came goes back instead.
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

from .codec import RESULT, Answer, arguments_object, compact, without

_LEAST = 32  # characters of a text that is not kept a second time
_SEARCHED = 64  # texts in which pieces are looked for: a long list has thousands


def raw_unless(usual: Any, came: Any, named: str = "") -> Json:
    """The note that keeps what came; none where it is as usual. `named` is the field of its id."""
    if usual == came:
        return {}
    usual, came = _unnamed(usual, named), _unnamed(came, named)
    texts = {text: number for number, text in enumerate(_texts(usual))}
    return {RAW: [_mark(usual), _difference(came, usual, texts)]}


def as_it_came(usual: Any, own: Json, named: str = "") -> Any:
    """What came, if what is usual now is what it was then, but for its id; else the usual."""
    if RAW not in own:
        return usual
    unnamed = _unnamed(usual, named)
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        mark, difference = own[RAW]
        if mark == _mark(unnamed):
            came = _reapplied(difference, unnamed)
            return {**came, named: usual[named]} if named and named in came else came
    return usual


def _unnamed(block: Any, named: str) -> Any:
    return {**block, named: ""} if named and named in block else block


def exact(
    answer: Answer, write: Callable[[Result], Json], key: str, of_call: Json, named: str = ""
) -> Answer:
    """A result with the note that it needs to be written back, if it needs any."""
    note = raw_unless(write(as_result(answer, key, of_call)), answer.raw, named)
    return replace(answer, rest=answer.rest | note) if note else answer


def as_result(answer: Answer, key: str, of_call: Json) -> Result:
    """A result as it is shown; `of_call` is what is kept of its call."""
    own = of_call | ({RESULT: answer.rest} if answer.rest else {})
    return Result(
        tool_call_id=answer.call_id,
        tool_name=answer.tool,
        output=Output(type="error-text" if answer.is_error else "text", value=answer.output),
        attachments=tuple(map(media, answer.files)),
        provider_options={key: own} if own else None,
    )


def _mark(usual: object) -> str:
    text = compact(usual, is_sorted=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _texts(usual: object) -> list[str]:
    """The texts in JSON that are long enough, each once; the order of fields does not matter."""
    found: dict[str, None] = {}
    waiting = [usual]
    while waiting:
        held = waiting.pop()
        if isinstance(held, str):
            if len(held) >= _LEAST:
                found[held] = None
        elif isinstance(held, dict):
            fields = cast("Json", held)
            waiting += [fields[name] for name in sorted(fields)]
        elif isinstance(held, list):
            waiting += cast("list[object]", held)
    return list(found)


def _difference(came: Any, usual: Any, texts: Mapping[str, int]) -> list[Any]:
    """What came, without what the usual says, too: a kind of difference, and what it is."""
    if usual is None and not _texts(came):
        return ["value", came]
    if isinstance(came, str) and len(came) >= _LEAST:
        return _text_difference(came, texts)
    if isinstance(came, list | dict) and any(text[0] in "[{" for text in texts):
        text = compact(cast("object", came))
        if text in texts and msgspec.json.decode(text) == came:
            return ["parsed", texts[text]]
    if isinstance(came, list):
        return ["list", [_difference(held, None, texts) for held in cast("list[Any]", came)]]
    if isinstance(came, dict):
        old, fields = _object(usual), cast("Json", came)
        changed = {
            name: _difference(held, old.get(name), texts)
            for name, held in fields.items()
            if name not in old or old[name] != held
        }
        return ["fields", changed, *(name for name in old if name not in fields)]
    return ["value", came]


def _text_difference(came: str, texts: Mapping[str, int]) -> list[Any]:
    if came in texts:
        return ["piece", texts[came], 0, len(came)]
    if (read := arguments_object(came)) is not None:
        text = compact(read)
        if text in texts and _spaced(text) == came:
            return ["spaced", texts[text]]
    for text, number in islice(texts.items(), _SEARCHED):
        if (start := text.find(came)) >= 0:
            return ["piece", number, start, start + len(came)]
    return ["value", came]


def _reapplied(difference: Any, usual: Any) -> Any:
    try:
        return _applied(difference, usual, ())
    except IndexError:  # few differences refer to a text, and to list them takes long
        return _applied(difference, usual, _texts(usual))


def _applied(difference: Any, usual: Any, texts: Sequence[str]) -> Any:
    """What came, of a difference and the usual."""
    kind, value, *more = difference
    if kind == "value":
        return value
    if kind == "fields":
        old = _object(usual)
        newer = {name: _applied(held, old.get(name), texts) for name, held in value.items()}
        return {**(without(old, *more) if more else old), **newer}
    if kind == "list":
        return [_applied(held, None, texts) for held in value]
    if kind == "piece":
        return texts[int(value)][slice(*more)]
    text = texts[int(value)]
    if kind == "parsed":
        return msgspec.json.decode(text)
    if kind == "spaced":
        return _spaced(text)
    raise ValueError(difference)


def _spaced(text: str) -> str:
    """The JSON of a text with spaces, as Python's own encoder writes it."""
    return json.dumps(json.loads(text), ensure_ascii=False)


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
