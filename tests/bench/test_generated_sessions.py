import struct
import zlib
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from bench.lab.generate import generate

from foldmark.analysis.inspection import superseded
from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Pending,
    Running,
    ToolPart,
    Transcript,
    decode_transcript,
)
from foldmark.model.values import encode, to_plain
from foldmark.tokens.counters import by_classes

TOOLS = {
    *("read", "write", "edit", "apply_patch", "glob", "grep", "bash"),
    *("webfetch", "todowrite", "skill", "task"),
}


@pytest.fixture(scope="module")
def session() -> Transcript:
    return generate()


@pytest.fixture(scope="module")
def log(session: Transcript) -> Log:
    return Log(by_classes, session.messages)


def calls(messages: tuple[Message, ...]) -> Iterator[ToolPart]:
    for message in messages:
        yield from (part for part in message.parts if isinstance(part, ToolPart))


def answers(messages: tuple[Message, ...]) -> list[tuple[Message, AssistantInfo]]:
    return [(held, held.info) for held in messages if isinstance(held.info, AssistantInfo)]


def turns(messages: tuple[Message, ...]) -> list[list[Message]]:
    grouped: list[list[Message]] = []
    for message in messages:
        if message.is_user:
            grouped.append([])
        grouped[-1].append(message)
    return grouped


def test_the_same_seed_gives_the_same_bytes(session: Transcript) -> None:
    assert encode(generate()) == encode(session)


def test_another_seed_gives_another_session(session: Transcript) -> None:
    assert encode(generate(8)) != encode(session)


@pytest.mark.parametrize("options", [(), ("pivots", "pruned")])
def test_a_session_goes_through_json_unchanged(options: tuple[str, ...]) -> None:
    made = generate(messages=900, pivots="pivots" in options, pruned="pruned" in options)
    data = encode(made)
    assert decode_transcript(data) == made
    assert encode(decode_transcript(data)) == data
    assert msgspec.json.decode(data) == to_plain(made)


@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_a_session_has_as_many_messages_as_asked_for(count: int) -> None:
    assert len(generate(messages=count, pivots=True).messages) == count


@pytest.mark.parametrize("seed", [1, 7, 99])
def test_every_tool_and_every_state_occurs(seed: int) -> None:
    made = generate(seed).messages
    assert {part.tool for part in calls(made)} == TOOLS
    states = {type(part.state) for part in calls(made)}
    assert states == {Completed, Failed, Running, Pending}


def test_ids_ascend_and_messages_know_their_parts(session: Transcript) -> None:
    messages = [message.id for message in session.messages]
    parts = [part for message in session.messages for part in message.parts]
    ids = [msgspec.to_builtins(part)["id"] for part in parts]
    assert messages == sorted(set(messages))
    assert ids == sorted(set(ids))
    for message in session.messages:
        owners = {msgspec.to_builtins(part)["messageID"] for part in message.parts}
        assert owners <= {message.id}


def test_call_ids_are_not_repeated(session: Transcript) -> None:
    named = [part.call_id for part in calls(session.messages)]
    assert len(named) == len(set(named))


def test_time_goes_forward_from_message_to_message(session: Transcript) -> None:
    now = 0.0
    for message in session.messages:
        time = message.info.time
        assert time
        assert time.created
        assert time.created > now
        now = time.completed or time.created
        assert now >= time.created


def test_calls_of_one_message_overlap_in_time(session: Transcript) -> None:
    together = [
        found
        for message in session.messages
        if len(found := [part.state.time for part in calls((message,)) if part.state.time]) > 1
    ]
    assert {len(found) for found in together} == {2, 3, 4}
    for found in together:
        starts, ends = [time.start or 0 for time in found], [time.end or 0 for time in found]
        assert max(starts) < min(ends)


def test_a_turn_ends_in_an_answer_that_stops(session: Transcript) -> None:
    whole = 0
    for turn in turns(session.messages)[:-1]:
        steps = answers(tuple(turn[1:]))
        assert all(info.parent_id == turn[0].id for _, info in steps)
        assert all(info.finish == "tool-calls" for _, info in steps[:-1])
        last = steps[-1][1]
        assert last.finish == "stop" or last.error
        whole += last.finish == "stop"
    assert whole > 30


def test_some_answers_are_cut_short_or_never_come(session: Transcript) -> None:
    failed = [(message, info.error) for message, info in answers(session.messages) if info.error]
    names = Counter(error["name"] for _, error in failed)
    assert 2 <= names["MessageAbortedError"] <= 6
    assert 1 <= names["APIError"] <= 3
    for message, error in failed:
        unfinished = any(isinstance(p.state, Running | Pending) for p in calls((message,)))
        assert unfinished == (error["name"] == "MessageAbortedError")
        assert unfinished or not message.parts


def test_pictures_are_attached_by_the_user_and_by_a_tool(session: Transcript) -> None:
    by_user = [p for m in session.messages for p in m.parts if isinstance(p, FilePart)]
    by_tool = [
        attached
        for part in calls(session.messages)
        if isinstance(part.state, Completed)
        for attached in part.state.attachments or ()
    ]
    assert by_user
    assert by_tool
    for part in by_user + by_tool:
        assert is_png(b64decode(part.url.removeprefix("data:image/png;base64,")))


def is_png(data: bytes) -> bool:
    chunks: dict[bytes, bytes] = {}
    place = 8
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length)[0] == zlib.crc32(name + body)
        chunks[name] = body
        place += 12 + length
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    pixels = len(zlib.decompress(chunks[b"IDAT"]))
    return data.startswith(b"\x89PNG\r\n\x1a\n") and pixels == (width + 1) * height


def test_users_give_requests_and_standing_instructions(log: Log) -> None:
    assert len({request.text for request in log.requests.all}) > 30
    assert len({rule.text for rule in log.requests.rules}) >= 3


def test_files_are_read_again_after_they_were_edited(log: Log) -> None:
    reads = [tool for tool in log.calls.values() if tool.target.access == "read"]
    outdated = superseded(log).outputs
    assert 0.2 < outdated / len(reads) < 0.8


def test_an_edit_replaces_text_that_was_in_the_file(session: Transcript) -> None:
    shown: dict[str, str] = {}
    held = 0
    for part in calls(session.messages):
        arguments = part.state.input
        if isinstance(part.state, Completed) and arguments and "filePath" in arguments:
            path = arguments["filePath"]
            if part.tool == "read":
                lines = part.state.output.split("\n")
                shown[path] = "\n".join(line[7:] for line in lines if line[5:7] == "| ")
            elif part.tool == "edit":
                held += arguments["oldString"] in shown.pop(path, "")
    assert held >= 5


def test_some_commands_are_run_again_to_the_same_end(log: Log) -> None:
    runs = Counter(
        (tool.part.state.input["command"], tool.state.output)
        for tool in log.calls.values()
        if tool.part.tool == "bash" and tool.part.state.input
    )
    assert sum(count - 1 for count in runs.values()) >= 8


def test_some_commands_fail_and_say_why(log: Log) -> None:
    failed = [
        tool.state
        for tool in log.calls.values()
        if tool.part.tool == "bash" and tool.state.metadata and tool.state.metadata["exit"]
    ]
    assert len(failed) >= 10
    for state in failed:
        assert "FAILED tests/" in state.output or "command not found" in state.output


def test_outputs_are_around_the_size_asked_for_and_a_few_are_large(log: Log) -> None:
    kinds = ("read", "bash", "grep", "webfetch", "task")
    lengths = [len(tool.state.output) for tool in log.calls.values() if tool.part.tool in kinds]
    large = [length for length in lengths if length > 20_000]
    assert 1_000 < sum(lengths) / len(lengths) < 4_000
    assert 1 <= len(large) <= 10
    assert max(large) < 66_000


def test_larger_outputs_make_a_larger_session() -> None:
    small, large = (len(encode(generate(messages=300, output_chars=size))) for size in (500, 8_000))
    assert large > 2 * small


def test_two_thousand_messages_are_a_fifth_of_the_benchmarks_31_megabytes() -> None:
    data = encode(generate(messages=2_000, output_chars=1_400))
    assert len(data) == pytest.approx(31e6 / 5, rel=0.1)
