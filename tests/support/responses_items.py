"""Items of the Responses API, of every kind, and what tests ask of lists of them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    Message,
    SessionInfo,
    Transcript,
    decode_transcript,
)
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode as to_json
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.wire.formats import decode, encode, request
from tests.support.api_lists import verbatim
from tests.support.session_strategies import PNG

Json = dict[str, Any]
WIRE = "openai-responses"
PDF = "data:application/pdf;base64,JVBERi0="
TURN: Json = {"internal_chat_message_metadata_passthrough": {"turn_id": "t1"}}


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


def back(items: Sequence[Json]) -> int:
    """Read a list and write it back; how many stretches could only be kept as they came."""
    decoded = decode(items, wire=WIRE)
    assert encode(decoded.messages, WIRE, origin=decoded.origin) == items
    info = SessionInfo(id="s", origin=decoded.origin)
    stored = to_json(Transcript(info=info, messages=decoded.messages))
    again = decode_transcript(stored)
    assert encode(again.messages, WIRE, origin=again.info.origin or None) == items
    return verbatim(decoded.messages, WIRE)


def view(messages: Iterable[Message]) -> tuple[PromptMessage, ...]:
    return Viewer(Log(counter("classes"), messages), FOLDMARK).view().messages


def again(items: Sequence[Json]) -> list[Json]:
    """What is sent of a list that was read."""
    return request(view(decode(items, wire=WIRE).messages), WIRE)


def rollouts(folder: Path) -> Iterator[tuple[str, list[Json]]]:
    """The items of each recorded session of Codex, and those it went on with when compacted."""
    for path in sorted((folder / "codex").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        yield path.name, [line["payload"] for line in lines if line["type"] == "response_item"]
        for line in lines:
            if replacement := line["payload"].get("replacement_history"):
                yield path.name, replacement
