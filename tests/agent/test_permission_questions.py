"""Who may call what: questions, where the rules say to ask."""

import asyncio
import threading
import time

import pytest

from foldmark.agent.permissions import Asker, Denial, PermissionGate, Permissions, Question, Reply


def refusal(gate: PermissionGate, subject: str = "ls", tool: str = "shell") -> str | None:
    return asyncio.run(gate.refusal(tool, subject, {"command": subject}))


def asker(*replies: Reply) -> tuple[Asker, list[Question]]:
    """Somebody who gives these answers, and the questions."""
    questions: list[Question] = []

    def ask(question: Question) -> Reply:
        questions.append(question)
        return replies[len(questions) - 1]

    return ask, questions


def test_nobody_to_ask_means_no_and_says_which_rule_would_allow_it() -> None:
    words = refusal(PermissionGate(Permissions()), "npm test")
    assert words is not None
    assert '"shell:npm test" = allow' in words
    assert '"todo" = allow' in (refusal(PermissionGate(Permissions()), "", "todo") or "")
    assert "\x1b" not in (refusal(PermissionGate(Permissions()), "\x1b[2J\n" * 999) or "")


def test_who_is_asked_decides() -> None:
    ask, questions = asker("once", "no", Denial(reason="use make"))
    gate = PermissionGate(Permissions(), ask)
    assert refusal(gate) is None
    assert refusal(gate) == "the user said no to this call"
    assert refusal(gate) == "the user said no: use make"
    assert questions[0] == Question(tool="shell", subject="ls", input={"command": "ls"})


def test_always_is_remembered_for_this_very_call_alone() -> None:
    ask, questions = asker("always", "no")
    gate = PermissionGate(Permissions(), ask)
    assert refusal(gate, "ls") is None
    assert refusal(gate, "ls") is None
    assert refusal(gate, "ls *") is not None
    assert len(questions) == 2


def test_nobody_is_asked_about_what_is_forbidden_or_allowed() -> None:
    ask, questions = asker()
    gate = PermissionGate(Permissions([("shell:ls", "allow"), ("shell:rm*", "deny")]), ask)
    assert refusal(gate, "ls") is None
    assert "forbids" in (refusal(gate, "rm x") or "")
    assert questions == []


def raising(error: BaseException) -> tuple[Asker, Asker]:
    """Those who fail when they are asked: at once, and in a coroutine."""

    def at_once(question: Question) -> Reply:
        raise error

    async def later(question: Question) -> Reply:
        raise error

    return at_once, later


def test_no_answer_is_no_permission() -> None:
    def fails(question: Question) -> Reply:
        raise EOFError

    def mumbles(question: Question) -> Reply:
        return "perhaps"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    assert "EOFError" in (refusal(PermissionGate(Permissions(), fails)) or "")
    for error in (SystemExit(1), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()):
        for ask in raising(error):
            assert "not permitted" in (refusal(PermissionGate(Permissions(), ask)) or "")
    assert refusal(PermissionGate(Permissions(), mumbles)) is not None


def test_who_never_answers_does_not_keep_a_program_from_ending() -> None:
    answered, began = threading.Event(), threading.Event()
    waits: list[bool] = []

    def ask(question: Question) -> Reply:
        began.set()
        waits.append(answered.wait(10))
        return "once"

    async def cut() -> None:
        task = asyncio.create_task(PermissionGate(Permissions(), ask).refusal("shell", "ls", {}))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cut())
    assert waits == []  # it still waits
    answered.set()


def test_calls_at_the_same_time_are_asked_about_one_after_the_other() -> None:
    under_way, peak = 0, 0
    questions: list[str] = []

    async def ask(question: Question) -> Reply:
        nonlocal under_way, peak
        questions.append(question.subject)
        under_way += 1
        peak = max(peak, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return "always"

    async def both(gate: PermissionGate) -> list[str | None]:
        subjects = ("ls", "pwd", "ls", "pwd", "id")
        return await asyncio.gather(*(gate.refusal("shell", one, {}) for one in subjects))

    gate = PermissionGate(Permissions(), ask)
    assert asyncio.run(both(gate)) == [None] * 5
    assert asyncio.run(both(gate)) == [None] * 5  # on another loop
    assert questions == ["ls", "pwd", "id"]
    assert peak == 1


def test_there_is_one_question_at_a_time_on_all_loops() -> None:
    under_way, peak, count = 0, 0, 0
    lock, together = threading.Lock(), threading.Barrier(4)

    def ask(question: Question) -> Reply:
        nonlocal under_way, peak, count
        with lock:
            under_way, count = under_way + 1, count + 1
            peak = max(peak, under_way)
        time.sleep(0.005)
        with lock:
            under_way -= 1
        return "once"

    gate = PermissionGate(Permissions(), ask)

    async def calls() -> None:
        together.wait()
        await asyncio.gather(*(gate.refusal("shell", str(number), {}) for number in range(5)))

    threads = [threading.Thread(target=asyncio.run, args=(calls(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (count, peak) == (20, 1)


def test_who_waits_for_a_question_and_is_cancelled_holds_up_nobody() -> None:
    began, answer = asyncio.Event(), asyncio.Event()

    async def ask(question: Question) -> Reply:
        began.set()
        await answer.wait()
        return "once"

    async def calls() -> list[str | None]:
        gate = PermissionGate(Permissions(), ask)
        first, second, third = (
            asyncio.create_task(gate.refusal("shell", str(number), {})) for number in range(3)
        )
        await began.wait()
        second.cancel()
        await asyncio.wait({second})
        assert second.cancelled()
        first.cancel()
        await asyncio.wait({first})
        answer.set()
        return [await third, await gate.refusal("shell", "4", {})]

    assert asyncio.run(calls()) == [None, None]


def test_an_answer_that_is_none_permits_nothing_and_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
):
    gate = PermissionGate(Permissions([("shell", "ask")]), lambda _: "allow")  # pyright: ignore[reportArgumentType]
    reason = asyncio.run(gate.refusal("shell", "ls", {}))
    assert reason is not None
    assert "no answer" in reason
    assert "instead of one of once, always, no" in caplog.text
