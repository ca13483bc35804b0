"""What programs that ask models through LiteLLM write of its answers."""

from typing import Any

from msgspec import Struct

from foldmark.model.messages import Cache, Number, Tokens


class Details(Struct, gc=False):
    """Of which tokens a count is made."""

    cached_tokens: Number | None = 0
    reasoning_tokens: Number | None = 0


class Usage(Struct, gc=False):
    """What was measured."""

    prompt_tokens: Number | None = 0
    completion_tokens: Number | None = 0
    total_tokens: Number | None = 0
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    cache_creation_input_tokens: Number | None = 0
    cost: Number | None = None

    def tokens(self) -> Tokens:
        """Our count; the prompt's tokens include what the cache gave or took."""
        given, made = self.prompt_tokens or 0, self.completion_tokens or 0
        prompt, answer = self.prompt_tokens_details, self.completion_tokens_details
        read = (prompt.cached_tokens or 0) if prompt else 0
        write = self.cache_creation_input_tokens or 0
        return Tokens(
            input=max(given - read - write, 0),
            output=made,
            reasoning=(answer.reasoning_tokens or 0) if answer else 0,
            total=self.total_tokens or given + made,
            cache=Cache(read=read, write=write),
        )


class Response(Struct, gc=False):
    """What is said of a response; what of its choices matters, each format tells itself."""

    id: str | None = None
    created: Any = None
    model: Any = None
    usage: Usage | None = None


def named_model(name: object) -> tuple[str, str]:
    """A provider and its model, of a name as `anthropic/claude-sonnet-4-5`."""
    if not isinstance(name, str):
        return "", ""
    provider, found, model = name.partition("/")
    return (provider, model) if found and provider and model else ("", name)
