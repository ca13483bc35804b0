"""What programs that ask models through LiteLLM write of its answers."""

from typing import cast

from msgspec.structs import replace

from foldmark.messages import Cache, Tokens
from foldmark.values import Json
from foldmark.wire.model import as_number
from foldmark.wire.openai_chat import usage_tokens


def named_model(name: object) -> tuple[str, str]:
    """A provider and its model, of a name as `anthropic/claude-sonnet-4-5`."""
    if not isinstance(name, str):
        return "", ""
    provider, found, model = name.partition("/")
    return (provider, model) if found and provider and model else ("", name)


def measured(usage: object) -> Tokens | None:
    """What was measured; LiteLLM counts what was written to the cache among the prompt's tokens."""
    tokens = usage_tokens(usage)
    if tokens is None:
        return None
    written = as_number(cast("Json", usage).get("cache_creation_input_tokens"))
    if not written:
        return tokens
    cache = replace(tokens.cache or Cache(), write=written)
    return replace(tokens, input=max((tokens.input or 0) - written, 0), cache=cache)
