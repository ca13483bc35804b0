"""Plain lists of messages in files: OpenAI's chat, Anthropic's, and the Responses API's items."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, Transcript
from foldmark.transcripts.format import Format, formats, recognize_format
from foldmark.transcripts.formats.api_lists import AnthropicLists, ChatLists, ResponsesLists
from foldmark.transcripts.read import read_file, read_sessions
from foldmark.transcripts.source import open_source
from foldmark.wire.formats import decode, encode
from tests.support.malformed_records import assert_acceptable, damaged_lines, read_leniently
from tests.support.view_lines import view_of

ANTHROPIC, RESPONSES, CHAT = AnthropicLists, ResponsesLists, ChatLists
SFT = "openai-chat/tau2_sft_train.jsonl"
XML = "openai-chat/swe-smith_ft_xml_example.jsonl"
Line = dict[str, Any]


def chat_call(name: str) -> Line:
    function = {"name": "ls", "arguments": '{"path": "."}'}
    return {"id": name, "type": "function", "function": function}


CHAT_LIST: list[Line] = [
    {"role": "system", "content": "Help."},
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": None, "tool_calls": [chat_call("c1")]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    {"role": "assistant", "content": "a.py is there", "refusal": None},
    {"role": "developer", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
]
ANTHROPIC_LIST: list[Line] = [
    {"role": "user", "content": "look"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "."}}],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "a.py"},
            {"type": "text", "text": "well?", "cache_control": {"type": "ephemeral"}},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "a.py is there"}]},
    {"role": "user", "content": "thanks"},
]
ITEM_LIST: list[Line] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}]},
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"path":"."}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a.py is there", "annotations": []}],
    },
]
PLAIN: list[Line] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
]
LISTS = {CHAT.name: CHAT_LIST, ANTHROPIC.name: ANTHROPIC_LIST, RESPONSES.name: ITEM_LIST}
FIELDS = {CHAT.name: "messages", ANTHROPIC.name: "messages", RESPONSES.name: "input"}
each_format = pytest.mark.parametrize("format", [CHAT, ANTHROPIC, RESPONSES], ids=lambda f: f.name)


def written(folder: Path, *lines: object, indent: int | None = None) -> Path:
    path = folder / "kept.json"
    path.write_text("".join(f"{json.dumps(line, indent=indent)}\n" for line in lines))
    return path


def again(session: Transcript, format: Format) -> list[Line]:
    return encode(session.messages, format.name, session.info.origin or None)


def names(path: Path) -> list[str]:
    """The formats that a file can be of."""
    with open_source(path) as source:
        return [format.name for format in formats() if format.recognizes(source.head)]


# --- shapes of files ------------------------------------------------------------------------


@each_format
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_is_a_session_and_is_written_back_unchanged(
    tmp_path: Path, format: Format, indent: int | None
) -> None:
    path = written(tmp_path, LISTS[format.name], indent=indent)
    assert names(path) == [format.name]
    (session,) = read_sessions(path)
    assert session.info.id == "kept"
    assert again(session, format) == LISTS[format.name]


@each_format
@pytest.mark.parametrize("indent", [None, 2])
def test_a_request_is_a_session_with_its_tools(
    tmp_path: Path, format: Format, indent: int | None
) -> None:
    body = {"model": "m", "tools": [{"name": "ls"}], FIELDS[format.name]: LISTS[format.name]}
    path = written(tmp_path, body, indent=indent)
    assert names(path) == [format.name]
    (session,) = read_sessions(path)
    assert again(session, format) == LISTS[format.name]
    assert session.info.origin
    assert session.info.origin.tools == [{"name": "ls"}]
    assert session.extra == {format.name: {"model": "m"}}


@each_format
def test_each_line_with_a_request_is_a_session(tmp_path: Path, format: Format) -> None:
    body = {FIELDS[format.name]: LISTS[format.name], "instance_id": "one"}
    path = written(tmp_path, body, {**body, "instance_id": "two"}, body)
    assert names(path) == [format.name]
    sessions = read_sessions(path)
    assert [session.info.id for session in sessions] == ["kept", "kept-2", "kept-3"]
    assert [session.info.title for session in sessions] == ["one", "two", "one"]
    assert all(again(session, format) == LISTS[format.name] for session in sessions)


@each_format
def test_lines_of_messages_are_one_session(tmp_path: Path, format: Format) -> None:
    path = written(tmp_path, *LISTS[format.name])
    assert names(path) == [format.name]
    (session,) = read_sessions(path)
    assert again(session, format) == LISTS[format.name]
    (whole,) = read_sessions(written(tmp_path, LISTS[format.name]))
    assert session.messages == whole.messages
    assert session.info == whole.info


@each_format
def test_each_line_with_a_list_is_a_session(tmp_path: Path, format: Format) -> None:
    path = written(tmp_path, LISTS[format.name], LISTS[format.name])
    sessions = read_sessions(path, format=format.name)
    assert [again(session, format) for session in sessions] == [LISTS[format.name]] * 2


@each_format
def test_messages_calls_and_results_are_counted(tmp_path: Path, format: Format) -> None:
    for lines in ([LISTS[format.name]], LISTS[format.name]):
        file = read_file(written(tmp_path, *lines))
        assert (file.messages, file.calls, file.results) == (len(LISTS[format.name]), 1, 1)


@each_format
def test_the_view_shows_the_messages_of_the_list(tmp_path: Path, format: Format) -> None:
    (session,) = read_sessions(written(tmp_path, LISTS[format.name]))
    lines = view_of(*session.messages)
    assert "call c1" in lines
    assert "text c1: a.py" in lines
    assert "assistant: a.py is there" in lines
    assert "user: look" in lines


# --- other fields of requests ---------------------------------------------------------------


def test_a_leading_system_message_is_the_system_prompt(tmp_path: Path) -> None:
    (session,) = read_sessions(written(tmp_path, CHAT_LIST))
    assert session.info.origin
    assert session.info.origin.system == "Help."
    assert view_of(*session.messages)[0] == "user: look"


@pytest.mark.parametrize(
    "system", ["Help.\n\nBe short.", [{"type": "text", "text": "Help."}, {"text": "Be short."}]]
)
def test_a_system_field_is_the_system_prompt(tmp_path: Path, system: Any) -> None:
    path = written(tmp_path, {"system": system, "messages": PLAIN, "max_tokens": 9})
    (session,) = read_sessions(path)
    assert session.info.origin
    assert session.info.origin.system == "Help.\n\nBe short."
    assert again(session, ANTHROPIC) == PLAIN
    if isinstance(system, list):
        assert session.info.origin.wire == {"anthropic": {"system": system}}


def test_instructions_and_a_text_are_a_session(tmp_path: Path) -> None:
    path = written(tmp_path, {"instructions": "Help.", "input": "hi", "model": "gpt-x"})
    (session,) = read_sessions(path, format=RESPONSES.name)
    assert session.info.origin
    assert session.info.origin.system == "Help."
    assert view_of(*session.messages) == ["user: hi"]


def test_a_log_of_litellm_ends_with_the_reply(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "a.py", "tool_calls": None}
    response = {
        "id": "x",
        "object": "chat.completion",
        "model": "openai/gpt-x",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
    log: Line = {
        "messages": [CHAT_LIST[1]],
        "kwargs": {"tools": [{"type": "function", "function": {"name": "ls"}}]},
        "response": response,
        "cost": 0.25,
        "timestamp": 1_700_000_000.5,
    }
    path = written(tmp_path, log)
    assert names(path) == [CHAT.name]
    (session,) = read_sessions(path)
    assert again(session, CHAT) == [CHAT_LIST[1], message]
    assert session.info.time
    assert session.info.time.created == 1_700_000_000_500
    assert session.info.origin
    assert session.info.origin.tools
    info = session.messages[-1].info
    assert isinstance(info, AssistantInfo)
    assert (info.provider_id, info.model_id, info.cost) == ("openai", "gpt-x", 0.25)
    assert info.tokens
    assert (info.tokens.total, info.finish) == (12, "stop")
    assert read_file(path).messages == 2


def test_replies_have_a_finish_reason(tmp_path: Path) -> None:
    for lines in ([CHAT_LIST], CHAT_LIST):
        (session,) = read_sessions(written(tmp_path, *lines))
        infos = [message.info for message in session.messages]
        finishes = [info.finish for info in infos if isinstance(info, AssistantInfo)]
        assert finishes == ["tool-calls", "stop"]


# --- recognition ----------------------------------------------------------------------------

CHAT_TOOL: Line = {"type": "function", "function": {"name": "ls"}}
ANTHROPIC_TOOL: Line = {"name": "ls", "input_schema": {"type": "object"}}


@pytest.mark.parametrize("lines", [[PLAIN], PLAIN, [{"messages": PLAIN}]])
def test_plain_texts_are_ambiguous_and_not_guessed(tmp_path: Path, lines: list[Any]) -> None:
    path = written(tmp_path, *lines)
    with open_source(path) as source, pytest.raises(BadInput, match="--format NAME") as refusal:
        recognize_format(source.head)
    assert "anthropic or openai-chat" in str(refusal.value)
    for format in (CHAT, ANTHROPIC):
        (session,) = read_sessions(path, format=format.name)
        assert again(session, format) == PLAIN


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"system": "Help."}, [ANTHROPIC.name]),
        ({"model": "claude-x", "max_tokens": 9}, [ANTHROPIC.name]),
        ({"anthropic_version": "2023-06-01"}, [ANTHROPIC.name]),
        ({"tools": [ANTHROPIC_TOOL]}, [ANTHROPIC.name]),
        ({"tools": [CHAT_TOOL]}, [CHAT.name]),
        ({"model": "gpt-x"}, [CHAT.name]),
        ({"parallel_tool_calls": True}, [CHAT.name]),
        ({"model": "claude-x", "tools": [CHAT_TOOL]}, [ANTHROPIC.name, CHAT.name]),
        ({"model": "llama", "max_tokens": 9}, [ANTHROPIC.name, CHAT.name]),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_other_fields_of_a_request_identify_its_api(
    tmp_path: Path, beside: Line, expected: list[str], indent: int | None
) -> None:
    assert names(written(tmp_path, {"messages": PLAIN, **beside}, indent=indent)) == expected
    if indent is None:
        assert names(written(tmp_path, *[{"messages": PLAIN, **beside}] * 2)) == expected


@pytest.mark.parametrize(
    ("late", "expected"),
    [(CHAT_LIST[3], CHAT.name), (ANTHROPIC_LIST[2], ANTHROPIC.name)],
)
def test_a_late_message_may_identify_the_api(tmp_path: Path, late: Line, expected: str) -> None:
    assert names(written(tmp_path, [*PLAIN * 20, late])) == [expected]
    assert names(written(tmp_path, {"messages": [*PLAIN * 20, late]})) == [expected]
    assert names(written(tmp_path, *PLAIN * 10, late)) == [expected]


def test_a_request_with_input_items_is_recognized(tmp_path: Path) -> None:
    assert names(written(tmp_path, {"model": "gpt-x", "input": PLAIN})) == [RESPONSES.name]
    item = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    assert names(written(tmp_path, [{**item, "type": "message"}])) == [RESPONSES.name]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        [3],
        [[]],
        {"messages": []},
        {"messages": 3},
        {"messages": [3]},
        {"messages": PLAIN, "info": {}, "trajectory_format": "mini-swe-agent-1"},
        {"messages": PLAIN, "sessionId": "s"},
        {"info": {}, "tasks": [], "simulations": [{"messages": PLAIN}]},
        [{"role": "user", "parts": [{"text": "hi"}]}],
        [{"role": "narrator", "content": "hi"}],
        [{"task_id": 1, "traj": PLAIN}],
        {"input": [{"type": "unknown"}]},
        {"tools": [3], "model": 3},
    ],
)
def test_other_values_are_not_recognized(tmp_path: Path, value: object) -> None:
    for indent in (None, 2):
        with open_source(written(tmp_path, value, indent=indent)) as source:
            assert not any(
                format.recognizes(source.head) for format in (CHAT, ANTHROPIC, RESPONSES)
            )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["user", "text", "hi", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "messages", "input", "tools", "text", "model", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(ANYTHING, min_size=1, max_size=3))
def test_recognition_raises_for_no_json(tmp_path_factory: Any, values: list[Any]) -> None:
    path = written(tmp_path_factory.getbasetemp(), *values)
    try:
        with open_source(path) as source:
            for format in formats():
                assert format.recognizes(source.head) in (True, False)
    except BadInput:
        assert not isinstance(values[0], dict | list)


# --- damaged lists ------------------------------------------------------------------------


@each_format
def test_a_malformed_message_is_refused_with_its_index_or_line(
    tmp_path: Path, format: Format
) -> None:
    broken: list[Line] = [LISTS[format.name][0], {"role": 3, "type": []}]
    with pytest.raises(BadInput) as refusal:
        read_sessions(written(tmp_path, broken), format=format.name)
    assert refusal.value.location
    assert "message 2" in refusal.value.location
    with pytest.raises(BadInput) as refusal:
        read_sessions(written(tmp_path, *broken), format=format.name)
    assert refusal.value.location
    assert refusal.value.location.startswith("line 2")


@each_format
@given(data=st.data())
def test_bent_lists_requests_and_messages_are_refused_or_readable(
    format: Format, data: st.DataObject
) -> None:
    whole = LISTS[format.name]
    body: Line = {FIELDS[format.name]: whole, "tools": [CHAT_TOOL], "system": "x", "response": {}}
    for session in read_leniently(format, data.draw(damaged_lines([whole, body, *whole]))):
        assert_acceptable(session.messages)
        assert len({message.id for message in session.messages}) == len(session.messages)


@each_format
@given(data=st.data())
def test_every_list_that_is_read_is_written_back_unchanged(
    format: Format, data: st.DataObject
) -> None:
    messages: list[Any] = data.draw(damaged_lines(LISTS[format.name]))
    sessions = read_leniently(format, [messages])
    if sessions:
        assert again(sessions[0], format) == messages


# --- real files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [SFT, XML])
def test_every_list_of_a_real_file_is_written_back_unchanged(corpus: Path, name: str) -> None:
    lines = [json.loads(line) for line in (corpus / name).read_bytes().splitlines()]
    for line, session in zip(lines, read_sessions(corpus / name), strict=True):
        assert again(session, CHAT) == line["messages"]
        assert session.info.origin
        assert (session.info.origin.tools or None) == line.get("tools")


def test_a_real_list_on_lines_of_its_own_is_read_the_same(corpus: Path, tmp_path: Path) -> None:
    first = json.loads((corpus / SFT).read_bytes().splitlines()[0])["messages"]
    (session,) = read_sessions(written(tmp_path, *first))
    assert again(session, CHAT) == first
    decoded = decode(first, CHAT.name)
    assert [message.parts for message in session.messages] == [
        message.parts for message in decoded.messages
    ]
