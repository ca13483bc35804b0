"""The compaction process of the specification, step by step, in a stored session."""

from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.compaction.situation import CompactionRequest
from foldmark.model.messages import AssistantInfo, TextPart, Tokens, UserInfo
from foldmark.model.prompt_messages import message_texts
from foldmark.policy import PRESETS, QUESTION
from foldmark.session.hooks import CompactionChange
from foldmark.session.session import Session
from foldmark.summary.prompting import prompt
from foldmark.summary.protocol import ModelReply, ModelRequest
from foldmark.testing import ScriptedModel
from tests.support.compacted_sessions import LONG, read_files

SPEC = ("opencode-2025", "opencode-buffer", "opencode", "codelet", "codelet-usable")
SAID = "We looked at the parser. It is slow. Next: rewrite its loop."


def opened(
    tmp_path: Path, scripted: ScriptedModel, policy: str = "opencode", **more: Any
) -> Session:
    settings: dict[str, Any] = {"window": 60_000, "output": 4_000, **more}
    return foldmark.open(tmp_path / "agent.db", policy=policy, summarizer=scripted, **settings)


def work(session: Session, *, finished: bool) -> None:
    """A request, and a turn that is finished or not."""
    read_files(session)
    if finished:
        session.record("It is slow.")


def text_of(ask: ModelRequest) -> str:
    return "\n".join(text for message in ask.messages for text in message_texts(message))


def last_text(session: Session) -> str:
    message = session.export().messages[-1]
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


@pytest.mark.parametrize("policy", SPEC)
def test_the_prompts_are_those_of_the_specification(tmp_path: Path, policy: str) -> None:
    model = ScriptedModel(SAID)
    with opened(tmp_path, model, policy) as session:
        work(session, finished=True)
        session.compact()
    (ask,) = model.requests
    rules = PRESETS[policy].compact
    own = rules.fallbacks[0] == "prefix" and "read" not in text_of(ask)
    assert own or ask.system == prompt(f"agent-{rules.prompts}")
    assert text_of(ask).endswith(f"{QUESTION}\n\n{prompt('request-001')}")
    assert ask.tools == ()


def test_all_prior_messages_are_sent_as_text(tmp_path: Path) -> None:
    model = ScriptedModel(SAID)
    with opened(tmp_path, model, "opencode-2025", model="test:one") as session:
        work(session, finished=True)
        session.compact()
    lines = text_of(model.requests[0])
    assert "[User]: Look at the parser." in lines
    assert '[Assistant tool call]: read({"filePath":"app/parser_0.py"})' in lines
    assert "[Assistant]: It is slow." in lines
    assert "[Tool result]: The build runs" in lines


def test_long_results_are_cut_at_two_thousand_characters(tmp_path: Path) -> None:
    model = ScriptedModel(SAID)
    with opened(tmp_path, model) as session:
        work(session, finished=True)
        session.compact()
    assert LONG[:2000] + "\n[truncated]" in text_of(model.requests[0])
    assert LONG[:2001] + "\n" not in text_of(model.requests[0]).replace(f"[Assistant]: {LONG}", "")


def test_the_summary_is_the_compaction_agents_reply_to_the_marker(tmp_path: Path) -> None:
    tokens = Tokens(input=900, output=20)
    model = ScriptedModel(ModelReply(text=SAID, tokens=tokens, cost=0.25), name="test:small")
    with opened(tmp_path, model, model="test:one") as session:
        work(session, finished=True)
        session.compact()
        *_, marker, summary = session.export().messages
    assert isinstance(marker.info, UserInfo)
    assert marker.info.model
    assert marker.info.model.model_id == "one"
    info = summary.info
    assert isinstance(info, AssistantInfo)
    assert (info.mode, info.agent, info.summary) == ("compaction", "compaction", True)
    assert info.parent_id == marker.id
    assert (info.provider_id, info.model_id) == ("test", "small")
    assert (info.tokens, info.cost) == (tokens, 0.25)
    (part,) = summary.parts
    assert isinstance(part, TextPart)
    assert part.text == SAID


class Change:
    """A hook that adds context, or replaces the prompt."""

    def __init__(self, **fields: Any) -> None:
        self.change = CompactionChange(**fields)
        self.requests: list[CompactionRequest] = []

    def before_compact(self, compaction: CompactionRequest) -> CompactionChange:
        self.requests.append(compaction)
        return self.change


def test_a_hook_adds_context_lines(tmp_path: Path) -> None:
    model, hook = ScriptedModel(SAID), Change(context=("The branch is main.", "Tests are slow."))
    with opened(tmp_path, model, hooks=[hook]) as session:
        work(session, finished=True)
        session.compact(instructions="Mind the cache.")
    assert text_of(model.requests[0]).endswith(
        f"{prompt('request-001')}\n\nThe branch is main.\n\nTests are slow.\n\n"
        "The user asks for this focus: Mind the cache."
    )
    assert hook.requests[0].instructions == "Mind the cache."


def test_a_hook_replaces_the_prompt(tmp_path: Path) -> None:
    model, hook = ScriptedModel(SAID), Change(prompt="Say it in one line.")
    with opened(tmp_path, model, "foldmark", hooks=[hook]) as session:
        work(session, finished=True)
        session.compact()
        assert SAID in last_text(session)
    assert text_of(model.requests[0]).endswith("Say it in one line.")


def test_a_process_that_takes_over_a_marker_knows_its_options(tmp_path: Path) -> None:
    hook = Change(context=("The branch is main.",))
    with opened(tmp_path, ScriptedModel(SAID), hooks=[hook]) as session:
        work(session, finished=True)
        session.queue(instructions="Mind the cache.")
        name = session.id
    model = ScriptedModel(SAID)
    with foldmark.open(
        tmp_path / "agent.db", session=name, policy="opencode", window=60_000, summarizer=model
    ) as session:
        session.messages()
        assert session.pending() is None
    assert "The branch is main.\n\nThe user asks for this focus: Mind the cache." in text_of(
        model.requests[0]
    )


@pytest.mark.parametrize("policy", SPEC)
def test_an_interrupted_turn_resumes_with_a_synthetic_message(tmp_path: Path, policy: str) -> None:
    with opened(tmp_path, ScriptedModel(SAID), policy) as session:
        work(session, finished=False)
        session.compact(auto=True)
        last = session.export().messages[-1]
        assert last.is_user
        assert last_text(session) == "Continue if you have next steps"
        part = last.parts[0]
        assert isinstance(part, TextPart)
        assert part.synthetic


def test_nothing_resumes_after_a_finished_reply_or_a_manual_compaction(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedModel(SAID)) as session:
        work(session, finished=True)
        session.compact(auto=True)
        assert last_text(session) == SAID
        work(session, finished=False)
        session.compact()
        assert last_text(session) == SAID


def test_a_hook_can_forbid_resuming(tmp_path: Path) -> None:
    class No:
        def before_continue(self, _: str) -> bool:
            return False

    with opened(tmp_path, ScriptedModel(SAID), hooks=[No()]) as session:
        work(session, finished=False)
        session.compact(auto=True)
        assert last_text(session) == SAID


def test_our_own_policy_resumes_without_a_synthetic_message(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedModel("nonsense"), "foldmark") as session:
        work(session, finished=False)
        session.compact(auto=True)
        assert session.export().messages[-1].is_user is False
        assert session.messages()[-1].role in {"tool", "user"}


def test_the_summarizer_is_the_configured_model_else_the_sessions(tmp_path: Path) -> None:
    with foldmark.open(
        tmp_path / "agent.db", window=60_000, output=4_000, model="nobody:one"
    ) as session:
        work(session, finished=True)
        session.compact()  # the session's own model is not available: a digest
        events = [event.data for event in session.events() if event.kind == "session.compacted"]
        assert events[-1]["how"] == "digest"


def test_pruning_comes_before_a_compaction(tmp_path: Path) -> None:
    model = ScriptedModel(SAID)
    with opened(tmp_path, model, "foldmark", window=30_000) as session:
        work(session, finished=True)
        for _ in range(3):
            work(session, finished=True)
            session.messages()
        kinds = [operation.kind for operation in session.operations()]
    assert kinds == ["prune", "pivot"]
