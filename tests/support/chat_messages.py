"""Lists of OpenAI's chat: made by hand, generated, and of the corpus."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.support.session_strategies import PNG

Json = dict[str, Any]
WAV = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
PICTURE = {"type": "image_url", "image_url": {"url": PNG}}
PDF = "data:application/pdf;base64,JVBERi0="


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


def old_call(arguments: str, name: str = "f") -> Json:
    return said(None, function_call={"name": name, "arguments": arguments})


def old_result(content: Any, name: str = "f") -> Json:
    return {"role": "function", "name": name, "content": content}


RAW = ("", " ", "{", "[1]", '"x"', '{"a":1e999}', '{"a":NaN}', '{"a":"\\ud83d"}', "{" * 5000)
LISTS: dict[str, list[Json]] = {
    "plain": [{"role": "system", "content": "Be brief."}, user(), said()],
    "two prompts": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "d"},
        {"role": "system", "content": "Be kind."},
        user(),
    ],
    "prompts amid the rest": [
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
    "the old kind of call": [
        old_call("{}"),
        old_result("1"),
        old_call("{ }"),
        old_result(None),
        said(function_call=None, tool_calls=None),
        said(tool_calls=[]),
    ],
    "what vendors add": [
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
    "a call of no type": [calling({**call("a"), "type": None}), tool("a")],
    "results without calls": [
        user(),
        tool("gone"),
        said(),
        tool("gone", None),
        old_result("1"),
        tool("gone"),
    ],
    "ids used twice": [calling(call("a"), call("a")), tool("a"), tool("a"), calling(call("a"))],
    "SWE-agent's results": [
        calling(call("a")),
        {"role": "tool", "content": "1", "tool_call_ids": ["a"], "agent": "main"},
    ],
    "calls without results": [calling(call("a")), user(), calling(call("b")), tool("b"), user()],
    "fields named like our notes": [
        user(verbatim=[user("Other")], covers=1, fields={"a": 1}, form="list", joined=1),
        user([{"type": "text", "text": "a", "block": {"type": "text"}, "under": ["b"]}]),
        calling(call("a", kind="custom", arguments="{}", result={"outline": []})),
        tool("a", outline=[{"chars": 1}], form="null", no_id=True, order=1),
    ],
}
ODD: list[list[Json]] = [
    [calling(call("a")), user(), tool("a")],
    [old_call(""), tool("function_f")],
]


def corpus_lists(corpus: Path) -> Iterator[tuple[str, list[Json]]]:
    """Every list of chat messages that there is, with the name of its file."""
    for path in sorted((corpus / "openai-chat").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield path.name, json.loads(line)["messages"]
    for path in sorted((corpus / "tau-bench").glob("*.json")):
        for run in json.loads(path.read_bytes()):
            yield path.name, run["traj"]
    for path in sorted((corpus / "mini-swe-agent").glob("*.json")):
        yield path.name, json.loads(path.read_bytes())["messages"]
    for path in sorted((corpus / "swe-agent").glob("*.traj")):
        yield path.name, json.loads(path.read_bytes())["history"]


# --- generated ------------------------------------------------------------------------------

NAMES = (
    *("role", "content", "type", "text", "name", "tool_calls", "tool_call_id", "function"),
    *("function_call", "arguments", "id", "refusal", "audio", "transcript", "reasoning_content"),
    *("reasoning", "image_url", "url", "input_audio", "data", "format", "file", "file_data"),
    *("custom", "input", "choices", "message", "usage", "prompt_tokens", "tool_call_ids"),
    *("block", "fields", "form", "kind", "under", "verbatim", "covers", "result", "order"),
)
TAGS = ("user", "assistant", "tool", "function", "system", "text", "image_url", "custom")
words = st.sampled_from(["", " ", "fix it", "日本", "a\nb", "é"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
leaves: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e6, 1e6) | words
)
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda held: st.lists(held, max_size=3) | st.dictionaries(words, held, max_size=3)
)
given_objects = st.dictionaries(words, values, max_size=3)
unknown = st.dictionaries(st.sampled_from(("weight", "x", "verbatim", "form")), values, max_size=2)
thoughts = st.dictionaries(st.sampled_from(("reasoning_content", "reasoning")), words, max_size=2)
few = st.sampled_from(("a", "b", ""))


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """JSON, compact or not, or no JSON at all."""
    given = draw(given_objects)
    compact = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    return draw(st.sampled_from((compact, json.dumps(given), draw(words))))


@st.composite
def contents(draw: st.DrawFn, *, files: bool = True) -> Any:
    """A text, a list of parts, or nothing."""
    if draw(st.booleans()):
        return draw(words)
    parts: list[Json] = []
    for number in range(draw(st.integers(0, 3))):
        text = {**draw(unknown), "type": "text", "text": draw(words)}
        picks = (text, text, WAV, PICTURE) if files else (text,)
        parts.append(draw(st.sampled_from(picks)) if number else text)
    return parts


@st.composite
def sayings(draw: st.DrawFn) -> Json:
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
    """A call or more, each with its result, in any order."""
    ids = [f"call_{number}_{place}" for place in range(draw(st.integers(1, 3)))]
    calls = [call(held, draw(arguments())) for held in ids]
    answers = [tool(held, draw(st.none() | contents()), **draw(unknown)) for held in ids]
    return [calling(*calls, **draw(unknown)), *draw(st.permutations(answers))]


@st.composite
def valid_lists(draw: st.DrawFn) -> list[Json]:
    """Lists that a server takes, but for fields that it may not know."""
    messages: list[Json] = []
    for number in range(draw(st.integers(0, 6))):
        messages += draw(turns(number)) if draw(st.booleans()) else [draw(sayings())]
    return messages


@st.composite
def odd_messages(draw: st.DrawFn) -> Json:
    """Messages with few ids: results without calls, and calls that share theirs."""
    match draw(st.integers(0, 5)):
        case 0 | 1:
            return tool(draw(few), draw(st.none() | contents()), **draw(unknown))
        case 2:
            ids = draw(st.lists(few, max_size=3))
            return calling(*(call(held, draw(arguments())) for held in ids))
        case 3:
            return old_call(draw(arguments()), draw(few))
        case 4:
            return old_result(draw(words), draw(few))
        case _:
            return draw(sayings())


odd_lists = st.lists(odd_messages(), max_size=10)
wild: st.SearchStrategy[Any] = st.recursive(
    leaves | st.sampled_from(TAGS),
    lambda held: (
        st.lists(held, max_size=3) | st.dictionaries(st.sampled_from(NAMES), held, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def nearly_messages(draw: st.DrawFn) -> Json:
    """Objects with the names of chat's fields, and anything in them."""
    message = draw(st.dictionaries(st.sampled_from(NAMES), wild, max_size=4))
    return {**message, "role": draw(st.sampled_from(TAGS[:5]))}
