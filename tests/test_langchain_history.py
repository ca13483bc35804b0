"""FoldmarkHistory: a chat message history that is a session of a store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables.history import RunnableWithMessageHistory

import foldmark
from foldmark.adapters.langchain import FoldmarkHistory

from .langchain_agents import Scripted, Talk, called, check_pairs, tokens_of

# LangChain says so of its own class and of what uses it, whoever writes the history.
pytestmark = pytest.mark.filterwarnings("ignore:.*RunnableWithMessageHistory.*:DeprecationWarning")


def history(folder: Path, name: str = "one", **more: Any) -> FoldmarkHistory:
    return FoldmarkHistory(folder / "chat.db", name, durable=False, **more)


def contents(messages: list[BaseMessage]) -> list[Any]:
    return [message.content for message in messages]


def test_what_is_added_is_there_for_whoever_opens_it_next(tmp_path: Path) -> None:
    held = history(tmp_path)
    assert held.messages == []
    held.add_user_message("Mill?")
    held.add_ai_message("Quern.")
    held.add_messages([HumanMessage("Mill?"), AIMessage("Quern.")])  # the same words once more
    assert contents(history(tmp_path).messages) == ["Mill?", "Quern."] * 2
    assert history(tmp_path, "other").messages == []
    assert str(held).startswith("Human: Mill?\nAI: Quern.")


def test_results_may_come_later_than_their_calls(tmp_path: Path) -> None:
    held = history(tmp_path)
    talk: Talk = [HumanMessage("Go."), called(0, "read", "read")]
    results = [ToolMessage(f"r{n}", tool_call_id=f"c0.{n}", name="read") for n in range(2)]
    for message in (*talk, *results):
        held.add_message(message)
    assert held.messages == [*talk, *results]


def test_all_of_the_messages_are_added_or_none(tmp_path: Path) -> None:
    held = history(tmp_path)
    with pytest.raises(foldmark.BadInput, match="RemoveMessage"):
        held.add_messages([HumanMessage("One."), RemoveMessage(id="x")])
    assert held.messages == []


def test_clear_begins_anew_and_destroys_nothing(tmp_path: Path) -> None:
    held = history(tmp_path)
    held.clear()
    for number in range(3):
        held.add_user_message(f"Beginning {number}.")
        assert contents(history(tmp_path).messages) == [f"Beginning {number}."]
        held.clear()
        held.clear()
        assert held.messages == history(tmp_path).messages == []
    for number, name in enumerate(("one", "one~2", "one~3")):
        with foldmark.open(tmp_path / "chat.db", session=name) as session:
            assert session.search(f"Beginning {number}")


def test_a_history_that_fits_is_shown_within_the_window(tmp_path: Path) -> None:
    fitting = history(tmp_path, fit=True, window=4_000, output=300)
    fitting.add_message(SystemMessage("Speak like a miller."))
    for number in range(24):
        step = [HumanMessage(f"Question {number}?"), called(number, "read", "read")]
        results = [ToolMessage("grain " * 300, tool_call_id=f"c{number}.{n}") for n in range(2)]
        fitting.add_messages([*step, *results, AIMessage(f"Answer {number}.")])
        if number % 8 == 7:
            shown = fitting.messages
            check_pairs(shown)
            assert tokens_of(shown) < 4_000
            assert shown[0].content == "Speak like a miller."
            assert f"Answer {number}." in str(shown)
    whole = history(tmp_path).messages
    assert len(whole) == 1 + 24 * 5
    assert "grain " * 300 in contents(whole)


def test_it_works_with_a_runnable_that_keeps_its_history(tmp_path: Path) -> None:
    model = Scripted(reply=lambda number, _: AIMessage(f"Answer {number}."))

    def named(name: str) -> FoldmarkHistory:
        return history(tmp_path, name)

    chat: Any = RunnableWithMessageHistory(model, named)
    for number in range(3):
        chat.invoke([HumanMessage(f"Question {number}?")], {"configurable": {"session_id": "a"}})
    asyncio.run(chat.ainvoke([HumanMessage("The last?")], {"configurable": {"session_id": "a"}}))
    chat.invoke([HumanMessage("Another's?")], {"configurable": {"session_id": "b"}})
    assert [len(messages) for messages in model.seen] == [1, 3, 5, 7, 1]
    assert len(history(tmp_path, "a").messages) == 8


def test_the_async_forms_do_the_same(tmp_path: Path) -> None:
    async def work() -> list[int]:
        held = history(tmp_path)
        await held.aadd_messages([HumanMessage("Go."), AIMessage("Well.")])
        before = len(await held.aget_messages())
        await held.aclear()
        return [before, len(await held.aget_messages())]

    assert asyncio.run(work()) == [2, 0]


def test_a_store_that_cannot_be_opened_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "chat.db").write_text("no database, for sure; " * 100)
    with pytest.raises(foldmark.FoldmarkError) as raised:
        _ = history(tmp_path).messages
    assert len(str(raised.value).splitlines()) == 1
