"""Who may call which tool: rules by pattern, and a question where they say to ask.

The last rule that matches counts, so that a user's come after ours. A rule is a help against
mistakes, not a wall: what a permitted command does in the end is not known here.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from foldmark.errors import BadPolicy
from foldmark.io.files import harmless
from foldmark.values import Frozen, Json

from .commands import Compound, Simple, compound
from .functions import in_thread

Action = Literal["allow", "ask", "deny"]
Rule = tuple[str, Action]
SHELLS = frozenset({"shell"})  # tools whose subject is a command
_STRICTEST: tuple[Action, ...] = ("deny", "ask", "allow")
_ACTIONS: frozenset[str] = frozenset(_STRICTEST)
_LONGEST = 200  # characters of a subject that are told


class _Parsed(NamedTuple):
    tool: str
    pattern: str | None  # None matches every subject
    action: Action


class Permissions:
    """Rules of the form `tool` or `tool:pattern`, in which * stands for anything, slashes too."""

    def __init__(self, rules: Iterable[Rule] = (), default: Action = "ask") -> None:
        """Take the rules, the weakest first, and what counts where none matches."""
        self.rules = tuple(rules)
        self.default: Action = _checked("default", default)
        self._parsed = tuple(_parsed(rule, action) for rule, action in self.rules)

    def decide(self, tool: str, subject: str) -> Action:
        """What is to be done about a call of a tool on a subject."""
        rules = [rule for rule in self._parsed if fnmatchcase(tool, rule.tool)]
        if tool not in SHELLS:
            return self._last(rules, subject)
        whole = compound(subject)
        found = {self._of_command(rules, subject, whole, one) for one in whole.commands}
        return next(action for action in _STRICTEST if action in found)

    def _last(self, rules: list[_Parsed], subject: str) -> Action:
        for rule in reversed(rules):
            if rule.pattern is None or fnmatchcase(subject, rule.pattern):
                return rule.action
        return self.default

    def _of_command(
        self, rules: list[_Parsed], subject: str, whole: Compound, one: Simple
    ) -> Action:
        """The same for one simple command of several; where it is in doubt, somebody is asked."""
        action: Action = self.default
        for rule in rules:
            if rule.pattern is None:
                action = rule.action
            elif rule.action == "allow":
                if whole.plain and one.bare and fnmatchcase(one.text, rule.pattern):
                    action = "allow"
            elif _is_met(rule.pattern, subject, whole, one):
                action = rule.action
            elif action == "allow" and _may_be_met(rule.pattern, whole, one):
                action = "ask"
        return action


def _is_met(pattern: str, subject: str, whole: Compound, one: Simple) -> bool:
    """Whether a rule that forbids is about this command, or one that it substitutes."""
    inner = whole.within if whole.substitutes else ()
    return any(fnmatchcase(form, pattern) for form in (subject, *one.forms, *inner))


def _may_be_met(pattern: str, whole: Compound, one: Simple) -> bool:
    """Whether it may be about what stands in quotes, is run by another, or cannot be known."""
    if not one.clear:
        return True
    return any(fnmatchcase(form, pattern) for form in (*one.perhaps, *whole.within))


def _parsed(rule: str, action: Action) -> _Parsed:
    tool, _, pattern = rule.partition(":")
    if not tool.strip():
        raise BadPolicy(f"the rule {rule!r} names no tool; write tool or tool:pattern")
    return _Parsed(tool.strip(), None if pattern in ("", "*") else pattern, _checked(rule, action))


def _checked(rule: str, action: Action) -> Action:
    if action not in _ACTIONS:
        raise BadPolicy(f"{rule}: {action!r} is none of allow, ask and deny")
    return action


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
Asker = Callable[[Question], "Awaitable[Reply] | Reply"]


class Gate:
    """Lets calls through or not: by the rules, and by asking. One question at a time."""

    def __init__(self, permissions: Permissions, ask: Asker | None = None) -> None:
        """Take the rules, and who is asked; an asker that is not async may block."""
        self.permissions = permissions
        self._ask = ask
        self._always: set[tuple[str, str]] = set()  # for this run
        self._turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def refusal(self, tool: str, subject: str, given: Json) -> str | None:
        """Why a call may not be made, in words for the model; None where it may."""
        action = self.permissions.decide(tool, subject)
        if action == "deny":
            return f"not permitted: a rule forbids {_rule(tool, subject)}; do it another way"
        if action == "allow":
            return None
        async with self._lock():
            if (tool, subject) in self._always:  # perhaps since a moment ago
                return None
            return await self._answered(tool, subject, given)

    async def _answered(self, tool: str, subject: str, given: Json) -> str | None:
        rule = _rule(tool, subject)
        if self._ask is None:
            return f"not permitted: nobody is there to be asked; the rule {rule} = allow permits it"
        try:
            reply = await _asked(self._ask, Question(tool=tool, subject=subject, input=given))
        except Exception as error:  # noqa: BLE001 - no answer is no permission
            return f"not permitted: asking for {rule} failed ({type(error).__name__})"
        if reply == "always":
            self._always.add((tool, subject))
        if reply in ("once", "always"):
            return None
        words = reply.words if isinstance(reply, No) else ""
        return f"the user said no: {words}" if words else "the user said no to this call"

    def _lock(self) -> asyncio.Lock:
        """A lock of the loop that runs now: a program may use one after the other."""
        loop = asyncio.get_running_loop()
        if self._turn is None or self._turn[0] is not loop:
            self._turn = loop, asyncio.Lock()
        return self._turn[1]


async def _asked(ask: Asker, question: Question) -> Reply:
    if inspect.iscoroutinefunction(ask):
        return await ask(question)

    def put() -> Awaitable[Reply] | Reply:
        return ask(question)

    reply = await in_thread(put)  # who never answers holds up nobody
    return await reply if inspect.isawaitable(reply) else reply


def _rule(tool: str, subject: str) -> str:
    line = harmless(subject)
    short = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return f'"{tool}:{short}"' if short else f'"{tool}"'
