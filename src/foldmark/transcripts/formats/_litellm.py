"""What programs that ask models through LiteLLM, and runs on benchmarks, have in common."""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.model.messages import Cache, Number, Origin, SessionInfo, TextPart, Tokens
from foldmark.model.values import Extra, Json
from foldmark.wire.codec import options
from foldmark.wire.openai_chat import OpenAIChat

_FACTS = ("exit_status", "model_stats")  # small; what was handed in is an output already
_wire = OpenAIChat()


def response_tokens(response: Json) -> Tokens | None:
    """What LiteLLM tells that a response took."""
    usage = options(response, "usage")
    if not usage:
        return None
    prompt, answer = (options(usage, f"{name}_tokens_details") for name in ("prompt", "completion"))
    read, write = _number(prompt, "cached_tokens"), _number(usage, "cache_creation_input_tokens")
    tokens = counted_tokens(usage, read, write)
    total, thought = _number(usage, "total_tokens"), _number(answer, "reasoning_tokens")
    return replace(tokens, total=total or tokens.total, reasoning=thought)


def counted_tokens(usage: Json, read: Number, write: Number) -> Tokens:
    """Our count; the prompt's tokens include what the cache gave or took."""
    given, made = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
    return Tokens(
        input=max(given - read - write, 0),
        output=made,
        reasoning=0,
        total=given + made,
        cache=Cache(read=read, write=write),
    )


def number_or_none(value: Any) -> Number | None:
    """A number; None where the value is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(held: Json, name: str) -> Number:
    return number_or_none(held.get(name)) or 0


# --- runs ----------------------------------------------------------------------------------


def leading_prompts(messages: Iterable[Json]) -> list[str]:
    """The system prompts that lead a run."""
    prompts: list[str] = []
    for message in messages:
        if message.get("role") != "system":
            break
        parts = _wire.read({"role": "system", "content": message.get("content")}).parts
        prompts.append("\n".join(part.text for part in parts if isinstance(part, TextPart)))
    return prompts


def run_info(
    session: str, *, prompts: list[str], version: object, directory: object = None
) -> SessionInfo:
    """What is said of a run, which is known by its task."""
    return SessionInfo(
        id=session,
        title=session or UNSET,
        version=_text(version),
        directory=_text(directory),
        origin=Origin(system="\n\n".join(prompts)) if prompts else UNSET,
    )


def run_facts(name: str, about: Json, facts: Iterable[str] = _FACTS) -> Extra | UnsetType:
    """How a run ended and what it cost, under the name of its format."""
    found = {fact: about[fact] for fact in facts if about.get(fact) is not None}
    return Extra({name: found}) if found else UNSET


def _text(value: object) -> str | UnsetType:
    return value if isinstance(value, str) and value else UNSET
