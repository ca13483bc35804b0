"""Rules that every view must obey, checked on its messages."""

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
    seen: set[str] = set()
    for place, message in enumerate(messages):
        assert message.content
        before = messages[place - 1] if place else None
        match message:
            case UserMessage():
                assert not isinstance(before, UserMessage)
            case AssistantMessage():
                assert isinstance(before, UserMessage | ToolMessage)
                calls = [block for block in message.content if isinstance(block, Call)]
                results = messages[place + 1] if place + 1 < len(messages) else None
                if calls:
                    assert isinstance(results, ToolMessage)
                    assert [call.tool_call_id for call in calls] == [
                        result.tool_call_id for result in results.content
                    ]
                ids = [call.tool_call_id for call in calls]
                assert len(set(ids)) == len(ids)
                assert not seen & set(ids)
                seen |= set(ids)
            case ToolMessage():
                assert isinstance(before, AssistantMessage)
                assert any(isinstance(block, Call) for block in before.content)
        for block in message.content:
            # Blank only where it stands for something that its own provider alone can read.
            assert not isinstance(block, Text) or block.text.strip() or opaque(block)
