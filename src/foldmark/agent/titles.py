"""Titles of sessions and of what the user says: by the model, else the first words."""

import asyncio

from foldmark.model.prompt_messages import Text, UserMessage
from foldmark.summary.prompting import prompt
from foldmark.summary.protocol import ModelReply, ModelRequest, Summarizer

TITLE = "title"  # the purpose of an ask
_LONGEST = 80  # characters
_SHOWN = 2_000  # characters of a request that a title is made of
_TOKENS = 60
_SECONDS = 20.0
_MARKS = "\"'`*_#«»<>-: \t\u201c\u201d\u2018\u2019\u2013\u2014"


async def title(model: Summarizer | None, words: str) -> tuple[str, float]:
    """A title, and the dollars that it cost; whatever goes wrong, the first words are one."""
    own = first_words(words)
    if model is None or not own:
        return own, 0.0
    asked = Text(text=f"The request:\n\n{words[:_SHOWN]}\n\nWrite its name, on one line.")
    ask = ModelRequest(
        messages=(UserMessage(content=(asked,)),),
        system=prompt("title"),
        most=_TOKENS,
        seconds=_SECONDS,
        purpose=TITLE,
    )
    try:
        outcome = await asyncio.wait_for(model.ask(ask, lambda _: None), _SECONDS)
    except Exception:  # noqa: BLE001 - a title is no reason to fail
        return own, 0.0
    if not isinstance(outcome, ModelReply):
        return own, 0.0
    return cleaned(outcome.text) or own, outcome.cost or 0.0


def cleaned(answer: str) -> str:
    """The title that a model wrote; nothing where what it wrote is none."""
    lines = [line for line in answer.splitlines() if line.strip()]
    if not lines or lines[0].lstrip().startswith("#"):
        return ""
    found = "".join(sign for sign in lines[0] if sign.isprintable()).strip(_MARKS).rstrip(".")
    return found if 0 < len(found) <= _LONGEST else ""


def first_words(text: str) -> str:
    """The beginning of a text, on one line, cut between words."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 8 * _LONGEST])
    line = " ".join(plain.split())
    if len(line) <= _LONGEST:
        return line
    head = line[: _LONGEST - 1]
    return f"{head.rsplit(' ', 1)[0] if ' ' in head else head}…"
