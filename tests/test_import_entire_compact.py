"""Entire's compact transcripts: hand-written ones, a real one, and ones that are bent."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    Pending,
    TextPart,
    Tokens,
    ToolPart,
    has_result,
    told_error,
)
from foldmark.transcripts.formats.entire_compact import FORMAT
from foldmark.transcripts.read import opened_reading, read_file, read_sessions
from foldmark.transcripts.source import opened_source

from .bending import assert_acceptable, bent_lines, read_leniently

Line = dict[str, Any]


def line(number: int, kind: str, *content: Line, **more: Any) -> Line:
    about = {"v": 1, "agent": "claude-code", "cli_version": "0.8.1"}
    at = f"2026-01-01T00:00:{number:02d}.000Z"
    return {**about, "type": kind, "ts": at, **more, "content": list(content)}


def call(name: str, status: str = "success", **more: Any) -> Line:
    result = {"output": f"out of {name}", "status": status, **more}
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"c": name}, "result": result}


USED = {"input_tokens": 2, "output_tokens": 30}
SAID = [
    line(1, "user", {"id": "u1", "text": "Look"}),
    line(2, "assistant", {"type": "text", "text": "I look."}, call("c1"), id="m1", **USED),
    line(3, "assistant", call("c2", "error", file={"filePath": "a"}), id="m1", **USED),
    line(4, "user", {"text": "And?"}),
    line(5, "assistant", {"type": "tool_use", "id": "c3", "name": "Read"}, id="m2", **USED),
]


def written(folder: Path, *lines: Line) -> Path:
    path = folder / "told.transcript.jsonl"
    path.write_text("\n".join(json.dumps(held) for held in lines))
    return path


def messages(folder: Path, *lines: Line) -> tuple[Message, ...]:
    [found] = read_sessions(written(folder, *lines))
    return found.messages


def test_a_session_has_the_name_of_its_file(tmp_path: Path):
    [found] = read_sessions(written(tmp_path, *SAID))
    assert (found.info.id, found.info.version) == ("told.transcript", "0.8.1")


def test_lines_that_share_an_id_are_one_answer(tmp_path: Path):
    answer = messages(tmp_path, *SAID)[1]
    assert answer.id == "m1"
    said, first, second = answer.parts
    assert said == TextPart(text="I look.")
    assert isinstance(first, ToolPart)
    assert isinstance(second, ToolPart)
    assert (first.call_id, second.call_id) == ("c1", "c2")
    assert isinstance(answer.info, AssistantInfo)
    assert answer.info.tokens == Tokens(input=2, output=30)
    assert answer.info.finish == "tool-calls"


def test_calls_have_the_results_that_stand_beside_them(tmp_path: Path):
    parts = [part for held in messages(tmp_path, *SAID) for part in held.parts]
    first, second, third = [part.state for part in parts if isinstance(part, ToolPart)]
    assert isinstance(first, Completed)
    assert (first.input, first.output) == ({"c": "c1"}, "out of c1")
    assert not told_error(first)
    assert isinstance(second, Completed)
    assert told_error(second)
    assert isinstance(third, Pending)


def test_ids_are_told_once_only(tmp_path: Path):
    lines = [*SAID, line(6, "user", {"text": "So?"}), SAID[1], SAID[0]]
    ids = [message.id for message in messages(tmp_path, *lines)]
    assert ids[:4] == ["u1", "m1", "told.transcript-4", "m2"]
    assert len(set(ids)) == len(ids) == 7


def test_lines_are_counted_not_answers(tmp_path: Path):
    read = read_file(written(tmp_path, *SAID))
    assert (read.messages, read.calls, read.results) == (5, 3, 2)


def test_lines_of_another_kind_say_nothing(tmp_path: Path):
    assert messages(tmp_path, *SAID, line(9, "system")) == messages(tmp_path, *SAID)


def test_a_wrong_line_is_named_and_may_be_passed_over(tmp_path: Path):
    wrong = line(9, "assistant", {"type": "tool_use", "id": "c"})
    path = written(tmp_path, wrong, *SAID)
    with pytest.raises(BadInput, match="line 1: the field 'name' is missing"):
        read_sessions(path)
    with opened_reading(path, lenient=True) as reading:
        assert len(list(reading.steps())) == 5
        assert [held.line for held in reading.skipped] == [1]


@given(bent_lines(SAID))
def test_whatever_is_wrong_in_lines_the_rest_can_be_kept_and_shown(lines: list[Any]):
    for found in read_leniently(FORMAT, lines):
        assert len({message.id for message in found.messages}) == len(found.messages)
        assert_acceptable(found.messages)


def test_a_real_transcript_is_counted_as_it_counts_itself(corpus: Path):
    for entry in json.loads((corpus / "manifest.json").read_bytes()):
        with opened_source(corpus / entry["file"]) as source:
            assert FORMAT.recognises(source.head) == (entry["format"] == FORMAT.name)
        if entry["format"] == FORMAT.name:
            read = read_file(corpus / entry["file"])
            wanted = (entry["messages"], entry["tool_calls"], entry["tool_results"])
            assert (read.messages, read.calls, read.results) == wanted


def test_a_real_transcript_is_read_whole(corpus: Path):
    [path] = (corpus / FORMAT.name).iterdir()
    [found] = read_sessions(path)
    assert len({message.id for message in found.messages}) == len(found.messages)
    assert_acceptable(found.messages)
    parts = [part for message in found.messages for part in message.parts]
    blocks = [
        block for held in path.read_text().splitlines() for block in json.loads(held)["content"]
    ]
    assert len(parts) == len(blocks)
    for part, block in zip(parts, blocks, strict=True):
        if isinstance(part, ToolPart):
            assert (part.call_id, part.tool) == (block["id"], block["name"])
            assert has_result(part) == ("result" in block)
            if isinstance(part.state, Completed):
                assert part.state.output == block["result"]["output"]
        else:
            assert part == TextPart(text=block["text"])
