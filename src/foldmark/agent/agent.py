"""The agent: a model, its tools and its permissions, working in a session one turn at a time.

An agent can delegate tasks to other agents: each works in a session of its own and returns only
its final text.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from foldmark.compaction.pivot import AGENT as COMPACTION
from foldmark.errors import BadInput, BadPolicy, FoldmarkError
from foldmark.providers.background import run_uninterrupted
from foldmark.providers.models import model_named
from foldmark.session.loop_support import LoopSupport
from foldmark.session.message_builder import Content
from foldmark.session.opening import open as open_session
from foldmark.session.session import Session
from foldmark.summary.prompting import prompt as prompt_named
from foldmark.summary.protocol import Model

from .function_tools import tool, toolset
from .permissions import Action, Asker, PermissionGate, Permissions
from .recorder import FolderSnapshots
from .step import RetryPolicy
from .titles import first_words
from .tool import Context, Tool, ToolOutput, ToolRefusal
from .tool_calls import Toolbox
from .tools.memory import memory_tools
from .tools.paths import working_folder
from .tools.workspace import DEFAULT_RULES
from .turn import DELEGATE_TOOL, Turn, TurnResult

MAX_STEPS = 1_000
_DELEGATE_SECONDS, _DELEGATE_TOKENS = 3_600.0, 2_000
_ANY: tuple[str, Action] = ("*", "allow")  # tools given to an agent are meant to be used


class Agent:
    """Works on tasks in a session: calls tools until its model is done.

    >>> from foldmark.testing import ScriptedModel, call
    >>> agent = Agent(ScriptedModel("Nothing to do."), name="idle")
    >>> agent.name
    'idle'
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        model: str | Model,
        *,
        tools: Iterable[object] = (),
        system: str | None = None,
        name: str = "agent",
        description: str = "",
        folder: str | Path | None = None,
        agents: "Iterable[Agent]" = (),
        permissions: Mapping[str, Action] | None = None,
        ask: Asker | None = None,
        max_steps: int = MAX_STEPS,
        max_cost: float | None = None,
        window: int | None = None,
        base_url: str | None = None,
        retry: RetryPolicy | None = None,
        titles: bool = True,
    ) -> None:
        """Create an agent from a model's name or object.

        `system` is its system prompt. In `folder` it works on files; snapshots record what each
        step changes. It may delegate tasks to `agents`; one named `compaction` writes its
        summaries. `permissions` are rules like {"shell:git push*": "deny"}; where a rule says
        "ask", `ask` is called and returns "once", "always" or "no". A turn ends after `max_steps`
        steps or once it has cost `max_cost` dollars.
        """
        self.model = _reached(model, base_url)
        self.name = name
        self.description = description or f"an agent named {name}"
        self.has_own_prompt = system is not None
        self.system = prompt_named("worker") if system is None else system
        self.folder = None if folder is None else working_folder(folder)
        self.here = self.folder or Path.cwd()
        if max_steps < 1:
            raise BadPolicy(f"max_steps is {max_steps}; it must be 1 or more")
        self.max_steps = max_steps
        if max_cost is not None and max_cost <= 0:
            raise BadPolicy(f"max_cost is {max_cost}; it must be more than 0 dollars")
        self.max_cost = max_cost
        self.window = window
        self.retry = retry or RetryPolicy()
        self.titles = titles
        others = _by_name(agents)
        self._compactor = others.pop(COMPACTION, None)
        if self._compactor is not None and self._compactor.own_tools:
            raise BadPolicy(f"the agent {COMPACTION} only writes summaries; give it no tools")
        self.own_tools = tuple(tools)
        delegation = (_delegate(others),) if others else ()
        # Hidden content can always be recalled.
        own_toolset = toolset((*self.own_tools, *delegation, *memory_tools()))
        own_rules = (permissions or {}).items()
        _check_rules([rule for rule, _ in own_rules], own_toolset)
        rules = (_ANY, *DEFAULT_RULES, *own_rules)
        self.toolbox = Toolbox(own_toolset, PermissionGate(Permissions(rules), ask))
        self.snapshots = FolderSnapshots(self.folder)

    def run(
        self, task: Content | None = None, session: Session | None = None, **settings: Any
    ) -> TurnResult:
        """Work on a task in a session, by default in a new session in the default store.

        Without a task, the session continues where it stopped.
        """
        return self.turn(task, session, **settings).run()

    async def arun(
        self, task: Content | None = None, session: Session | None = None, **settings: Any
    ) -> TurnResult:
        """`run`, async."""
        return await self.turn(task, session, **settings).arun()

    def turn(
        self, task: Content | None = None, session: Session | None = None, **settings: Any
    ) -> Turn:
        """A turn that has not started: any thread can add to it and stop it."""
        if session is None:
            options: dict[str, Any] = {"model": self.model.name, "window": self.window, **settings}
            session = open_session(**options)
        elif settings:
            raise BadInput(f"{', '.join(settings)}: pass these where you open the session")
        return Turn(self, session, task)

    # --- used by turns ---

    def prepare(self, session: Session) -> None:
        """Configure a session for this agent's model, system prompt and tools."""
        tools = tuple(tool.declaration for tool in self.toolbox.tools.values())
        summarizer = self._compactor.model if self._compactor else self.model
        if self.folder is not None and not session.info.info.directory:
            LoopSupport(session).describe(directory=str(self.folder))
        compactor = self._compactor if self._compactor and self._compactor.has_own_prompt else None
        session.configure(
            system=self.system,
            tools=tools,
            summarizer=summarizer,
            focus=compactor.system if compactor else None,
        )
        if session.model != self.model.name or self.window is not None:
            # A window that was set without a model is meant for this one.
            limit = None if session.model else session.limit
            session.switch_model(
                self.model.name,
                window=self.window or (limit.context if limit else None),
                output=(limit.output or None) if limit else None,
            )


def _reached(model: str | Model, base_url: str | None) -> Model:
    if isinstance(model, str):
        return model_named(model, base_url=base_url)
    if not callable(getattr(model, "step", None)):
        kind = type(model).__name__
        raise BadInput(f"a model is a name like provider:model or has a `step` method, not {kind}")
    return model


def _by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    by_name: dict[str, Agent] = {}
    for agent in agents:
        if agent.name in by_name:
            raise BadInput(f"two agents are named {agent.name!r}; give one of them another name=…")
        by_name[agent.name] = agent
    return by_name


def _check_rules(rules: Iterable[str], tools: Iterable[str]) -> None:
    """Raise BadPolicy for a rule that matches no tool: a misspelled one would forbid nothing."""
    names = {*tools, *(name for name, _ in DEFAULT_RULES)}
    for rule in rules:
        pattern = rule.partition(":")[0].strip()
        if pattern and not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=1) or sorted(names)
            raise BadPolicy(f"no tool matches the rule {rule!r}; did you mean {', '.join(near)}?")


# --- delegation ----------------------------------------------------------------------------


def _delegate(agents: Mapping[str, Agent]) -> Tool:
    """The tool that delegates a task to one of these agents."""
    descriptions = "\n".join(f"- {name}: {other.description}" for name, other in agents.items())
    description = (
        "Hand a task to another agent. It knows nothing of this conversation, so say all that "
        f"it needs; it gives back its last words only.\n{descriptions}"
    )
    names = Meta(extra_json_schema={"enum": list(agents)})

    @tool(
        name=DELEGATE_TOOL,
        description=description,
        seconds=_DELEGATE_SECONDS,
        visible_tokens=_DELEGATE_TOKENS,
        changes_files=any(other.toolbox.changes_files for other in agents.values()),
    )
    async def delegate(
        agent: Annotated[str, names],
        task: Annotated[str, "What it shall do, with all it needs."],
        context: Context,
    ) -> ToolOutput:
        if not task.strip():
            raise ToolRefusal("`task` must say what is to be done")
        if agent not in agents:
            raise ToolRefusal(f"there is no agent {agent!r}; these are there: {', '.join(agents)}")
        title = first_words(task)
        session = await run_uninterrupted(LoopSupport(context.session).child, title)
        turn = agents[agent].turn(task, session)
        about = {"session": session.id}
        try:
            result = await turn.arun()
        except FoldmarkError as error:  # its cost so far still counts
            return ToolOutput(text=str(error), metadata={**about, "cost": turn.cost}, error=True)
        finally:
            await run_uninterrupted(session.close)
        return ToolOutput(
            text=result.text or f"[It ended without a word: {result.ending}]",
            title=f"{agent}: {title}",
            metadata={**about, "ended": result.ending, "steps": result.steps, "cost": result.cost},
            error=result.ending != "stop",
        )

    return delegate
