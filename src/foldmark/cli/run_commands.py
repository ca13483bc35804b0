"""What a user can do at the prompt of a run beside talking: commands that begin with a slash.

Each does what the command of that name does, to the session of the run.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from foldmark.agent.agent import Agent
from foldmark.agent.diffs import tree_before
from foldmark.errors import BadInput, FoldmarkError, UnknownModel
from foldmark.log import marker_part
from foldmark.messages import Message, TextPart
from foldmark.session.session import Session

from .run_changes import diff, taken_snapshots
from .run_gauge import Gauge, short
from .run_lines import Line
from .run_screen import TerminalScreen
from .run_turns import watched
from .searching import search
from .tables import QUIET, gauge, show
from .text import number, plain
from .undoing import tell_act

_FIRST_WORDS = 80
_COMMAND = re.compile(r"/[a-z]*(\s|$)")


class Leave(Exception):
    """The user wants to go."""


@dataclass
class Desk:
    """Where a user works with an agent: what is on it may be exchanged."""

    session: Session
    agent: Agent
    screen: TerminalScreen
    gauge: Gauge
    folder: Path
    where: str  # the store
    # An agent with the model of this name, and the window that it has.
    another: Callable[[str, int | None], tuple[Agent, int | None]]


class Command(NamedTuple):
    """A command, and what it is for."""

    do: Callable[[Desk, str], None]
    takes: str
    about: str


def is_command(line: str) -> bool:
    """Whether a line is a command, and not words that begin with a path."""
    return _COMMAND.match(line) is not None


def obey(desk: Desk, line: str) -> None:
    """Do what a command says."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        desk.screen.say(unknown(name))
        return
    try:
        command.do(desk, rest.strip())
    except FoldmarkError as error:
        desk.screen.say(Line(plain(str(error), most=1_000), "red"))


def unknown(name: str) -> Line:
    """What is said to who gives a command that there is not."""
    known = ", ".join(f"/{name}" for name in COMMANDS)
    return Line(f"there is no /{plain(name, most=30)}; there are {known}", "yellow")


def helping() -> Iterator[Line]:
    """All commands, and what they are for."""
    for name, command in COMMANDS.items():
        call = f"/{name} {command.takes}".rstrip()
        yield Line(f"  {call:<24}{command.about}", QUIET)


def _compact(desk: Desk, focus: str) -> None:
    session = desk.session
    desk.agent.prepare(session)
    with desk.screen.shown(), watched(session, desk.screen):
        act = session.compact(instructions=focus)
    if act is None:
        desk.screen.say(Line("not folded: a hook forbids it", "yellow"))


def _undo(desk: Desk, act: str) -> None:
    before = desk.session.view().tokens
    done = desk.session.undo(_whole_number(act))
    desk.gauge.refresh()
    tell_act(desk.session, done, before, f"Act {done.number}, a {done.kind}, was undone")


def _whole_number(text: str) -> int | None:
    if text and not text.isdecimal():
        raise BadInput(f"{plain(text)!r} is no number of an act; leave it out for the latest")
    return int(text) if text else None


def _plan(desk: Desk, _: str) -> None:
    desk.agent.prepare(desk.session)
    plan = desk.session.plan()
    used = f"{short(plan.tokens)} of {short(plan.usable)} usable tokens"
    outputs = number(len(plan.prune.prune), "old output")
    folded = number(len(plan.fold.head) if plan.fold else 0, "message")
    auto = "It overflows: that comes with the next step." if plan.overflow else "It fits."
    show(
        gauge(plan.pressure),
        Text(
            f"{used}. {auto}\n"
            f"Prune would hide {outputs} ({number(plan.prune.tokens, 'token')}).\n"
            f"A compaction would fold {folded}."
        ),
    )


def _search(desk: Desk, query: str) -> None:
    search(desk.session.id, query.split(), store=desk.where)


def _diff(desk: Desk, message: str) -> None:
    diff(desk.session.id, message=message or None, folder=desk.folder, store=desk.where)


def _model(desk: Desk, given: str) -> None:
    name, _, size = given.partition(" ")
    size = size.strip().replace(",", "").replace("_", "")
    if not name or (size and not size.isdecimal()):
        raise BadInput("say which, and its window where that is not known: /model NAME [TOKENS]")
    agent, window = desk.another(name, int(size) if size else None)
    session = desk.session
    try:
        with desk.screen.shown(), watched(session, desk.screen):
            session.switch(agent.model.name, window=window)
    except UnknownModel:
        raise BadInput(f"no window is known for it; say how many tokens: /model {name} N") from None
    desk.agent = agent
    desk.gauge.refresh()
    told = f"now {plain(agent.model.name)}: {short(session.tokens)} of {short(session.room)} used"
    desk.screen.say(Line(told, "green"))


def _revert(desk: Desk, _: str) -> None:
    """Files and view as they were before the user's newest message."""
    session = desk.session
    messages = session.export().messages
    asked = next((held for held in reversed(messages) if said_by_user(held)), None)
    if asked is None:
        raise BadInput("nothing was said yet that could be taken back")
    tree = tree_before(session, asked.id)
    restored = taken_snapshots(session, desk.folder).restore(tree)
    place = messages.index(asked)
    before = session.view().tokens
    # The first message has none before it: then only what came after it is hidden.
    act = session.revert(messages[max(place - 1, 0)].id)
    desk.gauge.refresh()
    words = plain(" ".join(_texts(asked)), most=_FIRST_WORDS)
    tell_act(session, act, before, f"Back to before “{words}”", restored=restored)


def said_by_user(message: Message) -> bool:
    """Whether a message is the user's own, and neither a marker nor written by a program."""
    return message.is_user and marker_part(message) is None and bool(_texts(message))


def _texts(message: Message) -> list[str]:
    parts = (part for part in message.parts if isinstance(part, TextPart))
    return [part.text for part in parts if part.text and not part.synthetic]


def _help(desk: Desk, _: str) -> None:
    for line in helping():
        desk.screen.say(line)


def _exit(_desk: Desk, _: str) -> None:
    raise Leave


COMMANDS = {
    "compact": Command(_compact, "[FOCUS]", "fold the older part into a summary"),
    "undo": Command(_undo, "[ACT]", "take back the latest prune, pivot or revert"),
    "plan": Command(_plan, "", "what prune and compact would do now"),
    "search": Command(_search, "WORDS", "find what was said, shown or not"),
    "diff": Command(_diff, "[MESSAGE]", "what was changed in files"),
    "revert": Command(_revert, "", "files and view as before your last message"),
    "model": Command(_model, "NAME [WINDOW]", "go on with another model"),
    "help": Command(_help, "", "this list"),
    "exit": Command(_exit, "", "leave; Ctrl-D does so, too"),
}
