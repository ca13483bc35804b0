"""Every real transcript, viewed and sent to every provider."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.log.log import Log
from foldmark.log.view import View, Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Message,
    TextPart,
    ToolPart,
)
from foldmark.model.prompt_messages import Call, PromptMessage, Text, ToolMessage, UserMessage
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.tokens.counters import by_classes, counter
from foldmark.transcripts.write_api import whole_view
from foldmark.wire.detect import recognize
from foldmark.wire.formats import decode, request
from foldmark.wire.formats import encode as written
from tests.support.api_lists import verbatim
from tests.support.corpus import (
    CORPUS,
    MANIFEST,
    Json,
    each_file,
    read,
    viewed,
    views,
)
from tests.support.provider_types import WIRES, assert_accepted, blocks
from tests.support.session_strategies import sessions
from tests.support.view_rules import assert_valid

each_wire = pytest.mark.parametrize("wire", WIRES)


def lines(file: str) -> list[Json]:
    """The JSON values of a file: its lines, or its document."""
    data = (CORPUS / file).read_bytes()
    if data.startswith(b"{") and file.endswith("l"):
        return [json.loads(line) for line in data.splitlines()]
    return [json.loads(data)]


# --- views ---------------------------------------------------------------------------------


@each_file
def test_every_view_is_one_that_providers_accept(entry: Json) -> None:
    for session, view in zip(read(entry["file"]).sessions, views(entry["file"]), strict=True):
        assert_valid(view.messages)
        assert_valid(viewed(session, "another:model").messages)
        assert_valid(whole_view(session.messages))


def assert_paired(shown: tuple[PromptMessage, ...]) -> None:
    for before, message in pairwise(shown):
        calls = [block.tool_call_id for block in before.content if isinstance(block, Call)]
        results = message.content if isinstance(message, ToolMessage) else ()
        assert calls == [result.tool_call_id for result in results]
    assert not any(isinstance(block, Call) for block in shown[-1].content)


@each_file
@pytest.mark.parametrize("name", PRESETS)
def test_calls_and_results_are_paired_under_every_preset(entry: Json, name: str) -> None:
    policy = PRESETS[name]
    for session in read(entry["file"]).sessions:
        shown = Viewer(Log(counter(policy.estimate), session.messages), policy).view().messages
        if shown:
            assert_paired(shown)


@each_file
def test_every_text_of_the_user_is_in_the_whole_view(entry: Json) -> None:
    for session in read(entry["file"]).sessions:
        shown = [item for item in whole_view(session.messages) if isinstance(item, UserMessage)]
        facts = {block.text for item in shown for block in item.content if isinstance(block, Text)}
        for message in session.messages:
            texts = [part for part in message.parts if isinstance(part, TextPart)]
            text = {part.text for part in texts if part.text.strip() and not part.ignored}
            assert not message.is_user or text <= facts


# --- requests ------------------------------------------------------------------------------


@each_file
@each_wire
def test_views_are_accepted_by_every_provider(entry: Json, wire: str) -> None:
    for session, view in zip(read(entry["file"]).sessions, views(entry["file"]), strict=True):
        system = (session.info.origin.system or "") if session.info.origin else ""
        assert_accepted(wire, request(view.messages, wire, system))


@each_file
@each_wire
def test_whole_sessions_are_accepted_by_every_provider(entry: Json, wire: str) -> None:
    for session in read(entry["file"]).sessions:
        assert_accepted(wire, request(whole_view(session.messages), wire))


# Fields that hold what only one provider can read, and the wire on which they may go back.
OPAQUE = {
    "signature": "anthropic",
    "redactedData": "anthropic",
    "thinkingSignature": "anthropic",
    "encrypted_content": "openai-responses",
    "encryptedContent": "openai-responses",
    "reasoningEncryptedContent": "openai-responses",
    "thoughtSignature": "gemini",
    "thought_signature": "gemini",
    "reasoning_opaque": "openai-chat",
    "reasoningOpaque": "openai-chat",
}


def opaque(value: Any) -> Iterator[tuple[str, str]]:
    """The opaque texts in JSON, and the API that may have each."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from opaque(item)
    elif isinstance(value, dict):
        for name, item in cast("Json", value).items():
            if name in OPAQUE and isinstance(item, str) and len(item) > 40:
                yield item, OPAQUE[name]
            else:
                yield from opaque(item)


def secrets(file: str) -> dict[str, str]:
    """The beginnings of the opaque texts of a file."""
    if file.endswith(".md"):
        return {}
    return {json.dumps(item)[1:41]: wire for item, wire in opaque(lines(file))}


def test_the_corpus_has_opaque_content(corpus: Path) -> None:
    session = {wire for entry in MANIFEST for wire in secrets(entry["file"]).values()}
    assert session >= {"anthropic", "openai-responses"}


@each_file
def test_nothing_opaque_reaches_another_provider(entry: Json) -> None:
    item = secrets(entry["file"])
    if not item:
        return
    for session, view in zip(read(entry["file"]).sessions, views(entry["file"]), strict=True):
        for shown in (view.messages, whole_view(session.messages)):
            for wire in WIRES:
                requests = json.dumps(request(shown, wire))
                assert not [text for text, own in item.items() if own != wire and text in requests]


@each_file
def test_another_model_gets_nothing_opaque_and_accepts_the_rest(entry: Json) -> None:
    item = secrets(entry["file"])
    for session in read(entry["file"]).sessions:
        infos = [message.info for message in session.messages]
        answers = [info for info in infos if isinstance(info, AssistantInfo) and not info.summary]
        if not all(info.model_id for info in answers):
            continue  # any model may be the author of a reply without a model
        shown = viewed(session, "another:model").messages
        for wire in WIRES:
            messages = request(shown, wire)
            assert_accepted(wire, messages)
            requests = json.dumps(messages)
            assert not [text for text in item if text in requests]


# --- requests extend each other ------------------------------------------------------------


def asked(messages: list[Message]) -> Iterator[tuple[View, bool]]:
    """The view before each reply, and whether its pivot is new."""
    log = Log(by_classes)
    viewer = Viewer(log, FOLDMARK)
    pivot = None
    for message in messages:
        # The request for a summary is not part of the session.
        if isinstance(message.info, AssistantInfo) and not message.info.summary:
            view = viewer.view()
            yield view, view.pivot != pivot
            pivot = view.pivot
        log.append(message)


def assert_extended(found: list[tuple[View, bool]], wire: str) -> None:
    requests: list[str] = []
    for view, is_anew in found:
        now = list(blocks(wire, request(view.messages, wire, "Be brief.")))
        assert is_anew or now[: len(requests)] == requests
        requests = now


@given(sessions(), st.sampled_from(WIRES))
def test_9_on_every_wire_a_request_begins_with_the_one_before(
    messages: list[Message], wire: str
) -> None:
    assert_extended(list(asked(messages)), wire)


def some(found: list[tuple[View, bool]]) -> Iterator[tuple[View, bool]]:
    """Some of the requests, and all near pivots."""
    is_anew, was_anew = False, False
    for index, (view, begins) in enumerate(found):
        is_anew = is_anew or begins
        if begins or was_anew or index % (len(found) // 6 + 1) == 0 or view is found[-1][0]:
            yield view, is_anew
            is_anew = False
        was_anew = begins


@each_file
@each_wire
def test_9_requests_of_real_sessions_extend_each_other(entry: Json, wire: str) -> None:
    for session in read(entry["file"]).sessions[:20]:
        assert_extended(list(some(list(asked(list(session.messages))))), wire)


# --- messages of the APIs ------------------------------------------------------------------


def _of_lines(file: str) -> Iterator[list[Json]]:
    for line in lines(file):
        yield line["messages"]


def _of_claude_code(file: str) -> Iterator[list[Json]]:
    yield [
        line["message"]
        for line in lines(file)
        if line.get("type") in ("user", "assistant") and "message" in line
    ]


def _of_codex(file: str) -> Iterator[list[Json]]:
    yield [line["payload"] for line in lines(file) if line["type"] == "response_item"]


def _of_requests(file: str) -> Iterator[list[Json]]:
    for line in lines(file):
        yield line["request"]["body"]["messages"]


def _of_contents(file: str) -> Iterator[list[Json]]:
    (item,) = cast("list[Any]", lines(file))
    if isinstance(item, list):
        yield item


OWN: dict[str, tuple[str, Callable[[str], Iterator[list[Json]]]]] = {
    "claude-code": ("anthropic", _of_claude_code),
    "anthropic-api": ("anthropic", _of_requests),
    "codex": ("openai-responses", _of_codex),
    "openai-chat": ("openai-chat", _of_lines),
    "mini-swe-agent": ("openai-chat", _of_lines),
    "gemini-cli": ("gemini", _of_contents),
}
of_a_wire = pytest.mark.parametrize(
    "entry", [held for held in MANIFEST if held["format"] in OWN], ids=lambda held: held["file"]
)


@of_a_wire
def test_every_message_of_an_api_is_written_back_unchanged(entry: Json) -> None:
    wire, session = OWN[entry["format"]]
    for messages in session(entry["file"]):
        for message in messages:
            facts = decode([message], wire)
            assert written(facts.messages, wire, facts.origin) == [message]
            assert verbatim(facts.messages, wire) == 0
        whole = decode(messages, wire)
        again = written(whole.messages, wire, whole.origin)
        assert json.dumps(again, sort_keys=True) == json.dumps(messages, sort_keys=True)


@of_a_wire
def test_the_api_of_a_list_is_recognized(entry: Json) -> None:
    wire, session = OWN[entry["format"]]
    for messages in session(entry["file"]):
        if wire != "anthropic" or not all(map(is_bare, messages)):
            assert recognize(messages).name == wire


def is_bare(message: Json) -> bool:
    """Whether a message has only texts, which OpenAI's chat writes the same way."""
    content = message["content"]
    return isinstance(content, str) or all(block["type"] == "text" for block in content)


@each_file
def test_calls_of_a_session_are_those_of_its_request(entry: Json) -> None:
    for session in read(entry["file"]).sessions:
        parts = [part for message in session.messages for part in message.parts]
        calls = [part.tool for part in parts if isinstance(part, ToolPart)]
        requests = request(whole_view(session.messages), "openai-chat")
        facts = [call for message in requests for call in message.get("tool_calls", [])]
        assert len(facts) == len(calls)
