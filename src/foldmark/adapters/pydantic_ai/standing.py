"""What stands in every request of an agent of pydantic-ai, however much of its history is folded.

System prompts lead; parts that say what holds from then on (instructions that changed, tools and
capabilities that were found) stay. What was said to the model and by it is none of this.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import RunContext

from foldmark.model.prompt_messages import Declared

_STATE = frozenset(
    {
        "capability-load-delta",
        "instruction-baseline",
        "instruction-delta",
        "model-settings-delta",
        "tool-availability-delta",
    }
)


class Standing:
    """What must stay of a history."""

    def __init__(self, history: Sequence[ModelMessage]) -> None:
        """Look through the history."""
        self.prompts: list[theirs.SystemPromptPart] = []
        self.state: list[ModelRequestPart] = []
        leads = True  # whether no answer came yet
        for message in history:
            if isinstance(message, ModelResponse):
                leads = False
                continue
            for part in message.parts:
                is_prompt = isinstance(part, theirs.SystemPromptPart)
                if is_prompt and part.scope == "conversation" and leads:
                    self.prompts.append(part)
                elif (
                    is_prompt and part.scope == "conversation" and part.context_id is not None
                ) or part.part_kind in _STATE:
                    self.state.append(part)

    def texts(self) -> list[str]:
        """The words of all that stands."""
        held = [getattr(part, "content", None) for part in (*self.prompts, *self.state)]
        return [text for text in held if isinstance(text, str)]

    def led(
        self,
        view: list[ModelMessage],
        history: Sequence[ModelMessage],
        found: Sequence[ModelRequestPart],
        *,
        anew: bool,
    ) -> list[ModelMessage]:
        """The view of a history with all that stands.

        `anew` says that the run began without a history: its prompts are in the place of those
        that earlier runs began with.
        """
        if view and view[0] is history[0]:
            return view  # nothing is folded
        came = {id(message) for message in history} if anew and self.prompts else None
        stripped = (
            self._without_prompts(message, earlier=came is not None and id(message) not in came)
            for message in view
        )
        shown = [held for held in stripped if held is not None]
        there = [part for message in shown for part in message.parts]
        leading: list[ModelRequestPart] = [
            *self.prompts,
            *(part for part in (*self.state, *found) if part not in there),
        ]
        if not leading:
            return shown
        if shown and isinstance(shown[0], ModelRequest):
            return [replace(shown[0], parts=[*leading, *shown[0].parts]), *shown[1:]]
        return [ModelRequest(parts=leading), *shown]

    def _without_prompts(self, message: ModelMessage, *, earlier: bool) -> ModelMessage | None:
        """A message without prompts that lead all; None where it says nothing else."""
        if isinstance(message, ModelResponse):
            return message
        opening = len(list(takewhile(_is_prompt, message.parts))) if earlier else 0
        parts = [part for part in message.parts[opening:] if not self._is_led(part)]
        if len(parts) == len(message.parts):
            return message
        return replace(message, parts=parts) if parts else None

    def _is_led(self, part: ModelRequestPart) -> bool:
        """Whether a part is one of the prompts, or was it in an earlier run."""
        if not isinstance(part, theirs.SystemPromptPart) or part.context_id is not None:
            return part in self.prompts
        return any(
            part.content == held.content
            or (part.dynamic_ref is not None and part.dynamic_ref == held.dynamic_ref)
            for held in self.prompts
        )


def _is_prompt(part: ModelRequestPart) -> bool:
    """Whether a part is a system prompt as an agent has it from its beginning."""
    is_prompt = isinstance(part, theirs.SystemPromptPart)
    return is_prompt and part.scope == "conversation" and part.context_id is None


def found_parts(ctx: RunContext[Any]) -> list[ModelRequestPart]:
    """Parts that say which tools and capabilities were found, whoever folded how they were."""
    found: list[ModelRequestPart] = []
    if ctx.loaded_capability_ids:
        found.append(theirs.CapabilityLoadDeltaPart(loaded=sorted(ctx.loaded_capability_ids)))
    if ctx.discovered_tool_names:
        names = sorted(ctx.discovered_tool_names)
        found.append(theirs.ToolAvailabilityDeltaPart(tools_added=names))
    return found


def declared_tools(parameters: ModelRequestParameters) -> tuple[Declared, ...]:
    """The tools of a request, and the form of its output, as they are declared."""
    functions = (*parameters.function_tools, *parameters.output_tools)
    tools = tuple(
        Declared(
            name=tool.name,
            description=tool.description or "",
            schema=tool.parameters_json_schema,
        )
        for tool in functions
    )
    tools += tuple(
        Declared(name=tool.kind, description="", schema={}) for tool in parameters.native_tools
    )
    if parameters.output_object is None:
        return tools
    schema = parameters.output_object.json_schema
    return (*tools, Declared(name="output", description="", schema=schema))
