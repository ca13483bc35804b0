"""Contents of Gemini's API in tests: written by hand and generated, of every kind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.genai import types
from hypothesis import strategies as st

from foldmark.model.messages import Cache, Tokens
from foldmark.wire.codec import NOTHING_TO_READ
from tests.support.api_lists import NOTES, FormatCases, Json, any_json
from tests.support.session_strategies import PNG

DATA = PNG.partition(",")[2]
SHOT = {"inlineData": {"mimeType": "image/png", "data": DATA}}
PAPER = {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://papers/one.pdf"}}
SEARCH = {"toolCall": {"id": "t", "args": {"q": "a"}}}  # of an unknown type
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}


def user(*parts: Json, **more: Any) -> Json:
    return {"role": "user", "parts": list(parts), **more}


def model(*parts: Json, **more: Any) -> Json:
    return {"role": "model", "parts": list(parts), **more}


def text(content: str = "Hello", **more: Any) -> Json:
    return {"text": content, **more}


def call(name: str = "read", call_id: str = "", **more: Any) -> Json:
    inner = {"name": name, "args": {"path": "a.py"}, **({"id": call_id} if call_id else {})}
    return {"functionCall": inner, **more}


def result(name: str = "read", call_id: str = "", response: Any = None, **inner: Any) -> Json:
    identity = {"name": name, **({"id": call_id} if call_id else {})}
    return {"functionResponse": {**identity, "response": response or {"output": "done"}, **inner}}


LISTS: dict[str, list[Json]] = {
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
    "opaque": [
        user(text()),
        model(text("Hm", thought=True, thoughtSignature="c2ln"), call(thoughtSignature="c2ln")),
        user(result(), SHOT, text("And?")),
        model({"executableCode": {"language": "PYTHON", "code": "print(1)"}}, text("Done")),
    ],
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
ODD_LISTS: list[list[Json]] = [
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
REPLY_PARTS = [
    text("Hi"), text("Ha", thoughtSignature="c2ln"), text("Hm", thought=True), text(" "), SHOT,
    text("Hm", thought=True, thoughtSignature="c2ln"), text("", thoughtSignature="c2ln"), RAN,
    text("no", thought=False), SEARCH,
]  # fmt: skip
USER_PARTS = [text("Go"), text("And?"), text(""), SHOT, PAPER, SEARCH]
_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "thoughtSignature": "thought_signature",
}


def in_snake_case(contents: list[Json]) -> list[Json]:
    """The contents as the Python SDK writes them."""

    def rename(fields: Json) -> Json:
        return {_SNAKE.get(name, name): value for name, value in fields.items()}

    return json.loads(json.dumps(contents), object_hook=rename)


@st.composite
def valid_lists(draw: st.DrawFn) -> list[Json]:
    """Lists that Gemini accepts: with ids or without, in either spelling."""
    contents: list[Json] = []
    for step in range(draw(st.integers(0, 6))):
        reply = draw(st.lists(st.sampled_from(REPLY_PARTS), max_size=3))
        names = draw(st.lists(st.tuples(st.sampled_from(("ls", "cat")), st.booleans()), max_size=4))
        pairs = [
            (name, f"c{step}_{number}" if has_id else "")
            for number, (name, has_id) in enumerate(names)
        ]
        if not reply and not pairs:
            contents.append(user(*draw(st.lists(st.sampled_from(USER_PARTS), max_size=3))))
            continue
        contents.append(model(*reply, *[call(*pair) for pair in pairs]))
        parts: list[Json] = []
        for pair in draw(st.permutations(pairs)):
            parts.append(result(*pair, draw(st.sampled_from(RESPONSES))))
            parts += draw(st.lists(st.sampled_from([SHOT, PAPER]), max_size=1))
        texts = draw(st.lists(st.sampled_from(USER_PARTS[:3]), max_size=1))
        role = draw(st.sampled_from(("user", "user", "function")))
        contents.append({"role": role, "parts": [*parts, *texts]})
    return in_snake_case(contents) if draw(st.booleans()) else contents


@st.composite
def odd_lists(draw: st.DrawFn) -> list[Json]:
    """Lists with parts anywhere: orphaned, repeated and split results."""
    names, ids = st.sampled_from(("ls", "cat")), st.sampled_from(("", "", "a", "b"))
    halves = st.builds(call, names, ids) | st.builds(result, names, ids, st.sampled_from(RESPONSES))
    parts = st.lists(halves | st.sampled_from([*REPLY_PARTS, *USER_PARTS]), max_size=4)
    roles = st.sampled_from(("user", "model", "model", "function", None))
    pairs = draw(st.lists(st.tuples(roles, parts), max_size=8))
    return [{"role": role, "parts": some} if role else {"parts": some} for role, some in pairs]


# --- malformed contents and responses ------------------------------------------------------

_NAMES = (
    "text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData",
    "fileData", "function_call", "executableCode", "name", "id", "args", "response", "parts",
    "mimeType", "data", "fileUri", "output", "error", "role",
)  # fmt: skip
_values = any_json(_NAMES, ("user", "model", "function", "ls", "", "a", "STOP"))
_objects: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from((*_NAMES, *NOTES)), _values, max_size=4
)
_roles = st.sampled_from(("user", "model", "function", None))
_parts = st.lists(_objects, max_size=3)
_contents: st.SearchStrategy[Any] = st.fixed_dictionaries({"role": _roles, "parts": _parts})


@st.composite
def _replies(draw: st.DrawFn) -> Json:
    value = draw(_values)
    whole = {"content": {"role": "model", "parts": draw(_parts)}, "finishReason": value}
    candidate = draw(st.sampled_from((whole, {"content": value}, value)))
    return {**draw(_objects), "candidates": [candidate], "usageMetadata": value}


def reply(*parts: Json, reason: str = "STOP", **more: Any) -> Json:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
        "toolUsePromptTokenCount": 2,
        "totalTokenCount": 127,
    }
    candidate = {"content": model(*parts), "finishReason": reason, "index": 0}
    fields = {"usageMetadata": usage, "modelVersion": "gemini-3-pro"}
    return {"candidates": [candidate], **fields, **more}


def recorded_lists(corpus: Path) -> Iterator[list[Json]]:
    path = corpus / "gemini-cli" / "gemini-cli_trajectory_content-array.json"
    yield json.loads(path.read_bytes())


# The files of `messages_with_files` as the API accepts them.
FILES = [
    SHOT,
    {"fileData": {"fileUri": "https://a.b/c"}},
    {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
    {"inlineData": {"mimeType": "audio/mpeg", "data": "AA=="}},
    {"inlineData": {"mimeType": "audio/ogg", "data": "AA=="}},
    {"inlineData": {"mimeType": "text/csv", "data": "YSxi"}},
    text("a b"),
    text(NOTHING_TO_READ),
]


def _call(name: str) -> Json:
    return model(call(call_id=name, thoughtSignature="c2ln"))


def _result(name: str) -> Json:
    return user(result(call_id=name))


CASES = FormatCases(
    user=user(text("Wait")),
    call=_call,
    result=_result,
    lists=LISTS,
    # Contents without a role, with an unusual one or with more fields keep their original.
    stretches={
        "no role": 2,
        "no parts": 2,
        "role function": 1,
        "role function with words": 1,
        "fields of a content": 2,
        "another order": 1,
    },
    odd_lists=ODD_LISTS,
    valid=valid_lists(),
    odd=odd_lists(),
    malformed=_contents | _objects,
    malformed_replies=_objects | _replies(),
    notes=_values,
    refused=[
        ({"role": 5, "parts": []}, "'role' of a Gemini content is a number"),
        ({"role": "user", "parts": "Hello"}, "'parts' is a string, not a list"),
        ({"role": "user", "parts": ["Hello"]}, "'parts' contains a string"),
        (user({"text": 5}), "'text' is a number"),
        (user({"inlineData": 5}), "'inlineData' is a number"),
        (model({"functionCall": []}), "'functionCall' is a list"),
        (model({"functionCall": {"name": 5}}), "'name' is a number"),
        (model({"functionCall": {"name": "a", "args": "b"}}), "'args' is a string"),
        (model({"functionCall": {"name": "a", "id": 5}}), "'id' is a number"),
        (user({"functionResponse": {"name": "a", "response": "b"}}), "'response' is a string"),
        (user(result(response={"output": 10**5000})), "the 'response' of a functionResponse"),
    ],
    opaque=("c2ln", "executable"),
    readable=("print(1)", DATA),
    files_request=[
        user(*FILES),
        model(SHOT, call(call_id="a"), call(call_id="b")),
        user(
            result(call_id="a", response={"output": "seen"}),
            *FILES,
            result(call_id="b", response={"output": ""}),
            SHOT,
        ),
        model(text(NOTHING_TO_READ)),
    ],
    reply_messages=[
        model(text("Hm", thought=True), text(thoughtSignature="_-8="), call()),
    ],
    reply=reply(text("Hm", thought=True), text(thoughtSignature="_-8="), call()),
    sdk_reply=types.GenerateContentResponse.model_validate,
    tokens=Tokens(input=40, output=25, reasoning=5, total=127, cache=Cache(read=60, write=0)),
    model="gemini-3-pro",
    finishes=[
        (reply(text()), "stop"),
        (reply(text(), reason="MAX_TOKENS"), "length"),
        (reply(reason="SAFETY"), "content-filter"),
        (reply(reason="IMAGE_SAFETY"), "content-filter"),
        (reply(reason="MALFORMED_FUNCTION_CALL"), "other"),
        ({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model"}}]}, "length"),
        ({"candidates": [{"finishReason": "RECITATION"}]}, "content-filter"),
        ({"candidates": [{"content": {"parts": [text()]}}]}, "other"),
        ({"candidates": []}, "other"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "content-filter"),
        ({"candidates": None, "prompt_feedback": {"block_reason": "OTHER"}}, "content-filter"),
        ({"candidates": [{"content": model(text())}, {"content": model(text("2"))}]}, "other"),
    ],
    recorded=recorded_lists,
    recorded_count=1,
)
