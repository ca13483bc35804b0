"""What a model is told when it shall summarise: prompts, which are text files, put together.

What was recorded is data. It stands between two fences that it cannot contain, and what is asked
comes after it, so that nothing in it has the last word.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from foldmark.compaction.situation import CompactionRequest
from foldmark.model.prompt_messages import AssistantMessage, PromptMessage, Text, UserMessage
from foldmark.policy import QUESTION, CompactRules

# What a summary under our own prompt must have.
SECTIONS = (
    "Goal",
    "Constraints and preferences",
    "Decisions",
    "Done",
    "In progress",
    "Blocked and failed",
    "Next step",
    "Files",
    "Identifiers",
)
_WORDS_PER_TOKEN = 0.7


@cache
def prompt(name: str) -> str:
    """A prompt by the name of its file."""
    path = Path(__file__).with_name("prompts") / f"{name}.txt"
    return path.read_text(encoding="utf-8").strip()


def filled(name: str, **fields: object) -> str:
    """A prompt with its blanks filled; braces in what is filled in mean nothing."""
    text = prompt(name)
    for field, value in fields.items():
        text = text.replace(f"{{{field}}}", str(value))
    return text


def system_prompt(rules: CompactRules) -> str:
    """What the compaction agent is."""
    return prompt("agent" if rules.prompts == "foldmark" else f"agent-{rules.prompts}")


def final_request(rules: CompactRules, wish: CompactionRequest, tokens: int) -> str:
    """What is asked at the end, with the user's focus and what hooks add."""
    ours = rules.prompts == "foldmark"
    text = wish.prompt
    if text is None:
        text = filled("request" if ours else "request-001", words=in_words(tokens))
    text = text if ours else f"{QUESTION}\n\n{text}"
    focus = f"The user asks for this focus: {wish.instructions}" if wish.instructions else ""
    return "\n\n".join(piece for piece in (text, *wish.context, focus) if piece.strip())


def in_words(tokens: int) -> int:
    """So many words have these tokens."""
    return max(20, int(tokens * _WORDS_PER_TOKEN) // 10 * 10)


def fenced(blocks: Sequence[str]) -> str:
    """Recorded texts between two fences that none of them contains."""
    record = "\n\n".join(blocks)
    digest, fence = record.encode("utf-8", "surrogatepass"), ""
    while not fence or fence in record:  # whoever can foretell a hash shall not gain by it
        digest = sha256(digest).hexdigest().encode()
        fence = f"=== record {digest[:12].decode()} ==="
    return f"{filled('fenced', fence=fence)}\n\n{fence}\n{record}\n{fence}"


def with_request(messages: Sequence[PromptMessage], text: str) -> tuple[PromptMessage, ...]:
    """Messages with a request at their end; two of the user's are one."""
    asked = Text(text=text)
    last = messages[-1] if messages else None
    if isinstance(last, UserMessage):
        return (*messages[:-1], UserMessage(content=(*last.content, asked), wire=last.wire))
    return (*messages, UserMessage(content=(asked,)))


def repair(messages: Sequence[PromptMessage], answer: str, flaw: str) -> tuple[PromptMessage, ...]:
    """The same once more, with what was wrong with the answer."""
    said = AssistantMessage(content=(Text(text=answer if answer.strip() else "(nothing)"),))
    return (*messages, said, UserMessage(content=(Text(text=filled("repair", flaw=flaw)),)))
