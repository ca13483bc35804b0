"""Items of OpenAI's Responses API in files: lists, bodies of requests, lines of each.

Facts of this format: several items are one answer; the system prompt stands beside them as
`instructions`.
"""

from functools import partial

from foldmark.transcripts.api_lists import Lists, Shape
from foldmark.transcripts.detect import ITEMS, can_be
from foldmark.transcripts.format import Format
from foldmark.transcripts.source import Head
from foldmark.wire.openai_responses import OpenAIResponses

_WIRE = OpenAIResponses()


def _recognises(head: Head) -> bool:
    return can_be(head, _WIRE.name)


FORMAT = Format(
    name="openai-responses",
    about="items of OpenAI's Responses API",
    recognises=_recognises,
    importer=partial(Lists, shape=Shape(wire=_WIRE, field=ITEMS, prompt="instructions")),
)
