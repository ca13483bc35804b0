"""Titles of sessions and requests: written by the model, or the first words as a fallback."""

import asyncio

from foldmark.model.prompt_messages import Text, UserMessage
from foldmark.summary.prompting import prompt
from foldmark.summary.protocol import ModelReply, ModelRequest, Summarizer

TITLE = "title"  # purpose of a model request
_MAX_LENGTH = 80  # characters
_SHOWN = 2_000  # characters of a request that the model sees
_TOKENS = 60
_SECONDS = 20.0
_MARKS = "\"'`*_#«»<>-: \t\u201c\u201d\u2018\u2019\u2013\u2014"


async def make_title(model: Summarizer | None, request: str) -> tuple[str, float]:
    """A title and its cost in dollars; after any failure, the first words for free."""
    fallback = first_words(request)
    if model is None or not fallback:
        return fallback, 0.0
    question = Text(text=f"The request:\n\n{request[:_SHOWN]}\n\nWrite its name, on one line.")
    model_request = ModelRequest(
        messages=(UserMessage(content=(question,)),),
        system=prompt("title"),
        max_tokens=_TOKENS,
        seconds=_SECONDS,
        purpose=TITLE,
    )
    try:
        outcome = await asyncio.wait_for(model.ask(model_request, lambda _: None), _SECONDS)
    except Exception:  # noqa: BLE001 - a missing title is no reason to fail
        return fallback, 0.0
    if not isinstance(outcome, ModelReply):
        return fallback, 0.0
    return clean_title(outcome.text) or fallback, outcome.cost or 0.0


def clean_title(reply: str) -> str:
    """The model's title, or "" if its reply is unusable."""
    lines = [line for line in reply.splitlines() if line.strip()]
    if not lines or lines[0].lstrip().startswith("#"):
        return ""
    found = "".join(sign for sign in lines[0] if sign.isprintable()).strip(_MARKS).rstrip(".")
    return found if 0 < len(found) <= _MAX_LENGTH else ""


def first_words(text: str) -> str:
    """The start of a text on one line, cut between words."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 8 * _MAX_LENGTH])
    line = " ".join(plain.split())
    if len(line) <= _MAX_LENGTH:
        return line
    head = line[: _MAX_LENGTH - 1]
    return f"{head.rsplit(' ', 1)[0] if ' ' in head else head}…"
