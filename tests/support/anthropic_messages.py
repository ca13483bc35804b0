"""Anthropic's messages in tests: made by hand, and of every kind that may occur."""

from types import GenericAlias
from typing import Any, cast, get_args, get_type_hints

from anthropic.types import ContentBlockParam
from anthropic.types.beta import BetaContentBlockParam
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

from tests.support.session_strategies import PNG

Json = dict[str, Any]
DATA = PNG.partition(",")[2]
MARK: Json = {"cache_control": {"type": "ephemeral"}}
SHOT: Json = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": DATA},
}
LINKED: Json = {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}
PDF: Json = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    "title": "One",
    "citations": {"enabled": True},
}
PAPER: Json = {"type": "document", "source": {"type": "url", "url": "https://a.b/c.pdf"}}
NOTE: Json = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "words"},
}
HELD: Json = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
THOUGHT: Json = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
HIDDEN: Json = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "a"},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://a.b", "title": "A", "encrypted_content": "x"}
    ],
}
CITED: Json = {
    "type": "text",
    "text": "So it is",
    "citations": [
        {
            "type": "web_search_result_location",
            "url": "https://a.b",
            "title": "A",
            "encrypted_index": "y",
            "cited_text": "it is",
        }
    ],
}
REMOTE: Json = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "ls",
    "server_name": "disk",
    "input": {},
}
REMOTE_RESULT: Json = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "a"}],
}
UPLOAD: Json = {"type": "container_upload", "file_id": "file_1"}
FOLDED: Json = {"type": "compaction", "content": "What was done so far."}


def user(*blocks: Json, **more: Any) -> Json:
    return {"role": "user", "content": list(blocks), **more}


def assistant(*blocks: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": list(blocks), **more}


def text(words: str = "Hello", **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def use(name: str = "a", **more: Any) -> Json:
    return {"type": "tool_use", "id": name, "name": "read", "input": {"path": "a.py"}, **more}


def result(name: str = "a", *content: Any, **more: Any) -> Json:
    told = {"content": content[0]} if content else {}
    return {"type": "tool_result", "tool_use_id": name, **told, **more}


# Lists that are read and written back with nothing kept as it came.
MESSAGES: dict[str, list[Json]] = {
    "texts": [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Done"}],
    "blocks": [user(text()), assistant(text("a"), text("b")), user(text("a"), text("b")), user()],
    "thinking": [user(text()), assistant(THOUGHT, HIDDEN, {**THOUGHT, "thinking": ""}, text())],
    "results": [
        assistant(use("a"), use("b"), use("c"), use("d", cache_control=None)),
        user(result("a", "done"), result("b", []), result("c"), result("d", None)),
    ],
    "errors": [
        assistant(use("a"), use("b"), use("c")),
        user(
            result("a", "no", is_error=True),
            result("b", "yes", is_error=False),
            result("c", [text("no")], is_error=True, **MARK),
        ),
    ],
    "results in pieces": [
        assistant(use("a"), use("b")),
        user(
            result("a", [text("one\n"), SHOT, text(""), text("two", **MARK), PDF]),
            result("b", [LINKED, {"type": "search_result", "content": []}, NOTE, text("x")]),
        ),
    ],
    "another order": [assistant(use("a"), use("b")), user(result("b", "2"), result("a", "1"))],
    "results and words": [assistant(use()), user(result("a", "1"), text("And?"), SHOT)],
    "marks": [user(text("a", **MARK)), assistant(use(**MARK)), user(result("a", "1", **MARK))],
    "server tools": [user(text()), assistant(SEARCH, FOUND, CITED, REMOTE, REMOTE_RESULT)],
    "files": [user(SHOT, LINKED, PDF, PAPER, NOTE, HELD, UPLOAD, {**SHOT, **MARK})],
    "compaction": [assistant(FOLDED), assistant({"type": "compaction", "content": None})],
    "unknown blocks": [user({"type": "hologram", "depth": 3}), assistant({"type": "fallback"})],
    "fields of a message": [{"role": "user", "content": "Go", "id": "7"}, assistant(use(), id="8")],
}  # fmt: skip

# Lists that no API takes, and some programs keep.
ODD_MESSAGES: list[list[Json]] = [
    [user(result("gone", "lost"), text("And?"))],
    [assistant(use("a"), use("b")), user(result("a", "1")), user(result("b", "2"))],
    [assistant(use("a")), assistant(use("b")), user(result("b", "2"), result("a", "1"))],
    [assistant(use("a")), user(text(), result("a", "1"))],
    [assistant(use("a")), assistant(use("a")), user(result("a", "1"), result("a", "2"))],
    [assistant(use("a")), user(text()), assistant(text()), user(result("a", "late"))],
    [user(use("a")), assistant(result("a", "1"))],
    [user(SHOT | {"form": "x"}), assistant(text(form="x", block={}, rest={}), outline=[1])],
    [assistant(use("a", result=5)), user(result("a", "1", outline=[1, {"chars": "x"}], order="x"))],
]

CONTENTS = ["done", "", [], [text("a"), text("b")], [text("a"), SHOT], [SHOT], None, [text(" ")]]
SAID = [
    text("Hi"), text(" "), text("Ha", **MARK), THOUGHT, HIDDEN, CITED, FOLDED, SEARCH,
    {"type": "thinking", "thinking": "unsigned", "signature": ""},
]  # fmt: skip
ASKED = [text("Go"), text("And?", **MARK), text(""), SHOT, PDF, NOTE, {**SHOT, **MARK}]


@st.composite
def message_lists(draw: st.DrawFn) -> list[Json]:
    """Lists as the API takes them."""
    messages: list[Json] = []
    for step in range(draw(st.integers(0, 6))):
        said = draw(st.lists(st.sampled_from(SAID), max_size=3))
        ids = [f"t{step}_{place}" for place in range(draw(st.integers(0, 3)))]
        if not said and not ids:
            words = draw(st.sampled_from(("Go", "And now?", "")))
            asked = draw(st.lists(st.sampled_from(ASKED), max_size=3))
            messages.append(user(*asked) if asked else {"role": "user", "content": words})
            continue
        messages.append(assistant(*said, *[use(name) for name in ids]))
        results: list[Json] = []
        for name in draw(st.permutations(ids)):
            given = () if draw(st.integers(0, 9)) == 0 else (draw(st.sampled_from(CONTENTS)),)
            more = draw(st.sampled_from(({}, {"is_error": True}, {"is_error": False}, MARK)))
            results.append(result(name, *given, **more))
        words = draw(st.lists(st.sampled_from(ASKED), max_size=2))
        if results or words:
            messages.append(user(*results, *words))
    return messages


@st.composite
def odd_message_lists(draw: st.DrawFn) -> list[Json]:
    """Lists of blocks that may stand anywhere: lost, repeated and split results."""
    names = st.sampled_from(("a", "b", "c"))
    halves = st.builds(use, names) | st.builds(result, names, st.sampled_from(CONTENTS))
    blocks = st.lists(halves | st.sampled_from([*SAID, *ASKED]), max_size=4)
    roles = st.sampled_from(("user", "assistant"))
    contents = blocks | st.sampled_from(("Go", ""))
    pairs = draw(st.lists(st.tuples(roles, contents), max_size=8))
    return [{"role": role, "content": content} for role, content in pairs]


# --- what the API takes --------------------------------------------------------------------


def block_types(union: Any) -> dict[str, TypeAdapter[Any]]:
    """The blocks that a request may hold; fields that the API does not know are refused."""
    strict = ConfigDict(extra="forbid")
    kinds = [kind for kind in get_args(union) if is_typeddict(kind)]
    lists: list[Any] = [GenericAlias(list, kind) for kind in kinds]
    names = [get_args(get_type_hints(kind)["type"])[0] for kind in kinds]
    return {name: TypeAdapter(held, config=strict) for name, held in zip(names, lists, strict=True)}


TAKEN, TAKEN_BETA = block_types(ContentBlockParam), block_types(BetaContentBlockParam)


def read_through(value: Any) -> None:
    """The SDK's types check the items of a list only as they are read."""
    if isinstance(value, dict):
        for held in cast("Json", value).values():
            read_through(held)
    elif not isinstance(value, str) and hasattr(value, "__iter__"):
        for held in value:
            read_through(held)


def blocks_of(message: Json) -> list[Json]:
    content = message["content"]
    return [text(content)] if isinstance(content, str) else content


def marks(value: Any) -> int:
    """How many breakpoints there are, at any depth."""
    if isinstance(value, list):
        return sum(marks(held) for held in cast("list[Any]", value))
    if isinstance(value, dict):
        fields = cast("Json", value)
        return bool(fields.get("cache_control")) + sum(marks(held) for held in fields.values())
    return 0


def assert_taken(messages: list[Json], known: dict[str, TypeAdapter[Any]] = TAKEN) -> None:
    """The SDK knows every block, roles take turns, and results directly follow their calls."""
    calls: list[str] = []
    seen: list[str] = []
    for place, message in enumerate(messages):
        assert message.keys() == {"role", "content"}
        assert message["role"] == ("user", "assistant")[place % 2]
        assert message["content"]
        found = blocks_of(message)
        for block in found:
            read_through(known[block["type"]].validate_python([block]))
            assert block.get("text", "x").strip()
            assert block["type"] != "image" or message["role"] == "user"
            assert block["type"] != "thinking" or (block["signature"] and not marks(block))
        answers = [block for block in found if block["type"] == "tool_result"]
        assert found[: len(answers)] == answers
        assert [block["tool_use_id"] for block in answers] == calls
        assert all(block.get("content") for block in answers if block.get("is_error"))
        held = [piece for block in answers for piece in block.get("content", "") if piece != ""]
        assert all(isinstance(piece, str) or piece.get("text", "x").strip() for piece in held)
        calls = [block["id"] for block in found if block["type"] == "tool_use"]
        seen += calls
    assert len(seen) == len(set(seen))
    assert marks(messages) <= 2
    if marks(messages):
        assert marks(messages[-1]) or all(
            block["type"] in ("thinking", "redacted_thinking") for block in blocks_of(messages[-1])
        )
