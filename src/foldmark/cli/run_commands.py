"""What a user can do at the prompt of a run beside talking: commands that begin with a slash.

Each does what the command of that name does, to the session of the run.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from foldmark.agent.agent import Agent
from foldmark.agent.file_changes import changed_trees, tree_before
from foldmark.errors import BadInput, FoldmarkError, UnknownModel
from foldmark.log.log import marker_part
from foldmark.model.messages import Message, TextPart
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import Restored
from foldmark.store.search import words as split_words

from .opening import existing_store
from .run_changes import LEFT_OUT, message_named, taken_snapshots, tell
from .run_errors import line_of
from .run_gauge import Gauge, short
from .run_lines import Line
from .run_opening import Wished, gone_on_with
from .run_screen import TerminalScreen
from .run_turns import watched
from .run_words import wrapped
from .searching import search
from .tables import QUIET, gauge, show
from .text import number, plain
from .undoing import tell_act

_FIRST_WORDS = 80
_COMMAND = re.compile(r"/[a-z]*( .*)?", re.IGNORECASE)
_NARROW = 60  # columns; in fewer, what stands side by side stands below each other
_CALL = 24  # columns of how a command is called
_MOST_LINES = 400  # of a diff at a prompt
_MOST_SNIPPET = 400


class Leave(Exception):
    """The user wants to go."""


class Trees(NamedTuple):
    """The files before a revert and after it."""

    before: str
    after: str


@dataclass
class Desk:
    """Where a user works with an agent: what is on it may be exchanged."""

    session: Session
    agent: Agent
    screen: TerminalScreen
    gauge: Gauge
    wished: Wished  # as it is to go on
    where: str  # the store
    # An agent with the model of this name, and the window that it has.
    another: Callable[[str, int | None], tuple[Agent, int | None]]
    reverted: dict[int, Trees] = field(default_factory=dict[int, Trees])  # by acts of this run

    @property
    def folder(self) -> Path:
        """Where the agent works."""
        return self.wished.folder


class Command(NamedTuple):
    """A command, and what it is for."""

    do: Callable[[Desk, str], None]
    takes: str
    about: str


def is_command(line: str) -> bool:
    """Whether a line is a command, and not words that begin with a path."""
    line = line.strip()
    if not _COMMAND.fullmatch(line):
        return False
    word = line.partition(" ")[0]
    if word[1:].lower() in COMMANDS or word == "/":
        return True
    return "/" not in line[1:] and not Path(word).exists()


def split_command(line: str) -> tuple[str, str]:
    """The name of a command, and what it is given."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    return name.lower(), rest.strip()


def obey(desk: Desk, line: str) -> None:
    """Do what a command says."""
    name, rest = split_command(line)
    command = COMMANDS.get(name)
    if command is None:
        desk.screen.say(unknown(name))
        return
    try:
        command.do(desk, rest)
    except FoldmarkError as error:
        desk.screen.say(Line(plain(line_of(error), most=1_000), "red"))


def unknown(name: str) -> Line:
    """What is said to who gives a command that there is not."""
    known = ", ".join(f"/{name}" for name in COMMANDS)
    return Line(f"there is no /{plain(name, most=30)}; there are {known}", "yellow")


def helping(width: int) -> Iterator[Line]:
    """All commands, and what they are for."""
    for name, command in COMMANDS.items():
        call = f"/{name} {command.takes}".rstrip()
        if width < _NARROW:
            yield Line(f"  {call}", QUIET)
            for line in wrapped(command.about, width - 4):
                yield Line(f"    {line}", QUIET)
        else:
            yield Line(f"  {call:<{_CALL}}{command.about}", QUIET)


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
    told = f"Act {done.number}, a {done.kind}, was undone"
    if done.kind != "revert":
        tell_act(desk.session, done, before, told)
        return
    restored = _files_again(desk, done.number)
    tell_act(desk.session, done, before, told, restored=restored)
    if restored is None:
        known = done.number in desk.reverted
        cause = "they were changed since" if known else "that revert was made in another run"
        desk.screen.say(Line(f"files stay as they are: {cause}", QUIET))


def _files_again(desk: Desk, act: int) -> Restored | None:
    """Files as they were before a revert; None where that is not known, or work would be lost."""
    trees = desk.reverted.get(act)
    if trees is None:
        return None
    held = taken_snapshots(desk.session, desk.folder)
    return held.restore(trees.before) if held.take() == trees.after else None


def _whole_number(text: str) -> int | None:
    if text and not text.isdecimal():
        raise BadInput(f"{plain(text)!r} is no number of an act; leave it out for the latest")
    return int(text) if text else None


def _plan(desk: Desk, _: str) -> None:
    desk.agent.prepare(desk.session)
    plan = desk.session.plan()
    used = f"{short(plan.tokens)} of {short(plan.usable)} usable tokens"
    outputs = number(len(plan.prune.prune), "old output")
    most = number(len(plan.fold.head), "message") if plan.fold else ""
    # Whether that is worth a summary, and how much of it, is known to who makes one.
    folded = f"at most {most}, if that frees enough" if most else "nothing"
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
    if desk.screen.console.width >= _NARROW or not split_words(query):
        search(desk.session.id, query.split(), store=desk.where)
        return
    found = desk.session.search(query)
    for hit in found:
        head = f"{hit.handle} {hit.state} {plain(hit.tool or hit.kind, most=16)}"
        desk.screen.say(Line(head, "cyan"))
        for line in wrapped(plain(hit.snippet, most=_MOST_SNIPPET), desk.screen.console.width - 2):
            desk.screen.say(Line(f"  {line}"))
    end = "Read one whole: foldmark recall ID HANDLE" if found else "Nothing holds that."
    desk.screen.say(Line(end, QUIET))


def _diff(desk: Desk, message: str) -> None:
    session = desk.session
    held = taken_snapshots(session, desk.folder)
    name = _message_named(desk, message) if message else None
    trees = changed_trees(session, name)
    found = held.diff(*trees) if trees else ()
    if not found or not trees:
        desk.screen.say(Line("No file was changed."))
        return
    if more := tell(found, held.patch(*trees, for_people=True), most=_MOST_LINES):
        # An address of a store may hold a password.
        store = "" if "://" in desk.where else f" --store {shlex.quote(desk.where)}"
        told = f"… and {number(more, 'line')} more; all: foldmark diff {session.id}{store}"
        desk.screen.say(Line(told, "yellow", whole=True))
    desk.screen.say(Line(LEFT_OUT, QUIET))


def _message_named(desk: Desk, name: str) -> str:
    with existing_store(desk.where) as store:
        return message_named(store, desk.session.info, name)


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
    desk.wished = gone_on_with(desk.wished, name, int(size) if size else None)
    desk.gauge.refresh()
    told = f"now {plain(agent.model.name)}: {short(session.tokens)} of {short(session.room)} used"
    desk.screen.say(Line(told, "green"))


def _revert(desk: Desk, _: str) -> None:
    """Files and view as they were before the user's newest message."""
    session = desk.session
    messages = session.export(reverted=False).messages
    asked = next((held for held in reversed(messages) if said_by_user(held)), None)
    if asked is None:
        raise BadInput("nothing was said yet that could be taken back")
    held = taken_snapshots(session, desk.folder)
    restored = held.restore(tree_before(session, asked.id))
    after = held.take()
    place = messages.index(asked)
    before = session.view().tokens
    # The first message has none before it: then only what came after it is hidden.
    act = session.revert(messages[max(place - 1, 0)].id)
    desk.reverted[act.number] = Trees(restored.before, after)
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
    for line in helping(desk.screen.console.width):
        desk.screen.say(line)


def _exit(_desk: Desk, _: str) -> None:
    raise Leave


COMMANDS = {
    "compact": Command(_compact, "[FOCUS]", "fold the older part into a summary"),
    "undo": Command(_undo, "[ACT]", "take back the latest prune, pivot or revert, with its files"),
    "plan": Command(_plan, "", "what prune and compact would do now"),
    "search": Command(_search, "WORDS", "find what was said, shown or not"),
    "diff": Command(_diff, "[MESSAGE]", "what was changed in files"),
    "revert": Command(_revert, "", "files and view as before your last message"),
    "model": Command(_model, "NAME [WINDOW]", "go on with another model"),
    "help": Command(_help, "", "this list"),
    "exit": Command(_exit, "", "leave; Ctrl-D does so, too"),
}
