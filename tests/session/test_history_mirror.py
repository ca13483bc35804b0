"""Mirroring a framework's history in a session, and returning the framework's own objects."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.adapters.wrapping import WireDialect, fit_calls
from foldmark.session.history_mirror import HistoryMirror
from foldmark.session.session import Session

Talk = list[Any]
WINDOW = 6_000


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with opened(tmp_path) as result:
        yield result


def opened(folder: Path, name: str = "one", window: int = WINDOW) -> Session:
    return foldmark.open(folder / "agent.db", session=name, window=window, output=400)


def following(session: Session) -> HistoryMirror[Any]:
    return HistoryMirror(session, WireDialect("openai-chat"))


def asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(*names: str, text: str | None = None) -> dict[str, Any]:
    calls = [
        {"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for name in names
    ]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def gave(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": text}


def check_pairs(view: Talk) -> None:
    """Check that every call is followed by its result, and every result has a call."""
    waiting: list[str] = []
    for message in view:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    assert not waiting


def test_unchanged_messages_are_the_same_objects(session: Session) -> None:
    talk = [asked("Go"), called("a", "b"), gave("b", "two"), gave("a", "one")]
    view = following(session)
    view.take(talk)
    assert sorted(map(id, view.view())) == sorted(map(id, talk))


def test_a_system_prompt_stays_first_after_a_compaction(session: Session) -> None:
    talk: Talk = [{"role": "system", "content": "Be brief."}, asked("Go")]
    view, messages = following(session), list[Any]()
    for step in range(90):
        talk += [called(f"c{step}"), gave(f"c{step}", f"line {step}\n" * 120)]
        view.take(talk)
        messages = view.view()
        assert messages[0] is talk[0]
        check_pairs(messages)
    assert any(operation.kind == "pivot" for operation in session.operations())
    assert "Go" in str(messages)


def test_a_restart_continues_the_session(tmp_path: Path) -> None:
    talk: Talk = [asked("Go")]
    for step in range(90):
        with opened(tmp_path) as session:
            talk += [called(f"c{step}"), gave(f"c{step}", f"line {step}\n" * 120)]
            talk = [dict(message) for message in talk]  # equal, but other objects
            view = following(session)
            view.take(talk)
            check_pairs(view.view())
    with opened(tmp_path) as session:
        messages = [m for m in session.export().messages if not getattr(m.info, "summary", None)]
        assert len([m for m in messages if not m.is_user]) == 90
        assert any(operation.kind == "pivot" for operation in session.operations())


def test_a_shortened_history_reverts_the_session(session: Session) -> None:
    talk = [asked("Go"), called("a"), gave("a", "one"), called("b"), gave("b", "two")]
    view = following(session)
    view.take(talk)
    talk = [*talk[:3], asked("No, otherwise."), called("c"), gave("c", "three")]
    view.take(talk)
    assert view.view() == talk
    talk = [*talk[:2], gave("a", "one, changed"), asked("And now?")]
    view.take(talk)
    assert view.view() == talk
    assert "two" not in str(view.view())
    assert session.search("three")  # nothing was lost


def test_another_run_continues_the_session(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        view = following(session)
        view.take([asked("Remember 17."), {"role": "assistant", "content": "Yes."}])
    with opened(tmp_path) as session:
        view = following(session)
        view.take([asked("What was it?")])
        assert texts(view) == ["Remember 17.", "Yes.", "What was it?"]
        view.take([asked("What was it?"), {"role": "assistant", "content": "17."}])
        assert len(view.view()) == 4


def test_another_run_with_the_same_system_prompt_continues_too(tmp_path: Path) -> None:
    prompt = {"role": "system", "content": "Be brief."}
    with opened(tmp_path) as session:
        view = following(session)
        view.take([prompt, asked("Remember 17."), {"role": "assistant", "content": "Yes."}])
    with opened(tmp_path) as session:
        view = following(session)
        for talk in ([prompt, asked("What was it?")], [dict(prompt), asked("And now?")]):
            view.take(talk)
            assert view.view()[0] is talk[0]
            assert "Remember 17." in str(view.view())
            assert view.view()[-1] is not None
        assert "What was it?" in str(view.view())
        assert not session.operations()


class UniqueDialect(WireDialect):
    """Messages with ids."""

    unique = True


def test_a_history_that_starts_with_a_later_run_is_recognized(tmp_path: Path) -> None:
    talk = [{**message, "name": f"n{n}"} for n, message in enumerate(talked(*["Go on."] * 6))]
    with opened(tmp_path) as session:
        first = HistoryMirror[Any](session, UniqueDialect("openai-chat"))
        first.take(talk[:2])
        first.take(talk[2:3])  # a run without the messages before it
        first.take(talk[2:4])
    with opened(tmp_path) as session:
        later = HistoryMirror[Any](session, UniqueDialect("openai-chat"))
        later.take([dict(message) for message in talk[2:]])
        names = [message.get("name") for message in later.view()]
        assert names == [f"n{number}" for number in range(6)]


def test_unpaired_calls_and_results_are_harmless(session: Session) -> None:
    talk = [
        asked("Go"),
        gave("never", "an orphan"),
        called("a", "b"),
        gave("a", "one"),
        asked("Stop, do this."),
        gave("a", "one again"),
        gave("b", "late"),
    ]
    view = following(session)
    for end in range(1, len(talk) + 1):
        view.take(talk[:end])
        check_pairs(view.view())
    text = str(view.view())
    assert "an orphan" in text
    assert "late" in text


def test_a_window_that_every_step_fills_is_compacted_repeatedly(session: Session) -> None:
    talk: Talk = [asked("Go")]
    view = following(session)
    for step in range(12):
        talk += [called(f"c{step}"), gave(f"c{step}", f"line {step} of it all\n" * 900)]
        talk += [asked(f"And {step}? {'please ' * 1_800}")]
        view.take(talk)
        check_pairs(view.view())
        assert session.plan().tokens <= session.usable
    pivots = [operation for operation in session.operations() if operation.kind == "pivot"]
    assert len(pivots) > 4


class TooLong(Exception):
    status_code = 400


def test_a_refusal_for_length_is_followed_by_a_shorter_request(tmp_path: Path) -> None:
    with opened(tmp_path, window=60_000) as session:
        talk: Talk = [asked("Go")]
        for step in range(60):
            talk += [called(f"c{step}"), gave(f"c{step}", f"line {step}\n" * 120)]
        sizes: list[int] = []

        def model(messages: Talk) -> str:
            check_pairs(messages)
            sizes.append(len(str(messages)))
            if sizes[-1] > 40_000:
                raise TooLong(
                    "This model's maximum context length is 8192 tokens. "
                    "However, your messages resulted in 15000 tokens."
                )
            return "well"

        ask = fit_calls(model, session=session)
        assert ask(talk) == "well"
        assert len(sizes) == 2
        assert session.limit is not None
        assert session.limit.context == 8192
        assert ask([*talk, {"role": "assistant", "content": "Well."}]) == "well"
        assert len(sizes) == 3


def test_other_errors_are_raised_unchanged(session: Session) -> None:
    def model(messages: Talk) -> str:
        raise TooLong("rate limit reached")

    with pytest.raises(TooLong):
        fit_calls(model, session=session)([asked("Go")])
    assert not session.operations()


def test_random_histories_with_restarts_and_reverts_stay_valid(tmp_path: Path) -> None:
    rng = random.Random(7)  # noqa: S311 - no secrets here
    for number in range(25):
        talk: Talk = []
        for step in range(rng.randint(3, 25)):
            with opened(tmp_path, f"s{number}", rng.choice([3_000, 6_000])) as session:
                if talk and rng.random() < 0.1:
                    talk = talk[: rng.randint(1, len(talk))]
                talk = [dict(message) for message in talk] + random_step(rng, number, step)
                view = following(session)
                view.take(talk)
                check_pairs(view.view())
                assert session.plan().tokens <= session.usable


def random_step(rng: random.Random, number: int, step: int) -> Talk:
    if rng.random() < 0.3:
        return [asked(f"Request {step}: " + "please " * rng.randint(1, 30))]
    names = [f"n{number}s{step}c{call}" for call in range(rng.randint(1, 4))]
    result = [called(*names, text=rng.choice([None, "I look."]))]
    return result + [
        gave(name, "word " * rng.randint(1, 400)) for name in names if rng.random() < 0.9
    ]


def talked(*texts: str) -> Talk:
    """Messages of the user and the model in turn."""
    return [
        {"role": "user" if index % 2 == 0 else "assistant", "content": text}
        for index, text in enumerate(texts)
    ]


def texts(view: HistoryMirror[Any]) -> list[str]:
    return [message["content"] for message in view.view()]


def test_a_whole_history_with_another_beginning_reverts_everything(session: Session) -> None:
    view = following(session)
    view.take(talked("A secret", "Yes.", "And?"))
    view.take(talked("Something else", "Well.", "And?"), whole=True)
    assert texts(view) == ["Something else", "Well.", "And?"]
    view.take(talked("A third"), whole=True)
    assert texts(view) == ["A third"]
    assert session.search("secret")  # nothing was lost


def test_a_sliding_history_is_not_added_twice(session: Session) -> None:
    view = following(session)
    whole = talked(*(f"word {number}" for number in range(30)))
    for end in range(5, 30):
        view.take([dict(message) for message in whole[max(0, end - 6) : end]])
        assert texts(view) == [f"word {number}" for number in range(end)]


def test_a_history_whose_first_message_changes_is_not_added_twice(session: Session) -> None:
    view = following(session)
    talk = talked(*(f"word {number}" for number in range(20)))
    for end in range(4, 20):
        view.take([asked(f"It is {end} o'clock."), *talk[1:end]])
    assert len(texts(view)) <= 21
    assert texts(view)[-1] == "word 18"


def test_a_side_request_is_reverted_when_the_history_continues(session: Session) -> None:
    view = following(session)
    talk = talked("one", "two", "three", "four")
    view.take(talk)
    view.take([asked("A title?")])
    assert texts(view)[-1] == "A title?"
    view.take([*talk, asked("five")])
    assert texts(view) == ["one", "two", "three", "four", "five"]


def test_a_history_with_new_ids_is_recognized_by_its_content(tmp_path: Path) -> None:
    for count in range(2, 7):
        with opened(tmp_path) as session:
            view = HistoryMirror[Any](session, UniqueDialect("openai-chat"))
            talk = talked(*(f"word {number}" for number in range(2 * count - 1)))
            view.take([{**message, "name": f"n{count}_{id(message)}"} for message in talk])
            assert texts(view) == [f"word {number}" for number in range(2 * count - 1)]


def test_an_unknown_window_is_an_error(tmp_path: Path) -> None:
    with foldmark.open(tmp_path / "agent.db") as session:
        view = following(session)
        view.take(talked("Go"))
        with pytest.raises(foldmark.BadPolicy, match="context window is unknown"):
            view.view()
