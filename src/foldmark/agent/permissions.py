"""Who may call which tool: rules by pattern, and a question where they say to ask.

The last rule that matches counts, so that a user's come after ours. A rule is a help against
mistakes, not a wall: what a permitted command does in the end is not known here. No shell is
imitated: a pattern allows a shell command only if the text consists of plain words.
"""

import asyncio
import inspect
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase, translate
from typing import Literal, NamedTuple

from foldmark.errors import BadPolicy
from foldmark.files import harmless
from foldmark.model.values import Frozen, Json
from foldmark.providers.background import run_in_thread

_log = logging.getLogger("foldmark")
Action = Literal["allow", "ask", "deny"]
Rule = tuple[str, Action]
Patterns = list[tuple[str, bool]]  # of names, and whether it closes or opens them; the last counts
READ = "read"  # the tool whose rules are also held against what searches find
SHELLS = frozenset({"shell"})  # tools whose subject is a command
_STRICTEST: tuple[Action, ...] = ("deny", "ask", "allow")
_LONGEST = 200  # characters of a subject that are told
_LOOK = 0.02  # seconds after which it is seen whether somebody else is still asked


class _Parsed(NamedTuple):
    tool: str
    pattern: str | None  # None matches every subject
    action: Action

    def allows(self, command: "Command") -> bool:
        """Whether a command matches both as it is written and as the shell runs it."""
        pattern = self.pattern or "*"
        runs = fnmatchcase(command.runs, re.sub("""['"]""", "", pattern))
        return runs and fnmatchcase(command.written, pattern)

    def forbids(self, subject: str, command: "Command") -> bool:
        """Whether the command or the whole text matches, the program with its folder or without."""
        pattern = self.pattern or "*"
        without_folder = re.sub("^[^ ]*/", "", command.runs)
        forms = (subject, command.written, command.runs, without_folder)
        return any(fnmatchcase(form, pattern) for form in forms)

    def may_forbid(self, command: "Command") -> bool:
        """Whether the pattern matches from a later word on, as in `sudo git push`."""
        matches = re.compile(translate(self.pattern or "*")).match
        return any(matches(command.runs, start.end()) for start in _STARTS.finditer(command.runs))


# --- shell commands ------------------------------------------------------------------------

LONGEST = 20_000  # characters of a text that is taken apart
# Characters that no shell treats in a special way. Others than ASCII are plain only in quotes:
# some locales have blanks among them.
_BARE = r"[\w./:@%+,^-]"
# In single quotes everything is literal. In double quotes $, ` and \ are not, nor ! at a prompt.
_QUOTED = r"""(?:'[^']*+'|"[^"$`\\!]*+")"""
# Words that a shell takes for syntax, or with which it runs what follows.
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for"}
    | {"in", "select", "function", "foreach", "repeat", "end", "time", "coproc", "nocorrect"}
    | {"noglob", "eval", "exec", "command", "builtin", "trap"}
)
_END = r"(?![^ ;|&])"  # the end of a word
_FIRST = rf"(?:{_BARE}|{_QUOTED})++"
# A sign of equality sets a variable in the first word only.
_WORD = rf"(?:{_BARE}|{_QUOTED})(?:{_BARE}|{_QUOTED}|=)*+"
_QUIET = rf"(?:2>&1|[12]?>\ ?/dev/null){_END}"  # redirections that write no file
_COMMAND = rf"{_FIRST}(?:[ ]++(?:{_QUIET}|{_WORD}))*+"
_NEXT = r"(?:&&|\|\|?+|;)"
_PLAIN = re.compile(rf"[ ]*+{_COMMAND}[ ]*+(?:{_NEXT}[ ]*+{_COMMAND}[ ]*+)*+(?:;[ ]*+)?+", re.ASCII)
_TOKEN = re.compile(rf"(?P<next>{_NEXT})|{_QUIET}|(?P<word>{_WORD})", re.ASCII)
_QUOTES = re.compile(r"""(['"])(.*?)\1""")
_STARTS = re.compile(r"[ /]++(?=.)")  # where a word begins, or the name of a program in a folder


class Command(NamedTuple):
    """One command of a text; both forms are without redirections."""

    written: str
    runs: str  # without quotes, as the program gets its words


def plain_commands(text: str) -> list[Command] | None:
    """The commands of a text if it consists of plain words, `&&`, `||`, `;` and `|`; else None.

    Whatever could be something else for a shell is not plain: line breaks, expansions, globs,
    assignments, comments, other redirections, groups, jobs and keywords.
    """
    text = text.strip(" \n")
    if len(text) > LONGEST or not text.isprintable() or not _PLAIN.fullmatch(text):
        return None
    commands: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text):
        if token["next"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append(token["word"])
    written = (" ".join(words) for words in commands if words)
    found = [Command(one, _QUOTES.sub(r"\2", one)) for one in written]
    return None if any(one.runs.split(" ")[0] in _KEYWORDS for one in found) else found


# --- rules ---------------------------------------------------------------------------------


class Permissions:
    """Rules of the form `tool` or `tool:pattern`, in which * stands for anything, slashes too."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Take the rules, the weakest first; where none matches, somebody is asked."""
        self._parsed = tuple(_parsed(rule, action) for rule, action in rules)

    def decide(self, tool: str, subject: str) -> Action:
        """What is to be done about a call of a tool on a subject."""
        rules = self._about(tool)
        if tool not in SHELLS:
            return _last(rules, subject)
        plain = plain_commands(subject)
        commands = plain or [Command(subject, subject)]
        found = {_of_command(rules, subject, one, is_plain=bool(plain)) for one in commands}
        return next(action for action in _STRICTEST if action in found)

    def closed(self, search: str) -> tuple[Patterns, Patterns]:
        """What files a search leaves out: by the rules for reading, and by those for itself."""
        own = self._about(search)
        return (
            [(rule.pattern or "*", _closes(rule)) for rule in self._about(READ)],
            [(rule.pattern or "*", rule.action == "deny" and bool(rule.pattern)) for rule in own],
        )

    def _about(self, tool: str) -> list[_Parsed]:
        return [rule for rule in self._parsed if fnmatchcase(tool, rule.tool)]


def _last(rules: list[_Parsed], subject: str) -> Action:
    for rule in reversed(rules):
        if fnmatchcase(subject, rule.pattern or "*"):
            return rule.action
    return "ask"


def _of_command(rules: list[_Parsed], subject: str, command: Command, *, is_plain: bool) -> Action:
    """The same for one command of several; where it is in doubt, somebody is asked."""
    action: Action = "ask"
    for rule in rules:
        if rule.pattern is None:
            action = rule.action
        elif rule.action == "allow":
            if is_plain and rule.allows(command):
                action = "allow"
        elif rule.forbids(subject, command):
            action = rule.action
        elif action == "allow" and (not is_plain or rule.may_forbid(command)):
            action = "ask"
    return action


def _closes(rule: _Parsed) -> bool:
    """Whether what may not be read is not to be found either.

    Who forbids everything, and allows a search, wants that to find something.
    """
    if rule.pattern is None:
        return rule.action == "deny" and rule.tool != "*"
    return rule.action != "allow"


def _parsed(rule: str, action: Action) -> _Parsed:
    tool, _, pattern = rule.partition(":")
    if not tool.strip():
        raise BadPolicy(f"the rule {rule!r} names no tool; write tool or tool:pattern")
    if action not in _STRICTEST:
        raise BadPolicy(f"{rule}: {action!r} is none of allow, ask and deny")
    return _Parsed(tool.strip(), None if pattern in ("", "*") else pattern, action)


# --- asking --------------------------------------------------------------------------------


class Question(Frozen):
    """What somebody is asked: whether a tool may be called on a subject."""

    tool: str
    subject: str
    input: Json


class No(Frozen):
    """A refusal with words for the model."""

    words: str = ""


Reply = Literal["once", "always", "no"] | No
_REPLIES = ("once", "always", "no")
Asker = Callable[[Question], "Awaitable[Reply] | Reply"]


class Gate:
    """Lets calls through or not: by the rules, and by asking. One question at a time."""

    def __init__(self, permissions: Permissions, ask: Asker | None = None) -> None:
        """Take the rules, and who is asked; an asker that is not async may block."""
        self.permissions = permissions
        self._ask = ask
        self._always: set[tuple[str, str]] = set()  # for this run
        self._asking = threading.Lock()  # one of asyncio's own is for one loop alone

    async def refusal(self, tool: str, subject: str, given: Json) -> str | None:
        """Why a call may not be made, in words for the model; None where it may."""
        action = self.permissions.decide(tool, subject)
        if action == "deny":
            return (
                f"not permitted: a rule forbids {_rule(tool, subject)}, by any means; "
                "go on without it, or tell the user that it is needed"
            )
        if action == "allow":
            return None
        while not self._asking.acquire(blocking=False):
            await asyncio.sleep(_LOOK)
        try:
            if (tool, subject) in self._always:  # perhaps since a moment ago
                return None
            return await self._answered(tool, subject, given)
        finally:
            self._asking.release()

    async def _answered(self, tool: str, subject: str, given: Json) -> str | None:
        rule = _rule(tool, subject)
        if self._ask is None:
            return f"not permitted: nobody is there to be asked; the rule {rule} = allow permits it"
        try:
            reply = await _asked(self._ask, Question(tool=tool, subject=subject, input=given))
        except BaseException as error:
            if _is_cut(error):
                raise
            # No answer is no permission.
            return f"not permitted: asking for {rule} failed ({type(error).__name__})"
        if not isinstance(reply, No) and reply not in _REPLIES:
            _log.error("whoever is asked gave %r, which is none of %s", reply, ", ".join(_REPLIES))
            return f"not permitted: the answer to the question for {rule} was no answer"
        if reply == "always":
            self._always.add((tool, subject))
        if reply in ("once", "always"):
            return None
        words = reply.words if isinstance(reply, No) else ""
        return f"the user said no: {words}" if words else "the user said no to this call"


def _is_cut(error: BaseException) -> bool:
    """Whether an error is meant for who waits here, and did not come from who was asked."""
    task = asyncio.current_task()
    is_wanted = task is None or task.cancelling() > 0
    return isinstance(error, asyncio.CancelledError) and is_wanted


async def _asked(ask: Asker, question: Question) -> Reply:
    if inspect.iscoroutinefunction(ask):
        return await ask(question)

    def put() -> Awaitable[Reply] | Reply:
        return ask(question)

    reply = await run_in_thread(put)  # who never answers holds up nobody
    return await reply if inspect.isawaitable(reply) else reply


def _rule(tool: str, subject: str) -> str:
    return f'"{tool}:{harmless(subject, _LONGEST)}"' if subject else f'"{tool}"'
