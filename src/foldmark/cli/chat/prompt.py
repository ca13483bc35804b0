"""What is typed at a terminal: what the user says, and whether a tool may be called.

What is typed or pasted is one message however many lines; what a line means is not known here. Of
a call all is shown that it would be called with: a command is read before it is allowed. Without a
terminal nobody is asked, and nothing of this is used.
"""

import asyncio
import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.text import Text

from foldmark.agent.permissions import SHELLS, No, Question, Reply
from foldmark.errors import BadInput

from ..layout import QUIET
from ..text import number, plain

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

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
        try:
            from prompt_toolkit import PromptSession  # noqa: PLC0415 - no other command needs it
            from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415
        except ModuleNotFoundError:
            raise BadInput("the prompt needs: pip install 'foldmark[cli]'") from None
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


def _keys() -> "KeyBindings":
    """Enter ends a message, unless more of a paste is waiting behind it."""
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: "KeyPressEvent") -> None:
        if event.key_processor.input_queue and event.current_buffer.text.strip():
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    return keys


# --- questions -----------------------------------------------------------------------------


class Asking:
    """Asks on the screen of a run, once there is one."""

    def __init__(self) -> None:
        """Begin without a screen."""
        self.screen: TerminalScreen | None = None

    async def ask(self, question: Question) -> Reply:
        """What the user says."""
        if self.screen is None:
            return "no"
        with self.screen.paused():
            for piece in _shown(question):
                self.screen.console.print(piece)
            if dropped := _dropped():
                told = f"  typed before the question, so it is no answer to it: {dropped}"
                self.screen.console.print(Text(told, style=QUIET, overflow="fold"))
            try:
                return await _answer(choices(question))
            except asyncio.CancelledError:
                sys.stdout.write("\n")  # what comes next begins a line of its own
                raise
            finally:
                self.screen.answered(question.tool, question.subject)


def choices(question: Question) -> str:
    """What can be answered, and for what."""
    if not question.subject:
        what = "tool"
    elif question.tool in SHELLS:
        what = "very command"
    else:
        what = "very path" if question.input.get("path") == question.subject else "very call"
    always = f"[a]lways this {what} in this run"
    return f"[y]es once, {always}, [n]o (words after n are told to the model): "


async def _answer(told: str) -> Reply:
    while True:
        sys.stdout.write(told)
        sys.stdout.flush()
        line = await typed_line()
        if line is None:
            return "no"
        if (reply := reply_of(line)) is not None:
            return reply


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


def _shown(question: Question) -> list[Text]:
    subject = question.subject
    shown = visible(subject[:_MOST_SHOWN])
    pieces = [Text(f"{plain(question.tool, most=40)} wants to be called:", style="bold yellow")]
    pieces += [Text(f"  {line}", overflow="fold") for line in shown.split("\n") if shown]
    if (rest := len(subject) - _MOST_SHOWN) > 0:
        pieces.append(
            Text(f"  … and {number(rest, 'character')} more, not shown", style="bold red")
        )
    if others := _others(question):
        pieces.append(Text(f"  {others}", style=QUIET))
    return pieces


def visible(text: str) -> str:
    """A text in which signs that steer a terminal stand as escapes: none of it is hidden."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text
    )


def _others(question: Question) -> str:
    """The rest of the input, shortly."""
    rest = {name: held for name, held in question.input.items() if held != question.subject}
    return ", ".join(
        f"{plain(name, most=30)}={plain(str(held), most=60)}" for name, held in rest.items()
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


async def typed_line() -> str | None:
    """A line that the user types; None where there will be no more. It can be cancelled."""
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()
    typed = bytearray()
    got: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            data = os.read(stdin, _READ)
        except OSError:
            data = b""
        typed.extend(data)
        if (not data or b"\n" in data) and not got.done():
            got.set_result(None)

    loop.add_reader(stdin, read)
    try:
        await got
    finally:
        loop.remove_reader(stdin)
    return typed.decode(errors="replace").partition("\n")[0] if b"\n" in typed else None
