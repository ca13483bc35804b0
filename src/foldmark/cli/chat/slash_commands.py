"""Slash commands, which the user can type at the prompt of a run.

Each does the same as the command of that name, for the session of the run.
"""

import re
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from foldmark.agent.file_changes import tree_before, trees_around
from foldmark.errors import BadInput, FoldmarkError, UnknownModel
from foldmark.log.log import marker_part
from foldmark.model.messages import Message, TextPart

from ..commands.diff import LEFT_OUT, open_snapshots, print_patch, resolve_message
from ..commands.search import search
from ..commands.show import operation_label
from ..commands.undo import print_operation
from ..layout import QUIET, gauge, show
from ..text import error_line, number, plain
from .context import RunContext
from .lines import Line
from .screen import short

_FIRST_WORDS = 80
_COMMAND = re.compile(r"/[a-z]*( .*)?", re.IGNORECASE)
_CALL = 24  # columns for the usage of a command
_MOST_LINES = 400  # of a diff at the prompt


class LeaveChat(Exception):
    """The user leaves the chat."""


def is_command(line: str) -> bool:
    """Whether a line is a slash command, and not a message that starts with a path."""
    line = line.strip()
    if not _COMMAND.fullmatch(line):
        return False
    word = line.partition(" ")[0]
    if word[1:].lower() in COMMANDS or word == "/":
        return True
    return "/" not in line[1:] and not Path(word).exists()


def run_slash_command(context: RunContext, line: str) -> None:
    """Run the slash command in a line."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        names = ", ".join(f"/{name}" for name in COMMANDS)
        problem = f"there is no /{plain(name.lower(), limit=30)}; the commands are {names}"
        context.say(Line(problem, "yellow"))
    elif not context.session_id and command not in (_help, _exit):
        text = f"/{name.lower()} needs a session: type a first message, or /exit"
        context.say(Line(text))
    else:
        with report_errors(context):
            command(context, rest.strip())


@contextmanager
def report_errors(context: RunContext) -> Generator[None]:
    """Show an error as a line, so that the user can go on."""
    try:
        yield
    except FoldmarkError as error:
        context.say(Line(plain(error_line(error), limit=1_000), "red"))


# --- the commands: each docstring starts with the usage ------------------------------------


def _compact(context: RunContext, focus: str) -> None:
    """/compact [FOCUS] - summarize the older messages."""
    session = context.session
    context.agent.prepare(session)
    with context.screen.drawing():
        operation = session.compact(instructions=focus)
    if operation is None:
        context.say(Line("not compacted: a hook forbids it", "yellow"))


def _undo(context: RunContext, argument: str) -> None:
    """/undo [N] - undo operation N, or the latest prune, compaction or revert."""
    if argument and not argument.isdecimal():
        cause = (
            f"{plain(argument)!r} is not the number of an operation; leave it out for the latest"
        )
        raise BadInput(cause)
    before = context.session.view().tokens
    operation = context.session.undo(int(argument) if argument else None)
    text = f"{operation_label(operation)} was undone"
    if operation.kind != "revert":
        print_operation(context.session, operation, before, text)
        return
    before_revert, after_revert = context.revert_trees.get(operation.number, (None, None))
    snapshots = open_snapshots(context.session, context.folder) if before_revert else None
    restored = None
    if snapshots and before_revert and snapshots.take() == after_revert:  # keep later work
        restored = snapshots.restore(before_revert)
    print_operation(context.session, operation, before, text, restored=restored)
    if restored is None:
        cause = "they changed since then" if snapshots else "that revert was made in another run"
        context.say(Line(f"files were not restored: {cause}", QUIET))


def _plan(context: RunContext, _: str) -> None:
    """/plan - show what prune and compact would do now."""
    context.agent.prepare(context.session)
    plan = context.session.plan()
    usage = f"{short(plan.tokens)} of {short(plan.usable)} usable tokens"
    outputs = number(len(plan.prune.prune), "old output")
    messages = number(len(plan.fold.head), "message")
    auto = "It overflows: the next step makes it smaller." if plan.overflow else "It fits."
    show(
        gauge(plan.pressure),
        Text(
            f"{usage}. {auto}\n"
            f"Prune would hide {outputs} ({number(plan.prune.tokens, 'token')}).\n"
            # Only the summarizer knows whether a summary is worth it, and of how much.
            f"Compact would summarize at most {messages}, if that frees enough."
        ),
    )


def _search(context: RunContext, query: str) -> None:
    """/search WORDS - search the session, including hidden messages."""
    search(context.session.id, query.split(), options=context.store_options)


def _diff(context: RunContext, message: str) -> None:
    """/diff [MESSAGE] - show what changed in files."""
    session = context.session
    snapshots = open_snapshots(session, context.folder)
    with context.store_options.open() as store:
        name = resolve_message(store, session.info, message) if message else None
    trees = trees_around(session, name)
    changes = snapshots.diff(*trees) if trees else ()
    if not changes or not trees:
        context.say(Line("No file was changed."))
        return
    if more := print_patch(changes, snapshots.patch(*trees, readable=True), limit=_MOST_LINES):
        # The address of a store may contain a password.
        location = context.settings.store or ""
        store = "" if "://" in location else f" --store {shlex.quote(location)}"
        text = f"… and {number(more, 'line')} more; see all with: foldmark diff {session.id}{store}"
        context.say(Line(text, "yellow", whole=True))
    context.say(Line(LEFT_OUT, QUIET))


def _model(context: RunContext, argument: str) -> None:
    """/model NAME [WINDOW] - continue with another model."""
    name, _, size = argument.partition(" ")
    size = size.strip().replace(",", "").replace("_", "")
    if not name or (size and not size.isdecimal()):
        raise BadInput("give a model, and its window if that is unknown: /model NAME [TOKENS]")
    window = int(size) if size else None
    session = context.session
    try:
        with context.screen.drawing():
            context.switch(name, window)
    except UnknownModel:
        raise BadInput(
            f"the window of {name} is unknown; give its tokens: /model {name} N"
        ) from None
    usage = f"{short(session.tokens)} of {short(session.usable)} used"
    context.say(Line(f"now {plain(context.agent.model.name)}: {usage}", "green"))


def _revert(context: RunContext, _: str) -> None:
    """/revert - restore files and view to before your last message."""
    session = context.session
    messages = session.export(reverted=False).messages
    request = next(filter(_is_from_user, reversed(messages)), None)
    if request is None:
        raise BadInput("there is no message of yours to take back yet")
    snapshots = open_snapshots(session, context.folder)
    restored = snapshots.restore(tree_before(session, request.id))
    after = snapshots.take()
    index = messages.index(request)
    before = session.view().tokens
    # Before the first message there is none: only what came after it is hidden.
    operation = session.revert(messages[max(index - 1, 0)].id)
    context.revert_trees[operation.number] = (restored.before, after)
    text = plain(" ".join(_texts(request)), limit=_FIRST_WORDS)
    print_operation(session, operation, before, f"Reverted to before “{text}”", restored=restored)


def _is_from_user(message: Message) -> bool:
    """Whether the user wrote a message: not a marker, and not synthetic."""
    return message.is_user and marker_part(message) is None and bool(_texts(message))


def _texts(message: Message) -> list[str]:
    parts = (part for part in message.parts if isinstance(part, TextPart))
    return [part.text for part in parts if part.text and not part.synthetic]


def _help(context: RunContext, _: str) -> None:
    """/help - show this list."""
    for command in COMMANDS.values():
        call, _, about = (command.__doc__ or "").partition(" - ")
        context.say(Line(f"  {call:<{_CALL}}{about.removesuffix('.')}", QUIET))


def _exit(_context: RunContext, _: str) -> None:
    """/exit - leave; Ctrl-D also does."""
    raise LeaveChat


COMMANDS: dict[str, Callable[[RunContext, str], None]] = {
    command.__name__.removeprefix("_"): command
    for command in (_compact, _undo, _plan, _search, _diff, _revert, _model, _help, _exit)
}
