"""Messages of Anthropic's API in files: lists, bodies of requests, lines of each.

Fact of this format: the system prompt stands beside the messages, as a text or in blocks.
"""

from functools import partial

from foldmark.transcripts.api_lists import Lists, Shape
from foldmark.transcripts.detect import MESSAGES, can_be
from foldmark.transcripts.format import Format
from foldmark.transcripts.source import Head
from foldmark.wire.anthropic import Anthropic

_WIRE = Anthropic()


def _recognises(head: Head) -> bool:
    return can_be(head, _WIRE.name)


FORMAT = Format(
    name="anthropic",
    about="messages of Anthropic's Messages API",
    recognises=_recognises,
    importer=partial(Lists, shape=Shape(wire=_WIRE, field=MESSAGES, prompt="system")),
)
