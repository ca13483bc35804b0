"""Parts that every request of a pydantic-ai agent needs, however much of its history is hidden.

These are system prompts, which come first, and parts with a lasting effect: changed instructions,
discovered tools and capabilities. The conversation itself is not handled here.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import RunContext

from foldmark.model.prompt_messages import ToolDeclaration

_STATE = frozenset(
    {
        "capability-load-delta",
        "instruction-baseline",
        "instruction-delta",
        "model-settings-delta",
        "tool-availability-delta",
    }
)


class PersistentParts:
    """The parts of a history that every request needs."""

    def __init__(self, history: Sequence[ModelMessage]) -> None:
        """Collect the parts."""
        self.prompts: list[theirs.SystemPromptPart] = []
        self.state: list[ModelRequestPart] = []
        is_opening = True  # whether there was no response yet
        for message in history:
            if isinstance(message, ModelResponse):
                is_opening = False
                continue
            for part in message.parts:
                is_prompt = isinstance(part, theirs.SystemPromptPart)
                if is_prompt and part.scope == "conversation" and is_opening:
                    self.prompts.append(part)
                elif (
                    is_prompt and part.scope == "conversation" and part.context_id is not None
                ) or part.part_kind in _STATE:
                    self.state.append(part)

    def texts(self) -> list[str]:
        """The texts of all persistent parts."""
        contents = [getattr(part, "content", None) for part in (*self.prompts, *self.state)]
        return [text for text in contents if isinstance(text, str)]

    def prepend_to(
        self,
        view: list[ModelMessage],
        history: Sequence[ModelMessage],
        discovered: Sequence[ModelRequestPart],
        *,
        is_new: bool,
    ) -> list[ModelMessage]:
        """The view of a history, with all persistent parts at its start.

        With `is_new` the run started without a history: its prompts replace those of earlier runs.
        """
        if view and view[0] is history[0]:
            return view  # nothing is hidden
        current = {id(message) for message in history} if is_new and self.prompts else None
        candidates = (
            self._without_prompts(one, earlier=current is not None and id(one) not in current)
            for one in view
        )
        messages = [message for message in candidates if message is not None]
        present = [part for message in messages for part in message.parts]
        leading: list[ModelRequestPart] = [
            *self.prompts,
            *(part for part in (*self.state, *discovered) if part not in present),
        ]
        if not leading:
            return messages
        if messages and isinstance(messages[0], ModelRequest):
            return [replace(messages[0], parts=[*leading, *messages[0].parts]), *messages[1:]]
        return [ModelRequest(parts=leading), *messages]

    def _without_prompts(self, message: ModelMessage, *, earlier: bool) -> ModelMessage | None:
        """A message without persistent prompts; None if nothing else is in it."""
        if isinstance(message, ModelResponse):
            return message
        opening = len(list(takewhile(_is_prompt, message.parts))) if earlier else 0
        parts = [part for part in message.parts[opening:] if not self._is_prepended(part)]
        if len(parts) == len(message.parts):
            return message
        return replace(message, parts=parts) if parts else None

    def _is_prepended(self, part: ModelRequestPart) -> bool:
        """Whether a part is one of the prompts, also as an earlier run had it."""
        if not isinstance(part, theirs.SystemPromptPart) or part.context_id is not None:
            return part in self.prompts
        return any(
            part.content == prompt.content
            or (part.dynamic_ref is not None and part.dynamic_ref == prompt.dynamic_ref)
            for prompt in self.prompts
        )


def _is_prompt(part: ModelRequestPart) -> bool:
    """Whether a part is a system prompt that an agent starts with."""
    is_prompt = isinstance(part, theirs.SystemPromptPart)
    return is_prompt and part.scope == "conversation" and part.context_id is None


def discovery_parts(ctx: RunContext[Any]) -> list[ModelRequestPart]:
    """Parts that list the tools and capabilities that this run has discovered."""
    parts: list[ModelRequestPart] = []
    if ctx.loaded_capability_ids:
        parts.append(theirs.CapabilityLoadDeltaPart(loaded=sorted(ctx.loaded_capability_ids)))
    if ctx.discovered_tool_names:
        names = sorted(ctx.discovered_tool_names)
        parts.append(theirs.ToolAvailabilityDeltaPart(tools_added=names))
    return parts


def declared_tools(parameters: ModelRequestParameters) -> tuple[ToolDeclaration, ...]:
    """The declared tools of a request, and the schema of its output."""
    functions = (*parameters.function_tools, *parameters.output_tools)
    tools = tuple(
        ToolDeclaration(
            name=tool.name,
            description=tool.description or "",
            schema=tool.parameters_json_schema,
        )
        for tool in functions
    )
    tools += tuple(
        ToolDeclaration(name=one.kind, description="", schema={}) for one in parameters.native_tools
    )
    if parameters.output_object is None:
        return tools
    schema = parameters.output_object.json_schema
    return (*tools, ToolDeclaration(name="output", description="", schema=schema))
