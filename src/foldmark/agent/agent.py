"""The agent: a model, its tools, and what it may do; it works in sessions, one turn at a time.

It can hand tasks to other agents: each works in a session of its own, and only its last words
come back.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from foldmark.compaction.pivot import AGENT as COMPACTION
from foldmark.errors import BadInput, BadPolicy, FoldmarkError
from foldmark.providers.background import uncut
from foldmark.providers.models import model_named
from foldmark.session.loop_support import LoopSupport
from foldmark.session.maker import Content
from foldmark.session.opening import open as open_session
from foldmark.session.session import Session
from foldmark.summary.prompting import prompt as prompt_named
from foldmark.summary.protocol import Model

from .function_tools import tool, toolset
from .permissions import Action, Asker, Gate, Permissions
from .recorder import FolderSnapshots
from .step import RetryPolicy
from .titles import first_words
from .tool import Context, Tool, ToolOutput, ToolRefusal
from .tool_calls import Toolbox
from .tools.memory import memory_tools
from .tools.paths import working_folder
from .tools.workspace import DEFAULT_RULES
from .turn import DELEGATE, Turn, TurnResult

STEPS = 1_000
_DELEGATE_SECONDS, _DELEGATE_SHOWN = 3_600.0, 2_000
_ANY: tuple[str, Action] = ("*", "allow")  # who hands a tool to an agent wants it to be used


class Agent:
    """Does what it is told in a session, by calling tools until its model is done.

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
        prompt: str | None = None,
        name: str = "agent",
        description: str = "",
        folder: str | Path | None = None,
        agents: "Iterable[Agent]" = (),
        permissions: Mapping[str, Action] | None = None,
        ask: Asker | None = None,
        steps: int = STEPS,
        cost: float | None = None,
        window: int | None = None,
        base_url: str | None = None,
        retry: RetryPolicy | None = None,
        titles: bool = True,
    ) -> None:
        """Take a model by its name or as an object, and what it works with.

        `folder` is where it works: snapshots of it tell what each step changed. `agents` are
        others to which it may hand tasks; one of the name `compaction` writes its summaries.
        `permissions` are rules like {"shell:git push*": "deny"}; `ask` is asked where a rule says
        so, and answers "once", "always" or "no". A turn ends after so many `steps`, or when it has
        cost so many dollars.
        """
        self.model = _reached(model, base_url)
        self.name = name
        self.description = description or f"an agent named {name}"
        self.is_told = prompt is not None  # its own way, and not the usual one
        self.prompt = prompt_named("worker") if prompt is None else prompt
        self.folder = None if folder is None else working_folder(folder)
        self.here = self.folder or Path.cwd()
        if steps < 1:
            raise BadPolicy(f"steps is {steps}; it must be 1 or more")
        self.steps = steps
        if cost is not None and cost <= 0:
            raise BadPolicy(f"cost is {cost}; it must be more than 0 dollars")
        self.cost = cost
        self.window = window
        self.retry = retry or RetryPolicy()
        self.titles = titles
        others = _by_name(agents)
        self._compactor = others.pop(COMPACTION, None)
        if self._compactor is not None and self._compactor.given_tools:
            raise BadPolicy(f"the agent {COMPACTION} summarises, and takes no tools")
        self.given_tools = tuple(tools)
        handing = (_delegate(others),) if others else ()
        # What is folded can always be read again.
        known = toolset((*self.given_tools, *handing, *memory_tools()))
        own_rules = (permissions or {}).items()
        _check_rules([rule for rule, _ in own_rules], known)
        rules = (_ANY, *DEFAULT_RULES, *own_rules)
        self.toolbox = Toolbox(known, Gate(Permissions(rules), ask))
        self.changes = FolderSnapshots(self.folder)

    def run(
        self, said: Content | None = None, session: Session | None = None, **more: Any
    ) -> TurnResult:
        """Do what the user says, in a session; a new one in the usual store where none is given.

        Without words, the session goes on where it was left.
        """
        return self.turn(said, session, **more).run()

    async def arun(
        self, said: Content | None = None, session: Session | None = None, **more: Any
    ) -> TurnResult:
        """`run`, async."""
        return await self.turn(said, session, **more).arun()

    def turn(
        self, said: Content | None = None, session: Session | None = None, **more: Any
    ) -> Turn:
        """A turn that is not begun yet: it can be told more, and stopped, from any thread."""
        if session is None:
            given: dict[str, Any] = {"model": self.model.name, "window": self.window, **more}
            session = open_session(**given)
        elif more:
            raise BadInput(f"{', '.join(more)}: these are for a new session, and one was given")
        return Turn(self, session, said)

    # --- what a turn asks of its agent ---

    def prepare(self, session: Session) -> None:
        """Make a session ready for this agent's model, prompt and tools."""
        tools = tuple(tool.declared for tool in self.toolbox.tools.values())
        summarizer = self._compactor.model if self._compactor else self.model
        if self.folder is not None and not session.info.info.directory:
            LoopSupport(session).describe(directory=str(self.folder))
        told = self._compactor if self._compactor and self._compactor.is_told else None
        session.configure(
            system=self.prompt,
            tools=tools,
            summarizer=summarizer,
            focus=told.prompt if told else None,
        )
        if session.model != self.model.name or self.window is not None:
            # A window that was set for no model in particular is meant for this one.
            kept = None if session.model else session.limit
            session.switch(
                self.model.name,
                window=self.window or (kept.context if kept else None),
                output=(kept.output or None) if kept else None,
            )


def _reached(model: str | Model, base_url: str | None) -> Model:
    if isinstance(model, str):
        return model_named(model, base_url=base_url)
    if not callable(getattr(model, "step", None)):
        kind = type(model).__name__
        raise BadInput(f"a model is a name like provider:model, or has a method step; not {kind}")
    return model


def _by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    for agent in agents:
        if agent.name in found:
            raise BadInput(f"two agents are called {agent.name!r}; give one another name=…")
        found[agent.name] = agent
    return found


def _check_rules(rules: Iterable[str], tools: Iterable[str]) -> None:
    """Refuse a rule for a tool that is not there: a misspelt one would forbid nothing."""
    known = {*tools, *(name for name, _ in DEFAULT_RULES)}
    for rule in rules:
        wanted = rule.partition(":")[0].strip()
        if wanted and not any(fnmatchcase(name, wanted) for name in known):
            near = get_close_matches(wanted, known, n=1) or sorted(known)
            raise BadPolicy(f"the rule {rule!r} is for no tool; there are {', '.join(near)}")


# --- tasks for other agents ----------------------------------------------------------------


def _delegate(agents: Mapping[str, Agent]) -> Tool:
    """The tool by which an agent hands a task to one of these."""
    listed = "\n".join(f"- {name}: {other.description}" for name, other in agents.items())
    about = (
        "Hand a task to another agent. It knows nothing of this conversation, so say all that "
        f"it needs; it gives back its last words only.\n{listed}"
    )
    names = Meta(extra_json_schema={"enum": list(agents)})

    @tool(
        name=DELEGATE,
        description=about,
        seconds=_DELEGATE_SECONDS,
        shown=_DELEGATE_SHOWN,
        changes=any(other.toolbox.changes for other in agents.values()),
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
        session = await uncut(LoopSupport(context.session).child, title)
        turn = agents[agent].turn(task, session)
        told = {"session": session.id}
        try:
            ended = await turn.arun()
        except FoldmarkError as error:  # what it cost until then counts all the same
            return ToolOutput(text=str(error), metadata={**told, "cost": turn.cost}, error=True)
        finally:
            await uncut(session.close)
        return ToolOutput(
            text=ended.text or f"[It ended without a word: {ended.ended}]",
            title=f"{agent}: {title}",
            metadata={**told, "ended": ended.ended, "steps": ended.steps, "cost": ended.cost},
            error=ended.ended != "stop",
        )

    return delegate
