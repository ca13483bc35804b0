"""Calls of tools in the made-up project: what an agent asks for, and what it is given.

A call knows how long it took, not when it was made; how it becomes a part of a message is told
elsewhere.
"""

import json
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import field

from foldmark.model.values import Frozen, Json

from .chance import Deck, Sizes
from .project import ROOT, THINGS, VERBS, Change, Project
from .shell import Command, Shell
from .story import Todos

_LONG_LINE = 90  # more characters a line than these are asked of a larger file
_HANDBOOK = "https://docs.orders.example"
_REFUSALS: dict[str, tuple[dict[str, str], str]] = {
    "read": ({"filePath": f"{ROOT}/{{module}}.py"}, "There is no file {module}.py."),
    "edit": (
        {"filePath": f"{ROOT}/README.md", "oldString": "# {module}", "newString": "# {thing}"},
        "The old string is not in the file; it may have been edited since it was read.",
    ),
    "bash": (
        {"command": "dropdb {module}", "description": "Begin with an empty database"},
        "The user does not allow this command.",
    ),
    "webfetch": ({"url": f"{_HANDBOOK}/{{module}}"}, "The server answered with status 503."),
}


class Call(Frozen):
    """A call and its outcome; `error` where the tool itself failed."""

    tool: str
    input: Json
    title: str = ""
    output: str = ""
    metadata: Json = field(default_factory=dict)
    took: tuple[int, int] = (8, 60)  # milliseconds, at least and at most
    error: str | None = None
    picture: bool = False
    changed: tuple[str, ...] = ()


Draw = Callable[[], Call]


class Calls:
    """Draws one step after the other; some follow from what the last one changed."""

    def __init__(self, rng: Random, project: Project, sizes: Sizes) -> None:
        """Take the project in which the calls are made."""
        self._rng = rng
        self._project = project
        self._sizes = sizes
        shell = Shell(rng, project, sizes)
        self._tests = partial(self._bash, shell.tests)
        self._several = Deck(rng, {True: 1, False: 12})
        self._refusals = Deck(rng, dict.fromkeys(_REFUSALS, 1))
        self._next: deque[Draw] = deque()
        self._spans: dict[str, tuple[int, int]] = {}  # by file: offset and limit of the last read
        self._todos = Todos(rng)
        self._cards: Deck[Draw] = Deck(
            rng,
            {
                self._read: 22,
                self._edit: 15,
                partial(self._bash, shell.look): 10,
                self._tests: 9,
                self._grep: 8,
                partial(self._bash, shell.again): 6,
                self._glob: 5,
                self._todowrite: 5,
                self._apply_patch: 4,
                self._refused: 4,
                self._write: 3,
                self._webfetch: 2,
                self._task: 2,
                self._skill: 1,
                self._picture: 1,
            },
        )

    def step(self) -> list[Call]:
        """The calls of one step: mostly one, at times up to four at once."""
        if self._next:
            return [self._next.popleft()()]
        if self._several.draw():
            looks = (self._read, self._grep, self._glob, self._read)
            return [look() for look in self._rng.sample(looks, self._rng.randint(2, 4))]
        return [self._cards.draw()()]

    def slow(self) -> Call:
        """A call that takes long enough to be stopped."""
        return self._rng.choice((self._tests, self._task))()

    def turn(self, module: str) -> None:
        """Forget what the last turn was about to do, and turn to this module."""
        self._project.focus = module
        self._next.clear()
        self._todos = Todos(self._rng)

    def _read(self, path: str | None = None) -> Call:
        """A file or some of its lines; a given file is read as far as the last time."""
        if path is None or path not in self._spans:
            path = self._span(path)
        offset, limit = self._spans[path]
        arguments: Json = {"filePath": path}
        if limit != 2_000:
            arguments |= {"offset": offset, "limit": limit}
        output = self._project.numbered(path, offset, limit)
        return Call(
            tool="read",
            input=arguments,
            title=path.removeprefix(f"{ROOT}/"),
            output=output,
            metadata={"preview": output[:200], "truncated": "more lines" in output[-90:]},
        )

    def _span(self, path: str | None) -> str:
        """Settle which lines of a file are read, and first of which file."""
        size = self._sizes.draw()
        if path is None:
            path = self._project.source()
            if size > _LONG_LINE * len(self._project.files[path].lines):
                path = self._rng.choice(self._project.large)
        self._spans.pop(path, None)  # so that it comes last
        self._spans[path] = self._project.span(path, size)
        return path

    def _picture(self) -> Call:
        """A picture, which is given beside the output."""
        path = f"docs/{self._project.module()}.png"
        return Call(
            tool="read",
            input={"filePath": f"{ROOT}/{path}"},
            title=path,
            output="The picture is attached.",
            picture=True,
        )

    def _edit(self) -> Call:
        """A change of a file, mostly of one that was just read."""
        change = self._project.edit(self._known())
        self._follow(change)
        return Call(
            tool="edit",
            input={"filePath": change.path, "oldString": change.old, "newString": change.new},
            title=change.path.removeprefix(f"{ROOT}/"),
            output="The edit was applied.",
            metadata={"diff": change.hunk, "diagnostics": {}},
            changed=(change.path,),
        )

    def _apply_patch(self) -> Call:
        """A change of one or two files."""
        paths = {self._known(): None, self._project.source(): None}
        changes = [self._project.edit(path) for path in paths]
        self._follow(changes[0])
        files = [f"*** Update File: {change.path}\n{change.hunk}" for change in changes]
        return Call(
            tool="apply_patch",
            input={"patchText": "\n".join(["*** Begin Patch", *files, "*** End Patch"])},
            title=f"{len(changes)} files",
            output="Changed:\n" + "\n".join(f"M {change.path}" for change in changes),
            metadata={"files": list(paths)},
            changed=tuple(paths),
        )

    def _write(self) -> Call:
        """A file made anew."""
        module, thing = self._project.module(), self._rng.choice(THINGS)
        path = f"{ROOT}/src/orders/{module}/{thing}s.py"
        exists = path in self._project.files
        content = self._project.write(path)
        self._spans.pop(path, None)
        self._next.append(partial(self._read, path))
        return Call(
            tool="write",
            input={"filePath": path, "content": content},
            title=path.removeprefix(f"{ROOT}/"),
            output="The file was written.",
            metadata={"exists": exists, "diagnostics": {}},
            changed=(path,),
        )

    def _known(self) -> str:
        recent = list(self._spans)[-4:]
        return self._rng.choice(recent) if recent else self._project.source()

    def _follow(self, change: Change) -> None:
        """After a change, its file is read again or the tests are run, or both."""
        if self._rng.random() < 0.45:
            self._next.append(partial(self._read, change.path))
        if self._rng.random() < 0.45:
            self._next.append(self._tests)

    def _glob(self) -> Call:
        """The files of a pattern."""
        module = self._rng.choice((self._project.module(), "test"))
        found = [path for path in self._project.files if module in path]
        return Call(
            tool="glob",
            input={"pattern": f"**/*{module}*", "path": ROOT},
            output="\n".join(found),
            metadata={"count": len(found), "truncated": False},
        )

    def _grep(self) -> Call:
        """The lines with a word in them."""
        word = f"{self._rng.choice(VERBS)}_{self._rng.choice(THINGS)}"
        word = self._rng.choice((word, word.partition("_")[2], "amount", "raise", "await"))
        found = list(self._project.matches(word, self._sizes.draw()))
        count = sum(len(lines) for _, lines in found)
        hits = [f"{path}:\n" + "\n".join(lines) for path, lines in found]
        return Call(
            tool="grep",
            input={"pattern": word, "path": ROOT, "include": "*.py"},
            title=word,
            output="\n\n".join([f"{count} matches" if found else "No matches", *hits]),
            metadata={"matches": count, "truncated": False},
        )

    def _bash(self, run: Callable[[], Command]) -> Call:
        """A command in the shell."""
        command = run()
        return Call(
            tool="bash",
            input={"command": command.words, "description": command.purpose},
            title=command.purpose,
            output=command.output,
            metadata={"exit": command.status, "truncated": False},
            took=(300, 20_000),
        )

    def _webfetch(self) -> Call:
        """A page."""
        url = f"{_HANDBOOK}/{self._project.module()}/{self._rng.choice(VERBS)}"
        paragraphs = self._project.rolls["prose"].cut(self._sizes.draw())
        return Call(
            tool="webfetch",
            input={"url": url, "format": "markdown"},
            title=f"{url} (text/html)",
            output="# The shop's handbook\n\n" + "\n\n".join(paragraphs),
            took=(200, 4_000),
        )

    def _todowrite(self) -> Call:
        """The list of what is to do, one entry further each time."""
        todos = self._todos.further()
        return Call(
            tool="todowrite",
            input={"todos": todos},
            title=f"{len(todos)} todos",
            output=json.dumps(todos, indent=2),
            metadata={"todos": todos},
        )

    def _skill(self) -> Call:
        """The text of a skill."""
        name = f"{self._rng.choice(VERBS)}-books"
        text = "\n".join(f"- {line}" for line in self._project.rolls["prose"].cut(1_500))
        return Call(
            tool="skill",
            input={"name": name},
            title=f"Skill {name}",
            output=f'<skill name="{name}">\n{text}\n</skill>',
            metadata={"name": name, "dir": f"{ROOT}/.agent/skills/{name}"},
        )

    def _task(self) -> Call:
        """The report of another agent."""
        module, thing = self._project.module(), self._rng.choice(THINGS)
        report = "\n\n".join(self._project.rolls["prose"].cut(self._sizes.draw()))
        return Call(
            tool="task",
            input={
                "description": f"Look into the {module}",
                "prompt": f"Find every place where the {module} counts a {thing}, and report them.",
                "subagent_type": "explore",
            },
            title=f"Look into the {module}",
            output=f"<report>\n{report}\n</report>",
            took=(20_000, 120_000),
        )

    def _refused(self) -> Call:
        """A call that its tool could not carry out."""
        tool = self._refusals.draw()
        arguments, error = _REFUSALS[tool]
        words = {"module": self._project.module(), "thing": self._rng.choice(THINGS)}
        filled = {key: held.format(**words) for key, held in arguments.items()}
        return Call(tool=tool, input=filled, error=error.format(**words))
