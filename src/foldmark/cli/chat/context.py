"""What a run consists of: its options, model, session, agent and screen.

The model is connected at once; the session is opened only when there is a first message.
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

from foldmark.agent.agent import MAX_STEPS, Agent
from foldmark.agent.permissions import Action, Asker
from foldmark.agent.tool import Tool
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.errors import BadInput, NoSession
from foldmark.files import printable
from foldmark.model.messages import AssistantInfo, Origin
from foldmark.providers.local import LOCAL, is_local, local_model
from foldmark.providers.models import model_named
from foldmark.session.message_builder import MessageBuilder
from foldmark.session.opening import open as open_session
from foldmark.session.opening import open_store
from foldmark.session.session import Session
from foldmark.session.settings import DIGEST
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store
from foldmark.summary.protocol import Model

from ..commands.diff import check_folder
from ..groups import flag, option
from ..layout import QUIET
from ..options import BASE_URL, STORE, WINDOW, StoreOptions, opened_store, store_settings
from ..text import error_line, plain
from .lines import Line, write_stderr
from .screen import Gauge, TerminalScreen

LOCAL_WINDOW = 8_192
NO_MODEL = (
    "no model is set: give --model PROVIDER:NAME, or set `model` in "
    "~/.config/foldmark/foldmark.toml; --model local runs a small one on this machine"
)
_NO_SESSION = "no earlier run in this folder to continue; give a task, or --session ID"
_RUN = "foldmark run"  # the origin of sessions that are created here
_NEAR = 0.75  # how similar a misspelled `local` must be
# Product names that people give in place of the provider's name.
_PROVIDERS = {
    "chatgpt": "openai",
    "claude": "anthropic",
    "gemini": "google",
    "gpt": "openai",
    "grok": "xai",
    "kimi": "moonshotai",
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run, except those for its output."""

    model: str | None = option(
        "-m --model PROVIDER:NAME",
        "Model to use; `local` or local:FILE.gguf runs one on this machine.",
        show_default=False,
    )
    base_url: str | None = option(*BASE_URL)
    window: int | None = option(*WINDOW, min=1)
    session: str | None = option(
        "-s --session ID",
        "Session to work in: its id, an unambiguous start of its id, or `latest` (default: a new "
        "session).",
    )
    resume: bool = flag(
        "-c --continue",
        "Continue the newest session that `run` created in this directory, with its model unless "
        "--model is given. Add --session ID to continue another one.",
    )
    folder: Path = option(
        "--dir DIR", "Working directory, which tools cannot leave.", default=Path()
    )
    allow: list[str] = option(
        "--allow RULE",
        "Tools to call without asking: shell, 'shell:git *'. --ask and --deny take precedence.",
        default=[],
    )
    ask: list[str] = option(
        "--ask RULE", "Tools to ask about, even if allowed. --deny takes precedence.", default=[]
    )
    deny: list[str] = option(
        "--deny RULE",
        "Tools never to call: 'write:src/*'. Overrides every other rule, even a narrower one.",
        default=[],
    )
    max_steps: int = option(
        "--max-steps N", "Limit of model calls per turn.", min=1, default=MAX_STEPS
    )
    max_cost: float | None = option("--max-cost DOLLARS", "Cost limit per turn, for known prices.")
    summarizer: str | None = option(
        "--summarizer NAME",
        "Summarizer: `digest` or PROVIDER:MODEL (default: the session's model).",
    )
    policy: str | None = option("--policy NAME", "Policy that decides when to prune and compact.")
    prompt: Path | None = option("--prompt FILE", "File that replaces the default system prompt.")
    store: str | None = option(*STORE, show_default=False)


class RunContext:
    """The parts of a run; `open` creates the session and the agent."""

    session: Session
    agent: Agent
    screen: TerminalScreen  # on a terminal only, like the gauge
    gauge: Gauge

    def __init__(self, options: RunOptions, stack: ExitStack) -> None:
        """Check the options and connect the model; the stack closes what is opened."""
        self.options = options  # updated by `switch`, so that `resume_command` repeats them
        self.folder = check_folder(options.folder.resolve())
        # Check before a session is created.
        permission_rules(options, workspace_tools(self.folder))
        if options.max_cost is not None and not 0 < options.max_cost < math.inf:
            raise BadInput(f"--max-cost is {options.max_cost:g}; give more than 0 dollars")
        names = ("store", "model", "window", "policy", "summarizer")
        self.settings = store_settings(**{name: getattr(options, name) for name in names})
        self.store_options = StoreOptions(store=self.settings.store)
        self._prompt = _read_prompt(options.prompt)
        self._stack = stack
        self._row, name = self._session_to_resume()
        base_url = options.base_url or self.settings.base_url
        name = self.settings.model or name
        self.model, self.window = _connect(stack, name, base_url, self.settings.window)
        self._ask: Asker | None = None
        self.session_id = ""  # until `open`
        self.revert_trees: dict[int, tuple[str, str]] = {}  # files before and after each revert

    def open(self, ask: Asker | None = None) -> None:
        """Open the session (the one to continue, or a new one) and create its agent."""
        settings, model = self.settings, self.model.name
        # Raise errors before anything is created.
        msgspec.structs.replace(settings, model=model, window=self.window).limit()
        name, url = settings.summarizer, settings.base_url
        summarizer = name if name in (None, DIGEST) else model_named(name, base_url=url)
        if self._row is None:
            origin = Origin(format=_RUN)
            info = MessageBuilder().session_info(directory=str(self.folder), origin=origin)
            with open_store(settings) as store:
                self._row = store.create(info, estimate=settings.rules().estimate)
        session = open_session(
            self.settings.store,
            session=self._row.id,
            policy=settings.policy,
            summarizer=summarizer,
            model=model,
            window=self.window,
        )
        self.session = self._stack.enter_context(session)
        self.session_id, self._ask = self.session.id, ask
        self.agent = self._agent(self.model)

    def _agent(self, model: Model) -> Agent:
        options = self.options
        tools = workspace_tools(self.folder, guarded=self.session.files)
        return Agent(
            model,
            tools=tools,
            system=self._prompt,
            folder=self.folder,
            permissions=permission_rules(options, tools),
            ask=self._ask,
            max_steps=options.max_steps,
            max_cost=options.max_cost,
        )

    def switch(self, name: str, window: int | None) -> None:
        """Continue with another model; --base-url applies only to models of the same provider."""
        is_same_provider = self.model.name.partition(":")[0] == name.partition(":")[0]
        base_url = self.options.base_url if is_same_provider else None
        model, size = _connect(self._stack, name, base_url, window)
        agent = self._agent(model)
        self.session.switch_model(model.name, window=size)
        self.agent = agent
        self.options = replace(self.options, model=name, window=window, base_url=base_url)
        self.gauge.refresh()

    def say(self, line: Line) -> None:
        """Show a line of our own: on the screen, or on standard error before there is one."""
        (self.screen.say if self.session_id else write_stderr)(line)

    def model_note(self) -> Line | None:
        """A line about a model that runs on this machine, or None for other models."""
        if not is_local(self.model.name):
            return None
        name, window = self.model.name, self.window
        text = f"{name} runs on this machine, with a window of {window:,} tokens; nothing leaves it"
        return Line(text, QUIET)

    def resume_command(self) -> str:
        """The command that continues this session with the same options."""
        options = self.options
        flags = {
            "--model": options.model,
            "--base-url": options.base_url,
            "--window": options.window,
            "--dir": None if options.folder == Path() else options.folder,
            "--store": options.store,
        }
        command = ["foldmark", "run", "--continue", "--session", self.session.id]
        for name, value in flags.items():
            text = "" if value is None else str(value)
            may_hold_password = "://" in text and (name == "--store" or "@" in text)
            if text and not may_hold_password:
                command += [name, text]
        return shlex.join(command)

    # --- the session to continue ---

    def _session_to_resume(self) -> tuple[SessionRow | None, str | None]:
        """The session to continue and its model, or None twice for a new session."""
        name = self.options.session
        if name is None and not self.options.resume:
            return None, None
        missing = _NO_SESSION if name is None else f"there is no session {name!r}"
        with opened_store(self.settings, missing=missing) as store:
            try:
                row = _newest(store, self.folder) if name is None else store.resolve(name)
            except NoSession as error:
                raise BadInput(f"{error_line(error)}; omit --session for a new one") from None
            return row, _model_of(store, row)


def _newest(store: Store, folder: Path) -> SessionRow:
    """The session that `run` created in this folder and that was written to last."""
    for row in store.sessions():
        origin = row.info.origin or Origin()
        if row.places and origin.format == _RUN and row.info.directory == str(folder):
            return row
    raise BadInput(_NO_SESSION)


def _model_of(store: Store, row: SessionRow) -> str | None:
    """The model of a session's newest reply, or None."""
    for index in reversed(range(row.places)):
        entry = store.message_at(row.key, index)
        info = entry.message.info if entry else None
        if not isinstance(info, AssistantInfo) or info.summary:
            continue
        if info.provider_id and info.model_id:
            # A session stores the name of local weights, not their path.
            return LOCAL if info.provider_id == LOCAL else f"{info.provider_id}:{info.model_id}"
    return None


# --- the model -----------------------------------------------------------------------------


def _connect(
    stack: ExitStack, name: str | None, base_url: str | None, window: int | None
) -> tuple[Model, int | None]:
    """Connect a model; returns it with its window, if known. A local model stops with the stack."""
    if not name:
        raise BadInput(NO_MODEL)
    if not is_local(name):
        if base_url is None:  # with --base-url, a provider may have any name
            _check_name(name)
        return model_named(name, base_url=base_url), window
    if base_url is not None:
        raise BadInput("--base-url is for a remote model; leave it out for a local one")
    size = window or LOCAL_WINDOW
    return stack.enter_context(local_model(name, window=size)), size


def _check_name(name: str) -> None:
    """Raises BadInput for a misspelled `local`, or for a product in place of its provider."""
    provider, colon, model = name.partition(":")
    better = _PROVIDERS.get(provider.lower()) if colon else None
    wrong = f"provider {plain(provider)!r}"
    if better is None and get_close_matches(provider.lower(), [LOCAL], cutoff=_NEAR):
        better, wrong = LOCAL, f"model {plain(name)!r}"
    if better is not None:
        right = plain(f"{better}{colon}{model}")
        raise BadInput(f"there is no {wrong}; did you mean {right}?")


# --- rules and prompts ---------------------------------------------------------------------


def permission_rules(options: RunOptions, tools: Iterable[Tool]) -> dict[str, Action]:
    """The user's permission rules; later ones take precedence, so the stricter ones are last."""
    names = [tool.name for tool in tools]
    actions_by_rule: dict[str, Action] = {}
    actions: tuple[Action, ...] = ("allow", "ask", "deny")
    for action in actions:
        for rule in getattr(options, action):
            tool = rule.partition(":")[0].strip()
            if not any(fnmatchcase(name, tool) for name in names):
                choices = ", ".join(names)
                cause = f"no tool matches the rule {printable(rule)!r}; the tools are {choices}"
                raise BadInput(cause)
            actions_by_rule.pop(rule, None)  # a repeated rule moves to its new position
            actions_by_rule[rule] = action
    return actions_by_rule


def _read_prompt(path: Path | None) -> str | None:
    """The system prompt in a file. Raises BadInput if it cannot be read."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "not UTF-8 text"
        raise BadInput(f"cannot be read: {cause}", source=printable(str(path))) from None
