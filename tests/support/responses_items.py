"""Items of OpenAI's Responses API in tests, of every kind."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from openai.types.responses import Response

from foldmark.model.messages import Cache, Tokens
from foldmark.wire.codec import NOTHING_TO_READ
from tests.support.api_lists import PDF, FormatCases, Json, any_json
from tests.support.session_strategies import PNG

WIRE = "openai-responses"
TURN: Json = {"internal_chat_message_metadata_passthrough": {"turn_id": "t1"}}


def assistant(text: str = "Hi", **more: Any) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


def user(*content: Json | str, role: str = "user", **more: Any) -> Json:
    blocks = [
        {"type": "input_text", "text": block} if isinstance(block, str) else block
        for block in content
    ]
    return {"type": "message", "role": role, "content": blocks, **more}


def reasoning(*texts: str, **more: Any) -> Json:
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
    assistant(),
    assistant("Done.", id="msg_1", status="completed", phase="final_answer", **TURN),
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
    reasoning(id="rs_1", encrypted_content="gAAA", **TURN),
    reasoning("First.", "", "Third.", id="rs_2", encrypted_content="gAAA", status="completed"),
    reasoning("", id="rs_3", content=None),
    reasoning(content=[{"type": "reasoning_text", "text": "I think."}]),
    item("reasoning", id="rs_4", summary=[{"type": "summary_text", "text": "a", "more": 1}]),
    item("web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "q"}),
    item("file_search_call", id="fs_1", queries=["q"], status="completed", results=None),
    item(
        "code_interpreter_call",
        id="ci_1",
        code="1",
        container_id="c",
        outputs=None,
        status="completed",
    ),
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
    user("Hello"),
    user("Look", IMAGE, {"type": "input_image", "file_id": "f1", "detail": "auto"}, id="m", **TURN),
    user({"type": "input_file", "file_data": PDF, "filename": "a.pdf"}),
    user({"type": "input_file", "file_url": "https://x.org/a.pdf"}),
    user({"type": "input_file", "file_data": "raw", "file_id": None}),
    user({"type": "input_image", "image_url": "https://x.org/a"}),
    user({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}),
    user(),
    user("Be brief.", role="developer", **TURN),
    user("Be kind.", role="system"),
    {"role": "developer", "content": "Be short."},
    {"role": "user", "content": "Short."},
    {"role": "user", "content": [{"type": "input_text", "text": "Untyped.", "extra": 1}]},
    item("mcp_approval_response", approval_request_id="a", approve=True),
    item("additional_tools", role="developer", tools=[]),
]
SHELL = {"commands": ["ls"], "timeout_ms": None}
RAN = [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
LOCAL: Json = {"type": "exec", "command": ["ls"], "env": {}}
SHOT = {"type": "computer_screenshot", "image_url": PNG}
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
        item("computer_call", call_id="c1", id="cu", pending_safety_checks=[], status="completed"),
        item("computer_call_output", call_id="c1", output=SHOT),
    ),
    (item("tomorrows_call", call_id="c1"), item("tomorrows_call_output", call_id="c1", more=1)),
]


# All calls under ids of their own, and their results.
PAIRED = [[{**item, "call_id": f"c{n}"} for item in pair] for n, pair in enumerate(PAIRS)]
CALLS, RESULTS = [pair[0] for pair in PAIRED], [pair[1] for pair in PAIRED]
LISTS = {
    "prompts, calls and results": [*USER_SIDE, *CALLS, *RESULTS],
    "results in another order": [*CALLS, *reversed(RESULTS)],
    "opaque": [
        user("Go"),
        reasoning("Hm.", id="rs_1", encrypted_content="gAAA"),
        call(id="fc_1"),
        result(),
        item("compaction", encrypted_content="gAAA"),
        assistant("Done", id="msg_1"),
    ],
}


def recorded_lists(corpus: Path) -> Iterator[list[Json]]:
    """The items of recorded Codex sessions, and the histories that replaced them."""
    for path in sorted((corpus / "codex").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        yield [line["payload"] for line in lines if line["type"] == "response_item"]
        for line in lines:
            if replacement := line["payload"].get("replacement_history"):
                yield replacement


# --- generated -----------------------------------------------------------------------------

# Whether the API accepts the types of tomorrow is unknown.
sendable = [item for item in MODEL_SIDE + USER_SIDE if "tomorrow" not in str(item)]
known_pairs = [pair for pair in PAIRS if "tomorrow" not in str(pair)]


@st.composite
def valid_lists(draw: st.DrawFn) -> list[Json]:
    """Items, calls with and without their results."""
    pieces = [*((item,) for item in sendable), *(pair[:1] for pair in known_pairs), *known_pairs]
    return [
        item for piece in draw(st.lists(st.sampled_from(pieces), max_size=12)) for item in piece
    ]


ids = st.sampled_from(("c1", "c2", "c3", ""))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from(("id", "status", "output", "tools", "x")), values)
kinds = st.sampled_from(
    ("x", "x_call", "x_call_output", "tool_search_output", "shell_call", "compaction", "odd")
)


def _with_id(item: Json, name: str | None) -> Json:
    return {**item, "call_id": name}


def _of_type(kind: str, fields: Json) -> Json:
    return {**fields, "type": kind}


odd_items = st.one_of(
    st.sampled_from(MODEL_SIDE + USER_SIDE),
    st.builds(call, ids, st.sampled_from(("{}", '{"a":1}', "{ }", "[", ""))),
    st.builds(result, ids, values),
    st.builds(_with_id, st.sampled_from([item for pair in PAIRS for item in pair]), ids),
    st.builds(_with_id, st.builds(_of_type, kinds, fields), ids | st.none()),
)
_NAMES = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary", "text")
_TYPES = ("message", "reasoning", "function_call", "x_call", "user", "input_text", "input_image")
wild = any_json(_NAMES, _TYPES)


def response(*output: Json, **more: Any) -> Json:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    }
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
        "usage": usage,
        **more,
    }


def _as_response(fields: Mapping[Any, Any]) -> Json:
    return {"object": "response", **fields}


def cut_off(reason: str) -> Json:
    details = {"reason": reason}
    return response(assistant(), status="incomplete", incomplete_details=details)


_TEXT: Json = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
IMAGE_NOTE = "[A file that cannot be shown here: an image]"
# The files of `messages_with_files` as the API accepts them.
FILES = [
    {"type": "input_image", "image_url": PNG, "detail": "auto"},
    {"type": "input_image", "image_url": "https://a.b/c", "detail": "auto"},
    {"type": "input_file", "file_data": PDF, "filename": "file.pdf"},
    {"type": "input_file", "file_data": "data:audio/mpeg;base64,AA==", "filename": "file.mpeg"},
    {"type": "input_file", "file_data": "data:audio/ogg;base64,AA==", "filename": "file.ogg"},
    {"type": "input_file", "file_data": "data:text/csv;base64,YSxi", "filename": "file.csv"},
    {"type": "input_file", "file_url": "data:text/markdown,a%20b"},
    {"type": "input_text", "text": IMAGE_NOTE},
]
REPLY = [
    reasoning("Hm.", id="rs_1"),
    item("message", role="assistant", id="msg_1", status="completed", content=[_TEXT]),
    call(id="fc_1", status="completed"),
]
CASES = FormatCases(
    user=user("Wait"),
    call=call,
    result=result,
    lists=LISTS,
    stretches={"results in another order": 1},
    odd_lists=[],
    valid=valid_lists(),
    odd=st.lists(odd_items, max_size=14),
    malformed=wild,
    malformed_replies=st.dictionaries(st.sampled_from(("output", "usage")), wild).map(_as_response),
    notes=wild,
    refused=[
        ({}, "an item has neither a type nor a role"),
        ({"type": 5}, "'type' is a number"),
        ({"type": "message"}, "the field 'role' is missing"),
        ({"role": "user", "content": None}, "'content' is null"),
        ({"role": "user", "content": ["Hi"]}, "'content' contains a string"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "the field 'text' is missing"),
        ({"type": "reasoning", "summary": "Hm."}, "'summary' is a string"),
        ({"type": "function_call", "call_id": "c1", "name": "read"}, "the field 'arguments'"),
        ({"type": "function_call", "name": "read", "arguments": "{}"}, "the field 'call_id'"),
        (item("custom_tool_call", call_id="c1", name="read", input={}), "'input' is an object"),
    ],
    opaque=("gAAA", "rs_1", "fc_1", "msg_1", "compaction"),
    readable=("Done",),
    files_request=[
        user(*FILES),
        item("message", role="assistant", content=IMAGE_NOTE),
        call("a"),
        call("b"),
        result("a", [{"type": "input_text", "text": "seen"}, *FILES]),
        result("b", FILES[:1]),
        user(NOTHING_TO_READ),
        item("message", role="assistant", content=NOTHING_TO_READ),
    ],
    reply=response(*REPLY),
    reply_messages=REPLY,
    sdk_reply=Response.model_validate,
    tokens=Tokens(input=30, output=20, reasoning=5, total=120, cache=Cache(read=60, write=10)),
    model="gpt-5",
    finishes=[
        (response(assistant()), "stop"),
        (response(assistant(), PAIRS[6][0]), "tool-calls"),
        (cut_off("max_output_tokens"), "length"),
        (cut_off("content_filter"), "content-filter"),
        (response(assistant(), status="failed", usage=None), "other"),
        (response(*MODEL_SIDE), "stop"),
        (response(call(), *MODEL_SIDE, call("c2")), "tool-calls"),
        (response(*PAIRS[7], assistant()), "stop"),  # run by the provider
        (response(user("Hi"), item("compaction", encrypted_content="gAAA")), "stop"),
        (response(result("c9")), "stop"),
        (response(), "stop"),
    ],
    recorded=recorded_lists,
    recorded_count=8,
)
