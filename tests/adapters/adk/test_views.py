"""How a session stores ADK's contents and shows them, without a run of ADK."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("google.adk", reason="needs the extra `adk`")

from google.genai import types

import foldmark
from foldmark.adapters.adk.contents import AdkDialect, ContentReader, has_results
from foldmark.adapters.adk.conversation import AgentConversation
from foldmark.adapters.adk.requests import AgentRequest
from foldmark.adapters.conversations import insert_transient
from foldmark.session.history_mirror import HistoryMirror
from tests.support.adk_agents import called, chance, check_pairs, refusal, said, texts
from tests.support.effort import examples

SESSIONS = examples(30, 150)
PICTURE = bytes(range(250, 256)) * 3


def request(
    contents: list[types.Content], passing: tuple[tuple[types.Content, int], ...] = ()
) -> AgentRequest:
    return AgentRequest(
        contents=tuple(contents),
        transient=passing,
        measured=(),
        system="",
        tools=(),
        run="run",
        events=0,
        continues=False,
    )


def gave(*outputs: str, tool: str = "read") -> types.Content:
    parts = [
        types.Part(function_response=types.FunctionResponse(name=tool, response={"result": out}))
        for out in outputs
    ]
    return types.Content(role="user", parts=parts)


# --- nothing of a content is lost ---


def model_parts() -> Iterator[types.Part]:
    yield types.Part(text="I think.", thought=True, thought_signature=PICTURE)
    yield types.Part(text="I say.", thought_signature=b"signed")
    yield types.Part(
        executable_code=types.ExecutableCode(code="1+1", language=types.Language.PYTHON, id="x")
    )
    yield types.Part(
        code_execution_result=types.CodeExecutionResult(
            outcome=types.Outcome.OUTCOME_OK, output="2", id="x"
        )
    )
    yield types.Part(inline_data=types.Blob(data=PICTURE, mime_type="image/png", display_name="p"))
    yield types.Part(
        function_call=types.FunctionCall(id="own", name="read", args={"path": "a", "n": [1, None]}),
        thought_signature=PICTURE,
    )
    yield types.Part(function_call=types.FunctionCall(name="read", args={}))
    yield types.Part(function_call=types.FunctionCall(name="list"))


def user_parts() -> Iterator[types.Part]:
    yield types.Part(text="Look at these.", part_metadata={"origin": "mail"})
    yield types.Part(
        inline_data=types.Blob(data=PICTURE, mime_type="video/mp4", display_name="film"),
        video_metadata=types.VideoMetadata(fps=2.0, start_offset="1s", end_offset="9s"),
    )
    yield types.Part(
        file_data=types.FileData(
            file_uri="gs://bucket/a.pdf", mime_type="application/pdf", display_name="a"
        )
    )


def result_parts() -> Iterator[types.Part]:
    inside = types.FunctionResponsePart(
        inline_data=types.FunctionResponseBlob(
            data=PICTURE, mime_type="image/png", display_name="shot"
        )
    )
    yield types.Part(
        function_response=types.FunctionResponse(
            id="own",
            name="read",
            response={"rows": [1, 2], "more": {"a": None}},
            parts=[inside],
            will_continue=False,
            scheduling=types.FunctionResponseScheduling.WHEN_IDLE,
        )
    )
    yield types.Part(
        function_response=types.FunctionResponse(name="read", response={"error": "no such file"})
    )
    yield types.Part(function_response=types.FunctionResponse(name="list", response={"output": ""}))


def every_field() -> list[types.Content]:
    return [
        types.Content(role="user", parts=list(user_parts())),
        types.Content(role="model", parts=list(model_parts())),
        types.Content(role="user", parts=list(result_parts())),
        said("Done."),
    ]


def test_every_field_survives_a_restart_without_adks_own_history(tmp_path: Path) -> None:
    contents = every_field()
    with foldmark.open(tmp_path / "a.db", session="s", window=100_000) as session:
        view = HistoryMirror(session, AdkDialect())
        view.take(ContentReader().read(contents, ()))
        assert [turn.content for turn in view.view()] == contents
    with foldmark.open(tmp_path / "a.db", session="s", window=100_000) as session:
        written = [turn.content for turn in HistoryMirror(session, AdkDialect()).view()]
    assert texts(written) == texts(contents)


def test_calls_without_ids_find_their_results_by_order() -> None:
    contents = [said("Go.", "user"), called("a", "b"), gave("one", "two"), called("c"), gave("3")]
    turns = ContentReader()
    reads = [turn.read for turn in turns.read(contents, ())]
    names = [getattr(part, "call_id", "") for read in reads for part in read.parts if read.parts]
    answers = [answer.call_id for read in reads for answer in read.results]
    assert answers == [name for name in names if name]
    assert len(set(answers)) == 3
    grown = [*(content.model_copy() for content in contents), called("d", "e"), gave("4")]
    later = [turn.read for turn in turns.read(grown, ())]
    assert later[: len(reads)] == reads
    assert later[-1].results[0].call_id not in answers


def test_a_result_of_nobodys_call_is_told_in_words(tmp_path: Path) -> None:
    agent = conversation(tmp_path, "s", 6_000)
    view = agent.view(request([said("Go.", "user"), gave("of nobody"), said("Well.")]))
    check_pairs(view)
    assert "of nobody" in texts(view)
    agent.session.close()


def test_what_is_there_for_one_request_is_counted_and_stands_where_it_stood(tmp_path: Path) -> None:
    agent = conversation(tmp_path, "s", 6_000)
    noon = said("It is noon.", "user")
    history = [said("Go.", "user"), called("a"), gave("one"), said("Well."), said("On.", "user")]
    view = agent.view(request(history, ((noon, 4),)))
    assert view == [*history[:-1], noon, history[-1]]
    assert agent.session.fixed_tokens > 0
    assert "noon" not in str(agent.session.export().messages)
    places = [0, 1, 2, None, None]
    for before in (2, 4):  # never between a call and its result
        shown = insert_transient(history[:3], places, [(noon, before)], has_results)
        assert shown == [*history[:3], noon]
    agent.session.close()


def test_a_session_that_was_closed_meanwhile_is_shortened_all_the_same(tmp_path: Path) -> None:
    agent = conversation(tmp_path, "s", 60_000)
    talk = [said("Go.", "user")]
    for step in range(30):
        talk += [called(f"f{step}"), gave("word " * 400)]
    whole = agent.view(request(talk))
    agent.session.close()
    agent = conversation(tmp_path, "s", 60_000)
    shorter = agent.shorter(request(talk), refusal())
    assert shorter is not None
    check_pairs(shorter)
    assert len(texts(shorter)) < len(texts(whole)) / 2
    assert agent.shorter(request(talk), RuntimeError("no network")) is None
    agent.session.close()


# --- pairs and budgets over random sessions ---


def conversation(folder: Path, name: str, window: int) -> AgentConversation:
    session = foldmark.open(folder / "a.db", session=name, window=window, output=200, durable=False)
    return AgentConversation(name, session)


def random_step(rng: random.Random, step: int) -> list[types.Content]:
    if rng.random() < 0.25:
        return [said(f"Request {step}: " + "please " * rng.randint(1, 30), "user")]
    tools = [rng.choice(("read", "list")) for _ in range(rng.randint(1, 4))]
    has_ids = rng.random() < 0.5
    calls = [
        types.FunctionCall(name=tool, args={"n": step}, id=f"c{step}-{n}" if has_ids else None)
        for n, tool in enumerate(tools)
    ]
    content = types.Content(role="model", parts=[types.Part(function_call=call) for call in calls])
    answered = [call for call in calls if rng.random() < 0.9]
    results = [
        types.FunctionResponse(
            name=call.name, id=call.id, response={"result": "word " * rng.randint(1, 300)}
        )
        for call in answered
    ]
    parts = [types.Part(function_response=result) for result in results]
    return [content, *([types.Content(role="user", parts=parts)] if parts else [])]


def test_random_sessions_keep_their_pairs_and_their_budgets(tmp_path: Path) -> None:
    rng = chance(11)
    for number in range(SESSIONS):
        name, window = f"s{number}", rng.choice([2_500, 4_000, 8_000])
        agent = conversation(tmp_path, name, window)
        talk = [said("Go.", "user")]
        for step in range(rng.randint(2, 7)):
            if rng.random() < 0.08:
                talk = talk[: rng.randint(1, len(talk))]
            if rng.random() < 0.1:
                agent.session.close()
                agent = conversation(tmp_path, name, window)
            # ADK copies what it has for every request.
            talk = [content.model_copy() for content in talk] + random_step(rng, step)
            view = agent.view(request(talk))
            check_pairs(view)
            assert agent.session.plan().tokens <= agent.session.usable
        agent.session.close()
