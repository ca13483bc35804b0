"""Gemini's contents in tests: made by hand, and of every kind that may occur."""

from typing import Any

from hypothesis import strategies as st

from tests.support.session_strategies import PNG

Json = dict[str, Any]
DATA = PNG.partition(",")[2]
SHOT = {"inlineData": {"mimeType": "image/png", "data": DATA}}
PAPER = {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://papers/one.pdf"}}
SEARCH = {"toolCall": {"id": "t", "args": {"q": "a"}}}  # a kind that we do not know
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}


def user(*parts: Json, **more: Any) -> Json:
    return {"role": "user", "parts": list(parts), **more}


def model(*parts: Json, **more: Any) -> Json:
    return {"role": "model", "parts": list(parts), **more}


def text(words: str = "Hello", **more: Any) -> Json:
    return {"text": words, **more}


def call(name: str = "read", call_id: str = "", **more: Any) -> Json:
    inner = {"name": name, "args": {"path": "a.py"}, **({"id": call_id} if call_id else {})}
    return {"functionCall": inner, **more}


def result(name: str = "read", call_id: str = "", response: Any = None, **inner: Any) -> Json:
    named = {"name": name, **({"id": call_id} if call_id else {})}
    return {"functionResponse": {**named, "response": response or {"output": "done"}, **inner}}


# Lists that are read and written back with nothing kept as it came.
CONTENTS: dict[str, list[Json]] = {
    "words": [user(text()), model(text("Hi")), user(text("a"), text("b"))],
    "no role": [{"parts": [text()]}, {"role": None, "parts": [text()]}],
    "no parts": [user(text()), {"role": "model"}, {"role": "user", "parts": None}, model()],
    "thoughts": [
        user(text()),
        model(text("Hm", thought=True), text("Hm", thought=True, thoughtSignature="c2ln"), text()),
    ],
    "signatures": [
        user(text()),
        model(text("Hi", thoughtSignature="c2ln"), call(thoughtSignature="c2ln"), call("ls")),
        user(result(), result("ls")),
        model(text("", thoughtSignature="c2ln")),
        model({"thoughtSignature": "c2ln"}),
    ],
    "ids": [model(call("a", "1"), call("a", "2")), user(result("a", "1"), result("a", "2"))],
    "another order": [model(call("ls"), call("cat")), user(result("cat"), result("ls"))],
    "results and words": [model(call()), user(result(), text("And now?")), model(text("Done"))],
    "role function": [model(call()), {"role": "function", "parts": [result()]}, user(text())],
    "role function with words": [model(call()), {"role": "function", "parts": [result(), text()]}],
    "fields of a content": [
        user(text(), id="7"), model(call(), at=1), user(result(), at=2), user(text()),
    ],
    "calls without arguments": [
        model({"functionCall": {"name": "ls"}}, {"functionCall": {"name": "cat", "args": None}}),
        user(result("ls"), result("cat")),
        model({"functionCall": {"name": "ls", "args": {}, "id": ""}}),
    ],
    "forms of a response": [
        user(result(name, response=response), result(f"{name}2", response=response))
        if place % 2
        else model(call(name), call(f"{name}2"))
        for name, response in {
            "error": {"error": "no such file"},
            "result": {"result": "done"},
            "content": {"content": "done"},
            "json": {"output": "done", "code": 0},
            "odd": {"error": {"code": 5}, "list": [1, 2.5, None, True, "ä☃"]},
            "number": {"output": 5},
        }.items()
        for place in range(2)
    ],
    "no response": [
        model(call("a"), call("b"), call("c")),
        user(
            {"functionResponse": {"name": "a"}},
            {"functionResponse": {"name": "b", "response": None}},
            {"functionResponse": {"name": "c", "response": {}}},
        ),
    ],
    "fields of a response": [
        model(call()), user({**result(willContinue=True, scheduling="SILENT"), "partMetadata": {}}),
    ],
    "files": [user(text("See"), SHOT, PAPER, {"fileData": {"fileUri": "https://youtu.be/x"}})],
    "fields of a file": [
        user({
            "inlineData": {"mimeType": "video/mp4", "data": "AAAA", "displayName": "clip"},
            "videoMetadata": {"fps": 2},
        }),
        user({"inlineData": {"mimeType": "image/png", "data": "_-8="}}),
        model(SHOT),
    ],
    "files of results": [
        model(call(), call()),
        user(result(), SHOT, result(parts=[SHOT, PAPER]), SHOT, text("And?"), SHOT),
    ],
    "code": [user(text()), model({"executableCode": {"language": "PYTHON", "code": "1"}}, RAN)],
    "unknown parts": [user({"hologram": {"depth": 3}}, {}), model({"text": None})],
    "snake_case": [
        user({"inline_data": {"mime_type": "image/png", "data": DATA}},
             {"file_data": {"mime_type": "a/b", "file_uri": "gs://b/c"}}),
        model({"function_call": {"name": "ls", "args": {}}, "thought_signature": "c2ln"}),
        user({"function_response": {"name": "ls", "response": {"result": "a"}}}),
    ],
    "a call in pieces": [
        model({"functionCall": {"name": "ls", "willContinue": True}},
              {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "b"}]}}),
    ],
    "calls repeated turn by turn": [
        held for _ in range(3) for held in (model(call(), call(), call("ls")), user(
            result(), result(response={"error": "x"}), result("ls")))
    ],
}  # fmt: skip

# Lists that no program should send, and some do.
ODD_CONTENTS: list[list[Json]] = [
    [user(result())],
    [model(call()), user(text(), result())],
    [model(call(), call()), user(result()), user(result())],
    [model(call(call_id="a")), user(result())],
    [model(call(call_id="a")), user(result("ls", "a"))],
    [model(call(call_id="a")), model(call(call_id="a")), user(result("read", "a"))],
    [user({"inlineData": {"mime_type": "image/png", "data": DATA}})],
    [user({"fileData": {"mimeType": "image/png", "fileUri": PNG}})],
]

RESPONSES = [
    {"output": "done"}, {"output": ""}, {"error": "no"}, {"result": "a"}, {"content": "b\nc"},
    {"output": 5}, {"lines": ["a", {"b": None}], "ok": True}, {},
]  # fmt: skip
SAID = [
    text("Hi"), text("Ha", thoughtSignature="c2ln"), text("Hm", thought=True), text(" "), SHOT,
    text("Hm", thought=True, thoughtSignature="c2ln"), text("", thoughtSignature="c2ln"), RAN,
    text("no", thought=False), SEARCH,
]  # fmt: skip
ASKED = [text("Go"), text("And?"), text(""), SHOT, PAPER, SEARCH]
_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "thoughtSignature": "thought_signature",
}


def snaked(value: Any) -> Any:
    """The same as the Python SDK writes it."""
    if isinstance(value, list):
        return [snaked(held) for held in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {_SNAKE.get(name, name): snaked(held) for name, held in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value


@st.composite
def content_lists(draw: st.DrawFn) -> list[Json]:
    """Lists as Gemini takes them: with ids or without, in either spelling."""
    contents: list[Json] = []
    for step in range(draw(st.integers(0, 6))):
        said = draw(st.lists(st.sampled_from(SAID), max_size=3))
        named = draw(st.lists(st.tuples(st.sampled_from(("ls", "cat")), st.booleans()), max_size=4))
        pairs = [
            (name, f"c{step}_{place}" if has_id else "")
            for place, (name, has_id) in enumerate(named)
        ]
        if not said and not pairs:
            contents.append(user(*draw(st.lists(st.sampled_from(ASKED), max_size=3))))
            continue
        contents.append(model(*said, *[call(*pair) for pair in pairs]))
        parts: list[Json] = []
        for pair in draw(st.permutations(pairs)):
            parts.append(result(*pair, draw(st.sampled_from(RESPONSES))))
            parts += draw(st.lists(st.sampled_from([SHOT, PAPER]), max_size=1))
        words = draw(st.lists(st.sampled_from(ASKED[:3]), max_size=1))
        role = draw(st.sampled_from(("user", "user", "function")))
        contents.append({"role": role, "parts": [*parts, *words]})
    return snaked(contents) if draw(st.booleans()) else contents


@st.composite
def odd_content_lists(draw: st.DrawFn) -> list[Json]:
    """Lists of parts that may stand anywhere: lost, repeated and split results."""
    names, ids = st.sampled_from(("ls", "cat")), st.sampled_from(("", "", "a", "b"))
    halves = st.builds(call, names, ids) | st.builds(result, names, ids, st.sampled_from(RESPONSES))
    parts = st.lists(halves | st.sampled_from([*SAID, *ASKED]), max_size=4)
    roles = st.sampled_from(("user", "model", "model", "function", None))
    pairs = draw(st.lists(st.tuples(roles, parts), max_size=8))
    return [{"role": role, "parts": held} if role else {"parts": held} for role, held in pairs]
