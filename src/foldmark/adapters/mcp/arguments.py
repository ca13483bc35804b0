"""Arguments of the MCP server's tools.

The types are also the schemas that a client is told: their sentences are written for a model.
"""

from typing import Annotated

from msgspec import Meta

from foldmark.model.values import Frozen

MOST_CHARACTERS = 20_000  # of a text in one answer
MOST_HITS = 50

NamedSession = Annotated[
    str | None,
    Meta(
        description="One of the sessions that `inspect` lists. If left out: the newest; of one "
        "file with several, the longest.",
        extra_json_schema={"maxLength": 300},
    ),
]


class ToolArguments(Frozen, forbid_unknown_fields=True):
    """The arguments of a tool."""

    session: NamedSession = None

    def __post_init__(self) -> None:
        """Refuse a name that can be none: Meta cannot bound a text that may also be null."""
        if self.session is not None and len(self.session) > 300:
            raise ValueError("`session` has more than 300 characters")


class SearchArguments(ToolArguments):
    """The arguments of `search`."""

    query: Annotated[
        str,
        Meta(
            description="Words that must all be there, in any order; each may be the beginning of "
            "a longer one. No operators, no patterns.",
            min_length=1,
            max_length=1_000,
        ),
    ]
    most: Annotated[int, Meta(description="How many hits to give.", ge=1, le=MOST_HITS)] = 20


class RecallArguments(ToolArguments):
    """The arguments of `recall`."""

    handle: Annotated[
        str,
        Meta(
            description="As hits and placeholders tell it, like h3f.", min_length=1, max_length=64
        ),
    ]
    start: Annotated[
        int, Meta(description="The character to begin with; a page tells the next.", ge=0, le=2**53)
    ] = 0
    length: Annotated[
        int, Meta(description="How many characters to give.", ge=1, le=MOST_CHARACTERS)
    ] = MOST_CHARACTERS


class PlanArguments(ToolArguments):
    """The arguments of `plan`."""

    window: Annotated[
        int | None,
        Meta(
            description="The context window in tokens, from 1; else the model's own.",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    model: Annotated[
        str | None,
        Meta(
            description="As provider:name; else the newest model of the session.",
            extra_json_schema={"maxLength": 200},
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what no model has."""
        super().__post_init__()
        if self.window is not None and not 1 <= self.window <= 2**53:
            raise ValueError("`window` is no number of tokens: give one from 1 on")
        if self.model is not None and not 0 < len(self.model) <= 200:
            raise ValueError("`model` is no name of a model: give it as provider:name")


class InspectArguments(ToolArguments):
    """The arguments of `inspect`."""
