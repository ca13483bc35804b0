"""What commands print in the made-up project: test runs, listings, logs, answers of the service.

Knows nothing of tools or messages: a command is its words, its output and its exit status.
"""

from random import Random
from typing import NamedTuple

from .chance import Deck, Sizes
from .project import ROOT, THINGS, VERBS, Project

_LOOKS = {
    "git status --short": "status",
    "git log --oneline": "commits",
    "git diff": "diff",
    "ls -la src/orders/{module}": "listing",
    "tail -n 200 var/{module}.log": "log",
    "curl -s localhost:8040/{thing}s?of={module}": "records",
}
_HUNK = 500  # about the characters of one


class Command(NamedTuple):
    """A command that was run."""

    words: str
    purpose: str
    output: str
    status: int


class Shell:
    """Runs commands, and can run the last one again to the same end."""

    def __init__(self, rng: Random, project: Project, sizes: Sizes) -> None:
        """Take the project, and how much a command prints."""
        self._rng = rng
        self._project = project
        self._sizes = sizes
        self._looks = Deck(rng, dict.fromkeys(_LOOKS, 1))
        self._last: Command | None = None

    def again(self) -> Command:
        """The last command once more."""
        return self._last or self.look()

    def look(self) -> Command:
        """A command that shows something, or in one case of ten is not there."""
        if self._rng.random() < 0.1:
            tool = f"shop-{self._rng.choice(VERBS)}"
            output = f"bash: line 1: {tool}: command not found"
            return self._ran(f"{tool} --check", "Check the books", output, 127)
        card = self._looks.draw()
        words = card.format(module=self._project.module(), thing=self._rng.choice(THINGS))
        output = self._printed(_LOOKS[card], self._sizes.draw())
        return self._ran(words, f"Run {card.partition(' ')[0]}", output, 0)

    def tests(self) -> Command:
        """A run of the tests; two in five fail."""
        module = self._project.module()
        failed = self._rng.random() < 0.4
        output = self._test_log(module, self._sizes.draw(), failed=failed)
        words = f"python -m pytest tests/test_{module}.py -v"
        return self._ran(words, f"Test the {module}", output, int(failed))

    def _ran(self, words: str, purpose: str, output: str, status: int) -> Command:
        self._last = Command(words, purpose, output, status)
        return self._last

    def _printed(self, kind: str, size: int) -> str:
        if kind == "diff":
            hunks = list(self._project.hunks)[-max(1, size // _HUNK) :]
            return "\n".join(f"--- a{path}\n+++ b{path}\n{hunk}" for path, hunk in hunks)
        lines = self._project.rolls[kind].cut(size)
        return "[\n" + ",\n".join(lines) + "\n]" if kind == "records" else "\n".join(lines)

    def _test_log(self, module: str, size: int, *, failed: bool) -> str:
        passed = self._project.rolls["tests"].cut((size - 600 * failed) // 2)  # each is padded
        count = len(passed) + failed
        lines = [
            f"{' test session starts ':=^80}",
            f"rootdir: {ROOT}",
            f"collected {count} items",
            "",
            *[
                f"{f'tests/test_{module}.py::{line}':<72}[{100 * n // count:>3}%]"
                for n, line in enumerate(passed, 1)
            ],
        ]
        took = f"in {self._rng.uniform(0.2, 40):.2f}s"
        if not failed:
            return "\n".join([*lines, "", f"{f' {count} passed {took} ':=^80}"])
        ending = f"{f' 1 failed, {count - 1} passed {took} ':=^80}"
        return "\n".join([*lines, *self._traceback(module), ending])

    def _traceback(self, module: str) -> list[str]:
        verb, thing, wanted = (
            self._rng.choice(VERBS),
            self._rng.choice(THINGS),
            self._rng.randint(3, 90),
        )
        name = f"test_{verb}_{thing}_at_midnight"
        problem = f"AssertionError: assert {wanted - 1} == {wanted}"
        return [
            f"tests/test_{module}.py::{name} FAILED",
            "",
            f"{' FAILURES ':=^80}",
            f"{f' {name} ':_^80}",
            "",
            "shop = <Shop with three orders>",
            "",
            f"    def {name}(shop: Shop) -> None:",
            f"        {thing} = shop.{thing}(amount={wanted})",
            f">       assert service.{verb}_{thing}({thing}).amount == {wanted}",
            f"E       {problem}",
            f"E        +  where {wanted - 1} = <{thing.title()} {wanted}>.amount",
            "",
            f"tests/test_{module}.py:{wanted * 3}: AssertionError",
            f"{' short test summary info ':=^80}",
            f"FAILED tests/test_{module}.py::{name} - {problem}",
        ]
