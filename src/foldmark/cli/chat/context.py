"""What a run works with: its options, a model, a session, an agent, and a screen to tell of them.

The model is reached at once; the session is opened only when there is something to say in it.
"""

import math
import shlex
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from foldmark.agent.agent import STEPS, Agent
from foldmark.agent.permissions import Action, Asker
from foldmark.agent.tool import Tool
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.errors import BadInput, NoSession
from foldmark.files import harmless
from foldmark.model.messages import AssistantInfo, Origin
from foldmark.providers.local import LOCAL, is_local, local_model
from foldmark.providers.models import model_named
from foldmark.session.maker import Maker
from foldmark.session.opening import open as open_session
from foldmark.session.opening import open_store
from foldmark.session.session import Session
from foldmark.session.settings import DIGEST
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store
from foldmark.summary.protocol import Model

from ..commands.diff import checked_folder
from ..groups import flag, option
from ..layout import QUIET
from ..options import BASE_URL, STORE, WINDOW, opened_store, store_place, store_settings
from ..text import error_line, plain
from .lines import Line, complain
from .screen import Gauge, TerminalScreen

LOCAL_WINDOW = 8_192
NO_MODEL = (
    "no model is set: give --model PROVIDER:NAME, or set `model` in "
    "~/.config/foldmark/foldmark.toml; --model local runs a small one on this machine"
)
_NO_SESSION = (
    "no earlier run in this folder to go on with; give a task, or --session ID for another session"
)
_RUN = "foldmark run"  # the origin of sessions that are created here
_NEAR = 0.75  # how alike a misspelt `local` must be
# Products that people name in place of who offers them.
_OTHERWISE = {
    "chatgpt": "openai",
    "claude": "anthropic",
    "gemini": "google",
    "gpt": "openai",
    "grok": "xai",
    "kimi": "moonshotai",
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is asked for, beside its task and how it is shown."""

    model: str | None = option(
        "--model PROVIDER:NAME",
        "Who does it; `local`, or local:FILE.gguf, runs on this machine.",
        show_default=False,
    )
    base_url: str | None = option(*BASE_URL)
    window: int | None = option(*WINDOW, min=1)
    session: str | None = option(
        "--session ID",
        "Work in this session, by its id or a beginning that only it has; `latest` is the newest "
        "one. A new one is made where this is left out.",
    )
    goes_on: bool = flag(
        "-c --continue",
        "Go on with the newest session that `run` created in this folder, by its model unless "
        "--model is given; with another one: --session ID.",
    )
    folder: Path = option("--folder DIR", "Where it works, and cannot leave.", default=Path())
    allow: list[str] = option(
        "--allow RULE",
        "Tools to call without asking: shell, 'shell:git *'. --ask and --deny count more.",
        default=[],
    )
    ask: list[str] = option(
        "--ask RULE", "Tools to ask about, whatever --allow says. --deny counts more.", default=[]
    )
    deny: list[str] = option(
        "--deny RULE",
        "Tools never to call: 'write:src/*'. It counts most, whatever is narrower.",
        default=[],
    )
    steps: int = option("--steps", "Requests of one turn, at most.", min=1, default=STEPS)
    cost: float | None = option("--cost DOLLARS", "What one turn may cost, where prices are known.")
    summarizer: str | None = option(
        "--summarizer NAME",
        "Summarizer: `digest` or PROVIDER:MODEL (default: the session's model).",
    )
    policy: str | None = option("--policy NAME", "When to prune and compact.")
    prompt: Path | None = option("--prompt FILE", "A system prompt in place of the usual one.")
    store: str | None = option(*STORE, show_default=False)


class RunContext:
    """What a run works with; `open` makes the session and the agent."""

    session: Session
    agent: Agent
    screen: TerminalScreen  # at a terminal only, as is the gauge
    gauge: Gauge

    def __init__(self, options: RunOptions, stack: ExitStack) -> None:
        """Take what was asked for; the stack closes what is opened."""
        self.options = options  # as the session is to go on
        self.folder = checked_folder(options.folder.resolve())
        # What is wrong with these is told before a session is made.
        rules(options, workspace_tools(self.folder))
        if options.cost is not None and not 0 < options.cost < math.inf:
            raise BadInput(f"--cost is {options.cost:g}; give more than 0 dollars")
        given = ("store", "model", "window", "policy", "summarizer")
        self.settings = store_settings(**{name: getattr(options, name) for name in given})
        self.where = store_place(self.settings)
        self._prompt = _read_prompt(options.prompt)
        self._stack = stack
        self._row, name = self._known_session()
        base_url = options.base_url or self.settings.base_url
        name = self.settings.model or name
        self.model, self.window = _reach(stack, name, base_url, self.settings.window)
        self._ask: Asker | None = None
        self.session_id = ""  # once there is one
        self.reverted: dict[int, tuple[str, str]] = {}  # trees around reverts of this run

    def open(self, ask: Asker | None = None) -> None:
        """Open the session, an old one or a new one that says where it works, and its agent."""
        settings, model = self.settings, self.model.name
        # What would be refused is refused before anything is made.
        msgspec.structs.replace(settings, model=model, window=self.window).limit()
        name, url = settings.summarizer, settings.base_url
        summarizer = name if name in (None, DIGEST) else model_named(name, base_url=url)
        if self._row is None:
            info = Maker().session_info(directory=str(self.folder), origin=Origin(format=_RUN))
            with open_store(settings) as store:
                self._row = store.create(info, estimate=settings.rules().estimate)
        opened = open_session(
            self.where,
            session=self._row.id,
            policy=settings.policy,
            summarizer=summarizer,
            model=model,
            window=self.window,
        )
        self.session = self._stack.enter_context(opened)
        self.session_id, self._ask = self.session.id, ask
        self.agent = self._agent(self.model)

    def _agent(self, model: Model) -> Agent:
        options = self.options
        tools = workspace_tools(self.folder, guarded=self.session.files)
        return Agent(
            model,
            tools=tools,
            prompt=self._prompt,
            folder=self.folder,
            permissions=rules(options, tools),
            ask=self._ask,
            steps=options.steps,
            cost=options.cost,
        )

    def switch(self, name: str, window: int | None) -> None:
        """Go on with another model; a server that was named is for its provider's models."""
        is_same_provider = self.model.name.partition(":")[0] == name.partition(":")[0]
        base_url = self.options.base_url if is_same_provider else None
        model, size = _reach(self._stack, name, base_url, window)
        agent = self._agent(model)
        self.session.switch(model.name, window=size)
        self.agent = agent
        self.options = replace(self.options, model=name, window=window, base_url=base_url)
        self.gauge.refresh()

    def say(self, line: Line) -> None:
        """Show a line of ours, on the screen once there is one."""
        (self.screen.say if self.session_id else complain)(line)

    def about_model(self) -> Line | None:
        """A word on a model of this machine: who never saw one shall know what it is."""
        if not is_local(self.model.name):
            return None
        name, window = self.model.name, self.window
        text = f"{name} runs on this machine, with a window of {window:,} tokens; nothing leaves it"
        return Line(text, QUIET)

    def resuming(self) -> str:
        """The command by which the session goes on as it did."""
        options = self.options
        given = {
            "--model": options.model,
            "--base-url": options.base_url,
            "--window": options.window,
            "--folder": None if options.folder == Path() else options.folder,
            "--store": options.store,
        }
        command = ["foldmark", "run", "--continue", "--session", self.session.id]
        for name, value in given.items():
            text = "" if value is None else str(value)
            may_hold_password = "://" in text and (name == "--store" or "@" in text)
            if text and not may_hold_password:
                command += [name, text]
        return shlex.join(command)

    # --- the session that goes on ---

    def _known_session(self) -> tuple[SessionRow | None, str | None]:
        """The session that is to go on, and its model; nothing where a new one is wanted."""
        name = self.options.session
        if name is None and not self.options.goes_on:
            return None, None
        missing = _NO_SESSION if name is None else f"there is no session {name!r}"
        with opened_store(self.settings, missing=missing) as store:
            try:
                row = _newest(store, self.folder) if name is None else store.named(name)
            except NoSession as error:
                raise BadInput(f"{error_line(error)}; for a new one leave --session out") from None
            return row, _model_of(store, row)


def _newest(store: Store, folder: Path) -> SessionRow:
    """The session that `run` created in this folder and that was last written to."""
    for row in store.sessions():
        origin = row.info.origin or Origin()
        if row.places and origin.format == _RUN and row.info.directory == str(folder):
            return row
    raise BadInput(_NO_SESSION)


def _model_of(store: Store, row: SessionRow) -> str | None:
    """The model that gave a session's newest answer, if one did."""
    for place in reversed(range(row.places)):
        held = store.message_at(row.key, place)
        info = held.message.info if held else None
        if not isinstance(info, AssistantInfo) or info.summary:
            continue
        if info.provider_id and info.model_id:
            # Weights are known to a session by their name, and not by where they lie.
            return LOCAL if info.provider_id == LOCAL else f"{info.provider_id}:{info.model_id}"
    return None


# --- the model -----------------------------------------------------------------------------


def _reach(
    stack: ExitStack, name: str | None, base_url: str | None, window: int | None
) -> tuple[Model, int | None]:
    """A model and its window, if it is set; one of this machine runs until the stack is closed."""
    if not name:
        raise BadInput(NO_MODEL)
    if not is_local(name):
        if base_url is None:  # else a provider may have any name
            _check_name(name)
        return model_named(name, base_url=base_url), window
    if base_url is not None:
        raise BadInput("--base-url is for a model that is elsewhere; leave it out for a local one")
    size = window or LOCAL_WINDOW
    return stack.enter_context(local_model(name, window=size)), size


def _check_name(name: str) -> None:
    """Refuse a misspelt `local`, and a product in place of its provider."""
    provider, colon, model = name.partition(":")
    better = _OTHERWISE.get(provider.lower()) if colon else None
    wrong = f"provider {plain(provider)!r}"
    if better is None and get_close_matches(provider.lower(), [LOCAL], cutoff=_NEAR):
        better, wrong = LOCAL, f"model {plain(name)!r}"
    if better is not None:
        right = plain(f"{better}{colon}{model}")
        raise BadInput(f"there is no {wrong}; did you mean {right}?")


# --- rules and texts -----------------------------------------------------------------------


def rules(options: RunOptions, tools: Iterable[Tool]) -> dict[str, Action]:
    """The user's rules, in the order in which they count: the stricter ones last."""
    names = [tool.name for tool in tools]
    found: dict[str, Action] = {}
    actions: tuple[Action, ...] = ("allow", "ask", "deny")
    for action in actions:
        for rule in getattr(options, action):
            tool = rule.partition(":")[0].strip()
            if not any(fnmatchcase(name, tool) for name in names):
                known = ", ".join(names)
                raise BadInput(f"the rule {harmless(rule)!r} is for no tool; there are {known}")
            found.pop(rule, None)  # so that it counts at its own place
            found[rule] = action
    return found


def _read_prompt(path: Path | None) -> str | None:
    """The system prompt in a file."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "not UTF-8 text"
        raise BadInput(f"cannot be read: {cause}", source=harmless(str(path))) from None
