"""Whether a model's answer can be a summary: what is wrong with it, in words that it can act on."""

from collections.abc import Sequence

from foldmark.model.values import Frozen
from foldmark.tokens.counters import Counter

from .protocol import ModelReply

# An answer that is hardly too long is taken: asking again would cost more than it saves.
SLACK = 1.1


class Demand(Frozen):
    """What is asked of an answer."""

    most: int  # tokens
    sections: Sequence[str] = ()


def flaw(answer: ModelReply, demand: Demand, count: Counter) -> str | None:
    """What is wrong with an answer; None where it is good."""
    text = answer.text.strip()
    if answer.calls or answer.finish == "tool-calls":
        return "it calls tools, and there are none."
    if not text:
        return "it is empty."
    if answer.finish == "length":
        return "it was cut off before its end; write less."
    if (wrong := _shape_flaw(text, demand.sections)) is not None:
        return wrong
    tokens = count(text)
    if tokens > demand.most * SLACK:
        return f"it has {tokens} tokens, and {demand.most} is the most; write less."
    return None


def _shape_flaw(text: str, sections: Sequence[str]) -> str | None:
    lines = [line.strip(" \t#*:").lower() for line in text.splitlines() if line.strip()]
    missing = [name for name in sections if name.lower() not in lines]
    if missing:
        return f"it lacks the headings {', '.join(missing)}."
    # "none" under every heading is an empty answer with headings.
    nothing = {"", "none", *(name.lower() for name in sections)}
    if sections and all(line.strip("-. ") in nothing for line in lines):
        return "it has headings and nothing under them."
    return None
