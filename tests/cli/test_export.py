"""`foldmark export` and `foldmark convert`: every kind, to a file or not, and what is refused."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import SessionInfo, TextPart, Transcript
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import read_sessions
from tests.support.cli_program import (
    compacted_store,
    fill_store,
    output_of,
    refusal,
    run_cli,
    sample_transcript,
    write_transcript,
)
from tests.support.corpus import CORPUS, each_file
from tests.support.provider_types import WIRES, assert_accepted
from tests.support.request_checks import LISTS, TOOLS, assert_body, tokens
from tests.support.sdk_conversations import TALKS
from tests.support.terminal import in_terminal

Json = dict[str, Any]
KINDS = ("opencode", *WIRES, "markdown")
each_wire = pytest.mark.parametrize("wire", WIRES)
Capture = pytest.CaptureFixture[str]


def written(*arguments: object) -> Any:
    """The JSON that a command prints, and nothing else."""
    code, output, errors = run_cli(*arguments)
    assert (code, errors) == (0, "")
    return json.loads(output)


def write_json(folder: Path, value: object, name: str = "kept.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


# --- convert -------------------------------------------------------------------------------


@each_wire
def test_a_list_is_converted_to_its_own_api_format_unchanged(tmp_path: Path, wire: str) -> None:
    path = write_json(tmp_path, LISTS[wire])
    assert written("convert", path, "--to", wire) == LISTS[wire]
    for other in WIRES:
        if other != wire:
            assert_accepted(other, written("convert", path, "--to", other))


@each_wire
def test_views_and_requests_are_valid_for_the_provider(
    tmp_path: Path, file: Path, wire: str
) -> None:
    for path in (file, write_json(tmp_path, LISTS["openai-chat"])):
        assert_accepted(wire, written("convert", path, "--to", wire, "--view"))
        for more in ((), ("--view",)):
            body = written("convert", path, "--to", wire, "--request", *more)
            assert_body(wire, body)
            assert ("Be brief." in json.dumps(body)) == (path != file)


def test_a_request_keeps_its_prompt_and_tools(tmp_path: Path) -> None:
    body: Json = {
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": TOOLS["anthropic"],
        "messages": [{"role": "user", "content": "Go"}],
    }
    path = write_json(tmp_path, body)
    assert written("convert", path, "--to", "anthropic", "--request") == body
    chat = written("convert", path, "--to", "chat", "--request")
    assert [message["role"] for message in chat.pop("messages")] == ["system", "user"]
    assert chat == {}


@each_file
def test_a_real_file_is_converted_to_opencode_and_back(tmp_path: Path, entry: Json) -> None:
    path = tmp_path / "session.json"
    code, output, errors = run_cli("convert", CORPUS / entry["file"], "-o", path)
    assert code == 0
    assert output.lstrip().startswith("Wrote session ")
    assert errors == "" or "--pick N" in errors
    (again,) = read_sessions(path)
    assert run_cli("convert", path)[1].encode() == path.read_bytes() + b"\n"
    report = read_sessions(CORPUS / entry["file"])
    (was,) = [item for item in report if item.info.id == again.info.id]
    assert view(was) == view(again)


def view(transcript: Transcript) -> object:
    return Viewer(Log(counter(FOLDMARK.estimate), transcript.messages), FOLDMARK).view()


def test_of_several_sessions_one_is_picked(tmp_path: Path) -> None:
    lists = [{"messages": LISTS["openai-chat"][:size]} for size in (2, 4, 3)]
    path = tmp_path / "kept.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in lists))
    arguments = ("convert", path, "--to", "openai-chat", "--format", "openai-chat")
    code, output, errors = run_cli(*arguments)
    assert (code, json.loads(output)) == (0, lists[1]["messages"])
    assert errors.count("\n") == 1
    assert "--pick N" in errors
    assert written(*arguments, "--pick", 3) == lists[2]["messages"]
    assert "no number 4" in refusal(*arguments, "--pick", 4)


# --- export --------------------------------------------------------------------------------


def test_a_stored_session_can_be_exported_in_every_format(tmp_path: Path) -> None:
    where = compacted_store(str(tmp_path / "store.db"))
    for wire in WIRES:
        arguments = ("export", "ses_live", "--to", wire, "--store", where)
        messages = written(*arguments)
        assert_accepted(wire, messages)
        whole, visible = json.dumps(messages), json.dumps(written(*arguments, "--view"))
        # All is in the one, and what was pruned and folded not in the other.
        assert whole.count("entry 3 of an order") == 300
        assert visible.count("entry 3 of an order") == 0
        assert "The orders load." in visible
        assert "The orders load." not in whole
        assert_body(wire, written(*arguments, "--request", "--view"))
    code, text, _ = run_cli("export", "ses_live", "--to", "markdown", "--store", where)
    assert code == 0
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert len([token for token in tokens(text) if token.tag == "h2"]) == 2 * 35


@each_wire
def test_an_imported_list_is_exported_unchanged(tmp_path: Path, wire: str) -> None:
    path, where = write_json(tmp_path, LISTS[wire]), str(tmp_path / "store.db")
    assert run_cli("import", path, "--store", where)[0] == 0
    arguments = ("export", "latest", "--to", wire, "--store", where)
    assert written(*arguments) == LISTS[wire]
    with foldmark.open(where, session="latest") as item:
        item.compact("All is well.")
    assert written(*arguments) == LISTS[wire]
    with foldmark.open(where, session="latest") as item:
        item.user("And?")
    messages = written(*arguments)
    assert_accepted(wire, messages)
    assert "And?" in json.dumps(messages)


def test_reverted_messages_are_left_out_in_api_formats(tmp_path: Path) -> None:
    where = str(tmp_path / "store.db")
    with foldmark.open(where, session="s") as item:
        first = item.user("Keep this")
        item.record(TALKS["anthropic"].ending)
        item.user("Forget this")
        item.revert(first.id)
    for kind in KINDS[1:]:
        output = run_cli("export", "s", "--to", kind, "--store", where)[1]
        assert "Keep this" in output
        assert "Forget this" not in output


def exported_again(where: Path, path: Path) -> Json:
    """What an export holds; a store that it is imported into has the same session."""
    output = written("export", "latest", "--store", where)
    other = path.with_suffix(".db")
    assert run_cli("import", write_json(path.parent, output, path.name), "--store", other)[0] == 0
    assert run_cli("import", path, "--store", other)[0] == 0
    assert written("export", "latest", "--store", other) == output
    with (
        foldmark.open(str(where), session="latest") as item,
        foldmark.open(str(other), session="latest") as again,
    ):
        assert again.view() == item.view()
        again.undo()
        assert not again.export().info.revert
    return output


def test_an_export_after_a_revert_has_all_messages_and_names_the_revert(tmp_path: Path) -> None:
    where = Path(compacted_store(str(tmp_path / "store.db")))
    with foldmark.open(str(where), session="latest") as item:
        ids = [message.id for message in item.export().messages]
        item.revert(ids[2])
        item.user("Rather that")
        item.revert(item.user("No, this").id)
        last = item.user("Or not").id
        item.revert(ids[1])
        item.user("Once more")
        item.revert(item.export(reverted=False).messages[0].id)
    output = exported_again(where, tmp_path / "again.json")
    assert [message["info"]["id"] for message in output["messages"]][: len(ids)] == ids
    assert output["info"]["revert"] == {"messageID": ids[1]}
    assert last in json.dumps(output)


def test_an_export_keeps_a_revert_that_more_messages_followed(tmp_path: Path) -> None:
    where = Path(compacted_store(str(tmp_path / "store.db")))
    with foldmark.open(str(where), session="latest") as item:
        ids = [message.id for message in item.export().messages]
        item.revert(ids[2])
        item.user("Rather that")
    output = exported_again(where, tmp_path / "again.json")
    assert len(output["messages"]) == len(ids) + 1
    assert output["info"]["reverted"] == [[3, len(ids)]]
    assert "revert" not in output["info"]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus")
def test_a_real_session_is_exported_whole_after_a_revert(tmp_path: Path) -> None:
    where = tmp_path / "store.db"
    path = CORPUS / "claude-code" / "entireio-cli_95adddad32.jsonl"
    assert run_cli("import", path, "--store", where)[0] == 0
    with foldmark.open(str(where), session="latest") as item:
        whole = item.export()
        item.revert(whole.messages[25].id)
    output = exported_again(where, tmp_path / "again.json")
    assert len(output["messages"]) == len(whole.messages)
    assert output["info"]["revert"] == {"messageID": whole.messages[26].id}


# --- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["convert", "export"])
def test_an_output_file_is_private_and_equals_the_output(
    tmp_path: Path, file: Path, command: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDMARK_STORE", fill_store(str(tmp_path / "a.db"), sample_transcript()))
    path = tmp_path / "out"
    to_kind = (command, file if command == "convert" else "latest", "--to", kind)
    printed = run_cli(*to_kind)[1]
    result = written(*to_kind, "-o", path, "--json")
    assert result == {
        "id": "ses_shop",
        "path": str(path),
        "messages": 19,
        "size": path.stat().st_size,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().rstrip("\n") == printed.rstrip("\n")
    path.write_text("old")
    line = refusal(*to_kind, "-o", path)
    assert "--force" in line
    assert str(path) in line
    assert path.read_text() == "old"
    assert "Wrote session ses_shop" in output_of(*to_kind, "-o", path, "--force")
    assert path.read_text().rstrip("\n") == printed.rstrip("\n")


def test_untrusted_text_does_not_control_a_terminal(tmp_path: Path) -> None:
    steering = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    file = sample_transcript()
    messages = (*file.messages[:-1], file.messages[-1])
    info = SessionInfo(id="s", title=f"a{steering}b", directory=steering)
    message = TextPart(text=f"one{steering}two\n\tthree")
    odd = type(messages[-1])(info=messages[-1].info, parts=(message,))
    path = write_transcript(tmp_path, Transcript(info=info, messages=(*messages[:-1], odd)))
    text = in_terminal("convert", path, "--to", "markdown")
    assert not any(ch in text for ch in ("\x1b", "\x07", "\u202e", "\x9b"))
    assert "one" in text
    assert "\n    three\n```\n" in text
    assert steering in run_cli("convert", path, "--to", "markdown")[1]


# --- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["convert", "export"])
def test_an_unknown_format_is_refused_with_the_known_ones(file: Path, command: str) -> None:
    for kind in ("carrier-pigeon", "", "opencode2"):
        line = refusal(command, file, "--to", kind)
        assert all(name in line for name in KINDS)
    for option in ("--view", "--request"):
        for kind in ("opencode", "markdown", "md"):
            line = refusal(command, file, "--to", kind, option)
            assert all(wire in line for wire in WIRES)


BARE = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@pytest.mark.parametrize("value", [BARE, {"messages": BARE}, BARE[:1]])
def test_an_ambiguous_format_is_not_guessed(tmp_path: Path, value: object) -> None:
    path = write_json(tmp_path, value)
    line = refusal("convert", path, "--to", "gemini")
    assert "anthropic or openai-chat" in line
    assert "--format" in line
    for name in ("anthropic", "openai-chat"):
        report = written("convert", path, "--to", "gemini", "--format", name)
        assert_accepted("gemini", report)


@pytest.mark.parametrize(
    "value", [{}, [], 5, "text", None, True, [[]], [5], {"messages": []}, [{"role": "x"}], {"a": 1}]
)
def test_an_unrecognized_file_is_refused_with_the_formats_tried(
    tmp_path: Path, value: object
) -> None:
    path = write_json(tmp_path, value)
    line = refusal("convert", path, "--to", "markdown")
    assert str(path) in line
    assert "--format" in line
    for name in ("opencode", "claude-code", "codex", "openai-chat", "anthropic", "gemini-cli"):
        assert name in line
