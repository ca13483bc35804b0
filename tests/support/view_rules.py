"""Rules for the messages of every view."""

from hypothesis import strategies as st

from foldmark.log.view import View
from foldmark.model.messages import TextPart, is_opaque
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    PromptMessage,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.policy import FOLDMARK
from foldmark.tokens.limits import Limit

MARKER = FOLDMARK.view.marker
limits = st.builds(Limit, context=st.integers(600, 20_000), output=st.just(256))


def texts(view: View) -> list[str]:
    return [
        block.text
        for message in view.messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, Text)
    ]


def opaque(block: Text) -> bool:
    return is_opaque(TextPart(text=block.text, metadata=block.provider_options or {}))


def assert_valid(messages: tuple[PromptMessage, ...]) -> None:
    """Check that providers accept these messages: roles, pairs of calls and results, content."""
    call_ids: set[str] = set()
    for index, message in enumerate(messages):
        assert message.content
        before = messages[index - 1] if index else None
        match message:
            case UserMessage():
                assert not isinstance(before, UserMessage)
            case AssistantMessage():
                assert isinstance(before, UserMessage | ToolMessage)
                ids = [block.tool_call_id for block in message.content if isinstance(block, Call)]
                results = messages[index + 1] if index + 1 < len(messages) else None
                if ids:
                    assert isinstance(results, ToolMessage)
                    assert ids == [result.tool_call_id for result in results.content]
                assert len(set(ids)) == len(ids)
                assert not call_ids & set(ids)
                call_ids |= set(ids)
            case ToolMessage():
                assert isinstance(before, AssistantMessage)
                assert any(isinstance(block, Call) for block in before.content)
        for block in message.content:
            # Only opaque data of a provider may have a blank text.
            assert not isinstance(block, Text) or block.text.strip() or opaque(block)
