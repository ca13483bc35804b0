"""Messages of Anthropic's API in files: lists, bodies of requests, lines of each.

Fact of this format: the system prompt stands beside the messages, as a text or in blocks.
"""

from functools import partial

from foldmark.wire.anthropic import Anthropic

from .evidence import MESSAGES, can_be
from .format import Format
from .listed import Lists, Shape
from .source import Head

_WIRE = Anthropic()


def _recognises(head: Head) -> bool:
    return can_be(head, _WIRE.name)


FORMAT = Format(
    name="anthropic",
    about="messages of Anthropic's Messages API",
    recognises=_recognises,
    importer=partial(Lists, shape=Shape(wire=_WIRE, field=MESSAGES, prompt="system")),
)
