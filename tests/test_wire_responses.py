"""OpenAI's Responses: whatever is read is written back, and what a view shows is taken."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseInputParam
from pydantic import TypeAdapter

from foldmark.errors import BadInput
from foldmark.log import Log
from foldmark.messages import (
    AssistantInfo,
    Completed,
    FilePart,
    Message,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
    UserInfo,
    decode_transcript,
    encode_transcript,
)
from foldmark.presets import FOLDMARK
from foldmark.shown import AnyShown, FromAssistant, FromTools, FromUser, Media, Output, Result, Text
from foldmark.shown import Call as ShownCall
from foldmark.tokens import counter
from foldmark.view import Viewer
from foldmark.wire import decode, decode_reply, encode, encode_reply, request
from foldmark.wire.lists import VERBATIM
from foldmark.wire.model import options
from foldmark.wire.names import NOTHING_TO_READ
from foldmark.wire.openai_responses import OpenAIResponses

from .strategies import PNG, sessions

Json = dict[str, Any]
WIRE = "openai-responses"
TAKEN: TypeAdapter[Any] = TypeAdapter(ResponseInputParam)
PDF = "data:application/pdf;base64,JVBERi0="
TURN = {"internal_chat_message_metadata_passthrough": {"turn_id": "t1"}}


def said(text: str = "Hi", **more: Any) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


def asked(*content: Json | str, role: str = "user", **more: Any) -> Json:
    blocks = [
        {"type": "input_text", "text": held} if isinstance(held, str) else held for held in content
    ]
    return {"type": "message", "role": role, "content": blocks, **more}


def thought(*texts: str, **more: Any) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "summary": summary, **more}


def call(name: str = "c1", arguments: str = '{"path":"a.py"}', **more: Any) -> Json:
    item = {"type": "function_call", "call_id": name, "name": "read", "arguments": arguments}
    return {**item, **more}


def result(name: str = "c1", output: Any = "done", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": name, "output": output, **more}


def item(kind: str, **fields: Any) -> Json:
    return {"type": kind, **fields}


MODEL_SIDE = [
    said(),
    said("Done.", id="msg_1", status="completed", phase="final_answer", **TURN),
    {"role": "assistant", "content": "Short."},
    item("message", role="assistant", content="Short, with a type."),
    {"role": "assistant", "content": [{"type": "input_text", "text": "Odd."}], "id": "x"},
    item("message", role="assistant", content=[], id="msg_empty"),
    item(
        "message",
        role="assistant",
        id="msg_2",
        content=[
            {"type": "output_text", "text": "One", "annotations": [], "logprobs": []},
            {"type": "refusal", "refusal": "I cannot."},
            {"type": "output_image_of_tomorrow", "data": [1, {"a": None}]},
        ],
    ),
    thought(id="rs_1", encrypted_content="gAAA", **TURN),
    thought("First.", "", "Third.", id="rs_2", encrypted_content="gAAA", status="completed"),
    thought("", id="rs_3", content=None),
    thought(content=[{"type": "reasoning_text", "text": "I think."}]),
    item("reasoning", id="rs_4", summary=[{"type": "summary_text", "text": "a", "more": 1}]),
    item("web_search_call", id="ws_1", status="completed", action={"type": "search"}),
    item("file_search_call", id="fs_1", queries=["q"], status="completed", results=None),
    item("code_interpreter_call", id="ci_1", code="1", container_id="c", outputs=None),
    item("image_generation_call", id="ig_1", result=None, status="failed"),
    item("mcp_list_tools", id="ml_1", server_label="s", tools=[]),
    item("mcp_call", id="mcp_1", name="n", arguments="{}", server_label="s", output="ok"),
    item("tool_search_call", id="ts", call_id=None, execution="server", arguments={}),
    item("compaction", id="cmp_1", encrypted_content="gAAA"),
    item("item_reference", id="msg_9"),
    {"id": "msg_10"},
    item("from_tomorrow", anything=[1, 2.5, None, {"deep": True}]),
]
IMAGE = {"type": "input_image", "image_url": PNG, "detail": "high"}
USER_SIDE = [
    asked("Hello"),
    asked(
        "Look", IMAGE, {"type": "input_image", "file_id": "f1", "detail": "auto"}, id="m", **TURN
    ),
    asked({"type": "input_file", "file_data": PDF, "filename": "a.pdf"}),
    asked({"type": "input_file", "file_url": "https://x.org/a.pdf"}),
    asked({"type": "input_file", "file_data": "raw", "file_id": None}),
    asked({"type": "input_image", "image_url": "https://x.org/a"}),
    asked({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}),
    asked(),
    asked("Be brief.", role="developer", **TURN),
    asked("Be kind.", role="system"),
    {"role": "developer", "content": "Be short."},
    {"role": "user", "content": "Short."},
    {"role": "user", "content": [{"type": "input_text", "text": "Untyped.", "extra": 1}]},
    item("mcp_approval_response", approval_request_id="a", approve=True),
    item("additional_tools", role="developer", tools=[]),
]
SHELL = {"commands": ["ls"], "timeout_ms": None}
RAN = [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
LOCAL = {"type": "exec", "command": ["ls"], "env": {}}
PATCH = {"type": "delete_file", "path": "a.py"}
PAIRS = [
    (call(id="fc_1", status="completed", **TURN), result(**TURN)),
    (call(arguments='{ "spaced": 1 }'), result(output=[], id="fco_1")),
    (call(arguments=""), result(output=[{"type": "input_text", "text": "a"}, IMAGE])),
    (call(arguments="not JSON"), result(output=[{"type": "of_tomorrow"}, {"type": "input_text"}])),
    (call(arguments='[1,"\\u00e9"]'), result(output=[{"type": "output_text", "text": "b"}])),
    (call(arguments='{"é":"日本","n":1e5}'), result(output={"any": ["JSON", 1.0]})),
    (
        item("custom_tool_call", call_id="c1", name="patch", input="*** Begin", id="ctc_1"),
        item("custom_tool_call_output", call_id="c1", output="ok"),
    ),
    (
        item("shell_call", call_id="c1", action=SHELL, id="sh_1", status="completed"),
        item("shell_call_output", call_id="c1", output=RAN, max_output_length=None),
    ),
    (
        item("local_shell_call", call_id="c1", action=LOCAL, id="lsh_1", status="completed"),
        result(),
    ),
    (
        item("apply_patch_call", call_id="c1", operation=PATCH, status="completed"),
        item("apply_patch_call_output", call_id="c1", status="completed"),
    ),
    (
        item("tool_search_call", call_id="c1", execution="client", arguments={"query": "q"}),
        item("tool_search_output", call_id="c1", tools=[{"type": "web_search"}], **TURN),
    ),
    (
        item("computer_call", call_id="c1", id="cu_1", actions=[], pending_safety_checks=[]),
        item("computer_call_output", call_id="c1", output=IMAGE | {"type": "computer_screenshot"}),
    ),
    (item("tomorrows_call", call_id="c1"), item("tomorrows_call_output", call_id="c1", more=1)),
]


def stretches(messages: Iterable[Message]) -> int:
    """How many stretches were kept as they came."""
    return sum(VERBATIM in options(message.info.wire, "openai") for message in messages)


def back(items: Sequence[Json]) -> int:
    """Read a list and write it back; how many stretches could only be kept as they came."""
    decoded = decode(items, wire=WIRE)
    assert encode(decoded.messages, WIRE, origin=decoded.origin) == items
    info = SessionInfo(id="s", origin=decoded.origin)
    stored = encode_transcript(Transcript(info=info, messages=decoded.messages))
    again = decode_transcript(stored)
    assert encode(again.messages, WIRE, origin=again.info.origin or None) == items
    return stretches(decoded.messages)


def view(messages: Iterable[Message]) -> tuple[AnyShown, ...]:
    return Viewer(Log(counter("classes"), messages), FOLDMARK).view().messages


def again(items: Sequence[Json]) -> list[Json]:
    """What is sent of a list that was read."""
    return request(view(decode(items, wire=WIRE).messages), WIRE)


def plain(value: Any) -> Any:
    """What pydantic validated, to the last block: it looks into lists only as they are read."""
    if isinstance(value, dict):
        return {name: plain(held) for name, held in cast("Json", value).items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [plain(held) for held in value]


def assert_taken(items: list[Json]) -> None:
    """The API's own types know all of it, and every call has its result after it."""
    assert plain(TAKEN.validate_python(items)) == items
    open_calls: set[str] = set()
    seen: set[str] = set()
    for held, after in zip(items, [*items[1:], {}], strict=True):
        kind = held["type"]
        assert kind != "reasoning" or after.get("type") not in (None, "function_call_output")
        if kind.endswith("_call") and isinstance(held.get("call_id"), str):
            assert held["call_id"] not in open_calls
            open_calls.add(held["call_id"])
        elif kind.endswith("_output"):
            open_calls.remove(held["call_id"])
        if "id" in held:
            assert held["id"] not in seen
            seen.add(held["id"])
    assert not open_calls


# --- nothing is lost --------------------------------------------------------------------------


@pytest.mark.parametrize("items", [[held] for held in MODEL_SIDE + USER_SIDE] + [*PAIRS], ids=str)
def test_an_item_of_any_kind_comes_back_as_it_was(items: Sequence[Json]) -> None:
    assert back([asked("Go"), *items]) == 0
    assert back([*items]) == 0


def test_a_list_of_all_kinds_comes_back_without_being_kept_as_it_came() -> None:
    pairs = [[{**held, "call_id": f"c{n}"} for held in pair] for n, pair in enumerate(PAIRS)]
    calls, results = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    items = [*USER_SIDE, *MODEL_SIDE, *calls, *results, *USER_SIDE, *MODEL_SIDE]
    assert back(items) == 0
    assert back([*calls, *reversed(results), *MODEL_SIDE]) == 0


def test_items_of_one_answer_are_one_message() -> None:
    items = [asked("Go"), thought(id="rs"), said(), call(), result(), said("Done")]
    messages = decode(items, wire=WIRE).messages
    assert [message.is_user for message in messages] == [True, False, False]
    kinds = [type(part) for part in messages[1].parts]
    assert kinds == [ReasoningPart, TextPart, ToolPart]
    ran = messages[1].parts[2]
    assert isinstance(ran, ToolPart)
    assert isinstance(ran.state, Completed)
    assert (ran.tool, ran.state.input, ran.state.output) == ("read", {"path": "a.py"}, "done")


def test_what_a_result_carries_can_be_read() -> None:
    for pair, text in ((PAIRS[7], "a.py"), (PAIRS[10], "web_search"), (PAIRS[5], '"JSON"')):
        part = decode(pair, wire=WIRE).messages[0].parts[0]
        assert isinstance(part, ToolPart)
        assert isinstance(part.state, Completed)
        assert text in part.state.output


def test_system_messages_lead_the_list_or_keep_their_role() -> None:
    leading, later = asked("A", role="developer"), asked("B", role="developer")
    items = [leading, asked("Hi"), later, asked("C"), said()]
    decoded = decode(items, wire=WIRE)
    assert decoded.origin.system == "A"
    assert options(decoded.messages[1].info.wire, "openai")["role"] == "developer"
    assert back(items) == 0
    # A view puts what is said without an answer into one message; the roles are kept.
    assert [held["role"] for held in again(items)] == ["user", "developer", "user", "assistant"]


def test_what_is_odd_comes_back_too() -> None:
    late = [call("c1"), asked("Wait"), result("c1"), said()]
    assert back(late) == 1
    assert back([result("c9"), said(), result("c9")]) == 0  # results of no call
    assert back([call("c1"), call("c1"), result("c1"), result("c1")]) <= 1
    assert back([item("reasoning", id="rs"), said()]) == 1  # without a summary
    assert back([PAIRS[6][0], result("c1")]) == 1  # the result of another kind


names = st.sampled_from(("c1", "c2", "c3", ""))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from(("id", "status", "output", "tools", "x")), json_values)
kinds = st.sampled_from(
    (
        "x",
        "x_call",
        "x_call_output",
        "tool_search_output",
        "shell_call",
        "compaction",
        "reasoning_x",
    )
)
odd_items = st.builds(
    lambda kind, name, more: {**more, "type": kind, "call_id": name},
    kinds,
    names | st.none(),
    fields,
)
usual_items = st.one_of(
    st.sampled_from(MODEL_SIDE + USER_SIDE),
    st.builds(call, names, st.sampled_from(("{}", '{"a":1}', "{ }", "[", ""))),
    st.builds(result, names, json_values),
    st.builds(
        lambda pair, name, at: {**pair[at], "call_id": name},
        st.sampled_from(PAIRS),
        names,
        st.integers(0, 1),
    ),
)


@given(st.lists(usual_items | odd_items, max_size=14))
def test_any_list_comes_back_and_something_of_it_can_be_sent(items: list[Json]) -> None:
    back(items)
    again(items)


def rollouts(folder: Path) -> Iterator[tuple[str, list[Json]]]:
    """The items of each recorded session of Codex, and those it went on with when compacted."""
    for path in sorted((folder / "codex").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        yield path.name, [line["payload"] for line in lines if line["type"] == "response_item"]
        for line in lines:
            if replacement := line["payload"].get("replacement_history"):
                yield path.name, replacement


def test_every_recorded_session_comes_back_as_it_was(corpus: Path) -> None:
    found = list(rollouts(corpus))
    assert len(found) >= 8
    kept = {name: back(items) for name, items in found}
    assert sum(kept.values()) == 0, kept


# --- requests ---------------------------------------------------------------------------------


@given(sessions())
def test_what_a_view_shows_is_taken_by_the_api(messages: list[Message]) -> None:
    items = request(view(messages), WIRE)
    assert_taken(items)
    assert len(items) >= len(view(messages)) - 1


def test_recorded_sessions_are_taken_by_the_api(corpus: Path) -> None:
    for _, items in rollouts(corpus):
        sent = again(items)
        for held in sent:
            if held["type"] == "reasoning":
                held.setdefault("id", f"rs_{id(held)}")  # Codex leaves it out, as the API allows
        assert_taken(sent)
        assert "passthrough" not in json.dumps(sent)


def test_a_conversation_with_its_own_provider_goes_back_as_it_came() -> None:
    items = [
        asked("Go"),
        thought("Look.", id="rs_1", encrypted_content="gAAA"),
        said("I look.", id="msg_1", status="completed", phase="commentary"),
        call(id="fc_1", status="completed"),
        item("custom_tool_call", call_id="c2", name="patch", input="***", id="ctc_1"),
        result(),
        item("custom_tool_call_output", call_id="c2", output="ok"),
        item("compaction", id="cmp_1", encrypted_content="gAAA"),
        asked("And now?"),
        item(
            "web_search_call",
            id="ws_1",
            status="completed",
            action={"type": "search", "query": "q"},
        ),
        said("Done.", id="msg_2", status="completed"),
    ]
    for held in items:
        if held.get("role") == "assistant":
            held["content"][0]["annotations"] = []
    sent = again(items)
    assert sent == items
    assert_taken(sent)


def test_items_whose_thinking_is_gone_lose_the_ids_that_ask_for_it() -> None:
    search = item("web_search_call", id="ws_1", status="completed", action={})
    made = [said("I look.", id="msg_1"), search, call(id="fc_1")]
    for gone in (thought("Look.", id="rs_1"), thought(encrypted_content="gAAA")):
        sent = again([asked("Go"), gone, *made, result()])
        assert not any("id" in held for held in sent)
        assert "web_search_call" not in [held["type"] for held in sent]
    sent = again([asked("Go"), thought(id="rs_1", encrypted_content="gAAA"), *made, result()])
    assert [held.get("id") for held in sent] == [None, "rs_1", "msg_1", "ws_1", "fc_1", None]


def test_thinking_without_what_it_led_to_is_left_out() -> None:
    alone = thought("Hm.", id="rs_1", encrypted_content="gAAA")
    assert [held["type"] for held in again([asked("Go"), alone, asked("Go on")])].count(
        "reasoning"
    ) == 0
    shown = [FromUser(content=(Text(text="Go"),)), *view(decode([alone], wire=WIRE).messages)]
    sent = request([*shown, *view(decode([alone, said(" ")], wire=WIRE).messages)], WIRE)
    assert "gAAA" not in json.dumps(sent)
    assert_taken(sent)


def test_an_id_is_sent_once_and_only_where_it_is_one() -> None:
    items = [asked("Go"), said("A", id="msg_1"), asked("Go"), said("B", id="msg_1")]
    items += [asked("Go"), said("C", id="x" * 70), call("c1", id="call_1"), result()]
    sent = again(items)
    assert [held["id"] for held in sent if "id" in held] == ["msg_1"]
    assert_taken(sent)


def test_a_result_without_a_call_is_sent_as_words() -> None:
    sent = again([asked("Go"), result("gone", "the output"), said()])
    assert_taken(sent)
    assert [held["type"] for held in sent] == ["message"] * len(sent)
    assert "the output" in json.dumps(sent)
    kept = again(
        [asked("Go"), item("item_reference", id="fc_1"), result("c7", "the output"), said()]
    )
    assert result("c7", "the output") in kept  # of the call that is stored


@pytest.mark.parametrize("pair", PAIRS[7:12], ids=lambda pair: pair[0]["type"])
def test_a_call_of_openais_own_tools_whose_result_is_pruned_becomes_a_function(
    pair: tuple[Json, Json],
) -> None:
    messages = decode([asked("Go"), *pair], wire=WIRE).messages
    shown = list(view(messages))
    tools = shown[-1]
    assert isinstance(tools, FromTools)
    whole = request(shown, WIRE)
    was_of_its_kind = pair[1]["type"] != "function_call_output"
    assert (whole[1]["type"] == pair[0]["type"]) == was_of_its_kind
    hidden = Result(
        tool_call_id="c1",
        tool_name=tools.content[0].tool_name,
        output=Output(type="text", value="[Hidden]"),
        provider_options=tools.content[0].provider_options,
    )
    sent = request([*shown[:-1], FromTools(content=(hidden,))], WIRE)
    assert_taken(sent)
    assert sent[-1]["output"] == "[Hidden]"


def test_files_are_sent_where_they_may_stand() -> None:
    png = Media(data=PNG, media_type="image/png", filename="shot.png")
    pdf, local = (
        Media(data=PDF, media_type="application/pdf"),
        Media(data="file:///a", media_type="a/b"),
    )
    ran = Result(
        tool_call_id="a b",
        tool_name="re ad",
        output=Output(type="text", value="seen"),
        attachments=(png,),
    )
    used = ShownCall(tool_call_id="a b", tool_name="re ad", input={})
    sent = request(
        [
            FromUser(content=(Text(text=" "), png, pdf, local)),
            FromAssistant(content=(png, used)),
            FromTools(content=(ran,)),
            FromUser(content=(Text(text=" "),)),
        ],
        WIRE,
    )
    assert_taken(sent)
    image = {"type": "input_image", "image_url": PNG, "detail": "auto"}
    file = {"type": "input_file", "file_data": PDF, "filename": "file.pdf"}
    note = {"type": "input_text", "text": "[A file that cannot be shown here: a file]"}
    assert sent[0]["content"] == [image, file, note]
    assert sent[1]["content"] == "[A file that cannot be shown here: an image]"
    assert sent[2]["call_id"] == sent[3]["call_id"] != "a b"
    assert sent[3]["output"] == [{"type": "input_text", "text": "seen"}, image]
    assert sent[4]["content"][0]["text"] == NOTHING_TO_READ


def test_what_opencode_keeps_goes_back_to_openai() -> None:
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
    sent = request(view(messages), WIRE)
    assert sent[1] == thought("One.", "Two.", id="rs_1", encrypted_content="gAAA")
    assert [held.get("id") for held in sent] == [None, "rs_1", "msg_1", "fc_1", None]
    assert_taken(sent)


# --- other providers --------------------------------------------------------------------------


def test_what_anthropic_signed_is_not_sent_to_openai() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "SIGNED"}
    redacted = {"type": "redacted_thinking", "data": "SECRET"}
    server = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    done = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "text"}
    messages: list[Json] = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [thinking, redacted, server, use]},
        {"role": "user", "content": [done]},
        {"role": "assistant", "content": [thinking]},
        {"role": "user", "content": "Go on"},
    ]
    sent = request(view(decode(messages, wire="anthropic").messages), WIRE)
    assert_taken(sent)
    assert [held["type"] for held in sent[:3]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    told = json.dumps(sent)
    assert not any(word in told for word in ("SIGNED", "SECRET", "server_tool_use"))


def test_what_openai_encrypted_is_not_sent_to_anthropic() -> None:
    items = [asked("Go"), thought("Hm.", id="rs_1", encrypted_content="gAAA"), call(id="fc_1")]
    items += [result(), item("compaction", encrypted_content="gAAA"), said("Done", id="msg_1")]
    told = json.dumps(request(view(decode(items, wire=WIRE).messages), "anthropic"))
    assert not any(word in told for word in ("gAAA", "rs_1", "fc_1", "msg_1", "compaction"))
    assert "tool_use" in told


# --- responses --------------------------------------------------------------------------------

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def response(*output: Json, **more: Any) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "gpt-5",
        "status": "completed",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **more,
    }


@pytest.mark.parametrize(
    "output",
    [
        MODEL_SIDE,
        [call(), *MODEL_SIDE, call("c2")],
        [PAIRS[7][0], PAIRS[7][1], said()],  # run by the provider
        [asked("Hi"), item("compaction", encrypted_content="gAAA")],
        [result("c9")],
        [],
    ],
    ids=("made", "called", "hosted", "compacted", "orphan", "empty"),
)
def test_a_response_comes_back_as_it_was(output: list[Json]) -> None:
    given_ = response(*output)
    message = decode_reply(given_, wire=WIRE)
    assert encode_reply(message, WIRE) == given_
    assert "whole" not in options(message.info.wire, "openai")


def test_the_objects_of_the_sdk_are_read_as_well() -> None:
    text = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
    made = item("message", role="assistant", id="msg_1", status="completed", content=[text])
    given_ = response(thought("Hm.", id="rs_1"), made, call(id="fc_1", status="completed"))
    message = decode_reply(Response.model_validate(given_), wire=WIRE)
    assert encode_reply(message, WIRE) == given_
    info = message.info
    assert isinstance(info, AssistantInfo)
    assert (info.finish, info.model_id) == ("tool-calls", "gpt-5")
    tokens = json.loads(
        encode_transcript(Transcript(info=SessionInfo(id="s"), messages=(message,)))
    )
    assert tokens["messages"][0]["info"]["tokens"] == {
        "input": 30,
        "output": 20,
        "reasoning": 5,
        "total": 120,
        "cache": {"read": 60, "write": 10},
    }


def test_how_a_response_ended_is_told() -> None:
    def finish(*output: Json, **more: Any) -> str:
        info = decode_reply(response(*output, **more), wire=WIRE).info
        assert isinstance(info, AssistantInfo)
        return str(info.finish)

    def cut(reason: str) -> Json:
        return {"status": "incomplete", "incomplete_details": {"reason": reason}}

    assert finish(said()) == "stop"
    assert finish(said(), PAIRS[6][0]) == "tool-calls"
    assert finish(said(), **cut("max_output_tokens")) == "length"
    assert finish(said(), **cut("content_filter")) == "content-filter"
    assert finish(said(), status="failed", usage=None) == "other"


# --- recognising, and what is no list at all --------------------------------------------------


def test_a_list_is_recognised_by_the_types_of_its_items() -> None:
    codec = OpenAIResponses()
    assert codec.recognises([asked("Hi"), said(), call(), result(), thought()])
    assert codec.recognises([{"role": "user", "content": "Hi"}, call()])
    assert not codec.recognises([{"role": "user", "content": "Hi"}])
    assert not codec.recognises([])
    others: list[Json] = [
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"type": "user", "message": {}},
    ]
    assert not any(codec.recognises([asked("Hi"), other]) for other in others)
    assert codec.recognises_reply(response(said()))
    assert not codec.recognises_reply({"type": "message", "role": "assistant", "content": []})


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"type": 5},
        {"type": "message"},
        {"type": "message", "role": "critic", "content": []},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "user", "content": ["Hi"]},
        {"role": "user", "content": [{"type": "input_text"}]},
        {"type": "reasoning", "summary": "Hm."},
        {"type": "function_call", "call_id": "c1", "name": "read"},
        {"type": "function_call", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "read", "input": {}},
    ],
    ids=str,
)
def test_what_is_no_item_is_refused_with_its_place(broken: Json) -> None:
    with pytest.raises(BadInput, match="message 2"):
        decode([asked("Hi"), broken], wire=WIRE)


WORDS = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary", "text")
SAID = ("message", "reasoning", "function_call", "x_call", "user", "input_text", "input_image")
wild = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.sampled_from(SAID)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=2), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(st.lists(wild, max_size=4), st.dictionaries(st.sampled_from(("output", "usage")), wild))
def test_anything_else_is_refused_and_never_breaks(items: list[Any], reply: Json) -> None:
    OpenAIResponses().recognises([held for held in items if isinstance(held, dict)])
    try:
        decoded = decode(items, wire=WIRE)
        request(view(decoded.messages), WIRE)
    except BadInput:
        pass
    else:
        assert encode(decoded.messages, WIRE, origin=decoded.origin) == items
    try:
        message = decode_reply({"object": "response", **reply}, wire=WIRE)
    except BadInput:
        return
    assert encode_reply(message, WIRE) == {"object": "response", **reply}


def test_arguments_nested_beyond_measure_are_kept_as_the_text_they_are() -> None:
    for arguments in ("[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, '{"a":1e999}', "\ud800"):
        items = [call(arguments=arguments), result()]
        decoded = decode(items, wire=WIRE)
        assert encode(decoded.messages, WIRE) == items
        json.loads(request(view(decoded.messages), WIRE)[1]["arguments"])
