"""What holds for every transcript format, by small samples of our own and by the real corpus."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Transcript, decode_transcript
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.format import Format, format_named, formats, recognize_format
from foldmark.transcripts.read import read_file, read_sessions
from foldmark.transcripts.source import Head, open_source
from foldmark.wire.codec import WIRES
from foldmark.wire.formats import request
from tests.support.corpus import CORPUS, FOREIGN, MANIFEST, Json, each_file, read
from tests.support.format_samples import (
    DAMAGED,
    FILES,
    DamagedRecord,
    each_format,
    records,
    write_records,
)
from tests.support.malformed_records import (
    assert_acceptable,
    damaged,
    damaged_lines,
    read_leniently,
)
from tests.support.stored_transcripts import import_file, import_growing, stored_state
from tests.support.view_rules import assert_valid

LINE_FORMATS = [format for format in formats() if FILES[format.name].suffix == ".jsonl"]
each_line_format = pytest.mark.parametrize("format", LINE_FORMATS, ids=lambda format: format.name)


def recognizing(path: Path) -> list[str]:
    """The names of the formats that recognize a file."""
    with open_source(path) as source:
        return [format.name for format in formats() if format.recognizes(source.head)]


def assert_readable(sessions: list[Transcript]) -> None:
    """Sessions and messages have unique ids, can be stored, and make requests for every API."""
    assert len({session.info.id for session in sessions}) == len(sessions)
    for session in sessions:
        assert decode_transcript(encode(session)) == session
        assert len({message.id for message in session.messages}) == len(session.messages)
        assert_acceptable(session.messages)


# --- names and recognition -----------------------------------------------------------------


def test_every_format_has_a_name_of_its_own_a_description_and_a_sample() -> None:
    names = [format.name for format in formats()]
    assert sorted(set(names)) == sorted(names) == sorted(FILES)
    assert all(format.about for format in formats())
    assert [format_named(name).name for name in names] == names


@each_format
def test_a_file_is_recognized_by_its_content_whatever_its_name(
    format: Format, tmp_path: Path
) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(FILES[format.name].read_bytes())
    assert recognizing(path) == [format.name]
    assert read_file(path).format == format.name


def test_two_candidates_are_an_error_that_names_both() -> None:
    lines = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"})
    with pytest.raises(BadInput, match="anthropic or openai-chat; choose with --format NAME"):
        recognize_format(Head(shape="lines", lines=lines))


def test_no_candidate_is_an_error_that_names_all_formats() -> None:
    with pytest.raises(BadInput, match="--format NAME") as refusal:
        recognize_format(Head(shape="lines", lines=({"weather": "fine"},)))
    assert all(format.name in str(refusal.value) for format in formats())


# --- samples -------------------------------------------------------------------------------


@each_format
def test_a_sample_is_read_completely_and_always_the_same(format: Format) -> None:
    path = FILES[format.name]
    file = read_file(path)
    assert file.skipped == ()
    assert file.messages
    assert all(session.messages for session in file.sessions)
    assert_readable(file.sessions)
    assert read_file(path) == file
    for session in file.sessions:
        if format.name != "opencode":
            assert session.info.origin
            assert session.info.origin.format == format.name
        view = Viewer(Log(counter(FOLDMARK.estimate), session.messages), FOLDMARK).view()
        assert_valid(view.messages)
        assert all(request(view.messages, wire) for wire in WIRES)


@each_format
def test_unknown_fields_of_a_record_change_no_message(format: Format, tmp_path: Path) -> None:
    unknown: Json = {"x_unknown": {"a": [1]}}
    extended: list[Any] = [
        {**record, **unknown} if isinstance(record, dict) else record for record in records(format)
    ]
    if extended:
        sessions = read_sessions(write_records(tmp_path, format, extended))
        original = read_sessions(FILES[format.name])
        assert [session.messages for session in sessions] == [one.messages for one in original]


# --- damage --------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: f"{damage.format}-{damage.cause}")
def test_a_damaged_record_is_refused_in_one_line(damage: DamagedRecord, tmp_path: Path) -> None:
    format = format_named(damage.format)
    sample = records(format) if format in LINE_FORMATS else []
    path = write_records(tmp_path, format, [*sample, damage.record])
    with pytest.raises(BadInput) as refusal:
        read_sessions(path, format=format.name)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"{path}: ")
    assert damage.cause in refusal.value.cause
    if format in LINE_FORMATS:
        number = len(sample) + 1
        line = f"line {number}, {damage.location}" if damage.location else f"line {number}"
        assert refusal.value.location == line
        file = read_file(path, format=format.name, lenient=True)
        assert [(skipped.line, skipped.cause) for skipped in file.skipped] == [
            (number, damage.cause)
        ]
        assert file.sessions == read_sessions(FILES[format.name])
    else:
        assert damage.location in (refusal.value.location or "")


@each_line_format
@pytest.mark.parametrize("data", [b"{\n", b'{"a": 1}}\n', b"\xff\n", b'{"type": "\xff"}\n'])
def test_a_line_that_is_not_json_is_refused_or_skipped(
    format: Format, data: bytes, tmp_path: Path
) -> None:
    lines = FILES[format.name].read_bytes().splitlines(keepends=True)
    path = tmp_path / FILES[format.name].name
    path.write_bytes(b"".join([*lines, data]))
    with pytest.raises(BadInput, match=f"line {len(lines) + 1}") as refusal:
        read_sessions(path)
    assert "\n" not in str(refusal.value)
    file = read_file(path, lenient=True)
    assert [skipped.line for skipped in file.skipped] == [len(lines) + 1]
    assert file.sessions == read_sessions(FILES[format.name])


@each_format
@given(data=st.data())
def test_bent_records_are_refused_or_readable(format: Format, data: st.DataObject) -> None:
    sample = records(format)
    if not sample:
        return  # any text can be read
    if format in LINE_FORMATS:
        values = data.draw(damaged_lines(sample))
    else:
        values = [data.draw(damaged(sample[0])), sample[0]]
    for session in read_leniently(format, values):
        assert_acceptable(session.messages)
        if format.name not in ("opencode", "pi"):  # they keep ids that a file repeats
            assert len({message.id for message in session.messages}) == len(session.messages)


# --- import --------------------------------------------------------------------------------


@each_format
def test_importing_a_file_twice_adds_nothing(format: Format, tmp_path: Path) -> None:
    store = str(tmp_path / "twice.db")
    first = import_file(store, FILES[format.name])
    contents = [stored_state(store, session.id) for session in first]
    assert {session.state for session in first} == {"new"}
    again = import_file(store, FILES[format.name])
    assert {session.state for session in again} == {"same"}
    assert [stored_state(store, session.id) for session in again] == contents


@pytest.mark.parametrize(
    "format",
    # A later line of Gemini CLI may replace a message that was imported already.
    [format for format in LINE_FORMATS if format.name != "gemini-cli"],
    ids=lambda format: format.name,
)
def test_a_file_that_grows_line_by_line_is_as_if_imported_at_once(
    format: Format, tmp_path: Path
) -> None:
    grown_store, once = str(tmp_path / "grown.db"), str(tmp_path / "once.db")
    path = tmp_path / FILES[format.name].name
    import_growing(grown_store, path, records(format), format=format.name)
    for session in import_file(once, path):
        assert stored_state(grown_store, session.id) == stored_state(once, session.id)


# --- the corpus ----------------------------------------------------------------------------

# Differences between our counts of messages, calls and results and those of the manifest.
DIFFERENCES: dict[str, tuple[int, int, int]] = {
    # Failed calls have results too; the manifest counts only completed ones.
    "opencode/nimbus_7e846f866c-5.json": (0, 0, 9),
    "opencode/nimbus_107b1c65c7.json": (0, 0, 1),
    # The manifest counts replies that the program refused because they had not one command.
    "mini-swe-agent/mini_django__django-11138.traj.json": (0, -15, -15),
    "mini-swe-agent/mini_sympy__sympy-13091.traj.json": (0, -5, -5),
    # The manifest counts three system prompts as calls, and as results three recalls and two
    # errors that no call caused.
    "openhands/openhands_multi_swe_bench_output.jsonl": (0, -3, -5),
    # The manifest stops at the request for the summary; a conversation follows.
    "anthropic-api/claude-trace_test-traffic.sanitized.jsonl": (6, 1, 1),
}


def test_the_corpus_has_a_file_of_every_format(corpus: Path) -> None:
    assert len(MANIFEST) == 27
    names = {format.name for format in formats()}
    assert names - {"anthropic", "openai-responses"} == {entry["format"] for entry in MANIFEST}


def test_files_of_other_formats_are_not_recognized(corpus: Path) -> None:
    for folder in FOREIGN:
        (path,) = (corpus / folder).iterdir()
        assert recognizing(path) == []


@each_file
def test_a_real_file_is_recognized_as_its_format_only(entry: Json) -> None:
    assert recognizing(CORPUS / entry["file"]) == [entry["format"]]
    assert read(entry["file"]).format == entry["format"]


@each_file
def test_counts_of_real_files_agree_with_the_manifest(entry: Json) -> None:
    file = read(entry["file"])
    counts = (file.messages, file.calls, file.results)
    expected = (entry["messages"], entry["tool_calls"], entry["tool_results"])
    differences = tuple(ours - theirs for ours, theirs in zip(counts, expected, strict=True))
    assert differences == DIFFERENCES.get(entry["file"], (0, 0, 0))
    assert file.skipped == ()


@each_file
def test_real_files_are_readable_and_always_read_the_same(entry: Json) -> None:
    sessions = read(entry["file"]).sessions
    if entry["format"] != "opencode":  # some ids were masked when it was published
        assert_readable(sessions)
        assert {session.info.origin and session.info.origin.format for session in sessions} == {
            entry["format"]
        }
    for session in sessions:
        assert decode_transcript(encode(session)) == session
        assert_acceptable(session.messages)
    assert read_sessions(CORPUS / entry["file"]) == sessions


def pruned_outputs(entry: Json) -> int:
    """The number of outputs that the program itself has hidden."""
    if not entry["microcompactions"]:
        return entry["pruned_tool_outputs"]
    lines = map(json.loads, (CORPUS / entry["file"]).read_bytes().splitlines())
    prunes = [line for line in lines if line.get("subtype") == "microcompact_boundary"]
    assert len(prunes) == entry["microcompactions"]
    ids = [prune["microcompactMetadata"]["compactedToolIds"] for prune in prunes]
    return len({call for calls in ids for call in calls})


@each_file
def test_recorded_compactions_are_pivots_and_hidden_outputs_are_pruned(entry: Json) -> None:
    logs = [Log(len, session.messages) for session in read(entry["file"]).sessions]
    assert sum(len(log.pivots) for log in logs) == entry["compactions"]
    assert sum(len(log.marks) for log in logs) == pruned_outputs(entry)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bent_real_lines_are_refused_or_readable(corpus: Path, data: st.DataObject) -> None:
    files = [entry for entry in MANIFEST if entry["file"].endswith(".jsonl")]
    entry = data.draw(st.sampled_from(files))
    lines = (corpus / entry["file"]).read_bytes().splitlines()[:400]
    short = [line for line in lines if len(line) < 3_000] or [min(lines, key=len)]
    start = data.draw(st.integers(0, max(len(short) - 12, 0)))
    values: list[Any] = [json.loads(line) for line in short[start : start + 12]]
    for session in read_leniently(format_named(entry["format"]), data.draw(damaged_lines(values))):
        assert_acceptable(session.messages)
