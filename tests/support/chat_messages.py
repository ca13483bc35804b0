"""Messages of OpenAI's Chat Completions API in tests: by hand, generated, and of the corpus."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from foldmark.model.messages import Cache, Tokens
from foldmark.wire.codec import NOTHING_TO_READ
from tests.support.api_lists import PDF, FormatCases, Json, any_json
from tests.support.session_strategies import PNG

WAV = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
PICTURE = {"type": "image_url", "image_url": {"url": PNG}}


def call(call_id: str, arguments: str = '{"path":"a.py"}', **more: Any) -> Json:
    function = {"name": "read", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **more}


def calling(*calls: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def tool(call_id: str, content: Any = "done", **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def user(content: Any = "Hello", **more: Any) -> Json:
    return {"role": "user", "content": content, **more}


def said(content: Any = "Hi", **more: Any) -> Json:
    return {"role": "assistant", "content": content, **more}


def legacy_call(arguments: str, name: str = "f") -> Json:
    return said(None, function_call={"name": name, "arguments": arguments})


def legacy_result(content: Any, name: str = "f") -> Json:
    return {"role": "function", "name": name, "content": content}


RAW = ("", " ", "{", "[1]", '"x"', '{"a":1e999}', '{"a":NaN}', '{"a":"\\ud83d"}', "{" * 5000)
LISTS: dict[str, list[Json]] = {
    "plain": [{"role": "system", "content": "Be brief."}, user(), said()],
    "two prompts": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "d"},
        {"role": "system", "content": "Be kind."},
        user(),
    ],
    "later prompts": [
        user(),
        {"role": "system", "content": "Now be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Now be long."}]},
        said(),
    ],
    "names": [user(name="ann"), said(name="bob")],
    "lists": [user([{"type": "text", "text": "a"}]), said([{"type": "text", "text": "b"}])],
    "no content": [user(None), said(None), {"role": "assistant"}, said([]), user([]), said("")],
    "media": [
        user(
            [
                {"type": "text", "text": "Look:", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}},
                {"type": "image_url", "image_url": {"url": PDF}, "more": 1},
                {"type": "image_url", "image_url": "https://a.b/c.png"},
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
                {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
                {"type": "file", "file": {"file_data": PDF, "filename": ""}},
                {"type": "file", "file": {"file_data": PDF}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "video_url", "video_url": {"url": "https://a.b/c.mp4"}},
            ]
        ),
        user([WAV]),
    ],
    "calls": [
        calling(call("a"), call("b", '{"path": "b.py"}')),
        tool("a"),
        tool("b", [{"type": "text", "text": "1"}, {"type": "text", "text": "2", "x": 1}]),
        calling(call("c"), content="I will read."),
        tool("c", name="read"),
        {"role": "assistant", "tool_calls": [call("d", index=0)]},
        tool("d", [PICTURE, {"type": "video_url"}]),
    ],
    "results in another order": [calling(call("a"), call("b")), tool("b"), tool("a")],
    "results without content": [
        calling(call("a"), call("b"), call("c"), call("d")),
        tool("a", None),
        {"role": "tool", "tool_call_id": "b"},
        tool("c", []),
        tool("d", ""),
    ],
    "arguments of any kind": [calling(*(call(f"c{n}", raw) for n, raw in enumerate(RAW)))],
    "calls of other kinds": [
        calling(
            {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
            {"id": "b", "function": {"name": "ls", "arguments": "{}"}},
            {"id": "c", "type": "builtin", "function": {"name": "web", "arguments": "{}", "x": 1}},
        ),
        tool("a"),
        tool("b"),
        tool("c"),
    ],
    "legacy calls": [
        legacy_call("{}"),
        legacy_result("1"),
        legacy_call("{ }"),
        legacy_result(None),
        said(function_call=None, tool_calls=None),
        said(tool_calls=[]),
    ],
    "fields of vendors": [
        said(reasoning_content="Hm.", refusal=None, annotations=[], audio=None),
        said(reasoning="Hm.", reasoning_content="Hm.", reasoning_details=[{"type": "x"}]),
        said(reasoning="Hm.", reasoning_content="Well.", reasoning_text=""),
        calling(call("a", extra_content={"google": {"thought_signature": "s"}})),
        tool("a", cache_control={"type": "ephemeral"}),
        said(None, refusal="No."),
        said([{"type": "refusal", "refusal": "No."}]),
        said(None, audio={"id": "a", "data": "AA==", "expires_at": 1, "transcript": "Hi."}),
        said([PICTURE]),
        user(tool_calls=None, turn=1),
    ],
    "opaque": [
        user(),
        said("Well.", reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
        user(),
        calling(call("a", extra_content={"google": {"thought_signature": "s"}})),
        tool("a"),
    ],
    "a call without a type": [calling({**call("a"), "type": None}), tool("a")],
    "results without calls": [
        user(),
        tool("gone"),
        said(),
        tool("gone", None),
        legacy_result("1"),
        tool("gone"),
    ],
    "ids used twice": [calling(call("a"), call("a")), tool("a"), tool("a"), calling(call("a"))],
    "SWE-agent's results": [
        calling(call("a")),
        {"role": "tool", "content": "1", "tool_call_ids": ["a"], "agent": "main"},
    ],
    "a late result": [calling(call("a")), user(), tool("a")],
    "a legacy call with another result": [legacy_call(""), tool("function_f")],
    "calls without results": [calling(call("a")), user(), calling(call("b")), tool("b"), user()],
    "fields named like our notes": [
        user(verbatim=[user("Other")], covers=1, fields={"a": 1}, form="list", joined=1),
        user([{"type": "text", "text": "a", "block": {"type": "text"}, "under": ["b"]}]),
        calling(call("a", kind="custom", arguments="{}", result={"outline": []})),
        tool("a", outline=[{"chars": 1}], form="null", no_id=True, order=1),
    ],
}


def recorded_lists(corpus: Path) -> Iterator[list[Json]]:
    """All lists of chat messages in the corpus."""
    for path in sorted((corpus / "openai-chat").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)["messages"]
    for path in sorted((corpus / "tau-bench").glob("*.json")):
        for run in json.loads(path.read_bytes()):
            yield run["traj"]
    for path in sorted((corpus / "mini-swe-agent").glob("*.json")):
        yield json.loads(path.read_bytes())["messages"]
    for path in sorted((corpus / "swe-agent").glob("*.traj")):
        yield json.loads(path.read_bytes())["history"]


# --- generated ------------------------------------------------------------------------------

NAMES = (
    *("role", "content", "type", "text", "name", "tool_calls", "tool_call_id", "function"),
    *("function_call", "arguments", "id", "refusal", "audio", "transcript", "reasoning_content"),
    *("reasoning", "image_url", "url", "input_audio", "data", "format", "file", "file_data"),
    *("custom", "input", "choices", "message", "usage", "prompt_tokens", "tool_call_ids"),
    *("block", "fields", "form", "kind", "under", "verbatim", "covers", "result", "order"),
)
TAGS = ("user", "assistant", "tool", "function", "system", "text", "image_url", "custom")
texts = st.sampled_from(["", " ", "fix it", "日本", "a\nb", "é"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
leaves: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e6, 1e6) | texts
)
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
unknown = st.dictionaries(st.sampled_from(("weight", "x", "verbatim", "form")), values, max_size=2)
thoughts = st.dictionaries(st.sampled_from(("reasoning_content", "reasoning")), texts, max_size=2)
few = st.sampled_from(("a", "b", ""))


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """Arguments that are JSON, compact or not, or not JSON at all."""
    value = draw(st.dictionaries(texts, values, max_size=3))
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return draw(st.sampled_from((compact, json.dumps(value), draw(texts))))


@st.composite
def contents(draw: st.DrawFn, *, files: bool = True) -> Any:
    """A text, a list of parts, or nothing."""
    if draw(st.booleans()):
        return draw(texts)
    parts: list[Json] = []
    for number in range(draw(st.integers(0, 3))):
        text = {**draw(unknown), "type": "text", "text": draw(texts)}
        picks = (text, text, WAV, PICTURE) if files else (text,)
        parts.append(draw(st.sampled_from(picks)) if number else text)
    return parts


@st.composite
def plain_messages(draw: st.DrawFn) -> Json:
    """A message without calls."""
    match draw(st.integers(0, 3)):
        case 0:
            return user(draw(contents()), **draw(unknown))
        case 1:
            role = draw(st.sampled_from(("system", "developer")))
            return {"role": role, "content": draw(contents(files=False))}
        case 2:
            return said(draw(contents(files=False)), **draw(unknown), **draw(thoughts))
        case _:
            return said(None, **draw(unknown), **draw(thoughts))


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Json]:
    """Some calls and their results in any order."""
    ids = [f"call_{number}_{index}" for index in range(draw(st.integers(1, 3)))]
    calls = [call(call_id, draw(arguments())) for call_id in ids]
    results = [tool(call_id, draw(st.none() | contents()), **draw(unknown)) for call_id in ids]
    return [calling(*calls, **draw(unknown)), *draw(st.permutations(results))]


@st.composite
def valid_lists(draw: st.DrawFn) -> list[Json]:
    """Lists that servers accept, except for unknown fields."""
    messages: list[Json] = []
    for number in range(draw(st.integers(0, 6))):
        messages += draw(turns(number)) if draw(st.booleans()) else [draw(plain_messages())]
    return messages


@st.composite
def odd_messages(draw: st.DrawFn) -> Json:
    """Messages with few ids: results without calls, and calls that share an id."""
    match draw(st.integers(0, 5)):
        case 0 | 1:
            return tool(draw(few), draw(st.none() | contents()), **draw(unknown))
        case 2:
            ids = draw(st.lists(few, max_size=3))
            return calling(*(call(call_id, draw(arguments())) for call_id in ids))
        case 3:
            return legacy_call(draw(arguments()), draw(few))
        case 4:
            return legacy_result(draw(texts), draw(few))
        case _:
            return draw(plain_messages())


wild = any_json(NAMES, TAGS)


@st.composite
def nearly_messages(draw: st.DrawFn) -> Json:
    """Objects with the fields of messages and arbitrary values."""
    message = draw(st.dictionaries(st.sampled_from(NAMES), wild, max_size=4))
    return {**message, "role": draw(st.sampled_from(TAGS[:5]))}


@st.composite
def malformed_replies(draw: st.DrawFn) -> Json:
    choices = draw(wild | st.lists(st.fixed_dictionaries({"message": nearly_messages()})))
    return {"choices": choices, "usage": choices, "model": choices}


def file_note(name: str) -> str:
    return f"[A file that cannot be shown here: {name}]"


# The files of `messages_with_files` as servers accept them.
FILES = [
    PICTURE,
    {"type": "image_url", "image_url": {"url": "https://a.b/c"}},
    {"type": "file", "file": {"file_data": PDF, "filename": "file"}},
    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
    {"type": "text", "text": file_note("audio/ogg")},
    {"type": "file", "file": {"file_data": "data:text/csv;base64,YSxi", "filename": "file"}},
    {"type": "text", "text": file_note("text/markdown")},
    {"type": "text", "text": file_note("a.png")},
]
REPLY: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                **calling(call("a", '{"path": "é"}'), content="Well."),
                "refusal": None,
                "annotations": [],
                "reasoning_content": "Hm.",
            },
        },
        {"index": 1, "finish_reason": "stop", "logprobs": None, "message": said(refusal="No.")},
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 8},
    },
}


def _call(name: str) -> Json:
    return calling(call(name))


CASES = FormatCases(
    user=user("Wait"),
    call=_call,
    result=tool,
    lists=LISTS,
    stretches={
        "results in another order": 1,
        "a late result": 1,
        "a legacy call with another result": 1,
    },
    odd_lists=[],
    valid=valid_lists(),
    odd=st.lists(odd_messages(), max_size=10),
    malformed=wild | nearly_messages(),
    malformed_replies=malformed_replies(),
    notes=wild,
    refused=[
        ({"content": "a"}, "the field 'role' is missing"),
        ({"role": "tool", "content": "a"}, "the field 'tool_call_id' is missing"),
        (calling({"name": "f", "arguments": {}}), "the field 'id' is missing"),
        (calling({"id": "a", "name": "f"}), "'function' is null, not an object"),
        (user(5), "'content' is a number, not a list"),
    ],
    opaque=("reasoning.encrypted", "thought_signature"),
    readable=("Well.",),
    files_request=[
        user(FILES),
        calling(call("a"), call("b"), content=file_note("shot.png")),
        tool("a", "seen"),
        tool("b", "[The file follows below.]"),
        user([{"type": "text", "text": "[Files that the tools gave back:]"}, *FILES, PICTURE]),
        user(NOTHING_TO_READ),
        said(NOTHING_TO_READ),
    ],
    reply=REPLY,
    reply_messages=[REPLY["choices"][0]["message"]],
    sdk_reply=ChatCompletion.model_validate,
    tokens=Tokens(input=36, output=20, reasoning=8, total=120, cache=Cache(read=64, write=0)),
    model="gpt-5",
    finishes=[
        ({"choices": [{"message": said(), "finish_reason": reason}], "usage": None}, finish)
        for reason, finish in {
            "stop": "stop",
            "function_call": "tool-calls",
            "length": "length",
            "content_filter": "content-filter",
            "paused": "other",
            None: "other",
        }.items()
    ],
    recorded=recorded_lists,
    recorded_count=81,
)
