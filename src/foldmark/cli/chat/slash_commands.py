"""What a user can do at the prompt of a run beside talking: commands that begin with a slash.

Each does what the command of that name does, to the session of the run.
"""

import re
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from foldmark.agent.file_changes import changed_trees, tree_before
from foldmark.errors import BadInput, FoldmarkError, UnknownModel
from foldmark.log.log import marker_part
from foldmark.model.messages import Message, TextPart

from ..commands.diff import LEFT_OUT, message_named, taken_snapshots, tell
from ..commands.search import search
from ..commands.undo import tell_operation
from ..layout import QUIET, gauge, show
from ..options import StoreOptions
from ..text import error_line, number, plain
from .context import RunContext
from .lines import Line
from .screen import short

_FIRST_WORDS = 80
_COMMAND = re.compile(r"/[a-z]*( .*)?", re.IGNORECASE)
_CALL = 24  # columns of how a command is called
_MOST_LINES = 400  # of a diff at a prompt


class Leave(Exception):
    """The user wants to go."""


def is_command(line: str) -> bool:
    """Whether a line is a command, and not words that begin with a path."""
    line = line.strip()
    if not _COMMAND.fullmatch(line):
        return False
    word = line.partition(" ")[0]
    if word[1:].lower() in COMMANDS or word == "/":
        return True
    return "/" not in line[1:] and not Path(word).exists()


def obey(context: RunContext, line: str) -> None:
    """Do what a command says."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        known = ", ".join(f"/{name}" for name in COMMANDS)
        context.say(
            Line(f"there is no /{plain(name.lower(), most=30)}; there are {known}", "yellow")
        )
    elif not context.session_id and command not in (_help, _exit):
        told = f"/{name.lower()} is for later: say first what is to be done, or /exit"
        context.say(Line(told))
    else:
        with told_errors(context):
            command(context, rest.strip())


@contextmanager
def told_errors(context: RunContext) -> Generator[None]:
    """Tell what goes wrong, and let the user say something else."""
    try:
        yield
    except FoldmarkError as error:
        context.say(Line(plain(error_line(error), most=1_000), "red"))


# --- the commands: each begins its docstring with how it is called -------------------------


def _compact(context: RunContext, focus: str) -> None:
    """/compact [FOCUS] - fold the older part into a summary."""
    session = context.session
    context.agent.prepare(session)
    with context.screen.shown():
        act = session.compact(instructions=focus)
    if act is None:
        context.say(Line("not folded: a hook forbids it", "yellow"))


def _undo(context: RunContext, act: str) -> None:
    """/undo [ACT] - take back the latest prune, pivot or revert, with its files."""
    if act and not act.isdecimal():
        raise BadInput(f"{plain(act)!r} is no number of an act; leave it out for the latest")
    before = context.session.view().tokens
    done = context.session.undo(int(act) if act else None)
    told = f"Act {done.number}, a {done.kind}, was undone"
    if done.kind != "revert":
        tell_operation(context.session, done, before, told)
        return
    before_revert, after_revert = context.reverted.get(done.number, (None, None))
    taken = taken_snapshots(context.session, context.folder) if before_revert else None
    restored = None
    if taken and before_revert and taken.take() == after_revert:  # else work would be lost
        restored = taken.restore(before_revert)
    tell_operation(context.session, done, before, told, restored=restored)
    if restored is None:
        cause = "they were changed since" if taken else "that revert was made in another run"
        context.say(Line(f"files stay as they are: {cause}", QUIET))


def _plan(context: RunContext, _: str) -> None:
    """/plan - what prune and compact would do now."""
    context.agent.prepare(context.session)
    plan = context.session.plan()
    used = f"{short(plan.tokens)} of {short(plan.usable)} usable tokens"
    outputs = number(len(plan.prune.prune), "old output")
    most = number(len(plan.fold.head), "message")
    auto = "It overflows: that comes with the next step." if plan.overflow else "It fits."
    show(
        gauge(plan.pressure),
        Text(
            f"{used}. {auto}\n"
            f"Prune would hide {outputs} ({number(plan.prune.tokens, 'token')}).\n"
            # Whether that is worth a summary, and how much of it, is known to who makes one.
            f"A compaction would fold at most {most}, if that frees enough."
        ),
    )


def _search(context: RunContext, query: str) -> None:
    """/search WORDS - find what was said, shown or not."""
    search(context.session.id, query.split(), options=StoreOptions(store=context.where))


def _diff(context: RunContext, message: str) -> None:
    """/diff [MESSAGE] - what was changed in files."""
    session = context.session
    held = taken_snapshots(session, context.folder)
    with StoreOptions(store=context.where).open() as store:
        name = message_named(store, session.info, message) if message else None
    trees = changed_trees(session, name)
    found = held.diff(*trees) if trees else ()
    if not found or not trees:
        context.say(Line("No file was changed."))
        return
    if more := tell(found, held.patch(*trees, for_people=True), most=_MOST_LINES):
        # An address of a store may hold a password.
        store = "" if "://" in context.where else f" --store {shlex.quote(context.where)}"
        told = f"… and {number(more, 'line')} more; all: foldmark diff {session.id}{store}"
        context.say(Line(told, "yellow", whole=True))
    context.say(Line(LEFT_OUT, QUIET))


def _model(context: RunContext, given: str) -> None:
    """/model NAME [WINDOW] - go on with another model."""
    name, _, size = given.partition(" ")
    size = size.strip().replace(",", "").replace("_", "")
    if not name or (size and not size.isdecimal()):
        raise BadInput("say which, and its window where that is not known: /model NAME [TOKENS]")
    window = int(size) if size else None
    session = context.session
    try:
        with context.screen.shown():
            context.switch(name, window)
    except UnknownModel:
        raise BadInput(f"no window is known for it; say how many tokens: /model {name} N") from None
    used = f"{short(session.tokens)} of {short(session.room)} used"
    context.say(Line(f"now {plain(context.agent.model.name)}: {used}", "green"))


def _revert(context: RunContext, _: str) -> None:
    """/revert - files and view as before your last message."""
    session = context.session
    messages = session.export(reverted=False).messages
    asked = next((held for held in reversed(messages) if _is_said_by_user(held)), None)
    if asked is None:
        raise BadInput("nothing was said yet that could be taken back")
    held = taken_snapshots(session, context.folder)
    restored = held.restore(tree_before(session, asked.id))
    after = held.take()
    place = messages.index(asked)
    before = session.view().tokens
    # The first message has none before it: then only what came after it is hidden.
    act = session.revert(messages[max(place - 1, 0)].id)
    context.reverted[act.number] = (restored.before, after)
    words = plain(" ".join(_texts(asked)), most=_FIRST_WORDS)
    tell_operation(session, act, before, f"Back to before “{words}”", restored=restored)


def _is_said_by_user(message: Message) -> bool:
    """Whether a message is the user's own, and neither a marker nor written by a program."""
    return message.is_user and marker_part(message) is None and bool(_texts(message))


def _texts(message: Message) -> list[str]:
    parts = (part for part in message.parts if isinstance(part, TextPart))
    return [part.text for part in parts if part.text and not part.synthetic]


def _help(context: RunContext, _: str) -> None:
    """/help - this list."""
    for command in COMMANDS.values():
        call, _, about = (command.__doc__ or "").partition(" - ")
        context.say(Line(f"  {call:<{_CALL}}{about.removesuffix('.')}", QUIET))


def _exit(_context: RunContext, _: str) -> None:
    """/exit - leave; Ctrl-D does so, too."""
    raise Leave


COMMANDS: dict[str, Callable[[RunContext, str], None]] = {
    command.__name__.removeprefix("_"): command
    for command in (_compact, _undo, _plan, _search, _diff, _revert, _model, _help, _exit)
}
