"""Helpers for stored sessions with compactions."""

import threading
from collections.abc import Callable

import foldmark
from foldmark.model.messages import Pending, TextPart, ToolPart
from foldmark.model.operations import Operation
from foldmark.policy import FOLDMARK
from foldmark.store.store import Store
from tests.support.failing_models import GatedModel, prompt_texts
from tests.support.processes import LIMIT

NO_PRUNE = FOLDMARK.adjusted(prune=False)
LONG = "The build runs and a test checks what the commit has changed. " * 40


def read_files(session: foldmark.Session, steps: int = 12) -> None:
    """A request, and a turn of long texts and outputs that is not finished."""
    session.user("Look at the parser.")
    for number in range(steps):
        state = Pending(input={"filePath": f"app/parser_{number}.py"})
        call = ToolPart(tool="read", call_id=f"c{number}", state=state)
        session.record([TextPart(text=LONG), call])
        session.result(f"c{number}", LONG)


def pivots(session: foldmark.Session) -> list[Operation]:
    return [operation for operation in session.operations() if operation.kind == "pivot"]


def view_text(session: foldmark.Session) -> str:
    return "\n".join(prompt_texts(session.view().messages))


def synthetic_texts(session: foldmark.Session) -> list[str]:
    return [
        part.text
        for message in session.export().messages
        for part in message.parts
        if isinstance(part, TextPart) and part.synthetic
    ]


def end_leases(where: str) -> None:
    """Let every lease expire, as if its holder had been suspended."""
    with Store.open(where) as store:
        store.engine.run("UPDATE sessions SET expires = 0")


def when_asked(model: GatedModel, do: Callable[[], object]) -> threading.Thread:
    """Call a function in another thread as soon as the model is called."""

    def wait() -> None:
        assert model.was_asked.wait(LIMIT)
        do()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
