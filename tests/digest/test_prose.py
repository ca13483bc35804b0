"""Digests of sessions without references: talk and reports."""

from foldmark.tokens.counters import by_classes
from tests.support.digest_sessions import answer, digest_text, user

BUDGET = 1_000


def chat_digest(*answers: str) -> str:
    """The digest of a conversation with these answers."""
    turns = (
        (user(f"Question {number}, please?"), answer(text)) for number, text in enumerate(answers)
    )
    return digest_text(*(message for turn in turns for message in turn), budget=BUDGET)


def report(number: int) -> str:
    """Twenty lines with the same few words."""
    return "\n".join([f"The server waits for client {number} and the old test runs."] * 20)


def test_the_budget_is_filled_with_answers() -> None:
    text = chat_digest(*(f"Answer {number}.\n{report(number)}" for number in range(60)))
    assert 0.8 * BUDGET < by_classes(text) <= BUDGET
    assert "client 59 and the old test runs" in text


def test_lines_with_rare_words_or_references_come_first() -> None:
    rare = "The cookie expired under the strict policy."
    reference = "The login is in app/login.py, line 7."
    answers = [report(number) for number in range(40)]
    answers[20] += f"\n{rare}"
    assert rare in chat_digest(*answers)
    assert reference in chat_digest(f"{report(1)}\n{reference}", *[report(2)] * 30)


def test_a_single_long_answer_leaves_more_than_its_request() -> None:
    lines = [f"Section {n} tells of release number {n} and of its bugs." for n in range(900)]
    text = chat_digest("\n".join(lines))
    assert by_classes(text) > 0.8 * BUDGET
    assert "Section 0 tells" in text  # the first line shows the subject


def test_requests_are_listed_once() -> None:
    text = chat_digest(*(report(number) for number in range(10)))
    assert text.count("Question 3, please?") == 1
