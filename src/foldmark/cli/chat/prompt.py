"""What is typed at a terminal: what the user says, and whether a tool may be called.

What is typed or pasted is one message however many lines; what a line means is not known here. Of
a call all is shown that it would be called with: a command is read before it is allowed. Without a
terminal nobody is asked, and nothing of this is used.
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

from foldmark.agent.permissions import SHELLS, No, Question, Reply

from ..layout import QUIET
from ..text import number, plain
from .screen import TerminalScreen

PROMPT = "› "  # noqa: RUF001 - no mistaken >, but a sign of our own
_LEAVING = "Ctrl-D or /exit leaves"
_MOST_SHOWN = 4_000  # characters; who is asked about more is told how much more
_READ = 4_096
_MOST_DROPPED = 60


class Prompt:
    """Reads what the user says: a line that can be edited, completed, and found again."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        """Take the words that a line may begin with, to complete them."""
        self._has_told = False
        self._lines: PromptSession[str] = PromptSession(
            PROMPT,
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
        )

    def typed(self) -> str | None:
        """What the user says; None where they leave."""
        try:
            return self._lines.prompt().strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not self._has_told:
                sys.stdout.write(f"{_LEAVING}\n")
            self._has_told = True
            return ""


def _keys() -> KeyBindings:
    """Enter ends a message, unless more of a paste is waiting behind it."""
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
    """What the user says to a call, asked on the screen of the run."""
    with screen.paused(question):
        for piece in _shown(question):
            screen.console.print(piece)
        if dropped := _dropped():
            told = f"  typed before the question, so it is no answer to it: {dropped}"
            screen.console.print(Text(told, style=QUIET, overflow="fold"))
        lines: PromptSession[str] = PromptSession(PROMPT)
        reply = None
        try:
            while reply is None:
                screen.console.print(Text(_choices(question)))
                # Signals are the turn's own; at the question Ctrl-C is a key, and means the same.
                reply = reply_of(await lines.prompt_async(handle_sigint=False))
        except EOFError:
            reply = "no"
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            reply = "no"
        return reply


def _choices(question: Question) -> str:
    """What can be answered, and for what."""
    if not question.subject:
        what = "tool"
    elif question.tool in SHELLS:
        what = "very command"
    else:
        what = "very path" if question.input.get("path") == question.subject else "very call"
    always = f"[a]lways this {what} in this run"
    return f"[y]es once, {always}, [n]o (words after n are told to the model):"


def reply_of(line: str) -> Reply | None:
    """The answer that a line is; None where it is none."""
    word, _, more = line.strip().partition(" ")
    match word.lower().rstrip(",.:"):
        case "y" | "yes":
            return "once"
        case "a" | "always":
            return "always"
        case "n" | "no":
            return No(words=more.strip()) if more.strip() else "no"
        case _:
            return None


def _shown(question: Question) -> Iterator[Text]:
    subject = question.subject
    yield Text(f"{plain(question.tool, most=40)} wants to be called:", style="bold yellow")
    if shown := visible(subject[:_MOST_SHOWN]):
        yield from (Text(f"  {line}", overflow="fold") for line in shown.split("\n"))
    if (rest := len(subject) - _MOST_SHOWN) > 0:
        yield Text(f"  … and {number(rest, 'character')} more, not shown", style="bold red")
    others = ", ".join(
        f"{plain(name, most=30)}={plain(str(value), most=60)}"
        for name, value in question.input.items()
        if value != subject
    )
    if others:
        yield Text(f"  {others}", style=QUIET)


def visible(text: str) -> str:
    """A text in which signs that steer a terminal stand as escapes: none of it is hidden."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text
    )


def _dropped() -> str:
    """What was typed before the question was seen, and is taken away: it is no answer to it."""
    stdin, taken = sys.stdin.fileno(), b""
    with suppress(Exception):  # there are systems without terminals of this kind
        while select.select([stdin], [], [], 0)[0] and (data := os.read(stdin, _READ)):
            taken += data
        import termios  # noqa: PLC0415

        termios.tcflush(stdin, termios.TCIFLUSH)  # a line that is not ended cannot be read
    return plain(taken.decode(errors="replace"), most=_MOST_DROPPED)
