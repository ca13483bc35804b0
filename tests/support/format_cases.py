"""The test data of all API formats."""

from tests.support import anthropic_messages, chat_messages, gemini_contents, responses_items
from tests.support.api_lists import FormatCases

CASES: dict[str, FormatCases] = {
    "openai-chat": chat_messages.CASES,
    "openai-responses": responses_items.CASES,
    "anthropic": anthropic_messages.CASES,
    "gemini": gemini_contents.CASES,
}
