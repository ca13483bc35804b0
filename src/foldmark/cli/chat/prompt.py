"""Terminal input of a run: the user's messages, and answers to questions about tool calls.

Typed or pasted text is one message, however many lines it has. A question shows the whole call, so
that a command can be read before it is allowed. Without a terminal, this module is not used.
"""

import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.text import Text

from foldmark.agent.permissions import SHELLS, Denial, Question, Reply

from ..layout import QUIET
from ..text import number, plain
from .screen import TerminalScreen

PROMPT = "› "  # noqa: RUF001 - intended: not a greater-than sign
_LEAVING = "Press Ctrl-D or type /exit to leave"
_MOST_SHOWN = 4_000  # characters of a call; a note says how many more there are
_READ = 4_096
_MOST_DISCARDED = 60


class Prompt:
    """Reads the user's messages, with editing, completion and history."""

    def __init__(self, commands: Iterable[str] = ()) -> None:
        """Set the slash commands to complete."""
        self._has_hinted = False
        self._lines: PromptSession[str] = PromptSession(
            PROMPT,
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
        )

    def read(self) -> str | None:
        """The user's message, or None if the user leaves."""
        try:
            return self._lines.prompt().strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not self._has_hinted:
                sys.stdout.write(f"{_LEAVING}\n")
            self._has_hinted = True
            return ""


def _keys() -> KeyBindings:
    """Key bindings: Enter ends a message unless more pasted text follows."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        if event.key_processor.input_queue and event.current_buffer.text.strip():
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    return keys


# --- questions -----------------------------------------------------------------------------


async def ask_user(screen: TerminalScreen, question: Question) -> Reply:
    """Ask the user about a tool call on the screen of the run; returns the answer."""
    with screen.paused(question):
        for piece in _question_lines(question):
            screen.console.print(piece)
        if discarded := _discard_input():
            note = f"  ignored, because it was typed before the question: {discarded}"
            screen.console.print(Text(note, style=QUIET, overflow="fold"))
        lines: PromptSession[str] = PromptSession(PROMPT)
        reply = None
        try:
            while reply is None:
                screen.console.print(Text(_choices(question)))
                # The turn handles signals; here Ctrl-C is a key with the same effect.
                reply = parse_reply(await lines.prompt_async(handle_sigint=False))
        except EOFError:
            reply = "no"
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            reply = "no"
        return reply


def _choices(question: Question) -> str:
    """The line that lists the possible answers."""
    if not question.subject:
        what = "tool"
    elif question.tool in SHELLS:
        what = "exact command"
    else:
        what = "exact path" if question.input.get("path") == question.subject else "exact call"
    always = f"[a]lways this {what} in this run"
    return f"[y]es once, {always}, [n]o (text after n is sent to the model):"


def parse_reply(line: str) -> Reply | None:
    """The answer in a line, or None if it has none."""
    word, _, more = line.strip().partition(" ")
    match word.lower().rstrip(",.:"):
        case "y" | "yes":
            return "once"
        case "a" | "always":
            return "always"
        case "n" | "no":
            return Denial(reason=more.strip()) if more.strip() else "no"
        case _:
            return None


def _question_lines(question: Question) -> Iterator[Text]:
    subject = question.subject
    yield Text(f"Allow this call of {plain(question.tool, limit=40)}?", style="bold yellow")
    if visible_subject := escape_controls(subject[:_MOST_SHOWN]):
        yield from (Text(f"  {line}", overflow="fold") for line in visible_subject.split("\n"))
    if (rest := len(subject) - _MOST_SHOWN) > 0:
        yield Text(f"  … and {number(rest, 'character')} more, not shown", style="bold red")
    others = ", ".join(
        f"{plain(name, limit=30)}={plain(str(value), limit=60)}"
        for name, value in question.input.items()
        if value != subject
    )
    if others:
        yield Text(f"  {others}", style=QUIET)


def escape_controls(text: str) -> str:
    """The text with control characters as escapes, so that nothing is hidden."""
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


def _discard_input() -> str:
    """Discard what was typed before the question appeared, and return it."""
    stdin, typed = sys.stdin.fileno(), b""
    with suppress(Exception):  # some systems have no such terminals
        while select.select([stdin], [], [], 0)[0] and (data := os.read(stdin, _READ)):
            typed += data
        import termios  # noqa: PLC0415

        termios.tcflush(stdin, termios.TCIFLUSH)  # an unfinished line cannot be read
    return plain(typed.decode(errors="replace"), limit=_MOST_DISCARDED)
