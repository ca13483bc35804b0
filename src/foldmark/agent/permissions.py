"""Permissions of tool calls: rules by pattern, and a question to the user where a rule says ask.

The last matching rule wins, so a user's rules come after ours. Rules protect against mistakes;
they are not a sandbox: the effects of a permitted command are unknown here. No shell is imitated:
a pattern allows a shell command only if its text consists of plain words.
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
from foldmark.files import printable
from foldmark.model.values import Frozen, Json
from foldmark.providers.background import run_in_thread

_log = logging.getLogger("foldmark")
Action = Literal["allow", "ask", "deny"]
Rule = tuple[str, Action]
Patterns = list[tuple[str, bool]]  # name patterns, each hiding or showing; the last match wins
READ = "read"  # its rules also apply to the results of searches
SHELLS = frozenset({"shell"})  # tools whose subject is a command
_STRICTEST: tuple[Action, ...] = ("deny", "ask", "allow")
_MAX_LENGTH = 200  # characters of a subject in messages
_LOOK = 0.02  # seconds between two looks for another open question


class _ParsedRule(NamedTuple):
    tool: str
    pattern: str | None  # None matches every subject
    action: Action

    def allows(self, command: "Command") -> bool:
        """Whether a command matches as written and as the shell runs it."""
        pattern = self.pattern or "*"
        as_run = fnmatchcase(command.as_run, re.sub("""['"]""", "", pattern))
        return as_run and fnmatchcase(command.as_written, pattern)

    def forbids(self, subject: str, command: "Command") -> bool:
        """Whether the command or the whole text matches, with the program's folder or without."""
        pattern = self.pattern or "*"
        without_folder = re.sub("^[^ ]*/", "", command.as_run)
        forms = (subject, command.as_written, command.as_run, without_folder)
        return any(fnmatchcase(form, pattern) for form in forms)

    def may_forbid(self, command: "Command") -> bool:
        """Whether the pattern matches from a later word on, as in `sudo git push`."""
        matches = re.compile(translate(self.pattern or "*")).match
        text = command.as_run
        return any(matches(text, start.end()) for start in _STARTS.finditer(text))


# --- shell commands ------------------------------------------------------------------------

MAX_COMMAND = 20_000  # characters of a text that is parsed
# Characters without special meaning in any shell. Non-ASCII ones are plain only in quotes:
# in some locales they include blanks.
_BARE = r"[\w./:@%+,^-]"
# In single quotes everything is literal. In double quotes $, ` and \ are not, nor ! at a prompt.
_QUOTED = r"""(?:'[^']*+'|"[^"$`\\!]*+")"""
# Words that are shell syntax, or that run the words after them.
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for"}
    | {"in", "select", "function", "foreach", "repeat", "end", "time", "coproc", "nocorrect"}
    | {"noglob", "eval", "exec", "command", "builtin", "trap"}
)
_END = r"(?![^ ;|&])"  # the end of a word
_FIRST = rf"(?:{_BARE}|{_QUOTED})++"
# An equals sign assigns a variable in the first word only.
_WORD = rf"(?:{_BARE}|{_QUOTED})(?:{_BARE}|{_QUOTED}|=)*+"
_QUIET = rf"(?:2>&1|[12]?>\ ?/dev/null){_END}"  # redirections that write no file
_COMMAND = rf"{_FIRST}(?:[ ]++(?:{_QUIET}|{_WORD}))*+"
_NEXT = r"(?:&&|\|\|?+|;)"
_PLAIN = re.compile(rf"[ ]*+{_COMMAND}[ ]*+(?:{_NEXT}[ ]*+{_COMMAND}[ ]*+)*+(?:;[ ]*+)?+", re.ASCII)
_TOKEN = re.compile(rf"(?P<next>{_NEXT})|{_QUIET}|(?P<word>{_WORD})", re.ASCII)
_QUOTES = re.compile(r"""(['"])(.*?)\1""")
_STARTS = re.compile(r"[ /]++(?=.)")  # starts of words, and of program names behind a folder


class Command(NamedTuple):
    """One command of a text, without redirections."""

    as_written: str
    as_run: str  # without quotes, as the program receives its words


def plain_commands(text: str) -> list[Command] | None:
    """The commands of a text of plain words, `&&`, `||`, `;` and `|`; None for any other text.

    Not plain is what a shell may treat specially: line breaks, expansions, globs, assignments,
    comments, other redirections, groups, jobs and keywords.
    """
    text = text.strip(" \n")
    if len(text) > MAX_COMMAND or not text.isprintable() or not _PLAIN.fullmatch(text):
        return None
    commands: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text):
        if token["next"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append(token["word"])
    texts = (" ".join(words) for words in commands if words)
    parsed = [Command(one, _QUOTES.sub(r"\2", one)) for one in texts]
    return None if any(one.as_run.split(" ")[0] in _KEYWORDS for one in parsed) else parsed


# --- rules ---------------------------------------------------------------------------------


class Permissions:
    """Rules of the form `tool` or `tool:pattern`; * matches anything, slashes included."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Create permissions from rules, weakest first; calls that match none are asked about."""
        self._rules = tuple(_parse(rule, action) for rule, action in rules)

    def decide(self, tool: str, subject: str) -> Action:
        """Whether a call of a tool on a subject is allowed, asked about or denied."""
        rules = self._rules_for(tool)
        if tool not in SHELLS:
            return _last_match(rules, subject)
        plain = plain_commands(subject)
        commands = plain or [Command(subject, subject)]
        actions = {_action(rules, subject, one, is_plain=bool(plain)) for one in commands}
        return next(action for action in _STRICTEST if action in actions)

    def hidden_patterns(self, search: str) -> tuple[Patterns, Patterns]:
        """Patterns of files that a search hides: from the rules for `read`, and from its own."""
        own = self._rules_for(search)
        return (
            [(rule.pattern or "*", _hides(rule)) for rule in self._rules_for(READ)],
            [(rule.pattern or "*", rule.action == "deny" and bool(rule.pattern)) for rule in own],
        )

    def _rules_for(self, tool: str) -> list[_ParsedRule]:
        return [rule for rule in self._rules if fnmatchcase(tool, rule.tool)]


def _last_match(rules: list[_ParsedRule], subject: str) -> Action:
    for rule in reversed(rules):
        if fnmatchcase(subject, rule.pattern or "*"):
            return rule.action
    return "ask"


def _action(rules: list[_ParsedRule], subject: str, command: Command, *, is_plain: bool) -> Action:
    """The action for one command of a text; in doubt, ask."""
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


def _hides(rule: _ParsedRule) -> bool:
    """Whether a rule for `read` also hides files from searches.

    A general deny does not: with it, an allowed search would find nothing.
    """
    if rule.pattern is None:
        return rule.action == "deny" and rule.tool != "*"
    return rule.action != "allow"


def _parse(rule: str, action: Action) -> _ParsedRule:
    tool, _, pattern = rule.partition(":")
    if not tool.strip():
        raise BadPolicy(f"the rule {rule!r} names no tool; write `tool` or `tool:pattern`")
    if action not in _STRICTEST:
        raise BadPolicy(f"{rule}: unknown action {action!r}; use allow, ask or deny")
    return _ParsedRule(tool.strip(), None if pattern in ("", "*") else pattern, action)


# --- asking --------------------------------------------------------------------------------


class Question(Frozen):
    """A question to the user: whether a tool may be called on a subject."""

    tool: str
    subject: str
    input: Json


class Denial(Frozen):
    """The answer no, with a reason for the model."""

    reason: str = ""


Reply = Literal["once", "always", "no"] | Denial
_REPLIES = ("once", "always", "no")
Asker = Callable[[Question], "Awaitable[Reply] | Reply"]


class PermissionGate:
    """Permits or refuses calls by rules and by asking, one question at a time."""

    def __init__(self, permissions: Permissions, ask: Asker | None = None) -> None:
        """Create a gate from rules and an asker; an asker that is not async may block."""
        self.permissions = permissions
        self._ask = ask
        self._always: set[tuple[str, str]] = set()  # for this run
        self._asking = threading.Lock()  # an asyncio lock would be bound to one loop

    async def refusal(self, tool: str, subject: str, arguments: Json) -> str | None:
        """Why a call is not permitted, as a text for the model; None if it is."""
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
            if (tool, subject) in self._always:  # answered while we waited
                return None
            return await self._ask_user(tool, subject, arguments)
        finally:
            self._asking.release()

    async def _ask_user(self, tool: str, subject: str, arguments: Json) -> str | None:
        rule = _rule(tool, subject)
        if self._ask is None:
            return f"not permitted: nobody is there to be asked; the rule {rule} = allow permits it"
        try:
            question = Question(tool=tool, subject=subject, input=arguments)
            reply = await _call_asker(self._ask, question)
        except BaseException as error:
            if _is_cancelled(error):
                raise
            # Without an answer there is no permission.
            return f"not permitted: asking for {rule} failed ({type(error).__name__})"
        if not isinstance(reply, Denial) and reply not in _REPLIES:
            _log.error("`ask` returned %r instead of one of %s", reply, ", ".join(_REPLIES))
            return f"not permitted: the answer to the question for {rule} was no answer"
        if reply == "always":
            self._always.add((tool, subject))
        if reply in ("once", "always"):
            return None
        reason = reply.reason if isinstance(reply, Denial) else ""
        return f"the user said no: {reason}" if reason else "the user said no to this call"


def _is_cancelled(error: BaseException) -> bool:
    """Whether an error cancels this task, and was not raised by the asker."""
    task = asyncio.current_task()
    is_cancelled = task is None or task.cancelling() > 0
    return isinstance(error, asyncio.CancelledError) and is_cancelled


async def _call_asker(ask: Asker, question: Question) -> Reply:
    if inspect.iscoroutinefunction(ask):
        return await ask(question)

    def put() -> Awaitable[Reply] | Reply:
        return ask(question)

    reply = await run_in_thread(put)  # an asker that never answers blocks nothing else
    return await reply if inspect.isawaitable(reply) else reply


def _rule(tool: str, subject: str) -> str:
    return f'"{tool}:{printable(subject, _MAX_LENGTH)}"' if subject else f'"{tool}"'
