"""What a run begins with: what was asked for, a session to work in, rules for tools."""

import shlex
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from foldmark.agent.agent import STEPS
from foldmark.agent.permissions import Action
from foldmark.agent.tool import Tool
from foldmark.errors import BadInput, NoSession, NoStore
from foldmark.files import harmless
from foldmark.model.messages import Origin, SessionInfo, Time
from foldmark.model.values import Frozen
from foldmark.providers.models import summarizer as named_summarizer
from foldmark.session.maker import Maker
from foldmark.session.means import DIGEST
from foldmark.session.opening import open as open_session
from foldmark.session.opening import open_store
from foldmark.session.session import Session
from foldmark.session.settings import Settings
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store
from foldmark.summary.protocol import Summarizer

from .opening import store_place
from .run_errors import line_of
from .run_models import Reached, model_of

STANDARD_INPUT = "-"
_NO_SESSION = (
    "no earlier run in this folder to go on with; give a task, or --session ID for another session"
)
_RUN = "foldmark run"  # the origin of sessions that are created here
_OURS = "ses_"  # with which the ids begin that are made here


# --- the session ---------------------------------------------------------------------------


class Wished(Frozen):
    """What was asked for, beside the task and the settings."""

    folder: Path
    session: str | None = None
    goes_on: bool = False
    prompt: str | None = None
    steps: int = STEPS
    cost: float | None = None
    # As they were given, so that the session can go on in the same way.
    given_folder: Path | None = None
    model: str | None = None
    base_url: str | None = None
    window: int | None = None
    store: str | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Known(Frozen):
    """A session that is in the store, and the model that gave its newest answer."""

    row: SessionRow
    model: str | None


def known_session(settings: Settings, wished: Wished) -> Known | None:
    """The session that is to go on; None where a new one is wanted."""
    if wished.session is None and not wished.goes_on:
        return None
    with _read_store(settings) as store:
        if store is not None:
            row = _row(store, wished)
            return Known(row=row, model=model_of(store, row))
    if wished.session is None:
        raise BadInput(_NO_SESSION)
    where = harmless(store_place(settings))
    raise BadInput(f"there is no session {wished.session!r}, as there is no store {where}")


@contextmanager
def _read_store(settings: Settings) -> Generator[Store | None]:
    """The store, if there is one: none is made."""
    place, wait = store_place(settings), max(settings.wait_seconds, 1.0)
    try:
        store = Store.open(place, durable=settings.durable, wait=wait, make=False)
    except NoStore:
        yield None
        return
    with store:
        yield store


def opened(
    found: Reached, settings: Settings, wished: Wished, known: Known | None = None
) -> Session:
    """The session, set for a model: an old one, or a new one that says where it works."""
    rules = settings.rules()
    # What would be refused is refused before anything is made.
    replace(settings, model=found.name, window=found.window).limit()
    summarizer = _summarizer(settings)
    if known is not None:
        name = known.row.id
    else:
        with open_store(settings) as store:
            name = _created(store, wished, rules.estimate).id
    return open_session(
        store_place(settings),
        session=name,
        policy=settings.policy,
        summarizer=summarizer,
        model=found.name,
        window=found.window,
    )


def _summarizer(settings: Settings) -> Summarizer | str | None:
    name = settings.summarizer
    if name is None or name == DIGEST:
        return name
    return named_summarizer(name, base_url=settings.base_url)


def _row(store: Store, wished: Wished) -> SessionRow:
    if wished.session is None:
        return _newest(store, wished.folder)
    try:
        return store.named(wished.session)
    except NoSession as error:
        raise BadInput(f"{line_of(error)}; for a new one leave --session out") from None


def _newest(store: Store, folder: Path) -> SessionRow:
    """The session that `run` created in this folder and that was last written to."""
    for row in store.sessions():
        origin = row.info.origin or Origin()
        if row.places and origin.format == _RUN and row.info.directory == str(folder):
            return row
    raise BadInput(_NO_SESSION)


def _created(store: Store, wished: Wished, estimate: str) -> SessionRow:
    maker = Maker("")
    now = maker.now()
    info = SessionInfo(
        id=maker.session_id(),
        directory=str(wished.folder),
        time=Time(created=now, updated=now),
        origin=Origin(format=_RUN),
    )
    return store.create(info, estimate=estimate)


def refuse_id(settings: Settings, task: str | None, *, goes_on: bool) -> None:
    """Refuse a task that is the id of a session: nobody wants a model to be told that."""
    name = (task or "").strip()
    if not name or name.split() != [name] or not (goes_on or name.startswith(_OURS)):
        return
    with _read_store(settings) as store, suppress(NoSession):
        row = store.named(name) if store else None
        if row is not None and (row.id == name or name.startswith(_OURS)):
            raise BadInput(f"to go on with a session, give --session {harmless(row.id)}")


def gone_on_with(wished: Wished, model: str, window: int | None) -> Wished:
    """What was asked for, with another model; a server that was named is for its provider's."""
    same = (wished.model or "").partition(":")[0] == model.partition(":")[0]
    base_url = wished.base_url if same else None
    return replace(wished, model=model, window=window, base_url=base_url)


def resuming(session: Session, wished: Wished) -> str:
    """The command by which a session goes on as it did."""
    options = {
        "--model": wished.model,
        "--base-url": wished.base_url,
        "--window": wished.window,
        "--folder": wished.given_folder,
        "--store": wished.store,
    }
    command = ["foldmark", "run", "--continue", "--session", session.id]
    for option, given in options.items():
        if given is not None and not _may_hold_password(option, str(given)):
            command += [option, str(given)]
    return shlex.join(command)


def _may_hold_password(option: str, given: str) -> bool:
    return "://" in given and (option == "--store" or "@" in given)


# --- rules and texts -----------------------------------------------------------------------


def rules(wished: Wished, tools: Iterable[Tool]) -> dict[str, Action]:
    """The user's rules, in the order in which they count: the stricter ones last."""
    given: list[tuple[str, Action]] = [
        *((rule, "allow") for rule in wished.allow),
        *((rule, "ask") for rule in wished.ask),
        *((rule, "deny") for rule in wished.deny),
    ]
    names = [tool.name for tool in tools]
    found: dict[str, Action] = {}
    for rule, action in given:
        _check(rule, names)
        found.pop(rule, None)  # so that it counts at its own place
        found[rule] = action
    return found


def _check(rule: str, names: list[str]) -> None:
    tool = rule.partition(":")[0].strip()
    if not any(fnmatchcase(name, tool) for name in names):
        known = ", ".join(names)
        raise BadInput(f"the rule {harmless(rule)!r} is for no tool; there are {known}")


def read_prompt(path: Path | None) -> str | None:
    """The system prompt in a file."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "not UTF-8 text"
        raise BadInput(f"cannot be read: {cause}", source=harmless(str(path))) from None


def read_task(task: str | None) -> str | None:
    """What is to be done; - is standard input."""
    text = sys.stdin.read() if task == STANDARD_INPUT else task
    if text is not None and not text.strip():
        raise BadInput("the task is empty; say what is to be done")
    return text
