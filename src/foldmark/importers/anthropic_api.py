"""Recorded traffic with Anthropic's Messages API: claude-trace, one request and response a line.

Facts of this format: each request repeats its whole conversation, so only what is new in it is
taken, and only digests of the rest are kept; the next request repeats the answer, too. Requests
with tools are the loop of an agent and make a session each. Left out is what is neither that nor
grows beyond one request: the program's questions about quotas, topics and titles. A compaction is
a request for a summary, then a conversation that begins with it.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.messages import AnyPart, Message, Origin, SessionInfo, TextPart, Time
from foldmark.values import Json, parsed
from foldmark.wire.anthropic import Anthropic
from foldmark.wire.model import JOINED, Read, Reply, object_at, text_at

from .anthropic_stream import streamed
from .format import Format, Opened, Pruned, Reverted, Step, Tally
from .making import assistant_message, folded, moment, user_message, with_info
from .source import Head
from .woven import Woven

_NAME = "anthropic-api"
_PATH = "/v1/messages"
_REMINDER = "<system-reminder>"
_SUMMARISE = "Your task is to create a detailed summary of"
_CONTINUED = "This session is being continued from a previous conversation"
_BY_HAND = "<command-name>"
_MOST_TALKS, _MOST_WAITING = 64, 8
_wire = Anthropic()
T = TypeVar("T")


class Request(Struct, gc=False):
    """A request; other endpoints have other bodies."""

    body: Raw | UnsetType = UNSET
    url: Any = UNSET
    timestamp: Any = UNSET


class Response(Struct, gc=False):
    """Its response: whole, or as the stream that it was."""

    body: Raw | UnsetType = UNSET
    body_raw: Raw | UnsetType = UNSET
    timestamp: Any = UNSET


class Line(Struct, gc=False):
    """One exchange."""

    request: Request
    response: Response | UnsetType | None = UNSET
    logged_at: Any = UNSET


class Body(Struct, gc=False):
    """What matters of a request for an answer."""

    messages: list[Raw]
    system: Any = UNSET
    tools: Raw | UnsetType | None = UNSET
