"""Digests of history that refers to nothing: talk and reports."""

from foldmark.digest.digest import digest
from foldmark.log.log import Log
from foldmark.model.messages import AssistantInfo, Message, TextPart, UserInfo
from foldmark.tokens.counters import by_classes

ROOM = 1_000


def talk(*answers: str) -> Log:
    messages: list[Message] = []
    for number, answer in enumerate(answers):
        asked = TextPart(text=f"Question {number}, please?")
        said = TextPart(text=answer)
        messages.append(Message(info=UserInfo(id=f"u{number}"), parts=(asked,)))
        info = AssistantInfo(id=f"a{number}", finish="stop")
        messages.append(Message(info=info, parts=(said,)))
    return Log(by_classes, messages)


def story(number: int) -> str:
    """Twenty lines in which the same few words come again and again."""
    return "\n".join(
        f"The river bends around hill {number} and the old mill turns." for _ in "x" * 20
    )


def test_the_room_is_filled_with_what_was_said() -> None:
    log = talk(*(f"Answer {number}.\n" + story(number) for number in range(60)))
    text = digest(log, range(len(log)), ROOM)
    assert 0.8 * ROOM < by_classes(text) <= ROOM
    assert "hill 59 and the old mill turns" in text


def test_lines_with_rare_words_are_kept_before_others() -> None:
    said = [story(number) for number in range(40)]
    said[20] += "\nThe heron nested under the broken sluice."
    text = digest(log := talk(*said), range(len(log)), ROOM)
    assert "The heron nested under the broken sluice." in text


def test_a_long_answer_alone_leaves_more_than_its_request() -> None:
    lines = [f"Chapter {n} tells of winter number {n} and of its storms." for n in range(900)]
    log = talk("\n".join(lines))
    text = digest(log, range(len(log)), ROOM)
    assert by_classes(text) > 0.8 * ROOM
    assert "Chapter 0 tells" in text  # the first line says what it is about


def test_requests_are_told_once() -> None:
    log = talk(*(story(number) for number in range(10)))
    text = digest(log, range(len(log)), ROOM)
    assert text.count("Question 3, please?") == 1


def test_references_come_before_prose() -> None:
    log = talk(
        story(1) + "\nThe wheel is in mill/wheel.py, line 7.", *(story(2) for _ in range(30))
    )
    assert "The wheel is in mill/wheel.py, line 7." in digest(log, range(len(log)), ROOM)
