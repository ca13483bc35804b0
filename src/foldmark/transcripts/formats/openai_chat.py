"""OpenAI's chat messages in files: lists, bodies of requests, logs of LiteLLM, lines of each.

Fact of this format: many programs write it, so a file is one or many sessions; see `listed`.
"""

from functools import partial

from foldmark.transcripts.api_lists import Lists, Shape
from foldmark.transcripts.detect import MESSAGES, can_be
from foldmark.transcripts.format import Format
from foldmark.transcripts.source import Head
from foldmark.wire.openai_chat import OpenAIChat

WIRE = OpenAIChat()


def _recognises(head: Head) -> bool:
    return can_be(head, WIRE.name)


FORMAT = Format(
    name="openai-chat",
    about="messages of OpenAI's Chat Completions API",
    recognises=_recognises,
    importer=partial(Lists, shape=Shape(wire=WIRE, field=MESSAGES)),
)
