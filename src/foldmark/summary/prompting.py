"""Builds the prompts that ask a model for a summary, from the text files in `prompts/`.

The recorded session is data. It is quoted between two fences that it cannot contain, and the
instruction follows it, so that no recorded text comes last.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from foldmark.compaction.situation import CompactionRequest
from foldmark.model.prompt_messages import AssistantMessage, PromptMessage, Text, UserMessage
from foldmark.policy import QUESTION, CompactRules

# The headings that a summary under our own prompt must have.
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
    """The prompt in the file of this name."""
    path = Path(__file__).with_name("prompts") / f"{name}.txt"
    return path.read_text(encoding="utf-8").strip()


def fill_prompt(name: str, **fields: object) -> str:
    """Return a prompt with its fields filled in; braces in the values are not fields."""
    text = prompt(name)
    for field, value in fields.items():
        text = text.replace(f"{{{field}}}", str(value))
    return text


def system_prompt(rules: CompactRules) -> str:
    """The system prompt of the compaction agent."""
    return prompt("agent" if rules.prompts == "foldmark" else f"agent-{rules.prompts}")


def final_request(rules: CompactRules, request: CompactionRequest, tokens: int) -> str:
    """The instruction at the end of a request, with the user's focus and context from hooks."""
    ours = rules.prompts == "foldmark"
    text = request.prompt
    if text is None:
        text = fill_prompt("request" if ours else "request-001", words=word_limit(tokens))
    text = text if ours else f"{QUESTION}\n\n{text}"
    focus = f"The user asks for this focus: {request.instructions}" if request.instructions else ""
    return "\n\n".join(piece for piece in (text, *request.context, focus) if piece.strip())


def word_limit(tokens: int) -> int:
    """About as many words as fit into these tokens."""
    return max(20, int(tokens * _WORDS_PER_TOKEN) // 10 * 10)


def fence_record(blocks: Sequence[str]) -> str:
    """Return recorded texts between two fences that none of them contains."""
    record = "\n\n".join(blocks)
    digest, fence = record.encode("utf-8", "surrogatepass"), ""
    while not fence or fence in record:  # even if the record forges its own hash
        digest = sha256(digest).hexdigest().encode()
        fence = f"=== record {digest[:12].decode()} ==="
    return f"{fill_prompt('fenced', fence=fence)}\n\n{fence}\n{record}\n{fence}"


def append_request(messages: Sequence[PromptMessage], text: str) -> tuple[PromptMessage, ...]:
    """Return the messages with a request at the end, merged into the last user message if any."""
    block = Text(text=text)
    last = messages[-1] if messages else None
    if isinstance(last, UserMessage):
        return (*messages[:-1], UserMessage(content=(*last.content, block), wire=last.wire))
    return (*messages, UserMessage(content=(block,)))


def repair(messages: Sequence[PromptMessage], text: str, flaw: str) -> tuple[PromptMessage, ...]:
    """Return the messages followed by the model's flawed reply and a request to repair it."""
    reply = AssistantMessage(content=(Text(text=text if text.strip() else "(nothing)"),))
    return (*messages, reply, UserMessage(content=(Text(text=fill_prompt("repair", flaw=flaw)),)))
