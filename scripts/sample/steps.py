"""How the steps of the recorded sample are written: some words, and a call."""

from foldmark.testing import ReplyPart, call

Step = tuple[ReplyPart, ...]
TEST = "python3 -m unittest discover"
VERBOSE = f"{TEST} -v"
CONSTRAINT = "do not change the public JSON field names"


def read(path: str, said: str = "", offset: int = 1, limit: int = 400) -> Step:
    return _step(said, "read", path=path, offset=offset, limit=limit)


def grep(pattern: str, said: str = "", path: str = ".") -> Step:
    return _step(said, "grep", pattern=pattern, path=path)


def shell(command: str, said: str = "") -> Step:
    return _step(said, "shell", command=command)


def edit(path: str, old: str, new: str, said: str = "") -> Step:
    return _step(said, "edit", path=path, old=old, new=new)


def write(path: str, content: str, said: str = "") -> Step:
    return _step(said, "write", path=path, content=content)


def glob(pattern: str, said: str = "") -> Step:
    return _step(said, "glob", pattern=pattern)


def _step(said: str, tool: str, **given: object) -> Step:
    return (*((said,) if said else ()), call(tool, **given))


def plan(*items: tuple[str, str]) -> Step:
    return (call("todo", items=[{"content": what, "status": state} for what, state in items]),)


def run_python(*lines: str, said: str = "") -> Step:
    """A short program that the agent runs to see how the service behaves."""
    return shell("python3 - <<'END'\n" + "\n".join(lines) + "\nEND", said)


SHOW = (
    "from tests.client import Client",
    "import json",
    "client = Client()",
)
