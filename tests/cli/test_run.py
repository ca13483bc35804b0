"""`foldmark run` without a terminal: its output, its exit codes, and how it continues."""

import json
import os
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from rich.console import Console

import foldmark
from foldmark.agent.permissions import Permissions
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.cli.chat.context import RunOptions, permission_rules
from foldmark.cli.chat.lines import TerminalFilter
from foldmark.cli.chat.screen import Gauge, cached_share, dollars, short, wrap_text
from foldmark.model import events
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    Message,
    SessionInfo,
    TextPart,
    Tokens,
    Transcript,
)
from foldmark.store.store import Store
from tests.support.chat_server import MODEL, TITLE, Call, ChatServer, Step, chat_server
from tests.support.cli_program import (
    STEERING,
    STORE,
    compacted_store,
    json_of,
    output_of,
    refusal,
    run_cli,
    run_program,
    sample_transcript,
    write_transcript,
)
from tests.support.local_model import weights

if TYPE_CHECKING:
    import subprocess

LOOK: Step = ("I look. ", Call("read", {"path": "app.py"}))
WRITE: Step = ("I write.", Call("write", {"path": "order.py", "content": "works = True\n"}))
DONE: Step = ("It ", "works.")


def arguments(server: ChatServer, folder: Path, *more: object) -> list[str]:
    options = ["run", "--model", MODEL, "--window", 16_000, "--base-url", server.url]
    return [*map(str, options), "--dir", str(folder), *map(str, more)]


def run_agent(
    server: ChatServer, folder: Path, *more: object, data: bytes = b""
) -> tuple[int, str, str]:
    return run_cli(*arguments(server, folder, *more), data=data)


def session_of(errors: str) -> str:
    """The session in the hint that says how to continue."""
    return errors.rpartition("--session ")[2].split()[0]


# --- output ------------------------------------------------------------------------------


def test_text_goes_to_standard_output_and_everything_else_to_standard_error(project: Path):
    with chat_server(LOOK, WRITE, DONE) as server:
        code, output, errors = run_agent(server, project, "Fix the order")
    assert code == 0
    assert output == "I look. \nI write.\nIt works.\n"
    assert "✓ read app.py" in errors
    assert "✓ write order.py" in errors
    assert "done after 3 steps, 1 file changed" in errors
    assert (project / "order.py").read_text() == "works = True\n"
    with Store.open(STORE) as store:
        info = store.resolve(session_of(errors)).info
    assert (info.directory, info.title) == (str(project), TITLE)


def test_control_sequences_are_removed_even_if_split_between_pieces(project: Path):
    message = ("a\x1b", "[31mred\x1b]0;tit", "le\x07 [bold]b[/bold]\u202e\tc")
    with chat_server(message) as server:
        _, output, _ = run_agent(server, project, "Speak")
    assert output == "ared [bold]b[/bold] \tc\n"


def test_a_quiet_run_prints_only_the_final_reply(project: Path):
    with chat_server(LOOK, DONE) as server:
        assert run_agent(server, project, "Fix it", "-q") == (0, "It works.\n", "")


def test_every_event_is_a_line_of_json_and_the_last_has_the_result(project: Path):
    with chat_server(LOOK, WRITE, DONE) as server:
        code, output, errors = run_agent(server, project, "Fix it", "--json")
    assert (code, errors) == (0, "")
    result = [json.loads(line) for line in output.splitlines()]
    assert all(set(event) == {"number", "session", "kind", "at", "data"} for event in result)
    numbers = [event["number"] for event in result if event["number"]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    kinds = [event["kind"] for event in result]
    assert kinds.count("tool.finished") == 2
    assert kinds.count("step.finished") == 3
    assert kinds[-2:] == ["turn.finished", "run.ended"]
    data = result[-1]["data"]
    assert (data["text"], data["ended"], data["steps"]) == ("It works.", "stop", 3)
    assert (data["files"], data["session"]) == (["order.py"], result[0]["session"])
    assert data["tokens"]["output"] == 30


def test_the_task_may_come_from_standard_input_and_the_prompt_from_a_file(project: Path):
    prompt = project.parent / "prompt.txt"
    prompt.write_text("You are a writer.")
    with chat_server(DONE) as server:
        options = ("-", "--prompt", prompt, "-q")
        result = run_agent(server, project, *options, data=b"Check the totals")
    assert result == (0, "It works.\n", "")
    system, user = server.requests[0]["messages"][:2]
    assert "You are a writer." in json.dumps(system)
    assert "Check the totals" in json.dumps(user)


# --- permissions -----------------------------------------------------------------------------

SHELL: Step = (Call("shell", {"command": "echo tested > out.txt"}),)


def test_without_a_terminal_the_shell_is_refused_and_a_line_says_how_to_allow_it(project: Path):
    with chat_server(SHELL, DONE) as server:
        code, _, errors = run_agent(server, project, "Test it")
    assert code == 0
    assert "allow it with: --allow shell\n" in errors
    assert "✗ shell" in errors
    assert not (project / "out.txt").exists()
    assert "not permitted" in json.dumps(server.requests[-1]["messages"])


def test_an_allowed_command_runs_unless_a_stricter_rule_forbids_it(project: Path):
    touch, remove = (Call("shell", {"command": line}) for line in ("touch out.txt", "rm app.py"))
    with chat_server((touch,), SHELL, (remove,), DONE) as server:
        rules = ("--allow", "shell", "--deny", "shell:rm *")
        _, _, errors = run_agent(server, project, "Test it", *rules)
    # A redirection may hide what is forbidden, so it is not run.
    assert (project / "out.txt").read_text() == ""
    assert (project / "app.py").exists()
    assert "✗ shell rm app.py · not permitted" in errors


def test_the_strictest_rule_wins_over_narrower_rules(tmp_path: Path):
    options = RunOptions(
        allow=["shell:git *", "*", "edit", "read:*.py"],
        ask=["edit:src/*", "write:*"],
        deny=["read", "shell:git push*", "write:*"],
    )
    decide = Permissions(permission_rules(options, workspace_tools(tmp_path)).items()).decide
    assert decide("shell", "git status") == "allow"
    assert decide("shell", "git push origin") == "deny"
    assert decide("edit", "src/a.py") == "ask"
    assert decide("edit", "a.py") == "allow"
    assert decide("read", "a.py") == "deny"
    assert decide("write", "a.py") == "deny"


def test_a_failed_command_is_shown_with_its_exit_code(project: Path):
    with chat_server((Call("shell", {"command": "echo no; exit 3"}),), DONE) as server:
        _, _, errors = run_agent(server, project, "Test it", "--allow", "shell")
    assert "✗ shell echo no; exit 3 · exit 3 · " in errors
    assert "✓" not in errors


# --- refusals, endings and continued sessions ---------------------------------------------


KNOWN = f"x --model {MODEL}"
FITTING = f"{KNOWN} --window 9000"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("x", "give --model PROVIDER:NAME, or set `model` in ~/.config/foldmark/foldmark.toml"),
        ("x", "--model local runs"),
        ("x --model anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        (f"{KNOWN} --base-url http://x/v1", "tokens: --window N"),
        (f"{KNOWN} --base-url x/v1", "--base-url is 'x/v1'"),
        ("x --model nobody:x", "Set --base-url URL for"),
        ("x --model gemini:gemini-2.5-pro", "google:gemini-2.5-pro?"),
        ("x --model locl", "no model 'locl'; did you mean local?"),
        ("x --model local:/nope.gguf", "'/nope.gguf' is not an existing .gguf file"),
        ("x --model local:shop/app.py", "shop/app.py' is not an existing .gguf file"),
        (f"--model {MODEL}", 'foldmark run "TASK"'),
        (f"'  ' --model {MODEL}", "the task is empty"),
        ("x --json -q", "--json and --quiet"),
        ("x --max-cost 0", "--max-cost"),
        (f"-c --model {MODEL} --window 9000", "no earlier run in this folder"),
        (f"-c --session nix --model {MODEL} --window 9000", "no session 'nix'"),
        (f"{FITTING} --session nix", "no session 'nix'"),
        (f"{KNOWN} --dir shop/app.py", "app.py' is a file, not a folder"),
        (f"{FITTING} --allow bash", "no tool matches the rule 'bash'; the tools are "),
        (f"{FITTING} --dir nowhere", "no folder"),
        (f"{KNOWN} --prompt nowhere.txt", "nowhere.txt: cannot be read"),
    ],
)
def test_a_run_that_cannot_start_is_refused_in_one_line(
    line: str, cause: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    problem = refusal("run", *shlex.split(line))
    assert cause in problem
    assert "in Python" not in problem
    assert not STORE.exists()


def test_a_provider_that_refuses_is_an_error_and_the_session_stays_free(project: Path):
    with chat_server((401,)) as server:
        code, output, errors = run_agent(server, project, "Fix it", "--json")
    assert code == 2
    assert errors.count("\n") == 1
    assert "did not answer" in errors
    *_, turn, last = map(json.loads, output.splitlines())
    assert (turn["kind"], turn["data"]["ended"]) == ("turn.finished", "failed")
    assert (last["kind"], last["data"]["ended"]) == ("run.ended", "failed")
    assert last["session"] == turn["session"]
    assert last["data"]["error"] in errors
    with foldmark.open(STORE, session="latest") as session:
        assert session.user("It is free").id


def test_a_reached_limit_is_reported_with_exit_code_1(project: Path):
    with chat_server(LOOK) as server:
        code, _, errors = run_agent(server, project, "Fix it", "--max-steps", "2", "-q")
    assert code == 1
    assert "step limit reached after 2 steps" in errors
    assert "foldmark run --continue --session" in errors


@pytest.mark.usefixtures("project")
def test_events_end_with_the_error_even_without_a_session():
    code, output, errors = run_cli("run", "Fix it", "--json")
    last = json.loads(output)
    assert (code, last["kind"], last["data"]["ended"]) == (2, "run.ended", "failed")
    assert errors == f"foldmark: {last['data']['error']}\n"


def test_a_run_continues_a_named_session_or_the_newest_of_its_folder(project: Path):
    other = project.parent / "other"
    other.mkdir()
    with chat_server(DONE) as server:
        _, _, errors = run_agent(server, project, "Fix the order")
        _, _, others = run_agent(server, other, "Something else")
        code, _, again = run_agent(server, project, "-c")
        name = session_of(others)
        run_agent(server, project, "And more", "--session", name)
    assert code == 0
    assert session_of(again) == session_of(errors)
    assert "Fix the order" in json.dumps(server.requests[2]["messages"])
    assert "Something else" in json.dumps(server.requests[3]["messages"])


def test_continue_takes_the_newest_session_that_run_created_in_this_folder(project: Path):
    copy = write_transcript(project, sample_transcript(calls=2, model=""))
    with chat_server(DONE) as server:
        line = refusal(*arguments(server, project, "--continue"))
        assert "no earlier run in this folder to continue; give a task" in line
        _, _, first = run_agent(server, project, "Fix the order")
        _, _, second = run_agent(server, project, "Fix the ticket")
        # Newer than both, and of this folder; no reply of it names a model.
        transcript = Transcript(
            info=SessionInfo(id="imported", directory=str(project)),
            messages=tuple(
                Message(
                    info=replace(item.info, provider_id=UNSET, model_id=UNSET), parts=item.parts
                )
                if isinstance(item.info, AssistantInfo)
                else item
                for item in sample_transcript(calls=2).messages
            ),
        )
        output_of("import", copy, write_transcript(project, transcript, "other.json"))
        code, _, again = run_agent(server, project, "-c")
    assert (code, session_of(again)) == (0, session_of(second))
    assert session_of(first) != session_of(second)
    result = refusal("run", "Go on", "--session", "imported", "--dir", project)
    assert "no model is set" in result


def test_the_hint_is_a_complete_command_and_the_model_is_the_sessions(project: Path):
    with chat_server(DONE) as server:
        _, _, errors = run_agent(server, project, "Fix it", "--store", "my kept.db")
        hint = errors.rpartition("continue with: ")[2].strip()
        command = shlex.split(hint)
        assert command[:4] == ["foldmark", "run", "--continue", "--session"]
        code, output, again = run_cli(*command[1:], "-q")
        assert (code, output, again) == (0, "It works.\n", "")
        at = command.index("--model")
        del command[at : at + 2]
        code, output, _ = run_cli(*command[1:])
    assert (code, output) == (0, "It works.\n")
    assert server.requests[-1]["model"] == MODEL.partition(":")[2]


def test_an_unknown_session_is_refused_with_a_similar_one(project: Path):
    with chat_server(DONE) as server:
        _, _, errors = run_agent(server, project, "Fix it")
        name = session_of(errors)
        near = refusal(*arguments(server, project, "Go on", "--session", f"{name[:-2]}xx"))
    assert f"did you mean {name}?; omit --session for a new one" in near
    assert len(server.requests) == 1


def test_a_compaction_is_reported_with_sizes_before_and_after(project: Path):
    (project / "long.txt").write_text("the orders of this shop load and load\n" * 400)
    read = ("I read.", Call("read", {"path": "long.txt"}))
    with chat_server(*([read] * 9), DONE) as server:
        code, _, errors = run_agent(server, project, "Read it", "--summarizer", "digest")
    assert code == 0
    assert "pruned " in errors or "summarized the older messages: " in errors
    assert " → " in errors


# --- signals --------------------------------------------------------------------------------------


def start_program(server: ChatServer, folder: Path, *more: object) -> "subprocess.Popen[bytes]":
    """Start the real program, and wait for its first text."""
    program = run_program(*arguments(server, folder, *more))
    assert program.stdout is not None
    assert os.read(program.stdout.fileno(), 7) == b"I wait."
    return program


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_signal_stops_a_run_which_says_how_to_continue(project: Path, number: int, expected: int):
    never = threading.Event()
    with chat_server(("I wait.", never)) as server:
        program = start_program(server, project, "Fix it", "--store", "kept.db")
        program.send_signal(number)
        _, errors = program.communicate(timeout=30)
        assert program.returncode == expected
    result = errors.decode()
    name = session_of(result)
    assert result.count("stopped") == 1
    assert f"continue with: foldmark run --continue --session {name} --model {MODEL}" in result
    assert "--store kept.db" in result
    with Store.open("kept.db") as store:
        assert store.resolve(name).holder is None
    with foldmark.open("kept.db", session=name) as session:
        last = session.export().messages[-1].parts[-1]
    assert isinstance(last, TextPart)
    assert last.text == "I wait."


def test_a_run_that_was_killed_during_a_call_can_be_continued(project: Path):
    sleep = ("I wait.", Call("shell", {"command": "touch begun; sleep 5"}))
    with chat_server(sleep, DONE) as server:
        program = start_program(server, project, "Fix it", "--allow", "shell")
        while not (project / "begun").exists():
            assert program.poll() is None
        program.kill()
        program.communicate()
        code, output, errors = run_agent(server, project, "--continue")
    assert (code, output) == (0, "It works.\n")
    last = server.requests[-1]["messages"]
    calls = [call["id"] for message in last for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in last if message["role"] == "tool"]
    assert calls == results
    assert "Cut off" in json.dumps(last)
    assert session_of(errors)


def test_a_run_ends_when_its_output_is_closed(project: Path):
    never = threading.Event()
    words = ("I wait.", *["and wait. "] * 50, never)
    with chat_server(words) as server, start_program(server, project, "Fix it") as program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.wait(30) == 1


# --- a real model ---------------------------------------------------------------------------------


def test_a_local_model_runs_where_it_is_installed(project: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("FOLDMARK_WEIGHTS", str(weights()))
    monkeypatch.setenv("FOLDMARK_OUTPUT", "40")  # it is slow, and says nothing of interest
    options = ("run", "Say hello", "--model", "local", "--window", "4096", "--max-steps", "1")
    code, output, errors = run_cli(*options, "--dir", project)
    assert code in (0, 1), errors
    assert "runs on this machine, with a window of 4,096 tokens" in errors
    assert output.strip() or "✗" in errors or "✓" in errors


# --- parts ----------------------------------------------------------------------------------------


def test_lines_are_broken_between_words_and_the_last_keeps_its_spaces():
    narrow = Console(width=12)
    assert wrap_text("the order of the sh", narrow) == ["the order of", "the sh"]
    assert wrap_text("the shop\n\n  indented", narrow) == ["the shop", "", "  indented"]
    assert wrap_text("the shop is ", narrow) == ["the shop is "]
    assert wrap_text("of the shops ", narrow) == ["of the shops "]
    assert wrap_text("of the shops open", narrow) == ["of the shops", "open"]
    assert wrap_text("x" * 25, Console(width=10)) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrap_text("漢字" * 4, Console(width=6)) == ["漢字漢", "字漢字", "漢字"]


def test_an_incomplete_sequence_is_held_back_up_to_a_limit():
    clean = TerminalFilter()
    assert clean.feed("a\x1b]0;" + "t" * 20) == "a"
    assert "t" in clean.feed("t" * 500)
    assert not STEERING.search(clean.flush())


def test_the_gauge_shows_what_is_hidden_and_drops_what_does_not_fit(tmp_path: Path):
    where = compacted_store(str(tmp_path / "store.db"))
    folded = json_of("show", "ses_live", "--store", where)["folded"]
    with foldmark.open(where, session="ses_live", window=8_000, output=1_000) as session:
        gauge = Gauge(session)
        hidden = next(event for event in session.events() if event.kind == events.PRUNED)
        assert (gauge.folded, gauge.pruned) == (folded, hidden.data["parts"])
        assert f" of 7k · pruned {gauge.pruned} · summarized {folded}" in gauge.line(80).plain
        assert all(len(gauge.line(width).plain) <= width for width in range(30, 80))
        session.undo()
        gauge.refresh()
        assert (gauge.folded, gauge.pruned) == (0, hidden.data["parts"])
        session.undo()
        gauge.refresh()
        assert gauge.pruned == 0
        assert "pruned" not in gauge.line(80).plain


def test_figures_are_formatted_briefly():
    assert [short(n) for n in (0, 999, 1_000, 9_949, 16_000, 1_200_000)] == [
        *("0", "999", "1k", "9.9k", "16k", "1.2M"),
    ]
    assert (dollars(0.0123), dollars(12.3)) == ("$0.012", "$12.30")
    cache = Cache(read=800, write=0)
    assert cached_share(Tokens(input=200, output=10, cache=cache)) == 0.8
    assert cached_share(Tokens(input=200, output=10)) is None
