"""What only requests of OpenAI's Responses API have."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Output,
    Reasoning,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.wire.codec import NOTHING_TO_READ
from foldmark.wire.formats import decode, decode_reply, request
from tests.support.api_lists import Json, request_for, view_messages
from tests.support.provider_types import assert_accepted
from tests.support.responses_items import (
    MODEL_SIDE,
    PAIRS,
    USER_SIDE,
    WIRE,
    assistant,
    call,
    item,
    reasoning,
    result,
    user,
)

# Whether the API accepts an unknown item, which is sent back unchanged, cannot be checked.
sendable = [held for held in MODEL_SIDE + USER_SIDE if held.get("type") != "from_tomorrow"]
answers = st.sampled_from([pair[:1] for pair in PAIRS[:-1]] + PAIRS[:-1])
stretches = st.lists(st.sampled_from([(held,) for held in sendable]) | answers, max_size=12)


def without_tomorrow(item: Json) -> Json:
    """The item without unknown blocks, which are sent back unchanged too."""

    def today_only(entry: object) -> object:
        blocks = cast("list[Json]", entry) if isinstance(entry, list) else []
        today = [block for block in blocks if "tomorrow" not in str(block.get("type"))]
        return cast("object", entry) if len(today) == len(blocks) else today or "none"

    return {
        **item,
        **{name: today_only(item[name]) for name in ("content", "output") if name in item},
    }


@given(stretches)
def test_items_of_the_api_are_accepted_again(pieces: list[tuple[Json, ...]]) -> None:
    sent = request_for([entry for items in pieces for entry in items], WIRE)
    for entry in sent:
        if entry["type"] == "reasoning":
            entry.setdefault("id", f"rs_{id(entry)}")  # Codex omits it, as the API allows
    assert_accepted(WIRE, [without_tomorrow(entry) for entry in sent])


def test_a_conversation_is_sent_back_to_its_own_provider_unchanged() -> None:
    items = [
        user("Go"),
        reasoning("Look.", id="rs_1", encrypted_content="gAAA"),
        assistant("I look.", id="msg_1", status="completed", phase="commentary"),
        call(id="fc_1", status="completed"),
        item("custom_tool_call", call_id="c2", name="patch", input="***", id="ctc_1"),
        result(),
        item("custom_tool_call_output", call_id="c2", output="ok"),
        item("compaction", id="cmp_1", encrypted_content="gAAA"),
        user("And now?"),
        item(
            "web_search_call",
            id="ws_1",
            status="completed",
            action={"type": "search", "query": "q"},
        ),
        assistant("Done.", id="msg_2", status="completed"),
    ]
    for entry in items:
        if entry.get("role") == "assistant":
            entry["content"][0]["annotations"] = []
    sent = request_for(items, WIRE)
    assert sent == items
    assert_accepted(WIRE, sent)


def test_items_whose_reasoning_is_missing_lose_their_ids() -> None:
    search = item("web_search_call", id="ws_1", status="completed", action={})
    reply = [assistant("I look.", id="msg_1"), search, call(id="fc_1")]
    for gone in (reasoning("Look.", id="rs_1"), reasoning(encrypted_content="gAAA")):
        sent = request_for([user("Go"), gone, *reply, result()], WIRE)
        assert not any("id" in entry for entry in sent)
        assert "web_search_call" not in [entry["type"] for entry in sent]
    sent = request_for(
        [user("Go"), reasoning(id="rs_1", encrypted_content="gAAA"), *reply, result()], WIRE
    )
    assert [entry.get("id") for entry in sent] == [None, "rs_1", "msg_1", "ws_1", "fc_1", None]


def test_reasoning_without_the_item_it_led_to_is_omitted() -> None:
    own = {"openai": {"item": {"id": "rs_1", "encrypted_content": "gAAA"}}}
    alone = Reasoning(text="Hm.", provider_options=own)
    for after in ((), (Text(text=" "),)):
        prompt = [
            UserMessage(content=(Text(text="Go"),)),
            AssistantMessage(content=(alone, *after)),
        ]
        sent = request(prompt, WIRE)
        assert_accepted(WIRE, sent)
        assert sent[1] == {"type": "message", "role": "assistant", "content": NOTHING_TO_READ}
    led = AssistantMessage(content=(alone, Text(text="Hi")))
    assert [entry["type"] for entry in request([led], WIRE)] == ["reasoning", "message"]


def test_calls_that_the_provider_ran_are_sent_back_whole_and_once() -> None:
    reply = {"object": "response", "status": "completed", "output": [*PAIRS[7], assistant("Done.")]}
    answer = decode_reply(reply, WIRE)
    assert isinstance(answer.info, AssistantInfo)
    assert answer.info.finish == "stop"
    later = decode([user("Go on"), PAIRS[7][1]], WIRE).messages
    sent = request(view_messages([answer, *later]), WIRE)
    assert [entry["type"] for entry in sent].count("shell_call_output") == 1
    assert_accepted(WIRE, sent)


def test_items_that_only_codex_knows_are_not_sent() -> None:
    sent = request_for(
        [user("Go"), item("ghost_snapshot", ghost_commit={"id": "abc"}), assistant()], WIRE
    )
    assert [entry["type"] for entry in sent] == ["message", "message"]


def test_an_id_is_sent_once_and_only_if_it_is_valid() -> None:
    items = [user("Go"), assistant("A", id="msg_1"), user("Go"), assistant("B", id="msg_1")]
    items += [user("Go"), assistant("C", id="x" * 70), call("c1", id="call_1"), result()]
    sent = request_for(items, WIRE)
    assert [entry["id"] for entry in sent if "id" in entry] == ["msg_1"]
    assert_accepted(WIRE, sent)


def test_a_result_without_a_call_is_sent_as_text() -> None:
    sent = request_for([user("Go"), result("gone", "the output"), assistant()], WIRE)
    assert_accepted(WIRE, sent)
    assert [entry["type"] for entry in sent] == ["message"] * len(sent)
    assert "the output" in json.dumps(sent)
    for call_, ran in PAIRS[7:8] + PAIRS[9:12]:
        twice = request_for([user("Go"), call_, ran, ran], WIRE)
        assert_accepted(WIRE, twice[:3])
        assert [entry["type"] for entry in twice[3:]] in ([], ["message"])
    stored = request_for(
        [user("Go"), item("item_reference", id="fc_1"), result("c7", "the output"), assistant()],
        WIRE,
    )
    assert result("c7", "the output") in stored  # its call may be stored


@pytest.mark.parametrize("pair", PAIRS[7:12], ids=lambda pair: pair[0]["type"])
def test_a_call_of_an_openai_tool_becomes_a_function_if_its_result_is_pruned(
    pair: tuple[Json, Json],
) -> None:
    messages = decode([user("Go"), *pair], WIRE).messages
    prompt = list(view_messages(messages))
    tools = prompt[-1]
    assert isinstance(tools, ToolMessage)
    whole = request(prompt, WIRE)
    was_of_its_kind = pair[1]["type"] != "function_call_output"
    assert (whole[1]["type"] == pair[0]["type"]) == was_of_its_kind
    hidden = Result(
        tool_call_id="c1",
        tool_name=tools.content[0].tool_name,
        output=Output(type="text", value="[Hidden]"),
        provider_options=tools.content[0].provider_options,
    )
    sent = request([*prompt[:-1], ToolMessage(content=(hidden,))], WIRE)
    assert_accepted(WIRE, sent)
    assert sent[-1]["output"] == "[Hidden]"


def test_fields_that_opencode_stores_are_sent_back() -> None:
    def own(name: str, **more: Any) -> Json:
        return {"openai": {"itemId": name, **more}}

    parts = (
        ReasoningPart(text="One.", metadata=own("rs_1", reasoningEncryptedContent=None)),
        ReasoningPart(text="Two.", metadata=own("rs_1", reasoningEncryptedContent="gAAA")),
        TextPart(text="Hi", metadata=own("msg_1")),
        ToolPart(
            tool="ls", call_id="c1", state=Completed(input={}, output=""), metadata=own("fc_1")
        ),
    )
    messages = [
        Message(info=UserInfo(id="u"), parts=(TextPart(text="Go"),)),
        Message(info=AssistantInfo(id="a", finish="stop"), parts=parts),
    ]
    sent = request(view_messages(messages), WIRE)
    assert sent[1] == reasoning("One.", "Two.", id="rs_1", encrypted_content="gAAA")
    assert [entry.get("id") for entry in sent] == [None, "rs_1", "msg_1", "fc_1", None]
    assert_accepted(WIRE, sent)


# --- other providers -----------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_block_whose_type_is_not_a_string_passes_through(role: str) -> None:
    block = {"type": ["output_text"], "text": "Hi"}
    assert request_for([assistant(), user(block, role=role, id="msg_1")], WIRE)[-1]["content"] == [
        block
    ]
