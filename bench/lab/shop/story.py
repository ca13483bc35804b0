"""What the user and the assistant of a made-up session say to each other.

Sentences with places for the project's words. Knows nothing of tools, messages or times.
"""

from collections import deque
from collections.abc import Sequence
from random import Random

from .project import MODULES, ROOT, THINGS, VERBS

RULES = (
    "Always run the tests before you say you are done.",
    "Never touch the migrations folder.",
    "From now on, write amounts with two decimals, in logs too.",
    "Don't use floats for money, no matter what the old code does.",
    "Keep in mind that the mills are in three time zones.",
    "Never commit by yourself; I do that.",
    "Whenever you add a route, add it to docs/routes.md as well.",
    "For the rest of this session, answer in at most five lines.",
)
_REQUESTS = (
    "When I {verb} a {thing} twice, the {module} shows it two times. Find out why and mend it.",
    "Add a `noted_by` to every {thing} and show it in the {module}'s routes.",
    "The {module} tests are slow since last week. What takes so long? Make them quick again.",
    "Please move what the {module} knows of a {thing} into a file of its own.",
    "A customer could {verb} an empty {thing}. Refuse it, and say in the answer which one it was.",
    "Read how the {module} counts a {thing} and tell me if one can be lost. If so, mend it.",
    "Good. Now do the same for the {other} in the {module}.",
    "The {thing} list of the {module} needs pages: 50 at a time, oldest first.",
    "Rename {thing} to {other} wherever the {module} means the latter.",
    "Something logs the same {thing} a hundred times an hour. Have a look at the {module}.",
    "Write tests for the {module} that cover what happens when we {verb} a {thing} at midnight.",
    "Can the {module} {verb} a whole {other} at once rather than one {thing} after the other?",
)
_AFTER_TROUBLE = {
    "running": "Stop, that would take all day. Leave it and look at the {module}'s {thing} only.",
    "pending": "No, not that. Tell me first how the {module} would {verb} a {thing}.",
    "refused": "That was the network. Please try again: {verb} the {thing} in the {module}.",
}
_SAID = {
    "read": "I'll look at how the {module} reads its {thing}.",
    "grep": "Before I change the {module}, I want to know who else has a {thing} to {verb}.",
    "glob": "Let me see which files the {module} has.",
    "bash": "Let me see what the {module} says to that.",
    "edit": "The {other} is closed before the {thing} is counted; I'll turn that around.",
    "apply_patch": "The {thing} comes from two places. I'll change both.",
    "write": "The {thing} gets a file of its own.",
    "todowrite": "One thing after the other.",
    "webfetch": "The handbook should say when to {verb} a {thing}.",
    "task": "Who counts a {thing} is better looked into separately.",
    "skill": "There is a way to do this here; let me read it first.",
}
_THOUGHTS = (
    "The {thing} is looked up by its number, but the {module} passes the number of the {other}.",
    "If the {other} is empty, the loop never runs and nothing is kept.",
    "I could {verb} the {thing} here, but then the {module} would have to know of the {other}.",
    "The smaller change is in the {module}: one condition more.",
    "The test passes by chance, since every {thing} in it has exactly one {other}.",
    "On the first of the month the {module} begins a new {other}, and the {thing} stays behind.",
)
_CLOSING = (
    "Done. The {module} now keeps the {thing} until its {other} is closed.",
    "The {thing} was counted twice because the {module} asked for it before it was stored.",
    "Both ways through the {module} now end in the same place, and a {thing} is seen once.",
)


class Story:
    """Says what comes next, and remembers what was asked for."""

    def __init__(self, rng: Random) -> None:
        """Begin with nothing said."""
        self._rng = rng
        self.module, self._verb, self._thing, self._other = self._words()
        self.rules: dict[str, None] = {}
        self.requests: deque[str] = deque(maxlen=6)
        self.files: dict[str, None] = {}  # changed in this turn

    def filled(self, text: str) -> str:
        """A sentence with the words of this turn in its places."""
        return text.format(
            module=self.module, verb=self._verb, thing=self._thing, other=self._other
        )

    def _words(self) -> tuple[str, str, str, str]:
        thing, other = self._rng.sample(THINGS, 2)
        return self._rng.choice(MODULES), self._rng.choice(VERBS), thing, other

    def request(self, trouble: str, pasted: Sequence[str]) -> str:
        """What the user asks for next, at times with a rule or a piece of a log."""
        self.files = {}
        self.module, self._verb, self._thing, self._other = self._words()
        text = self.filled(_AFTER_TROUBLE.get(trouble, self._rng.choice(_REQUESTS)))
        self.requests.append(text)
        if not self.rules or self._rng.random() < 0.15:
            rule = self._rng.choice(RULES)
            self.rules[rule] = None
            text += f"\n\n{rule}"
        if self._rng.random() < 0.08:
            text += "\n\nThis is what I see:\n```\n" + "\n".join(pasted) + "\n```"
        return text

    def said(self, tool: str) -> str:
        """A sentence before a call of this tool."""
        return self.filled(_SAID[tool])

    def thought(self) -> str:
        """Some sentences of thinking."""
        return self.filled(" ".join(self._rng.sample(_THOUGHTS, self._rng.randint(2, 5))))

    def closing(self) -> str:
        """The last words of a turn, with the files that were changed in it."""
        lines = [self.filled(self._rng.choice(_CLOSING))]
        if self.files:
            lines += ["", *(f"- `{_short(path)}`" for path in self.files)]
        return "\n".join(lines)

    def summary(self) -> str:
        """What stands for all that was said so far."""
        sections = {
            "Asked for": self.requests,
            "Holds for good": self.rules,
            "Found out": [self.filled(text) for text in self._rng.sample(_THOUGHTS, 4)],
            "Files in work": [f"`{_short(path)}`" for path in self.files] or ["none"],
            "Next": [self.filled("Finish the {thing} in the {module}, then run all tests.")],
        }
        return "\n\n".join(
            f"## {title}\n" + "\n".join(f"- {line}" for line in lines)
            for title, lines in sections.items()
        )


class Todos:
    """A list of what is to do."""

    def __init__(self, rng: Random) -> None:
        """Begin with nothing done."""
        self._tasks = [f"{verb.title()} the {rng.choice(THINGS)}" for verb in rng.sample(VERBS, 5)]
        self._done = -1

    def further(self) -> list[dict[str, str]]:
        """The list, one entry further each time."""
        self._done = min(self._done + 1, len(self._tasks))
        status = ["completed"] * self._done + ["in_progress"] + ["pending"] * len(self._tasks)
        return [
            {"id": f"{number}", "content": task, "status": status[number - 1], "priority": "medium"}
            for number, task in enumerate(self._tasks, 1)
        ]


def _short(path: str) -> str:
    return path.removeprefix(f"{ROOT}/")
