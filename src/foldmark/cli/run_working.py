"""A run from its beginning to its end: one turn in a script, or one after the other at a prompt."""

import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, TracebackType
from typing import Literal, NoReturn, Self

from foldmark.agent.agent import Agent
from foldmark.agent.permissions import Asker
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.errors import FoldmarkError
from foldmark.model.messages import AssistantInfo
from foldmark.session.session import Session
from foldmark.session.settings import Settings

from .opening import store_place
from .run_asking import Asking
from .run_changes import checked_folder
from .run_commands import COMMANDS, Desk, Leave, helping, is_command, obey, split_command, unknown
from .run_errors import line_of
from .run_gauge import Gauge
from .run_lines import (
    Calls,
    JsonScreen,
    Line,
    PlainScreen,
    Screen,
    complain,
    failure,
    outcome,
    print_event,
)
from .run_models import Reached, about, reached
from .run_opening import Wished, known_session, opened, resuming, rules
from .run_prompt import Prompt
from .run_screen import TerminalScreen, terminal_console
from .run_turns import Turned, turned
from .tables import QUIET
from .text import number, plain

Shown = Literal["terminal", "plain", "quiet", "json"]
_TERMINATED = 128 + signal.SIGTERM


class Bench:
    """What a run works with: the model is reached at once, the session when it is needed."""

    def __init__(self, wished: Wished, settings: Settings, stack: ExitStack) -> None:
        """Take what was asked for; the stack closes what is opened."""
        # What is wrong with these is told before a session is made.
        rules(wished, workspace_tools(checked_folder(wished.folder)))
        self.wished = wished
        self.settings = settings
        self._stack = stack
        self._known = known_session(settings, wished)
        name = settings.model or (self._known.model if self._known else None)
        base_url = wished.base_url or settings.base_url
        self.found = reached(stack, name, base_url=base_url, window=settings.window)
        self.session_id = ""  # once there is one

    @property
    def where(self) -> str:
        """The store."""
        return store_place(self.settings)

    def session(self) -> Session:
        """The session, which is closed with the run."""
        made = opened(self.found, self.settings, self.wished, self._known)
        self.session_id = made.id
        return self._stack.enter_context(made)

    def agent(self, session: Session, found: Reached, ask: Asker | None) -> Agent:
        """An agent that works in the folder with a model."""
        wished = self.wished
        tools = workspace_tools(wished.folder, guarded=session.files)
        return Agent(
            found.model,
            tools=tools,
            prompt=wished.prompt,
            folder=wished.folder,
            permissions=rules(wished, tools),
            ask=ask,
            steps=wished.steps,
            cost=wished.cost,
        )

    def another(self, name: str, window: int | None) -> Reached:
        """Another model; a server that was named is for models of the first one's provider."""
        provider = self.found.name.partition(":")[0]
        same = name.partition(":")[0] == provider
        base_url = self.wished.base_url if same else None
        return reached(self._stack, name, base_url=base_url, window=window)


class Failing:
    """Tells a program that reads events of an error that ends a run; people are told elsewhere."""

    def __init__(self, shown: Shown) -> None:
        """Take who looks."""
        self._shown = shown
        self.bench: Bench | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Print what went wrong as the last event."""
        if self._shown != "json" or isinstance(error, BrokenPipeError):
            return
        if isinstance(error, FoldmarkError | OSError):
            told = line_of(error) if isinstance(error, FoldmarkError) else str(error)
            print_event(failure(self.bench.session_id if self.bench else "", told))


# --- in a script ---------------------------------------------------------------------------


def work(bench: Bench, said: str | None, shown: Shown) -> int:
    """One turn without a terminal; its exit code."""
    session = bench.session()
    agent = bench.agent(session, bench.found, None)
    calls = Calls(agent.toolbox)
    screen: Screen = (
        JsonScreen(calls) if shown == "json" else PlainScreen(calls, quiet=shown == "quiet")
    )
    if line := about(bench.found):
        screen.say(line)
    done = turned(agent, session, screen, said)
    ended = done.ended
    if ended.ended != "stop":
        complain(outcome(ended))
    else:
        screen.say(outcome(ended))
    if ended.ended != "stop" or shown == "plain":
        complain(Line(f"go on with: {resuming(session, bench.wished)}"))
    return done.code


@contextmanager
def terminable() -> Generator[None]:
    """Let SIGTERM end a run as an exit does, so that its session is closed."""

    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(_TERMINATED)

    before = None
    with suppress(ValueError):  # not in the main thread
        before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


# --- at a terminal -------------------------------------------------------------------------


def talk(bench: Bench, said: str | None) -> int:
    """Turns, with a prompt after each, until the user leaves; the exit code."""
    prompt = Prompt()
    if line := about(bench.found):
        complain(line)
    if said is None and not bench.wished.goes_on:
        said = _first_words(prompt, bench.found.name)
        if said is None:
            return 0
    asking = Asking()
    session = bench.session()
    agent = bench.agent(session, bench.found, asking.ask)
    gauge = Gauge(session)
    screen = TerminalScreen(Calls(agent.toolbox), gauge)
    asking.screen = screen

    def another(name: str, window: int | None) -> tuple[Agent, int | None]:
        found = bench.another(name, window)
        return bench.agent(session, found, asking.ask), found.window

    desk = Desk(
        session=session,
        agent=agent,
        screen=screen,
        gauge=gauge,
        wished=bench.wished,
        where=bench.where,
        another=another,
    )
    if bench.wished.goes_on:
        screen.say(Line(f"session {plain(session.id)}: {_title(session)}", QUIET))
    code = _talked(prompt, desk, said)
    if not code:
        screen.say(Line(f"go on with: {resuming(session, desk.wished)}", QUIET, whole=True))
    return code


def _title(session: Session) -> str:
    row = session.info
    return f"{plain(row.info.title or 'without a title')}, {number(row.places, 'message')}"


def _first_words(prompt: Prompt, name: str) -> str | None:
    """What the user says first; there is no session before that."""
    complain(Line(f"{plain(name)} is ready; /help tells what you can do, Ctrl-D leaves"))
    while (line := prompt.typed(is_command)) is not None:
        if not line:
            continue
        if not is_command(line):
            return line
        word, _ = split_command(line)
        if word == "exit":
            return None
        for told in _before_a_session(word):
            complain(told)
    return None


def _before_a_session(word: str) -> Iterator[Line]:
    if word == "help":
        yield from helping(terminal_console().width)
    elif word in COMMANDS:
        yield Line(f"/{word} is for later: say first what is to be done, or /exit")
    else:
        yield unknown(word)


def _talked(prompt: Prompt, desk: Desk, said: str | None) -> int:
    goes_on = said is None and _is_unfinished(desk.session)
    while True:
        if said is not None or goes_on:
            done = _shown_turn(desk, said)
            if done is not None and done.signal == signal.SIGTERM:
                return _TERMINATED
        said, goes_on = None, False
        line = prompt.typed(is_command)
        if line is None:
            return 0
        if not line:
            continue
        if not is_command(line):
            said = line
            continue
        try:
            obey(desk, line)
        except Leave:
            return 0
        except KeyboardInterrupt:
            desk.screen.say(Line("stopped", "yellow"))


def _shown_turn(desk: Desk, said: str | None) -> Turned | None:
    """One turn; what goes wrong is told, and the user may say something else."""
    try:
        return turned(desk.agent, desk.session, desk.screen, said)
    except FoldmarkError as error:
        desk.screen.say(Line(plain(line_of(error), most=1_000), "red"))
        return None


def _is_unfinished(session: Session) -> bool:
    """Whether a session was left in the middle of a turn."""
    last = session.newest()
    if last is None or not isinstance(last.info, AssistantInfo):
        return True
    return last.info.finish != "stop" or bool(session.open_calls())
