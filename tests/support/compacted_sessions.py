"""Stored sessions with compactions: policies, operations and what the view shows."""

import threading
from collections.abc import Callable

import foldmark
from foldmark.model.messages import TextPart
from foldmark.model.operations import Operation
from foldmark.policy import FOLDMARK
from foldmark.store.store import Store
from tests.support.failing_models import GatedModel, asked_texts
from tests.support.processes import LIMIT

NO_PRUNE = FOLDMARK.adjusted(prune=False)


def pivots(session: foldmark.Session) -> list[Operation]:
    return [act for act in session.acts() if act.kind == "pivot"]


def shown_text(session: foldmark.Session) -> str:
    return "\n".join(asked_texts(session.view().messages))


def said_for_the_user(session: foldmark.Session) -> list[str]:
    return [
        part.text
        for message in session.export().messages
        for part in message.parts
        if isinstance(part, TextPart) and part.synthetic
    ]


def end_leases(where: str) -> None:
    """Let every lease run out, as if its holder had stood still for long."""
    with Store.open(where) as store:
        store.engine.run("UPDATE sessions SET expires = 0")


def when_asked(model: GatedModel, do: Callable[[], object]) -> threading.Thread:
    """Do something in another thread as soon as the model is waited for."""

    def wait() -> None:
        assert model.asked.wait(LIMIT)
        do()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
