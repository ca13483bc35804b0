"""What a run begins with: a model that can be reached, a session to work in, rules for tools."""

import shlex
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from foldmark.agent.agent import STEPS
from foldmark.agent.permissions import Action
from foldmark.agent.tool import Tool
from foldmark.asking import Summarizer
from foldmark.errors import BadInput, NoSession
from foldmark.io.files import harmless
from foldmark.io.local import is_local, local_model
from foldmark.io.models import model_named
from foldmark.io.models import summarizer as named_summarizer
from foldmark.io.rows import SessionRow
from foldmark.io.store import LATEST, Store, checked_id
from foldmark.messages import SessionInfo, Time
from foldmark.session.maker import Maker
from foldmark.session.means import DIGEST
from foldmark.session.opening import DEFAULT_STORE, open_store
from foldmark.session.opening import open as open_session
from foldmark.session.session import Session
from foldmark.session.settings import Settings
from foldmark.stepping import Model
from foldmark.values import Frozen

from .run_lines import Line

LOCAL_WINDOW = 8_192
STANDARD_INPUT = "-"
NO_MODEL = (
    "no model is set: give --model PROVIDER:NAME, or set `model` in foldmark.toml; "
    "--model local runs a small one on this machine"
)


class Reached(Frozen):
    """A model, and its window where the limits do not tell it."""

    model: Model
    window: int | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name


def reached(
    stack: ExitStack, name: str | None, *, base_url: str | None, window: int | None
) -> Reached:
    """The model of a name; one of this machine runs until the stack is closed."""
    if not name:
        raise BadInput(NO_MODEL)
    if not is_local(name):
        return Reached(model=model_named(name, base_url=base_url), window=window)
    if base_url is not None:
        raise BadInput("--base-url is for a model that is elsewhere; leave it out for a local one")
    size = window or LOCAL_WINDOW
    return Reached(model=stack.enter_context(local_model(name, window=size)), window=size)


def about(found: Reached) -> Line | None:
    """A word on a model of this machine: who never saw one shall know what it is."""
    if not is_local(found.name):
        return None
    return Line(
        f"{found.name} runs on this machine, with a window of {found.window:,} tokens; "
        "nothing leaves it",
        "dim",
    )


# --- the session ---------------------------------------------------------------------------


class Wished(Frozen):
    """What was asked for, beside the task and the settings."""

    folder: Path
    session: str | None = None
    goes_on: bool = False
    base_url: str | None = None
    prompt: str | None = None
    steps: int = STEPS
    cost: float | None = None
    store: str | None = None  # as it was given
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


def opened(found: Reached, settings: Settings, wished: Wished) -> Session:
    """The session, set for a model: an old one, or a new one that says where it works."""
    rules = settings.rules()
    # What would be refused is refused before anything is made.
    replace(settings, model=found.name, window=found.window).limit()
    summarizer = _summarizer(settings)
    with open_store(settings) as store:
        row = _row(store, wished) or _created(store, wished, rules.estimate)
    return open_session(
        settings.store or DEFAULT_STORE,
        session=row.id,
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


def _row(store: Store, wished: Wished) -> SessionRow | None:
    """The session that is meant; None for a new one."""
    if wished.session is None:
        return _newest(store, wished.folder) if wished.goes_on else None
    try:
        return store.named(wished.session)
    except NoSession:
        if wished.goes_on or wished.session == LATEST:
            raise
        return None


def _newest(store: Store, folder: Path) -> SessionRow:
    """The session of this folder that was last written to; where none says where, any counts."""
    for row in store.sessions():
        if row.places and (row.info.directory or str(folder)) == str(folder):
            return row
    raise BadInput("there is no session of this folder to go on with; say what is to be done")


def _created(store: Store, wished: Wished, estimate: str) -> SessionRow:
    maker = Maker("")
    now = maker.now()
    name = maker.session_id() if wished.session is None else checked_id(wished.session)
    info = SessionInfo(id=name, directory=str(wished.folder), time=Time(created=now, updated=now))
    return store.create(info, estimate=estimate)


def resuming(session: Session, store: str | None) -> str:
    """The command by which a session goes on."""
    # An address may hold a password.
    place = ["--store", store] if store and "://" not in store else []
    return shlex.join(["foldmark", "run", "--continue", "--session", session.id, *place])


# --- rules and texts -----------------------------------------------------------------------


def rules(wished: Wished, tools: Iterable[Tool]) -> dict[str, Action]:
    """The user's rules, in the order in which they count: the narrower and stricter ones last."""
    given: list[tuple[str, Action]] = [
        *((rule, "allow") for rule in wished.allow),
        *((rule, "ask") for rule in wished.ask),
        *((rule, "deny") for rule in wished.deny),
    ]
    names = [tool.name for tool in tools]
    for rule, _ in given:
        _check(rule, names)
    found: dict[str, Action] = {}
    for rule, action in sorted(given, key=lambda pair: _narrowness(pair[0])):
        found.pop(rule, None)  # so that it counts at its own place
        found[rule] = action
    return found


def _narrowness(rule: str) -> int:
    tool, _, pattern = rule.partition(":")
    return 2 * bool(pattern) + ("*" not in tool)


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
